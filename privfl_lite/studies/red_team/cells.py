"""What the studies of the red team share: settings, and one cell from upload to scores."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor

from ... import metrics
from ...pictures import pack
from ...runtime import PrivflError
from ..reach.map import scores
from .attackers import ATTACKERS, of, run
from .targets import CONV, DEFENDED, POOLED, aim, dataset

COLOR = "photos 16"
JUDGES = ("pixels", "features")
ALGEBRA, SEARCH = ("algebra", "pair"), ("search", "joint")
CENTER = {"net": CONV, "data": "mnist", "batch": 1, "age": 0, "training": DEFENDED}


def center(defense: str) -> dict[str, Any]:
    """Where one axis at a time begins: one digit, untrained LeNet; LODA takes color images only."""
    return CENTER | {"defense": defense} | ({"data": COLOR} if defense == "LODA" else {})


def settings_of(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "batches": [1, 2, 4, 8, *([16] if large else [])],
        "data": [COLOR, *(["photos 32", "cifar10"] if large else [])],
        "seeds": list(range(3)),
        "images": {  # behind each network, by kind of attack; a larger batch is one upload
            "algebra": 100 if large else 4,
            "search": 100 if large else 4,
            "pair": 32 if large else 3,
            "joint": 32 if large else 4,
        },
        "pooled_images": 32 if large else 2,
        "budget_pooled": 4800 if large else 150,
        "budget_noise": 4800 if large else 150,
        "budget": 4800 if large else 300,  # evaluations of a search
        "joint": 4800 if large else 300,  # where it looks for two images behind one upload
        "proposals": 4_000_000 if large else 20_000,  # of SPEAR, for each upload
        "gallery": 100,
        "defenses": {
            "DP-SGD": {"clip": 1.0, "sigma": 1.0},
            "ModelCloak": {"clip": 2.0, "sigma": 5.0},
            "DCS²": {"steps": 1000 if large else 300},
            "Entanglement": {"beta": 0.7},
            "LODA": {"layers": "loda1", "steps": 500 if large else 300},
        },
    }


def cells_of(place: dict, kinds: tuple[str, ...]) -> list[dict]:
    """The attackers of a place, of these kinds."""
    some = ATTACKERS[place["defense"]].items()
    return [{**place, "attack": name} for name, who in some if who.kind in kinds]


def blind(data: str, x: Tensor, others: Tensor) -> dict:
    """The scores of the mean training image, which anybody may hand in without any upload."""
    return scores(dataset(data).x_train.mean(0, keepdim=True).expand_as(x), x, others, 1)


def size(settings: dict, cell: dict) -> int:
    """Images behind each network, at least one whole batch."""
    if cell["net"] == POOLED:
        return settings["pooled_images"]
    return max(cell["batch"], settings["images"][of(cell).kind])


def one(settings: dict, cell: dict, seed: int) -> dict:
    """One network: what was found, what a blind guess has, and the cost."""
    who, batch, count = of(cell), cell["batch"], size(settings, cell)
    try:
        upload, x, others, right = aim(settings, cell, seed, count, who.knows)
        began = time.process_time()
        result = run(settings, cell, upload, seed)
    except PrivflError as error:
        return {"refused": str(error)}
    seconds, found = time.process_time() - began, result.images.cpu()
    first = found[metrics.assign(found[:batch], x[:batch])][0]
    return {
        **scores(found, x, others, batch),
        "blind": blind(cell["data"], x, others),
        "picture": pack(first.mean(0, keepdim=True)),
        "accuracy": round(right, 3),
        "evaluations": result.evaluations,
        "cpu_seconds": round(seconds, 3),
    }


def compute(settings: dict, cell: dict) -> dict:
    """A row for each network, because images behind one network are not independent."""
    rows = [one(settings, cell, seed) for seed in settings["seeds"]]
    if "refused" in rows[0]:
        return {"refused": rows[0]["refused"]}
    return {"networks": rows, **totals(rows)}


def totals(rows: list[dict]) -> dict[str, int]:
    """How many images of all networks are named by either judge, and of how many."""
    by = {f"named_{judge}": sum(row[f"named_{judge}"] for row in rows) for judge in JUDGES}
    return {**by, "images": sum(len(row["psnr"]) for row in rows)}
