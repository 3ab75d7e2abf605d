"""Plots and look-ups of "Hiding in a crowd of one: DCS²"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ...metrics import compare
from ...pictures import unpack
from ...studies import STUDIES
from ..figures import COLORS, show_image
from ..tables import Spread

SIZE = 495, 352  # pixels of a frame; an image has four for each of its own, so frames stay small
SIDE = 112


@lru_cache
def study(name: str) -> dict:
    """A stored study of this chapter: "attack", "photos" or "training"."""
    return STUDIES[f"dcs2/{name}"].show()


def find(name: str, **want: Any) -> list[dict[str, Any]]:
    """The cells of a stored study that have these settings."""
    return [c for c in study(name)["cells"] if all(c.get(k) == v for k, v in want.items())]


def only(name: str, **want: Any) -> dict[str, Any]:
    """The one cell with these settings."""
    (cell,) = find(name, **want)
    return cell


def spread(cell: Mapping[str, Any], key: str = "psnr") -> Spread:
    """A stored mean with its 95 % interval."""
    return Spread(cell[f"{key}_mean"], *cell[f"{key}_interval"])


def rate(cell: Mapping[str, Any]) -> Spread:
    """The share of images over 20 dB with its 95 % interval."""
    return Spread(cell["success"] / cell["images"], *cell["success_interval"])


def points(cell: Mapping[str, Any], key: str) -> Spread:
    """A stored accuracy in percent, one standard deviation to either side."""
    middle, off = 100 * cell[f"{key}_mean"], 100 * cell[f"{key}_std"]
    return Spread(middle, middle - off, middle + off)


def hook() -> Figure:
    """Four digits: private, concealed, what a search for one image and one for two find."""
    sample = only("attack", part="variant", variant="sample")
    closed = only("attack", part="separate", variant="sample")
    rows: dict[str, tuple[Sequence, Sequence[float]]] = {
        "private": (sample["pictures"], ()),
        "concealed": (sample["pictures_concealed"], ()),
        "looks for\none image": (sample["pictures_gs"], sample["gs"]["psnr"]),
        "looks for\ntwo images": (closed["pictures"], closed["psnr"]),
    }
    fig, axes = plt.subplots(4, 4, figsize=(4.4, 4.2))
    for axs, (name, (pictures, scores)) in zip(axes, rows.items(), strict=True):
        for i, (ax, picture) in enumerate(zip(axs, pictures, strict=True)):
            show_image(ax, unpack(picture))
            if len(scores):
                ax.set_xlabel(f"{scores[i]:.0f} dB", fontsize=10, color=COLORS["attack"])
        axs[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
    return fig


def frame(
    private: Tensor,
    concealed: Tensor,
    found: Tensor,
    cosines: Mapping[str, float],
    fig: Any = None,
) -> Figure:
    """Private, concealed clamped and on its true scale, what GS finds; below, cosines by layer."""
    w, h = SIZE
    fig = fig or plt.figure(figsize=(w / 110, h / 110), layout="none")
    places = [fig.add_axes(((6 + 123 * i) / w, 176 / h, SIDE / w, SIDE / h)) for i in range(4)]
    show_image(places[0], private, "private")
    show_image(places[1], concealed, "concealed,\nclamped")
    _true_scale(places[2], concealed)
    show_image(places[3], found, "GS finds")
    db = compare(found[None], private[None])["psnr"].item()
    places[3].set_xlabel(f"{db:.0f} dB", fontsize=11, color=COLORS["attack"])
    bars = fig.add_axes((0.17, 0.09, 0.81, 0.3))
    inks = [COLORS["light"]] * (len(cosines) - 1) + [COLORS["defense"]]
    bars.bar(list(cosines), list(cosines.values()), color=inks)
    bars.axhline(0, color="black", lw=0.8)
    bars.set(ylim=(-0.3, 1.05), yticks=[0, 0.5, 1])
    bars.set_ylabel("cosine of\ngradients")
    return fig


def _true_scale(ax: Axes, image: Tensor) -> None:
    limit = max(image.abs().max().item(), 1)
    ax.imshow(image[0], plt.get_cmap("PuOr", 15), vmin=-limit, vmax=limit, interpolation="nearest")
    ax.set_title("concealed,\ntrue scale", fontsize=11)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ends = round(image.min().item()), round(image.max().item())
    low, high = (f"{v}".replace("-", "−") for v in ends)
    ax.set_xlabel(f"{low} to {high}", fontsize=11)


def halves(parts: Mapping[str, tuple[Tensor, Tensor, Tensor, Mapping[str, float]]]) -> Figure:
    """Two frames, one above the other, each under its name."""
    figure = plt.figure(figsize=(4.5, 3.6 * len(parts)), layout="none")
    places: Any = figure.subfigures(len(parts), 1)
    for place, (name, part) in zip(places, parts.items(), strict=True):
        frame(*part, fig=place)
        place.suptitle(name, fontsize=12)
    return figure


def plane(maps: Mapping[str, Tensor], marks: Tensor, reach: float) -> Figure:
    """Maps of the misfit (n, n) around the middle of two marks (2, 2): x_s and x̃."""
    center = marks.mean(0)
    around = [center[i].item() + v for i in (0, 1) for v in (-reach, reach)]
    fig, axes = plt.subplots(
        len(maps), 1, figsize=(4.4, 3.3 * len(maps)), sharex=True, squeeze=False
    )
    for ax, (name, misfit) in zip(axes[:, 0], maps.items(), strict=True):
        look: dict[str, Any] = {"origin": "lower", "extent": around, "vmin": -3, "vmax": 0}
        shade = ax.imshow(misfit.log10().T, "viridis", **look)
        for (u, v), word, sign in zip(marks, ("x_s", "x̃"), "ox", strict=True):
            ink = {"ms": 9, "mew": 2, "mfc": "none", "color": COLORS["attack"]}
            ax.plot(u, v, sign, label=word, **ink)
        ax.set_title(name, fontsize=11)
        ax.set_ylabel("α, second entry")
        ax.grid(False)
    axes[-1, 0].set_xlabel("α, first entry")
    axes[0, 0].legend(loc="lower left", fontsize=11, labelcolor="black", frameon=True)
    fig.colorbar(shade, ax=axes[:, 0], shrink=0.6, label="log₁₀ of the misfit")
    return fig


def attackers() -> Figure:
    """PSNR of four attackers on the same 16 uploads: each digit a dot, the median a bar."""
    joint = {"part": "joint", "variant": "sample", "attack": "labels granted"}
    table = {"part": "table", "defense": "DCS²"}
    rows = {
        "GS": (only("attack", **table, attack="GS"), "defense"),
        "iDLG": (only("attack", **table, attack="iDLG"), "defense"),
        "joint": (only("attack", **joint), "attack"),
        "closed\nform": (only("attack", part="separate", variant="sample"), "attack"),
    }
    fig, ax = plt.subplots(figsize=(4.9, 3.4))
    for i, (cell, ink) in enumerate(rows.values()):
        scores = np.array(cell["psnr"])
        side = np.linspace(-0.2, 0.2, len(scores))
        ax.plot(i + side, scores, "o", ms=4, alpha=0.6, color=COLORS[ink])
        ax.hlines(np.median(scores), i - 0.3, i + 0.3, color="black", lw=2)
    ax.axhline(20, color="black", ls="--", lw=1)
    ax.text(-0.45, 22, "20 dB", fontsize=10)
    ax.axvline(1.5, color="black", lw=0.8)
    ax.set_xticks(range(len(rows)), list(rows))
    ax.set(ylabel="PSNR (dB)", xlim=(-0.5, len(rows) - 0.5), ylim=(0, None))
    for at, words in ((0.5, "look for one image"), (2.5, "look for two")):
        ax.text(at, 1.0, words, ha="center", va="bottom", transform=ax.get_xaxis_transform())
    return fig
