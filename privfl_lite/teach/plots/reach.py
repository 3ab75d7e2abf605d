"""Figures and tables of the chapter "How far does it reach?", from the stored map."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ... import metrics
from ...data import load
from ...pictures import unpack
from ...runtime import PrivflError
from ...studies import STUDIES
from ...studies.reach.map import CONV, DENSE, private
from ..figures import COLORS, show_image
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


def grid(ax: Axes, net: str, across: str, along: str, title: str) -> None:
    """The share named at each pair of two axes of the map, in the shade of its level."""
    plural = {"batch": "batches", "age": "ages", "steps": "steps"}
    settings = result()["settings"]
    xs, ys = settings[plural[across]], settings[plural[along]]
    for i, x in enumerate(xs):
        for j, y in enumerate(ys):
            cell = best(net=net, **{across: x, along: y})
            if cell is not None:
                ink, word = SHADES[level(cell)]
                ax.add_patch(Rectangle((i, j), 0.94, 0.9, fc=ink))
                text = f"{100 * named(cell).value:.0f}"
                ax.text(i + 0.47, j + 0.45, text, ha="center", va="center", color=word, fontsize=10)
    ax.set(xlim=(0, len(xs)), ylim=(0, len(ys)))
    ax.set_xticks([i + 0.47 for i in range(len(xs))], xs)
    ax.set_yticks([j + 0.45 for j in range(len(ys))], ys)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.grid(False)
    ax.set_title(title, fontsize=11, loc="left")


def key(fig: Figure) -> None:
    """The four levels, under a figure."""
    handles = [Patch(fc=ink, label=name) for name, (ink, _) in SHADES.items()]
    fig.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=10)


def hook() -> Figure:
    """The map: batch against age, behind a dense network and behind convolutions."""
    fig, axes = plt.subplots(2, 1, figsize=(4.8, 5.4))
    grid(axes[0], DENSE, "batch", "age", "a dense layer with ReLU comes first")
    grid(axes[1], CONV, "batch", "age", "three convolutions with sigmoid")
    for ax in axes:
        ax.set_ylabel("rounds of training")
    axes[1].set_xlabel("images in the batch")
    key(fig)
    return fig


def steps_map() -> Figure:
    """Batch against local steps, behind the dense network."""
    fig, ax = plt.subplots(figsize=(4.8, 2.6))
    grid(ax, DENSE, "batch", "steps", "untrained, dense, ReLU")
    ax.set(xlabel="images in the batch", ylabel="local steps")
    key(fig)
    return fig


def by_batch(net: str, age: int = 0, steps: int = 1) -> Figure:
    """The share that each attacker names, against the batch, with intervals and chance."""
    sizes = result()["settings"]["batches"]
    fig, ax = plt.subplots(figsize=(4.8, 3.4))
    marks = iter("os^Dv")
    for attack in ("spear", "components", "closed form", "recursive", "L-BFGS", "GS", "imprint"):
        some = [(b, c) for b in sizes for c in cells(net=net, batch=b, age=age, steps=steps)]
        some = [(b, c) for b, c in some if c["attack"] == attack and "networks" in c]
        if not some:
            continue
        ends = [named(c) for _, c in some]
        error = [[e.value - e.low for e in ends], [e.high - e.value for e in ends]]
        look = {"fmt": next(marks) + "-", "capsize": 3, "ms": 5, "lw": 1.4}
        at = [sizes.index(b) for b, _ in some]
        ax.errorbar(at, [e.value for e in ends], error, label=SHORT.get(attack, attack), **look)
    ax.axhline(1 / result()["settings"]["gallery"], color="black", ls=":", lw=1)
    ax.text(0, 0.03, "chance", fontsize=10)
    ax.set_xticks(range(len(sizes)), sizes)
    ax.set(xlabel="images in the batch", ylabel="named among 100", ylim=(-0.02, 1.05))
    ax.legend(fontsize=10, loc="lower left", bbox_to_anchor=(0, 0.1))
    return fig


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


# --- the panel: a walk away from a center ---

WALKS: dict[str, dict[str, Any]] = {
    "none: untrained, one step": {},
    **{f"{age} rounds of training": {"age": age} for age in (1, 5, 20, 100)},
    **{f"{steps} local steps": {"steps": steps} for steps in (4, 20)},
    "4 steps, order unknown": {"steps": 4, "order": "drawn"},
}


def at(network: str, batch: int, move: str) -> list[Cell]:
    """The cells of a point of the panel, best attacker first; one sentence if there are none."""
    found = [c for c in cells(net=network, batch=batch, **WALKS[move]) if "networks" in c]
    if not found:
        raise PrivflError("This place was not measured; the grid has main effects and some pairs.")
    return sorted(found, key=lambda c: (-named(c).value, -exact(c)))


def truth(cell: Cell) -> torch.Tensor:
    """The private image of which a cell stores what was found: the first, of the first network."""
    return private(result()["settings"], cell, 0, load(cell["data"]))[0][0]


def walk(network: str, batch: int, move: str) -> Figure:
    """The first private image, what each attacker made of it, and the share each has named."""
    found = at(network, batch, move)[:4]
    fig, axes = plt.subplots(2, 5, figsize=(5.0, 2.7), height_ratios=(3, 2))
    show_image(axes[0, 0], truth(found[0]).mean(0, keepdim=True), "private")
    axes[1, 0].set_axis_off()
    for ax, below, cell in zip(axes[0, 1:], axes[1, 1:], found, strict=False):
        show_image(ax, unpack(cell["networks"][0]["picture"]), _short(cell), COLORS["attack"])
        bar(below, cell)
    for ax in axes[:, len(found) + 1 :].flat:
        ax.set_axis_off()
    axes[1, 1].set_ylabel("named", fontsize=10)
    return fig


def bar(ax: Axes, cell: Cell) -> None:
    """The share named, with its interval, over chance."""
    share, ink = named(cell), SHADES[level(cell)][0]
    ax.bar([0], [share.value], color=ink, width=0.8)
    ax.plot([0, 0], [share.low, share.high], color="black", lw=1.4)
    ax.axhline(1 / result()["settings"]["gallery"], color="black", ls=":", lw=1)
    ax.set(xlim=(-0.8, 0.8), ylim=(0, 1), xticks=[], yticks=[0, 1])
    ax.set_xlabel(f"{100 * share.value:.0f} %", fontsize=10)
    ax.grid(False)


def _short(cell: Cell) -> str:
    return SHORT.get(cell["attack"], cell["attack"])


def words(network: str, batch: int, move: str) -> str:
    """What a frame of the panel shows."""
    parts = [
        f"{_short(c)} names {100 * named(c).value:.0f} % and has {100 * exact(c):.0f} % exactly"
        for c in at(network, batch, move)[:4]
    ]
    return f"{network}, batch {batch}, {move}: {'; '.join(parts)}."


# --- zeros of proposals ---


def zeros(counts: torch.Tensor, mixed: torch.Tensor) -> Figure:
    """How many zeros each proposal has, by how many images its direction mixes."""
    inks = plt.get_cmap("viridis")
    fig, ax = plt.subplots(figsize=(4.8, 3.0))
    most = int(mixed.max())
    for many in range(most, 0, -1):
        values = counts[mixed == many].tolist()
        ink = COLORS["attack"] if many == 1 else inks(0.15 + 0.75 * (many - 2) / max(1, most - 2))
        bins = range(0, int(counts.max()) + 4, 3)
        ax.hist(values, bins=bins, color=ink, label="one" if many == 1 else f"{many}")
    ax.set(xlabel="zeros: units on the flat", ylabel="proposals", yscale="log")
    ax.legend(title="pictures mixed", fontsize=10, ncols=2)
    return fig


def proposals() -> Figure:
    """SPEAR's proposals against the theorem: twenty runs a batch size, 32-bit digits."""
    rows = [
        c for c in STUDIES["reach/spear"].show()["cells"]
        if c["data"] == "mnist" and c["bits"] == 32 and not c["sigma"]
    ]  # fmt: skip
    fig, ax = plt.subplots(figsize=(4.8, 3.2))
    for c in rows:
        runs = c["runs"]
        look = {"color": COLORS["attack"], "ms": 4, "alpha": 0.6}
        ax.plot([c["batch"]] * len(runs), [r["proposals"] for r in runs], "o", **look)
    mean = [sum(r["theory"] for r in c["runs"]) / len(c["runs"]) for c in rows]
    ax.plot([c["batch"] for c in rows], mean, "-", color="black", label="expected")
    ax.axhline(4096, color="gray", ls=":", lw=1)
    ax.text(2, 4700, "one chunk of the search", fontsize=10, color="dimgray")
    ax.set(yscale="log", xlabel="images in the batch", ylabel="proposals")
    ax.plot([], [], "o", color=COLORS["attack"], label="used, each of 20 runs")
    ax.legend(fontsize=10, loc="lower right")
    return fig


# --- tables ---


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


def network_rows(nets: Sequence[str], ages: Sequence[int]) -> list[dict[str, Any]]:
    """One image, one step: the best attacker at each age of each network."""
    found = []
    for net in nets:
        for age in ages:
            if (cell := best(net=net, age=age)) is not None:
                accuracy = [row["accuracy"] for row in cell["networks"]]
                found.append({"network": net, "rounds": age, "best": _short(cell)})
                found[-1] |= {**row(cell), "accuracy": sum(accuracy) / len(accuracy)}
    return found


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
    found = []
    for claim, (attack, net) in CLAIMS.items():
        found.append({"claim": claim})
        for name, where in MOVES.items():
            some = [c for c in cells(net=net, **where) if c["attack"] == attack]
            some = [c for c in some if "networks" in c]
            found[-1][name] = named(some[0]).value if some else None
    return found
