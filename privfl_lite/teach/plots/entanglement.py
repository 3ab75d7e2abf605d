"""Plots and look-ups of "Borrowing someone else's update: Model Entanglement"."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ...pictures import unpack
from ...studies import STUDIES
from ..figures import COLORS, show_image
from ..tables import Spread

BLUE = (0.0, 0.447, 0.698)  # the guard's columns


@lru_cache
def study(name: str) -> dict:
    """A stored study of this chapter: "attack" or "training"."""
    return STUDIES[f"entanglement/{name}"].show()


def find(name: str, **want: Any) -> list[dict[str, Any]]:
    """The cells of a stored study that have these settings."""
    return [c for c in study(name)["cells"] if all(c.get(k) == v for k, v in want.items())]


def variant(name: str, attack: str) -> dict[str, Any]:
    """One attack on one variant of the defense."""
    (cell,) = find("attack", part="variant", variant=name, attack=attack)
    return cell


def run(method: str, seed: int = 0, split: str = "dirichlet") -> dict[str, Any]:
    """One training."""
    (cell,) = find("training", part="train", split=split, method=method, seed=seed)
    return cell


def spread(cell: dict[str, Any], key: str = "psnr") -> Spread:
    """A stored mean with its 95 % interval."""
    return Spread(cell[f"{key}_mean"], *cell[f"{key}_interval"])


def frame(weight: Tensor, mask: Tensor, images: dict[str, tuple[Tensor, str]]) -> Figure:
    """The last layer as sent (m, R), the guard's entries blue; below, named images and scores."""
    fig = plt.figure(figsize=(4.5, 3.1), dpi=110)
    parts: Any = fig.subfigures(2, 1, height_ratios=(1.15, 2))
    top, bottom = parts
    _layer(top.subplots(), weight, mask)
    for ax, (name, (image, score)) in zip(
        bottom.subplots(1, len(images)), images.items(), strict=True
    ):
        show_image(ax, image, name)
        ax.set_xlabel(score, color=COLORS["attack"], fontsize=11)
    return fig


def _layer(ax: Axes, weight: Tensor, mask: Tensor) -> None:
    size = weight.abs()
    gray = 1 - 0.75 * (size / size.quantile(0.95)).clamp(max=1)[..., None].expand(-1, -1, 3)
    blue = torch.tensor(BLUE) * 0.65 + 0.35 * gray
    ax.imshow(torch.where(mask[..., None], blue, gray).numpy(), aspect="auto")
    ax.set_title(f"last layer as sent: {mask.float().mean():.0%} is the guard's", fontsize=11)
    ax.set(xlabel="unit j", ylabel="class", yticks=[0, 9], xticks=[0, 200, 400, 587])
    ax.grid(False)


def separable() -> Figure:
    """Fig. 1b: digits 1 and 5 in two principal components of pixels and representations."""
    (cell,) = find("training", part="figure 1")
    fig, axes = plt.subplots(1, 3, figsize=(5.9, 2.8))
    for ax, name in zip(axes, ("pixels", "untrained, sigmoid", "trained"), strict=True):
        m = cell["maps"][name]
        spots, digit = np.array(m["pca"]), np.array(m["digit"])
        for d, color, mark in ((1, "defense", "o"), (5, "attack", "x")):
            ax.scatter(*spots[digit == d].T, s=12, marker=mark, color=COLORS[color], label=d, lw=1)
        ax.set(title=name.replace(", ", ",\n"), xlabel="PC 1", xticks=[], yticks=[])
        ax.title.set_fontsize(11)
    axes[0].set_ylabel("PC 2")
    handles, names = axes[0].get_legend_handles_labels()
    names = [f"digit {n}" for n in names]
    fig.legend(handles, names, loc="outside lower center", ncols=2, handletextpad=0.1)
    return fig


def figure_6() -> Figure:
    """Private digits, the guard's, and what three attacks find."""
    by = {c["defense"]: c for c in find("attack", part="table")}
    rows = {
        "private": by["Entangle"]["pictures_private"],
        "guard's": by["Entangle"]["pictures_guard"],
        "GS,\nno defense": by["none"]["pictures"],
        "GS,\nEntangle": by["Entangle"]["pictures"],
        "guard's\nleft out": variant("β 0.7", "guard's upload")["pictures"],
    }
    fig, axes = plt.subplots(5, 4, figsize=(4.9, 5.2))
    for axs, (name, pictures) in zip(axes, rows.items(), strict=True):
        for ax, picture in zip(axs, pictures, strict=True):
            show_image(ax, unpack(picture))
        axs[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
    return fig


def attackers() -> Figure:
    """PSNR of three attackers over β: each digit a dot, the mean a line, the blind guess dashed."""
    betas = (0.9, 0.7, 0.5, 0.3)
    fig, ax = plt.subplots(figsize=(5.4, 3.4))
    looks = {
        "guard's upload": ("guard's left out", "attack", "o"),
        "GS": ("GS, all entries", "defense", "s"),
        "iDLG": ("L-BFGS, all entries", "good", "^"),
    }
    for shift, (attack, (label, color, mark)) in zip((0, -0.1, 0.1), looks.items(), strict=True):
        cells = [variant(f"β {b}", attack) for b in betas]
        at = np.arange(len(betas)) + shift
        for x, c in zip(at, cells, strict=True):
            ax.plot([x] * len(c["psnr"]), c["psnr"], mark, ms=3, alpha=0.35, color=COLORS[color])
        means = [c["psnr_mean"] for c in cells]
        ax.plot(at, means, mark + "-", color=COLORS[color], label=label)
    (blind,) = find("attack", part="blind")
    ax.axhline(blind["psnr_mean"], color="black", ls="--", lw=1, label="blind guess")
    ax.set_xticks(range(len(betas)), [str(b) for b in betas])
    ax.set(xlabel="β (to the right more is the guard's)", ylabel="PSNR (dB)")
    ax.legend(fontsize=9, loc="center", bbox_to_anchor=(0.5, 0.38), ncols=2)
    return fig


def accuracy() -> Figure:
    """Test accuracy over rounds: Fig. 4 above, Fig. 5a below."""
    fig, axes = plt.subplots(2, 1, figsize=(5.4, 6.0), sharex=True)
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.85, 5))
    fedavg: dict[str, Any] = {"color": "black", "ls": "--"}
    betas = {f"β {b}": {"color": c} for b, c in zip((0.1, 0.3, 0.5, 0.7, 0.9), shades, strict=True)}
    others: dict[str, dict[str, Any]] = {
        "FedAvg": fedavg,
        "β 0.7": {"color": COLORS["defense"]},
        "CA-FL": {"color": COLORS["warm"], "marker": "s", "ms": 4},
        "POGZ-FL": {"color": COLORS["attack"], "marker": "^", "ms": 4},
    }
    for ax, looks in zip(axes, ({**betas, "FedAvg": fedavg}, others), strict=True):
        for name, look in looks.items():
            got = run(name)["accuracy"]
            ax.plot(range(1, len(got) + 1), got, label=name, **look)
        ax.set(ylabel="test accuracy", ylim=(0, 1))
        low = 0.18 if ax is axes[1] else 0.0  # above POGZ-FL's curve
        ax.legend(fontsize=9, loc="lower right", ncols=2, bbox_to_anchor=(1, low))
    axes[1].set(xlabel="round", xticks=range(0, 21, 5))
    return fig
