"""Fresh digits: real ones, turned, scaled and shifted, so that no list of digits holds them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from ...data import Dataset, load
from ...runtime import generator

TURN, SCALE, SHIFT = 0.25, 0.1, 0.12  # radians; relative; of half the width


def fresh(ds: Dataset, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 28, 28) that are in no data set, and their labels."""
    x, y = ds.sample(count, seed=seed)
    return warped(x, generator(seed, 17)), y


def warped(x: Tensor, rng: torch.Generator) -> Tensor:
    """Each image under a small random motion of its own."""
    angle, size, right, down = (2 * torch.rand(4, len(x), generator=rng) - 1).to(x)
    size = 1 + SCALE * size
    cos, sin = size * (TURN * angle).cos(), size * (TURN * angle).sin()
    rows = (torch.stack([cos, -sin, SHIFT * right], 1), torch.stack([sin, cos, SHIFT * down], 1))
    moves = torch.stack(rows, 1)  # (N, 2, 3)
    grid = affine_grid(moves, list(x.shape), align_corners=False)
    return grid_sample(x, grid, align_corners=False).clamp(0, 1)


def digits() -> Dataset:
    return load("mnist")
