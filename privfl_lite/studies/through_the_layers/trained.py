"""Does the recursion read trained networks as well? (chapter: through the layers)

One digit, one step, DLG's LeNet with three activations, at random weights and after three ways of
training. With ReLU every failure is looked into: do the equations of R-GAP still have full rank if
the attacker were told each layer's error signal and which of its units are on?
"""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ... import metrics, models
from ...attacks import Recursive
from ...attacks.analytic.equations import from_gradient, from_output
from ...client import share
from ...data import Dataset, load
from ...runtime import generator
from ..base import Study

RECIPES: dict[str, dict] = {  # weights start uniform in ± init; batches of 32 training digits
    "untrained": {"init": 0.5, "steps": 0},
    "Adam, large start": {"init": 0.5, "steps": 1000, "optimizer": "Adam", "rate": 0.003},
    "SGD, small start": {"init": 0.1, "steps": 1000, "optimizer": "SGD", "rate": 0.1},
    "SGD, large start": {"init": 0.5, "steps": 500, "optimizer": "SGD", "rate": 0.1},
}


def _settings(profile: str) -> dict:
    return {
        "dataset": "mnist",
        "split": "test",
        "model": "lenet",
        "recipes": RECIPES,
        "batch_size": 32,
        "images": 12 if profile == "cpu" else 48,
        "seeds": list(range(4 if profile == "cpu" else 12)),
        "threshold_db": 20,
        "rank_tolerance": 1e-6,
    }


def _cells(settings: dict) -> list[dict]:
    return [
        {"act": act, "recipe": recipe, "seed": seed}
        for act in ("sigmoid", "tanh", "relu")
        for recipe in settings["recipes"]
        for seed in settings["seeds"]
    ]


def network(settings: dict, cell: dict, data: Dataset) -> models.Net:
    """The LeNet of a cell, trained by its recipe, in eval mode."""
    recipe, seed = settings["recipes"][cell["recipe"]], cell["seed"]
    net = models.build(settings["model"], data, seed=seed, act=cell["act"], init=recipe["init"])
    if recipe["steps"]:
        optimizer = getattr(torch.optim, recipe["optimizer"])(net.parameters(), recipe["rate"])
    rng = generator(seed)
    for _ in range(recipe["steps"]):
        take = torch.randint(len(data.y_train), (settings["batch_size"],), generator=rng)
        optimizer.zero_grad()
        cross_entropy(net(data.x_train[take]), data.y_train[take]).backward()
        optimizer.step()
    return net.eval()


def outputs_on(net: models.Net, x: Tensor) -> list[Tensor]:
    """Of each convolution, first layer first: which units are on for one image x (1, C, H, W)."""
    on, a = [], x
    with torch.no_grad():
        for layer in net.features:
            a = layer(a)
            if isinstance(layer, nn.ReLU):
                on.append(a[0] > 0)  # (channels, height, width)
    return on


def too_few(layer: nn.Conv2d, size: tuple[int, int], on: Tensor) -> int:
    """How many equations a ReLU convolution's input (C, *size) lacks by counting alone.

    Item 3 of prop-convolution-equations, with the channels and units that are on in place of all.
    """
    live, pixels = int(on.flatten(1).any(1).sum()), size[0] * size[1]
    stride, pad = layer.stride[0], cast(tuple[int, int], layer.padding)[0]
    by_row, by_column = (  # residue modulo the stride -> pixels, kernel entries
        [
            (
                len(range(q, side, stride)),
                sum((h - pad - q) % stride == 0 for h in range(layer.kernel_size[i])),
            )
            for q in range(stride)
        ]
        for i, side in enumerate(size)
    )
    rank = sum(min(n * m, live * h * w) for n, h in by_row for m, w in by_column)
    return max(0, layer.in_channels * (pixels - rank) - int(on.sum()))


def open_at_truth(net: models.Net, x: Tensor, y: Tensor, tol: float) -> list[int]:
    """Directions of each convolution's input, first layer first, that its equations leave open
    though the true error signal and the true pattern of units are put in; all in 64 bits."""
    net, values, left = copy.deepcopy(net).double(), [x.double()], []
    for layer in net.features:
        values.append(layer(values[-1]))
    signals = torch.autograd.grad(cross_entropy(net.head(values[-1]), y), values[1:])
    for i, layer in enumerate(net.features):
        if isinstance(layer, nn.Conv2d):
            a, out, delta = values[i][0].detach(), values[i + 1][0].detach(), signals[i][0]
            on = (out > 0).to(out)
            if not on.any():
                left.append(a.numel())
                continue
            _, free = from_gradient(layer, torch.zeros_like(layer.weight), delta, a.shape, tol)
            with torch.no_grad():
                left.append(len(free) - from_output(layer, a, free, out, on, tol)[1])
    return left


def _failure(net: models.Net, x: Tensor, y: Tensor, tol: float) -> dict:
    """Anatomy of one image (1, C, H, W) that a ReLU network kept; lists are first layer first."""
    on, few, a = outputs_on(net, x), [], x
    convs = [(i, m) for i, m in enumerate(net.features) if isinstance(m, nn.Conv2d)]
    for (i, layer), units in zip(convs, on, strict=True):
        few.append(too_few(layer, tuple(net.features[:i](a).shape[2:]), units))
    return {
        "units_on": [round(float(u.float().mean()), 3) for u in on],
        "channels_on": [int(u.flatten(1).any(1).sum()) for u in on],
        "too_few": few,
        "open_at_truth": open_at_truth(net, x, y, tol),
    }


def _compute(settings: dict, cell: dict) -> dict:
    data, seed = load(settings["dataset"]), cell["seed"]
    net = network(settings, cell, data)
    with torch.no_grad():
        right = (net(data.x_test).argmax(1) == data.y_test).float().mean()
    x, y = data.sample(settings["images"], seed=100 + seed, split=settings["split"])
    found = Recursive().run(share(net, x, y, each=1))
    psnr = metrics.compare(found.images, x)["psnr"].clamp(max=160).tolist()
    out = {
        "accuracy": round(float(right), 3),
        "labels_right": int((found.labels.cpu() == y).sum()),
        "psnr": [round(v, 2) for v in psnr],
        "cost": [float(f"{v:.3g}") for v in found.cost.tolist()],
        "open": [
            [s.unknowns - s.by_gradient - s.by_output for s in k[::-1]]
            for k in found.details["steps"]
        ],
    }
    if cell["act"] == "relu":
        out["failures"] = [
            {"image": i, **_failure(net, x[i : i + 1], y[i : i + 1], settings["rank_tolerance"])}
            for i, v in enumerate(psnr)
            if v <= settings["threshold_db"]
        ]
    return out


STUDY = Study(
    name="through-the-layers/trained",
    about="the recursion on LeNets at random weights and after three ways of training",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
