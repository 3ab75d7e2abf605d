"""FedKL's lock: what the key does, what stays at home, and what the wire tells anyway (fedkl)."""

from __future__ import annotations

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..figures import COLORS
from .kit import arrow, box, paper, write

STEPS = (  # x, width, words
    (0.2, 1.7, "image\nx"),
    (2.5, 2.1, "convolve\nu"),
    (5.2, 2.2, "normalize\nû"),
    (8.0, 1.5, "γû + β\ns"),
    (10.1, 1.7, "layers\nbehind"),
)


def draw() -> Figure:
    """Above: the private lock. Middle: the network. Below: the wire, and what can be read there."""
    fig, ax = paper(12, 10.4)
    _home(ax)
    for x, width, words in STEPS:
        box(ax, x, 4.9, width, 1.5, words, fill="client")
    for (x, width, _), (after, _, _) in pairwise(STEPS):
        arrow(ax, (x + width, 5.65), (after, 5.65))
    _wire(ax)
    return fig


def _home(ax: Axes) -> None:
    """Key and lock, in a dashed frame that nothing leaves but γ and β, to the network."""
    ink = COLORS["defense"]
    ax.add_patch(Rectangle((0.2, 7.4), 9.5, 2.8, fill=False, ec=ink, ls="--", lw=1.5))
    write(ax, 0.5, 9.8, "never leaves the client", ink, ha="left", weight="bold")
    box(ax, 0.6, 7.7, 3.1, 1.5, "key k\n1024 numbers")
    box(ax, 4.5, 7.7, 4.9, 1.5, "lock\nγ = Vk + c, β likewise")
    arrow(ax, (3.7, 8.45), (4.5, 8.45))
    arrow(ax, (8.75, 7.7), (8.75, 6.4), color=ink)
    write(ax, 8.5, 6.9, "two numbers per channel", ink, ha="right", fontsize=9)


def _wire(ax: Axes) -> None:
    """Gradients of the convolution and of the layers behind; the second ones tell s."""
    ink = COLORS["attack"]
    box(ax, 0.2, 0.3, 11.6, 1.6, fill="server")
    write(ax, 0.5, 1.45, "server", ha="left", weight="bold")
    write(ax, 3.55, 1.1, "∇W", weight="bold")
    write(ax, 10.75, 1.1, "the rest", weight="bold")
    arrow(ax, (3.55, 4.9), (3.55, 1.5))
    arrow(ax, (10.95, 4.9), (10.95, 1.5))
    write(ax, 3.3, 3.2, "on the\nwire", ha="right", fontsize=9)
    arrow(ax, (9.8, 1.1), (8.75, 4.8), color=ink, bend=-0.25)
    write(ax, 7.9, 3.4, "tells s:\nmean β, spread |γ|", ink, ha="right")
    write(ax, 6.6, 0.95, "goes back through\nthe open layers", ink)
