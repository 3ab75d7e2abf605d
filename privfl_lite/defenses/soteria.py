"""Soteria (Sun et al. 2021): prune the part of the representation that tells most of the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from ..gradients import Tensors, stateless
from ..models import Net
from ..values import Part, Word
from .base import Context, Defense
from .prune import largest

CHUNK = 256  # rows of the Jacobian that one pass carries
ELEMENTS = 2**24  # numbers of Jacobians in memory at once


@dataclass(frozen=True)
class Soteria(Defense):
    """Zero the columns of the last layer's weight gradient that belong to the telling features.

    r is the representation, the last layer's input. ``score="code"``, as the released code has it:
    ‖∂r_i/∂x‖ / (r_i + 0.1), summed over the batch; features below its ``rate`` quantile go.
    ``score="paper"``: r_i ‖(∂r_i/∂x)⁻¹‖, where the pseudo-inverse of a row has the norm
    1/‖∂r_i/∂x‖; the largest go. The bias gradient and all other tensors leave as they are.

    A feature that is off (r_i = 0 and no slope, behind a ReLU) has score 0 in the code and goes
    first, though its column was 0 before: it is pruned for free. In the paper's form it is 0/0; we
    let it count as 0, so that it goes last.
    """

    rate: Part = 0.6
    score: Annotated[str, Word("score", "code", "paper")] = "code"

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        keep = largest(self.scores(ctx), self.rate)  # (K, R)
        return {
            n: t * keep[:, None] if n == f"{ctx.model.head_name}.weight" else t
            for n, t in g.items()
        }

    def scores(self, ctx: Context) -> Tensor:
        """One number a feature, summed over the batch; pruning takes the smallest, (K, R)."""
        slopes, r = representation_slopes(ctx)
        if self.score == "code":
            return (slopes / (r + 0.1)).sum(1)
        tells = (r.abs() / slopes).nan_to_num(0.0).sum(1)
        return tells.amax(1, keepdim=True) - tells


class Trunk(nn.Module):
    """A network up to what enters its last layer, (B, C, H, W) -> (B, R)."""

    def __init__(self, net: Net):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net.representation(x)


def representation_slopes(ctx: Context) -> tuple[Tensor, Tensor]:
    """‖∂r_i/∂x‖₂ and r_i for every feature i at once, (K, B, R) each.

    One reverse pass carries ``CHUNK`` rows of the Jacobian; a pass for each row is what makes the
    released code slow. Model Entanglement's score needs the same two numbers.
    """
    net = Trunk(stateless(ctx.model, "eval"))

    def representation(theta: Tensors, x: Tensor) -> Tensor:
        return functional_call(net, {f"net.{n}": t for n, t in theta.items()}, (x[None],))[0]

    jacobian = vmap(jacrev(representation, 1, chunk_size=CHUNK), (None, 0), randomness="different")
    value = vmap(representation, (None, 0), randomness="different")
    pixels = ctx.x[0][0].numel()
    at_once = max(1, ELEMENTS // (ctx.model.last.in_features * pixels))
    slopes, values = [], []
    for k, images in enumerate(ctx.x):
        theta = {n: t[k] for n, t in ctx.theta.items()}
        parts = [jacobian(theta, some).flatten(2).norm(dim=2) for some in images.split(at_once)]
        slopes.append(torch.cat(parts))
        values.append(value(theta, images))
    return torch.stack(slopes).detach(), torch.stack(values).detach()
