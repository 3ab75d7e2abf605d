"""DCS², attack side (Tables 1, 4, 5, 7, 11; Table 3 and §8.3 on digits), and attackers who know it.

Batch 1, untrained sigmoid LeNet, digits. Parts: "table", the paper's defenses under its attackers,
who look for one image; "variant", what crafting makes and how GS does on it; "joint", L-BFGS on
both images; "separate", no search over images at all (``attacks.Pair``, which is granted nothing);
"fresh", the same on other images and nets; "scale", the same for the other scales of Eq. 10;
"overhead", the time that crafting takes.
"""

from __future__ import annotations

import copy
import statistics
import time
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ... import models
from ...attacks import GS, IDLG, Matching, Pair
from ...attacks.adaptive.dcs2_matching import candidate_labels, joint
from ...client import share
from ...data import load
from ...defenses import DCS2, Defense, DPGaussian, Prune, Soteria
from ...defenses.base import Memory
from ...defenses.dcs2 import crafted
from ...metrics.judge import matching, scores
from ...pictures import packed
from ...wire import Facts, Upload
from ..base import Study
from ..clock import evaluation

BASELINES = {
    "none": Defense,
    "DP-Gaussian 0.01": lambda: DPGaussian(0.01),
    "Prune 0.7": lambda: Prune(0.7),
    "Soteria 0.2": lambda: Soteria(0.2),
}
MAIN = "sample"
VARIANTS: dict[
    str, dict[str, Any]
] = {  # name -> options of DCS² besides λg 0.7, a start from training digits
    MAIN: {},
    "noise": {"start": "noise"},
    "mixup": {"start": "mixup"},
    "λg 0.5": {"lambda_g": 0.5},
    "λg 1.0": {"lambda_g": 1.0},
    "box": {"box": True},
    "1000 steps": {"steps": 1000},
    "released units": {"steps": 1000, "lr": 0.031, "lambda_x": 0.032, "far": 92.0},
    "same label": {},  # ỹ = y_s: starts from digits of the sensitive image's class
    "+ Prune 0.7": {},
    "+ noise 1e-5": {},
    "5:1": {"ratio": "5:1"},
    "10:1": {"ratio": "10:1"},
}
SCALED: dict[str, dict[str, Any]] = {
    "Eq. 10 as printed": {"scale": "sum"},
    "released scale": {"scale": "code"},
}
AFTER = {
    "+ Prune 0.7": lambda: Prune(0.7),
    "+ noise 1e-5": lambda: DPGaussian(1e-5),
}
EACH = {"5:1": 5, "10:1": 10}
JOINT: dict[str, dict[str, Any]] = {  # name -> variant, and how the search is told to go
    "labels granted": {},
    "wide start": {"width": 5.0},
    "smooth": {"tv": 0.03},
    "label tried": {"tried": True},
}


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "dataset": "mnist",
        "model": "lenet (sigmoid), untrained",
        "images": 64 if large else 16,
        "batches": 8 if large else 2,  # uploads where one x̃ conceals several images
        "craft": 1000 if large else 300,
        "gs": 10000 if large else 800,
        "lbfgs": 1000 if large else 400,
        "joint": 2000 if large else 1000,
        "joint_main": 2000 if large else 1500,
        "starts": 8 if large else 2,
        "some_images": 64 if large else 8,  # the first ones, for all other joint searches
        "tried_images": 64 if large else 4,
        "tried_steps": 2000 if large else 500,
        "success": 20.0,  # dB
        "fresh": [1, 2],  # other images, nets and draws than those on which Pair was developed
        "seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    cells = [
        {"part": "table", "defense": name, "attack": attack}
        for name in (*BASELINES, "DCS²")
        for attack in ("GS", "GS, class average", "iDLG")
    ]
    cells += [{"part": "variant", "variant": v} for v in VARIANTS if v != "+ noise 1e-5"]
    pruned = "+ Prune 0.7"  # its last layer has no rank 2 to start from
    cells += [{"part": "separate", "variant": v} for v in VARIANTS if v not in (pruned, *EACH)]
    cells += [{"part": "joint", "variant": MAIN, "attack": a} for a in JOINT]
    cells += [
        {"part": "joint", "variant": v, "attack": "labels granted"}
        for v in ("box", "same label", "+ Prune 0.7", *EACH)
    ]
    cells += [{"part": "fresh", "seed": seed} for seed in settings["fresh"]]
    cells += [{"part": "overhead"}]
    return cells + [{"part": "scale", "variant": v, "seed": 3} for v in SCALED]  # digits, net anew


def _compute(settings: dict, cell: dict) -> dict:
    parts = {"table": _table, "variant": _variant, "separate": _separate, "joint": _joint}
    if cell["part"] == "scale":
        few = {"seed": cell["seed"], "images": settings["some_images"]}
        return _separate(settings | few, cell)
    if cell["part"] == "fresh":
        return _separate(settings | {"seed": cell["seed"]}, {"variant": MAIN})
    return parts.get(cell["part"], _overhead)(settings, cell)


# Who is attacked


class Victims(NamedTuple):
    """Uploads, and what is behind them."""

    upload: Upload  # with "labels"; and "mixture", the labels of the augmented batches
    x: Tensor
    y: Tensor
    concealed: Tensor  # x̃ of all uploads
    labels: Tensor  # ỹ
    history: Tensor  # (M, 4, steps + 1), as in ``Crafted``


def defended(settings: dict, variant: str, digit: int | None = None) -> DCS2:
    """The DCS² of a variant; ``digit`` restricts its starts to one class."""
    data = load("mnist")
    keep = slice(None) if digit is None else data.y_train == digit
    options: dict[str, Any] = {"steps": settings["craft"], "start": "sample"}
    options |= (VARIANTS | SCALED)[variant]
    return DCS2(pool=(data.x_train[keep], data.y_train[keep]), **options)


def victims(settings: dict, variant: str) -> Victims:
    """Clients with one held-out digit each (several for 5:1 and 10:1), defended by a variant."""
    keys = ("images", "batches", "craft", "seed")
    return _victims(tuple((k, settings[k]) for k in keys), variant)


@lru_cache
def _victims(items: tuple, variant: str) -> Victims:
    settings, data = dict(items), load("mnist")
    each, seed = EACH.get(variant, 1), settings["seed"]
    count = settings["images"] if each == 1 else settings["batches"] * each
    model = models.build("lenet", data, seed=seed)
    x, y = data.sample(count, split="test", seed=seed)
    if variant == "same label":
        order, groups = y.argsort(stable=True), y.unique().tolist()
        digits = [(x[y == g], y[y == g], defended(settings, variant, g)) for g in groups]
    else:
        order, digits = torch.arange(count, device=y.device), [(x, y, defended(settings, variant))]
    sent, made, back = [], [], order.argsort() if each == 1 else slice(None)
    for x_g, y_g, first in digits:
        whole = first + AFTER[variant]() if variant in AFTER else first
        memory, knows = Memory(), ("labels", "mixture")
        sent.append(share(model, x_g, y_g, whole, knows, each, seed=seed, memory=memory))
        notes = crafted(memory.part(0) if variant in AFTER else memory)
        made += [notes[k] for k in range(len(sent[-1]))]
    upload = replace(
        sent[0],
        tensors={n: torch.cat([u.tensors[n] for u in sent])[back] for n in sent[0].tensors},
        knows=Facts(
            labels=torch.cat([cast(Tensor, u.knows.labels) for u in sent])[back],
            mixture=torch.cat([cast(Tensor, u.knows.mixture) for u in sent])[back],
        ),
    )
    parts = ("images", "labels", "history")
    hidden = [torch.cat([getattr(m, part) for m in made])[back] for part in parts]
    return Victims(upload, x, y, *hidden)


# Attackers who look for what was not hidden


def _table(settings: dict, cell: dict) -> dict:
    data, seed = load("mnist"), settings["seed"]
    if cell["defense"] == "DCS²":
        upload, x, y, *_ = victims(settings, MAIN)
    else:
        x, y = data.sample(settings["images"], split="test", seed=seed)
        model = models.build("lenet", data, seed=seed)
        upload = share(model, x, y, BASELINES[cell["defense"]](), ("labels",), each=1, seed=seed)
    attack: Matching
    if cell["attack"] == "iDLG":
        attack = IDLG(steps=settings["lbfgs"], show=False)
    else:
        start = class_means()[y][:, None] if "average" in cell["attack"] else None
        attack = GS(steps=settings["gs"], start=start, show=False)
    found = attack.run(upload, seed=seed)
    return scores(found.images, x, settings["success"]) | {"evaluations": found.evaluations}


def class_means() -> Tensor:
    """The mean training digit of each class, (10, 1, 28, 28)."""
    data = load("mnist")
    return torch.stack([data.x_train[data.y_train == c].mean(0) for c in range(10)])


def _variant(settings: dict, cell: dict) -> dict:
    v, each = victims(settings, cell["variant"]), EACH.get(cell["variant"], 1)
    found = GS(steps=settings["gs"], show=False).run(v.upload, seed=settings["seed"]).images
    last = v.history[:, :, -1]
    out = {
        "gs": scores(found[matching(found, v.x, each)], v.x, settings["success"]),
        "range": [round(v.concealed.min().item(), 2), round(v.concealed.max().item(), 2)],
        "outside": round(((v.concealed < 0) | (v.concealed > 1)).double().mean().item(), 4),
        "distance": [round(a, 2) for a in last[:, 2].tolist()],
        "cosine": [round(a, 4) for a in last[:, 1].tolist()],
        "logit_distance": [round(a, 4) for a in last[:, 3].tolist()],
        "concealed_labels": v.labels.tolist(),
        "labels": v.y.tolist(),
    }
    if cell["variant"] == MAIN:
        out |= {
            "pictures": packed(v.x),
            "pictures_concealed": packed(v.concealed),
            "pictures_gs": packed(found),
        }
    return out


# The attacker who looks for both images


def _joint(settings: dict, cell: dict) -> dict:
    how, variant = JOINT[cell["attack"]], cell["variant"]
    v, each = victims(settings, variant), EACH.get(variant, 1)
    starts, steps, upload, x = settings["starts"], settings["joint"], v.upload, v.x
    mixture = cast(Tensor, upload.knows.mixture)[:, None]  # (U, 1, B + M, classes)
    if how.get("tried"):
        starts, steps, n = 1, settings["tried_steps"], settings["tried_images"]
        upload, x = upload[:n], x[:n]
        mixture = candidate_labels(
            cast(Tensor, upload.knows.labels)[:, 0], 10, defended(settings, variant).lambda_g
        )
    elif variant == MAIN:
        steps, n = settings["joint_main"], settings["some_images" if how else "images"]
        upload, x, mixture = upload[:n], x[:n], mixture[:n]
    else:
        starts, n = 1, settings["some_images"] if each == 1 else len(x)
        upload, x, mixture = upload[:n], x[:n], mixture[:n]
    labels = mixture.repeat_interleave(starts, 1)  # (U, starts, B + M, classes)
    found, cost, evaluations = joint(
        upload, labels, steps, settings["seed"], how, nonzero=variant == "+ Prune 0.7"
    )
    best = cost.argmin(1)
    rows = torch.arange(len(best), device=best.device)
    images = found[rows, best][:, :each].flatten(0, 1)
    out = scores(images[matching(images, x, each)], x, settings["success"])
    out |= {"starts": labels.shape[1], "evaluations": evaluations, "attacked": len(upload)}
    out["cost"] = [float(f"{c:.3g}") for c in cost.min(1).values.tolist()]
    if how.get("tried"):
        out["label_right"] = int((best == v.labels[: len(best)]).sum())
    if variant == MAIN and cell["attack"] == "labels granted":
        out["pictures"] = packed(images)
    return out


def _separate(settings: dict, cell: dict) -> dict:
    v = victims(settings, cell["variant"])
    upload, attack = v.upload, Pair()
    began = time.process_time()
    found = attack.run(upload)
    images, pairs = found.images, found.details["splits"]
    seconds = time.process_time() - began
    soft = cast(Tensor, upload.knows.mixture)[:, 1]
    net = copy.deepcopy(upload.model).double().requires_grad_(False)
    f = net.features(torch.stack([v.x, v.concealed], 1).double().flatten(0, 1)).detach()
    apart = torch.stack([p.f for p in pairs]) - f.view(len(pairs), 2, -1)
    off = apart.norm(dim=2) / f.view(len(pairs), 2, -1).norm(dim=2)
    out = scores(images, v.x, settings["success"]) | {
        "label_right": sum(p.label == t for p, t in zip(pairs, v.y.tolist(), strict=True)),
        "soft_error": [
            float(f"{(p.soft - t).abs().max():.2g}") for p, t in zip(pairs, soft, strict=True)
        ],
        "feature_error": [[float(f"{e:.2g}") for e in row] for row in off.tolist()],
        "score": [float(f"{p.score:.2g}") for p in pairs],
        "weights": [[round(w, 4) for w in p.weights.tolist()] for p in pairs],  # as found
        "weights_true": [round(w, 4) for w in defended(settings, cell["variant"]).weights(1, 1)],
        "same_label": (v.labels.cpu() == v.y).tolist(),
        "evaluations_worth": round(seconds / evaluation(IDLG(), upload), 1),
    }
    if cell["variant"] == MAIN:
        out["pictures"] = packed(images)
    return out


# What crafting costs


def _overhead(settings: dict, cell: dict) -> dict:
    """Process time of sharing with DCS² over sharing without, for 16 clients at once or in turn."""
    data, n = load("mnist"), 16
    model = models.build("lenet", data, seed=settings["seed"])
    x, y = data.sample(n, split="test", seed=settings["seed"])

    def seconds(defense: Defense, rows: int, at_once: bool) -> float:
        began = time.process_time()
        for part in torch.arange(rows, device=x.device).split(rows if at_once else 1):
            share(model, x[part], y[part], defense, each=1)
        return (time.process_time() - began) / rows

    def plain(at_once: bool) -> float:
        return statistics.median(seconds(Defense(), n, at_once) for _ in range(9))

    hidden = defended(settings, MAIN)
    plain(True)  # the first call is slower
    times = {True: seconds(hidden, n, True), False: seconds(hidden, 4, False)}
    return {
        "batched": round(times[True] / plain(True), 1),
        "one_by_one": round(times[False] / plain(False), 1),
        "one_by_one_over_batched": round(times[False] / times[True], 2),
        "steps": settings["craft"],
    }


STUDY = Study(
    name="dcs2/attack",
    about="DCS² on digits: the paper's attackers, and attackers who know of the concealed image",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
