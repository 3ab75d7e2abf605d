"""Noise on a grid, drawn exactly: the discrete Gaussian of Canonne, Kamath and Steinke (2020).

Sums of floating-point numbers give away which clean value they hold (Mironov 2012), whatever ε the
formula states. Integers do not: here every draw is made of fair coins and comparisons of whole
numbers, without rounding, and what leaves is a multiple of the grid whatever the clean value.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any

import numpy as np

from ..checking import check, checked
from ..values import Holds, Inside, Number, Positive
from .gaussian import Eps

Below = Annotated[Callable[[int], int], Holds("a function", callable)]  # 0 to below its argument
NOISE = Number(1e-9, 1e9)
Steps = Annotated[float | Fraction, NOISE]  # standard deviation, in steps of the grid
Summed = Annotated[float, Number(1e-9, 1e5)]
Apart = Annotated[int, Number(1, 10**6, whole=True)]
Rows = Annotated[
    np.ndarray,
    Holds("a table (n, d) of finite numbers, one row a contribution", lambda v: _is_table(v)),
]
Rho = Annotated[float, Number(1e-30, 1e9)]


@checked
def discrete_gaussian(sigma: Steps, below: Below = secrets.randbelow) -> int:
    """One whole number k with probability ∝ exp(−k² / 2σ²), exactly (their Algorithm 3).

    A discrete Laplace draw of scale t = ⌊σ⌋ + 1 is kept with probability
    exp(−(|y| − σ²/t)² / 2σ²). ``below``: the operating system's, or for tests a seeded one.
    """
    variance = Fraction(sigma) ** 2
    t = math.isqrt(math.floor(variance)) + 1
    while True:
        y = _discrete_laplace(t, below)
        if _coin_exp((abs(y) - variance / t) ** 2 / (2 * variance), below):
            return y


def _discrete_laplace(t: int, below: Below) -> int:
    """k with probability ∝ exp(−|k|/t) (Algorithm 2)."""
    while True:
        u = below(t)
        if not _coin_exp(Fraction(u, t), below):
            continue
        v = 0
        while _coin_exp(Fraction(1), below):
            v += 1
        size, negative = u + t * v, below(2)
        if size or not negative:  # or zero would come twice as often
            return -size if negative else size


def _coin_exp(gamma: Fraction, below: Below) -> bool:
    """True with probability exp(−γ), for any rational γ ≥ 0 (Algorithm 1)."""
    while gamma > 1:
        if not _coin_exp(Fraction(1), below):
            return False
        gamma -= 1
    k = 1
    while below(gamma.denominator * k) < gamma.numerator:  # a coin of γ/k
        k += 1
    return k % 2 == 1


@checked
def discrete_delta(sigma: Summed, eps: Eps, sensitivity: Apart = 1) -> float:
    """The exact δ of a whole number plus discrete Gaussian noise, neighbors ``sensitivity`` apart.

    Σ_k max(0, P(k) − e^ε P(k + s)): their Theorem 7, summed to 40σ on either side.
    """
    far = sensitivity + math.ceil(40 * sigma)
    k = np.arange(-far, far + 1, dtype=float)
    weight = -(k**2) / (2 * sigma**2)
    other = -((k + sensitivity) ** 2) / (2 * sigma**2)
    more = -np.expm1(np.minimum(0.0, eps + other - weight))  # 1 − e^ε P(k + s) / P(k), or 0
    return float((np.exp(weight) * more).sum() / np.exp(weight).sum())


@checked
def concentrated_epsilon(rho: Rho, delta_dp: Inside = 1e-5) -> float:
    """ε of ρ-zCDP at ``delta_dp``: the least of ρα + log(1 − 1/α) − log(δα)/(α − 1) over α > 1.

    (Their Corollary 13.) Discrete Gaussian noise of σ on each coordinate of a vector of whole
    numbers, neighbors s apart in L2, is s²/2σ²-zCDP, as continuous noise is.
    """
    a = 1 + np.logspace(-4, 6, 20001)
    eps = rho * a + np.log1p(-1 / a) - (math.log(delta_dp) + np.log(a)) / (a - 1)
    return max(0.0, float(eps.min()))


@checked
def discrete_release(
    rows: Rows, clip: Positive, sigma: Positive, grid: Positive, below: Below = secrets.randbelow
) -> np.ndarray:
    """Σ of rows (n, d), each clipped to ``clip``, on a grid, with discrete noise of σ·clip: (d,).

    Each row is shortened and rounded *towards zero* to multiples of ``grid``, so that its length is
    at most the clip also after rounding (checked in whole numbers). The sum of whole numbers gets
    noise of σ·clip/grid. One row added or removed: ρ = 1/2σ²; one replaced: 2/σ². A ``grid`` far
    below σ·clip costs no accuracy.
    """
    longest = Fraction(clip) / Fraction(grid)
    check("sigma·clip/grid, the noise in steps of the grid,", sigma * float(longest), NOISE)
    rows = np.asarray(rows, dtype=float)
    total = [0] * rows.shape[1]
    for row in rows:
        total = [a + b for a, b in zip(total, _whole(row, clip, grid, longest), strict=True)]
    noisy = [k + discrete_gaussian(Fraction(sigma) * longest, below) for k in total]
    return np.array([float(k * Fraction(grid)) for k in noisy])


def _is_table(value: Any) -> bool:
    table = np.asarray(value, dtype=float)
    return table.ndim == 2 and table.size > 0 and bool(np.isfinite(table).all())


def _whole(row: np.ndarray, clip: float, grid: float, longest: Fraction) -> list[int]:
    """The row in whole steps of the grid, of at most the longest length."""
    factor = min(1.0, clip / max(float(np.linalg.norm(row)), 1e-300))
    while True:
        steps = [int(v) for v in np.trunc(row * factor / grid)]
        if sum(k * k for k in steps) <= longest**2:
            return steps
        factor *= 1 - 2.0**-40  # a rounding error above the clip
