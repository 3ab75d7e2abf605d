"""Private digits that stand in no public set: real ones, bent by a random affine map.

Were they images of a public set, whoever has that set could do without an attack: the gradient of a
batch is the mean of its images' gradients, so that which of 5,000 known images are in it is a
system of linear equations.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from ..data import load
from ..runtime import generator

TURN, SHIFT, STRETCH = math.pi / 15, 3 / 28, 0.12  # at most: radians, share of the side, of size


def drawn(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Digits (count, 1, 28, 28) in [0, 1], turned, moved and stretched, and labels (count,)."""
    digits = load("mnist")
    x, y = torch.cat([digits.x_train, digits.x_test]), torch.cat([digits.y_train, digits.y_test])
    rng = generator(seed)
    which = torch.randperm(len(y), generator=rng)[:count]
    turn, dx, dy, wide, high = (2 * torch.rand(5, count, generator=rng) - 1).unbind()
    turn, wide, high = TURN * turn, 1 + STRETCH * wide, 1 + STRETCH * high
    rows = [wide * turn.cos(), -high * turn.sin(), SHIFT * dx]
    rows += [wide * turn.sin(), high * turn.cos(), SHIFT * dy]
    maps = torch.stack(rows, 1).view(count, 2, 3)
    grid = affine_grid(maps, [count, 1, 28, 28], align_corners=False)
    return grid_sample(x[which], grid, align_corners=False).clamp(0, 1), y[which]
