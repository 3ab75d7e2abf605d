"""FedAvg as anybody would write it in PyTorch: what ``pf.FedAvg`` must never be slower than."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Order = Callable[[int], Tensor]  # of a client's examples


def train(net: nn.Module, x: Tensor, y: Tensor, eta: float, batch: int, order: Order) -> nn.Module:
    """One epoch of SGD, in place."""
    optimizer = torch.optim.SGD(net.parameters(), lr=eta)
    for rows in order(len(x)).split(batch):
        optimizer.zero_grad()
        cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return net


def one_round(
    model: nn.Module,
    clients: Sequence[tuple[Tensor, Tensor]],
    eta: float,
    batch: int,
    order: Order = torch.randperm,
) -> dict[str, Tensor]:
    """All clients one after the other; the mean of their weights, by numbers of examples."""
    total = {n: torch.zeros_like(t) for n, t in model.state_dict().items()}
    for x, y in clients:
        net = train(copy.deepcopy(model), x, y, eta, batch, order)
        for n, t in net.state_dict().items():
            total[n] += len(x) * t
    return {n: t / sum(len(x) for x, _ in clients) for n, t in total.items()}
