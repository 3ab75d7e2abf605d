"""Signs of gradients for lab 6: uploads, and what a class captures.

Chapter "The red team": prop-red-again, a secret that is drawn anew, and one that stays.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ... import models
from ...client import share
from ...data import Dataset, load
from ...defenses import Defense
from ...gradients import Tensors
from .kit import draws

SIDE, UNITS = 14, 16
PIXELS = SIDE**2
POOL, ROUNDS = 100, 16  # candidates, and rounds of the second capture


@lru_cache(maxsize=1)
def data() -> Dataset:
    """Digits of 14 x 14 pixels, with a background of exact zeros."""
    return load("mnist", size=SIDE)


def network(rng: torch.Generator) -> models.Net:
    """196 pixels -> 16 units, ReLU, -> 10."""
    seed = int(torch.randint(2**31, (1,), generator=rng))
    return models.build("mlp", data(), hidden=(UNITS,), seed=seed)


def digits(rng: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Pictures (count, 1, 14, 14) and labels, drawn without replacement."""
    rows = torch.randperm(len(data().y_train), generator=rng)[:count]
    return data().x_train[rows], data().y_train[rows]


def sent(defense: Defense, rng: torch.Generator, clients: int, seed: int = 0) -> Tensors:
    """What clients with one digit each send, name -> (clients, *shape)."""
    x, y = digits(rng, clients)
    return share(network(rng), x, y, defense, each=1, seed=seed).tensors


def signs(t: Tensor) -> Tensor:
    """The signs of gradients (K, *shape) times each client's mean size."""
    return t.sign() * t.abs().flatten(1).mean(1).view(-1, *[1] * (t.dim() - 1))


def first_layer(rng: torch.Generator, x: Tensor, y: Tensor) -> Tensor:
    """Signs of the first layer's gradient behind one picture, (units, pixels): −1, 0, 1."""
    tensors = share(network(rng), x, y, each=1).tensors
    name = next(n for n, t in tensors.items() if t.dim() == 3)
    return tensors[name][0].sign()


def filled(layer: Tensor, rng: torch.Generator) -> Tensor:
    """The same with a fresh random sign in place of each zero."""
    coins = 2.0 * torch.randint(2, layer.shape, generator=rng) - 1
    return torch.where(layer == 0, coins, layer)


@lru_cache(maxsize=4)
def captured(key: str) -> tuple[dict[str, Tensor], int, int]:
    """What a class gets, and which candidates are behind the two captures."""
    rng = draws(key, "captured")
    x, y = digits(rng, POOL)
    first, second = torch.randperm(POOL, generator=rng)[:2].tolist()
    once = first_layer(rng, x[first : first + 1], y[first : first + 1])
    again = first_layer(rng, x[second : second + 1], y[second : second + 1])
    while not (once.any() and again.any()):  # every unit was off
        once = first_layer(rng, x[first : first + 1], y[first : first + 1])
        again = first_layer(rng, x[second : second + 1], y[second : second + 1])
    rounds = torch.stack([filled(again, rng) for _ in range(ROUNDS)])
    pool = (255 * x.flatten(1)).round().to(torch.uint8)
    handout = {"signs": once.to(torch.int8), "rounds": rounds.to(torch.int8), "pool": pool}
    return handout, first, second


def handout(key: str) -> dict[str, Tensor]:
    """Signs of one upload; signs of 16 rounds, zeros filled; 100 candidates, 0 to 255."""
    return captured(key)[0]
