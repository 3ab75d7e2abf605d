"""What pruning keeps, and two ways to read a gap (cutting-gradients)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, numbers, paper, write

SIGNALS, PIXELS = (0.5, -0.2), (0.8, 0.2)  # those of the example by hand
SIZE = 1.25


def gradient() -> list[list[float]]:
    """Rows: one unit each; columns: two pixels, and the bias gradient."""
    return [[round(d * p, 4) for p in PIXELS] + [d] for d in SIGNALS]


def pruned() -> list[list[float]]:
    """The example at rate 0.5: half of the weights' entries and half of the bias' are left."""
    keep = ((1, 0, 1), (1, 0, 0))
    pairs = zip(gradient(), keep, strict=True)
    return [[v * k for v, k in zip(row, kept, strict=True)] for row, kept in pairs]


def _matrix(ax: Axes, x: float, y: float, values: list[list[float]], gap: str) -> None:
    """A matrix whose zeros are written as ``gap``."""
    numbers(ax, x, y, values, SIZE, text=False)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            words = f"{value:g}".replace("-", "−") if value else gap
            ink = COLORS["attack"] if gap == "?" and not value else "black"
            write(ax, x + SIZE * (j + 0.5), y - SIZE * (i + 0.5), words, ink)


def draw() -> Figure:
    """The gradient, what is sent, and below it the two readings."""
    fig, ax = paper(12.4, 10)
    _matrix(ax, 0.7, 8.6, gradient(), "0")
    write(ax, 2.6, 9.3, "the gradient")
    write(ax, 2.6, 5.6, "∇W for two pixels,  ∇b")
    arrow(ax, (4.8, 7.35), (7.4, 7.35), "prune")
    _matrix(ax, 7.8, 8.6, pruned(), "")
    write(ax, 9.7, 9.3, "what is sent")
    arrow(ax, (8.4, 5.9), (4.4, 4.7), color=COLORS["defense"])
    arrow(ax, (9.7, 5.9), (9.7, 4.7), color=COLORS["attack"])
    _matrix(ax, 0.7, 3.55, pruned(), "0")
    write(ax, 2.6, 4.15, "at face value", COLORS["defense"])
    write(ax, 2.6, 0.45, "six equations,\nthree of them false")
    _matrix(ax, 7.8, 3.55, pruned(), "?")
    write(ax, 9.7, 4.15, "informed", COLORS["attack"])
    write(ax, 9.7, 0.45, "three equations,\nall true")
    return fig
