"""A small network for lab 2, its gradients, and what a class captures.

Chapter "Matching gradients". The network has a convolution first, so no row of it is the image.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...data import load
from .kit import draws

SHAPE = (1, 1, 14, 14)  # one digit
KEPT = 0.1  # of the entries of the pruned gradient
NAMES = ("0.weight", "0.bias", "3.weight", "3.bias")
Case = tuple[nn.Sequential, Tensor, Tensor]  # network, image, label (1,)


def network(rng: torch.Generator) -> nn.Sequential:
    """8 filters of 5 x 5, sigmoid, 10 classes: 4,138 weights, drawn from [-1/2, 1/2] as in DLG."""
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.Sigmoid(), nn.Flatten(), nn.Linear(392, 10)
    )
    for weight in net.parameters():
        weight.data.uniform_(-0.5, 0.5, generator=rng)
    return net


def digit(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    data = load("mnist", size=SHAPE[-1])
    row = torch.randint(len(data.y_train), (1,), generator=rng)
    return data.x_train[row], data.y_train[row]


def gradients(net: nn.Sequential, x: Tensor, y: Tensor) -> list[Tensor]:
    """The gradient of the cross-entropy in all weights; it can be differentiated in x."""
    loss = cross_entropy(net(x), y)
    return list(torch.autograd.grad(loss, list(net.parameters()), create_graph=True))


def seen(net: nn.Sequential, x: Tensor, y: Tensor) -> list[Tensor]:
    """The same as it arrives at the server."""
    return [g.detach() for g in gradients(net, x, y)]


def pruned(sent: list[Tensor], kept: float = KEPT) -> list[Tensor]:
    """Of each tensor only the entries of largest magnitude; the others are zero."""
    shown = []
    for g in sent:
        least = g.abs().flatten().kthvalue(1 + int((1 - kept) * (g.numel() - 1)))[0]
        shown.append(torch.where(g.abs() >= least, g, 0.0))
    return shown


def case(key: str, *path: str) -> Case:
    rng = draws(key, *path)
    return network(rng), *digit(rng)


@lru_cache(maxsize=4)
def captured(key: str) -> tuple[Case, Case]:
    """The clients of a class: one sends its gradient, the other the largest entries only."""
    return case(key, "captured", "plain"), case(key, "captured", "pruned")


def handout(key: str) -> dict[str, Tensor]:
    """Weights and gradients by name, and the second client's label; labels are no secret here."""
    plain, cut = captured(key)
    shown = {"plain": seen(*plain), "pruned": pruned(seen(*cut))}
    tensors = {}
    for kind, (net, _, y) in {"plain": plain, "pruned": cut}.items():
        tensors |= {f"{kind}.label": y}
        tensors |= {f"{kind}.net.{name}": w.detach() for name, w in net.named_parameters()}
        tensors |= {
            f"{kind}.gradient.{name}": g for name, g in zip(NAMES, shown[kind], strict=True)
        }
    return tensors


def client(captured: dict[str, Tensor], kind: str) -> tuple[nn.Sequential, list[Tensor], Tensor]:
    """Network, gradient and label of the "plain" or the "pruned" client, out of ``captured``."""
    net = network(torch.Generator())
    net.load_state_dict({name: captured[f"{kind}.net.{name}"] for name in NAMES})
    return net, [captured[f"{kind}.gradient.{name}"] for name in NAMES], captured[f"{kind}.label"]
