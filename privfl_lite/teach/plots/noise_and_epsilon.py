"""Figures of the chapter "Noise and ε": two worlds, their ratio, odds, tents and accountants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit, logit, ndtr, ndtri
from scipy.stats import norm

from ...privacy import analytic_gaussian_delta, analytic_gaussian_epsilon, gaussian_sigma
from ..figures import COLORS

IN, OUT = COLORS["attack"], COLORS["defense"]  # with your record, without it
LINES = ("-", "--", ":", "-.", (0, (4, 1, 1, 1, 1, 1)))


def two_worlds(sigmas: Sequence[float]) -> Figure:
    """The law of what leaves with and without one record, for growing noise."""
    fig, axes = plt.subplots(len(sigmas), 1, figsize=(5.4, 1.25 * len(sigmas) + 0.5), sharex=True)
    y = np.linspace(-4, 5, 500)
    for ax, sigma in zip(axes, sigmas, strict=True):
        for where, color, name in ((0, OUT, "without you"), (1, IN, "with you")):
            height = norm.pdf(y, where, sigma)
            ax.plot(y, height, color=color, lw=2, label=name)
            ax.fill_between(y, height, color=color, alpha=0.15)
        right, eps = ndtr(1 / (2 * sigma)), analytic_gaussian_epsilon(sigma)
        said = f"σ = {sigma:g}\nbest guess\n{right:.0%} right\nε = {eps:.1f}"
        ax.text(1.02, 0.95, said, transform=ax.transAxes, va="top", fontsize=11)
        ax.set(yticks=[], ylim=(0, None))
        ax.grid(False)
    axes[0].legend(loc="upper left", fontsize=10)
    axes[-1].set_xlabel("what the server sees (along your gradient, in units of C)")
    return fig


def ratio(sigma: float, eps: float) -> Figure:
    """Two Gaussians, one apart, and their ratio; what sticks out above e^ε times is δ."""
    fig, (top, low) = plt.subplots(2, 1, figsize=(4.8, 3.9), sharex=True, height_ratios=[1.4, 1])
    y = np.linspace(-6, 6, 600)
    p, q = norm.pdf(y, 1, sigma), norm.pdf(y, 0, sigma)
    limit = np.exp(eps) * q
    top.plot(y, q, color=OUT, label="without you, q")
    top.plot(y, p, color=IN, label="with you, p")
    top.plot(y, limit, "--", color=OUT, lw=1, label="$e^ε$ q")
    top.fill_between(y, limit, p, where=p > limit, color=IN, alpha=0.4, label="area δ")
    top.set(yticks=[], ylim=(0, 1.15 * p.max()))
    top.legend(fontsize=10, loc="upper left", frameon=True, framealpha=0.9)
    delta_dp, right = analytic_gaussian_delta(sigma, eps), ndtr(1 / (2 * sigma))
    top.set_title(f"δ = {delta_dp:.2g}; best guess right {right:.0%}", fontsize=11)
    low.plot(y, np.exp((2 * y - 1) / (2 * sigma**2)), color="black", lw=2)
    low.axhline(np.exp(eps), color=OUT, ls="--", lw=1)
    low.set(yscale="log", ylim=(1e-3, 1e3), ylabel="ratio p / q", xlabel="what the server sees")
    return fig


def odds(epsilons: Sequence[float]) -> Figure:
    """How sure an attacker can become, against how sure it was before, for pure ε."""
    fig, ax = plt.subplots(figsize=(4.8, 3.4))
    before = np.linspace(0.001, 0.999, 500)
    for eps, line, color in zip(epsilons, LINES, ("good", "defense", "attack"), strict=False):
        after = expit(logit(before) + eps)
        ax.plot(before, after, ls=line, color=COLORS[color], lw=2, label=f"ε = {eps:g}")
    ax.plot([0, 1], [0, 1], color="gray", lw=1)
    ax.set(xlabel="before: probability that you are in", ylabel="after, at most", ylim=(0, 1.02))
    ax.legend(loc="lower right")
    return fig


def tents(sigma: float, epsilons: Sequence[float]) -> Figure:
    """The ROC curve of the best test, and lines e^ε·FPR + δ(ε) that lie above it and touch it."""
    fig, ax = plt.subplots(figsize=(4.8, 3.6))
    fpr = np.linspace(1e-6, 1 - 1e-6, 500)
    curve = ndtr(ndtri(fpr) + 1 / sigma)
    ax.fill_between(fpr, curve, color=IN, alpha=0.1)
    ax.plot(fpr, curve, color=IN, lw=2.5, label="best test, $G_μ$")
    for eps, line in zip(epsilons, LINES[1:], strict=False):
        delta_dp = analytic_gaussian_delta(sigma, eps)
        left, right = np.exp(eps) * fpr + delta_dp, 1 - np.exp(-eps) * (1 - delta_dp - fpr)
        name = f"ε = {eps:g}, δ = {delta_dp:.2g}"
        ax.plot(fpr, np.minimum(1, np.minimum(left, right)), ls=line, color=OUT, label=name)
    ax.plot([0, 1], [0, 1], color="gray", lw=1)
    ax.set(xlabel="false alarms: says “in”, is out", ylabel="hits: says “in”, is in")
    ax.set(ylim=(0, 1.02))
    ax.legend(fontsize=10, loc="lower right")
    return fig


def classical(delta_dp: float = 1e-5) -> Figure:
    """The δ that the classical noise really gives, against the ε that it was made for."""
    fig, ax = plt.subplots(figsize=(4.8, 3.0))
    eps = np.geomspace(0.1, 100, 200)
    true = [max(analytic_gaussian_delta(gaussian_sigma(e, delta_dp), e), 1e-12) for e in eps]
    ax.plot(eps, true, color=IN, lw=2, label="what it gives")
    ax.axhline(delta_dp, color=OUT, ls="--", label="what it promises")
    ax.axvspan(0.1, 1, color="gray", alpha=0.12, label="where it is proven")
    ax.set(xscale="log", yscale="log", xlabel="ε that was asked for", ylabel="δ", xlim=(0.1, 100))
    ax.set(ylim=(1e-12, 3))
    ax.legend(fontsize=10, loc="lower right")
    return fig


def norm_histograms(norms: Mapping[str, np.ndarray], clip: float) -> Figure:
    """How long gradients are, on a log axis, and where a clip would stand."""
    fig, ax = plt.subplots(figsize=(4.8, 2.8))
    edges = np.geomspace(1e-3, 100, 50).tolist()
    for (name, values), color in zip(norms.items(), (OUT, IN), strict=True):
        ax.hist(values, edges, color=color, alpha=0.6, label=name)
    ax.axvline(clip, color="black", ls="--", label="a clip")
    ax.set(xscale="log", xlabel="norm of one digit's gradient", ylabel="digits")
    ax.legend(fontsize=10)
    return fig


def accountants(rounds: Sequence[int], lines: Mapping[str, Sequence[float]]) -> Figure:
    """ε against the number of rounds, one line for each way to count."""
    fig, ax = plt.subplots(figsize=(5.2, 4.4))
    colors = ("truth", "warm", "defense", "good", "attack")
    for (name, eps), line, color in zip(lines.items(), LINES, colors, strict=True):
        ax.plot(rounds, eps, ls=line, marker="o", ms=4, color=COLORS[color], label=name)
    ax.set(xscale="log", yscale="log", xlabel="rounds T", ylabel="ε at δ = 1e-5")
    _legend_above(ax)
    return fig


def _legend_above(ax: Axes) -> None:
    ax.legend(fontsize=10, loc="lower left", bbox_to_anchor=(0, 1))
