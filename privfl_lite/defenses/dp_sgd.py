"""DP-SGD (Abadi et al. 2016): clip each example's gradient, add noise to the sum, count ε."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.func import grad, vmap

from ..gradients import Tensors, batch_loss, stateless
from ..models import Net
from ..privacy.mechanisms import Gaussian, Mechanism
from ..runtime import needs
from ..values import NotNegative, Positive
from ..wire import Clip, Facts
from .base import Context, Defense


@dataclass(frozen=True)
class DPSGD(Defense):
    """(Σ_i g_i · min(1, C/‖g_i‖) + N(0, σ²C²)) / B: Algorithm 1 of the paper, at every local step.

    ``clip`` is C, an L2 norm over all tensors of one example's gradient; ``sigma`` multiplies it.
    One example added or removed moves the sum by at most C, whatever it is, and this is what raw
    noise (``DPGaussian``) lacks. Per-example gradients do not exist behind batch norm, which mixes
    examples: it is replaced by group norm, as Opacus does it.

    ε is for one example of one client, replaced by another (the batch's size is on the wire),
    against a server that sees every upload, so sampling of clients does not count. Nor does that of
    batches, which are shuffled and not drawn by coins: an example is in one batch of every pass.
    """

    clip: Positive = 1.0
    sigma: NotNegative = 1.0
    anew = True

    def model(self, model: Net) -> Net:
        with needs("dp"):  # slow to import
            from opacus.validators import ModuleValidator

        return ModuleValidator.fix(model)

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        f = grad(batch_loss(stateless(ctx.model, "eval")))
        one = vmap(f, in_dims=(None, 0, 0), randomness="different")  # over examples
        x, y = (cast(Tensor, t)[:, :, None] for t in (ctx.x, ctx.y))  # each example a batch
        each = vmap(one, randomness="different")(ctx.theta, x, y)  # name -> (K, B, *shape)
        norm = (
            torch.stack([t.reshape(*t.shape[:2], -1).pow(2).sum(2) for t in each.values()])
            .sum(0)
            .sqrt()
        )
        share = (self.clip / norm.clamp(min=1e-30)).clamp(max=1.0)  # (K, B)
        scale = self.sigma * self.clip
        return {
            n: (torch.einsum("kb,kb...->k...", share, t) + scale * ctx.normal(g[n])) / x.shape[1]
            for n, t in each.items()
        }

    def mechanism(self, tensors: Mapping[str, tuple[int, ...]]) -> Mechanism | str:
        return Gaussian(self.sigma, "step")

    def facts(self, ctx: Context) -> Facts:
        """The noise, σC/B on the mean gradient of B examples; the clip of each example's."""
        noise = ctx.on_upload(lambda batch: self.sigma * self.clip / batch)
        return Facts(noise=noise, clip=Clip(self.clip, "example"))
