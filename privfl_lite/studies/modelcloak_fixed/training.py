"""ModelCloak, accuracy side of Tables I and II: FedAvg of its two-convolution net under its noise.

The noise is that of the paper's K = 100 clients a round, whatever number is trained here: with k of
them, σk/K at the server and σ√(k/K) on each upload give the mean the very noise that it has with K.
What the cut changes is the signal: shorter local training, fewer rounds, clients drawn evenly over
the classes. "where" is the place of the noise: at the server (released code), or on each upload
(the paper's text). Clipping is by layer, as released.
"""

from __future__ import annotations

import math
from typing import Any

from ... import models
from ...data import load
from ...defenses import Defense, ModelCloak
from ...federated import FedAvg, evaluate
from ...metrics import wilson
from ...wire import Plan
from ..base import Study
from .attack import CLIPS, SIGMAS

PEOPLE = 100  # clients a round in the paper
UPLOAD_SETTINGS = [[1, 0.5], [1, 2], [2, 3], [3, 2], [5, 2], [6, 4]]


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    names = ("mnist-full", "cifar10", "lfw" if large else "faces")
    small = {
        "clients": {"mnist-full": 100, "cifar10": 100, "faces": 4},
        "per_round": {"mnist-full": 4, "cifar10": 4, "faces": 4},
        "per_client": {"mnist-full": 250, "cifar10": 250, "faces": 40},
        "batch": {"mnist-full": 5, "cifar10": 5, "faces": 4},
        "rounds": {"mnist-full": 30, "cifar10": 20, "faces": 30},
        "epochs": dict.fromkeys(names, 1),
        "how": "iid",
    }
    paper = {  # its parts overlap; ours are disjoint, as large as can be, with more passes
        "clients": {"mnist-full": 1000, "cifar10": 1000, "lfw": 100},
        "per_round": {"mnist-full": PEOPLE, "cifar10": PEOPLE, "lfw": 10},
        "per_client": {"mnist-full": 60, "cifar10": 50, "lfw": 20},
        "batch": {"mnist-full": 5, "cifar10": 4, "lfw": 3},
        "rounds": {"mnist-full": 100, "cifar10": 100, "lfw": 60},
        "epochs": {"mnist-full": 8, "cifar10": 8, "lfw": 14},  # about 100 local steps
        "how": "shards",
    }
    return {
        "datasets": list(names),
        "model": "cloak",
        **(paper if large else small),
        "eta": {"mnist-full": 0.1, "cifar10": 0.1, names[2]: 0.05},
        "noise_of": PEOPLE,
        "test": 10_000 if large else 2000,
        "seeds": [0, 1, 2],
        "grid_seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    cells = []
    for data in settings["datasets"]:
        cells += [{"data": data, "where": "no noise", "seed": s} for s in settings["seeds"]]
        grid: dict[str, list] = {
            "server": [[s, c] for s in SIGMAS for c in CLIPS],
            "client": UPLOAD_SETTINGS,
        }
        for where, pairs in grid.items():
            cells += [
                {"data": data, "where": where, "sigma": s, "clip": c, "seed": settings["grid_seed"]}
                for s, c in pairs
            ]
    return cells


def cloak(
    settings: dict, data: str, where: str, sigma: float, clip: float, **more: Any
) -> ModelCloak:
    """ModelCloak by layer whose noise on the mean is that of ``noise_of`` clients a round."""
    share = settings["per_round"][data] / settings["noise_of"]
    scaled = sigma * (share if where == "server" else math.sqrt(share))
    return ModelCloak(clip, scaled, where=where, per="layer", **more)


def train(settings: dict, data: str, defense: Defense, seed: int) -> FedAvg:
    """One run to its end, or to the round in which the noise has driven it to infinity."""
    source, n = load(data), settings["clients"][data]
    run = FedAvg(
        models.build("cloak", source, seed=seed),
        source.clients(n, settings["how"], settings["per_client"][data], seed=seed),
        settings["rounds"][data],
        Plan(
            eta=settings["eta"][data],
            batch_size=settings["batch"][data],
            epochs=settings["epochs"][data],
        ),
        per_round=settings["per_round"][data],
        defense=defense,
        seed=seed,
        show=False,
    )
    return run.finish()


def _compute(settings: dict, cell: dict) -> dict:
    data, where = cell["data"], cell["where"]
    defense = Defense()
    if where != "no noise":
        defense = cloak(settings, data, where, cell["sigma"], cell["clip"])
    run = train(settings, data, defense, cell["seed"])
    return summary(settings, data, run)


def summary(settings: dict, data: str, run: FedAvg) -> dict:
    """Accuracy at the end, with its interval over test images; mean norms of uploads by round."""
    source, n = load(data), settings["test"]
    x, y = source.x_test[:n], source.y_test[:n]
    accuracy, _ = evaluate(run.model, x, y)
    low, high = wilson(round(accuracy * len(x)), len(x))
    return {
        "accuracy": round(accuracy, 4),
        "interval": [round(low, 4), round(high, 4)],
        "rounds": len(run.history),  # less than asked for: it diverged
        "norms": [round(sum(r.norms) / len(r.norms), 4) for r in run.history],
    }


STUDY = Study(
    name="modelcloak-fixed/training",
    about="accuracy side of ModelCloak's Table II: noise at the server, and on each upload",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
