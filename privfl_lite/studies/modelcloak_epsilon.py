"""ModelCloak, Table III: the ε that its noise scales give, under several ways to count."""

from __future__ import annotations

from ..privacy import epsilon
from .base import Study

WAYS = {  # name of the column -> how ε is counted
    "rdp": {"accountant": "rdp", "sampling": "poisson"},
    "prv": {"accountant": "prv", "sampling": "poisson"},
    "fixed-size": {"accountant": "rdp", "sampling": "fixed"},
}


def _settings(profile: str) -> dict:
    return {"rate": 0.1, "delta_dp": 1e-5, "sigmas": [6, 5, 4, 3, 2, 1], "rounds": [100, 60]}


def _cells(settings: dict) -> list[dict]:
    return [{"sigma": s, "rounds": t} for t in settings["rounds"] for s in settings["sigmas"]]


def _compute(settings: dict, cell: dict) -> dict:
    return {
        name: round(
            epsilon(cell["sigma"], settings["rate"], cell["rounds"], settings["delta_dp"], **way), 3
        )
        for name, way in WAYS.items()
    }


STUDY = Study(
    name="modelcloak-epsilon",
    about="ε of ModelCloak's Table III (client rate 0.1, δ = 1e-5), by three accountants",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
