"""Clip, then noise, and the two places where the noise can be (modelcloak-fixed)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from ..figures import COLORS
from .kit import INK, arrow, box, paper, write


def draw() -> Figure:
    """Above: two gradients, a circle of radius C, a cloud. Below: who adds the cloud."""
    fig, ax = paper(12, 12.6)
    _vectors(ax, 0.3, "1  clip to length C", cloud=False)
    _vectors(ax, 6.3, "2  add noise of size σC", cloud=True)
    _place(ax, 3.4, "noise at the client", "clip + noise", "mean", "noisy")
    _place(ax, 0.3, "noise at the server", "clip", "mean + noise", "bare")
    return fig


def _vectors(ax: Axes, x: float, title: str, cloud: bool) -> None:
    """A long gradient, cut at the circle, and a short one, which stays."""
    middle, y = x + 2.2, 8.6
    write(ax, x + 2.7, 12.2, title, weight="bold")
    if cloud:
        for size, depth in ((2.0, 0.12), (1.4, 0.14), (0.8, 0.16)):
            ax.add_patch(Circle((middle + 1.13, y + 1.13), size, fc=COLORS["defense"], alpha=depth))
    ax.add_patch(Circle((middle, y), 1.6, fill=False, ec=INK, ls="--"))
    write(ax, middle - 1.55, y - 1.55, "C")
    if not cloud:
        arrow(ax, (middle, y), (middle + 2.5, y + 2.5), color="gray")
        write(ax, middle + 2.75, y + 2.75, "g", "gray")
        arrow(ax, (middle, y), (middle - 0.9, y + 0.35), color=COLORS["good"])
        write(ax, middle - 0.75, y - 0.35, "short:\nstays", COLORS["good"], fontsize=9, va="top")
    arrow(ax, (middle, y), (middle + 1.2, y + 1.2), color=COLORS["attack"])


def _place(ax: Axes, y: float, name: str, client: str, server: str, wire: str) -> None:
    write(ax, 0.3, y + 2.35, name, ha="left", weight="bold")
    box(ax, 0.3, y + 0.3, 3.8, 1.5, f"client:\n{client}", fill="client")
    box(ax, 7.9, y + 0.3, 3.8, 1.5, f"server:\n{server}", fill="server")
    ink = COLORS["good" if wire == "noisy" else "attack"]
    arrow(ax, (4.2, y + 1.05), (7.8, y + 1.05), f"on the wire: {wire}", ink)
