"""Figures of "All against all": accuracy against identification, and what informing does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..figures import COLORS
from ..judgment import EVIDENCE, Judged, judged, share

MARKS = {"proved": "s", "read": "o", "found": "D", "not found": "X"}
INKS = {
    "proved": COLORS["defense"],
    "read": COLORS["attack"],
    "found": "#b5651d",
    "not found": "dimgray",
}


def spaced(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Heights near the values, in their order, at least ``gap`` apart and within [low, high]."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    gap = min(gap, (high - low) / max(1, len(values) - 1))
    put: list[float] = []
    for i in order:
        put.append(max(values[i], put[-1] + gap) if put else max(values[i], low))
    ceiling = high
    for k in range(len(put) - 1, -1, -1):
        put[k] = min(put[k], ceiling)
        ceiling = put[k] - gap
    heights = [0.0] * len(values)
    for i, height in zip(order, put, strict=True):
        heights[i] = height
    return heights


def named_at(ax: Axes, points: Sequence[tuple[float, float, Judged]], x: float, side: str) -> None:
    """Names in a column at x, each with a thin line to its point."""
    low, high = ax.get_ylim()
    room = 0.02 * (high - low)
    gap = 0.062 * (high - low)
    heights = spaced([y for _, y, _ in points], gap, low + room, high - room)
    for (px, py, row), height in zip(points, heights, strict=True):
        ax.plot([px, x], [py, height], color="lightgray", lw=0.8, zorder=1, clip_on=False)
        shift = 0.02 if side == "left" else -0.02
        look: dict[str, Any] = {"ha": side, "va": "center", "fontsize": 9}
        look["color"] = INKS[row.evidence]
        ax.text(x + shift, height, row.name, clip_on=False, **look)


def plane() -> Figure:
    """Accuracy against the share that the informed attacker names; lower right would be ideal."""
    points = []
    for row in judged():
        named, accuracy = row.named("informed"), row.accuracy
        if named and accuracy:
            points.append((named.value, accuracy.value, row))
    fig, ax = plt.subplots(figsize=(5.2, 5.0), layout="none")
    fig.subplots_adjust(0.14, 0.2, 0.98, 0.98)
    ax.set(xlim=(-1.0, 1.7), ylim=(0, 1), ylabel="accuracy, every client defended")
    for x, y, row in points:
        cost = row.cost("time") or 1.0
        size = 28 * (1 + max(0.0, cost - 1)) ** 0.5
        mark, ink = MARKS[row.evidence], INKS[row.evidence]
        ax.scatter([x], [y], s=size, marker=mark, color=ink, alpha=0.75, zorder=3, lw=0)
    named_at(ax, [p for p in points if p[0] < 0.5], -0.1, "right")
    named_at(ax, [p for p in points if p[0] >= 0.5], 1.1, "left")
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_xlabel("named among 100 by the informed attacker")
    ax.grid(False)
    handles = [
        Line2D([], [], ls="", marker=MARKS[e], color=INKS[e], label=e, ms=7) for e in EVIDENCE
    ]
    fig.legend(handles=handles, loc="lower center", ncols=4, fontsize=9, frameon=False)
    return fig


def slopes(data: str = "mnist") -> Figure:
    """From the plain attacker to the one who knows the defense."""
    rows = [(row, row.named("plain"), row.named("informed")) for row in judged(data)]
    kept = [(row, a.value, b.value) for row, a, b in rows if a and b]
    fig, ax = plt.subplots(figsize=(5.2, 5.2), layout="none")
    fig.subplots_adjust(0.14, 0.06, 0.98, 0.98)
    ax.set(xlim=(-0.15, 2.0), ylim=(-0.03, 1.03), ylabel="share named among 100")
    for _, a, b in kept:
        ink = COLORS["attack"] if b - a > 0.3 else "silver"
        ax.plot([0, 1], [a, b], "o-", color=ink, lw=1.6, ms=4, zorder=2)
    named_at(ax, [(1, b, row) for row, _, b in kept], 1.2, "left")
    ax.set_xticks([0, 1], ["plain", "informed"])
    ax.grid(False)
    return fig


def words(data: str = "mnist") -> str:
    """What ``slopes`` shows."""
    parts = [
        f"{row.name} from {a.value:.2f} to {b.value:.2f}"
        for row in judged(data)
        if (a := row.named("plain")) and (b := row.named("informed"))
    ]
    return "; ".join(parts)


def bars(images: str, attacker: str, **judge: str) -> Figure:
    """Shares named, row by row, over the blind guess."""
    (by,) = judge.values()
    rows = judged(images)
    fig, ax = plt.subplots(figsize=(5.0, 0.24 * len(rows) + 0.9))
    for i, row in enumerate(rows):
        named = row.named(attacker, by)
        if named:
            ax.barh(i, named.value, color=INKS[row.evidence], height=0.7)
            ax.plot([named.low, named.high], [i, i], color="black", lw=1)
        else:
            ax.text(0.02, i, "not run", va="center", fontsize=9, color="dimgray")
    cell = rows[0].cell("informed")
    guess = share(cell, by, guess=True).value if cell else 0.0
    ax.axvline(guess, color="black", ls=":", lw=1.2)
    ax.set(xlim=(0, 1), xlabel=f"named among 100, {attacker} attacker, by {by}")
    ax.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=9)
    ax.invert_yaxis()
    ax.grid(False)
    return fig


def bar_words(images: str, attacker: str, **judge: str) -> str:
    """What ``bars`` shows."""
    (by,) = judge.values()
    shares = {row.name: row.named(attacker, by) for row in judged(images)}
    said = [f"{name} {f'{s.value:.2f}' if s else 'not run'}" for name, s in shares.items()]
    return f"Shares named among 100 on {images} by the {attacker} attacker: {', '.join(said)}."
