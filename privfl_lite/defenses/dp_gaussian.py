"""Raw Gaussian noise on the gradient, as the "DP" baseline of DCS², Soteria, GGL and others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..gradients import Tensors
from ..privacy.mechanisms import Mechanism
from ..values import Positive
from ..wire import Facts
from .base import Context, Defense


@dataclass(frozen=True)
class DPGaussian(Defense):
    """g + N(0, σ²) on every entry, with no clipping.

    Without a clip one example can move the gradient by any amount, so no ε follows, whatever the
    name says. ``sigma`` is a standard deviation in units of the gradient.
    """

    sigma: Positive = 0.01
    blind = ("gradient",)

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        return {n: t + self.sigma * ctx.normal(t) for n, t in g.items()}

    def mechanism(self, tensors: Mapping[str, tuple[int, ...]]) -> Mechanism | str:
        return "noise without a clip hides nothing that is large enough"

    def facts(self, ctx: Context) -> Facts:
        return Facts(noise=ctx.on_upload(lambda _: self.sigma))
