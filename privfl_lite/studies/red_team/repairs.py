"""The adaptive defender: repairs that the chapters name, each attacked once more (red-team).

Parts: "attack", one image behind each upload, one step, untrained: digits behind a sigmoid LeNet
(LODA: photographs behind a dense network, where encodings are read exactly), under the attacker
who knows of the repair ("knows"), and where that is another one (``ANSWERED``) also under the one
who knew the plain defense ("knew"); where algebra fails, under a search too ("searches"). A cell
keeps a row for each network. "cost": accuracy of a short FedAvg run on digits with every client
defended, and the run's record of ε; for LODA, "loda/training" has it.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from ... import attacks, metrics, models
from ...client import share
from ...data import load
from ...defenses import LODA
from ...federated import FedAvg
from ...gradients import norm
from ...models.extractor import Extractor
from ...wire import Plan, Upload
from ..base import Study
from ..reach.map import blind, scores
from .repaired import DATA, Scene, attack_of, defense_of, scene, uploads

FAMILIES = {  # defense -> its repairs; "plain" is the defense as its chapter has it
    "dcs2": ("plain", "pruned", "boxed, rescaled"),
    "fedkl": ("plain", "16 bits", "chained", "chained, 16 bits"),
    "entangle": ("plain", "every tensor", "noise"),
    "loda": ("plain", "deeper layer", "fresh starts"),
    "cloak": ("plain", "private norm", "plain, sigma 5", "private norm, sigma 5"),
}
ANSWERED = ("pruned", "16 bits", "chained, 16 bits", "noise", "fresh starts", "private norm")


SEARCHED = {"family": "fedkl", "defense": "chained, 16 bits"}  # where the closed form fails


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
    cells += [{"part": "attack", **SEARCHED, "who": "searches"}]
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
