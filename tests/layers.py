"""What the tests on layers share: random shapes, small networks, autograd's gradients."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

SEEDS = range(5)
close = torch.testing.assert_close


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def between(low: int, high: int, gen: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (1,), generator=gen))


def normal(*shape: int, gen: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=gen)


def gradients(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Autograd's gradient of the mean cross-entropy, by name of the weight."""
    net.zero_grad()
    cross_entropy(net(x), y).backward()
    return {n: p.grad.clone() for n, p in net.named_parameters()}


def mlp(sizes: list[int], act: type, gen: torch.Generator, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (inp, out) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(inp, out, bias=bias)] + [act()] * (i < len(sizes) - 2)
    net = nn.Sequential(*layers)
    for p in net.parameters():
        p.data = normal(*p.shape, gen=gen) / math.sqrt(p.shape[-1])
    return net


def onehot(y: Tensor, classes: int) -> Tensor:
    return nn.functional.one_hot(y, classes).to(torch.get_default_dtype())


def relative(a: Tensor, b: Tensor) -> float:
    """Distance of a from b, relative to b."""
    return float((a - b).norm() / b.norm())
