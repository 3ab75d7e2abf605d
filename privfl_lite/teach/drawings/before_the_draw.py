"""A layer that rolls dice: what goes forward, what comes back (changing-the-model)."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, box, paper, write

ROOMS = ("features", "encoder", "draw", "decoder", "last")


def draw() -> Figure:
    """Five rooms in a row: values go right, error signals come back, random from the draw on."""
    fig, ax = paper(14.6, 6.6)
    for i, name in enumerate(ROOMS):
        box(ax, 0.2 + 3.0 * i, 2.9, 2.2, 1.3, name, fill="server" if name == "draw" else "client")
    for i, words in enumerate(("r", "μ, σ", "z", "r′")):
        left, right = 2.4 + 3.0 * i, 3.2 + 3.0 * i
        arrow(ax, (left, 3.85), (right, 3.85), words)
        arrow(ax, (right, 3.25), (left, 3.25), color=COLORS["attack"])
    write(ax, 7.3, 5.6, "forward: nothing left of the draw knows of the dice")
    write(ax, 7.3, 2.2, "back: every error signal has met the dice", COLORS["attack"])
    write(ax, 4.3, 0.9, "∇W ÷ ∇b = r\nfor every draw")
    write(ax, 10.3, 0.9, "∇W ÷ ∇b = z\nwhat the dice gave")
    return fig
