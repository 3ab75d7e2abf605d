"""ModelCloak (Wei et al. 2023): clip a client's update, add Gaussian noise, choose how much.

Chapters: "ModelCloak I: how much noise is enough?" and "II: noise that follows the gradient".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from .. import privacy
from ..gradients import Tensors, clip, norm, per_client
from ..privacy.mechanisms import Gaussian, Mechanism
from ..runtime import PrivflError
from ..values import NotNegative, Positive, Word
from ..wire import Clip, Facts, Noise
from .base import Context, Defense, Memory
from .noise import normal


@dataclass(frozen=True)
class ModelCloak(Defense):
    """(∇f)* = clip_C(∇f) + N(0, ς² I), the perturbation that Eq. 5 bounds, on a round's update.

    ``mode="fixed"``: ς = σC (Eq. 3–4 with sensitivity C). ``mode="dynamic"`` (§V) takes for the
    sensitivity S the l2-max norm, the length that clipping has left. ``keep="variance"``: ς = σC as
    before, which is read as σ_dyn S with σ_dyn = σC/S ≥ σ. ``keep="scale"``: ς = σS, so the noise
    shrinks with the gradient.

    ``where="client"``: noise on each upload, as the paper's text says. ``where="server"``: uploads
    are only clipped, and one draw of standard deviation ς/K lies on their mean, as the released
    code has it; there S is the largest length among the round's K clients. ``per="update"`` clips
    the update as one vector, ``"layer"`` every tensor to C (released code).
    """

    clip: Positive = 2.0
    sigma: NotNegative = 5.0
    mode: Annotated[str, Word("mode", "fixed", "dynamic")] = "fixed"
    keep: Annotated[str, Word("keep", "variance", "scale")] = "variance"
    where: Annotated[str, Word("place of the noise", "client", "server")] = "client"
    per: Annotated[str, Word("unit of clipping", "update", "layer")] = "update"

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        kept, sensitivity = clip(delta, self.clip, self.per)
        self._remember(sensitivity, ctx)
        if self.where == "server":
            return kept
        std = self._std(sensitivity)
        return {n: t + per_client(std, t) * ctx.normal(t) for n, t in kept.items()}

    def average(self, mean: Tensors, share: float, rng: torch.Generator, memory: Memory) -> Tensors:
        if self.where == "client":
            return mean
        longest = memory.run.pop("longest", 0.0)
        std = share * self._std(torch.tensor([longest])).item()  # ς/K where weights are equal
        source = [None if memory.secure else rng]
        return {n: t + std * normal(t[None], source)[0] for n, t in mean.items()}

    @property
    def _follows(self) -> bool:
        """Whether the noise depends on the data."""
        return (self.mode, self.keep) == ("dynamic", "scale")

    def _std(self, sensitivity: Tensor) -> Tensor:
        """ς for each client (K,), in units of the update."""
        if self._follows:
            return self.sigma * sensitivity
        return torch.full_like(sensitivity, self.sigma * self.clip)

    def _remember(self, sensitivity: Tensor, ctx: Context) -> None:
        """Of the run: ``scales``, the smallest multiplier ς/S of a round; ``longest``, S of the
        round so far."""
        run = ctx.memory.run
        scales = run.setdefault("scales", {})
        run["longest"] = max(run.get("longest", 0.0), sensitivity.max().item())
        scale = self.sigma
        if self.mode == "dynamic" and self.keep == "variance":
            scale *= self.clip / max(sensitivity.max().item(), 1e-30)
        scales[ctx.round] = min(scale, scales.get(ctx.round, math.inf))

    def mechanism(self, tensors: Mapping[str, tuple[int, ...]]) -> Mechanism | str:
        """Dynamic noise of the same variance is fixed noise, so it has the ε of σ, not of σ_dyn.

        Where L tensors are clipped one by one, together they may be √L C long.
        """
        if self._follows:
            return "the scale of the noise follows private data; keep='variance' fixes it"
        if self.per == "layer" and not tensors:
            return "how many tensors are clipped is not known; give tensors=, names and shapes"
        pieces = len(tensors) if self.per == "layer" else 1
        place = "upload" if self.where == "client" else "mean"
        return Gaussian(self.sigma / math.sqrt(pieces), place, self.sigma * self.clip)

    def guards(self, door: str) -> bool:
        return door == "update" or (door == "average" and self.where == "server")

    def looks(self, door: str) -> bool:
        return door == "average" and self.where == "server" and self._follows

    def paper_epsilon(
        self, rounds: int, rate: float, delta_dp: float = 1e-5, memory: Memory | None = None
    ) -> float:
        """ε as the paper counts it (Table III, IV and V): Rényi DP, Poisson sampling at ``rate``.

        One Gaussian release a round with multiplier σ, or with the σ_dyn of that round: the
        smallest among its clients, as they were in the run so far.
        """
        scales = memory.run.get("scales", {}) if memory else {}
        if set(scales.values()) <= {self.sigma}:
            return privacy.epsilon(self.sigma, rate, rounds, delta_dp)
        if len(scales) != rounds:
            raise PrivflError(f"σ_dyn is known for {len(scales)} rounds, not for {rounds}")
        most = privacy.accountants.MOST  # beyond, ε is as low as it gets
        return privacy.epsilon([min(s, most) for s in scales.values()], rate, delta_dp=delta_dp)

    def facts(self, ctx: Context) -> Facts:
        """C, and ς where it does not depend on the data; no noise lies on an upload to a server."""
        noisy = self.where == "client" and not self._follows
        noise = Noise(self.sigma * self.clip) if noisy else None
        return Facts(clip=Clip(self.clip, self.per), noise=noise)


def perturbation(raw: Tensors, sent: Tensors) -> Tensor:
    """‖∇f − (∇f)*‖₂ of each client (K,): the middle of Eq. 5, the numerator of Eq. 6, Fig. 2."""
    return norm({n: t - sent[n] for n, t in raw.items()})


def select(
    grid: Sequence[Mapping[str, Any]], leakage: float = 0.0, floor: float = 0.0
) -> Mapping[str, Any]:
    """ModelCloak's choice (Eq. 5, §IV): the best accuracy among settings that do not leak.

    ``grid``: cells with "sigma", "clip", "accuracy" and "success" (of the attack). A cell leaks
    where its success is over ``leakage``: too little noise, the left side of Eq. 5. ``floor`` is
    the accuracy below which there is too much, the right side. Of equal accuracies the larger σ
    is taken, which costs less ε for the same σC; then the smaller C.
    """
    safe = [cell for cell in grid if cell["success"] <= leakage]
    if not safe:
        least = min((cell["success"] for cell in grid), default=math.nan)
        raise PrivflError(
            f"no setting has an attack success of {leakage:g} or less (lowest: {least:g}); "
            "add settings with more noise, or allow more leakage"
        )
    best = max(safe, key=lambda cell: (cell["accuracy"], cell["sigma"], -cell["clip"]))
    if best["accuracy"] < floor:
        raise PrivflError(
            f"no setting without leakage has an accuracy of {floor:g} or more "
            f"(highest: {best['accuracy']:g}); Eq. 5 has no solution in this grid"
        )
    return best
