"""The red team at round 0: batches, color, a dense first layer, and a pooled net with batch norm.

From one gray digit behind an untrained LeNet one axis is moved at a time. Behind a dense first
layer the readers of the chapter "reach" stand in for the defenses' own attackers: lone units,
SPEAR, components. LODA is in color from the start.
"""

from __future__ import annotations

from ..base import Study
from .attackers import READERS
from .cells import cells_of, center, compute, settings_of
from .targets import ALL, DENSE, POOLED


def _cells(settings: dict) -> list[dict]:
    places = [center(d) | {"batch": b} for b in settings["batches"][1:] for d in ALL]
    color = [center(d) | {"data": name} for name in settings["data"] for d in ALL]
    places += [p for p in color if p != center("LODA")]
    cells = [cell for place in places for cell in cells_of(place)]
    pooled = [center(d) | {"net": POOLED} for d in ALL]
    cells += [cell for place in pooled for cell in cells_of(place)]
    dense = [center(d) | {"net": DENSE, "batch": b} for d in ALL for b in (1, 4)]
    return cells + [{**p, "attack": a} for p in dense for a in READERS]


STUDY = Study(
    name="red-team/axes",
    about="informed attackers at round 0: batch, color, dense and pooled networks; three networks",
    settings=settings_of,
    cells=_cells,
    compute=compute,
)
