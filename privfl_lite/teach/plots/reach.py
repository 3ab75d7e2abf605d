"""Figures of the chapter "How far does it reach?", from the stored map (``reach_cells``)."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ...data import load
from ...pictures import unpack
from ...runtime import PrivflError
from ...studies import STUDIES
from ...studies.reach.map import CONV, DENSE, private
from ..figures import COLORS, show_image
from .reach_cells import SHADES, SHORT, Cell, best, cells, exact, level, named, result, short


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
        look: dict[str, Any] = {"fmt": next(marks) + "-", "capsize": 3, "ms": 5, "lw": 1.4}
        at = [sizes.index(b) for b, _ in some]
        ax.errorbar(at, [e.value for e in ends], error, label=SHORT.get(attack, attack), **look)
    ax.axhline(1 / result()["settings"]["gallery"], color="black", ls=":", lw=1)
    ax.text(0, 0.03, "chance", fontsize=10)
    ax.set_xticks(range(len(sizes)), sizes)
    ax.set(xlabel="images in the batch", ylabel="named among 100", ylim=(-0.02, 1.05))
    ax.legend(fontsize=10, loc="lower left", bbox_to_anchor=(0, 0.1))
    return fig


# --- the panel: a walk away from a center ---

WALKS: dict[str, dict[str, Any]] = {
    "none: untrained, one step": {},
    **{f"{age} round{'s' * (age > 1)} of training": {"age": age} for age in (1, 5, 20, 100)},
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
        show_image(ax, unpack(cell["networks"][0]["picture"]), short(cell), COLORS["attack"])
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


def words(network: str, batch: int, move: str) -> str:
    """What a frame of the panel shows."""
    parts = [
        f"{short(c)} names {100 * named(c).value:.0f} % and has {100 * exact(c):.0f} % exactly"
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
        look: dict[str, Any] = {"color": COLORS["attack"], "ms": 4, "alpha": 0.6}
        ax.plot([c["batch"]] * len(runs), [r["proposals"] for r in runs], "o", **look)
    mean = [sum(r["theory"] for r in c["runs"]) / len(c["runs"]) for c in rows]
    ax.plot([c["batch"] for c in rows], mean, "-", color="black", label="expected")
    ax.axhline(4096, color="gray", ls=":", lw=1)
    ax.text(2, 4700, "one chunk of the search", fontsize=10, color="dimgray")
    ax.set(yscale="log", xlabel="images in the batch", ylabel="proposals")
    ax.plot([], [], "o", color=COLORS["attack"], label="used, each of 20 runs")
    ax.legend(fontsize=10, loc="lower right")
    return fig
