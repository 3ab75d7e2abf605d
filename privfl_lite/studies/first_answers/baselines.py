"""The baseline defenses in one table: leakage, plain and informed; accuracy; cost in time.

Two kinds of cells a data set and defense. "attack": one gradient of one held-out image, untrained
sigmoid LeNet; the plain attacker is iDLG with true labels, the informed one is named in the cell.
"train": FedAvg in which every client is defended, and its time as a ratio to no defense.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from ... import attacks, metrics, models
from ...client import share
from ...data import load
from ...defenses import DPSGD, DPGaussian, build
from ...defenses.base import Context, Defense
from ...defenses.mixing import flip, mix
from ...federated import FedAvg
from ...gradients import Tensors
from ...metrics.judge import rounded
from ...runtime import generator
from ...wire import Plan, Upload
from ..base import Study

DEFENSES = {  # name in the table -> how the command line writes it
    "none": "none",
    "raw noise": "dp_gaussian:sigma=0.01",
    "DP-SGD": "dp_sgd:clip=1.0,sigma=1.0",
    "Prune 0.9": "prune:rate=0.9",
    "Prune 0.99": "prune:rate=0.99",
    "Prune 0.99, feedback": "prune:rate=0.99,feedback=True",
    "Soteria 0.6": "soteria:rate=0.6",
    "PRECODE": "precode",
    "ATS": "ats",
    "Mixup 4": "mixup:k=4",
    "InstaHide 4": "instahide:k=4,crypto=False,center={center}",
    "POGZ-FL": "pogz_fl",
    "POGZ-FL, released": "pogz_fl:released=True",
    "CA-FL": "ca_fl",
}
ONLY_TRAINED = ("Prune 0.99, feedback",)  # its first gradient is that of Prune 0.99
MIXED = ("Mixup 4", "InstaHide 4")


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "datasets": ["mnist", "cifar10"],
        "defenses": DEFENSES,
        "centers": {"mnist": 0.13, "cifar10": 0.47},  # of InstaHide's flips: the mean pixel
        "attacked": "lenet (sigmoid), untrained; mlp for Mixup and InstaHide",
        "images": 64 if large else 8,
        "gs_steps": 4800 if large else 500,
        "lbfgs_steps": 1000 if large else 400,
        "trained": "mlp (64 hidden units)",
        "clients": 10,
        "per_client": {"mnist": 100, "cifar10": 200},
        "eta": {"mnist": 0.1, "cifar10": 0.03},  # by held-out images that are not the test images
        "rounds": 100 if large else 30,
        "seeds": [0, 1, 2],
        "seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    cells = []
    for data in settings["datasets"]:
        names = list(settings["defenses"])
        cells += [
            {"data": data, "defense": n, "part": "attack"} for n in names if n not in ONLY_TRAINED
        ]
        cells += [{"data": data, "defense": n, "part": "train"} for n in names]
        cells += [{"data": data, "defense": n, "part": "one client"} for n in ("none", "frozen")]
    return cells


def _compute(settings: dict, cell: dict) -> dict:
    if cell["part"] == "attack":
        return (_attack_mixed if cell["defense"] in MIXED else _attack)(settings, cell)
    return (_train if cell["part"] == "train" else _one_client)(settings, cell)


def written(settings: dict, cell: dict) -> str:
    """The defense as the command line writes it, with what depends on the data filled in."""
    center = settings["centers"][cell["data"]]
    return settings["defenses"][cell["defense"]].format(center=center)


def _scores(found: Tensor, x: Tensor) -> dict[str, list[float]]:
    scores = metrics.compare(found, x, lpips="alex")
    return {n: rounded(s, 3) for n, s in scores.items()}


def _informed(name: str, settings: dict) -> tuple[str, Callable[[Upload], Tensor]]:
    """What an attacker who knows the defense does, in words and in code."""
    steps, seed = settings["lbfgs_steps"], settings["seed"]
    gs = {"steps": settings["gs_steps"], "show": False, "optimizer": "adam", "box": True}

    def images(attack: attacks.Attack) -> Callable[[Upload], Tensor]:
        return lambda upload: attack.run(upload, seed=seed).images

    if name.startswith("Prune"):
        what = "matches only the entries that were sent, with a smoothness prior"
        return what, images(attacks.IDLG(steps=steps, nonzero=True, tv=0.1, show=False))
    if name.startswith("Soteria"):
        what = "leaves the pruned tensor out"
        return what, images(attacks.IDLG(steps=steps, drop=("head.weight",), show=False))
    if name == "PRECODE":
        what = "enters before the draw and goes back layer by layer"
        return what, images(attacks.Recursive(entry="features.7.encode"))
    if name == "raw noise":
        what = "smooths as much as the known noise asks for"
        return what, images(attacks.IDLG(steps=steps, tv=300 * 0.01, show=False))
    if name in ("none", "ATS"):
        return "goes back layer by layer", images(attacks.Recursive())
    what = "cosine with a strong smoothness prior"
    return what, images(attacks.Matching(distance="cosine", tv=0.05, **gs))


def _attack(settings: dict, cell: dict) -> dict:
    """ "plain" and "informed" are scored against the private image, "plain_seen" against what the
    client trained on instead, where that differs (ATS)."""
    data, seed, name = load(cell["data"]), settings["seed"], cell["defense"]
    model = models.build("lenet", data, seed=seed)
    x, y = data.sample(settings["images"], split="test", seed=seed)
    defense = build(written(settings, cell))
    knows = ("labels", "noise") if isinstance(defense, DPGaussian | DPSGD) else ("labels",)
    upload = share(model, x, y, defense, knows=knows, each=1, seed=seed)
    idlg = attacks.IDLG(steps=settings["lbfgs_steps"], show=False)
    plain = idlg.run(upload, seed=seed).images
    words, attack = _informed(name, settings)
    best = attack(upload)
    out = {"plain": _scores(plain, x), "informed_by": words, "informed": _scores(best, x)}
    seen = [defense.data(x[i : i + 1], y[i : i + 1], generator(seed, i))[0] for i in range(len(x))]
    if not torch.equal(torch.cat(seen), x):
        out["plain_seen"] = _scores(plain, torch.cat(seen))
        out["informed_seen"] = _scores(best, torch.cat(seen))
    return out


def _attack_mixed(settings: dict, cell: dict) -> dict:
    """Blends of a pool, new in each of five rounds, with the mixing matrix granted.

    The informed attacker reads the encodings off the first layer of an mlp and undoes the mixing;
    the plain one matches gradients and takes the blend of row i for image i.
    """
    data, seed, hide = load(cell["data"]), settings["seed"], cell["defense"].startswith("Insta")
    model, center = models.build("mlp", data, seed=seed), settings["centers"][cell["data"]]
    x, y = data.sample(settings["images"], split="test", seed=seed)
    rounds = [mix(x, y, generator(seed, r), classes=data.num_classes) for r in range(5)]
    sent = torch.cat([m.images for m in rounds])
    sent = flip(sent, generator(seed, 9), center) if hide else sent
    labels, matrix = (torch.cat([getattr(m, p) for m in rounds]) for p in ("labels", "matrix"))
    upload = share(model, sent, labels, each=1, knows=("labels",))
    idlg = attacks.IDLG(steps=settings["lbfgs_steps"], show=False)
    plain = idlg.run(upload[: len(x)], seed=seed).images
    read = attacks.ClosedForm().run(upload).images
    if hide:
        box = (-center, 1 - center)
        found = attacks.align_signs(attacks.sign_search(read - center, matrix, box=box, show=False))
        two = (center + found, center - found)  # one bit is left open: the better one is scored
        found = max(two, key=lambda images: metrics.compare(images, x)["psnr"].median().item())
    else:
        found = attacks.mixup_regression(read, matrix)
    return {
        "plain": _scores(plain, x),
        "plain_seen": _scores(plain, sent[: len(x)].clamp(0, 1)),
        "informed_by": "reads all blends, is granted the mixing, solves for the images"
        + hide * "; the better of two signs",
        "informed": _scores(found, x),
    }


def _run(settings: dict, data_name: str, defense: Defense, seed: int, rounds: int) -> FedAvg:
    data = load(data_name)
    run = FedAvg(
        models.build("mlp", data, seed=seed),
        data.clients(settings["clients"], per_client=settings["per_client"][data_name], seed=seed),
        rounds,
        Plan(eta=settings["eta"][data_name], batch_size=10),
        test=(data.x_test[:2000], data.y_test[:2000]),
        defense=defense,
        seed=seed,
        show=False,
    )
    for _ in run:
        pass
    return run


def _train(settings: dict, cell: dict) -> dict:
    text = written(settings, cell)
    runs = [
        _run(settings, cell["data"], build(text), s, settings["rounds"]) for s in settings["seeds"]
    ]
    ratios = []
    for _ in range(3):  # in alternation, two rounds each
        seconds = []
        for defense in ("none", text):
            began = time.process_time()
            _run(settings, cell["data"], build(defense), 0, 2)
            seconds.append(time.process_time() - began)
        ratios.append(seconds[1] / seconds[0])
    return {
        "accuracy": [round(cast(float, run.history[-1].accuracy), 4) for run in runs],
        "epsilon": runs[0].history[-1].epsilon.value,
        "overhead": round(statistics.median(ratios), 2),
    }


class _Frozen(Defense):
    """Client 5 sends nothing, as the defended client of the published DCS² comparison did."""

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        where = next(iter(g.values())).device
        stays = torch.tensor([float(c != 5) for c in ctx.who], device=where)
        return {n: t * stays.view(-1, *[1] * (t.dim() - 1)) for n, t in g.items()}


def _one_client(settings: dict, cell: dict) -> dict:
    """One client of ten takes part like all others, or sends nothing at all."""
    defense = _Frozen() if cell["defense"] == "frozen" else Defense()
    runs = [_run(settings, cell["data"], defense, s, settings["rounds"]) for s in settings["seeds"]]
    return {"accuracy": [round(cast(float, run.history[-1].accuracy), 4) for run in runs]}


STUDY = Study(
    name="first-answers/baselines",
    about="every baseline defense: leakage to a plain and an informed attacker, accuracy, overhead"
    ", ε (δ = 1e-5, one example replaced, against the server)",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
