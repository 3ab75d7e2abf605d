"""Figures of the book: one palette, one way to show images, and the picture to remember."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ..metrics import as_image
from ..wire import Upload

# Okabe and Ito's colors, told apart also by readers who are color-blind.
COLORS = {
    "truth": "#000000",
    "attack": "#D55E00",
    "defense": "#0072B2",
    "good": "#009E73",
    "accent": "#CC79A7",
    "light": "#56B4E9",
    "warm": "#E69F00",
}


def style() -> None:
    """Quiet axes and sizes that stay readable on a phone."""
    plt.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "font.size": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "axes.prop_cycle": plt.cycler(color=list(COLORS.values())[1:]),
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
        }
    )


def show_image(ax: Axes, image: Tensor, title: str = "", color: str = "black") -> None:
    """One image (C, H, W) in [0, 1], without axes; gray where it has one channel."""
    pixels = as_image(image.detach().cpu()).permute(1, 2, 0)
    gray = "gray" if pixels.shape[2] == 1 else None
    ax.imshow(pixels.squeeze(2).numpy(), gray, vmin=0, vmax=1, interpolation="nearest")
    ax.set_title(title, color=color, fontsize=11)
    _bare(ax)


def show_images(rows: dict[str, Tensor], titles: Sequence[str] = ()) -> Figure:
    """A grid: one named row for each batch (N, C, H, W), one column an image."""
    count = max(len(images) for images in rows.values())
    fig, axes = plt.subplots(
        len(rows), count, figsize=(1.25 * count + 1.1, 1.35 * len(rows) + 0.3), squeeze=False
    )
    for r, (axs, (name, images)) in enumerate(zip(axes, rows.items(), strict=True)):
        for i, ax in enumerate(axs):
            if i < len(images):
                show_image(ax, images[i], titles[i] if titles and r == 0 else "")
            else:
                ax.set_axis_off()
        axs[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
    return fig


def show_upload(ax: Axes, upload: Upload, i: int = 0) -> None:
    """All numbers of upload i as one square of colors, scaled by rank: what the server receives."""
    numbers = torch.cat([t[i].detach().cpu().flatten() for t in upload.tensors.values()])
    side = int(numbers.numel() ** 0.5)
    square = numbers[: side * side].view(side, side)
    limit = numbers.abs().quantile(0.95).item() or 1.0
    ax.imshow(square.numpy(), cmap="PuOr", vmin=-limit, vmax=limit, interpolation="nearest")
    _bare(ax)


def leak_picture(x: Tensor, upload: Upload, found: Tensor, psnr: Sequence[float]) -> Figure:
    """The book's one picture: the private image, what the server sees, what the attacker rebuilds.

    x and found: (N, C, H, W), one image behind each of N uploads; psnr: N values in dB.
    """
    return leak_pictures([(x, upload, found, psnr)])


def leak_pictures(runs: Sequence[tuple[Tensor, Upload, Tensor, Sequence[float]]]) -> Figure:
    """The same for several runs side by side, such as one on faces and one on digits."""
    columns = [(run, i) for run in runs for i in range(len(run[0]))]
    wide = 1.05 * len(columns) + 1.45
    fig, axes = plt.subplots(3, len(columns), figsize=(wide, 3.9), squeeze=False)
    for axs, ((x, upload, found, psnr), i) in zip(axes.T, columns, strict=True):
        show_image(axs[0], x[i])
        show_upload(axs[1], upload, i)
        show_image(axs[2], found[i])
        axs[2].set_xlabel(f"{psnr[i]:.0f} dB", color=COLORS["attack"], fontsize=11)
    sizes = sorted({sum(t[0].numel() for t in run[1].tensors.values()) for run in runs})
    names = (
        "private\nimage",
        "what the\nserver sees:\n" + " or\n".join(f"{n:,}" for n in sizes) + " numbers",
        "what the\nattacker\nrebuilds",
    )
    for ax, name in zip(axes[:, 0], names, strict=True):
        ax.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11, labelpad=8)
    return fig


def _bare(ax: Axes) -> None:
    """No ticks, no frame, no grid; labels stay."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)


def matrix(rows: Sequence[Mapping], defenses: Sequence[str], attacks: Sequence[str]) -> Figure:
    """What ``privfl compare`` found: median PSNR of each defense (row) against each attack."""
    found = {(r["defense"], r["attack"]): r.get("psnr_median", math.nan) for r in rows}
    values = [[found.get((d, a), math.nan) for a in attacks] for d in defenses]
    fig, ax = plt.subplots(figsize=(1.6 + 0.9 * len(attacks), 0.8 + 0.32 * len(defenses)))
    ax.imshow(values, cmap="cividis", vmin=0, vmax=60, aspect="auto")
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            text = "·" if math.isnan(value) else f"{value:.0f}"
            dark = not math.isnan(value) and value < 35
            ax.text(j, i, text, ha="center", va="center", color="white" if dark else "black")
    ax.set_xticks(range(len(attacks)), attacks, rotation=30, ha="right")
    ax.set_yticks(range(len(defenses)), defenses)
    ax.grid(False)
    ax.set_title("median PSNR, dB")
    return fig
