"""Figures of the chapter "The red team", from its stored studies (``red_team_cells``)."""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ...pictures import unpack
from ...runtime import PrivflError
from ...studies.reach.map import private
from ...studies.red_team.targets import ALL, dataset
from ..figures import COLORS, show_image
from .reach_cells import SHADES, Cell
from .red_team_cells import AGES, MOVES, SHORT, best, level, named, ran, result

MARKS = ("o-", "s--", "^:")


def rounds() -> Figure:
    """For each defense: the share that informed attackers name, along one training run."""
    fig, axes = plt.subplots(3, 3, figsize=(5.4, 5.6), sharex=True, sharey=True)
    for ax, defense in zip(axes.flat, ALL, strict=True):
        along(ax, defense)
    for ax in axes[-1]:
        ax.set_xticks(range(len(AGES)), AGES)
        ax.set_xlabel("round", fontsize=10)
    for ax in axes[:, 0]:
        ax.set_ylabel("named", fontsize=10)
    return fig


def along(ax: Axes, defense: str) -> None:
    """The lines of one defense, one for each of its attackers."""
    lines: dict[str, list] = {}
    for i, age in enumerate(AGES):
        for cell in ran(defense, age=age):
            lines.setdefault(cell["attack"], []).append((i, named(cell)))
    inks = (COLORS["attack"], COLORS["defense"], COLORS["good"])
    for points, mark, ink in zip(lines.values(), MARKS, inks, strict=False):
        at, ends = zip(*points, strict=True)
        error = [[max(0, e.value - e.low) for e in ends], [max(0, e.high - e.value) for e in ends]]
        ax.errorbar(
            at, [e.value for e in ends], error, fmt=mark, color=ink, capsize=2, ms=4, lw=1.3
        )
    ax.axhline(1 / result("age")["settings"]["gallery"], color="black", ls=":", lw=1)
    ax.set(ylim=(-0.04, 1.08), xlim=(-0.3, len(AGES) - 0.7), yticks=[0, 0.5, 1])
    ax.set_title(SHORT.get(defense, defense), fontsize=10)
    ax.tick_params(labelsize=9)


def axes_map() -> Figure:
    """Defense against move: the best attacker's share, in the shade of its level."""
    moves = list(MOVES)
    fig, ax = plt.subplots(figsize=(5.2, 4.6))
    for j, defense in enumerate(reversed(ALL)):
        for i, move in enumerate(moves):
            cell = best(defense, **MOVES[move])
            if cell is None:
                continue
            ink, word = SHADES[level(cell)]
            ax.add_patch(Rectangle((i, j), 0.94, 0.9, fc=ink))
            text = f"{100 * named(cell).value:.0f}"
            ax.text(i + 0.47, j + 0.45, text, ha="center", va="center", color=word, fontsize=9)
    ax.set(xlim=(0, len(moves)), ylim=(0, len(ALL)))
    ax.set_xticks([i + 0.47 for i in range(len(moves))], moves, rotation=60, ha="right")
    ax.set_yticks([j + 0.45 for j in range(len(ALL))], [SHORT.get(d, d) for d in reversed(ALL)])
    ax.tick_params(length=0, labelsize=9)
    ax.spines[:].set_visible(False)
    ax.grid(False)
    handles = [Patch(fc=ink, label=name) for name, (ink, _) in SHADES.items()]
    fig.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9)
    return fig


# --- the panel: defense and move ---


def at(defense: str, move: str) -> list[Cell]:
    """The attackers that ran there, best first; one sentence if none did."""
    found = ran(defense, **MOVES[move])
    if not found:
        raise PrivflError("Nobody attacked here: it was not measured, or all attackers refuse.")
    return sorted(found, key=lambda c: -named(c).value)[:3]


def truth(cell: Cell) -> torch.Tensor:
    """The private image of which a cell stores what was found: the first, of the first network."""
    settings = result()["settings"]
    alone = {**settings, "images": len(cell["networks"][0]["psnr"])}
    place = {"attack": "", "batch": cell["batch"]}
    return private(alone, place, 0, dataset(cell["data"]))[0][0]


def frame(defense: str, move: str) -> Figure:
    """The first private image, what each attacker made of it, and the share each has named."""
    found = at(defense, move)
    fig, axes = plt.subplots(2, 4, figsize=(4.6, 2.6), height_ratios=(3, 2))
    show_image(axes[0, 0], truth(found[0]).mean(0, keepdim=True), "private")
    axes[1, 0].set_axis_off()
    for ax, below, cell in zip(axes[0, 1:], axes[1, 1:], found, strict=False):
        show_image(ax, unpack(cell["networks"][0]["picture"]))
        ax.set_title(brief(cell), fontsize=9, color=COLORS["attack"])
        bar(below, cell)
    for ax in axes[:, len(found) + 1 :].flat:
        ax.set_axis_off()
    axes[1, 1].set_ylabel("named", fontsize=10)
    return fig


def brief(cell: Cell) -> str:
    """An attacker's name on two short lines."""
    return str(cell["attack"]).replace(", ", ",\n").replace(" for the ", " for\n")


def bar(ax: Axes, cell: Cell) -> None:
    """The share named, with its interval, over chance."""
    share, ink = named(cell), SHADES[level(cell)][0]
    ax.bar([0], [share.value], color=ink, width=0.8)
    ax.plot([0, 0], [share.low, share.high], color="black", lw=1.4)
    ax.axhline(1 / result()["settings"]["gallery"], color="black", ls=":", lw=1)
    ax.set(xlim=(-0.8, 0.8), ylim=(0, 1), xticks=[], yticks=[0, 1])
    ax.set_xlabel(f"{100 * share.value:.0f} %", fontsize=10)
    ax.grid(False)


def words(defense: str, move: str) -> str:
    """What a frame of the panel shows."""
    parts = [f"{c['attack']} names {100 * named(c).value:.0f} %" for c in at(defense, move)]
    return f"{SHORT.get(defense, defense)}, {move}: {'; '.join(parts)}."
