"""A linear system that has lost its signs, for two images (hiding-the-input)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import INK, paper, write

PIXELS, CENTER = (0.8, 0.1), 0.5  # those of the example by hand
WEIGHTS = ((0.75, 0.25), (0.25, 0.75), (0.5, 0.5))
INKS = (COLORS["defense"], COLORS["good"], COLORS["warm"])
MIDDLE, SCALE, REACH = (5.6, 5.9), 8.6, 0.55


def sizes() -> list[float]:
    """What InstaHide leaves of each blend: its distance to the center."""
    blends = np.array(WEIGHTS) @ np.array(PIXELS)
    return [round(float(v), 6) for v in abs(blends - CENTER)]


def candidates() -> list[tuple[float, float]]:
    """The pairs, counted from the center, that fit the first two sizes: one for each two signs."""
    found = []
    for signs in product((1, -1), repeat=2):
        u = np.linalg.solve(np.array(WEIGHTS[:2]), np.array(signs) * sizes()[:2])
        found.append((round(float(u[0]), 6), round(float(u[1]), 6)))
    return found


def _at(u: Sequence[Any]) -> tuple[Any, Any]:
    return MIDDLE[0] + SCALE * u[0], MIDDLE[1] + SCALE * u[1]


def _line(ax: Axes, weights: tuple[float, float], value: float, ink: str, dash: str) -> None:
    """All u in the square with weights · u = value."""
    first = np.linspace(-REACH, REACH, 200)
    second = (value - weights[0] * first) / weights[1]
    inside = abs(second) <= REACH
    x, y = _at((first[inside], second[inside]))
    ax.plot(x, y, dash, color=ink, lw=1.8)


def draw() -> Figure:
    """Two lines for each encoding; the third encoding passes through one pair of crossings only."""
    fig, ax = paper(11.4, 12.6)
    for end in ((REACH, 0), (0, REACH)):
        x, y = zip(_at((-end[0], -end[1])), _at(end), strict=True)
        ax.plot(x, y, color="#9aa7b1", lw=0.8)
    for weights, size, ink, dash in zip(WEIGHTS, sizes(), INKS, ("-", "-", "--"), strict=True):
        for value in (size, -size):
            _line(ax, weights, value, ink, dash)
    for u in candidates():
        fits = abs(abs(np.dot(WEIGHTS[2], u)) - sizes()[2]) < 1e-6
        across, up = _at(u)
        face = COLORS["attack"] if fits else "white"
        ax.plot(across, up, "o", ms=10, mfc=face, mec=COLORS["attack"] if fits else INK, zorder=3)
    write(ax, *_at((0.19, -0.42)), "true", COLORS["attack"])
    write(ax, *_at((-0.45, 0.13)), "both signs\nturned", COLORS["attack"])
    write(ax, *_at((0.5, 0.05)), "image 1")
    write(ax, *_at((0.13, 0.52)), "image 2")
    for i, (name, ink) in enumerate(zip(("first", "second", "third"), INKS, strict=True)):
        write(ax, 1.9 + 3.7 * i, 12.1, f"{name} encoding")
        ax.plot((0.9 + 3.7 * i, 2.9 + 3.7 * i), (11.6, 11.6), "--" if i == 2 else "-", color=ink)
    write(ax, 5.6, 0.5, "● fits all three encodings   ○ fits two")
    return fig
