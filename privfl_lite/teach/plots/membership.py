"""Figures, panels and the gradient's witness of *Was I in the training set?*"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri
from torch import Tensor

from ... import metrics
from ...gradients import gradient_function, stateless, weights
from ...models import Net
from ...privacy import analytic_gaussian_delta
from ...studies import STUDIES
from ...studies.membership.attack import GRID
from ..figures import COLORS
from ..panel import Panel

LOOKS: dict[str, dict[str, Any]] = {
    "members": {"color": COLORS["attack"], "histtype": "stepfilled", "alpha": 0.45},
    "nonmembers": {"color": COLORS["truth"], "histtype": "step", "ls": "--", "lw": 1.5},
}
VICTIMS = {
    "global model, even clients": ("iid", "global"),
    "global model, uneven clients": ("dirichlet", "global"),
    "one client's model, even": ("iid", "local"),
    "one client's model, uneven": ("dirichlet", "local"),
}
Scores = Mapping[tuple[str, str, int], tuple[Tensor, Tensor]]


def each_gradient(net: Net, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of every image by itself, as one row: (N, weights)."""
    g, theta = gradient_function(stateless(net, "eval")), weights(net)
    rows = []
    for xs, ys in zip(x.split(50), y.split(50), strict=True):
        parts = g(theta, xs[:, None], ys[:, None])
        rows.append(torch.cat([t.flatten(1) for t in parts.values()], 1))
    return torch.cat(rows)


class Witness:
    """Scores candidates' gradients against an upload, with gradients of the server's own images.

    ``plain`` and ``informed`` give what is multiplied with (upload − μ) (prop-gradient-test).
    """

    def __init__(self, own: Tensor, share: float = 1e-4):
        self.mu = own.mean(0)
        self.centered = own - self.mu  # (n, weights)
        K = (self.centered @ self.centered.T).double()  # its eigenvalues are those of n Σ
        self.d_eff = float(K.trace() ** 2 / K.square().sum())
        ridge = share * K.trace() * torch.eye(len(K), dtype=K.dtype)
        self.inner = torch.linalg.inv(K + ridge).float()

    def plain(self, g: Tensor) -> Tensor:
        return g - self.mu

    def informed(self, g: Tensor) -> Tensor:
        """Whitened by Woodbury's identity, and scaled: large gradients do not win by size."""
        v = g - self.mu
        white = v - (v @ self.centered.T) @ self.inner @ self.centered
        return white / (white * v).sum(1, keepdim=True).clamp_min(1e-20).sqrt()


def two_histograms(ax: Axes, members: Tensor, others: Tensor, bins: np.ndarray) -> float:
    """Shares of members and nonmembers by score; returns the AUC."""
    for who, values in (("members", members), ("nonmembers", others)):
        share = np.full(len(values), 1 / len(values))
        inside = values.clamp(float(bins[0]), float(bins[-1])).numpy()
        ax.hist(inside, list(bins), weights=share, label=who, **LOOKS[who])
    ax.set_ylabel("share of group")
    return metrics.auc(members, others)


def two_witnesses(labels: tuple[Tensor, Tensor], cosines: tuple[Tensor, Tensor]) -> Figure:
    """One federated model, asked through its labels and through one upload."""
    fig, axes = plt.subplots(2, 1, figsize=(5.0, 4.6), gridspec_kw={"hspace": 0.12})
    area = two_histograms(axes[0], *labels, np.linspace(0, 6, 31))
    axes[0].set_title(f"ask the model for labels: AUC {area:.2f}", fontsize=11)
    axes[0].set_xlabel("distance to the decision boundary (L2)")
    axes[0].legend(loc="upper right", fontsize=10)
    area = two_histograms(axes[1], *cosines, np.linspace(-0.6, 1, 33))
    axes[1].set_title(f"look at one upload of four images: AUC {area:.2f}", fontsize=11)
    axes[1].set_xlabel("cosine of a candidate's own gradient and the upload")
    return fig


def distances(found: Mapping[str, tuple[Tensor, Tensor]]) -> Figure:
    """Distances to the boundary of members and nonmembers, one panel a model."""
    fig, axes = plt.subplots(len(found), 1, figsize=(5.0, 2.3 * len(found)))
    for ax, (name, (members, others)) in zip(axes, found.items(), strict=True):
        area = two_histograms(ax, members, others, np.linspace(0, 6, 31))
        ax.set_title(f"{name} model: AUC {area:.2f}", fontsize=11)
    axes[-1].set_xlabel("distance to the boundary (L2, pixels in [0, 1])")
    axes[0].legend(loc="upper right", fontsize=10)
    return fig


def witness_panel(scores: Scores) -> Panel:
    """Network, test and batch size: scores of members and nonmembers against uploads.

    ``scores``: (network, test, batch) -> scores of members and of nonmembers, in standard
    deviations of the nonmembers'.
    """
    nets, tests, sizes = (list(dict.fromkeys(key[i] for key in scores)) for i in range(3))

    def frame(network: str, test: str, batch: int) -> Figure:
        fig, ax = plt.subplots(figsize=(4.4, 2.7))
        area = two_histograms(ax, *scores[network, test, batch], np.linspace(-4, 12, 33))
        ax.set_title(f"AUC {area:.2f}", fontsize=12)
        ax.set_xlabel("score, in deviations of a nonmember's")
        ax.legend(loc="upper right", fontsize=10)
        return fig

    def words(network: str, test: str, batch: int) -> str:
        area = metrics.auc(*scores[network, test, batch])
        what = f"Scores of the {test} test on the network {network}, {batch} images an upload"
        return f"{what}: AUC {area:.2f}."

    axes = {"network": nets, "test": tests, "batch": sizes}
    start = {"network": nets[0], "test": tests[0], "batch": 16}
    return Panel(frame, axes, title="Was it in this upload?", alt=words, start=start)


def by_batch(
    aucs: Mapping[tuple[str, str, int], Sequence[float]],
    d_eff: Mapping[str, float],
    sizes: Sequence[int],
) -> Figure:
    """AUC against the batch size, plain, informed and predicted; one panel a network."""
    fig, axes = plt.subplots(2, 1, figsize=(4.8, 5.6), sharex=True)
    for ax, name in zip(axes, d_eff, strict=True):
        for kind, look, mark in (("informed", "attack", "s"), ("plain", "defense", "o")):
            middle = [float(np.mean(aucs[name, kind, B])) for B in sizes]
            ax.plot(sizes, middle, mark + "-", color=COLORS[look], label=f"{kind} server")
        guess = ndtr(np.sqrt(d_eff[name] / (2 * np.array(sizes))))
        ax.plot(sizes, guess, "--", color=COLORS["truth"], label="prediction, plain")
        ax.set(xscale="log", ylabel="AUC", ylim=(0.45, 1.03), title=name)
        ax.axhline(0.5, color="gray", lw=1)
    axes[0].legend(loc="lower left", fontsize=10)
    axes[1].set_xticks(sizes, [str(B) for B in sizes])
    axes[1].set_xlabel("images behind one upload, B")
    return fig


def tents(sigma: float = 1.0) -> Figure:
    """The exact ROC curve of one number with Gaussian noise, under its (ε, δ) bounds."""
    fpr = np.linspace(1e-6, 1 - 1e-6, 400)
    exact = ndtr(ndtri(fpr) + 1 / sigma)
    fig, ax = plt.subplots(figsize=(4.6, 3.6))
    ax.plot(fpr, exact, color=COLORS["attack"], lw=2.5, label="the best attack, exactly")
    for eps, line in ((0.0, "-"), (0.5, "--"), (1.5, ":")):
        delta_dp = analytic_gaussian_delta(sigma, eps)
        two = 1 - np.exp(-eps) * (1 - delta_dp - fpr)
        bound = np.minimum(1, np.minimum(np.exp(eps) * fpr + delta_dp, two))
        ax.plot(fpr, bound, line, color=COLORS["defense"], label=f"bound at ε = {eps}")
    ax.plot([0, 1], [0, 1], color="gray", lw=1)
    ax.set(xlabel="false positive rate", ylabel="true positive rate", ylim=(0, 1.02))
    ax.legend(fontsize=10)
    return fig


def stored(victim: str, attack: str, round: int) -> dict:
    """What the study has of an attack ("gap", "loss", "boundary") on a victim of VICTIMS."""
    result = STUDIES["membership/attack"].show()
    name = f"boundary resize {result['settings']['budget']}" if attack == "boundary" else attack
    want = (*VICTIMS[victim], "mnist", round)
    (cell,) = (c for c in result["cells"] if (c["how"], c["target"], c["data"], c["round"]) == want)
    return cell["attacks"][name]


def _curve(ax: Axes, known: Mapping[str, Any]) -> None:
    tpr, low, high = (np.array(known["roc"][k].split(), float) for k in ("tpr", "low", "high"))
    ax.fill_between(GRID, low, high, color=COLORS["light"], alpha=0.5, lw=0)
    ax.plot(GRID, tpr, color=COLORS["attack"], lw=2)
    ax.plot([0, 1], [0, 1], "--", color="gray", lw=1)
    ends = known["auc_interval"]
    ax.set_title("AUC {:.3f}  [{:.3f}, {:.3f}]".format(known["auc"], *ends), fontsize=10)
    ax.set(xlabel="false positive rate", ylabel="true positive rate")


def roc_panel(rounds: Sequence[int] = (5, 10, 20, 30)) -> Panel:
    """ROC curves of the stored study with 95 % bands."""

    def frame(victim: str, attack: str, round: int) -> Figure:
        fig, ax = plt.subplots(figsize=(3.4, 3.1))
        _curve(ax, stored(victim, attack, round))
        return fig

    def words(victim: str, attack: str, round: int) -> str:
        known = stored(victim, attack, round)
        low, high = known["auc_interval"]
        what = f"ROC curve of the {attack} attack on the {victim}, round {round}"
        return f"{what}: AUC {known['auc']:.3f}, 95 % interval {low:.3f} to {high:.3f}."

    axes: dict[str, list] = {"victim": list(VICTIMS)}
    axes |= {"attack": ["gap", "loss", "boundary"], "round": list(rounds)}
    start = {"victim": "one client's model, even", "attack": "boundary", "round": rounds[-1]}
    return Panel(frame, axes, title="ROC curves with 95 % bands", alt=words, start=start)


def four_curves(round: int) -> Figure:
    """The boundary attack on the four victims."""
    fig, axes = plt.subplots(2, 2, figsize=(6.0, 5.6), sharex=True, sharey=True)
    for ax, victim in zip(axes.flat, VICTIMS, strict=True):
        _curve(ax, stored(victim, "boundary", round))
        ax.set_title(f"{victim}\n{ax.get_title()}", fontsize=10)
    return fig
