"""ModelCloak's dynamic noise with a norm estimate that is private itself (chapter: red team).

The clip follows the median norm of the clients' updates by noisy bits (Andrew et al. 2021), and
the noise follows the clip. Both are public, so the size of an upload tells nothing on its client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..gradients import Tensors, clip, norm
from ..privacy.mechanisms import Gaussian, Mechanism
from ..runtime import PrivflError
from ..values import Part, Positive
from ..wire import Clip, Facts, Noise
from .base import Context, Defense, Memory


@dataclass(frozen=True)
class AdaptiveCloak(Defense):
    """clip_C(Δ) + N(0, (z C)² I) at the client, and one noisy bit that moves C for the next round.

    A client also says whether ‖Δ‖ ≤ C, as b + N(0, ``bit``²); after the round the server sets
    C ← C exp(−``rate`` (mean of b − ``quantile``)). ``sigma`` is the multiplier of the update and
    the bit together (``prop-bit-and-update``): z = (σ⁻² − (2 ``bit``)⁻²)^(−½), a little more than
    σ. ``clip`` is C in the first round, and public. The bits travel beside the upload, and are the
    only thing by which the clip depends on data. With weights by example the mean of the bits is
    plain, which changes no one's noise.
    """

    clip: Positive = 2.0
    sigma: Positive = 5.0
    bit: Positive = 10.0
    quantile: Part = 0.5
    rate: Positive = 0.2
    blind = ("average",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 * self.bit <= self.sigma:
            raise PrivflError(f"bit must be over sigma / 2 = {self.sigma / 2:g}; got {self.bit:g}")

    @property
    def multiplier(self) -> float:
        """z, of the update alone."""
        return (self.sigma**-2 - (2 * self.bit) ** -2) ** -0.5

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        run = ctx.memory.run
        now, below = run.setdefault("clip", self.clip), norm(delta) <= run["clip"]
        kept, _ = clip(delta, now)
        sent = {n: t + self.multiplier * now * ctx.normal(t) for n, t in kept.items()}
        bits = below.to(kept[next(iter(kept))])[:, None]
        run.setdefault("bits", []).extend((bits + self.bit * ctx.normal(bits))[:, 0].tolist())
        return sent

    def average(self, mean: Tensors, share: float, rng: torch.Generator, memory: Memory) -> Tensors:
        bits = memory.run.pop("bits", [])
        if bits:
            off = sum(bits) / len(bits) - self.quantile
            memory.run["clip"] *= math.exp(-self.rate * off)
        return mean

    def mechanism(self, tensors: Mapping[str, tuple[int, ...]]) -> Mechanism | str:
        return Gaussian(self.sigma, "upload")

    def facts(self, ctx: Context) -> Facts:
        """The clip of this round and the noise, which are public."""
        now = ctx.memory.run.get("clip", self.clip)
        return Facts(clip=Clip(now, "update"), noise=Noise(self.multiplier * now))
