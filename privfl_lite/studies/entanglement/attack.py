"""Model Entanglement, attack side (Fig. 6), and attackers who tell the guard's entries apart.

Batch 1, untrained sigmoid LeNet, digits; each private image has a guard image of its own, drawn
from the training digits. Labels are granted to every search. Parts: "table", the paper's GS, best
of five by its own cost, on four methods; "blind", a guess without any upload; "variant", β and each
choice that the paper leaves open, under attackers who know more and more; "update", what leaves
after several local steps instead of a gradient; "fresh", the estimate of the mask on other images
and nets than those on which it was developed; "wire", the same for uploads rounded to 16 bits.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import metrics, models
from ...attacks import GS, IDLG, Attack, Reconstruction, Recursive, Unguard, UnguardRows
from ...attacks.adaptive.entanglement import estimated, own_part, read_features
from ...client import share
from ...data import load
from ...defenses import CAFL, POGZFL, Defense, Entangle
from ...defenses.base import Memory
from ...defenses.entangle import replaced
from ...metrics.judge import scores
from ...pictures import packed
from ...wire import Plan, Upload
from ..base import Study

MAIN = "β 0.7"
STD = 0.3081  # of MNIST's pixels, by which GS's authors divide
VARIANTS: dict[str, dict[str, Any]] = {  # name -> options of Entangle
    "β 0.9": {"beta": 0.9},
    MAIN: {"beta": 0.7},
    "β 0.5": {"beta": 0.5},
    "β 0.3": {"beta": 0.3},
    "random units": {"score": "random"},
    "rows": {"side": "rows"},
    "both": {"side": "both"},
    "added": {"how": "add"},
    "rows added": {"side": "rows", "how": "add"},
    "both added": {"side": "both", "how": "add"},
}
TABLE = {
    "none": Defense,
    "POGZ-FL": lambda: POGZFL(alpha=1.0, eta=1.0),  # a gradient: its rate is 1
    "CA-FL": lambda: CAFL(eps=5.0, ratio=0.1),
    "Entangle": None,
}
WIRES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
GRANTED, ALONE = "guard's upload", "mask estimated"


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "dataset": "mnist",
        "model": "lenet (sigmoid), untrained",
        "images": 64 if large else 16,
        "gs": 4800 if large else 400,
        "restarts": 5,
        "lbfgs": 1000 if large else 400,
        "update_images": 64 if large else 8,
        "update_steps": 1000 if large else 250,
        "plan": {"eta": 0.01, "steps": 5, "batch_size": 1, "shuffle": False, "mode": "eval"},
        "success": 20.0,  # dB
        "fresh": [2, 3],  # seeds
        "seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    cells = [{"part": "table", "defense": name} for name in TABLE]
    cells += [{"part": "blind"}, {"part": "left out"}]
    for v, options in VARIANTS.items():
        attacks = ["readout", "recursive", "GS", "iDLG", GRANTED]
        attacks += [ALONE] if options.get("how") == "add" else []  # of copies: the same entries
        attacks += ["rows filled in"] if v == "rows" else []
        cells += [{"part": "variant", "variant": v, "attack": a} for a in attacks]
    cells += [{"part": "update", "attack": a} for a in ("iDLG", GRANTED)]
    fresh = (MAIN, "β 0.5", "rows", "both")
    cells += [
        {"part": "fresh", "seed": seed, "variant": v} for seed in settings["fresh"] for v in fresh
    ]
    return cells + [{"part": "wire", "format": f, "variant": v} for f in WIRES for v in VARIANTS]


# Who is attacked


class Victims(NamedTuple):
    """Uploads with "labels" and "guard" granted, which entries are the guard's, the private data"""

    upload: Upload
    replaced: dict[str, Tensor]
    ratios: Tensor
    x: Tensor
    y: Tensor
    guard: Tensor  # the guard's images


def victims(settings: dict, variant: str, plan: Plan | None = None) -> Victims:
    """Clients with one held-out digit each, entangled with one training digit each."""
    keys = ("images", "seed")
    return _victims(json.dumps({k: settings[k] for k in keys}), variant, plan)


@lru_cache
def _victims(text: str, variant: str, plan: Plan | None) -> Victims:
    settings, data = json.loads(text), load("mnist")
    n, seed = settings["images"], settings["seed"]
    model = models.build("lenet", data, seed=seed)
    x, y = data.sample(n, split="test", seed=seed)
    public, labels = data.sample(n, seed=seed + 1)
    guard = share(model, public, labels, each=1, plan=plan).tensors
    defense = Entangle(guard=guard, **VARIANTS[variant])
    memory, knows = Memory(), ("labels", "guard")
    how = {"each": 1, "plan": plan, "seed": seed, "memory": memory}
    upload = share(model, x, y, defense, knows, **how)
    ratios = torch.stack([memory[c]["ratio"] for c in range(n)])
    return Victims(upload, replaced(memory, range(n)), ratios, x, y, public)


def _without_guard(upload: Upload) -> Upload:
    return replace(upload, knows=upload.knows.without("guard"))


# Attacks


def _scored(settings: dict, found: Reconstruction, x: Tensor) -> dict:
    """PSNR and SSIM as in all tables; and MSE, of pixels in [0, 1] and of standardized ones."""
    mse = metrics.mse(metrics.as_image(found.images), x).tolist()
    low, high = metrics.bootstrap_interval(mse)
    return scores(found.images, x, settings["success"]) | {
        "mse_mean": round(sum(mse) / len(mse), 6),
        "mse_interval": [round(low, 6), round(high, 6)],
        "mse_standardized": round(sum(mse) / len(mse) / STD**2, 4),
        "evaluations": found.evaluations,
    }


def _table(settings: dict, cell: dict) -> dict:
    v, seed = victims(settings, MAIN), settings["seed"]
    upload = v.upload
    if make := TABLE[cell["defense"]]:
        made = make()
        upload = share(upload.model, v.x, v.y, made, ("labels",), each=1, seed=seed)
    attack = GS(steps=settings["gs"], restarts=settings["restarts"], show=False)
    found = attack.run(upload, seed=seed)
    out = _scored(settings, found, v.x) | {"pictures": packed(found.images)}
    if not TABLE[cell["defense"]]:
        out |= {"pictures_private": packed(v.x), "pictures_guard": packed(v.guard)}
    return out


def _blind(settings: dict, cell: dict) -> dict:
    """The mean training digit, a guess that needs no upload."""
    v = victims(settings, MAIN)
    mean = load("mnist").x_train.mean(0).expand_as(v.x)
    return _scored(settings, Reconstruction(mean, v.y, v.x.new_zeros(len(v.x))), v.x)


def _left_out(settings: dict, cell: dict) -> dict:
    """Nobody's help: the layer that may be the guard's is left out, so β does not matter."""
    v = victims(settings, MAIN)
    attack = IDLG(steps=settings["lbfgs"], drop=("head",), show=False)
    return _scored(settings, attack.run(v.upload, seed=settings["seed"]), v.x)


def _variant(settings: dict, cell: dict) -> dict:
    v, name, seed = victims(settings, cell["variant"]), cell["attack"], settings["seed"]
    if name == "readout":
        return _readout(v)
    added = VARIANTS[cell["variant"]].get("how") == "add"
    upload, own = v.upload, IDLG(steps=settings["lbfgs"], nonzero=True, show=False)
    if name == GRANTED and added:  # nothing is missing once it is subtracted
        return _scored(settings, Recursive().run(own_part(upload)), v.x)
    chosen: dict[str, Attack] = {
        "GS": GS(steps=settings["gs"], show=False),
        "iDLG": IDLG(steps=settings["lbfgs"], show=False),
        "recursive": Recursive(),
        "rows filled in": UnguardRows(),
    }
    attack = chosen.get(name, Unguard(own))
    upload = _without_guard(upload) if name in (ALONE, "rows filled in") else upload
    found = attack.run(upload, seed=seed)
    out = _scored(settings, found, v.x)
    if name == "rows filled in":
        out["label_right"] = int((found.labels.cpu() == v.y).sum())
    if (cell["variant"], name) == (MAIN, GRANTED):
        out["pictures"] = packed(found.images)
    return out


def _readout(v: Victims) -> dict:
    """What the entries that remain tell without a search, with and without the guard's upload.

    "mask_exact": uploads whose entries the estimate tells apart without an error. "features": share
    of r that can be read, and its largest relative error. "label_right": by the smallest entry of
    the last bias, as sent and in what is left.
    """
    alone = _without_guard(v.upload)
    mask = estimated(alone)
    exact = torch.stack([(mask[n] == t).flatten(1).all(1) for n, t in v.replaced.items()]).all(0)
    own = own_part(v.upload)
    r = read_features(own)
    true = v.upload.model.representation(v.x.to(r.device)).detach()
    known = ~r.isnan()
    error = ((r - true).abs() / true)[known]
    weight = v.replaced["head.weight"].double().mean((1, 2))
    return {
        "images": len(v.x),
        "ratio": [round(m, 4) for m in v.ratios.tolist()],
        "replaced": round(weight.mean().item(), 4),
        "mask_exact": int(exact.sum()),
        "features_read": round(known.double().mean().item(), 4),
        "features_error": float(f"{error.max():.2g}") if len(error) else None,
        "label_right_as_sent": int((v.upload.tensors["head.bias"].argmin(1).cpu() == v.y).sum()),
        "label_right": int((own.tensors["head.bias"].argmin(1).cpu() == v.y).sum()),
    }


def _update(settings: dict, cell: dict) -> dict:
    """Δ of several local steps on one image: the "model update" of §3.1 rather than a gradient."""
    few = {**settings, "images": settings["update_images"]}
    v = victims(few, MAIN, Plan(**settings["plan"]))
    attack: Attack = IDLG(steps=settings["update_steps"], show=False)
    if cell["attack"] == GRANTED:
        attack = Unguard(IDLG(steps=settings["update_steps"], nonzero=True, show=False))
    found = attack.run(v.upload, seed=settings["seed"])
    ratio = round(v.ratios.mean().item(), 4)
    return _scored(settings, found, v.x) | {"ratio_mean": ratio}


def _fresh(settings: dict, cell: dict) -> dict:
    """Nothing but the labels is granted; where columns are the guard's, the search follows."""
    other = settings | {"seed": cell["seed"]}
    out = _readout(victims(other, cell["variant"]))
    if cell["variant"] == MAIN:
        out |= _variant(other, {"variant": MAIN, "attack": ALONE})
    return out


def _wire(settings: dict, cell: dict) -> dict:
    """Every number of the upload rounded to 16 bits; no guard's upload.

    "missed": share of the guard's entries of the last weights that are taken for the client's;
    "false": the other way round. For the main variant the search follows.
    """
    v = victims(settings, cell["variant"])
    sent = {n: t.to(WIRES[cell["format"]]).to(t) for n, t in v.upload.tensors.items()}
    v = v._replace(upload=_without_guard(replace(v.upload, tensors=sent)))
    told, true = estimated(v.upload), v.replaced
    exact = torch.stack([(told[n] == t).flatten(1).all(1) for n, t in true.items()]).all(0)
    a, b = told["head.weight"], true["head.weight"]
    out = {
        "images": len(v.x),
        "mask_exact": int(exact.sum()),
        "missed": round(((b & ~a).sum() / b.sum()).item(), 4),
        "false": round(((a & ~b).sum() / (~b).sum()).item(), 4),
    }
    if cell["variant"] == MAIN:
        attack = Unguard(IDLG(steps=settings["lbfgs"], nonzero=True, show=False))
        out |= _scored(settings, attack.run(v.upload, seed=settings["seed"]), v.x)
    return out


def _compute(settings: dict, cell: dict) -> dict:
    parts = {"table": _table, "blind": _blind, "left out": _left_out, "variant": _variant}
    parts |= {"fresh": _fresh, "wire": _wire}
    return parts.get(cell["part"], _update)(settings, cell)


STUDY = Study(
    name="entanglement/attack",
    about="Model Entanglement on digits: GS as in Fig. 6, and attackers who know of the guard",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
