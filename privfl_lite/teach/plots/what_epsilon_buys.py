"""Figures of the chapter "What ε buys": three scales on one axis, bounds, rounds, accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...pictures import unpack
from ...privacy import analytic_gaussian_epsilon, success_bound
from ..figures import COLORS, show_image

LOW, HIGH = 6e-4, 15  # noise multipliers on the common axis
ATTACKS = {  # (network, attack) in the stored study: name, color, mark
    ("mlp", "likelihood"): ("MLP, likelihood", "attack", "o-"),
    ("mlp", "cosine"): ("MLP, cosine (GS)", "warm", "s--"),
    ("lenet", "descent"): ("LeNet, L-BFGS", "accent", "^:"),
}


def bound(kappa: float, sigma: np.ndarray | float, rounds: int = 1) -> np.ndarray:
    """No attack succeeds more often, for each of these multipliers."""
    return np.vectorize(success_bound, otypes=[float])(kappa, sigma, rounds=rounds)


def pick(cells: Sequence[dict], net: str, attack: str) -> list[dict]:
    """The stored cells of a network and an attack: one round, clip 1."""
    want = {"net": net, "attack": attack, "clip": 1.0, "rounds": 1}
    return [c for c in cells if all(c[k] == v for k, v in want.items())]


def one_axis(cells: Sequence[dict], named: Mapping[float, float], candidates: int) -> Figure:
    """What matching rebuilds, how often a list names the digit, and ε, over one axis of noise."""
    ratios = {"height_ratios": [0.45, 1, 1, 1]}
    fig, axes = plt.subplots(4, 1, figsize=(5.2, 5.5), sharex=True, gridspec_kw=ratios)
    _strip(axes[0], pick(cells, "mlp", "likelihood"))
    for key, (name, color, mark) in ATTACKS.items():
        some = [c for c in pick(cells, *key) if c["sigma"] >= 1e-3]
        sigma, mean = ([c[k] for c in some] for k in ("sigma", "mean"))
        ends = np.abs(np.array([c["interval"] for c in some]).T - mean)
        axes[1].errorbar(
            sigma, mean, ends, fmt=mark, color=COLORS[color], ms=4, capsize=2, label=name
        )
    axes[1].set(ylabel="PSNR (dB)", ylim=(0, 45))
    fine = np.geomspace(LOW, HIGH, 200)
    axes[2].plot(fine, bound(1 / candidates, fine), color=COLORS["defense"], label="bound for all")
    axes[2].plot(*zip(*named.items(), strict=True), "o", color=COLORS["attack"], label="nearest")
    axes[2].axhline(1 / candidates, color="gray", ls=":", label="guessing")
    axes[2].set(ylabel=f"named\namong {candidates}", ylim=(-0.03, 1.05))
    axes[3].plot(fine, [analytic_gaussian_epsilon(s) for s in fine], color=COLORS["defense"])
    axes[3].axhline(1, color="gray", ls=":")
    axes[3].set(xscale="log", yscale="log", ylabel="ε (δ = 1e-5)", xlim=(LOW, HIGH))
    axes[3].set(xlabel="noise multiplier σ (noise σC on every entry)", yticks=[1, 1e2, 1e4])
    for ax, where in ((axes[1], "upper right"), (axes[2], "lower left")):
        ax.legend(fontsize=9, loc=where)
    return fig


def _strip(ax: Axes, cells: Sequence[dict]) -> None:
    """The first rebuilt digit of each cell, above its σ."""
    ax.set_axis_off()
    span = np.log10(HIGH / LOW)
    for c in cells:
        at = np.log10(c["sigma"] / LOW) / span
        small = ax.inset_axes((at - 0.052, 0.0, 0.104, 1.0))
        show_image(small, unpack(c["pictures"][0]))
    ax.set_title("what gradient matching rebuilds", fontsize=11)


def rebuilt(cell: dict, candidates: int) -> Figure:
    """Three rebuilt digits of a cell, with PSNR, ε and the bound on naming."""
    fig, axes = plt.subplots(1, 3, figsize=(3.6, 1.9))
    for ax, picture in zip(axes, cell["pictures"], strict=True):
        show_image(ax, unpack(picture))
    low, high = cell["interval"]
    most = bound(1 / candidates, cell["sigma"], cell["rounds"])
    first = f"PSNR {cell['mean']:.0f} dB ({low:.0f} to {high:.0f}), ε = {cell['epsilon']:,.0f}"
    fig.suptitle(f"{first}\nnamed among {candidates}: at most {most:.1%}", fontsize=10)
    return fig


def games(kappas: Mapping[str, float]) -> Figure:
    """The bound against σ for games with different blind guesses; ε on a second axis."""
    fig, ax = plt.subplots(figsize=(5.2, 3.8))
    sigma = np.geomspace(0.1, 10, 300)
    marks = ("-", "--", "-.", ":")
    colors = ("attack", "warm", "defense", "good")
    for (name, kappa), line, color in zip(kappas.items(), marks, colors, strict=True):
        ax.plot(sigma, bound(kappa, sigma), ls=line, color=COLORS[color], lw=2, label=name)
    ax.set(xscale="log", xlabel="noise multiplier σ, one release", ylabel="success at most")
    ax.set(ylim=(0, 1.02), xlim=(0.1, 10))
    top = ax.twiny()
    top.set(xscale="log", xlim=ax.get_xlim(), xlabel="ε at δ = 1e-5")
    ticks = [0.1, 0.3, 1, 3, 10]
    top.set_xticks(ticks, [f"{analytic_gaussian_epsilon(s):.2g}" for s in ticks])
    top.set_xticks([], minor=True)
    top.grid(False)
    ax.legend(fontsize=10)
    return fig


def by_noise_left(cells: Sequence[dict]) -> Figure:
    """PSNR against σ/√T: rounds with more noise fall on the curve of one round with less."""
    fig, ax = plt.subplots(figsize=(5.2, 3.4))
    looks = {1: ("o", "attack"), 8: ("s", "defense"), 64: ("^", "good")}
    for rounds, (mark, color) in looks.items():
        some = [c for c in cells if c["rounds"] == rounds and c["clip"] == 1.0]
        left = [c["sigma"] / rounds**0.5 for c in some]
        name = f"{rounds} round{'s' * (rounds > 1)}"
        ax.plot(left, [c["mean"] for c in some], mark, color=COLORS[color], ls="", label=name)
    ax.set(xscale="log", xlabel="noise left after averaging, σ/√T", ylabel="PSNR (dB)")
    ax.legend()
    return fig


def accuracies(sigmas: Sequence[float], runs: Mapping[str, Sequence]) -> Figure:
    """Accuracy against σ: mean, least and most of a few seeds, for noise here and noise there."""
    fig, ax = plt.subplots(figsize=(4.8, 3.2))
    for (name, values), mark, color in zip(
        runs.items(), ("o-", "s--"), ("attack", "defense"), strict=True
    ):
        v = np.array(values)  # (σ, seeds)
        ends = [v.mean(1) - v.min(1), v.max(1) - v.mean(1)]
        ax.errorbar(sigmas, v.mean(1), ends, fmt=mark, color=COLORS[color], capsize=3, label=name)
    ax.set(xscale="log", xlabel="noise multiplier σ (more is more private)", ylabel="accuracy")
    ax.set(ylim=(0, 1))
    ax.legend()
    return fig
