"""Generative priors: pixels, GRNN and GGL on the same uploads, with rising noise or pruning.

All attacks see the same images of 32×32 pixels (GRNN draws powers of two only), which come from the
test split, so that the generator of GGL never saw them.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from ... import metrics, models
from ...attacks import GGL, GRNN, IDLG
from ...attacks.generative.generator import PUBLIC_FROM
from ...attacks.labels import infer_label
from ...client import share
from ...data import Dataset, load
from ...defenses import Defense, DPGaussian, Prune
from ...pictures import pack
from ...wire import Facts
from ..base import Study

NOISE = ("pixels", "pixels-informed", "grnn", "ggl-adam", "ggl-cma")
PRUNE = ("pixels", "pixels-informed", "ggl-adam")
SMOOTH = 300  # informed pixels: weight of total variation per unit of σ,
SMOOTH_PRUNED = 1.0  # and where the upload is pruned; both chosen on these images


def _settings(profile: str) -> dict:
    small = profile == "cpu"
    return {
        "dataset": "mnist",
        "size": 32,
        "private": "test split, one image a class",
        "model": "lenet",
        "seed": 0,
        "images": {"grnn": 4, "others": 8},
        "labels": "GRNN: searched; others: iDLG's row sums",
        "sigma": [0, 0.1, 0.3, 1],
        "prune": [0.9, 0.99],
        "attacks": {
            "pixels": {"steps": 200, "steps undefended": 800},
            "pixels-informed": {
                **{"steps": 200, "steps undefended": 800},
                **{"tv per sigma": SMOOTH, "tv pruned": SMOOTH_PRUNED},
            },
            "grnn": {"steps": 250 if small else 20000, "rate": 1e-3 if small else 1e-4},
            "ggl-adam": {"steps": 150, "restarts": 4},
            "ggl-cma": {"steps": 980 if small else 25000},
        },
    }


def _cells(settings: dict) -> list[dict]:
    noise = [{"attack": a, "sigma": s, "prune": 0} for s in settings["sigma"] for a in NOISE]
    return noise + [{"attack": a, "sigma": 0, "prune": p} for p in settings["prune"] for a in PRUNE]


def defense(sigma: float, prune: float) -> Defense:
    """The defense of a cell: noise, pruning, or none."""
    return DPGaussian(sigma) if sigma else Prune(prune) if prune else Defense()


def attack(name: str, options: dict, sigma: float, prune: float) -> IDLG | GRNN | GGL:
    """The attack of a cell; only ``pixels-informed`` is told the defense."""
    steps = (
        options["steps"] if sigma or prune else options.get("steps undefended", options["steps"])
    )
    if name == "pixels-informed":
        smooth = SMOOTH_PRUNED if prune else SMOOTH * sigma
        return IDLG(steps=steps, tv=smooth, nonzero=prune > 0, show=False)
    if name == "pixels":
        return IDLG(steps=steps, show=False)
    if name == "grnn":
        return GRNN(steps=steps, rate=options["rate"], show=False)
    kind = name.removeprefix("ggl-")
    return GGL(optimizer=kind, steps=steps, restarts=options.get("restarts", 1), show=False)


def identify(images: Tensor, x: Tensor, data: Dataset) -> tuple[list[int], list[bool]]:
    """What images (N, C, H, W) look like, and whether they single out the private ones x.

    The first is the label of the nearest public image; the second says whether the nearest of all
    images of the test split is the private one. Distances are Euclidean, after ``as_image``.
    """
    flat = metrics.as_image(images).flatten(1).cpu()  # where the data set is
    exact = "donot_use_mm_for_euclid_dist"
    public = torch.cdist(flat, data.x_train[PUBLIC_FROM:].flatten(1), compute_mode=exact)
    first = metrics.identify(images.cpu(), x.cpu(), data.x_test).ranks == 1
    return data.y_train[PUBLIC_FROM:][public.argmin(1)].tolist(), first.tolist()


def private(settings: dict) -> tuple[Dataset, Tensor, Tensor]:
    """The data set and the private images (N, 1, 32, 32) with their labels (N,)."""
    data = load(settings["dataset"], size=settings["size"])
    count = settings["images"]["others"]
    return data, *data.sample(count, seed=settings["seed"], split="test", distinct=True)


def _compute(settings: dict, cell: dict) -> dict:
    name, seed, how = cell["attack"], settings["seed"], (cell["sigma"], cell["prune"])
    data, x, y = private(settings)
    count = settings["images"].get(name, len(x))
    x, y = x[:count], y[:count]
    net = models.build(settings["model"], data, seed=seed)
    upload = share(net, x, y, defense(*how), each=1, seed=seed)
    if name != "grnn":  # row sums average noise away; the sign of a bias gradient does not
        upload = replace(upload, knows=Facts(labels=infer_label(upload)))
    began = time.process_time()
    found = attack(name, settings["attacks"][name], *how).run(upload, seed=seed)
    seconds = time.process_time() - began
    scores = metrics.compare(found.images, x)
    seen, same = identify(found.images, x, data)
    return {
        "psnr": [round(v, 2) for v in scores["psnr"].tolist()],
        "ssim": [round(v, 4) for v in scores["ssim"].tolist()],
        "cost": [float(f"{v:.4g}") for v in found.cost.tolist()],
        "label_true": y.tolist(),
        "label_found": found.labels.tolist(),
        "looks_like": seen,
        "identified": same,
        "evaluations": found.evaluations * settings["attacks"][name].get("restarts", 1),
        "cpu_seconds_per_image": round(seconds / count, 2),
        "pictures": [pack(image) for image in found.images[: settings["images"]["grnn"]]],
    }


STUDY = Study(
    name="generative-priors/attack",
    about="pixels, GRNN and GGL on one gradient of one digit, with rising noise or pruning",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
