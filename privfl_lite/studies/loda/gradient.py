"""What a gradient gives away of an image or of its encoding: GS, and the recursion on LeNet."""

from __future__ import annotations

from torch import Tensor

from ... import metrics, models
from ...attacks import GS, Recursive
from ...client import share
from ...data import load
from ...defenses import Defense, Prune
from ...wire import Upload
from .encodings import private, private_images, scores, strip

UNDEFENDED = {"none": Defense, "Prune 0.9": lambda: Prune(0.9), "Prune 0.99": lambda: Prune(0.99)}
_MATCHED: dict[str, Tensor] = {}  # x′ as GS found it, used by several parts


def uploads(settings: dict, x: Tensor, y: Tensor, defense: Defense) -> Upload:
    """One gradient an image, of an untrained network, with the labels granted."""
    model = models.build(settings["attacked"].split()[0], load("cifar10"), seed=settings["seed"])
    return share(model, x, y, defense, ("labels",), each=1, seed=settings["seed"])


def match(settings: dict, x: Tensor, y: Tensor) -> Tensor:
    """Images x as GS finds them from one gradient each."""
    s, upload = settings["gs"], uploads(settings, x, y, Defense())
    attack = GS(steps=s["steps"], tv=s["tv"], show=False)
    return metrics.as_image(attack.run(upload, seed=settings["seed"]).images)


def matched(settings: dict, layers: str) -> Tensor:
    """All x′ as GS finds them."""
    key = repr((layers, settings))
    if key not in _MATCHED:
        y = private_images(settings, layers)[1]
        _MATCHED[key] = match(settings, private(settings, layers)[1], y)
    return _MATCHED[key]


def gradient(settings: dict, cell: dict) -> dict:
    """ "GS" is scored against the private image, "GS, seen" and "recursion, seen" against x′."""
    name, s, seed = cell["defense"], settings["gs"], settings["seed"]
    if name in UNDEFENDED:
        (x, y), pruned = private_images(settings), name != "none"
        upload = uploads(settings, x, y, UNDEFENDED[name]())
        tv = s["tv_pruned"] if pruned else s["tv"]
        attack = GS(steps=s["steps"], tv=tv, nonzero=pruned, show=False)
        images = metrics.as_image(attack.run(upload, seed=seed).images)
        out = {"found": {"GS": scores(images, x)}}
        return out if name == "Prune 0.9" else out | {"picture": strip(settings, images)}
    x, e = private(settings, name)
    images = matched(settings, name)
    found = {"GS": scores(images, x), "GS, seen": scores(images, e)}
    if name == "loda1" and settings["profile"] == "cpu":  # it takes plain stacks of convolutions
        y = private_images(settings)[1]
        read = Recursive().run(uploads(settings, e, y, Defense())[:4]).images
        found["recursion, seen"] = scores(read, e[:4])
    return {"found": found}
