"""Checks for the exercises of "Noise and ε": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
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


ORDERS = tuple((1 + np.geomspace(0.1, 500, 60)).tolist())
RELEASES = (((2.0, 100),), ((1.0, 1),), ((3.0, 10), (1.5, 5)))


@exercise("What Opacus counts without sampling, and the noise to ask for before training.")
def check_accountant(accountant: Callable[..., float], noise_for: Callable[..., float]) -> None:
    """``accountant(releases, delta_dp, orders)`` -> ε; ``noise_for(eps, rounds, …)`` -> σ."""
    for releases in RELEASES:
        found = number(accountant(list(releases), 1e-5, list(ORDERS)), "ε")
        if not math.isclose(found, renyi_epsilon(releases), rel_tol=1e-4, abs_tol=1e-6):
            raise _why(found, releases)
    for eps, rounds in ((1.0, 100), (8.0, 10), (0.5, 1)):
        sigma = number(noise_for(eps, rounds, 1e-5, list(ORDERS)), "σ")
        if sigma <= 0 or renyi_epsilon([(sigma, rounds)]) > eps * (1 + 1e-4):
            raise Wrong(
                f"with σ = {sigma:.3g}, {rounds} releases exceed ε = {eps}: return the end of the "
                "interval that keeps the promise"
            )
        if renyi_epsilon([(sigma / 1.02, rounds)]) <= eps:
            raise Wrong(f"for ε = {eps} over {rounds} releases less noise than {sigma:.3g} will do")


def renyi_epsilon(releases: Sequence[tuple[float, int]], better: bool = True) -> float:
    """The least ε over ORDERS at δ = 1e-5, by either conversion."""
    return float(_converted(releases, better).min())


def _converted(releases: Sequence[tuple[float, int]], better: bool = True) -> np.ndarray:
    alpha = np.array(ORDERS)
    rho = alpha * sum(rounds / (2 * sigma**2) for sigma, rounds in releases)
    gain = np.log(1 - 1 / alpha) - np.log(alpha) / (alpha - 1)
    return rho + math.log(1e5) / (alpha - 1) + (gain if better else 0)


def _why(found: float, releases: Sequence[tuple[float, int]]) -> Wrong:
    """What is wrong with an accountant's ε."""
    once = [(sigma, 1) for sigma, _ in releases]
    wrongs = {
        "this is the first conversion; the second one is smaller": renyi_epsilon(releases, False),
        "take the smallest ε over the orders, not the largest": _converted(releases).max(),
        "each pair (σ, T) stands for T releases: multiply ρ by T": renyi_epsilon(once),
        "add ρ over the releases and convert once at the end; you added ε's": sum(
            rounds * renyi_epsilon([(sigma, 1)]) for sigma, rounds in releases
        ),
        "ρ is α/(2σ²): you divided by σ, not by its square": renyi_epsilon(
            [(sigma**0.5, rounds) for sigma, rounds in releases]
        ),
    }
    for hint, wrong in wrongs.items():
        if math.isclose(found, wrong, rel_tol=1e-4):
            return Wrong(hint)
    return Wrong("for each α: ρ = Σ Tα/(2σ²), then ρ + (log 1/δ − log α)/(α − 1) + log(1 − 1/α)")
