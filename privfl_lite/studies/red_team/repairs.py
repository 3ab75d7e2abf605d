"""The adaptive defender: repairs that the chapters name, each attacked once more (red-team).

Parts: "attack", one image behind each upload, one step, untrained: digits behind a sigmoid LeNet
(LODA: photographs behind a dense network, where encodings are read exactly), under the attacker
who knows of the repair ("knows"), and where that is another one (``ANSWERED``) also under the one
who knew the plain defense ("knew"). A cell keeps a row for each network. "cost": accuracy of a
short FedAvg run on digits with every client defended, and the run's record of ε; for LODA,
"loda/training" has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import attacks, metrics, models
from ...client import share
from ...data import Dataset, load
from ...defenses import (
    DCS2,
    LODA,
    AdaptiveCloak,
    Defense,
    Entangle,
    FedKL,
    ModelCloak,
    Prune,
    Rounded,
)
from ...federated import FedAvg
from ...gradients import norm
from ...models.extractor import Extractor
from ...wire import Plan, Upload
from ..base import Study
from ..dcs2.training import Scaled
from ..reach.map import _drawn, blind, scores

FAMILIES = {  # defense -> its repairs; "plain" is the defense as its chapter has it
    "dcs2": ("plain", "pruned", "boxed, rescaled"),
    "fedkl": ("plain", "16 bits", "chained", "chained, 16 bits"),
    "entangle": ("plain", "every tensor", "noise"),
    "loda": ("plain", "deeper layer", "fresh starts"),
    "cloak": ("plain", "private norm", "plain, sigma 5", "private norm, sigma 5"),
}
ANSWERED = ("pruned", "16 bits", "chained, 16 bits", "noise", "fresh starts", "private norm")
DATA = {"loda": "photos"}
NOISE = 0.01  # standard deviation beside entanglement: ModelCloak's sweet spot on digits


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "seeds": [0, 1, 2],  # networks, and their images
        "images": 32 if large else 3,  # for each network
        "gallery": 100,
        "craft": {"steps": 1000 if large else 100, "lr": 0.1 if large else 0.3},
        "search": 1000 if large else 200,  # evaluations
        "loda": {"steps": 500 if large else 150, "invert": 400 if large else 60, "rounds": 3},
        "sigma": 0.001,  # of the cloak that can be read
        "scale": 0.37,  # of an upload, known to nobody
        "tol": [1e-4, 1e-3, 1e-2, 3e-2],  # tried on 16 bits; the least misfit is taken
        "cost": {"clients": 10, "per_client": 64, "rounds": 8, "eta": 0.06, "batch": 16},
        "cost_craft": {"steps": 20 if large else 4, "lr": 0.3},
        "cost_seeds": [0, 1],
    }


def _cells(settings: dict) -> list[dict]:
    cells = []
    for family, names in FAMILIES.items():
        for name in names:
            ways = ("knew", "knows") if name in ANSWERED else ("knows",)
            cells += [{"part": "attack", "family": family, "defense": name, "who": w} for w in ways]
    costs = [{"part": "cost", "family": "none", "defense": "plain"}]
    costs += [
        {"part": "cost", "family": family, "defense": name}
        for family, names in FAMILIES.items()
        for name in names
        if family != "loda"
    ]
    return cells + costs


def _compute(settings: dict, cell: dict) -> dict:
    if cell["part"] == "cost":
        return _cost(settings, cell)
    return {"networks": [_one(settings, cell, seed) for seed in settings["seeds"]]}


class Scene(NamedTuple):
    """One network, the private images, and the strangers that they are to be told from."""

    net: models.Net
    x: Tensor
    y: Tensor
    others: Tensor
    data: Dataset


def scene(settings: dict, family: str, seed: int) -> Scene:
    ds = load(DATA.get(family, "mnist"))
    x, y, others = _drawn(ds, settings["images"], seed, settings["gallery"])
    net = models.build("mlp" if family == "loda" else "lenet", ds, seed=seed)
    return Scene(net, x, y, others, ds)


def median_norm(at: Scene) -> float:
    """Of gradients of public training images at this network."""
    return norm(share(at.net, *at.data.sample(20, seed=3000), each=1).tensors).median().item()


def defense_of(settings: dict, family: str, name: str, at: Scene | None, seed: int) -> Defense:
    """The defense, plain or repaired; ``at`` is None in a training run."""
    craft, bits = settings["craft" if at else "cost_craft"], "16 bits" in name
    if family == "dcs2":
        if name == "boxed, rescaled":
            return DCS2(**craft, box=True) + Scaled(settings["scale"])
        return DCS2(**craft) + Prune(0.7) if name == "pruned" else DCS2(**craft)
    if family == "fedkl":
        lock = FedKL(seed=seed, blocks="chained" if "chained" in name else "first")
        return lock + Rounded() if bits else lock
    if family == "entangle":
        how: dict[str, Any] = {"tensors": "every"} if name == "every tensor" else {}
        if at is not None:
            public = at.data.sample(settings["images"], seed=4000 + seed)
            how["guard"] = share(at.net, *public, each=1).tensors
        whole = Entangle(**how, score="quotient" if at else "random")
        return whole + ModelCloak(1e3, NOISE / 1e3) if name == "noise" else whole
    if family == "loda":
        assert at is not None  # its cost is in a study of its own
        deep = "loda3" if name == "deeper layer" else "loda1"
        steps, fresh = settings["loda"]["steps"], name == "fresh starts"
        return LODA(layers=deep, steps=steps, start=at.data.x_train, fresh=fresh)
    if family == "cloak":
        sigma, first = 5.0 if "5" in name else settings["sigma"], median_norm(at) if at else 1.0
        if "private" in name:
            return AdaptiveCloak(first, sigma, bit=10 * sigma)
        return ModelCloak(1e3, sigma, mode="dynamic", keep="scale")
    return Defense()


GRANTED = {
    ("dcs2", "pruned"): ("labels", "mixture", "shares"),
    ("entangle", "noise"): ("labels", "noise", "guard"),
    ("cloak", "private norm"): ("labels", "noise", "clip"),
    ("cloak", "private norm, sigma 5"): ("labels", "noise", "clip"),
}


def uploads(settings: dict, cell: dict, at: Scene, seed: int) -> list[Upload]:
    """What is sent; more than one round where clients begin anew each round, and it is used."""
    family, name = cell["family"], cell["defense"]
    guard = defense_of(settings, family, name, at, seed)
    plain = {"dcs2": ("labels",), "fedkl": (), "loda": ("extractor",), "cloak": ("labels",)}
    knows = GRANTED.get((family, name), plain.get(family, ("labels", "guard")))
    many = settings["loda"]["rounds"] if name == "fresh starts" and cell["who"] == "knows" else 1
    how: dict[str, Any] = {"knows": knows, "each": 1}
    return [share(at.net, at.x, at.y, guard, **how, seed=seed + 100 * r) for r in range(many)]


def attack_of(settings: dict, cell: dict) -> Callable[[list[Upload]], attacks.Reconstruction]:
    """The attacker of a cell, as a function of the rounds that it saw."""
    family, name, knows = cell["family"], cell["defense"], cell["who"] == "knows"
    search: dict[str, Any] = {"steps": settings["search"], "show": False}
    if family == "dcs2":
        who = attacks.PairPruned(show=False) if name == "pruned" and knows else attacks.Pair()
        return lambda seen: who.run(seen[0])
    if family == "fedkl":
        tried = settings["tol"] if "16 bits" in name and knows else settings["tol"][:1]
        return lambda seen: least([attacks.Unlock(tol=t).run(seen[0]) for t in tried])
    if family == "loda":
        inverse = attacks.Unobscure(steps=settings["loda"]["invert"], show=False)
        return lambda seen: inverse.run(seen if len(seen) > 1 else seen[0])
    if family == "entangle":
        unguard = attacks.Unguard(attacks.IDLG(nonzero=True, **search))
        denoise = attacks.Denoise(drop="head.weight", **search)  # the rest is the client's own
        one: attacks.Attack = denoise if name == "noise" and knows else unguard
        return lambda seen: one.run(seen[0])
    known = "private" in name and knows
    cloaked = attacks.Denoise(**search) if known else attacks.DenoiseUnknown(**search)
    return lambda seen: cloaked.run(seen[0])


def least(found: list[attacks.Reconstruction]) -> attacks.Reconstruction:
    """Of several reconstructions of each upload, that of least cost: the attacker's own score."""
    costs = torch.stack([f.cost for f in found]).nan_to_num(torch.inf)
    best, rows = costs.argmin(0), torch.arange(costs.shape[1], device=costs.device)
    images, labels = (torch.stack([getattr(f, n) for f in found]) for n in ("images", "labels"))
    return replace(
        found[0], images=images[best, rows], labels=labels[best, rows], cost=costs.amin(0)
    )


def _one(settings: dict, cell: dict, seed: int) -> dict:
    at = scene(settings, cell["family"], seed)
    seen = uploads(settings, cell, at, seed)
    began = time.process_time()
    result = attack_of(settings, cell)(seen)
    seconds, found = time.process_time() - began, result.images.cpu()
    out = {
        **scores(found, at.x, at.others, 1),
        "blind": blind(DATA.get(cell["family"], "mnist"), len(at.x), seed, settings["gallery"]),
        "cost": [float(f"{c:.2g}") for c in result.cost.tolist()],
        "cpu_seconds": round(seconds, 1),
    }
    if cell["family"] == "cloak":
        out["norm_error"] = norm_error(settings, cell, at, seen[0])
    if cell["family"] == "loda":
        out["named_kept"] = named_by_kept(settings, cell, at, result)
    return out


def norm_error(settings: dict, cell: dict, at: Scene, sent: Upload) -> float:
    """How far the client's norm lies from Ŝ = ‖u‖ / √(σ²d + 1), relatively: the median.

    Where noise does not follow the norm, from the best that its public size leaves:
    Ŝ² = ‖u‖² − ς²d, or 0 where that is below.
    """
    true, length = norm(share(at.net, at.x, at.y, each=1).tensors), norm(sent.tensors)
    d = sum(t[0].numel() for t in sent.tensors.values())
    if sent.knows.noise is not None:
        std = next(sent.knows.noise.of(n) for n in sent.tensors)
        guess = (length.square() - d * std**2).clamp(min=0).sqrt()
    else:
        sigma = 5.0 if "5" in cell["defense"] else settings["sigma"]
        guess = length / (sigma**2 * d + 1) ** 0.5
    return round(((guess - true).abs() / true).median().item(), 4)


def named_by_kept(settings: dict, cell: dict, at: Scene, result: attacks.Reconstruction) -> int:
    """How many are named by the encoding itself, in the features that it was made to keep."""
    guard = defense_of(settings, "loda", cell["defense"], at, 0)
    assert isinstance(guard, LODA)

    def rows(x: Tensor) -> Tensor:
        g: Extractor = guard.g
        return torch.cat([t.flatten(1) for t in g(x)], 1)

    seen = torch.stack(result.details["encodings"])
    return metrics.identify(seen[0], at.x, at.others, by=rows).hits


def _cost(settings: dict, cell: dict) -> dict:
    """Accuracy after a short training, by seed, and what ε the run states."""
    how, accuracy, said = settings["cost"], [], ""
    for seed in settings["cost_seeds"]:
        ds = load("mnist")
        guard = defense_of(settings, cell["family"], cell["defense"], None, seed)
        run = FedAvg(
            models.build("lenet", ds, seed=seed, act="relu", init=0.1),
            ds.clients(how["clients"], "iid", how["per_client"], seed=seed),
            how["rounds"],
            Plan(eta=how["eta"], batch_size=how["batch"], momentum=0.9),
            test=(ds.x_test, ds.y_test),
            defense=guard,
            seed=seed,
            show=False,
        ).finish()
        accuracy.append(round(run.history[-1].accuracy or 0.0, 4))
        said = str(run.history[-1].epsilon)
    return {"accuracy": accuracy, "epsilon": said}


STUDY = Study(
    name="red-team/repairs",
    about="the chapters' repairs, attacked: one image, one step, untrained, three networks; costs",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
