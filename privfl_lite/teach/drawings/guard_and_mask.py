"""Guard and mask: two columns of an upload are the guard's, and the quotients tell which
(entanglement, the example by hand)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..figures import COLORS
from .kit import arrow, numbers, paper, write

CLIENT = (-0.6, 0.4, 0.2), (1.0, 2.0, 0.5, 3.0)  # error signal δ, representation r
GUARD = (0.3, -0.5, 0.2), (2.0, 1.0, 4.0, 2.0)  # γ, s
BORROWED = (1, 3)  # units with the highest scores, from 0

Matrix = list[list[float]]


def example() -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """The client's gradient, the guard's, the upload, and the upload divided by the bias."""
    own, guard = ([[a * b for b in right] for a in left] for left, right in (CLIENT, GUARD))
    sent = [
        [g if j in BORROWED else o for j, (o, g) in enumerate(zip(*rows, strict=True))]
        for rows in zip(own, guard, strict=True)
    ]
    shown = [[u / d for u in row] for row, d in zip(sent, CLIENT[0], strict=True)]
    return own, guard, sent, shown


def draw() -> Figure:
    """Above: client and guard. Below: what leaves, and what the server divides."""
    fig, ax = paper(12, 10.2)
    own, guard, sent, shown = example()
    _matrix(ax, 0.7, 9.2, own, "client: error δ times r")
    _matrix(ax, 7.3, 9.2, guard, "guard: error γ times s", range(4))
    arrow(ax, (2.7, 6.1), (2.7, 4.9))
    arrow(ax, (8.2, 6.1), (4.8, 4.9), color=COLORS["defense"])
    write(ax, 8.9, 5.4, "units 2 and 4", COLORS["defense"])
    _matrix(ax, 0.7, 4.0, sent, "the upload", BORROWED)
    arrow(ax, (4.85, 2.5), (7.15, 2.5), "÷ δ", COLORS["attack"])
    _matrix(ax, 7.3, 4.0, shown, "quotients", BORROWED)
    for j in range(4):
        word = "≠" if j in BORROWED else f"= {CLIENT[1][j]:g}"
        write(ax, 7.8 + j, 0.65, word, COLORS["attack"], weight="bold")
    write(ax, 2.7, 0.55, "bias δ = (−0.6, 0.4, 0.2)")
    return fig


def _matrix(
    ax: Axes, x: float, y: float, values: Matrix, name: str, framed: Sequence[int] = ()
) -> None:
    """Squares with their name above; the guard's columns have a blue frame."""
    write(ax, x + 2, y + 0.45, name, weight="bold")
    numbers(ax, x, y, [[round(v, 2) for v in row] for row in values])
    for j in framed:
        edge = Rectangle((x + j, y - 3), 1, 3, fc="none", ec=COLORS["defense"], lw=2.2)
        ax.add_patch(edge)
