"""A batch of two: each row of the gradient is a mixture, unless a unit is alone
(why-gradients-leak, the example by hand)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, numbers, paper, write

PICTURES = ((0.9, 0.1), (0.2, 0.6))
SIGNALS = ((0.6, -0.2), (0.0, 0.5))  # (units, pictures)


def draw() -> Figure:
    """Both units of the example: signal times picture, summed, divided."""
    fig, ax = paper(12, 7.6)
    for n, (x, picture) in enumerate(zip((1.5, 4.8), PICTURES, strict=True)):
        write(ax, x + 1, 7.2, f"picture {n + 1}")
        numbers(ax, x, 6.9, [picture])
    write(ax, 9.6, 7.0, "row ÷ bias", weight="bold")
    _unit(ax, 4.7, 0, "a mixture")
    _unit(ax, 1.9, 1, "picture 2, exactly")
    return fig


def _unit(ax: Axes, y: float, i: int, verdict: str) -> None:
    """One unit: what each picture adds to its row, and what the quotient shows."""
    write(ax, 0.65, y - 0.5, f"unit {i + 1}")
    for n, x in enumerate((1.5, 4.8)):
        signal = SIGNALS[i][n]
        value = f"{signal:g}".replace("-", "−")
        color = "dimgray" if signal == 0 else COLORS["attack" if signal > 0 else "defense"]
        write(ax, x + 1, y + 0.45, f"times {value}" + (" (off)" if signal == 0 else ""), color)
        numbers(ax, x, y, [[round(signal * p, 2) for p in PICTURES[n]]])
    write(ax, 4.15, y - 0.5, "+", fontsize=14)
    arrow(ax, (7.0, y - 0.5), (8.4, y - 0.5))
    bias = sum(SIGNALS[i])
    row = [
        round(sum(s * p[j] for s, p in zip(SIGNALS[i], PICTURES, strict=True)) / bias, 2)
        for j in range(2)
    ]
    numbers(ax, 8.6, y, [row])
    write(ax, 9.6, y - 1.45, verdict, COLORS["attack"] if i else "dimgray", fontsize=10)
