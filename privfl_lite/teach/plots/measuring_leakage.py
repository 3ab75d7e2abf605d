"""Figures, the panel and the informed judge of *Measuring leakage*."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image
from torch import Tensor

from ... import metrics
from ...studies import STUDIES
from ...studies.measuring_leakage import lpips as study
from ..figures import COLORS, show_image
from ..panel import Panel

GRAY_STD = 0.3081  # of MNIST's pixels


@cache
def stored_lpips(kind: str, data: str, net: str = "alex") -> dict[str, np.ndarray]:
    """Name -> stored LPIPS values of a part of the study."""
    cells = STUDIES["measuring-leakage/lpips"].show()["cells"]
    return {c["name"]: np.array(c[net]) for c in cells if (c["kind"], c["data"]) == (kind, data)}


def affine_psnr(x_hat: Tensor, x: Tensor) -> Tensor:
    """PSNR (B,) after the best contrast, brightness and sign (prop-affine-fit), at most 80 dB."""
    a, b = (t.double().flatten(1) for t in (x_hat, x))
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    r2 = (a * b).sum(1) ** 2 / (a.square().sum(1) * b.square().sum(1)).clamp(min=1e-12)
    return -10 * torch.log10((b.square().mean(1) * (1 - r2)).clamp(min=1e-8))


def by_structure(x_hat: Tensor, candidates: Tensor) -> Tensor:
    """Similarities (B, n): the largest |correlation| over all cyclic shifts.

    It is blind to brightness, contrast, sign and position.
    """

    def spectrum(t: Tensor) -> Tensor:
        t = t.mean(1) - t.mean((1, 2, 3)).view(-1, 1, 1)
        t = t / t.flatten(1).norm(dim=1).clamp(min=1e-9).view(-1, 1, 1)
        return torch.fft.rfft2(t)

    theirs, size = spectrum(candidates), x_hat.shape[2:]
    rows = [torch.fft.irfft2(s.conj() * theirs, s=size).abs() for s in spectrum(x_hat)]
    return torch.stack([row.amax((1, 2)) for row in rows])


def _grid(rows: int, columns: int, size: tuple[float, float], between: float) -> tuple[Figure, Any]:
    """Axes with room ``between`` the rows, as a share of the figure."""
    layout = ConstrainedLayoutEngine(hspace=between)
    return plt.subplots(rows, columns, figsize=size, layout=layout)


def eight_at_one_psnr() -> Figure:
    """A private nine and eight images at the same PSNR, with SSIM and LPIPS."""
    nine, images = study.picture()
    lpips = stored_lpips("picture", "mnist")
    fig, axes = _grid(3, 3, (4.4, 4.4), 0.03)
    show_image(axes[0, 0], nine[0], "private")
    level = metrics.psnr(next(iter(images.values())), nine).item()
    axes[0, 0].set_xlabel(f"the others:\n{level:.1f} dB", fontsize=9.5)
    for ax, (name, image) in zip(axes.flat[1:], images.items(), strict=True):
        color = COLORS["attack"] if name == "another digit" else "black"
        show_image(ax, image[0], name.replace("invert", "fade"), color)
        ssim = metrics.ssim(image, nine).item()
        ax.set_xlabel(f"SSIM {ssim:.2f}\nLPIPS {lpips[name].item():.3f}", fontsize=9.5)
    return fig


def scores_panel() -> Panel:
    """An image, a distortion and a strength: what is handed in, and all its scores."""
    axes = {"image": list(study.portraits()), "distortion": list(study.LEVELS)}
    return Panel(
        _frame,
        {**axes, "strength": [1, 2, 3, 4, 5]},
        title="One image, all scores",
        alt=_describe,
        start={"image": "photo", "distortion": "invert", "strength": 5},
    )


@cache
def _scores(image: str, distortion: str, strength: int) -> tuple[Tensor, dict[str, str]]:
    x = study.portraits()[image]
    x_hat = study.distort(distortion, x, study.LEVELS[distortion][strength - 1])
    std = GRAY_STD if x.shape[1] == 1 else torch.tensor(study.CIFAR_STD).view(3, 1, 1)
    lpips, fit = stored_lpips("panel", image)[distortion][strength - 1], affine_psnr(x_hat, x)
    return x_hat, {
        "PSNR": f"{metrics.psnr(x_hat, x).item():.1f} dB",
        "PSNR after the best fit": f"{fit.item():.1f} dB" if fit.item() < 79 else "over 79 dB",
        "SSIM": f"{metrics.ssim(x_hat, x).item():.2f}",
        "LPIPS (AlexNet)": f"{lpips:.3f}",
        "MSE": f"{metrics.mse(x_hat, x).item():.4f}",
        "L2 norm": f"{metrics.l2(x_hat, x).item():.2f}",
        "RMSE on 0 to 255": f"{metrics.fedkl_mse(x_hat, x).item():.1f}",
        "10 log10(255² / RMSE)": f"{metrics.fedkl_psnr(x_hat, x).item():.1f}",
        "PSNR of normalized pixels": f"{metrics.psnr(x_hat / std, x / std).item():.1f} dB",
    }


def _small(image: Tensor, name: str) -> str:
    pixels = (255 * image.clamp(0, 1)).round().byte().permute(1, 2, 0).squeeze(2).numpy()
    picture, file = Image.fromarray(pixels), io.BytesIO()
    picture.convert("RGB").quantize(48).save(file, "PNG", optimize=True)
    data = base64.b64encode(file.getvalue()).decode()
    look = 'width="112" style="image-rendering:pixelated"'
    return f'<img alt="{name}" {look} src="data:image/png;base64,{data}">'


def _frame(image: str, distortion: str, strength: int) -> str:
    x_hat, scores = _scores(image, distortion, strength)
    left = _small(study.portraits()[image][0], "the private image")
    right = _small(x_hat[0], "what is handed in")
    rows = "".join(f"<tr><td>{name}</td><td>{score}</td></tr>" for name, score in scores.items())
    return f"<table><tr><td>{left}</td><td>{right}</td></tr>{rows}</table>"


def _describe(image: str, distortion: str, strength: int) -> str:
    scores = _scores(image, distortion, strength)[1]
    what = f"The {image} under {distortion}, strength {strength} of 5"
    return f"{what}: PSNR {scores['PSNR']}, SSIM {scores['SSIM']}."


def name_tag() -> Figure:
    """Six frames of the panel for print: one photograph, six distortions."""
    six = [("shift", 4), ("brighten", 4), ("invert", 5), ("blur", 3), ("noise", 4), ("blocks", 5)]
    fig, axes = plt.subplots(2, 3, figsize=(4.6, 4.2))
    for ax, (name, strength) in zip(axes.flat, six, strict=True):
        x_hat, scores = _scores("photo", name, strength)
        show_image(ax, x_hat[0], f"{name} {strength}")
        ax.set_xlabel(f"{scores['PSNR']}\nSSIM {scores['SSIM']}", fontsize=10)
    return fig


def floors(psnr: Mapping[str, Mapping[str, float]]) -> Figure:
    """Mean PSNR of guesses made without an upload: data set -> guess -> dB."""
    names = list(next(iter(psnr.values())))
    fig, ax = plt.subplots(figsize=(4.8, 3.4))
    for (data, values), mark, look in zip(
        psnr.items(), "osD", ("attack", "defense", "good"), strict=True
    ):
        heights = range(len(names))[::-1]
        ax.plot([values[n] for n in names], heights, mark, color=COLORS[look], label=data, ms=7)
    ax.set_yticks(range(len(names))[::-1], names)
    ax.set(xlabel="mean PSNR (dB) without any upload", xlim=(0, None))
    ax.legend(loc="upper left", fontsize=10)
    return fig


def handed_in(x: Tensor, tests: Mapping[str, Tensor]) -> Figure:
    """One private digit and what is handed in for it, six times, by rising mean PSNR."""
    level = {name: metrics.psnr(x_hat, x).mean().item() for name, x_hat in tests.items()}
    fig, axes = _grid(4, 3, (4.0, 6.0), 0.05)
    for i, name in enumerate(sorted(level, key=lambda name: level[name])):
        top, column = 2 * (i // 3), i % 3
        show_image(axes[top, column], x[i], name)
        show_image(axes[top + 1, column], tests[name][i])
        axes[top + 1, column].set_xlabel(f"{level[name]:.0f} dB")
    for row in range(4):
        axes[row, 0].set_ylabel("handed in" if row % 2 else "private")
    return fig


def coverages(curves: Mapping[str, Callable[[float], float]]) -> Figure:
    """Probability that an interval covers the true rate; name -> function of the rate."""
    rates = np.linspace(0.002, 0.3, 120)
    fig, ax = plt.subplots(figsize=(4.8, 3.2))
    for (name, covers), look, line in zip(
        curves.items(), ("good", "attack"), ("-", "--"), strict=True
    ):
        ax.plot(rates, [covers(p) for p in rates], line, color=COLORS[look], label=name)
    ax.axhline(0.95, color="gray", ls=":")
    ax.set(xlabel="true success rate", ylabel="probability of covering it", ylim=(0, 1.02))
    ax.legend(loc="lower right")
    return fig


def at_norms(cases: Sequence[tuple[Tensor, Sequence[float]]]) -> Figure:
    """Private images above noisy copies at given L2 norms; three of each case."""
    fig, axes = _grid(2 * len(cases), 3, (4.0, 3.2 * len(cases)), 0.05)
    for block, (truth, norms) in enumerate(cases):
        start, pixels = study.distort("noise", truth, 0.3), truth[0].numel()
        for i, norm in enumerate(norms):
            level = 10 * np.log10(pixels) - 20 * np.log10(norm)
            above, below = axes[2 * block : 2 * block + 2, i]
            show_image(above, truth[i], f"“{norm}”")
            show_image(below, study.at_psnr(start, truth, level)[i])
            below.set_xlabel(f"{level:.0f} dB")
    for row in range(2 * len(cases)):
        axes[row, 0].set_ylabel("noisy" if row % 2 else "private")
    return fig
