"""DCS² under GGL and Imprint: the stronger attackers of Table 2, who do not know of it.

Parts "ggl" and "imprint" of the study "dcs2/photos", and how its defenses are made.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ... import models
from ...attacks import GGL, row_quotients
from ...attacks.malicious.imprint import Imprint
from ...client import share
from ...data import load
from ...defenses import DCS2, Defense, DPGaussian, Prune, Soteria
from ...defenses.base import Memory
from ...defenses.dcs2 import crafted
from ...metrics.judge import scores
from ...pictures import packed
from ..malicious_server.bins import laplace_edges
from .attack import BASELINES as DIGITS

BINS = {  # Table 2's for TinyImageNet (its scripts prune 0.5, its text says 0.7)
    "none": Defense,
    "DP-Gaussian 0.5": lambda: DPGaussian(0.5),
    "Prune 0.7": lambda: Prune(0.7),
    "Soteria 0.9": lambda: Soteria(0.9),
}
HIDDEN = "DCS²"


def gray(x: Tensor) -> Tensor:
    """Images of CIFAR-10 without their color, (N, 1, 32, 32)."""
    return x.mean(1, keepdim=True)


def hidden(settings: dict, data: str, steps: int, colorless: bool = False, **options) -> DCS2:
    """DCS² that starts from training images of a data set."""
    source, n = load(data), settings["pool"]
    x, y = source.x_train[:n], source.y_train[:n]
    pool = (gray(x) if colorless else x, y)
    all_options: dict[str, Any] = {"steps": steps, "start": "sample", "pool": pool} | options
    return DCS2(**all_options)


def ggl(settings: dict, cell: dict) -> dict:
    data, name, seed = load("mnist"), cell["defense"], settings["seed"]
    x, y = data.sample(settings["images"], split="test", seed=seed)
    defense = hidden(settings, "mnist", settings["craft"]) if name == HIDDEN else DIGITS[name]()
    model = models.build("lenet", data, seed=seed)
    upload = share(model, x, y, defense, ("labels",), each=1, seed=seed)
    found = GGL(**settings["ggl"], show=False).run(upload, seed=seed)
    return scores(found.images, x, settings["success"]) | {"pictures": packed(found.images)}


def imprint(settings: dict, cell: dict) -> dict:
    how, name, source = settings["imprint"], cell["defense"], load(cell["data"])
    pixels = source.x_train
    dims = (0, 2, 3)
    mean, std = (t[:, None, None] for t in (pixels.mean(dims), pixels.std(dims)))
    net = Imprint(models.build(how["net"], source), laplace_edges(how["bins"]), how["gain"])
    with torch.no_grad():  # as released
        net.second.weight.fill_(1 / how["gain"])
    x, y = source.sample(how["images"], split="test", seed=settings["seed"])
    units = (x - mean) / std
    pool = ((pixels - mean) / std, source.y_train)
    steps = settings["imprint_craft"]
    defense = DCS2(steps=steps, start="sample", pool=pool) if name == HIDDEN else BINS[name]()
    memory, seed = Memory(), settings["seed"]
    upload = share(net, units, y, defense, ("labels",), each=1, seed=seed, memory=memory)
    g = upload.gradients()
    weight, bias = (
        torch.cat([t[:, :-1] - t[:, 1:], t[:, -1:]], 1)
        for t in (g["first.weight"].cpu(), g["first.bias"].cpu())
    )
    rows = row_quotients(weight, bias).view(len(x), -1, *x.shape[1:]) * std + mean
    hit = bias.abs() > 1e-4 * bias.abs().amax(1, keepdim=True)
    last = torch.stack([r[h][-1] for r, h in zip(rows, hit, strict=True)])
    found = [
        r[h][(r[h].clamp(0, 1) - image).flatten(1).norm(dim=1).argmin()]
        for r, h, image in zip(rows, hit, x, strict=True)
    ]
    nearest = torch.stack(found)
    out: dict[str, Any] = {
        "position": scores(last, x, settings["success"]),
        "matched": scores(nearest, x, settings["success"]),
        "occupied": {str(k): v for k, v in sorted(Counter(hit.sum(1).tolist()).items())},
    }
    if name == HIDDEN:
        made = torch.cat([crafted(memory)[k].images for k in range(len(x))]).cpu()
        edges = laplace_edges(how["bins"])
        bins = [torch.bucketize(t.flatten(1).mean(1), edges) for t in (units, made)]
        out["together"] = round((bins[0] == bins[1]).double().mean().item(), 4)
        out["concealed_last"] = round((bins[1] > bins[0]).double().mean().item(), 4)
        out["concealed_range"] = [round(made.min().item(), 2), round(made.max().item(), 2)]
        out |= {"pictures_position": packed(last), "pictures_matched": packed(nearest)}
        out["pictures_true"] = packed(x)
    return out
