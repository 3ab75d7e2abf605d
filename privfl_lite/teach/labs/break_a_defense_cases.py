"""Entangled uploads of a dense network for lab 5, and what a class captures.

Chapter "Model Entanglement": a share of the columns of a layer is a guard's. Here the layer is the
first, so a column belongs to a pixel. All numbers have 64 bits.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .kit import draws
from .read_off_cases import SIDE, digits

PIXELS, UNITS, BETA = SIDE**2, 96, 0.7
Sent = dict[str, Tensor]


def network(rng: torch.Generator, units: int = UNITS, pixels: int = PIXELS) -> nn.Sequential:
    """pixels -> units, sigmoid, -> 10, with PyTorch's usual bounds of uniform weights."""
    net = nn.Sequential(nn.Linear(pixels, units), nn.Sigmoid(), nn.Linear(units, 10)).double()
    for weight in net.parameters():
        size = pixels if weight.shape[0] == units else units
        weight.data.uniform_(-(size**-0.5), size**-0.5, generator=rng)
    return net


def first_layer(net: nn.Sequential) -> tuple[Tensor, Tensor]:
    """The weights (units, pixels) and the bias (units,) that the server had sent."""
    weight, bias = list(net.parameters())[:2]
    return weight.detach(), bias.detach()


def gradients(net: nn.Sequential, x: Tensor, y: Tensor) -> Sent:
    """What an undefended client sends of one picture (1, pixels)."""
    names = ("weight", "bias", "head_weight", "head_bias")
    parts = torch.autograd.grad(cross_entropy(net(x), y), list(net.parameters()))
    return dict(zip(names, parts, strict=True))


def entangled(own: Sent, guard: Sent, columns: Tensor) -> Sent:
    """The client's upload with the guard's numbers in these columns of the first layer."""
    return own | {"weight": torch.where(columns, guard["weight"], own["weight"])}


def chosen(rng: torch.Generator, beta: float, pixels: int = PIXELS) -> Tensor:
    """Which columns a client takes from the guard, (pixels,): the share 1 − β, at random."""
    columns = torch.zeros(pixels, dtype=torch.bool)
    columns[torch.randperm(pixels, generator=rng)[: round((1 - beta) * pixels)]] = True
    return columns


def upload(
    rng: torch.Generator, units: int = UNITS, beta: float = BETA
) -> tuple[nn.Sequential, Sent, Tensor, Tensor, Tensor]:
    """Network, entangled upload, columns of the guard, the private picture (pixels,), its label."""
    net = network(rng, units)
    x, y = digits(rng, 2)
    x = (0.05 + 0.9 * x).double()  # no pixel is exactly zero
    own, guard = (gradients(net, x[k : k + 1], y[k : k + 1]) for k in (0, 1))
    columns = chosen(rng, beta)
    return net, entangled(own, guard, columns), columns, x[0], y[0]


@lru_cache(maxsize=4)
def captured(key: str) -> tuple[Sent, Tensor, Tensor, Tensor]:
    """What a class's server has, and the truth behind it: columns, picture, label."""
    net, sent, columns, x, y = upload(draws(key, "captured"))
    names = ("W", "b", "V", "c")
    weights = dict(zip(names, (p.detach() for p in net.parameters()), strict=True))
    return sent | weights, columns, x, y


def handout(key: str) -> Sent:
    """The entangled upload, and the weights W, b (first layer), V, c (last layer)."""
    return captured(key)[0]
