"""The red team at round 0: batches, color, a dense first layer, and a pooled net with batch norm.

From one gray digit behind an untrained LeNet one axis is moved at a time. Behind a dense first
layer the readers of the chapter "reach" stand in for the defenses' own attackers: lone units,
SPEAR, components. LODA is in color from the start. ModelCloak with its noise at the server only
clips what leaves: behind the pooled net the search, which goes by the angle, is that of "none".
"""

from __future__ import annotations

from ..base import Study
from .attackers import READERS
from .cells import ALGEBRA, SEARCH, cells_of, center, compute, settings_of
from .targets import ALL, CLOAK, CLOAK_SERVER, DENSE, POOLED

NOISY = ("DP-SGD", CLOAK)  # their noise says enough at one image and at the largest batch


def _cells(settings: dict) -> list[dict]:
    most, all_kinds = settings["batches"][-1], (*ALGEBRA, *SEARCH)
    quiet = [d for d in ALL if d not in NOISY]
    color = [center(d) | {"data": name} for name in settings["data"] for d in ALL]
    places = [p for p in color if p != center("LODA")]
    places += [center(d) | {"batch": b} for b in settings["batches"][1:] for d in quiet]
    places += [center(d) | {"batch": most} for d in NOISY]
    cells = [cell for place in places for cell in cells_of(place, all_kinds)]
    dense = [center(d) | {"net": DENSE, "batch": b} for d in ALL for b in (1, 4)]
    cells += [{**p, "attack": a} for p in dense for a in READERS]
    pooled = [center(d) | {"net": POOLED} for d in quiet if d != CLOAK_SERVER]
    return cells + [cell for place in pooled for cell in cells_of(place, all_kinds)]


STUDY = Study(
    name="red-team/axes",
    about="informed attackers at round 0: batch, color, dense and pooled networks; three networks",
    settings=settings_of,
    cells=_cells,
    compute=compute,
)
