"""Figures of the chapter "Cutting gradients": the cut, what stays, and what two attackers find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor, nan

from ...metrics import bootstrap_interval
from ...wire import Upload
from ..figures import COLORS, show_image

FEATURES = 120  # columns of the last layer's gradient that are shown


def opening(
    x: Tensor, sent: Mapping[str, Upload], naive: Mapping[str, Tensor], solved: Mapping[str, Tensor]
) -> Figure:
    """For each defense: its cut gradient, and below it the digit and what two attackers find."""
    fig = plt.figure(figsize=(5.2, 2.4 * len(sent)))
    grid = fig.add_gridspec(2 * len(sent), 3, height_ratios=(0.55, 1.6) * len(sent))
    for k, (name, upload) in enumerate(sent.items()):
        ax = fig.add_subplot(grid[2 * k, :])
        g = upload.tensors["head.weight"][0, :, :FEATURES].clone()
        limit = g.abs().quantile(0.97).item()
        g[g == 0] = nan
        ax.set_facecolor("black")
        look: dict[str, Any] = {
            "cmap": "PuOr",
            "vmin": -limit,
            "vmax": limit,
            "interpolation": "nearest",
        }
        ax.imshow(g.numpy(), aspect="auto", **look)
        ax.grid(False)
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"{name}: last layer's gradient, black = cut", fontsize=11)
        shown = (
            (x[0], "private", "truth"),
            (naive[name][0], "at face value", "defense"),
            (solved[name][0], "informed", "attack"),
        )
        for c, (image, title, color) in enumerate(shown):
            show_image(fig.add_subplot(grid[2 * k + 1, c]), image, title, COLORS[color])
    return fig


def energy(rates: Sequence[float], kept: Mapping[str, Tensor]) -> Figure:
    """Share of the squared norm that pruning keeps; ``kept``: network -> (rates, images)."""
    fig, ax = plt.subplots(figsize=(5.2, 3.4))
    share = 1 - np.array(rates)
    ax.plot(share, share, ":", color="dimgray", label="bound of the lemma")
    for (name, e), mark, color in zip(kept.items(), "os", ("attack", "defense"), strict=True):
        ax.plot(share, e.median(1).values, f"{mark}-", color=COLORS[color], label=name)
        ax.fill_between(share, e.amin(1), e.amax(1), color=COLORS[color], alpha=0.2)
    ax.set(xscale="log", xlabel="share of entries kept, 1 − rate", ylabel="share of energy kept")
    ax.invert_xaxis()
    ax.legend()
    return fig


def by_count(tables: Mapping[str, tuple[Mapping[float, dict], int]]) -> Figure:
    """PSNR of the solver against equations per pixel; name -> (rate -> cell, pixels)."""
    fig, ax = plt.subplots(figsize=(5.2, 3.4))
    for (name, (table, pixels)), mark, color in zip(
        tables.items(), "so", ("light", "attack"), strict=True
    ):
        for c in table.values():
            at = c["kept"][0] / pixels
            look: dict[str, Any] = {"color": COLORS[color], "ms": 5, "alpha": 0.7}
            ax.plot([at] * len(c["psnr"]), c["psnr"], mark, **look)
            if min(c["rank"]) < pixels:
                ax.plot(at, 3, "x", color="black", ms=7)
        ax.plot([], [], mark, color=COLORS[color], label=name)
    ax.plot([], [], "x", color="black", ls="", label="rank below pixels")
    ax.axvline(1, color="gray", ls=":")
    ax.set(xscale="log", xlabel="equations per pixel, k / n", ylabel="PSNR (dB)", ylim=(0, 150))
    ax.legend(loc="upper left")
    return fig


def by_rate(tables: Mapping[str, Mapping[float, dict]]) -> Figure:
    """PSNR of four attackers against the share of entries kept; attacker -> (rate -> cell)."""
    fig, ax = plt.subplots(figsize=(5.2, 3.6))
    looks = (("v:", "defense"), ("s--", "light"), ("^--", "warm"), ("o-", "attack"))
    for (name, table), (mark, color) in zip(tables.items(), looks, strict=True):
        rates = np.array(sorted(table))
        mean = np.array([np.mean(table[r]["psnr"]) for r in rates])
        ends = np.array([bootstrap_interval(table[r]["psnr"], np.mean) for r in rates]).T
        look: dict[str, Any] = {"color": COLORS[color], "capsize": 3, "label": name}
        ax.errorbar(1 - rates, mean, abs(ends - mean), fmt=mark, **look)
    ax.set(xscale="log", xlabel="share of entries kept, 1 − rate", ylabel="PSNR (dB)")
    ax.set(ylim=(0, 150))
    ax.invert_xaxis()
    ax.legend(fontsize=10)
    return fig


def effective(nominal: np.ndarray, rates: Mapping[str, Tensor]) -> Figure:
    """Columns that Soteria empties against its nominal rate; name -> (rates, images)."""
    fig, ax = plt.subplots(figsize=(5.2, 3.6))
    ax.plot([0, 1], [0, 1], ":", color="dimgray")
    colors = ("defense", "attack", "good")
    for (name, v), mark, color in zip(rates.items(), "os^", colors, strict=True):
        ax.plot(nominal, v.mean(1), f"{mark}-", color=COLORS[color], label=name)
        ax.fill_between(nominal, v.amin(1), v.amax(1), color=COLORS[color], alpha=0.2)
    ax.set(xlabel="nominal rate", ylabel="effective rate:\nshare of columns emptied")
    ax.legend()
    return fig


def feedback(rows: Mapping[str, Sequence[float]], rounds: Sequence[int]) -> Figure:
    """How far the mean of all uploads is from the gradient, with memory and without."""
    fig, ax = plt.subplots(figsize=(5.2, 3.0))
    for (name, off), mark, color in zip(rows.items(), "so", ("defense", "attack"), strict=True):
        ax.plot(rounds, off, f"{mark}-", color=COLORS[color], label=name)
    ax.set(xscale="log", xlabel="rounds", ylabel="error of the mean upload,\nover the gradient")
    ax.set(ylim=(0, None))
    ax.legend()
    return fig
