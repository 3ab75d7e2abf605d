"""One round of federated learning, and who listens (federated-learning)."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, box, paper, write


def draw() -> Figure:
    """Three clients with their data, the server, what goes down and what comes up."""
    fig, ax = paper(12, 9.2)
    box(ax, 3.2, 6.9, 5.6, 1.7, "server\naverages what arrives", fill="server")
    for i, x in enumerate((0.3, 4.3, 8.3)):
        box(ax, x, 0.4, 3.4, 2.6, "", fill="client")
        write(ax, x + 1.7, 2.45, f"client {i + 1}")
        box(ax, x + 0.5, 0.75, 2.4, 1.1, "private\nimages")
        middle = 6.0 + 1.5 * (i - 1)
        arrow(ax, (middle - 0.35, 6.8), (x + 1.35, 3.1), color=COLORS["defense"])
        arrow(ax, (x + 2.05, 3.1), (middle + 0.35, 6.8), color=COLORS["attack"])
    write(ax, 1.55, 5.3, "down:\nweights θ", COLORS["defense"])
    write(ax, 10.5, 5.3, "up:\ngradient or\nupdate", COLORS["attack"])
    return fig
