"""Two images behind one upload: a right guess of the first leaves the second (dcs2, by hand)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, numbers, paper, write

PRIVATE = (-0.6, 0.4, 0.2), (1.0, 0.0, 2.0)  # error δ₁, features r₁
CONCEALED = (0.2, -0.5, 0.3), (0.0, 1.0, 1.0)  # δ₂, r₂
WRONG = (1.0, 1.0, 3.0)  # another guess of r₁, in the plane of both

Matrix = list[list[float]]


def outer(left: Sequence[float], right: Sequence[float]) -> Matrix:
    return [[a * b for b in right] for a in left]


def sent() -> Matrix:
    """The sum of both gradients: what leaves by Eq. 10 as printed."""
    pairs = zip(outer(*PRIVATE), outer(*CONCEALED), strict=True)
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in pairs]


def left_over(guess: Sequence[float]) -> Matrix:
    """The upload without δ₁ times the guess, each row divided by its entry of δ₂."""
    rows = zip(sent(), outer(PRIVATE[0], guess), CONCEALED[0], strict=True)
    return [[(u - v) / d for u, v in zip(up, own, strict=True)] for up, own, d in rows]


def draw() -> Figure:
    """Above: two gradients and their sum. Below: what a right and a wrong guess leave."""
    fig, ax = paper(12, 10.4)
    parts = {"private": outer(*PRIVATE), "concealed": outer(*CONCEALED), "upload": sent()}
    for x, sign, (name, matrix) in zip((0.3, 4.4, 8.5), " +=", parts.items(), strict=True):
        write(ax, x + 1.5, 9.75, name, weight="bold")
        write(ax, x - 0.55, 7.8, sign, fontsize=14)
        numbers(ax, x, 9.3, _rounded(matrix))
    arrow(ax, (9.4, 6.1), (4.4, 4.9), color=COLORS["attack"])
    arrow(ax, (10.0, 6.1), (10.0, 4.9), color=COLORS["attack"])
    write(ax, 3.3, 5.75, "take δ₁ r₁ᵀ away, ÷ δ₂", COLORS["attack"])
    for x, name, guess, says in (
        (1.6, "guess r₁ = (1, 0, 2)", PRIVATE[1], "rows agree: r₂"),
        (7.6, "guess r₁ = (1, 1, 3)", WRONG, "rows disagree"),
    ):
        write(ax, x + 1.5, 4.45, name, weight="bold")
        numbers(ax, x, 4.0, _rounded(left_over(guess)))
        write(ax, x + 1.5, 0.5, says, COLORS["attack"], weight="bold")
    return fig


def _rounded(matrix: Matrix) -> Matrix:
    return [[round(v, 2) + 0.0 for v in row] for row in matrix]  # + 0.0: no minus zero
