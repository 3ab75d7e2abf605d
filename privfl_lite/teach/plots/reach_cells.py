"""The stored map of the chapter "How far does it reach?": its cells, levels and tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ... import metrics
from ...studies import STUDIES
from ...studies.reach.map import CONV, DENSE
from ..figures import COLORS
from ..tables import Spread

Cell = dict[str, Any]
EXACT = 48.0  # dB: the root mean square error is under one of 255 gray levels
CENTER = {"data": "mnist", "batch": 1, "steps": 1, "order": "whole", "age": 0}
SHADES = {  # what the best attacker has: color, and the color of words on it
    "exact": (COLORS["attack"], "black"),
    "recognizable": (COLORS["warm"], "black"),
    "some": ("#f6e3c0", "black"),
    "no better than chance": ("#d9e2ea", "black"),
}
SHORT = {"closed form": "lone units", "components": "components", "spear": "SPEAR"}


@cache
def result() -> dict[str, Any]:
    return STUDIES["reach/map"].show()


def cells(**where: Any) -> list[Cell]:
    """Cells with these settings; what is left out stands at the center."""
    at = {**CENTER, **where}
    return [c for c in result()["cells"] if at.items() <= c.items()]


def cells_of_whole_batches() -> list[Cell]:
    """Every cell of the map but those whose steps see a part of the batch."""
    return [c for c in result()["cells"] if c["order"] == CENTER["order"]]


def hits(cell: Cell, by: str = "pixels") -> tuple[list[int], list[int]]:
    """Images named, and images, for each network."""
    rows = cell["networks"]
    return [row[f"named_{by}"] for row in rows], [len(row["psnr"]) for row in rows]


def named(cell: Cell, by: str = "pixels") -> Spread:
    """The share that is named among 100, with its interval over networks."""
    found, counts = hits(cell, by)
    return Spread(sum(found) / sum(counts), *metrics.clustered(found, counts))


def exact(cell: Cell) -> float:
    """The share of images that are found to under one gray level."""
    scores = [v for row in cell["networks"] for v in row["psnr"]]
    return sum(v >= EXACT for v in scores) / len(scores)


def median(cell: Cell) -> float:
    scores = sorted(v for row in cell["networks"] for v in row["psnr"])
    return scores[len(scores) // 2]


def best(contrast: bool = False, **where: Any) -> Cell | None:
    """The attacker of a place that has most exact images, then most names; None if none was run.

    ``contrast``: count the server that changes the model as well. The choice is made by the truth,
    so it is an upper edge of what these attackers have, not an attack.
    """
    some = [c for c in cells(**where) if "networks" in c and (contrast or c["attack"] != "imprint")]
    return max(some, key=lambda c: (exact(c) >= 0.5, named(c).value, exact(c)), default=None)


def level(cell: Cell) -> str:
    """How much an attacker has: one of the keys of ``SHADES``."""
    share = named(cell)
    if exact(cell) >= 0.5:
        return "exact"
    if share.value >= 0.5:
        return "recognizable"
    return "some" if share.low > 1 / result()["settings"]["gallery"] else "no better than chance"


def row(cell: Cell) -> dict[str, Any]:
    """What a table says of one attacker at one place."""
    return {
        "named by pixels": named(cell),
        "by features": named(cell, "features").value,
        "exact": exact(cell),
        "median PSNR": median(cell),
    }


UNITS = {"named by pixels": "of 1", "by features": "of 1", "exact": "share", "median PSNR": "dB"}
LOOKS = {"named by pixels": ".2f", "by features": ".2f", "exact": ".2f", "median PSNR": ".0f"}


def spear_rows() -> list[dict[str, Any]]:
    """SPEAR by data, batch and type of numbers: medians over the runs."""

    def middle(values: list[float]) -> float:
        return sorted(values)[len(values) // 2]

    found = []
    for c in STUDIES["reach/spear"].show()["cells"]:
        if not c["sigma"]:
            runs = c["runs"]
            whole = sum(r["exact"] == c["batch"] for r in runs)
            found.append({"images": c["data"], "batch": c["batch"], "bits": c["bits"]})
            found[-1] |= {"whole batch exact": f"{whole} of {len(runs)}"}
            found[-1] |= {"seconds": middle([r["cpu_seconds"] for r in runs])}
            found[-1] |= {"proposals": middle([r["proposals"] for r in runs])}
            found[-1] |= {"expected": middle([r["theory"] for r in runs])}
    return found


def noise_rows() -> list[dict[str, Any]]:
    """SPEAR on a batch with Gaussian noise on the upload, by its standard deviation."""
    found = []
    for c in STUDIES["reach/spear"].show()["cells"]:
        if c["sigma"]:
            runs = c["runs"]
            whole = sum(r["exact"] == c["batch"] for r in runs)
            found.append({"σ": f"{c['sigma']:.0e}", "whole batch exact": f"{whole} of {len(runs)}"})
            found[-1]["images exact"] = sum(r["exact"] for r in runs) / len(runs) / c["batch"]
            found[-1]["it says so itself"] = f"{sum(r['sure'] for r in runs)} of {len(runs)}"
    return found


def network_rows(nets: Sequence[str], ages: Sequence[int]) -> list[dict[str, Any]]:
    """One image, one step: every attacker who changes nothing, at each age of each network."""
    return [
        {"network": net, "rounds": age, "attack": short(cell)} | row(cell)
        for net in nets
        for age in ages
        for cell in cells(net=net, age=age)
        if "networks" in cell and cell["attack"] != "imprint"
    ]


def color_rows(batches: Sequence[int], score: str = "named") -> list[dict[str, Any]]:
    """CIFAR-10, one step, untrained: a line for each network and attack, a column for each batch.

    ``score``: the share "named" among 100 by pixels, or the share that is "exact"."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for batch in batches:
        for cell in (c for c in cells(data="cifar10", batch=batch) if "networks" in c):
            line = lines.setdefault((cell["net"], cell["attack"]), {"network": cell["net"]})
            line["attack"] = short(cell)
            line[head(batch)] = named(cell) if score == "named" else exact(cell)
    return list(lines.values())


def head(batch: int) -> str:
    """A column of ``color_rows``."""
    return f"{batch} image{'s' * (batch > 1)}"


def refusals() -> dict[str, list[str]]:
    """Sentence of an attack -> the networks at which it was said."""
    said: dict[str, list[str]] = {}
    for c in result()["cells"]:
        if "refused" in c:
            nets = said.setdefault(f"{c['attack']}: {c['refused']}", [])
            nets += [] if c["net"] in nets else [c["net"]]
    return said


CLAIMS: dict[str, tuple[str, str]] = {  # claim -> attack and network that it was made with
    "a row is the picture (lone units, dense)": ("closed form", DENSE),
    "SPEAR reads whole batches (dense)": ("spear", DENSE),
    "components unmix batches (dense)": ("components", DENSE),
    "L-BFGS finds the digit (dense)": ("L-BFGS", DENSE),
    "L-BFGS finds the digit (dense, sigmoid)": ("L-BFGS", "MLP sigmoid"),
    "the recursion is exact (LeNet)": ("recursive", CONV),
    "L-BFGS finds the digit (LeNet)": ("L-BFGS", CONV),
    "GS finds the digit (LeNet)": ("GS", CONV),
    "Imprint reads batches (LeNet)": ("imprint", CONV),
}
MOVES: dict[str, dict[str, Any]] = {
    "1 image": {}, "batch 4": {"batch": 4}, "batch 8": {"batch": 8}, "batch 32": {"batch": 32},
    "20 steps": {"steps": 20}, "20 rounds": {"age": 20}, "100 rounds": {"age": 100},
    "batch 4, 20 rounds": {"batch": 4, "age": 20},
}  # fmt: skip


def claims() -> list[dict[str, Any]]:
    """Each claim along the axes: the share named among 100, by pixels."""
    found: list[dict[str, Any]] = []
    for claim, (attack, net) in CLAIMS.items():
        found.append({"claim": claim})
        for name, where in MOVES.items():
            some = [c for c in cells(net=net, **where) if c["attack"] == attack]
            some = [c for c in some if "networks" in c]
            found[-1][name] = named(some[0]).value if some else None
    return found


def short(cell: Cell) -> str:
    """An attacker's name on a figure."""
    return SHORT.get(cell["attack"]) or str(cell["attack"])
