"""LODA's two terms: features are held together, pixels are pushed apart (loda, by hand)."""

from __future__ import annotations

from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..figures import COLORS
from .kit import INK, arrow, box, paper, write

PRIVATE = (0.35, 0.6)  # x*, two pixels
HELD = (0.4, 1.6)  # how strongly the features hold each pixel: the eigenvalues of GᵀG
WEIGHTS = {0.2: "nothing moves", 1.0: "pixel 1: wall", 2.0: "both: negative"}

Pixels = tuple[float, float]


def objective(x_prime: Pixels, c: float) -> float:
    """F of the example: what holds each pixel, less c, times its squared move."""
    moves = zip(HELD, x_prime, PRIVATE, strict=True)
    return sum((held - c) * (a - b) ** 2 for held, a, b in moves)


def encoding(c: float, levels: int = 100) -> Pixels:
    """The least point of F over the box, among the hundredths."""
    axis = [i / levels for i in range(levels + 1)]
    a, b = min(product(axis, axis), key=lambda pixels: objective(pixels, c))
    return a, b


def draw() -> Figure:
    """Above: two images, one network, two terms. Below: where two pixels go as c grows."""
    fig, ax = paper(12, 12.2)
    made = encoding(1.0)
    for y, name, image, features in (
        (11.0, "private x*", PRIVATE, "g(x*)"),
        (7.2, "obscured x′", made, "g(x′)"),
    ):
        _pixels(ax, 0.8, y - 1.2, 1.2, image)
        write(ax, 2.0, y + 0.4, name, weight="bold")
        arrow(ax, (3.5, y - 0.6), (4.6, y - 0.6))
        box(ax, 4.7, y - 1.2, 2.7, 1.2, "public g", "stone")
        arrow(ax, (7.5, y - 0.6), (8.6, y - 0.6))
        box(ax, 8.7, y - 1.2, 2.4, 1.2, features)
    push, hold = COLORS["defense"], COLORS["good"]
    for start, end in (((2.0, 8.75), (2.0, 9.6)), ((2.0, 8.75), (2.0, 7.9))):
        arrow(ax, start, end, color=push)
    for start, end in (((9.9, 9.6), (9.9, 8.85)), ((9.9, 7.4), (9.9, 8.15))):
        arrow(ax, start, end, color=hold)
    write(ax, 2.3, 8.75, "pixels far:\n− c ‖x′ − x*‖²", push, ha="left")
    write(ax, 9.6, 8.5, "features near:\n‖g(x′) − g(x*)‖²", hold, ha="right")
    for x, (c, words) in zip((0.4, 4.4, 8.4), WEIGHTS.items(), strict=True):
        _square(ax, x, 1.2, 3.2, c, words)
    return fig


def _pixels(ax: Axes, x: float, y: float, size: float, image: Pixels) -> None:
    """Gray squares, 0 black and 1 white, with their values."""
    for i, value in enumerate(image):
        ax.add_patch(Rectangle((x + size * i, y), size, size, fc=str(value), ec=INK, lw=1.2))
        ink = "white" if value < 0.5 else INK
        write(ax, x + size * (i + 0.5), y + size / 2, f"{value:g}", ink)


def _square(ax: Axes, x: float, y: float, size: float, c: float, words: str) -> None:
    """The box of two pixels: the private image, and the encoding for this c."""
    ax.add_patch(Rectangle((x, y), size, size, fc="#f2f5f7", ec=INK, lw=1.6))
    here, there = ((x + size * a, y + size * b) for a, b in (PRIVATE, encoding(c)))
    if here != there:
        arrow(ax, here, there, color=COLORS["defense"])
    ax.plot(*there, "o", color=COLORS["defense"], ms=11, clip_on=False)
    ax.plot(*here, "o", color=COLORS["truth"], ms=6)
    write(ax, x + size / 2, y + size + 0.45, f"c = {c:g}", weight="bold")
    write(ax, x + size / 2, y - 0.5, words, COLORS["defense"])
