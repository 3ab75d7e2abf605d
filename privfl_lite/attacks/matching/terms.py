"""What a search is made of: distances between uploads, a prior of smooth images, a start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor

from ...gradients import Tensors


def patterned(shape: Sequence[int], rng: torch.Generator) -> Tensor:
    """A start of this shape (…, H, W): a patch of half the side, U[0, 1], laid out 2×2."""
    *rest, h, w = shape
    patch = torch.rand(*rest, -(-h // 2), -(-w // 2), generator=rng)
    return patch.repeat(*[1] * len(rest), 2, 2)[..., :h, :w]


def squares(a: Tensors, names: Iterable[str]) -> Tensor:
    """Squared length (P,) of the named tensors, all taken as one vector."""
    return cast(Tensor, sum(a[n].flatten(1).pow(2).sum(1) for n in names))


def distance(
    kind: str, a: Tensors, b: Tensors, names: Iterable[str], size_b: Tensor | None = None
) -> Tensor:
    """Distance "l2" or "cosine" (P,) between the named tensors, all taken as one vector.

    ``size_b``: the squared length of b, where it is at hand.
    """
    if kind == "l2":
        return cast(Tensor, sum((a[n] - b[n]).flatten(1).pow(2).sum(1) for n in names))
    dot = sum((a[n] * b[n]).flatten(1).sum(1) for n in names)
    size_b = squares(b, names) if size_b is None else size_b
    return 1 - dot / (squares(a, names) * size_b).clamp(min=1e-30).sqrt()


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbors along both axes, (P, B, C, H, W) -> (P,)."""
    down = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
    right = (x[..., :, 1:] - x[..., :, :-1]).abs().flatten(1).mean(1)
    return down + right
