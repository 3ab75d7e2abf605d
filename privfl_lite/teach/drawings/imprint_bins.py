"""The imprint block as a staircase: three images, four edges, and what each row holds.

The numbers are those of the example by hand (malicious-server, ex-imprint-hand).
"""

from __future__ import annotations

from itertools import pairwise

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..figures import COLORS
from .kit import INK, PAPERS, paper, write

EDGES = (0.1, 0.4, 0.6, 0.8)
MEANS = {"$x_1$": 0.3, "$x_2$": 0.5, "$x_3$": 0.9}
LEFT, WIDE = 1.0, 9.6  # where mean pixel 0 stands, and how long 0 to 1 is


def _at(mean: float) -> float:
    return LEFT + WIDE * mean


def draw() -> Figure:
    """Above, bins on the axis of brightness; below, which images each row of the gradient sums."""
    fig, ax = paper(14, 10.4)
    write(ax, 5.9, 10.0, "brightness of an image (mean pixel)")
    ends = (*EDGES, 1.0)
    for i, (low, high) in enumerate(pairwise(ends)):
        fill = PAPERS["client" if i % 2 else "stone"]
        width = _at(high) - _at(low)
        ax.add_patch(Rectangle((_at(low), 7.6), width, 1.3, fc=fill, ec=INK, lw=1.2))
        write(ax, _at(low), 9.3, f"{low:g}", fontsize=9)
        write(ax, (_at(low) + _at(high)) / 2, 7.2, f"bin {i + 1}", fontsize=9)
    for name, mean in MEANS.items():
        ax.plot(_at(mean), 8.25, "o", color=COLORS["attack"], ms=17)
        write(ax, _at(mean), 8.25, name, "white", fontsize=9.5)
    for i, edge in enumerate(EDGES):
        y = 5.9 - 1.25 * i
        bar = Rectangle((_at(edge), y - 0.4), _at(1) - _at(edge), 0.8, fc=PAPERS["client"], ec=INK)
        ax.add_patch(bar)
        write(ax, 0.9, y, f"row {i + 1}")
        inside = [name for name, mean in MEANS.items() if mean > edge]
        for name in inside:
            write(ax, _at(MEANS[name]), y, name)
        alone = [name for name in inside if i == 3 or MEANS[name] <= EDGES[i + 1]]
        write(ax, 12.5, y, alone[0] if alone else "empty", COLORS["attack"])
    write(ax, 12.5, 6.95, "row minus\nnext row", COLORS["attack"], fontsize=9)
    write(ax, 5.9, 0.6, "an image is in every row whose edge it exceeds", fontsize=9.5)
    return fig
