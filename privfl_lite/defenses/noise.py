"""Noise for many clients at once, from their seeded generators or from the operating system.

Seeded noise repeats to the bit, as experiments need it. A run with ``secure=True`` takes that of
the system (``privacy.randomness``). Both are floating-point numbers, which lie on an uneven grid:
which values a sum "clean + noise" can take at all depends on the clean value, and may give it away
however large the noise is (Mironov 2012; with float32 noise of σ = 1 on 0 or 1, two thirds of the
outputs in (−½, ½) are possible for 0 only). An ε is meant for real numbers. The remedy is noise on
a grid, ``privacy.discrete_release``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..privacy.randomness import system_laplace, system_normal, system_uniform

Source = torch.Generator | None  # None: the operating system


def normal(like: Tensor, sources: Sequence[Source]) -> Tensor:
    """Standard normal noise shaped like ``like`` (K, *shape), each client from its own source."""

    def seeded(shape: torch.Size, rng: torch.Generator) -> Tensor:
        return torch.randn(shape, generator=rng)

    return _stacked(like, sources, seeded, system_normal)


def uniform(like: Tensor, sources: Sequence[Source]) -> Tensor:
    """Numbers from [0, 1) shaped like ``like`` (K, *shape), each client from its own source."""

    def seeded(shape: torch.Size, rng: torch.Generator) -> Tensor:
        return torch.rand(shape, generator=rng)

    return _stacked(like, sources, seeded, system_uniform)


def laplace(like: Tensor, sources: Sequence[Source]) -> Tensor:
    """Laplace noise of scale 1 shaped like ``like`` (K, *shape), each from its own source."""

    def seeded(shape: torch.Size, rng: torch.Generator) -> Tensor:
        ends = torch.empty(2, *shape).exponential_(generator=rng)
        return ends[0] - ends[1]

    return _stacked(like, sources, seeded, system_laplace)


def _stacked(
    like: Tensor,
    sources: Sequence[Source],
    seeded: Callable[[torch.Size, torch.Generator], Tensor],
    system: Callable[[int], np.ndarray],
) -> Tensor:
    shape = like.shape[1:]

    def one(source: Source) -> Tensor:
        if source is None:
            return torch.from_numpy(system(math.prod(shape))).view(shape).to(like)
        return seeded(shape, source)

    return torch.stack([one(source) for source in sources]).to(like)
