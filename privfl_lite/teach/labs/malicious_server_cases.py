"""A malicious server's block in lab 3: what it sends, and what a class's server gets back.

Chapter "The malicious server": Fowl et al.'s imprint block, whose query is the mean pixel.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ...data import load
from .kit import draws

SIDE, BINS, BATCH = 14, 24, 10  # of what a class captured
KINDS = ("equal", "scaled", "random rows")  # of blocks that can imprint


def digits(rng: torch.Generator, count: int) -> Tensor:
    """Digits (count, 196), drawn without replacement."""
    x = load("mnist", size=SIDE).x_train
    return x[torch.randperm(len(x), generator=rng)[:count]].flatten(1)


def bin_of(x: Tensor, edges: Tensor) -> Tensor:
    """The last edge below the mean pixel of each image: (B,)."""
    return (x.mean(1, keepdim=True) > edges).sum(1) - 1


def imprinted(x: Tensor, edges: Tensor, signals: Tensor) -> tuple[Tensor, Tensor]:
    """∇W (bins, pixels) and ∇b (bins,): each image's signal goes to every bin up to its own."""
    on = (x.mean(1) > edges[:, None]).to(x)  # (bins, B)
    return on @ (signals[:, None] * x), on @ signals


def upload(
    rng: torch.Generator, bins: int = 9, crowded: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in 64 bits, and the images (3, 12) that stand alone, in the order of their bins.

    The last bin is used. Unless ``crowded``, the others are empty up to rounding: 1e-13.
    """
    where = [1, bins // 2, bins - 1] if not crowded else list(range(bins))
    x = torch.rand(len(where), 12, generator=rng, dtype=torch.float64)
    s = 0.5 + torch.rand(len(where), generator=rng, dtype=torch.float64)
    s[1] = -s[1]
    on = (torch.arange(bins)[:, None] <= torch.tensor(where)).double()
    g_weight, g_bias = on @ (s[:, None] * x), on @ s
    if not crowded:
        g_bias = g_bias + 1e-13 * torch.randn(bins, generator=rng, dtype=torch.float64)
    return g_weight, g_bias, x


def block(kind: str, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """First layer (k, 30) and second (30, k) of a block: "honest", or one of ``KINDS``."""
    k = int(torch.randint(16, 40, (1,), generator=rng))
    first = torch.randn(k, 30, generator=rng) / 30**0.5
    second = torch.randn(30, k, generator=rng) / k**0.5
    if kind == "honest":  # as after training: rows and columns share a little
        return first + 0.3 * first.mean(0), second + 0.3 * second.mean(1, keepdim=True)
    scale = 0.2 + torch.rand(k, generator=rng)
    if kind == "equal":
        return torch.full((k, 30), 1 / 30), torch.full((30, k), 1 / k)
    if kind == "scaled":
        first = torch.ones(k, 30) / 30 * scale[:, None]
    return first, torch.randn(30, 1, generator=rng) * scale.flip(0)


@lru_cache(maxsize=4)
def captured(key: str) -> tuple[dict[str, Tensor], Tensor]:
    """What a class's server has, and the images (k, 196) that are alone in a bin.

    Edges split the brightness of other digits evenly. Drawn again until some images are alone and
    some are not.
    """
    rng = draws(key, "captured")
    public = digits(rng, 500).mean(1)
    edges = public.quantile(torch.arange(BINS) / BINS)
    edges[0] = -1.0
    while True:
        x = digits(rng, BATCH)
        counts = torch.bincount(bin_of(x, edges), minlength=BINS)
        alone = counts[bin_of(x, edges)] == 1
        if 4 <= int(alone.sum()) < BATCH:
            break
    signals = (0.5 + torch.rand(BATCH, generator=rng)) * (torch.arange(BATCH) % 2 * 2 - 1)
    g_weight, g_bias = imprinted(x, edges, signals / BATCH)
    return {"edges": edges, "weight": g_weight, "bias": g_bias}, x[alone]


def handout(key: str) -> dict[str, Tensor]:
    """Edges of the block, and the gradient of its first layer."""
    return captured(key)[0]
