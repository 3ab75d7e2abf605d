"""The pen of all drawings: paper in plain units, boxes, arrows, squares of numbers, braces.

Sizes: one unit of paper is 0.4 inches, so that paper 12 units wide fits a phone with letters of 10
points still readable. Inks are the book's (``figures.COLORS``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from ..figures import COLORS

INK = "#1f2a35"
PAPERS = {"client": "#e1edf5", "server": "#fbf1ee", "plain": "#ffffff", "stone": "#f2f5f7"}


def paper(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty sheet; x grows to the right, y upward, both from 0."""
    fig, ax = plt.subplots(figsize=(0.4 * width, 0.4 * height), layout="none")
    fig.subplots_adjust(0, 0, 1, 1)
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.set_axis_off()
    return fig, ax


def write(ax: Axes, x: float, y: float, words: str, color: str = INK, **options: Any) -> None:
    """Words around a point."""
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 10, "color": color}
    ax.text(x, y, words, **{**look, **options})


def box(
    ax: Axes, x: float, y: float, width: float, height: float, words: str = "", fill: str = "plain"
) -> None:
    """A room with rounded corners; (x, y) is its lower left one. ``fill``: a name of PAPERS."""
    ax.add_patch(
        FancyBboxPatch(
            (x, y), width, height, "round,pad=0,rounding_size=0.25", fc=PAPERS[fill], ec=INK, lw=1.2
        )
    )
    write(ax, x + width / 2, y + height / 2, words)


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    words: str = "",
    color: str = INK,
    bend: float = 0.0,
) -> None:
    """An arrow, its words above its middle; ``bend`` curves it."""
    look = {"arrowstyle": "-|>", "color": color, "lw": 1.6, "connectionstyle": f"arc3,rad={bend}"}
    ax.annotate("", end, start, arrowprops=look)
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.4
    write(ax, x, y, words, color)


def numbers(
    ax: Axes,
    x: float,
    y: float,
    values: Sequence[Sequence[float]],
    size: float = 1.0,
    marked: Sequence[int] = (),
    text: bool = True,
) -> None:
    """A matrix as squares, rows downward from (x, y), its upper left corner.

    Orange is positive, blue negative, the darker the larger; rows in ``marked`` get a frame.
    """
    most = max(abs(v) for row in values for v in row) or 1.0
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            ink = COLORS["attack" if value > 0 else "defense"]
            shade = (ink, 0.75 * abs(value) / most)
            corner = (x + size * j, y - size * (i + 1))
            ax.add_patch(Rectangle(corner, size, size, fc=shade, ec="#c9d3db", lw=0.6))
            if text:
                words = f"{value:g}".replace("-", "−")
                write(ax, corner[0] + size / 2, corner[1] + size / 2, words, fontsize=9)
        if i in marked:
            corner = (x, y - size * (i + 1))
            ax.add_patch(Rectangle(corner, size * len(row), size, fc="none", ec=INK, lw=2))
