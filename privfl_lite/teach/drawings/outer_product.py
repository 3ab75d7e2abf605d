"""A layer's gradient for one picture: error signals times pixels (why-gradients-leak)."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, numbers, paper, write

PIXELS = (0.0, 0.2, 0.9, 1.0, 0.4, 0.1)
SIGNALS = (0.5, 0.0, -0.8, 0.2)
MARKED = 2


def draw() -> Figure:
    """A column of error signals, a row of pixels, and their products, one row of them framed."""
    fig, ax = paper(12, 7.4)
    size = 1.0
    left, top = 3.6, 5.2
    numbers(ax, left, top + 1.4, [PIXELS], size)
    write(ax, left + 3, top + 1.75, "the picture $a$, pixel by pixel", fontsize=10)
    numbers(ax, 1.6, top, [[s] for s in SIGNALS], size)
    write(ax, 2.1, top + 0.55, "error\nsignal $\\delta$")
    write(ax, 0.8, top - 1.5, "unit off", color="dimgray", fontsize=9)
    write(ax, 0.75, top - 2.5, "unit 3", fontsize=9)
    rows = [[round(s * p, 2) for p in PIXELS] for s in SIGNALS]
    numbers(ax, left, top, rows, size, marked=(MARKED,), text=False)
    arrow(ax, (left + 6.1, top - 2.5), (left + 7.0, top - 2.5), color=COLORS["attack"])
    write(ax, 11.4, top - 2.5, "$\\delta_3\\, a$", COLORS["attack"], fontsize=12)
    words = "$\\nabla W = \\delta\\, a^{\\top}$\nevery row is the picture, times one number"
    write(ax, left + 3, 0.65, words)
    return fig
