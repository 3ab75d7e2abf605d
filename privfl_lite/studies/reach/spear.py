"""SPEAR by batch, type of numbers and noise; its proposals against the theorem (chapter: reach)."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from ... import attacks, metrics, models
from ...client import share
from ...data import load
from ...defenses import DPGaussian
from ..base import Study


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "data": {"mnist": [32, 64], "cifar10": [32, 64] if large else [32]},  # types of numbers
        "hidden": 256,
        "batches": [2, 4, 6, 8, 10, 12, *([16, 20] if large else [])],
        "noises": [1e-7, 1e-6, 1e-5, 1e-4, 1e-3],  # standard deviations
        "noisy_batch": 4,
        "noisy_proposals": 10_000_000 if large else 20_000,
        "seeds": list(range(20)),
        "proposals": 10_000_000 if large else 400_000,
        "exact_db": 60,
    }


def _cells(settings: dict) -> list[dict]:
    exact = [
        {"data": data, "batch": b, "bits": bits, "sigma": 0.0}
        for data, kinds in settings["data"].items()
        for b in settings["batches"]
        for bits in kinds
    ]
    noisy = [
        {"data": "mnist", "batch": settings["noisy_batch"], "bits": 32, "sigma": s}
        for s in settings["noises"]
    ]
    return exact + noisy


def chance_of_a_hit(live: int, off: int, batch: int) -> float:
    """P that batch − 1 of the live units, drawn without replacement, are all off for one image."""
    return math.comb(off, batch - 1) / math.comb(live, batch - 1)


def expected_proposals(chances: list[float]) -> float:
    """Mean number of proposals until each image was hit; at most one image is hit by a proposal.

    ∫ 1 − Π (1 − exp(−p_j t)) dt over t ≥ 0, the coupon collector with unequal coupons.
    """
    if min(chances) <= 0:
        return math.inf
    t = torch.linspace(-12, 6, 4001, dtype=torch.float64, device="cpu").exp() / min(chances)
    p = torch.tensor(chances, dtype=torch.float64, device="cpu")
    missing = 1 - (1 - torch.exp(-t[:, None] * p)).prod(1)
    return float(torch.trapezoid(missing, t) + t[0])


def units_off(net: models.Net, x: Tensor) -> tuple[int, list[int]]:
    """Units that are on for some image, and how many of these are off for each image."""
    with torch.no_grad():
        on = net.features(x) > 0  # (B, m)
    live = on.any(0)
    return int(live.sum()), (~on[:, live]).sum(1).tolist()


def _one(settings: dict, cell: dict, seed: int) -> dict:
    kind = torch.float64 if cell["bits"] == 64 else torch.float32
    ds = load(cell["data"])
    x, y = ds.sample(cell["batch"], split="test", seed=2000 + seed)
    net = models.build("mlp", ds, seed=seed, hidden=(settings["hidden"],)).to(kind)
    defense = DPGaussian(cell["sigma"]) if cell["sigma"] else None
    upload = share(net, x.to(kind), y, defense, knows=("labels",), seed=seed)
    began = time.process_time()
    most = settings["noisy_proposals" if cell["sigma"] else "proposals"]
    found = attacks.Spear(proposals=most, show=False).run(upload, seed=seed)
    seconds = time.process_time() - began
    scores = metrics.compare(found.images.to(x), x, match=True)["psnr"]
    live, off = units_off(net, x.to(kind))
    chances = [chance_of_a_hit(live, o, cell["batch"]) for o in off]
    return {
        "exact": int((scores > settings["exact_db"]).sum()),
        "worst_psnr": round(min(scores.min().item(), 160.0), 2),
        "sure": found.details["agreement"][0] == 1.0,
        "proposals": found.details["proposals"][0],
        "theory": float(f"{expected_proposals(chances):.4g}"),
        "off_share": round(sum(off) / len(off) / live, 3),
        "cpu_seconds": round(seconds, 3),
    }


def _compute(settings: dict, cell: dict) -> dict:
    return {"runs": [_one(settings, cell, seed) for seed in settings["seeds"]]}


STUDY = Study(
    name="reach/spear",
    about="SPEAR on whole batches through an untrained ReLU layer of 256 units, twenty seeds",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
