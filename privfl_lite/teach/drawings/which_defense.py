"""Which defense: who attacks, what can be proved, how many are in a sum."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, box, paper, write


def draw() -> Figure:
    """Three questions downward; to the right of each, where a "no" leads."""
    fig, ax = paper(12, 13.4)
    _ask(ax, 11.1, "Must it hold against\nattacks of tomorrow?")
    _ask(ax, 7.6, "Do you trust the server\nwith each update?")
    _ask(ax, 4.1, "Are there many in\nevery round?")
    _end(ax, 11.1, "no promise:\nmeasure, and\nsay so")
    _end(ax, 7.6, "noise at the\nserver: ε against\noutsiders")
    _end(ax, 4.1, "noise at each\nclient: it costs\nmost accuracy")
    box(ax, 0.4, 0.4, 6.2, 2.1, "secure sum, and a\nshare of the noise each", "client")
    for y, word in ((11.1, "no"), (7.6, "yes"), (4.1, "no")):
        arrow(ax, (6.6, y + 1.05), (7.7, y + 1.05), word, COLORS["attack"])
    for y, word in ((11.1, "yes"), (7.6, "no"), (4.1, "yes")):
        arrow(ax, (3.5, y), (3.5, y - 1.4), "", COLORS["defense"])
        write(ax, 4.3, y - 0.7, word, COLORS["defense"])
    return fig


def _ask(ax: Axes, y: float, words: str) -> None:
    box(ax, 0.4, y, 6.2, 2.1, words, "stone")


def _end(ax: Axes, y: float, words: str) -> None:
    box(ax, 7.7, y, 4.1, 2.1, words, "server")
