"""Local and central noise: where it goes on, and what the server sees (what-epsilon-buys)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, box, paper, write

HERE = "+ noise σC"


def _side(ax: Axes, x: float, title: str, local: bool) -> None:
    """Three clients below, the server above, what it releases at the top."""
    write(ax, x + 3, 9.3, title, fontweight="bold")
    box(ax, x + 1.2, 5.6, 3.6, 1.5, "server\naverages", fill="server")
    arrow(ax, (x + 3, 7.2), (x + 3, 8.8), color=COLORS["defense"])
    for i in range(3):
        at = x + 0.1 + 2.0 * i
        box(ax, at, 0.9, 1.8, 1.3, "client", fill="client")
        arrow(ax, (at + 0.9, 2.3), (x + 2.2 + 0.8 * i, 5.5), color=COLORS["attack"])
    write(ax, x + 3, 0.4, f"clip to C, {HERE}" if local else "clip to C")
    write(ax, x + 4.9, 8.1, "noise σC/√K" if local else f"{HERE}/K", COLORS["defense"])
    seen = "the server sees\nnoisy uploads" if local else "the server sees\neverything"
    write(ax, x + 3, 3.7, seen, bbox={"fc": "white", "ec": "none", "pad": 1})


def draw() -> Figure:
    """Two rounds side by side, with noise on each upload and with noise on the average."""
    fig, ax = paper(13, 9.8)
    _side(ax, 0.1, "local", local=True)
    _side(ax, 6.8, "central", local=False)
    return fig
