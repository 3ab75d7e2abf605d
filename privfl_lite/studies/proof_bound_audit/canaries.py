"""Canaries whose gradients are orthogonal, so that one run tells of each by itself.

A linear network with M inputs and weights of zero: canary i lights pixel i, and a coin decides what
it is. Where neighbors differ by a *replaced* example the coin is its label, and the two gradients
are opposite: the worst pair there is for noise on clipped vectors. Where a client is *added or
removed*, the coin lets the pixel shine or leaves the image black, whose gradient is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...client import share
from ...defenses.base import Defense
from ...federated import FedAvg
from ...models import Net, wrap
from ...privacy import Epsilon
from ...wire import Plan

M = 400
CLIP = 0.5  # below 1/√2, the length of a canary's gradient at weights of zero
Release = Callable[[np.ndarray], Sequence[float]]


def linear(bias: bool = False) -> Net:
    """W (2, M) of zeros: image e_i with label 0 or 1 has the gradient ∓½(1, −1) ⊗ e_i."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(M, 2, bias=bias))
    for p in net.parameters():
        nn.init.zeros_(p)
    return wrap(net, shape=(1, 1, M), head="1")


def canaries(coins: np.ndarray) -> tuple[Tensor, Tensor]:
    """Image i lights pixel i; the coin is its label, so "out" is "replaced by its opposite"."""
    return torch.eye(M).view(M, 1, 1, M), torch.from_numpy(coins).long()


def present(coins: np.ndarray) -> tuple[Tensor, Tensor]:
    """Image i lights pixel i where the coin says so; a black one sends what nobody sends."""
    x, y = canaries(np.zeros(M, dtype=bool))
    return x * torch.from_numpy(coins).view(M, 1, 1, 1), y


def examples(defense: Defense | None, plan: Plan | None = None, seed: int = 0) -> Release:
    """All canaries in one client's batch; scores from its upload."""

    def release(coins: np.ndarray) -> list[float]:
        sent = share(linear(), *canaries(coins), defense, plan=plan, seed=seed)
        first, second = sent.tensors["1.weight"][0]
        return (first - second if plan is None else second - first).tolist()

    return release


def uploads(defense: Defense | None, bias: bool = False, seed: int = 0) -> Release:
    """Each canary a client; scores from its own upload: the entries of its pixel, and the bias."""

    def release(coins: np.ndarray) -> list[float]:
        sent = share(linear(bias), *canaries(coins), defense, each=1, seed=seed).tensors
        pixel = (sent["1.weight"][:, 0] - sent["1.weight"][:, 1]).diagonal()
        more = sent["1.bias"][:, 0] - sent["1.bias"][:, 1] if bias else 0.0
        return (pixel + more).tolist()

    return release


class GlobalModel:
    """Each canary a client; scores from the last global model, which outsiders see.

    ``claimed`` is the ε that the run states, once it was made."""

    def __init__(self, defense: Defense, rounds: int, weighting: str = "uniform",
                 given: Callable = canaries, **options: Any) -> None:  # fmt: skip
        self.defense, self.rounds, self.given = defense, rounds, given
        self.options: dict[str, Any] = {"weighting": weighting, "show": False, **options}
        self.claimed: Epsilon | None = None

    def __call__(self, coins: np.ndarray) -> list[float]:
        x, y = self.given(coins)
        clients = [(x[i : i + 1], y[i : i + 1]) for i in range(M)]
        plan = Plan(eta=1.0, batch_size=1)
        run = FedAvg(linear(), clients, self.rounds, plan, defense=self.defense, **self.options)
        self.claimed = list(run)[-1].epsilon
        w = run.model.get_parameter("1.weight").detach()
        sign = 1 if self.given is canaries else -1
        return (sign * (w[1] - w[0])).tolist()
