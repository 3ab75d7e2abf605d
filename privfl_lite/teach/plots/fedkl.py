"""Plots and rows of "A lock on the gradient: FedKL" (Ren et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ...metrics import as_image, psnr
from ...pictures import unpack
from ...studies import STUDIES
from ..figures import COLORS, show_image
from ..tables import Spread

Run = tuple[Tensor, Tensor]  # images (N, starts, C, H, W) and costs (N, starts)
KEYS = {  # what is put into the last round's model -> its name in the study
    "own key and lock": None,
    "random key, random lock": "random",
    "random key, own trained lock": "wrong key",
    "another client's key, own lock": "other key",
    "γ = β = 0 (released test)": "zero",
}


def cells(study: str, **where: Any) -> list[dict]:
    """The stored cells of ``fedkl/STUDY`` with these settings."""
    found = STUDIES[f"fedkl/{study}"].show()["cells"]
    return [c for c in found if where.items() <= c.items()]


def best(run: Run, starts: int) -> Tensor:
    """Of the first starts the one with the least cost: the attacker's own choice."""
    images, cost = run
    return images[torch.arange(len(images)), cost[:, :starts].argmin(1)]


def digits_in_rows(rows: Mapping[str, Tensor], truth: Tensor) -> Figure:
    """Images (N, C, H, W) in named rows, with their PSNR below unless they are the truth."""
    scores = {n: psnr(as_image(v), truth).tolist() for n, v in rows.items() if v is not truth}
    return scored_rows(rows, scores)


def scored_rows(rows: Mapping[str, Tensor], scores: Mapping[str, Sequence[float]]) -> Figure:
    """Images (N, C, H, W) in named rows, their scores in dB below where there are some."""
    count = max(map(len, rows.values()))
    fig, axes = plt.subplots(len(rows), count, figsize=(4.8, 1.05 * len(rows)))
    for axs, (name, images) in zip(axes, rows.items(), strict=True):
        for i, (ax, image) in enumerate(zip(axs, images, strict=True)):
            show_image(ax, image)
            if name in scores:
                ax.set_xlabel(f"{scores[name][i]:.0f} dB", fontsize=10, labelpad=1)
        axs[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
    return fig


def knows_frame(run: Run, truth: Tensor, starts: int) -> Figure:
    """The truth, what the attacker keeps after some starts, and the cost of every start."""
    now = best(run, starts)
    fig = plt.figure(figsize=(4.4, 4.4), layout="constrained")
    grid = fig.add_gridspec(3, len(truth), height_ratios=(1, 1, 1.3))
    for i, value in enumerate(psnr(as_image(now), truth)):
        show_image(fig.add_subplot(grid[0, i]), truth[i])
        ax = fig.add_subplot(grid[1, i])
        show_image(ax, now[i])
        ax.set_xlabel(f"{value:.0f} dB", fontsize=11)
    _costs(fig.add_subplot(grid[2, :]), run[1][:, :starts].clamp(min=1e-12))
    return fig


def _costs(ax: Axes, tried: Tensor) -> None:
    """Each start's cost (N, starts); the one that is kept is orange."""
    for i, costs in enumerate(tried):
        ax.plot([i] * len(costs), costs, "o", color=COLORS["light"], ms=6)
        ax.plot(i, costs.min(), "o", color=COLORS["attack"], ms=8)
    ax.set(yscale="log", ylim=(1e-13, 10), ylabel="attacker's cost")
    ax.set_xticks(range(len(tried)), [f"digit {i}" for i in range(len(tried))])


def rates(rows: Mapping[str, dict]) -> Figure:
    """Share of rebuilt images with its interval: raw (filled) and up to contrast (open)."""
    fig, ax = plt.subplots(figsize=(4.8, 0.33 * len(rows) + 0.9))
    at = np.arange(len(rows))[::-1]
    for c, y in zip(rows.values(), at, strict=True):
        for score, up, ink, face in (
            (c, 0.13, "attack", COLORS["attack"]),
            (c["fit"], -0.13, "defense", "white"),
        ):
            share, (low, high) = score["success"] / c["images"], score["success_interval"]
            ax.plot([low, high], [y + up] * 2, "-", color=COLORS[ink], lw=1.5)
            ax.plot(share, y + up, "o", color=COLORS[ink], mfc=face, ms=5)
    names = [f"{name} ({c['images']})" for name, c in rows.items()]
    ax.set_yticks(at, names, fontsize=9)
    ax.plot([], [], "o", color=COLORS["attack"], label="raw")
    ax.plot([], [], "o", color=COLORS["defense"], mfc="white", label="up to contrast")
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.6, len(rows) - 0.4))
    ax.set_xlabel("share rebuilt (95 % interval)", fontsize=10)
    ax.legend(fontsize=9, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return fig


def rate_rows(named: Mapping[str, dict]) -> list[dict]:
    """Rows for ``table``: rebuilt raw and up to contrast, with mean PSNR."""
    rows = []
    for name, c in named.items():
        fit = c["fit"]
        row: dict[str, Any] = {"attacker": name, "images": c["images"]}
        row |= {"rebuilt": c["success"], "up to contrast": fit["success"]}
        rows.append(row | {"PSNR": c["psnr_mean"], "PSNR, fitted": fit["psnr_mean"]})
    return rows


def stored_pictures(settings: Mapping[str, dict]) -> dict[str, Tensor]:
    """name -> stored reconstructions (4, 1, 32, 32) of the cell with these settings."""
    found = {}
    for name, where in settings.items():
        (cell,) = cells("attack", **where)
        found[name] = torch.stack([unpack(text) for text in cell["pictures"]])
    return found


def named_of(images: Tensor, truth: Tensor, others: Tensor) -> int:
    """How many images (N, 1, H, W) are most like their own truth among all truths and others.

    Alike is by the correlation of pixels, which contrast and brightness do not change.
    """
    these, crowd = (_centered(t) for t in (as_image(images), torch.cat([truth, others])))
    return int(((these @ crowd.T).argmax(1) == torch.arange(len(truth))).sum())


def _centered(images: Tensor) -> Tensor:
    flat = images.flatten(1) - images.flatten(1).mean(1, keepdim=True)
    return flat / flat.norm(dim=1, keepdim=True)


def key_rows(arms: Sequence[str]) -> list[dict]:
    """Accuracy of the last round's model with other keys, mean and range over clients and seeds."""
    rows = []
    for name, kind in KEYS.items():
        row: dict[str, Any] = {"the model with": name}
        for arm in arms:
            own = cells("training", part="digits", arm=arm)
            v = [100 * a for c in own for a in (c["keys"][kind] if kind else c["clients"])]
            row[arm] = Spread(fmean(v), min(v), max(v))
        rows.append(row)
    return rows


def score_row(name: str, attack: str, c: dict) -> dict:
    """One row of our table beside the paper's Tables 4, 6 and 7."""
    row = {"network, what is known": name, "attack": attack, "“MSE”": c["fedkl_mse"]}
    row |= {"“PSNR”": c["fedkl_psnr"], "PSNR": c["psnr_mean"]}
    row |= {"PSNR, fitted": c["fit"]["psnr_mean"], "SSIM": c["ssim_mean"]}
    return row | {"LPIPS": c["lpips_a"]}


def score_rows() -> list[dict]:
    """All rows of that table, the black image first."""
    (floor,) = cells("attack", part="floor")
    rows = [score_row("a black image", "–", floor)]
    for c in cells("attack", part="table"):
        name = c["net"] + (f", {c['knows']}" if c["net"] == "lock" else "")
        rows.append(score_row(name, c["attack"], c))
    return rows


def accuracy_rows(arms: Mapping[str, dict], paper: Mapping[str, float]) -> list[dict]:
    """Accuracy in % by arm, the paper's beside ours."""
    rows = []
    for arm, row in arms.items():
        ours = Spread(*(100 * v for v in (row["mean"], *row["interval"])))
        rows.append({"training": arm, "paper": paper.get(arm), "ours": ours})
    return rows


def named(found: Iterable[dict], first: str) -> dict[str, dict]:
    """Cells by a name of their own: "setting: attack"."""
    return {f"{c[first]}: {c['attack']}": c for c in found}
