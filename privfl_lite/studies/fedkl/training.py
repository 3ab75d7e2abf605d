"""FedKL, accuracy side: Table 1 (LeNet on digits, ResNet-20 on CIFAR-10) and Table 3.

Three clients, IID, one local epoch a round, SGD with momentum, plain averaging, as in the released
code. Cut: 4,000 digits, in smaller batches and fewer rounds; momentum begins anew each round; no
weight decay, no Nesterov step, no drops of the rate. ResNet-20 has a few thousand images and a few
rounds, so that its accuracy says how the arms compare early, not where they end.

Cells: {"part": "digits" | "photos", "arm", "seed"} with

* "clients": accuracy at the end of each client's own model (FedAvg: of the one model);
  "accuracy": their mean, with "interval" (Wilson, over the test images); "curve": by round;
  "best": the best round by the test set, which is what Table 1 reports.
* "keys", for FedKL: accuracies of the last round's model with other keys. "random": key and lock
  drawn anew (Table 3, "Random"); "wrong key": a client's lock with a random key; "other key": a
  client's lock with another client's key; "zero": γ = β = 0, what the released test does. (With
  another client's key *and* lock it is that client's model.)
* "moved": median over channels of |γ_end − γ_start|, and of the plain scale's for BatchNorm.

{"part": "share"}: "rows", the lock's share of all parameters, ours and Table 3's, in percent.
``table`` gives means over seeds, and ``difference`` compares two arms seed by seed.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable

import torch
from torch import nn

from ... import models
from ...data import load
from ...defenses import Defense, FedKL
from ...federated import FedAvg, evaluate
from ...metrics import spread, wilson
from ...models.keylock import KeyLock, Locked, lock, locks, normalize
from ...runtime import generator, seeded, torchvision
from ...wire import Plan
from ..base import Study

ARMS: dict[
    str, tuple[Callable, Callable[[int], Defense]]
] = {  # name -> the network's change, the defense
    "FedAvg": (copy.deepcopy, lambda seed: Defense()),
    "FedAvg + BatchNorm": (normalize, lambda seed: Defense()),
    "FedKL": (copy.deepcopy, lambda seed: FedKL(seed=seed)),
    "FedKL, ReLU": (copy.deepcopy, lambda seed: FedKL(activation="relu", seed=seed)),
}
PHOTO_ARMS = ("FedAvg", "FedKL", "FedKL, ReLU")  # ResNet-20 has BatchNorm in any case
SHARES = (  # network, classes; Table 3 has one percentage for each network
    ("lenet", 10),
    ("lenet", 100),
    ("resnet20", 10),
    ("resnet32", 10),
    ("resnet18", 10),
    ("resnet34", 10),
)


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    digits, photos = "mnist-full" if large else "mnist", "cifar10"
    return {
        "data": {"digits": digits, "photos": photos},
        "model": {"digits": "lenet (sigmoid)", "photos": "resnet20"},
        "clients": 3,
        "per_client": {"digits": None, "photos": None if large else 1000},
        "rounds": {"digits": 100 if large else 24, "photos": 200 if large else 5},
        "batch": {"digits": 64 if large else 16, "photos": 64 if large else 32},
        "eta": {"digits": 0.01, "photos": 0.01},
        "momentum": 0.9,
        "test": {"digits": 10_000 if large else 1000, "photos": 10_000 if large else 1000},
        "seeds": {"digits": [0, 1, 2], "photos": [0, 1, 2] if large else [0]},
        "key_length": 1024,
        "draws": {"digits": 5, "photos": 5 if large else 1},  # of random keys, a client
    }


def _cells(settings: dict) -> list[dict]:
    parts = {"digits": tuple(ARMS), "photos": PHOTO_ARMS}
    runs = [
        {"part": part, "arm": arm, "seed": seed}
        for part, arms in parts.items()
        for seed in settings["seeds"][part]
        for arm in arms
    ]
    return [{"part": "share"}, *runs]


def _compute(settings: dict, cell: dict) -> dict:
    if cell["part"] == "share":
        return {"rows": shares()}
    run = training(settings, **cell)
    start = scales(run, settings)
    for _ in run:
        pass
    return scores(run, settings, cell, start)


def training(settings: dict, part: str, arm: str, seed: int) -> FedAvg:
    """The run of a cell, not yet begun."""
    data = load(settings["data"][part], size=32)
    change, defense = ARMS[arm]
    return FedAvg(
        change(models.build(settings["model"][part].split()[0], data, seed=seed)),
        data.clients(settings["clients"], "iid", settings["per_client"][part], seed=seed),
        settings["rounds"][part],
        Plan(
            eta=settings["eta"][part],
            batch_size=settings["batch"][part],
            momentum=settings["momentum"],
        ),
        test=_test(settings, part) if part == "digits" else None,  # costs as much as a round
        defense=defense(seed),
        weighting="uniform",
        seed=seed,
        show=False,
    )


def _test(settings: dict, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    data, n = load(settings["data"][part], size=32), settings["test"][part]
    return data.x_test[:n], data.y_test[:n]


def scales(run: FedAvg, settings: dict) -> torch.Tensor:
    """γ of the first normalization, (clients, C): of the lock or the plain one; else empty."""
    found = []
    for c in range(settings["clients"]):
        net = run.personal(c)
        norms = [m for m in net.modules() if isinstance(m, (Locked, nn.BatchNorm2d))][:1]
        for m in norms:
            found.append((m.lock()[0] if isinstance(m, Locked) else m.weight).detach())
    return torch.stack(found) if found else torch.zeros(0)


def scores(run: FedAvg, settings: dict, cell: dict, start: torch.Tensor) -> dict:
    """What a cell stores of a finished run."""
    test, locked = _test(settings, cell["part"]), any(locks(run.model))
    nets = [run.personal(c) for c in range(settings["clients"])] if locked else [run.model]
    own = [evaluate(net, *test)[0] for net in nets]
    mean, n = statistics.fmean(own), len(test[0])
    curve = [round(r.accuracy, 4) for r in run.history if r.accuracy is not None]
    out = {
        "accuracy": round(mean, 4),
        "interval": [round(v, 4) for v in wilson(round(mean * n), n)],
        "clients": [round(a, 4) for a in own],
        "curve": curve,
        "best": max(curve) if curve else None,
    }
    if len(start):
        out["moved"] = round((scales(run, settings) - start).abs().median().item(), 4)
    if locked:
        out["keys"] = other_keys(nets, test, cell["seed"], settings["draws"][cell["part"]])
    return out


def other_keys(nets: list[models.Net], test: tuple, seed: int, draws: int) -> dict:
    """Accuracies of personal models with keys, or keys and locks, that are not theirs."""
    found: dict[str, list[float]] = {"random": [], "wrong key": [], "other key": [], "zero": []}

    def tried(c: int, kind: str, change) -> None:
        net = copy.deepcopy(nets[c])
        for _, m in locks(net):
            change(m.lock)
        found[kind].append(round(evaluate(net, *test)[0], 4))

    def new_key(part: KeyLock, *stream: int) -> None:
        part.key = torch.rand(len(part.key), generator=generator(seed, *stream)).to(part.key)

    def anew(part: KeyLock, draw: int) -> None:
        new_key(part, 0, draw)
        with seeded(1000 * seed + draw):
            part.scale.reset_parameters()
            part.shift.reset_parameters()

    def zero(part: nn.Module) -> None:
        for p in part.parameters():
            p.data.zero_()

    def taken(part: KeyLock, j: int) -> None:
        part.key = next(locks(nets[j]))[1].lock.key

    for draw in range(draws):  # without its key and lock each personal model is the global one
        tried(0, "random", lambda part, draw=draw: anew(part, draw))
    tried(0, "zero", zero)
    for c in range(len(nets)):
        for draw in range(draws):
            tried(c, "wrong key", lambda part, c=c, draw=draw: new_key(part, 1, c, draw))
        for j in range(len(nets)):
            if j != c:
                tried(c, "other key", lambda part, j=j: taken(part, j))
    return found


def shares() -> list[dict]:
    """The lock's part of all parameters, in percent: key of 1024 numbers, color images."""
    rows = []
    for name, classes in SHARES:
        net = lock(models.build(name, (3, 32, 32), classes))
        own = sum(p.numel() for _, m in locks(net) for p in m.lock.parameters())
        rows.append((name, classes, own, net.num_parameters))
    with torch.device("meta"):  # the paper's VGG-16 is the large one, for 224 × 224
        vgg = torchvision().models.vgg16_bn(num_classes=10)
    own = 2 * 64 * (1024 + 1)  # the lock replaces scale and shift of the first block
    rows.append(("vgg16", 10, own, sum(p.numel() for p in vgg.parameters()) - 128 + own))
    names = ("model", "classes", "lock", "all")
    return [
        dict(zip(names, row, strict=True)) | {"percent": round(100 * row[2] / row[3], 3)}
        for row in rows
    ]


# Over the seeds


def table(cells: list[dict], part: str = "digits") -> dict[str, dict]:
    """Arm -> {"accuracies", "mean", "std", "interval"}; 95 % by Student's t, over the seeds."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        if cell["part"] == part:
            found.setdefault(cell["arm"], []).append(cell["accuracy"])
    return {arm: {"accuracies": a} | spread(a) for arm, a in found.items()}


def difference(cells: list[dict], arm: str, other: str, part: str = "digits") -> dict:
    """Accuracy of ``arm`` minus that of ``other``, seed by seed: mean, std and 95 % interval."""
    by = {(c["arm"], c["seed"]): c["accuracy"] for c in cells if c["part"] == part}
    seeds = sorted(s for a, s in by if a == arm and (other, s) in by)
    return spread([by[arm, s] - by[other, s] for s in seeds])


STUDY = Study(
    name="fedkl/training",
    about="FedKL's Tables 1 and 3: accuracy with the lock, with plain BatchNorm, with other keys",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
