"""Figures and measurements of the chapter "Federated learning in one page of code"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from ...client import Plan, share
from ...data import load
from ...federated import FedAvg
from ...models import build
from ...wire import Upload
from ..figures import COLORS

# --- two clients, two valleys ---

BENDS = np.array([[1.0, 0.12], [0.15, 1.0]])  # curvature of each client's loss, by coordinate
WANTS = np.array([[-1.1, -0.7], [1.1, 0.8]])  # its lowest point
START, RATE = np.array([1.5, -1.2]), 0.5
GOAL = (BENDS * WANTS).sum(0) / BENDS.sum(0)  # the lowest point of the pooled loss


def walk(theta: np.ndarray, k: int, steps: int) -> np.ndarray:
    """(steps + 1, 2): the path of client k from the server's weights."""
    path = [theta]
    for _ in range(steps):
        path.append(path[-1] - RATE * BENDS[k] * (path[-1] - WANTS[k]))
    return np.array(path)


def valley_rounds(steps: int, rounds: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The server's points (rounds + 1, 2), and both clients' paths in the last round."""
    points, paths = [START], []
    for _ in range(rounds):
        paths = [walk(points[-1], k, steps) for k in range(2)]
        points.append(np.mean([path[-1] for path in paths], axis=0))
    return np.array(points), paths


def valley_frame(steps: int, rounds: int) -> Figure:
    """Contours of both losses, the last round's paths, and the server's way."""
    points, paths = valley_rounds(steps, rounds)
    fig, ax = plt.subplots(figsize=(4.6, 3.5))
    x, y = np.meshgrid(np.linspace(-1.8, 1.9, 90), np.linspace(-1.5, 1.5, 80))
    for k, color in enumerate((COLORS["defense"], COLORS["accent"])):
        a, c = BENDS[k], WANTS[k]
        height = a[0] * (x - c[0]) ** 2 + a[1] * (y - c[1]) ** 2
        ax.contour(x, y, height, levels=(0.05, 0.3, 0.9), colors=color, alpha=0.5, linewidths=1)
        ax.plot(*paths[k].T, ".-", color=color, ms=4, lw=1, label=f"client {k + 1}, last round")
    ax.plot(*points.T, "o-", color=COLORS["attack"], ms=4, label="server")
    ax.plot(*GOAL, "*", color="black", ms=13, label="lowest pooled loss")
    ax.grid(False)
    ax.set(xticks=(), yticks=(), xlabel="first weight", ylabel="second weight")
    fig.legend(loc="outside upper center", fontsize=10, ncol=2)
    return fig


def valley_words(steps: int, rounds: int) -> str:
    points, _ = valley_rounds(steps, rounds)
    gap = float(np.linalg.norm(points[-1] - GOAL))
    plural = "" if rounds == 1 else "s"
    return f"{steps} local steps, {rounds} round{plural}: the server is {gap:.2f} from the star."


# --- updates ---


def vectors(upload: Upload) -> Tensor:
    """All tensors of each upload as one vector: (clients, weights)."""
    return torch.cat([t.flatten(1) for t in upload.tensors.values()], dim=1)


def joined(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The data of all clients, one after the other."""
    x, y = zip(*parts, strict=True)
    return torch.cat(x), torch.cat(y)


def drift(parts: Sequence, steps: Sequence[int], eta: float, batch_size: int) -> Tensor:
    """(steps, clients): the cosine of each update with its negative first gradient."""
    model, (x, y) = build("mlp", load("mnist"), seed=0), joined(parts)
    each, rows = len(parts[0][0]), []
    g = vectors(share(model, x, y, each=each))
    for s in steps:
        plan = Plan(eta=eta, steps=s, batch_size=batch_size)
        rows.append(cosine_similarity(vectors(share(model, x, y, each=each, plan=plan)), -g))
    return torch.stack(rows)


def crowds(deltas: Tensor, sizes: Sequence[int]) -> list[dict]:
    """For crowds of each size: cosines of the mean with members and others, and who is nearest."""
    rows, count = [], len(deltas)
    for size in sizes:
        means = deltas.view(count // size, size, -1).mean(1)  # (crowds, d)
        c = normalize(deltas) @ normalize(means).T  # (clients, crowds)
        home = torch.arange(count) // size
        part = home[:, None] == torch.arange(count // size)
        own, other = float(c[part].mean()), float(c[~part].mean())
        rows.append(
            {
                "clients in the mean": str(size),
                "cosine with those who took part": own,
                "with those who did not": other,
                "difference": own - other,
                "own crowd is nearest": float((c.argmax(1) == home).float().mean()),
                "by chance": size / count,
            }
        )
    return rows


# --- even and uneven data ---

SPLITS = {
    "IID": ("iid", 1.0),
    "Dirichlet, α = 1": ("dirichlet", 1.0),
    "Dirichlet, α = 0.1": ("dirichlet", 0.1),
    "two shards": ("shards", 1.0),
}
TINTS = dict(zip(SPLITS, ("good", "defense", "warm", "attack"), strict=True))
SEEDS = range(3)
Curves = Mapping[tuple[str, int], Tensor]  # (split, epochs) -> (seeds, rounds)


def deal(split: str, seed: int) -> list[tuple[Tensor, Tensor]]:
    """4,000 digits dealt to 100 clients, 40 each."""
    how, alpha = SPLITS[split]
    return load("mnist").clients(100, how, per_client=40, alpha=alpha, seed=seed)


def accuracies(split: str, plan: Plan, rounds: int = 30, sent: str = "update") -> Tensor:
    """(seeds, rounds): test accuracy after every round with 10 of 100 clients."""
    digits, found = load("mnist"), []
    test = (digits.x_test, digits.y_test)
    for seed in SEEDS:
        first = build("mlp", digits, seed=seed)
        options: dict[str, Any] = {"per_round": 10, "share": sent, "seed": seed, "show": False}
        run = FedAvg(first, deal(split, seed), rounds, plan, test, **options)
        found.append([report.accuracy for report in run])
    return torch.tensor(found)


def rounds_to(rows: Tensor, target: float = 0.8) -> int:
    """Median over seeds of the first round there (never: one too many)."""
    reached = torch.nn.functional.pad((rows >= target).int(), (0, 1), value=1)
    return int((reached.argmax(1) + 1).median())


def show_holdings(ax: Axes, split: str) -> None:
    """How many images of each digit every tenth client holds."""
    held = [y.bincount(minlength=10) for _, y in deal(split, 0)[::10]]
    ax.imshow(torch.stack(held, 1), cmap="Blues", vmin=0, vmax=40, aspect="auto")
    ax.grid(False)
    ax.set_xticks(range(0, 10, 3), [str(k) for k in range(0, 100, 30)])
    ax.set_yticks(range(0, 10, 3))
    ax.set(xlabel="client", ylabel="digit")


def show_curve(ax: Axes, curves: Curves, split: str, epochs: int, color: str = "") -> None:
    """Mean over seeds, and a band from the lowest to the highest seed."""
    rows, color = 100 * curves[split, epochs], color or COLORS[TINTS[split]]
    at = range(1, rows.shape[1] + 1)
    ax.plot(at, rows.mean(0), color=color, label=split, lw=2)
    ax.fill_between(at, rows.min(0).values, rows.max(0).values, color=color, alpha=0.2, lw=0)
    ax.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100), xlim=(1, 30))


def split_frame(curves: Curves, split: str, epochs: int) -> Figure:
    fig, (top, low) = plt.subplots(2, 1, figsize=(4.6, 5), height_ratios=(1, 1.3))
    show_holdings(top, split)
    top.set_title("what every tenth client holds", fontsize=11)
    for other in SPLITS:
        if other != split:
            show_curve(low, curves, other, epochs, "lightgray")
    show_curve(low, curves, split, epochs)
    low.set_title(f"{split}, local epochs E = {epochs}", fontsize=11)
    return fig


def splits_figure(curves: Curves) -> Figure:
    """All splits on one sheet: what clients hold, and accuracy for one and five epochs."""
    fig, axes = plt.subplot_mosaic(
        "ab;cd;11;55", figsize=(5.2, 8.4), height_ratios=(1, 1, 1.5, 1.5)
    )
    for key, split in zip("abcd", SPLITS, strict=True):
        show_holdings(axes[key], split)
        axes[key].set_title(split, fontsize=11)
    for epochs in (1, 5):
        ax = axes[str(epochs)]
        for split in SPLITS:
            show_curve(ax, curves, split, epochs)
        ax.set_title(f"local epochs E = {epochs}", fontsize=11)
        ax.legend(loc="lower right", fontsize=10)
    return fig


def cosines_figure(updates: Mapping[str, Tensor]) -> Figure:
    """Cosines between all pairs of clients, and cosines and lengths for each split."""
    others = ~torch.eye(100, dtype=torch.bool)
    cosines = {s: normalize(u) @ normalize(u).T for s, u in updates.items()}
    fig, axes = plt.subplots(2, 2, figsize=(5.2, 5.2), height_ratios=(1.25, 1))
    for ax, split in zip(axes[0], ("IID", "two shards"), strict=True):
        shown = ax.imshow(cosines[split], cmap="PuOr", vmin=-1, vmax=1, interpolation="nearest")
        ax.grid(False)
        ax.set_title(split, fontsize=11)
        ax.set(xticks=(0, 50, 99), yticks=(0, 50, 99), xlabel="client")
    axes[0, 0].set_ylabel("client, by digits held")
    fig.colorbar(shown, ax=axes[0], label="cosine", shrink=0.85)
    _boxes(axes[1, 0], [cosines[s][others] for s in SPLITS], "cosine of a pair")
    _boxes(axes[1, 1], [u.norm(dim=1) for u in updates.values()], "length of Δ")
    return fig


def _boxes(ax: Axes, values: Sequence[Tensor], name: str) -> None:
    look: dict[str, Any] = {
        "whis": (5, 95),
        "showfliers": False,
        "patch_artist": True,
        "widths": 0.6,
    }
    boxes = ax.boxplot([v.numpy() for v in values], **look)
    for patch, line, split in zip(boxes["boxes"], boxes["medians"], SPLITS, strict=True):
        patch.set(facecolor=COLORS[TINTS[split]], alpha=0.5)
        line.set_color("black")
    ax.set_xticks(range(1, 5), ("IID", "α=1", "α=0.1", "shards"), fontsize=10, rotation=30)
    ax.set_ylabel(name)
