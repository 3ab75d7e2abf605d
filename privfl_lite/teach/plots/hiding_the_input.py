"""Figures of the chapter "Hiding the input": blends, flips, and what decoders make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ...pictures import pack
from ..figures import COLORS, show_image

LOOKS = {  # decoder -> color, mark, name on the figure
    "mean image": ("truth", ":", "blind: the mean image"),
    "Adam": ("light", "v-", "Adam"),
    "Adam, aligned": ("defense", "s-", "Adam, aligned"),
    "search, aligned": ("attack", "o-", "sign search, aligned"),
}


def opening(rows: Mapping[str, Tensor], found: Sequence[str]) -> Figure:
    """Named rows of images, those that the server makes in the attacker's color."""
    count = len(next(iter(rows.values())))
    fig, axes = plt.subplots(len(rows), count, figsize=(5.2, 4.6))
    for axs, (name, images) in zip(axes, rows.items(), strict=True):
        for ax, image in zip(axs, images, strict=True):
            show_image(ax, image)
        color = COLORS["attack"] if name in found else "black"
        axs[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11, color=color)
    return fig


def strip(x: Tensor, found: Tensor, words: str) -> str:
    """Private digits above, decoded ones below, and what to say: a frame of the panel, in HTML."""
    rows = [torch.cat(list(t[:6, 0]), 1) for t in (x, found)]  # (H, 6 W) each
    look = 'style="image-rendering:pixelated;width:336px"'
    alt = "six private digits above, what was decoded below"
    data = f"data:image/png;base64,{pack(torch.cat(rows)[None])}"
    return f'<img alt="{alt}" {look} src="{data}"><p>{words}</p>'


def twin(truth: Tensor, found: Mapping[str, Mapping[float, tuple[Tensor, str]]]) -> Figure:
    """One digit by attack (rows) and encodings per image (columns), scores below."""
    ratios = list(next(iter(found.values())))
    fig, axes = plt.subplots(len(found), 1 + len(ratios), figsize=(5.4, 4.8))
    for axs, (attack, cells) in zip(axes, found.items(), strict=True):
        show_image(axs[0], truth)
        name = attack.replace(": ", "\n").replace(", ", ",\n")
        axs[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
        for ax, (image, score) in zip(axs[1:], cells.values(), strict=True):
            show_image(ax, image)
            ax.set_xlabel(score, fontsize=10, labelpad=2)
    for ax, head in zip(axes[0], ["private", *(f"E/n = {r}" for r in ratios)], strict=True):
        ax.set_title(head, fontsize=10)
    return fig


def condition(rounds: Sequence[int], bands: Mapping[int, np.ndarray]) -> Figure:
    """Condition number of M; ``bands``: k -> (rounds, 3), low, middle and high."""
    fig, ax = plt.subplots(figsize=(5.2, 3.4))
    looks = zip(bands.items(), ("good", "attack", "defense"), "^os", strict=True)
    for (k, band), color, mark in looks:
        low, mid, high = band.T
        ax.plot(rounds, mid, marker=mark, color=COLORS[color], label=f"k = {k}")
        ax.fill_between(rounds, low, high, color=COLORS[color], alpha=0.2, lw=0)
    ax.set(xscale="log", yscale="log", xlabel="encodings per image, E/n")
    ax.set(ylabel="condition number σ₁/σₙ")
    ax.set_xticks(rounds, list(map(str, rounds)))
    ax.legend()
    return fig


def decoders(rounds: Sequence[int], scores: Mapping[str, np.ndarray]) -> Figure:
    """Mean PSNR by encodings per image; ``scores``: decoder -> (rounds, draws)."""
    fig, ax = plt.subplots(figsize=(5.2, 3.6))
    for name, (color, mark, label) in LOOKS.items():
        draws = scores[name]
        ax.plot(rounds, np.median(draws, 1), mark, color=COLORS[color], label=label)
        if name != "mean image":
            for r, values in zip(rounds, draws, strict=True):
                ax.plot([r] * len(values), values, ".", color=COLORS[color], alpha=0.6)
    ax.set(xscale="log", xlabel="encodings per image, E/n", ylabel="PSNR (dB)", ylim=(0, 155))
    ax.set_xticks(rounds, list(map(str, rounds)))
    ax.minorticks_off()
    ax.legend(fontsize=10, loc="upper left")
    return fig


def transformed(columns: Sequence[tuple[str, Tensor, Tensor, Tensor]]) -> Figure:
    """ATS: for each (policy, x, x′, undone) a column of three images."""
    fig, axes = plt.subplots(3, len(columns), figsize=(5.2, 3.6))
    for axs, (policy, *images) in zip(axes.T, columns, strict=True):
        for ax, image in zip(axs, images, strict=True):
            show_image(ax, image)
        axs[0].set_title(policy, fontsize=10)
    for ax, name in zip(axes[:, 0], ("private x", "trained\non: x′", "undone"), strict=True):
        ax.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
    return fig
