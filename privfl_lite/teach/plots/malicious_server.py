"""Figures and the panel of *The malicious server*: steps, bins, counts, noise."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from ... import models
from ...attacks.malicious.imprint import Imprint, ImprintReadout, normal_edges, quantile_edges
from ...client import share
from ...data import load
from ...metrics import assign
from ...studies.malicious_server.bins import alone, public_alone
from ..figures import COLORS, show_image
from ..panel import Panel

EXACT = 1e-3  # largest pixel error of an image that counts as read
BINS, BATCHES, EDGES = [8, 16, 32, 64, 128, 256, 512], [4, 16, 64], ["measured", "assumed", "wrong"]


def largest_error(x_hat: Tensor, x: Tensor) -> Tensor:
    """For each image (B, …) the largest pixel error of the nearest of those found."""
    return torch.cdist(x.flatten(1), x_hat.flatten(1), p=torch.inf).amin(1)


def read_faces(x: Tensor, x_hat: Tensor, exact: Tensor) -> Figure:
    """Twelve private images, and below each the nearest that was read; exact ones are framed."""
    near = torch.cdist(x.flatten(1), x_hat.flatten(1)).argmin(1)
    fig, axes = plt.subplots(4, 6, figsize=(5.6, 4.3))
    for i in range(12):
        above, below = axes[2 * (i // 6) : 2 * (i // 6) + 2, i % 6]
        show_image(above, x[i])
        show_image(below, x_hat[near[i]])
        ink = COLORS["attack"] if exact[i] else "#b0b8bf"
        below.spines[:].set(visible=True, color=ink, linewidth=2.5)
    for row, axs in enumerate(axes):
        name = "read" if row % 2 else "private"
        axs[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=6)
    fig.suptitle(f"{int(exact.sum())} of {len(x)} read exactly (framed in orange)", fontsize=11)
    return fig


def staircase(x: Tensor, edges: Tensor, found: Tensor) -> Figure:
    """The steps, every image on its own, and sixteen of those that were read."""
    h = x.flatten(1).mean(1)
    lone = alone(h, edges)
    fig = plt.figure(figsize=(5.6, 6.0))
    parts: Any = fig.subfigures(2, 1, height_ratios=(1.25, 1))
    stairs, shown = parts
    ax = stairs.subplots()
    low, high = float(h.min()) - 0.01, float(h.max()) + 0.01
    ax.stairs(np.arange(1, len(edges)), np.append(edges[1:], high), color="gray", lw=1.2)
    levels = (h[:, None] > edges).sum(1)  # how many units an image switches on
    for mask, mark, color, name in (
        (lone, "o", COLORS["attack"], "alone on its step: read"),
        (~lone, "x", COLORS["defense"], "shares its step: mixed"),
    ):
        ax.plot(h[mask], levels[mask] - 1, mark, color=color, ms=5, label=name)
    ax.set(xlabel="mean pixel of an image", ylabel="units switched on", xlim=(low, high))
    ax.legend(loc="lower right", fontsize=10)
    order = h.argsort()
    order = order[lone[order]][:: int(lone.sum()) // 16][:16]
    match = torch.cdist(x[order].flatten(1), found.flatten(1)).argmin(1)
    for ax, image in zip(shown.subplots(2, 8).flat, found[match], strict=True):
        show_image(ax, image)
    shown.suptitle("16 of the images read, from dim to bright", fontsize=11)
    return fig


def bins_panel() -> Panel:
    """Bins, batch and how the edges were placed: private digits above, what is read below."""
    return Panel(
        _frame,
        {"bins": BINS, "batch": BATCHES, "edges": EDGES},
        title="What the imprint module brings back",
        alt=_describe,
        start={"bins": 64, "batch": 16},
    )


@cache
def _attack(bins: int, batch: int, edges: str) -> tuple[Tensor, Tensor, Tensor, float]:
    """Private images, nearest found, largest errors, and the formula for equal bins."""
    digits = load("mnist")
    public = digits.x_test.flatten(1).mean(1)
    cut = {
        "measured": lambda: quantile_edges(public, bins).unique(),
        "assumed": lambda: normal_edges(public.mean().item(), public.std().item(), bins),
        "wrong": lambda: normal_edges(0.5, 0.2, bins),
    }[edges]()
    x, y = digits.sample(batch, seed=5)
    upload = share(Imprint(models.build("lenet5", digits), cut, gain=1e-3), x, y)
    x_hat = ImprintReadout(1e-6).run(upload).images
    x_hat = x_hat[assign(x_hat, x)]
    return x, x_hat, largest_error(x_hat, x), batch * (1 - 1 / bins) ** (batch - 1)


def _strip(x: Tensor, x_hat: Tensor, error: Tensor) -> str:
    """Eight images above, eight below, and a white bar under those that are exact; a PNG."""
    rows = [torch.cat(list(images[:8, 0].clamp(0, 1).nan_to_num(0.5)), 1) for images in (x, x_hat)]
    bar = (error[:8] < EXACT).float().repeat_interleave(x.shape[3]).expand(3, -1)
    pixels = torch.cat([rows[0], rows[1], bar]).repeat_interleave(2, 0).repeat_interleave(2, 1)
    file, gray = io.BytesIO(), ((7 * pixels).round() * 36).byte().numpy()
    Image.fromarray(gray).convert("RGB").quantize(8).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def _describe(bins: int, batch: int, edges: str) -> str:
    _, _, error, formula = _attack(bins, batch, edges)
    where, read = f"{bins} bins with {edges} edges, a batch of {batch}", int((error < EXACT).sum())
    return f"{where}: {read} read exactly; {formula:.1f} expected in equal bins."


def _frame(bins: int, batch: int, edges: str) -> str:
    x, x_hat, error, formula = _attack(bins, batch, edges)
    look = 'style="image-rendering:pixelated;width:100%;max-width:448px"'
    alt = _describe(bins, batch, edges)
    picture = f'<img alt="{alt}" {look} src="data:image/png;base64,{_strip(x, x_hat, error)}">'
    said = f"read exactly: <b>{int((error < EXACT).sum())}</b> of {batch}; "
    return f"<div>{said}expected in equal bins: {formula:.1f}<br>{picture}</div>"


def lone_counts(
    bins: int,
    sizes: Sequence[int],
    counts: Mapping[tuple[str, int], Sequence[int]],
    moments: Mapping[int, tuple[float, float]],
) -> Figure:
    """Measured shares of lone images of servers A and B on the two formulas.

    ``counts``: (server, batch) -> lone images of each batch; ``moments``: batch -> mean, variance.
    """
    fig, ax = plt.subplots(figsize=(5.2, 3.8))
    fine = np.unique(np.geomspace(sizes[0], sizes[-1], 60).astype(int))
    ink = {"A": COLORS["attack"], "B": COLORS["defense"]}
    equal = [100 * (1 - 1 / bins) ** (B - 1) for B in fine]
    ax.plot(fine, equal, color=ink["A"], label="equal bins")
    bars = [100 * public_alone(int(B), bins, bins - 1) / B for B in fine]
    ax.plot(fine, bars, "--", color=ink["B"], label="stars and bars")
    for name, mark in (("A", "o"), ("B", "s")):
        mid = [100 * np.mean(counts[name, B]) / B for B in sizes]
        label = f"server {name}, measured"
        ax.plot(sizes, mid, mark, color=ink[name], mfc="white", ms=7, label=label)
    mean = [100 * moments[B][0] / B for B in sizes]
    spread = [200 * moments[B][1] ** 0.5 / B for B in sizes]
    ax.errorbar(sizes, mean, spread, fmt="none", color="gray", capsize=3)
    ax.set(xscale="log", xlabel="images in the batch", ylabel="alone in their bin (%)")
    ax.set_ylim(0, 108)
    ax.set_xticks(sizes, [str(B) for B in sizes])
    ax.minorticks_off()
    ax.legend(fontsize=10)
    return fig


def wrong_edges(h: Tensor, mean: float, std: float, batch: int = 64) -> Figure:
    """Expected share of lone images if the assumed mean or deviation of the mean pixel is off."""

    def share_alone(cut: Tensor) -> float:  # prop-lone-count, with p counted on the images
        p = torch.bucketize(h, cut).bincount(minlength=len(cut) + 1).double() / len(h)
        return 100 * float((p * (1 - p) ** (batch - 1)).sum())

    shifts, scales = np.linspace(-4, 4, 33), np.geomspace(0.1, 10, 33)
    fig, axes = plt.subplots(2, 1, figsize=(5.0, 5.2), sharey=True)
    for bins, line, color in ((1024, "-", COLORS["attack"]), (128, "--", COLORS["defense"])):
        moved = [share_alone(normal_edges(mean + v * std, std, bins)) for v in shifts]
        axes[0].plot(shifts, moved, line, color=color, label=f"{bins} bins")
        wide = [share_alone(normal_edges(mean, v * std, bins)) for v in scales]
        axes[1].plot(scales, wide, line, color=color)
    axes[0].set(xlabel="error of the assumed mean (in true deviations)", ylim=(0, 100))
    axes[1].set(xlabel="assumed deviation (in true deviations)", xscale="log")
    for ax in axes:
        ax.set_ylabel("alone (%)")
    axes[0].legend(fontsize=10)
    return fig


def noise_and_gain(
    sigmas: Sequence[float],
    measured: Mapping[tuple[float, float], float],
    predicted: Mapping[tuple[float, float], float],
) -> Figure:
    """Median PSNR against the noise, for gains 1 and 0.001: (gain, σ) -> dB."""
    fig, ax = plt.subplots(figsize=(5.2, 3.8))
    for gain, mark, line, look in ((1.0, "o", "-", "defense"), (1e-3, "s", "--", "attack")):
        for values, style, name in ((predicted, line, "formula"), (measured, mark, "measured")):
            db = [values[gain, sigma] for sigma in sigmas]
            ax.plot(sigmas, db, style, color=COLORS[look], label=f"gain {gain:g}, {name}")
    ax.set(xscale="log", xlabel="noise on each entry of the gradient (σ)", ylim=(0, 125))
    ax.set_ylabel("median PSNR (dB)")
    ax.legend(fontsize=10)
    return fig


def uniform_rows(plain: Tensor, rows: Tensor, total: Tensor, bits: int) -> Figure:
    """One client's numbers in fixed point, what leaves it, and the sum, as shares of 2^bits."""
    fig, axes = plt.subplots(3, 1, figsize=(5.6, 4.8), sharex=True)
    named = (
        ("one client's numbers", plain, COLORS["defense"]),
        ("what leaves it", rows, COLORS["attack"]),
        ("the sum of all", total, COLORS["good"]),
    )
    for ax, (name, values, ink) in zip(axes, named, strict=True):
        share = values.double().numpy() / 2.0**bits
        ax.hist(
            share, bins=50, range=(0, 1), color=ink, weights=np.full(len(share), 1 / len(share))
        )
        ax.set_ylabel("share")
        ax.set_title(name, fontsize=10, loc="left")
    axes[-1].set_xlabel(f"value, as a share of 2^{bits} (negative numbers wrap to the right end)")
    return fig


SERVERS = {  # name in the study -> words, ink
    "honest": ("honest", "good"),
    "trained": ("honest, trained", "good"),
    "class": ("Fishing by class", "attack"),
    "feature": ("Fishing by feature", "attack"),
    "imprint": ("Imprint, 256 bins", "defense"),
}
TOP = 100.0  # where what stands alone is drawn


def cell_of(
    cells: Sequence[Mapping[str, Any]], net: str, batch: int, name: str
) -> Mapping[str, Any]:
    """The cell of a network, a batch and one of ``SERVERS``."""
    server, trained = ("honest", True) if name == "trained" else (name, False)
    wanted = {"net": net, "batch": batch, "server": server, "trained": trained}
    (cell,) = (c for c in cells if wanted.items() <= c.items())
    return cell


def check_ratios(cells: Sequence[Mapping[str, Any]], net: str) -> Figure:
    """D-SNR of every batch by server and batch size; a dot at the top stands alone."""
    fig, axes = plt.subplots(1, 3, figsize=(5.8, 3.9), sharey=True)
    batches = sorted({c["batch"] for c in cells})
    for ax, batch in zip(axes, batches, strict=True):
        for x, name in enumerate(SERVERS):
            ratios = np.minimum(cell_of(cells, net, batch, name)["ratios"], TOP)
            spread = x + np.linspace(-0.25, 0.25, len(ratios))
            ax.plot(spread, ratios, "o", ms=3, alpha=0.7, color=COLORS[SERVERS[name][1]])
        ax.axhline(1, color="gray", lw=0.8, ls=":")
        ax.set(yscale="log", title=f"batch {batch}", ylim=(0.1, 1.6 * TOP))
        ax.set_xticks(range(len(SERVERS)), [w for w, _ in SERVERS.values()], rotation=90)
    axes[0].set_ylabel("D-SNR (at 100: alone)")
    return fig
