"""Plots and look-ups of "ModelCloak I: how much noise is enough?" (Wei et al. 2023)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from ...defenses.modelcloak import select
from ...runtime import generator
from ...studies import STUDIES
from ...studies.modelcloak_fixed.attack import CLIENTS, CLIPS, SIGMAS
from .. import ledger
from ..figures import COLORS, show_image

Cells = list[dict[str, Any]]
# The paper's name of a data set -> what we attack, what we train on.
PLACES = {"MNIST": ("mnist", "mnist-full"), "CIFAR10": ("cifar10",) * 2, "LFW": ("faces",) * 2}
THRESHOLD = 1.4  # L2 error up to which the paper counts a reconstruction as a success
QUARTER = 0.6745  # Φ(−0.6745) = 1/4


@lru_cache
def study(name: str) -> dict:
    """A stored study of this chapter: "attack", "training" or "epsilon"."""
    return STUDIES[f"modelcloak-fixed/{name}"].show()


def find(name: str, **want: Any) -> Cells:
    """The cells of a stored study that have these settings."""
    return [c for c in study(name)["cells"] if all(c.get(k) == v for k, v in want.items())]


def grid(data: str, source: str) -> Cells:
    """Table II for one data set as 30 cells: the paper's numbers ("paper") or "ours".

    Ours: success for noise σC/1000 without a clip, accuracy for noise at the server.
    """
    if source == "paper":
        return ledger.grid("modelcloak/table-2", data, sigma="σ", clip="C")
    images, people = PLACES[data]
    start = "private image" if data == "CIFAR10" else "patterned"
    cells = []
    for at in ({"sigma": s, "clip": c} for s in SIGMAS for c in CLIPS):
        (hit,) = find("attack", part="grid", data=images, reading="over N", start=start, **at)
        (run,) = find("training", data=people, where="server", **at)
        cells.append({**at, "success": hit["success"], "accuracy": run["accuracy"]})
    return cells


def cell(data: str, source: str, sigma: float, clip: float) -> dict[str, Any]:
    """One cell of ``grid``."""
    return next(c for c in grid(data, source) if (c["sigma"], c["clip"]) == (sigma, clip))


def heat(ax: Axes, cells: Cells, key: str, leakage: float = 0.0, size: float = 10) -> None:
    """One grid in percent: safe settings bold, the sweet spot framed."""
    best = select(cells, leakage)
    ink = COLORS["attack" if key == "success" else "defense"]
    ramp = LinearSegmentedColormap.from_list("ramp", ["white", ink])
    values = np.array([c[key] for c in cells]).reshape(len(SIGMAS), len(CLIPS))
    ax.imshow(values, cmap=ramp, vmin=0, vmax=1.5, aspect="auto")
    for i, c in enumerate(cells):
        x, y = i % len(CLIPS), i // len(CLIPS)
        weight = "bold" if c["success"] <= leakage else "normal"
        text = f"{100 * c[key]:.0f}"
        ax.text(x, y, text, ha="center", va="center", fontsize=size, weight=weight)
        if c == best:
            ax.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, lw=3))
    ax.set_xticks(range(len(CLIPS)), [f"{c:g}" for c in CLIPS])
    ax.set_yticks(range(len(SIGMAS)), [str(s) for s in SIGMAS])
    ax.grid(False)


def opening(images: Mapping[str, Tensor]) -> Figure:
    """The paper's two grids for MNIST, and below them images (C, H, W), each under its title."""
    fig = plt.figure(figsize=(4.8, 4.15), layout="none")
    cells = grid("MNIST", "paper")
    for x, (key, title) in zip(
        (0.09, 0.58),
        {"success": "attack success (%)", "accuracy": "accuracy (%)"}.items(),
        strict=True,
    ):
        ax = fig.add_axes((x, 0.51, 0.41, 0.43))
        heat(ax, cells, key, size=9)
        ax.tick_params(labelsize=9)
        ax.set_title(title, fontsize=10, pad=4)
        ax.set_xlabel("clip C", fontsize=9, labelpad=1)
        ax.set_ylabel("σ", fontsize=9, rotation=0, labelpad=4)
    for i, (title, image) in enumerate(images.items()):
        ax = fig.add_axes((0.03 + 0.33 * i, 0.01, 0.28, 0.31))
        show_image(ax, image)
        ax.set_title(title, fontsize=9, pad=3)
    return fig


def grids(tables: Mapping[str, Cells], leakage: float = 0.0, size: tuple = (4.8, 5.2)) -> Figure:
    """Success above, accuracy below, one column for each table."""
    fig, axes = plt.subplots(2, len(tables), figsize=size, squeeze=False, layout="constrained")
    for column, (name, cells) in zip(axes.T, tables.items(), strict=True):
        for ax, key in zip(column, ("success", "accuracy"), strict=True):
            heat(ax, cells, key, leakage)
        column[0].set_title(name, fontsize=11)
        column[1].set_xlabel("clip C")
    for ax, words in zip(axes[:, 0], ("attack success (%)", "accuracy (%)"), strict=True):
        ax.set_ylabel(f"{words}\nσ")
    return fig


def products(data: str) -> Figure:
    """The paper's success against σ (left) and against σC (right), one color for each C."""
    fig, axes = plt.subplots(2, 1, figsize=(4.6, 4.6))
    inks = [COLORS[n] for n in ("truth", "defense", "good", "warm", "attack")]
    for c, ink, mark in zip(CLIPS, inks, "osD^v", strict=True):
        row = [k for k in grid(data, "paper") if k["clip"] == c]
        success = [100 * k["success"] for k in row]
        for ax, factor in zip(axes, (1, c), strict=True):
            at = [factor * k["sigma"] for k in row]
            ax.plot(at, success, mark, ls="-", lw=0.8, ms=4, color=ink, label=f"C = {c:g}")
    for ax, name in zip(axes, ("σ", "σC"), strict=True):
        ax.set(xlabel=name, ylabel="attack success (%)")
    axes[1].legend(fontsize=9, ncols=2)
    return fig


def levels() -> list[float]:
    """The noise levels σC/1000 of the grid, in units of the gradient."""
    return sorted({s * c / CLIENTS for s in SIGMAS for c in CLIPS})


def attained(std: float) -> dict[str, Any]:
    """The stored attack on digits at this noise, without a clip; "l2" has one error per image."""
    over = find("attack", part="grid", data="mnist", reading="over N", start="patterned")
    return next(c for c in over if np.isclose(c["sigma"] * c["clip"] / CLIENTS, std))


def two_image_floor(
    gradient: Callable[[Tensor, Tensor], Tensor],
    image: Tensor,
    label: Tensor,
    others: Tensor,
    weak: Tensor,
    noise: np.ndarray,
) -> list[float]:
    """What every attacker misses with probability 1/4, by prop-cloak-two-point, at each noise.

    ``image`` at half contrast is compared with parts of the way to ``others`` of its class, and
    with steps along ``weak`` (n, n), directions that its gradient hardly notices, weakest first.
    """
    room = 0.25 + 0.5 * image  # every pixel may move by 0.25
    signs = torch.sign(torch.randn(len(weak), generator=generator(0))).to(weak)
    steps = [t * (other - room) for other in others for t in (0.3, 0.6, 1.0)]
    for count in (1, 30, 100, 300):
        v = weak[:, :count] @ (weak[:, :count].T @ signs)
        v = (0.25 * v / v.abs().max()).view_as(room).to(room)
        steps += [t * v for t in np.linspace(0.02, 1, 30)]
    moved = torch.stack(steps)
    with torch.no_grad():
        apart = gradient(room + moved, label.expand(len(moved))) - gradient(room[None], label[None])
    reach = moved.flatten(1).norm(dim=1).numpy() / 2
    needs = apart.norm(dim=1).numpy() / (2 * QUARTER)  # where Φ(−‖Δg‖/2ς) = 1/4
    return [reach[needs <= std].max(initial=0) for std in noise]


def bounds(
    spreads: Sequence[float], clamped: Sequence[float], norm: float, d: int, floor: Callable
) -> Figure:
    """Error against noise: Eq. 7, Cramér–Rao with and without clamp, two images, the attacks.

    ``spreads``: √tr((JᵀJ)⁻¹) of some digits; ``clamped``: with half the variance at pixels of 0
    and 1. ``norm``: median ‖g‖. ``floor``: noise levels -> ``two_image_floor`` there.
    """
    fine = np.geomspace(3e-4, 30, 200)
    fig, ax = plt.subplots(figsize=(4.8, 5.2))
    ax.plot(fine, fine * d**0.5 / norm, color="k", ls="--", label="Eq. 7 with C = ‖g‖")
    ax.axhline(28, color="gray", ls=":", label="diameter of the images")
    ax.plot(fine, fine * np.median(spreads), color=COLORS["defense"], label="Cramér–Rao")
    cut = fine * np.median(clamped)
    ax.plot(fine, cut, color=COLORS["light"], ls="-.", label="the same, clamped")
    errors = np.array([attained(s)["l2"] for s in levels()])
    mid = np.median(errors, axis=1)
    ends = np.abs(np.quantile(errors, (0.25, 0.75), axis=1) - mid)
    look: dict[str, Any] = {"fmt": "o", "ms": 4, "color": COLORS["attack"]}
    ax.errorbar(levels(), mid, ends, label="attack (clamped)", **look)
    wise = find("attack", part="informed", attack="prior")
    at, l2 = [c["noise"] for c in wise], [np.median(c["l2"]) for c in wise]
    ax.plot(at, l2, "s", ms=5, color=COLORS["accent"], label="with a prior")
    ax.plot(fine, floor(fine), color=COLORS["good"], label="two images: for all attackers")
    ax.axhline(THRESHOLD, color=COLORS["warm"], lw=1, label="the paper's 1.4")
    ax.set(xscale="log", yscale="log", ylim=(0.02, 300), xlim=(3e-4, 30))
    ax.set(xlabel="noise ς on each entry (no clip)", ylabel="L2 error of the image")
    fig.legend(fontsize=9, loc="outside lower center", ncols=2)
    return fig
