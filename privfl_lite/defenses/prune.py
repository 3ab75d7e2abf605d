"""Gradient pruning: only the largest entries of each tensor leave (Zhu et al. 2019, §5.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..gradients import Tensors, as_rows
from ..values import Part
from .base import Context, Defense


@dataclass(frozen=True)
class Prune(Defense):
    """Zero the entries of each tensor whose magnitude is below its ``rate`` quantile.

    Per tensor, biases included, and strictly below, as in all the released code that we know: ties
    with the threshold stay. With ``feedback`` a client adds what it held back to its next gradient,
    so that nothing is lost, only late (Lin et al. 2018; none of the five papers does).
    """

    rate: Part = 0.9
    feedback: bool = False
    blind = ("gradient",)

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        if not self.feedback:
            return {n: t * largest(t, self.rate) for n, t in g.items()}
        held = [ctx.memory[client] for client in ctx.who]  # what was not sent so far
        whole = {
            n: t + torch.stack([mine.get(n, torch.zeros_like(t[0])) for mine in held])
            for n, t in g.items()
        }
        sent = {n: t * largest(t, self.rate) for n, t in whole.items()}
        for k, mine in enumerate(held):
            mine.update({n: t[k] - sent[n][k] for n, t in whole.items()})
        return sent


def largest(t: Tensor, rate: float) -> Tensor:
    """Mask (K, *shape) of the entries that pruning at ``rate`` keeps, client by client.

    The linearly interpolated quantile lies between the entries at ⌊rate·(n−1)⌋ and ⌈rate·(n−1)⌉ of
    the sorted magnitudes, so an entry is below it exactly when it is below the upper one. (k-th
    value rather than ``torch.quantile``, which refuses tensors of over 16 million entries.)
    """
    size = as_rows(t.abs())  # (K, n)
    k = math.ceil(rate * (size.shape[1] - 1)) + 1
    threshold = size.kthvalue(k, dim=1, keepdim=True).values
    return (size >= threshold).view_as(t)
