"""One round of federated learning, and who listens (federated-learning)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ...data import load
from ..figures import COLORS, show_image
from .kit import arrow, box, paper, write

PICTURES = 3  # shown of each client


def draw() -> Figure:
    """Three clients with their digits, the server, what goes down, what comes up, three ears."""
    fig, ax = paper(12, 8.7)
    box(ax, 3.2, 6.5, 5.6, 1.7, "", fill="server")
    write(ax, 6, 7.75, "server", weight="bold")
    write(ax, 6, 7.0, "adds the average Δ to θ")
    clients = load("mnist").clients(3, "iid", per_client=PICTURES, seed=0)
    for k, x in enumerate((0.3, 4.3, 8.3)):
        _client(ax, x, k, clients[k][0])
        middle = 6.0 + 1.5 * (k - 1)
        arrow(ax, (middle - 0.35, 6.4), (x + 1.35, 3.6), color=COLORS["defense"])
        arrow(ax, (x + 2.05, 3.6), (middle + 0.35, 6.4), color=COLORS["attack"])
    write(ax, 1.5, 5.3, "down:\nthe weights θ", COLORS["defense"])
    write(ax, 10.5, 5.3, "up:\nonly the\nchange Δ", COLORS["attack"])
    for number, at in (("1", (3.2, 8.2)), ("2", (6.35, 5.0)), ("3", (11.7, 3.5))):
        _listener(ax, number, at)
    write(ax, 6, 0.3, "1 the server     2 on the line     3 another client", COLORS["attack"])
    return fig


def _client(ax: Axes, x: float, k: int, pictures: Tensor) -> None:
    box(ax, x, 0.8, 3.4, 2.7, "", fill="client")
    write(ax, x + 1.7, 3.05, f"client {k + 1}", weight="bold")
    for i, picture in enumerate(pictures):
        small = ax.inset_axes((x + 0.2 + 1.04 * i, 1.5, 0.94, 0.94), transform=ax.transData)
        show_image(small, picture)
    write(ax, x + 1.7, 1.15, "pictures stay here")


def _listener(ax: Axes, number: str, at: tuple[float, float]) -> None:
    ax.plot(*at, "o", ms=17, color=COLORS["attack"], mec="white", mew=1.5, zorder=5)
    write(ax, *at, number, "white", weight="bold", zorder=6)
