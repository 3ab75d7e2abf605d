"""The red team along one training run: informed attackers at rounds 0, 5, 20 and 100.

One image, one step, three networks (seeds), each trained by a FedAvg run whose clients are
defended (``targets`` says where less is). ModelCloak and DP-SGD, under whose noise nothing is
learned here, are attacked on undefended networks of the same age besides.
"""

from __future__ import annotations

from ..base import Study
from .cells import ALGEBRA, SEARCH, cells_of, center, compute, settings_of
from .targets import ALL, CLOAK, CLOAK_SERVER, UNDEFENDED

KNOWN = ("search", "search for the encoding")  # along age "reach/map" has them
BESIDE = ("search, both images", "search, lock and image")  # beside algebra: first and last age


def _settings(profile: str) -> dict:
    large, found = profile == "gpu", settings_of(profile)
    sizes = (("mnist", 60, 20), ("photos", 30, 10))
    return {
        **found,
        "images": {**found["images"], "joint": found["images"]["pair"]},  # the same uploads
        "ages": [0, 5, 20, 100],
        "clients": 10 if large else 4,
        "fedavg": {
            name: {"per_client": n, "batch_size": size, "eta": 0.1} for name, n, size in sizes
        },
        "craft_in_training": 100 if large else 2,
    }


def _cells(settings: dict) -> list[dict]:
    ages = settings["ages"]
    places = [center(name) | {"age": age} for name in ALL for age in ages]
    places += [
        center(name) | {"age": ages[-1], "training": UNDEFENDED}
        for name in ("DP-SGD", CLOAK, CLOAK_SERVER)
    ]
    cells = [cell for place in places for cell in cells_of(place, (*ALGEBRA, *SEARCH))]
    some = [c for c in cells if c["attack"] not in KNOWN]
    return [c for c in some if c["attack"] not in BESIDE or c["age"] in (ages[0], ages[-1])]


STUDY = Study(
    name="red-team/age",
    about="informed attackers along one defended FedAvg run; one image, one step, three networks",
    settings=_settings,
    cells=_cells,
    compute=compute,
)
