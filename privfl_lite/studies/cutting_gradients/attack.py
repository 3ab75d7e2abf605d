"""Cutting gradients: how far an image is still determined by what pruning or Soteria lets through.

"newton" cells solve the equations that are on the wire, digits at half or full size; "search" cells
match gradients at full size, once as if nothing had been cut and once knowing that it was.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from ... import metrics, models
from ...attacks import IDLG, Reconstruction, gauss_newton
from ...attacks.analytic.gauss_newton import gradient_of_pixels, jacobian, read_label
from ...client import share
from ...data import load
from ...defenses import Prune, Soteria
from ...gradients import flat
from ...metrics.judge import rounded
from ...pictures import pack
from ...wire import Upload
from ..base import Study


def rank(upload: Upload, x: Tensor, u: int = 0) -> tuple[int, int]:
    """How many entries of upload u are not zero, and the rank of their Jacobian at the image x."""
    g = gradient_of_pixels(upload, read_label(upload)[u], torch.float64)
    keep = flat(upload.tensors)[u] != 0
    s = torch.linalg.svdvals(jacobian(g, x.to(keep.device).double().flatten(), keep))
    return int(keep.sum()), int((s > 1e-10 * s[0]).sum())


def digits(side: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Held-out digits (count, 1, side, side), side 28 or 14 (means of 2 × 2 pixels)."""
    x, y = load("mnist").sample(count, seed=seed, split="test")
    return avg_pool2d(x, 28 // side), y


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "dataset": "mnist",
        "model": "lenet (sigmoid), untrained, one image an upload, labels inferred",
        "images": 64 if large else 5,
        "ranks": 5 if large else 2,  # images whose Jacobian's rank is computed
        "newton": {
            "prune 14": [0.95, 0.97, 0.975, 0.98, 0.985, 0.99],
            "prune 28": [0.5, 0.7, 0.9, 0.93, 0.94, 0.95, 0.99, 0.999],
            "soteria 28": [0.2, 0.6, 0.9],
        },
        "naive newton": {"prune 28": [0.5, 0.7, 0.9, 0.99], "soteria 28": [0.2]},
        "search": {
            "steps": 1500 if large else 300,
            "rates": [0.2, 0.5, 0.7, 0.9, 0.99],
            "tv prune": 0.1,  # chosen on other images; the same for both attackers
        },
        "seed": 1,
    }


def _cells(settings: dict) -> list[dict]:
    cells = [
        {"part": "search", "defense": d, "side": 28, "rate": r, "attacker": a}
        for d, informed in (("prune", "mask"), ("soteria", "drop"))
        for r in settings["search"]["rates"]
        for a in ("naive", informed)
        if a != "drop" or r == settings["search"]["rates"][-1]  # the rate makes no difference
    ]
    for part, attacker in (("newton", "mask"), ("naive newton", "naive")):
        for name, rates in settings[part].items():
            defense, side = name.split()
            case = {"part": "newton", "defense": defense, "side": int(side)}
            cells += [{**case, "rate": r, "attacker": attacker} for r in rates]
    return cells


def _compute(settings: dict, cell: dict) -> dict:
    side, who = cell["side"], cell["attacker"]
    x, y = digits(side, settings["images"], settings["seed"])
    defense = (Prune if cell["defense"] == "prune" else Soteria)(cell["rate"])
    upload = share(models.build("lenet", (1, side, side), 10), x, y, defense, each=1)
    extra = {}
    if cell["part"] == "newton":
        found = gauss_newton(upload, who == "mask")
        if who == "mask":
            pairs = [rank(upload, x[u], u) for u in range(settings["ranks"])]
            extra = {"kept": [k for k, _ in pairs], "rank": [r for _, r in pairs]}
    else:
        options = settings["search"]
        found = IDLG(
            steps=options["steps"],
            tv=options["tv prune"] if cell["defense"] == "prune" else 0.0,
            nonzero=who == "mask",
            drop=("head.weight",) if who == "drop" else (),
            show=False,
        ).run(upload)
    return {
        **_scores(found, x, y),
        **extra,
        "pictures": [pack(image) for image in found.images[:3]],
    }


def _scores(found: Reconstruction, x: Tensor, y: Tensor) -> dict:
    scores = metrics.compare(found.images, x)
    return {
        "psnr": rounded(scores["psnr"]),
        "ssim": [round(v, 3) for v in scores["ssim"].tolist()],
        "labels_right": int((found.labels.cpu() == y).sum()),
    }


STUDY = Study(
    name="cutting-gradients/attack",
    about="pruning and Soteria: images found by naive and by informed attackers, and the rank",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
