"""Figures and measurements of the chapter "Through the layers"."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from ... import metrics
from ...attacks import Recursive
from ...client import share
from ...data import load
from ...models import Net, build
from ...pictures import pack
from ..figures import COLORS, show_image, show_upload

ACTS: dict[str, type[nn.Module]] = {"sigmoid": nn.Sigmoid, "ReLU": nn.ReLU}


def small_net(*layers: nn.Module, features: int) -> Net:
    """A network for digits, in 64 bits: these layers, flattened, and a dense head."""
    body = nn.Sequential(*layers, nn.Flatten())
    return Net("small", body, nn.Linear(features, 10), load("mnist").shape).double()


def pooled() -> Net:
    """A convolution, ReLU with all units on, the average over positions, a dense head."""
    torch.manual_seed(0)
    net = small_net(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), features=8)
    nn.init.constant_(net.features[0].bias, 15.0)
    return net


def scramble(x: Tensor, seed: int = 0) -> Tensor:
    """The inner pixels, those that all windows of a 5 × 5 convolution sum over, in random order."""
    found, inner = x.clone(), x[..., 4:-4, 4:-4]
    order = torch.randperm(inner.numel(), generator=torch.Generator().manual_seed(seed))
    found[..., 4:-4, 4:-4] = inner.flatten()[order].view_as(inner)
    return found


def chain(channels: int, act: str, seed: int, bound: float = 0.5) -> Net:
    """DLG's LeNet with another number of channels, weights uniform in ± bound."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    inp = 1
    for stride in (2, 2, 1):
        layers += [nn.Conv2d(inp, channels, 5, stride, 2), ACTS[act]()]
        inp = channels
    body, head = nn.Sequential(*layers, nn.Flatten()), nn.Linear(49 * channels, 10)
    net = Net("chain", body, head, load("mnist").shape)
    for p in net.parameters():
        nn.init.uniform_(p, -bound, bound)
    return net


def opening() -> Figure:
    """Above: a digit solved out of a LeNet's gradient. Below: two images with one gradient."""
    x, y = load("mnist").sample(1, seed=2)
    lenet, flat = build("lenet", load("mnist")), pooled()
    upload = share(lenet, x, y)
    rows = (
        ("three\nconvolutions", upload, Recursive().run(upload).images, "solved for"),
        ("convolution,\nthen average", share(flat, x.double(), y), scramble(x), "fits as well"),
    )
    fig, axes = plt.subplots(2, 3, figsize=(5.2, 3.6))
    for axs, (name, sent, image, words) in zip(axes, rows, strict=True):
        show_image(axs[0], x[0])
        show_upload(axs[1], sent)
        show_image(axs[2], image[0], words, COLORS["attack"])
        look = {"rotation": 0, "ha": "right", "va": "center", "fontsize": 10}
        axs[0].set_ylabel(name, **look)
    axes[0, 0].set_title("private", fontsize=11)
    axes[0, 1].set_title("sent", fontsize=11)
    return fig


# --- the recursion ---


@cache
def solved(channels: int, activation: str) -> tuple[Tensor, Tensor, float, list]:
    """A digit, what the recursion makes of its gradient, PSNR, and how each layer went."""
    x, y = load("mnist").sample(1, seed=2)
    found = Recursive().run(share(chain(channels, activation, 0), x, y))
    psnr = float(metrics.compare(found.images, x)["psnr"][0])
    return x[0], found.images[0], min(psnr, 160.0), found.details["steps"][0]


def solved_frame(channels: int, activation: str) -> str:
    """A frame of the panel: the digit, the solution, and the equations of each layer."""
    x, x_hat, psnr, steps = solved(channels, activation)
    look = 'width="110" style="image-rendering:pixelated"'
    pictures = [
        f'<td><img alt="{alt}" {look} src="data:image/png;base64,{pack(image)}"></td>'
        for alt, image in (("the private digit", x), ("what the equations give", x_hat))
    ]
    rows = [
        f"<tr><td>{s.layer}</td><td>{s.by_gradient + s.by_output:,} of {s.unknowns:,}</td></tr>"
        for s in steps
    ]
    head = f"<tr><th>layer, {activation}</th><th>directions fixed</th></tr>"
    below = f"<tr><td>private</td><td>{psnr:.0f} dB</td></tr>"
    shown = f"<table><tr>{''.join(pictures)}</tr>{below}</table>"
    return f"{shown}<table>{head}{''.join(rows)}</table>"


def solved_words(channels: int, activation: str) -> str:
    *_, psnr, steps = solved(channels, activation)
    short = [s.layer for s in steps if s.by_gradient + s.by_output < s.unknowns]
    where = f"too few equations at {', '.join(short)}" if short else "all layers are solved"
    return f"{channels} channels, {activation}: {where}; the image has {psnr:.0f} dB."


def recursive_psnr(
    net: Net, count: int, seed: int, tol: float = 1e-4, spoil: Callable | None = None
) -> list[float]:
    """PSNR (at most 160 dB) of digits, one to an upload; ``spoil`` changes each tensor before."""
    x, y = load("mnist").sample(count, seed=seed)
    upload = share(net, x, y, each=1)
    if spoil is not None:
        spoiled = {name: spoil(t) for name, t in upload.tensors.items()}
        upload = dataclasses.replace(upload, tensors=spoiled)
    found = Recursive(tol).run(upload)
    return metrics.compare(found.images, x)["psnr"].clamp(max=160).tolist()


def add_noise(level: float, t: Tensor) -> Tensor:
    """Gaussian noise, relative to the root mean square of the tensor."""
    return t + level * t.square().mean().sqrt() * torch.randn_like(t)


def dots(ax: Axes, at: Sequence[float], scores: Sequence, color: str, mark: str, name: str) -> None:
    """A line through medians, and a mark for each single image."""
    ax.plot(at, [np.median(s) for s in scores], color=color, label=name)
    for where, values in zip(at, scores, strict=True):
        ax.plot([where] * len(values), values, mark, color=color, ms=4, alpha=0.7)
    ax.set(ylabel="PSNR (dB)", ylim=(0, 165))


def trained_figure(cells: Sequence[Mapping], threshold: float) -> Figure:
    """PSNR of every digit of the study, by activation and way of training."""
    recipes = list(dict.fromkeys(cell["recipe"] for cell in cells))
    looks = {"sigmoid": ("attack", "o"), "tanh": ("good", "^"), "relu": ("defense", "s")}
    fig, ax = plt.subplots(figsize=(5.2, 3.6))
    for shift, (act, (color, mark)) in zip((-0.22, 0.0, 0.22), looks.items(), strict=True):
        mine = [cell for cell in cells if cell["act"] == act]
        x = [recipes.index(c["recipe"]) + shift + 0.04 * (c["seed"] - 1.5) for c in mine]
        for at, cell in zip(x, mine, strict=True):
            ax.plot([at] * len(cell["psnr"]), cell["psnr"], mark, color=COLORS[color], ms=3)
        ax.plot([], [], mark, color=COLORS[color], label=act.replace("relu", "ReLU"))
    ax.axhline(threshold, color="gray", ls=":")
    ax.set_xticks(range(len(recipes)), [r.replace(", ", ",\n") for r in recipes], fontsize=10)
    ax.set(ylabel="PSNR (dB)", ylim=(0, 165))
    fig.legend(loc="outside upper center", ncol=3, fontsize=10)
    return fig
