"""Checks for the exercises of "Noise, clipping and what ε buys": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from scipy.special import ndtr
from torch import Tensor

from ...privacy import analytic_gaussian_delta
from ...runtime import generator
from ..check import TRIALS, Wrong, close, exercise, number, tensor


@exercise("Clip each example, then sum, then noise, then divide: in that order.")
def check_private_mean(private_mean: Callable[[Tensor, float, float, Tensor], Tensor]) -> None:
    """``private_mean(g, C, sigma, z)`` -> (Σ clip_C(g_i) + σ C z) / B, as a tensor (d,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        g = torch.randn(6, 5, generator=rng) * torch.tensor([0.1, 0.3, 1, 30, 90, 0.2])[:, None]
        z, clip, sigma = torch.randn(5, generator=rng), 1.5, 0.7
        answer = tensor(private_mean(g.clone(), clip, sigma, z.clone()), (5,), "the private mean")
        norm = g.norm(dim=1, keepdim=True)
        total = (g * (clip / norm).clamp(max=1)).sum(0)
        if close(answer, (total + sigma * clip * z) / 6):
            continue
        mean = g.mean(0)
        hints = [
            (mean * min(1.0, clip / mean.norm().item()), "clip every example's gradient, not the"),
            ((g * clip / norm).mean(0), "a gradient shorter than C stays as it is: clip, do not"),
            (g.clamp(-clip, clip).mean(0), "clip the norm of each gradient, not its"),
            (mean, "there is no clip: without one the noise promises nothing to an"),
        ]
        ends = ["mean", "normalize", "single entries", "outlier"]
        for (center, hint), end in zip(hints, ends, strict=True):
            if any(close(answer, center + k * z) for k in (sigma * clip / 6, sigma * clip)):
                raise Wrong(f"{hint} {end}")
        for scale, hint in (
            (sigma / 6, "the noise has standard deviation σC before the division: C is missing"),
            (sigma * clip, "the noise goes on the sum: divide it by B as well"),
            ((sigma * clip) ** 2 / 6, "σC is a standard deviation; you used its square"),
            (0.0, "there is no noise"),
        ):
            if close(answer, total / 6 + scale * z):
                raise Wrong(hint)
        if close(answer, total + sigma * clip * z):
            raise Wrong("this is the sum; divide it by the number of examples")
        raise Wrong("compute (Σ clip_C(g_i) + σ C z) / B")


@exercise("One formula, for every ε and any dimension.")
def check_exact_delta(exact_delta: Callable[[float, float], float]) -> None:
    """``exact_delta(sigma, eps)`` -> Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ)."""
    for sigma, eps in ((1.0, 0.0), (0.7, 1.0), (2.0, 0.4), (0.5, 3.0)):
        found = number(exact_delta(sigma, eps), "δ")
        half, shift = 1 / (2 * sigma), eps * sigma
        if math.isclose(found, analytic_gaussian_delta(sigma, eps), rel_tol=1e-6, abs_tol=1e-9):
            continue
        if math.isclose(found, ndtr(half - shift), rel_tol=1e-6):
            raise Wrong("this is P(L > ε), which is safe but too large; take e^ε Q(L > ε) away")
        if eps and math.isclose(found, ndtr(half - shift) - ndtr(-half - shift), rel_tol=1e-6):
            raise Wrong("the second probability is multiplied by e^ε")
        if math.isclose(found, analytic_gaussian_delta(1 / sigma, eps), rel_tol=1e-6):
            raise Wrong("σ and 1/σ are exchanged: the shift of the two Gaussians is μ = 1/σ")
        raise Wrong("with μ = 1/σ it is Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)")


@exercise("For equal odds and equal noise, most likely means nearest.")
def check_identify(identify: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``identify(seen, candidates)`` -> index of the nearest candidate of each row of seen (n,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        candidates = torch.randn(8, 6, generator=rng)
        candidates = candidates * torch.linspace(0.3, 3, 8)[:, None]
        truth = torch.randint(8, (60,), generator=rng)
        seen = candidates[truth] + 0.7 * torch.randn(60, 6, generator=rng)
        answer = tensor(identify(seen.clone(), candidates.clone()), (60,), "the list of indices")
        apart = torch.cdist(seen, candidates)
        if torch.equal(answer.long(), apart.argmin(1)):
            continue
        dot = seen @ candidates.T
        if torch.equal(answer.long(), dot.argmax(1)):
            raise Wrong("an inner product favors long candidates; take half their squared norm off")
        if torch.equal(answer.long(), (dot / candidates.norm(dim=1)).argmax(1)):
            raise Wrong("a cosine ignores the length, and the length tells candidates apart too")
        if torch.equal(answer.long(), apart.argmax(1)):
            raise Wrong("this is the least likely one: take the smallest distance")
        raise Wrong("the log-likelihood of candidate m is −‖seen − m‖² / 2s² and a constant")
