"""Which unit is on for which picture, and which units are alone (why-gradients-leak)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from ..figures import COLORS
from .kit import INK, arrow, paper, write

Point = tuple[float, float]
PICTURES: dict[str, Point] = {"1": (1.4, 1.0), "2": (4.7, 3.9), "3": (5.2, 1.3)}
UNITS: dict[str, tuple[Point, Point, Point, str]] = {  # line from, to, toward "on"; on for
    "a": ((0.4, 3.3), (3.6, 0.3), (-0.42, -0.45), "1"),
    "b": ((6.6, 3.3), (0.4, 2.2), (-0.1, 0.6), "2"),
    "c": ((3.0, 4.9), (4.0, 0.3), (0.6, 0.13), "23"),
}


def draw() -> Figure:
    """Left: three pictures as points, three units as lines. Right: the table of who is on."""
    fig, ax = paper(12, 6.6)
    ax.add_patch(Rectangle((0.3, 0.2), 6.4, 4.8, fc="#f2f5f7", ec="#c9d3db", lw=0.8))
    write(
        ax, 3.5, 5.8, "a picture is a point, a unit is a line:\non where its arrow points, else off"
    )
    for name in UNITS:
        _line(ax, name)
    for name, at in PICTURES.items():
        ax.add_patch(Circle(at, 0.32, fc="white", ec=INK, lw=1.2, zorder=4))
        write(ax, *at, name, zorder=5)
    _table(ax)
    return fig


def _ink(name: str) -> str:
    """Lone units stand out."""
    return COLORS["attack"] if len(UNITS[name][3]) == 1 else INK


def _line(ax: Axes, name: str) -> None:
    start, end, toward, _ = UNITS[name]
    ax.plot(*zip(start, end, strict=True), color=_ink(name), lw=1.6)
    x, y = (start[i] + 0.22 * (end[i] - start[i]) for i in range(2))
    arrow(ax, (x, y), (x + toward[0], y + toward[1]), color=_ink(name))
    write(ax, x - 0.7 * toward[0], y - 0.7 * toward[1], name, _ink(name), weight="bold")


def _table(ax: Axes) -> None:
    write(ax, 9.6, 6.1, "who is on?")
    for j, picture in enumerate(PICTURES):
        write(ax, 8.6 + j, 5.4, picture)
    for i, (name, (*_, on)) in enumerate(UNITS.items()):
        y, lone = 4.55 - 1.6 * i, len(on) == 1
        write(ax, 7.7, y, name, _ink(name), weight="bold")
        for j, picture in enumerate(PICTURES):
            fill = (_ink(name), 0.7 if lone else 0.35) if picture in on else "white"
            ax.add_patch(Rectangle((8.2 + j, y - 0.4), 0.8, 0.8, fc=fill, ec=INK))
        words = f"its row is picture {on}" if lone else "its row is a mixture"
        write(ax, 9.6, y - 0.78, words, _ink(name), fontsize=9)
