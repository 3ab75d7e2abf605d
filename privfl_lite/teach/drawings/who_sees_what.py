"""Who can be asked whether an image was in the training set (membership)."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, box, paper, write


def draw() -> Figure:
    """Clients, server and a user of the model; what each of the last two sees of the candidate."""
    fig, ax = paper(14, 10.2)
    box(ax, 0.3, 3.9, 3.4, 3.6, fill="client")
    write(ax, 2.0, 6.9, "client")
    box(ax, 0.7, 4.25, 2.6, 1.9, "members:\nprivate\nimages")
    box(ax, 6.1, 6.2, 4.0, 2.2, "server\naverages", fill="server")
    box(ax, 6.1, 1.6, 4.0, 2.2, "user of the\nfinished model", fill="stone")
    ink = COLORS["attack"]
    arrow(ax, (3.8, 6.2), (6.0, 7.3), color=ink)
    write(ax, 4.8, 7.5, "upload", ink)
    arrow(ax, (8.1, 6.1), (8.1, 3.9), color=COLORS["defense"])
    write(ax, 9.3, 5.0, "model", COLORS["defense"])
    write(ax, 12.1, 7.3, "compares the\ncandidate's own\ngradient with\nthe upload", ink)
    write(ax, 12.1, 2.7, "asks for a label,\na confidence,\na distance", COLORS["defense"])
    write(ax, 7.0, 9.5, "Was this image, which I already hold, among the members?")
    write(ax, 7.0, 0.6, "the same question, two witnesses", fontsize=9.5)
    return fig
