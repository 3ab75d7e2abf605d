"""Checks for the exercises of "ModelCloak II: noise that follows the gradient"."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...runtime import generator
from ..check import TRIALS, Wrong, close, exercise, number, tensor


@exercise("The noise is a measuring tape: its size tells the private norm.")
def check_private_norm(private_norm: Callable[[Tensor, float], Tensor]) -> None:
    """``private_norm(sent, sigma)`` -> ‖u‖ / √(σ²d + 1) for each upload u of ``sent`` (n, d)."""
    for trial in range(TRIALS):
        rng, sigma, d = generator(trial), (0.05, 0.3, 2.0)[trial % 3], 500
        h = torch.randn(6, d, generator=rng) * torch.linspace(0.1, 3, 6)[:, None]
        norm = h.norm(dim=1, keepdim=True)
        sent = h + sigma * norm * torch.randn(6, d, generator=rng)
        answer = tensor(private_norm(sent.clone(), sigma), (6,), "the estimates of S")
        size = sent.double().norm(dim=1)

        def same(want: Tensor, answer: Tensor = answer) -> bool:
            return torch.allclose(answer, want.double(), rtol=1e-3)

        if same(size / math.sqrt(sigma**2 * d + 1)):
            continue
        if same(size / (sigma * math.sqrt(d))):
            raise Wrong("the signal itself adds S² to the squared length: σ²d becomes σ²d + 1")
        if same(size / sigma) or same(size / math.sqrt(sigma**2 + 1)):
            raise Wrong("the noise lies on every one of the d entries: d is missing")
        if same(size**2 / (sigma**2 * d + 1)):
            raise Wrong("this is S²: take the root")
        if same(size):
            raise Wrong("this is the length of the upload, which is mostly noise; divide")
        raise Wrong("E‖u‖² = S² (σ²d + 1): solve for S")


@exercise("One bit a client, a little noise, and the clip finds its quantile.")
def check_next_clip(next_clip: Callable[[float, Tensor, float, float, float], float]) -> None:
    """``next_clip(C, norms, quantile, rate, noise)`` -> C·exp(−rate·(b − quantile))."""
    quantile, rate, noise = 0.3, 0.2, 0.7

    def step(clip: float, share: float, sign: int = -1) -> float:
        return clip * math.exp(sign * rate * (share - quantile))

    for trial in range(TRIALS):
        rng = generator(trial)
        norms, clip = 3 * torch.rand(12, generator=rng), 1.3 + 0.1 * trial
        count = (norms <= clip).sum().item()

        share = (count + noise) / 12
        answer = number(next_clip(clip, norms.clone(), quantile, rate, noise), "the next clip")
        if close(answer, step(clip, share)):
            continue
        if close(answer, step(clip, share, +1)):
            raise Wrong("the clip runs away: where too many norms lie below C, C must fall")
        if close(answer, step(clip, (12 - count + noise) / 12)):
            raise Wrong("count the clients with norm at most C, not those above")
        if close(answer, step(clip, count / 12)):
            raise Wrong("the count is private: add the noise to it")
        if close(answer, step(clip, count / 12 + noise)):
            raise Wrong(
                "the noise goes on the count, before it is divided by the number of clients"
            )
        if close(answer, clip - rate * (share - quantile)):
            raise Wrong("the step is geometric: multiply C by an exponential, so it stays above 0")
        raise Wrong("with b = (count + noise) / n the next clip is C · exp(−rate · (b − quantile))")


@exercise("The bit is nearly free: a few percent more noise on the update pay for it.")
def check_update_multiplier(update_multiplier: Callable[[float, float], float]) -> None:
    """``update_multiplier(z, sigma_b)`` -> (z⁻² − (2σ_b)⁻²)^(−1/2)."""
    for z, bit in ((1.0, 2.5), (2.0, 5.0), (0.7, 0.6)):
        answer = number(update_multiplier(z, bit), "the multiplier of the update")
        if close(answer, (z**-2 - (2 * bit) ** -2) ** -0.5):
            continue
        if close(answer, (z**-2 + (2 * bit) ** -2) ** -0.5):
            raise Wrong(
                "this is smaller than z: the update must pay for the bit, so take 1/z² minus"
            )
        if z < bit and close(answer, (z**-2 - bit**-2) ** -0.5):
            raise Wrong("bit minus ½ is +½ or −½: its sensitivity is ½, so its multiplier is 2σ_b")
        if close(answer, z**-2 - (2 * bit) ** -2):
            raise Wrong("this is one over the square: take the power −1/2")
        if close(answer, z):
            raise Wrong("with z on the update alone, update and bit together cost more than z")
        raise Wrong("solve 1/z² = 1/z_Δ² + 1/(2σ_b)² for z_Δ")
