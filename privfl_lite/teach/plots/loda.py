"""Plots and look-ups of "Teaching with pictures no one can read: LODA" (Wan et al. 2022)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ...pictures import unpack
from ...studies import STUDIES
from .. import ledger
from ..figures import COLORS, show_image
from ..tables import Spread

LAYERS = {"LODA₁": ("loda1", 20), "LODA₂": ("loda2", 30), "LODA₃": ("loda3", 1)}
SCORES = {"psnr": "PSNR (dB)", "lpips": "LPIPS"}
Looks = tuple[str, str]  # a color's name and a mark


@lru_cache
def study(name: str) -> dict:
    """A stored study of this chapter, "attack" or "training", or another chapter's by full name."""
    return STUDIES[name if "/" in name else f"loda/{name}"].show()


def find(name: str, **want: Any) -> list[dict[str, Any]]:
    """The cells of a stored study that have these settings."""
    return [c for c in study(name)["cells"] if want.items() <= c.items()]


def only(name: str, **want: Any) -> dict[str, Any]:
    """The one cell with these settings."""
    (cell,) = find(name, **want)
    return cell


def attack(part: str, **want: Any) -> dict[str, Any]:
    """The one cell of this part of the attack study."""
    return only("attack", part=part, **want)


def decoder(layers: str) -> dict[str, Any]:
    """The decoder for these layers that learned from most pairs."""
    return max(find("attack", part="decoder", layers=layers), key=lambda c: c["pairs"])


def strip(picture: Sequence[str]) -> Tensor:
    """A stored strip of square images side by side, a channel each -> (N, 3, H, H)."""
    wide = torch.cat([unpack(t) for t in picture])  # (3, H, N · H)
    return torch.stack(wide.split(wide.shape[1], 2))


def private() -> Tensor:
    """One private image of each class (10, 3, 32, 32)."""
    return strip(attack("blind")["picture"])


def spread(score: Mapping[str, Any], name: str) -> Spread:
    """A stored mean of a score with its 95 % interval."""
    return Spread(score[name]["mean"], *score[name]["interval"])


def line(score: Mapping[str, Any]) -> dict[str, Spread]:
    """The three scores of an attack as cells of a table."""
    return {"PSNR": spread(score, "psnr"), "SSIM": spread(score, "ssim")} | {
        "LPIPS": spread(score, "lpips")
    }


def percent(values: Mapping[str, Any]) -> Spread:
    """A stored mean accuracy in percent with its 95 % interval, which ends at 0."""
    low, high = values["interval"]
    return Spread(100 * values["mean"], max(100 * low, 0), 100 * high)


def accuracy(arm: str, **want: Any) -> Spread | None:
    """Accuracy on clean test images of a network trained on this arm, in percent, or None."""
    cells = find("training", arm=arm, **want)
    return percent(cells[0]["spread"]) if cells else None


def bounds(x_prime: Tensor, s: Tensor, kappa: Tensor) -> tuple[Tensor, Tensor]:
    """What an encoding made without features, its start and κ say of each private pixel.

    Inside the box lower and upper bound agree; on a wall one of them is the box's.
    """
    edge = ((kappa * s - x_prime) / (kappa - 1)).clamp(0, 1)
    low = torch.where(x_prime >= 1, torch.zeros_like(edge), edge)
    return low, torch.where(x_prime <= 0, torch.ones_like(edge), edge)


def opening(classes: Sequence[int] = (1, 3, 5, 7, 9)) -> Figure:
    """Some private images, what LODA₁ makes of them, and what two attackers make of that."""
    some = list(classes)
    rows = {
        "private": private()[some],
        "trained on:\nobscured": strip(attack("encoding", layers="loda1", c=20)["picture"])[some],
        "the paper's\nattack": strip(attack("adaptive", layers="loda1")["picture"])[some],
        "a learned\ndecoder": strip(decoder("loda1")["picture"]["1"])[some],
    }
    found = ("the paper's\nattack", "a learned\ndecoder")
    return grid(rows, (5.2, 3.7), found)


def grid(
    rows: Mapping[str, Tensor],
    size: tuple[float, float],
    found: Iterable[str] = (),
    notes: Mapping[str, Sequence[str]] | None = None,
) -> Figure:
    """Named rows of images; ``found``: rows of an attacker's; ``notes``: words below images."""
    count = len(next(iter(rows.values())))
    fig, axes = plt.subplots(len(rows), count, figsize=size, squeeze=False)
    for axs, (name, images) in zip(axes, rows.items(), strict=True):
        ink = COLORS["attack"] if name in found else COLORS["truth"]
        words = (notes or {}).get(name, [""] * count)
        for ax, image, said in zip(axs, images, words, strict=True):
            show_image(ax, image)
            ax.set_xlabel(said, fontsize=10, labelpad=2)
        axs[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11, color=ink)
    return fig


def strips(pictures: Mapping[str, Tensor], size: tuple[float, float]) -> Figure:
    """Named strips of images, each under its name."""
    fig, axes = plt.subplots(len(pictures), 1, figsize=size)
    for ax, (name, images) in zip(axes, pictures.items(), strict=True):
        show_image(ax, torch.cat(list(images.clamp(0, 1)), 2))
        ax.set_title(name, loc="left", fontsize=11, pad=2)
    return fig


def knobs(layers: str, c: float, steps: int) -> Figure:
    """A frame of the panel: automobile and horse, obscured and attacked."""
    cell = attack("panel", layers=LAYERS[layers][0], c=c, steps=steps)
    found = {name: strip(picture) for name, picture in cell["picture"].items()}
    rows = {"private": private()[[1, 7]], "x′": found["x′"], "1 − x′": 1 - found["x′"]}
    rows |= {name: found[name] for name in ("GS", "adaptive", "inversion")}
    named = {}
    for name, images in rows.items():
        score = cell["scores"].get(name)
        said = f"\n{score['psnr']:.1f} dB\nLPIPS {score['lpips']:.2f}" if score else ""
        named[name + said] = images
    return grid(named, (3.3, 5.8), [n for n in named if n.startswith(("GS", "adap", "inv"))])


def knobs_alt(layers: str, c: float, steps: int) -> str:
    scores = attack("panel", layers=LAYERS[layers][0], c=c, steps=steps)["scores"]
    said = [f"{n} {v['psnr']:.1f} dB, LPIPS {v['lpips']:.2f}" for n, v in scores.items()]
    where = f"{layers}, c = {c}, {steps} steps"
    return f"Automobile and horse, obscured and attacked, {where}: {'; '.join(said)}."


def attackers() -> Figure:
    """PSNR and LPIPS of who reads LODA₁'s encodings, with intervals, beside blind guesses."""
    blind, own = attack("blind")["found"], {"layers": "loda1"}
    adaptive, inversion = (attack(p, **own)["found"] for p in ("adaptive", "inversion"))
    learned = decoder("loda1")["found"]
    rows: dict[str, tuple[Mapping, Looks]] = {
        "gray square": (blind["gray"], ("truth", "s")),
        "another image": (blind["another image"], ("truth", "s")),
        "x′ itself": (attack("encoding", c=20, **own)["found"]["x′"], ("defense", "D")),
        "paper's, as released": (adaptive["released"], ("warm", "v")),
        "paper's, tuned": (adaptive["tuned"], ("warm", "v")),
        "inversion": (inversion["1"], ("attack", "o")),
        "inversion, 4 encodings": (inversion["4"], ("attack", "o")),
        "decoder": (learned["1"], ("attack", "o")),
        "decoder, 4 encodings": (learned["4"], ("attack", "o")),
        "decoder, x′ from GS": (learned["from a gradient"], ("accent", "^")),
    }
    fig, axes = plt.subplots(1, 2, figsize=(4.7, 4.2), sharey=True)
    for ax, name in zip(axes, SCORES, strict=True):
        for i, (score, look) in enumerate(rows.values()):
            bar(ax, i, spread(score, name), look)
        ax.set_xlabel(SCORES[name])
    for name, guess in (("psnr", "gray"), ("lpips", "another image")):
        ax = axes[list(SCORES).index(name)]
        ax.axvline(blind[guess][name]["mean"], color=COLORS["truth"], ls=":", lw=1)
    axes[0].set_yticks(range(len(rows)), rows)
    axes[0].invert_yaxis()
    axes[0].set_xlim(3, 22)
    axes[1].set_xlim(0.95, 0.15)  # better to the right, as in PSNR
    return fig


def bar(ax: Axes, y: float, value: Spread, look: Looks) -> None:
    """A dot with its interval, sideways."""
    color, mark = look
    off = [[value.value - value.low], [value.high - value.value]]
    ax.errorbar(value.value, y, xerr=off, fmt=mark, color=COLORS[color], capsize=2, ms=5)


def learning() -> Figure:
    """Accuracy on clean images after training on images and on encodings, by network."""
    nets: dict[str, dict[str, Any]] = {
        "LeNet": {"part": "train", "scheme": "central"},
        "LeNet, federated": {"part": "train", "scheme": "federated"},
        "fully connected": {"part": "architecture", "model": "mlp"},
        "ResNet-18": {"part": "architecture", "model": "resnet18"},
        "ConvNet": {"part": "architecture", "model": "cloak"},
        "ConvNet, batch norm": {"part": "batch norm", "model": "cloak"},
        "ResNet-18, 2,000": {"part": "size", "model": "resnet18"},
        "ConvNet, 2,000": {"part": "size", "model": "cloak"},
    }
    looks = {"none": ("truth", "s"), "LODA₁": ("defense", "o"), "LODA₂": ("light", "^")}
    fig, ax = plt.subplots(figsize=(4.6, 4.2))
    for i, want in enumerate(nets.values()):
        for j, (arm, look) in enumerate(looks.items()):
            if value := accuracy(arm, **want):
                bar(ax, i + 0.2 * (j - 1), value, look)
    ax.axvline(10, color=COLORS["accent"], ls=":", lw=1.5)
    ax.set_yticks(range(len(nets)), nets)
    ax.set(xlim=(0, 52), xlabel="clean test images right (%)")
    ax.invert_yaxis()
    for arm, (color, mark) in looks.items():
        name = "the images" if arm == "none" else f"encodings, {arm}"
        ax.plot([], [], mark, color=COLORS[color], label=name)
    ax.plot([], [], ":", color=COLORS["accent"], label="chance")
    fig.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=10)
    return fig


def weights() -> Figure:
    """LPIPS and PSNR of encodings as c grows, the paper's (Tables 5 and 6) and ours."""
    fig, axes = plt.subplots(1, 2, figsize=(4.7, 3.4))
    looks = {"LODA₁": ("defense", "o", 5), "LODA₂": ("good", "^", 6)}
    for name, (color, mark, number) in looks.items():
        paper = ledger.paper(f"loda/table-{number}")
        here = sorted(find("attack", part="encoding", layers=LAYERS[name][0]), key=lambda t: t["c"])
        for ax, (score, head) in zip(axes, SCORES.items(), strict=True):
            printed = [row[f"Avg. {head.removesuffix(' (dB)')}"][0] for row in paper.values()]
            ink = COLORS[color]
            label = {"paper": f"{name}, paper", "ours": f"{name}, ours"}
            ax.plot(list(paper), printed, mark + "--", color=ink, mfc="none", label=label["paper"])
            values = [t["found"]["x′"][score]["mean"] for t in here]
            ax.plot([t["c"] for t in here], values, mark + "-", color=ink, label=label["ours"])
            ax.set(xlabel="weight c", ylabel=head)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return fig
