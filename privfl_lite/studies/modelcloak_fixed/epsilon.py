"""ModelCloak, Table III: the ε that its noise scales give, under several ways to count."""

from __future__ import annotations

from ...privacy import epsilon
from ..base import Study

WAYS = {  # column -> (σ given to the accountant, as a multiple of the paper's; how it counts)
    "rdp": (1.0, {"accountant": "rdp", "sampling": "poisson"}),
    "prv": (1.0, {"accountant": "prv", "sampling": "poisson"}),
    # fixed-size sampling exchanges one client for another, which moves the sum by up to 2C, so
    # noise σC is only σ/2 of that sensitivity
    "fixed-size": (0.5, {"accountant": "rdp", "sampling": "fixed"}),
}


def _settings(profile: str) -> dict:
    return {"rate": 0.1, "delta_dp": 1e-5, "sigmas": [6, 5, 4, 3, 2, 1], "rounds": [100, 60]}


def _cells(settings: dict) -> list[dict]:
    return [{"sigma": s, "rounds": t} for t in settings["rounds"] for s in settings["sigmas"]]


def _compute(settings: dict, cell: dict) -> dict:
    rate, delta_dp = settings["rate"], settings["delta_dp"]
    return {
        name: round(epsilon(factor * cell["sigma"], rate, cell["rounds"], delta_dp, **way), 3)
        for name, (factor, way) in WAYS.items()
    }


STUDY = Study(
    name="modelcloak-fixed/epsilon",
    about="ε of ModelCloak's Table III, by RDP and PRV (Poisson sampling) and fixed-size RDP",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
