"""The equations for a convolution's input: of its gradient and of its output (through-the-layers,
the example with three pixels)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import numbers, paper, write

BY_GRADIENT = ((1, 2, 0), (0, 1, 2))  # the error signal, shifted
BY_OUTPUT = ((1, -1, 0), (0, 1, -1))  # the kernel, shifted
PIXELS = (0.2, 0.8, 0.4)


def draw() -> Figure:
    """Above: two equations leave a direction open. Below: two more close it."""
    fig, ax = paper(12, 6.9)
    write(ax, 1.9, 6.5, "coefficients")
    write(ax, 4.6, 6.5, "pixels")
    write(ax, 6.5, 6.5, "known")
    _block(
        ax, 5.6, BY_GRADIENT, "$\\nabla W$ is sent", "2 equations, 3 unknowns:\none direction open"
    )
    _block(ax, 2.4, BY_OUTPUT, "$u$ comes from above", "together rank 3:\none solution")
    return fig


def _block(ax: Axes, y: float, rows: Sequence[Sequence[int]], source: str, verdict: str) -> None:
    """Coefficients times pixels, and what the products are known to be."""
    numbers(ax, 0.4, y, rows, 0.95)
    numbers(ax, 4.1, y + 0.45, [[p] for p in PIXELS], 0.95)
    known = [[round(sum(a * p for a, p in zip(row, PIXELS, strict=True)), 2)] for row in rows]
    write(ax, 3.6, y - 0.95, "·", fontsize=16)
    write(ax, 5.5, y - 0.95, "=", fontsize=12)
    numbers(ax, 6.0, y, known, 0.95)
    write(ax, 9.6, y - 0.45, source, COLORS["attack"])
    write(ax, 9.6, y - 1.45, verdict)
