"""Plots and look-ups of "ModelCloak II: noise that follows the gradient" (Wei et al. 2023, §V)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri  # Φ and its inverse
from scipy.stats import ncx2, norm
from torch import Tensor

from ...metrics import bootstrap_interval
from ..figures import COLORS, show_image

KINDS = {  # how a row or a curve is called, and its ink
    "none": ("no noise", "truth"),
    "fixed": ("fixed noise", "defense"),
    "follows": ("noise that\nfollows", "attack"),
}
Key = tuple[int, str]  # a round, a kind of noise


def opening(
    rounds: Sequence[int], dB: Mapping[Key, Tensor], found: Mapping[Key, Tensor], which: int
) -> Figure:
    """Above: mean PSNR over the rounds of training. Below: digit ``which`` as it was rebuilt."""
    fig = plt.figure(figsize=(4.8, 4.3), layout="none")
    ax = fig.add_axes((0.23, 0.62, 0.75, 0.36))
    at = np.arange(len(rounds))
    for kind in ("fixed", "follows"):
        name, color = KINDS[kind]
        mean = np.array([dB[r, kind].mean().item() for r in rounds])
        ends = np.array([bootstrap_interval(dB[r, kind]) for r in rounds]).T
        look: dict[str, Any] = {"fmt": "o-", "ms": 4, "capsize": 3, "color": COLORS[color]}
        ax.errorbar(at, mean, np.abs(ends - mean), label=name.replace("\n", " "), **look)
    ax.set(ylabel="PSNR (dB)", ylim=(5, 30), xlim=(-0.5, len(rounds) - 0.5))
    ax.set_xticks(at, [str(r) for r in rounds])
    ax.set_xlabel("rounds of training", labelpad=1)
    ax.legend(fontsize=9, loc="lower left")
    for row, (kind, (name, _)) in enumerate(KINDS.items()):
        y = 0.33 - 0.165 * row
        for i, r in zip(at, rounds, strict=True):
            small = fig.add_axes((0.235 + 0.15 * i, y, 0.14, 0.15))
            show_image(small, found[r, kind][which])
        fig.text(0.21, y + 0.075, name, ha="right", va="center", fontsize=10)
    return fig


def lengths(rounds: Sequence[int], norms: Mapping[int, Tensor], noise: float, d: int) -> Figure:
    """How long gradients and both kinds of noise are; ``noise``: per entry, times the norm."""
    fig, ax = plt.subplots(figsize=(4.8, 3.0))
    at = np.arange(len(rounds))
    middle = np.array([norms[r].median().item() for r in rounds])
    ax.plot(at, middle, "k-o", ms=4, label="gradient S (median)")
    for i, r in zip(at, rounds, strict=True):
        ax.plot([i] * len(norms[r]), norms[r], ".", color="gray", ms=4, zorder=0)
    fixed = noise * d**0.5 * middle[0]
    ax.plot(at, [fixed] * len(at), "-", color=COLORS["defense"], label="fixed noise")
    follows = noise * d**0.5 * middle
    ax.plot(at, follows, "--", color=COLORS["attack"], label="noise that follows")
    ax.set(yscale="log", ylabel="Euclidean length", xlabel="rounds of training")
    ax.set_xticks(at, [str(r) for r in rounds])
    ax.legend(fontsize=10)
    return fig


def two_clients(sigma: float, weights: int, norm_a: float, norm_b: float = 2.0) -> Figure:
    """The length of one upload of two clients, fixed noise σ · norm_b above, σ · own norm below.

    For 100 weights and more the length is nearly normal, and is drawn so.
    """
    fig, axes = plt.subplots(2, 1, figsize=(3.9, 3.7), sharex=True)
    top = sigma * norm_b * weights**0.5
    x = np.linspace(0, 1.35 * top, 1500)
    for ax, rule in zip(axes, ("fixed", "follows"), strict=True):
        for own, ink, name in ((norm_a, "good", "client A"), (norm_b, "accent", "client B")):
            std = sigma * (own if rule == "follows" else norm_b)
            square, spread = own**2 + std**2 * weights, 4 * std**2 * own**2 + 2 * std**4 * weights
            density = norm.pdf(x, square**0.5, (spread / (4 * square)) ** 0.5)
            ls = "-" if own == norm_a else "--"
            ax.plot(x / top, density * top, ls, color=COLORS[ink], label=f"{name}, norm {own:g}")
        ax.set_title(KINDS[rule][0].replace("\n", " "), fontsize=11)
        ax.set_yticks([])
    axes[1].set_xlabel("length of the upload ÷ σC√d")
    axes[0].legend(fontsize=9, loc="upper left")
    return fig


def roc(fpr: np.ndarray, r: float, sigma: float, d: int) -> np.ndarray:
    """TPR of the length test between norms a < b, r = a/b (prop-noise-tells-norm, exactly)."""
    cut = ncx2.isf(fpr, d, 1 / sigma**2)
    return ncx2.sf(r**2 * cut, d, 1 / sigma**2)


def allowed(fpr: float | np.ndarray, sigma: float) -> float | np.ndarray:
    """The largest TPR that a Gaussian release with multiplier σ allows."""
    return ndtr(ndtri(fpr) + 1 / sigma)


def roc_frame(weights: int, gap: str, sigma: float) -> Figure:
    """ROC curve of the length test; ``gap``: how far the two norms are apart, as "10 %"."""
    r, fpr = 1 - float(gap.rstrip(" %")) / 100, np.geomspace(1e-4, 1, 60)
    fig, ax = plt.subplots(figsize=(3.7, 2.9))
    curve = roc(fpr, r, sigma, weights)
    ax.plot(fpr, curve, color=COLORS["attack"], label="noise that follows")
    most = allowed(fpr, sigma)
    ax.plot(fpr, most, color=COLORS["defense"], ls="--", label="most that σ allows")
    ax.plot(fpr, fpr, color="gray", ls=":", label="guessing")
    ax.set(xscale="log", xlabel="false positive rate", ylabel="true positive rate")
    ax.set(ylim=(-0.03, 1.05), xlim=(1e-4, 1))
    one = roc(np.array([0.01]), r, sigma, weights)[0]
    title = f"TPR at 1 % FPR: {one:.2f} (allowed {allowed(0.01, sigma):.2f})"
    ax.set_title(title, fontsize=10)
    ax.legend(fontsize=9, loc="center left")
    return fig


def adaptive(
    typical: Sequence[float], moves: Mapping[str, Sequence[float]], fixed: float
) -> Figure:
    """Clips over the rounds, and the median norm of updates where there is no noise."""
    fig, ax = plt.subplots(figsize=(4.8, 2.9))
    at = range(1, len(typical) + 1)
    ax.plot(at, typical, "k-", label="median norm, no noise")
    for (name, clips), ink in zip(moves.items(), ("defense", "good"), strict=True):
        ax.plot(at, clips[: len(typical)], "o-", ms=3, color=COLORS[ink], label=name)
    ax.axhline(fixed, color="gray", ls=":", label="fixed clip")
    ax.set(yscale="log", xlabel="round", ylabel="clip C, or norm of an update")
    ax.legend(fontsize=9, ncols=2)
    ax.set_ylim(0.05, 8)
    return fig
