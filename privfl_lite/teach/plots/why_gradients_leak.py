"""Figures and measurements of the chapter "Why gradients leak"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from ... import metrics
from ...attacks import ClosedForm, infer_labels, row_quotients
from ...client import share
from ...data import load
from ...models import Net, build
from ...pictures import pack
from ..figures import COLORS, show_image, show_upload

ACTS = ("relu", "sigmoid")
Rule = Callable[[Tensor, Tensor, Tensor], Tensor]
LAYERS = {
    "first, ReLU": ("features.1", "relu"),
    "first, sigmoid": ("features.1", "sigmoid"),
    "second, ReLU": ("features.3", "relu"),
    "last, ReLU": ("head", "relu"),
}


def first_row(net: Net, x: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """The first row of the first weight gradient that is not zero, and its bias gradient."""
    g = share(net, x, y).tensors
    weight, bias = (g[f"features.1.{n}"][0] for n in ("weight", "bias"))
    i = int(bias.nonzero()[0])
    return weight[i].view(*x.shape[1:]), float(bias[i])


def opening() -> Figure:
    """A digit and a face, the upload, one row of the gradient, and that row divided."""
    sets = ((load("mnist"), 2), (load("faces"), 1))  # with the seed of one picture
    cases = [(data, *data.sample(1, seed=seed)) for data, seed in sets]
    fig, axes = plt.subplots(2, 4, figsize=(5.8, 3.3))
    for axs, (data, x, y) in zip(axes, cases, strict=True):
        net = build("mlp", data)
        row, bias = first_row(net, x, y)
        limit = float(row.abs().max())
        show_image(axs[0], x[0])
        show_upload(axs[1], share(net, x, y))
        axs[2].imshow(row[0], cmap="PuOr", vmin=-limit, vmax=limit)
        axs[2].set_axis_off()
        show_image(axs[3], row / bias)
    names = ("private", "sent", "one row of it,\nreshaped", "the same row,\ndivided")
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_title(name, fontsize=10, color=COLORS["attack"] if "row" in name else "black")
    return fig


# --- one layer, its gradient's rows ---


@cache
def _net(act: str) -> Net:
    return build("mlp", load("mnist"), hidden=(256, 64), act=act)


@cache
def what_falls_out(digit: int, batch: int, layer: str) -> tuple[Tensor, float, float]:
    """What entered a layer for the digit, the attacker's row, the nearest row: (3, in); errors."""
    name, act = LAYERS[layer]
    net, digits = _net(act), load("mnist")
    first = digits.x_test[digits.y_test == digit][:1]
    others, labels = digits.sample(batch, seed=batch)  # one more than needed
    x, y = torch.cat([first, others[1:]]), torch.cat([torch.tensor([digit]), labels[1:]])
    sent = share(net, x, y).tensors
    rows = row_quotients(sent[f"{name}.weight"], sent[f"{name}.bias"])[0]
    seen: list[Tensor] = []
    module = dict(net.named_modules())[name]
    with module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach())):
        net(x)
    truth = seen[0][0]
    away = (rows - truth).norm(dim=1).nan_to_num(torch.inf) / truth.norm()
    taken = int(sent[f"{name}.bias"][0].abs().argmax())
    picked = torch.stack([truth, rows[taken], rows[away.argmin()]])
    return picked, float(away[taken]), float(away.min())


def square(values: Tensor, scale: Tensor) -> Tensor:
    """(in,) as a picture (1, side, side)."""
    side = int(len(values) ** 0.5)
    return (values / scale).view(1, side, side)


def layer_frame(digit: int, batch: int, layer: str) -> str:
    """A frame of the panel: three small pictures with their errors."""
    picked, taken, nearest = what_falls_out(digit, batch, layer)
    names = ("truth", "attacker's row", "nearest row")
    alts = ("what entered the layer", "the attacker's row", "the nearest row")
    look = 'width="92" style="image-rendering:pixelated"'
    pictures = [
        f'<img alt="{alt}" {look} src="data:image/png;base64,{pack(square(v, picked[0].max()))}">'
        for v, alt in zip(picked, alts, strict=True)
    ]
    rows = (names, pictures, ("", f"{taken:.0%} off", f"{nearest:.0%} off"))
    cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def layer_words(digit: int, batch: int, layer: str) -> str:
    _, taken, nearest = what_falls_out(digit, batch, layer)
    where = f"Digit {digit} in a batch of {batch}, {layer} layer"
    return f"{where}: the attacker's row is {taken:.0%} off, the nearest row {nearest:.0%}."


def layers_figure(digit: int = 3, sizes: Sequence[int] = (1, 2, 4, 8, 16)) -> Figure:
    """The nearest row of each layer, for growing batches."""
    fig, axes = plt.subplots(len(LAYERS), len(sizes) + 1, figsize=(4.8, 4.3))
    for axs, name in zip(axes, LAYERS, strict=True):
        for ax, size in zip(axs[1:], sizes, strict=True):
            picked, _, nearest = what_falls_out(digit, size, name)
            show_image(ax, square(picked[2], picked[0].max()))
            color = COLORS["attack"] if nearest < 0.0005 else "black"
            ax.set_xlabel(f"{nearest:.0%}", fontsize=10, labelpad=2, color=color)
        show_image(axs[0], square(picked[0], picked[0].max()))
        words = {"rotation": 0, "ha": "right", "va": "center", "fontsize": 10}
        axs[0].set_ylabel(name.replace(", ", "\n"), **words)
    for ax, title in zip(axes[0], ["truth", *(f"B = {s}" for s in sizes)], strict=True):
        ax.set_title(title, fontsize=10)
    return fig


# --- measurements ---


def trained(net: Net, steps: int, eta: float = 0.1, seed: int = 0) -> tuple[Net, float]:
    """The network after plain SGD on batches of 32 digits, and its test accuracy."""
    digits, rng = load("mnist"), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(net.parameters(), eta)
    for _ in range(steps):
        take = torch.randint(len(digits.y_train), (32,), generator=rng)
        optimizer.zero_grad()
        cross_entropy(net(digits.x_train[take]), digits.y_train[take]).backward()
        optimizer.step()
    right = net(digits.x_test).argmax(1) == digits.y_test
    return net, right.float().mean().item()


def read_by(rule: Rule, net: Net, sizes: Sequence[int]) -> dict[int, tuple]:
    """Batch size -> median PSNR of 20 batches of different digits, and its 95 % interval."""
    found = {}
    for size in sizes:
        psnr: list[float] = []
        for seed in range(20):
            x, y = load("mnist").sample(size, seed=seed, distinct=True)
            sent = share(net, x, y).tensors
            x_hat = rule(sent["head.weight"][0], sent["head.bias"][0], y).view_as(x)
            psnr += metrics.compare(x_hat, x)["psnr"].tolist()
        found[size] = (np.median(psnr), *metrics.bootstrap_interval(psnr, np.median))
    return found


def exact(x_hat: Tensor, x: Tensor) -> list[bool]:
    """Which images were found (over 60 dB), whatever their order."""
    return (metrics.compare(x_hat.view_as(x), x, match=True)["psnr"] > 60).tolist()


def read_batch(by_range: Callable, width: int, size: int, seed: int) -> dict[str, list]:
    """One batch behind a ReLU and a sigmoid layer: who is read, by whom, and lone units of each."""
    x, y = load("mnist").sample(size, seed=seed)
    nets = {a: build("mlp", load("mnist"), hidden=(width,), act=a, seed=seed) for a in ACTS}
    sent = {a: share(net, x, y) for a, net in nets.items()}
    g = [sent["relu"].tensors[f"features.1.{n}"] for n in ("weight", "bias")]
    on = nets["relu"].features[1](x.flatten(1)) > 0
    lone = (on & (on.sum(0) == 1)).sum(1)  # (size,): units of its own
    return {
        "ReLU, ClosedForm": exact(ClosedForm().run(sent["relu"]).images, x),
        "ReLU, by range": exact(by_range(row_quotients(*g)[0], g[1][0], size), x),
        "sigmoid": exact(ClosedForm().run(sent["sigmoid"]).images, x),
        "lone": lone.tolist(),
    }


def read_batches(by_range: Callable, width: int, size: int, count: int = 8) -> dict[str, list]:
    """The same for several batches, each behind a network of its own, joined."""
    joined: dict[str, list] = {}
    for seed in range(count):
        for name, values in read_batch(by_range, width, size, seed).items():
            joined.setdefault(name, []).extend(values)
    return {**joined, "has a lone unit": [n > 0 for n in joined["lone"]]}


def lone_bound(width: int, sizes: Sequence[int], seed: int = 7) -> list[float]:
    """The bound of prop-lone-units-expected, with q counted on the training digits."""
    digits = load("mnist")
    net = build("mlp", digits, hidden=(width,), act="relu", seed=seed)
    q = (net.features[1](digits.x_train.flatten(1)) > 0).float().mean(0)
    return [min(1.0, float((q * (1 - q) ** (size - 1)).sum())) for size in sizes]


def labels_right(nets: Sequence[Net], size: int, batches: int = 30) -> dict[str, list[float]]:
    """Share of a batch's labels that counting gets right, p̄ estimated from noise or own digits."""
    digits = load("mnist")
    hits: dict[str, list[float]] = {"noise": [], "own digits": [], "no gradient": []}
    for seed, net in enumerate(nets):
        x, y = digits.sample(batches * size, seed=seed)
        upload = share(net, x, y, each=size)
        p_own = net(digits.x_test[:64]).softmax(1).mean(0).detach()
        read = infer_labels(upload)
        for found, truth, g in zip(read, y.split(size), upload.tensors["head.bias"], strict=True):
            guess = _whole(size * (p_own - g), size)
            hits["noise"].append(_agree(found, truth))
            hits["own digits"].append(_agree(guess, truth))
            hits["no gradient"].append(_agree(torch.arange(size) % 10, truth))
    return hits


def _agree(found: Tensor, y: Tensor) -> float:
    """Share of labels that agree, whatever their order."""
    a, b = (torch.bincount(v, minlength=10) for v in (found, y))
    return (torch.minimum(a, b).sum() / len(y)).item()


def _whole(counts: Tensor, size: int) -> Tensor:
    """Labels from counts: whole numbers that add up to the batch size."""
    counts = counts.clamp(min=0) * size / counts.clamp(min=0).sum()
    whole = counts.floor().long()
    whole[(counts - whole).topk(size - int(whole.sum())).indices] += 1
    return torch.repeat_interleave(torch.arange(10), whole)


# --- curves ---


def band(ax: Axes, sizes: Sequence[int], rows: Sequence[tuple], color: str, **look: Any) -> None:
    """A line through middles, and a band from low to high."""
    middle, low, high = np.array(rows).T
    ax.plot(sizes, middle, color=color, **look)
    ax.fill_between(sizes, low, high, color=color, alpha=0.2, lw=0)
