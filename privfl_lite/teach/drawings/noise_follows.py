"""Noise that is fixed and noise that follows, over the rounds (modelcloak-dynamic)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from ..figures import COLORS
from .kit import INK, arrow, paper, write

LENGTHS = (1.5, 0.9, 0.4)  # of the update, as training goes on
RING = 1.15  # of the noise, where it is fixed


def draw() -> Figure:
    """Three rounds: above, rings of one size; below, rings that tell the length of the arrow."""
    fig, ax = paper(12, 11)
    for i, words in enumerate(("early", "later", "late")):
        write(ax, 2.0 + 4 * i, 10.6, words)
    for i, length in enumerate(LENGTHS):
        _upload(ax, 1.6 + 4 * i, 8.3, length, RING, COLORS["defense"])
        _upload(ax, 1.6 + 4 * i, 3.1, length, RING * length / LENGTHS[0], COLORS["attack"])
    write(ax, 6.0, 6.3, "fixed: the ring is the same for everyone.", COLORS["defense"])
    write(ax, 6.0, 5.7, "The arrow sinks into it.", COLORS["defense"])
    write(ax, 6.0, 1.1, "follows: the ring is as private as the arrow.", COLORS["attack"])
    write(ax, 6.0, 0.5, "Measure the ring, and you have its length.", COLORS["attack"])
    return fig


def _upload(ax: Axes, x: float, y: float, length: float, ring: float, ink: str) -> None:
    """An update and, around its end, the size of the noise."""
    ax.add_patch(Circle((x + length * 0.8, y + length * 0.6), ring, fc=ink, alpha=0.15))
    ax.add_patch(Circle((x + length * 0.8, y + length * 0.6), ring, fill=False, ec=ink, lw=1.6))
    arrow(ax, (x, y), (x + length * 0.8, y + length * 0.6), color=INK)
