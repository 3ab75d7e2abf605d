"""The same client in one process, in a simulation and in a deployment (one-to-many)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, box, paper, write

PLACES = {  # name: what carries the letters, what may fail
    "one process": ("a function\ncall", "nothing\ncan be lost"),
    "a simulation": ("messages,\nworkers take turns", "a client\nmay refuse"),
    "a deployment": ("TLS, node keys,\none process each", "a node may\nbe gone"),
}
WIDTH = 4.7


def draw() -> Figure:
    """Three columns: the server, what carries letters, the client, which is the same in all."""
    fig, ax = paper(14.9, 10.4)
    for k, (name, (carrier, loss)) in enumerate(PLACES.items()):
        _place(ax, 0.2 + 4.9 * k, name, carrier, loss)
    ax.plot([0.2, 14.7], [0.55, 0.55], color=COLORS["good"], lw=3)
    write(ax, 7.45, 0.2, "the same task.py, the same bits to rounding", COLORS["good"])
    return fig


def _place(ax: Axes, x: float, name: str, carrier: str, loss: str) -> None:
    middle = x + WIDTH / 2
    write(ax, middle, 9.9, name, weight="bold")
    box(ax, x + 0.5, 7.6, WIDTH - 1.0, 1.7, "server\naverages, listens", fill="server")
    box(ax, x + 0.5, 0.9, WIDTH - 1.0, 1.7, "client\ntrains, defends", fill="client")
    arrow(ax, (middle - 1.7, 7.5), (middle - 1.7, 2.7), color=COLORS["defense"])
    arrow(ax, (middle + 1.7, 2.7), (middle + 1.7, 7.5), color=COLORS["attack"])
    write(ax, middle, 6.0, carrier, fontsize=9)
    write(ax, middle, 4.2, loss, COLORS["attack"], fontsize=9)
