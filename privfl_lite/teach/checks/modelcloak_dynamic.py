"""Checks for the exercises of "ModelCloak II: noise that follows the gradient"."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import beta
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


@exercise("One bit per client, a little noise, and the clip finds its quantile.")
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


@exercise("Chosen on one half, counted on the other, with the ends of both intervals.")
def check_audit(audit: Callable[[np.ndarray, np.ndarray, float], float]) -> None:
    """``audit(without, with_it, delta_dp)`` -> a lower bound on ε, counted on the second halves."""
    for trial, (shift, delta) in enumerate(((0.0, 0.01), (1.5, 0.01), (3.0, 0.02), (0.7, 0.2))):
        rng = np.random.default_rng(trial)
        without, with_it = rng.normal(size=200), rng.normal(size=200) + shift
        answer = number(audit(without.copy(), with_it.copy(), delta), "the bound on ε")
        half = slice(0, 100), slice(100, 200)
        first, second = ((without[h], with_it[h]) for h in half)
        cut = _best(*first, delta)
        if close(answer, max(_bound(*second, cut, delta), 0)):
            continue
        if close(answer, _bound(*second, cut, delta)):
            raise Wrong("ε is never below 0: return 0 where the bound is negative")
        whole = _best(without, with_it, delta)
        for hint, wrong in {
            "the threshold is counted on the draws that chose it: a bound for luck": max(
                _bound(*first, cut, delta), 0
            ),
            "cut the draws in halves: one chooses the threshold, the other counts": max(
                _bound(without, with_it, whole, delta), 0
            ),
            "the counting half may not choose the threshold": max(
                _bound(*second, _best(*second, delta), delta), 0
            ),
            "δ is missing: it is taken off the TPR": max(
                _bound(*second, _best(*first, 0.0), 0.0), 0
            ),
            "use the low end for the TPR and the high end for the FPR, not the rates": max(
                _bound(*second, _best(*first, delta, False), delta, False), 0
            ),
        }.items():
            if close(answer, wrong):
                raise Wrong(hint)
        raise Wrong(f"for shift {shift} and δ = {delta} the bound is another; follow the recipe")


def _bound(
    without: np.ndarray, with_it: np.ndarray, cut: float, delta: float, ends: bool = True
) -> float:
    """log((TPR − δ) / FPR) of the test "above cut", at the ends of Clopper and Pearson's."""
    n, hits, alarms = len(without), int((with_it > cut).sum()), int((without > cut).sum())
    if not ends:
        low, high = hits / n, max(alarms / n, 1e-9)
    else:
        low = float(beta.ppf(0.025, hits, n - hits + 1)) if hits else 0.0
        high = float(beta.isf(0.025, alarms + 1, n - alarms)) if alarms < n else 1.0
    return math.log(max(low - delta, 1e-9) / high)


def _best(without: np.ndarray, with_it: np.ndarray, delta: float, ends: bool = True) -> float:
    """The threshold among ``without`` with the largest bound, at least 0; the smallest of equal."""
    return max(sorted(without), key=lambda c: max(_bound(without, with_it, c, delta, ends), 0))
