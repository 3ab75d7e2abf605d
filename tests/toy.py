"""Small random clients for tests of training."""

from __future__ import annotations

from torch import Generator, Tensor, rand, randint


def make_clients(
    sizes: list[int], shape: tuple[int, ...] = (1, 12, 12), seed: int = 0
) -> list[tuple[Tensor, Tensor]]:
    """One (images, labels) for each size, of ten classes."""
    rng = Generator().manual_seed(seed)
    return [(rand(n, *shape, generator=rng), randint(10, (n,), generator=rng)) for n in sizes]
