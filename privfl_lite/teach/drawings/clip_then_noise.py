"""Clip, sum, noise: what DP-SGD does to three gradients (noise-and-epsilon)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from ..figures import COLORS
from .kit import INK, arrow, paper, write

GRADIENTS = ((3.0, 4.0), (0.6, 0.0), (0.0, -2.0))  # those of the example by hand
UNIT = 0.85  # paper for a gradient of length one
INKS = (COLORS["attack"], COLORS["defense"], COLORS["good"])


def clipped(g: tuple[float, float], clip: float = 1.0) -> tuple[float, float]:
    """The gradient, shortened to the clip if it is longer."""
    factor = min(1.0, clip / (g[0] ** 2 + g[1] ** 2) ** 0.5)
    return g[0] * factor, g[1] * factor


def _vector(
    ax: Axes, at: tuple[float, float], g: tuple[float, float], ink: str
) -> tuple[float, float]:
    end = at[0] + UNIT * g[0], at[1] + UNIT * g[1]
    arrow(ax, at, end, color=ink)
    return end


def draw() -> Figure:
    """Left: three gradients, one too long. Middle: clipped. Right: their sum in a cloud."""
    fig, ax = paper(13, 7.4)
    for x, words in (
        (2.1, "three gradients"),
        (6.5, "1. clip to length C"),
        (10.7, "2. add noise"),
    ):
        write(ax, x, 7.0, words)
    left, middle, right = (1.4, 3.0), (6.5, 3.6), (10.2, 3.9)
    for g, ink in zip(GRADIENTS, INKS, strict=True):
        _vector(ax, left, g, ink)
        _vector(ax, middle, clipped(g), ink)
    for at in (left, middle):
        ax.add_patch(Circle(at, UNIT, fc="none", ec=INK, ls="--", lw=1))
    write(ax, middle[0] - 1.15, middle[1] + 0.5, "C")
    end = right
    for g, ink in zip(GRADIENTS, INKS, strict=True):
        end = _vector(ax, end, clipped(g), ink)
    for size in (1.5, 1.0, 0.5):
        ax.add_patch(Circle(end, size, fc=(COLORS["light"], 0.18), ec="none"))
    write(
        ax, 5.0, 0.6, "One record moves the sum by at most C,\nso a cloud of width σC can hide it."
    )
    write(ax, 10.9, 1.5, "the sum, somewhere\nin the cloud", color=COLORS["defense"])
    return fig
