"""All against all (chapter: all against all): attack, accuracy, promise and price of each defense.

A cell is one family of numbers: "attack", one attacker on one data set (identification among
``gallery``, PSNR, a blind guess); "train", accuracy and the ε of that run; "promise", a proven
bound on identification; "audit", what one-run audits prove of the ε of one release; "cost",
ratios of time and bytes. Settings alone enlarge them.
"""

from __future__ import annotations

from ..base import Study
from .attacking import attack
from .audited import audit
from .cost import cost
from .rows import ROWS
from .training import promise, train

PARTS = {"attack": attack, "train": train, "promise": promise, "audit": audit, "cost": cost}
# For the profile cpu. In color the recursion takes a minute of factorizations for each cell, and
# behind LeNet on gray images it was the best plain attacker of bare uploads only. The plain search
# was run in color on the rows that LODA's Table 1 has; "pair" and "unlock" take minutes of algebra
# there; two chains have the bound of their noise whatever is in a picture.
PLAIN = {
    "mnist": ["closed form", "L-BFGS"],
    "faces": ["closed form", "L-BFGS"],
    "cifar10": ["L-BFGS"],
}
SEARCHED = ("none", "Prune 0.9", "Mixup 4", "InstaHide 4", "LODA₁")
LEFT_OUT = {
    "cifar10": {
        "informed": ["DCS²", "FedKL", "FedKL + noise", "DP-SGD σ 1 + Prune", "ModelCloak + sum"],
        "plain": [row for row in ROWS if row not in SEARCHED],
    }
}


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    data = ["mnist", "faces", *(["photos"] if large else []), "cifar10"]
    tools = ["closed form", "L-BFGS", "GS"]
    return {
        "rows": {name: row.text for name, row in ROWS.items()},
        "informed": {name: row.informed for name, row in ROWS.items()},
        "data": data,
        "same_label": {d: d != "photos" for d in data},
        "gallery": 100,
        "seeds": [0, 1, 2],
        "images": dict.fromkeys(data, 40 if large else 4),  # behind each network
        "plain": {d: tools if large else PLAIN[d] for d in data},
        "left_out": {} if large else LEFT_OUT,
        "steps": 4800 if large else 200,  # evaluations of a search
        "steps_gs": 4800 if large else 200,
        "craft": 1000 if large else 60,  # steps of DCS²
        "craft_lr": 0.1 if large else 0.3,
        "obscure": 500 if large else 200,  # steps of LODA
        "blend_rounds": 5,
        "centers": {"mnist": 0.13, "faces": 0.5, "photos": 0.47, "cifar10": 0.47},
        "train": {
            **{"clients": 10, "per_client": 200 if large else 128, "batch": 32},
            **{"rounds": 200 if large else 12, "eta": 0.01 if large else 0.06},
            **{"momentum": 0.9, "decay": 0.99, "craft": 1000 if large else 6},
            "mask_images": 0 if large else 4,  # from which Soteria makes a mask, once a round
            "skip": [] if large else ["DCS²", "DCS² + Prune"],  # DCS²: see dcs2/training
        },
        "audit": {"guesses": 100, "delta": 1e-5, "confidence": 0.95, "seeds": [0, 1, 2, 3, 4]},
        "cost": {"images": 8, "batch": 4, "repeats": 5},
    }


def _cells(settings: dict) -> list[dict]:
    attacks = [
        {"part": "attack", "data": data, "row": row, "attacker": attacker}
        for data in settings["data"]
        for row in ROWS
        for attacker in ("informed", "plain")
    ]
    earlier = {"part": "attack", "data": "mnist", "attacker": "earlier"}
    attacks += [{**earlier, "row": name} for name, row in ROWS.items() if row.earlier]
    return attacks + [
        {"part": part, "row": row} for part in ("promise", "audit", "cost", "train") for row in ROWS
    ]


def _compute(settings: dict, cell: dict) -> dict:
    return PARTS[cell["part"]](settings, cell)


STUDY = Study(
    name="all-against-all/table",
    about="every defense and some chains: one image a step, untrained networks, labels granted; "
    "accuracy on digits with every client defended; ε, its audit, bound, time and bytes",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
