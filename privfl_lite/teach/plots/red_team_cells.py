"""The stored studies of the chapter "The red team": their cells, moves and tables."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ... import metrics
from ...studies import STUDIES
from ...studies.red_team.cells import COLOR, center
from ...studies.red_team.targets import CLOAK, CLOAK_SERVER, DENSE, POOLED, UNDEFENDED
from ..tables import Spread
from .reach_cells import Cell, exact, hits, median

SHORT = {CLOAK: "ModelCloak, upload", CLOAK_SERVER: "ModelCloak, server"}
AGES = (0, 5, 20, 100)  # rounds
MOVES: dict[str, dict[str, Any]] = {
    "round 100": {"age": AGES[-1]},
    "color": {"data": COLOR},
    **{f"batch {b}": {"batch": b} for b in (2, 4, 8)},
    "dense, batch 1": {"net": DENSE},
    "dense, batch 4": {"net": DENSE, "batch": 4},
    "pooled": {"net": POOLED},
}
BESIDE = {"round 100, undefended run": {"age": AGES[-1], "training": UNDEFENDED}}
PLACES = {f"round {age}": {"age": age} for age in AGES} | BESIDE | MOVES
CLAIMED = ("round 0", *MOVES)


@cache
def result(study: str = "axes") -> dict[str, Any]:
    return STUDIES[f"red-team/{study}"].show()


def cells(defense: str, **where: Any) -> list[Cell]:
    """All attackers of a place; what is left out stands at the defense's center."""
    at = {**center(defense), **where}
    every = [*result("age")["cells"], *result()["cells"]]
    return [c for c in every if at.items() <= c.items()]


def ran(defense: str, **where: Any) -> list[Cell]:
    """Those that did not refuse."""
    return [c for c in cells(defense, **where) if "networks" in c]


def judge(cell: Cell) -> str:
    """By what the attacker compares: LODA keeps features, so encodings are compared by them."""
    encoded = cell["defense"] == "LODA" and cell["attack"] != "decoder"
    return "features" if encoded else "pixels"


def named(cell: Cell) -> Spread:
    """The share that is named among 100, with its interval over networks."""
    found, counts = hits(cell, judge(cell))
    return Spread(sum(found) / sum(counts), *metrics.clustered(found, counts))


def best(defense: str, **where: Any) -> Cell | None:
    """The attacker with most names, chosen by the truth: an upper edge of what these have."""
    return max(ran(defense, **where), key=lambda c: (named(c).value, exact(c)), default=None)


def level(cell: Cell) -> str:
    """How much an attacker has: one of the keys of ``SHADES``."""
    if exact(cell) >= 0.5:
        return "exact"
    if named(cell).value >= 0.5:
        return "recognizable"
    return "some" if luck(cell) < 0.025 else "no better than chance"


def luck(cell: Cell) -> float:
    """The probability of as many hits by guessing, where as many attackers guess as ran there."""
    found, counts = hits(cell, judge(cell))
    place = {k: cell[k] for k in ("net", "data", "batch", "age", "training")}
    tries = sum(counts) * len(ran(cell["defense"], **place))
    p = 1 / result()["settings"]["gallery"]
    below = (math.comb(tries, h) * p**h * (1 - p) ** (tries - h) for h in range(sum(found)))
    return 1 - sum(below)


def accuracy(cell: Cell) -> float:
    """Of the attacked networks, on test images: the mean."""
    return sum(row["accuracy"] for row in cell["networks"]) / len(cell["networks"])


def count(cell: Cell) -> str:
    """ "12 of 18": images named, of images."""
    found, counts = hits(cell, judge(cell))
    return f"{sum(found)} of {sum(counts)}"


def rows(defense: str, moves: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    """What a table says of one defense: every attacker at every place, refusals last."""
    found: list[dict[str, Any]] = []
    for move, where in PLACES.items():
        for cell in ran(defense, **where) if moves is None or move in moves else ():
            found.append({"place": move, "attacker": cell["attack"], "named": named(cell)})
            found[-1] |= {"images": count(cell).split()[-1], "exact": exact(cell)}
            found[-1] |= {"median PSNR": median(cell), "accuracy": accuracy(cell)}
    return found


UNITS = {"named": "of 1", "exact": "share", "median PSNR": "dB", "accuracy": "of the network"}
LOOKS = {"named": ".2f", "exact": ".2f", "median PSNR": ".0f", "accuracy": ".2f"}


def refusals(defense: str) -> dict[str, list[str]]:
    """Sentence of an attacker -> the places where it was said."""
    said: dict[str, list[str]] = {}
    for move, where in PLACES.items():
        for c in cells(defense, **where):
            if "refused" in c:
                places = said.setdefault(f"{c['attack']}: {c['refused']}", [])
                places += [] if move in places else [move]
    return said


CLAIMS: dict[str, tuple[str, str]] = {  # claim of the defense's chapter -> defense and attacker
    "ModelCloak: under the text's noise nothing is found": (CLOAK, "likelihood"),
    "ModelCloak: with noise at the server the upload is bare": (CLOAK_SERVER, "recursion"),
    "DCS²: two images are told apart by algebra": ("DCS²", "pair"),
    "DCS²: both images are found by a search": ("DCS²", "search, both images"),
    "FedKL: the lock opens": ("FedKL", "unlock"),
    "FedKL: image and lock are found by a search": ("FedKL", "search, lock and image"),
    "Entanglement: the guard's entries drop out": ("Entanglement", "search, own entries"),
    "LODA: an encoding names its image": ("LODA", "encoding"),
    "LODA: a decoder shows the image": ("LODA", "decoder"),
    "LODA: behind a dense layer an encoding names its image": ("LODA", "components"),
    "LODA: an encoding is found by a search": ("LODA", "search for the encoding"),
}


def claims() -> list[dict[str, Any]]:
    """Each claim along the axes: the share named among 100, by the claim's own attacker."""
    found: list[dict[str, Any]] = []
    for claim, (defense, attack) in CLAIMS.items():
        found.append({"claim": claim})
        for move in CLAIMED:
            some = [c for c in ran(defense, **PLACES[move]) if c["attack"] == attack]
            found[-1][move] = named(some[0]).value if some else None
    return found
