"""Going back through the layers, one at a time (through-the-layers)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, box, paper, write

LAYERS = ("$x$", "$f_1$", "$f_2$", "$z$")


def draw() -> Figure:
    """Above: the client computes, left to right. Below: the attacker returns, right to left."""
    fig, ax = paper(12, 8.4)
    write(ax, 6, 8.0, "the client computes, and keeps what is inside", COLORS["defense"])
    for k, name in enumerate(LAYERS):
        box(ax, 0.4 + 3.2 * k, 6.2, 1.6, 1.2, name, fill="client")
        if k:
            arrow(ax, (3.2 * k - 1.15, 6.8), (0.35 + 3.2 * k, 6.8), f"$W_{k}$", COLORS["defense"])
            box(ax, 3.2 * k - 1.4, 4.0, 1.8, 1.1, f"$\\nabla W_{k}$", fill="server")
            arrow(ax, (3.2 * k - 0.5, 6.0), (3.2 * k - 0.5, 5.2), color="dimgray")
    write(ax, 11.15, 4.55, "on the\nwire", "dimgray")
    for k, name in enumerate(LAYERS[:-1]):
        box(ax, 0.4 + 3.2 * k, 1.4, 1.6, 1.2, name)
        arrow(
            ax, (3.5 + 3.2 * k, 2.0), (2.1 + 3.2 * k, 2.0), f"$\\delta_{k + 1}$", COLORS["attack"]
        )
        arrow(ax, (2.7 + 3.2 * k, 3.9), (2.7 + 3.2 * k, 2.9), color="dimgray")
    _start(ax)
    write(ax, 6, 0.6, "the attacker returns: divide, multiply back, divide …", COLORS["attack"])
    return fig


def _start(ax: Axes) -> None:
    box(ax, 10.0, 1.4, 1.6, 1.2, "$p - e_y$")
