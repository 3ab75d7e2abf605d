"""Three clients whose masks cancel, modulo 16 (malicious-server, ex-sum-hand)."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, box, paper, write

VALUES = (5, 3, 6)
MASKS = {(0, 1): 11, (0, 2): 4, (1, 2): 9}  # the first adds it, the second subtracts it
MODULUS = 16
PLACES = ((0.3, 7.0), (5.0, 7.0), (9.7, 7.0))


def sent() -> list[int]:
    """What leaves each client."""
    out = list(VALUES)
    for (i, j), mask in MASKS.items():
        out[i], out[j] = out[i] + mask, out[j] - mask
    return [number % MODULUS for number in out]


def draw() -> Figure:
    """Clients above, what each sends on its arrow, the server's sum below."""
    fig, ax = paper(14, 11.2)
    for k, (x, y) in enumerate(PLACES):
        box(ax, x, y, 4.0, 2.5, fill="client")
        write(ax, x + 2, y + 1.9, f"client {k + 1} has {VALUES[k]}")
        terms = [("+", m) for (i, _), m in MASKS.items() if i == k]
        terms += [("−", m) for (_, j), m in MASKS.items() if j == k]
        sums = " ".join([str(VALUES[k]), *(f"{sign} {m}" for sign, m in terms)])
        write(ax, x + 2, y + 1.2, sums, COLORS["defense"])
        write(ax, x + 2, y + 0.5, f"sends {sent()[k]}", COLORS["attack"], weight="bold")
        arrow(ax, (x + 2, y - 0.05), (7 + 1.2 * (k - 1), 3.1), color=COLORS["attack"])
    for (i, j), mask in MASKS.items():
        left, right = PLACES[i][0] + 2.4, PLACES[j][0] + 1.6
        height = 10.0 if j - i == 1 else 10.55
        middle = (left + right) / 2
        ax.plot([left, left, right, right], [9.55, height, height, 9.55], color="gray", lw=1)
        write(ax, middle, height, f" {mask} ", COLORS["defense"], backgroundcolor="white")
    box(ax, 3.0, 0.4, 8.0, 2.6, fill="server")
    total = sum(sent())
    words = " + ".join(map(str, sent()))
    write(ax, 7, 2.2, f"server: {words} = {total}")
    write(ax, 7, 1.2, f"modulo 16: {total % MODULUS} = {' + '.join(map(str, VALUES))}")
    return fig
