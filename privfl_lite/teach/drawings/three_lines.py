"""Three images are corners, rows of the gradient lie on the sides (chapter: reach)."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from ..figures import COLORS
from .kit import INK, paper, write

IMAGES = {"1": (0.2, 0.2), "2": (0.8, 0.2), "3": (0.2, 0.8)}
ROWS = {  # which image a unit is off for -> the quotients of three such units
    "1": ((1.1, -0.1), (0.65, 0.35), (0.95, 0.05)),
    "2": ((0.2, 0.6), (0.2, 0.4), (0.2, 0.7)),
    "3": ((0.7, 0.2), (0.65, 0.2), (0.4, 0.2)),
}
ALL = (0.4, 0.4)  # a unit that is on for all three
INKS = {"1": COLORS["defense"], "2": COLORS["good"], "3": COLORS["accent"]}


def _place(point: tuple[float, float]) -> tuple[float, float]:
    """Pixels to paper."""
    return 1.0 + 7.2 * point[0], 1.7 + 7.2 * point[1]


def draw() -> Figure:
    """Ten row quotients in the plane of two pixels; three lines hold three of them each."""
    fig, ax = paper(12, 9.6)
    low, high = _place((0, 0)), _place((1, 1))
    size = (high[0] - low[0], high[1] - low[1])
    ax.add_patch(Rectangle(low, *size, fc="#f2f5f7", ec="#c9d3db", lw=0.8))
    ends = {"1": ((1.15, -0.15), (0.1, 0.9)), "2": ((0.2, 0.05), (0.2, 0.95))}
    ends |= {"3": ((0.05, 0.2), (0.95, 0.2))}
    for off, (start, end) in ends.items():
        a, b = _place(start), _place(end)
        ax.plot(*zip(a, b, strict=True), color=INKS[off], lw=1.2, zorder=2)
    for off, points in ROWS.items():
        for point in points:
            ax.add_patch(Circle(_place(point), 0.13, fc=INKS[off], ec="white", lw=0.6, zorder=4))
    ax.add_patch(Circle(_place(ALL), 0.13, fc=INK, ec="white", lw=0.6, zorder=4))
    for name, point in IMAGES.items():
        x, y = _place(point)
        ax.add_patch(Circle((x, y), 0.3, fc="white", ec=COLORS["attack"], lw=2, zorder=5))
        write(ax, x, y, name, COLORS["attack"], weight="bold", zorder=6)
    write(ax, 4.6, 0.45, "first pixel", fontsize=10)
    write(ax, 0.4, 5.3, "second pixel", rotation=90, fontsize=10)
    write(ax, 8.9, 6.2, "units that are off\nfor 1: on this line", INKS["1"], fontsize=9)
    write(ax, 3.7, 7.9, "off for 2", INKS["2"], fontsize=9)
    write(ax, 6.0, 2.6, "off for 3", INKS["3"], fontsize=9)
    write(ax, 5.4, 4.75, "on for all", fontsize=9)
    return fig
