"""How often any attacker can succeed, whatever it tries: reconstruction robustness.

Whoever sees nothing succeeds with probability κ at most: the prior. With an upload to look at it is
B_κ = sup {P(E) : Q(E) ≤ κ} at most, P the law of what is seen with the record in it and Q the law
without (Balle, Cherubin and Hayes 2022; Hayes, Mahloujifar and Balle 2023). B_κ falls out of the
Neyman-Pearson lemma once the *privacy loss* L = log dP/dQ has a known distribution: take all
outcomes with the largest loss until they weigh κ under Q. Chapter: what ε buys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from ..checking import checked
from ..errors import PrivflError
from ..values import Count, Inside, Number, Part, Row, Whole

GRID = 2**14  # points over the losses of one round; more change B by less than 1e-5
MOST = 2**21  # points of a distribution of losses, after all rounds: 16 MB
TAIL = 1e-14  # mass that is cut off at an end, and counted for the attacker

Multiplier = Annotated[float, Number(1e-4, 1e4)]  # the noise's deviation over the clip
Rate = Annotated[float, Number(0, 1, open="low")]
Curve = Annotated[
    Sequence[Sequence[float]], Row((Row((Number(0, 1e12), Number(0, 1)), fixed=True),), least=1)
]


class Losses(NamedTuple):
    """Privacy losses ``low + i width`` with probabilities ``mass`` under P; ``sure``: L = ∞."""

    low: float
    width: float
    mass: np.ndarray
    sure: float


@checked
def success_bound(kappa: Inside, sigma: Multiplier, rate: Rate = 1.0, rounds: Count = 1) -> float:
    """The most that any attacker can succeed after ``rounds`` releases with noise sigma · C.

    ``thm-reconstruction-bound``: Φ(Φ⁻¹(κ) + √T / σ) if all take part. With Poisson sampling each
    contributor takes part with probability ``rate``, and P is the mixture (1 − q) N(0, σ²) +
    q N(1, σ²) in each round: an upper bound from its privacy losses, composed on a grid on which
    everything is rounded in the attacker's favor (but for floating-point errors of some 1e-10).
    Neighbors: one record added.
    """
    from scipy.special import ndtr, ndtri  # slow to import

    if rate == 1:
        return float(ndtr(ndtri(kappa) + rounds**0.5 / sigma))
    return _best(_composed(_one_round(float(sigma), float(rate)), int(rounds)), kappa)


@checked
def success_bound_of_curve(kappa: Inside, curve: Curve) -> float:
    """The same from pairs (ε, δ) that all hold, for neighbors that may change places.

    P(E) ≤ e^ε κ + δ, and from the complement P(E) ≤ 1 − e^−ε (1 − κ − δ): the least of all.
    """
    eps, delta = np.asarray(curve, dtype=np.float64).T
    with np.errstate(over="ignore"):
        lines = [np.exp(eps) * kappa + delta, 1 - np.exp(-eps) * (1 - kappa - delta)]
    return float(min(1.0, np.min(lines)))


@checked
def prior_bound(hits: Whole, tries: Count, level: Inside = 0.95) -> float:
    """κ from an experiment: at most this, with confidence ``level`` (Clopper and Pearson 1934).

    ``hits``: how many of ``tries`` blind guesses succeeded. It bounds the guess that was tried; the
    best blind guess may be better, unless the game says what it is (1 / N among N candidates).
    """
    from scipy.stats import beta  # slow to import

    if hits > tries:
        raise PrivflError(f"{hits} hits in {tries} tries is impossible")
    return 1.0 if hits == tries else float(beta.ppf(level, hits + 1, tries - hits))


@checked
def epsilon_of_attack(
    hits: Whole, tries: Count, kappa: Inside, delta_dp: Part = 0.0, level: Inside = 0.95
) -> float:
    """The ε that an attack proves: no release with less (at δ) lets it succeed so often.

    ``prop-attack-is-audit``: with s the least success rate that ``hits`` of ``tries`` allow with
    confidence ``level`` (Clopper and Pearson), ε ≥ log((s − δ) / κ) and ε ≥ log((1 − κ − δ) /
    (1 − s)). 0 where both say nothing. κ must be the *best* blind guess, and tries independent.
    """
    least = 1 - prior_bound(tries - hits, tries, level) if hits <= tries else 2.0
    if least > 1:
        raise PrivflError(f"{hits} hits in {tries} tries is impossible")
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log([(least - delta_dp) / kappa, (1 - kappa - delta_dp) / (1 - least)])
    return float(max(0.0, *np.nan_to_num(found, nan=0.0, neginf=0.0)))


def _one_round(sigma: float, rate: float) -> Losses:
    """Losses log(1 − q + q e^((2x − 1) / 2σ²)) of x ~ P, in cells that keep P's and Q's mass.

    The mass of a cell goes to its two ends so that its weight under Q stays the same, too: a spread
    of dQ/dP that keeps its mean, which only helps who tests (Doroshenko et al. 2022).
    """
    reach = 8.0  # deviations
    top = _loss(1 + reach * sigma, sigma, rate)
    low = max(_loss(-reach * sigma, sigma, rate), float(np.log1p(-rate)))
    width = (top - low) / GRID
    ends = low + width * np.arange(GRID + 1)
    x = _outcome(ends, sigma, rate)
    x[0] = -np.inf  # what lies below is rounded up to the lowest cell
    q = _normal_mass(x, 0.0, sigma)
    p = (1 - rate) * q + rate * _normal_mass(x, 1.0, sigma)
    left, right = np.exp(-ends[:-1]), np.exp(-ends[1:])
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 where e^−L is no number any more
        up = np.where(left > right, np.clip((p * left - q) / (left - right), 0, p), p)
    mass = np.append(p - up, 0.0)
    mass[1:] += up
    return Losses(low, width, mass, max(0.0, 1 - mass.sum()))


def _loss(x: float, sigma: float, rate: float) -> float:
    return float(np.logaddexp(np.log1p(-rate), np.log(rate) + (2 * x - 1) / (2 * sigma**2)))


def _outcome(loss: np.ndarray, sigma: float, rate: float) -> np.ndarray:
    """The x with this loss: σ² log((e^L − 1 + q) / q) + 1/2."""
    with np.errstate(divide="ignore", invalid="ignore"):
        large = loss + np.log1p((rate - 1) * np.exp(-np.abs(loss)))
        small = np.log(np.maximum(np.expm1(np.minimum(loss, 0)) + rate, 0))
    return sigma**2 * (np.where(loss > 0, large, small) - np.log(rate)) + 0.5


def _normal_mass(edges: np.ndarray, mean: float, sigma: float) -> np.ndarray:
    """Of N(mean, sigma²) between neighboring edges, exact in both tails."""
    from scipy.special import ndtr

    z = (edges - mean) / sigma
    return np.where(z[:-1] > 0, -np.diff(ndtr(-z)), np.diff(ndtr(z)))


def _composed(one: Losses, rounds: int) -> Losses:
    """The sum of ``rounds`` independent losses, by repeated doubling."""
    total, power = None, one
    while True:
        if rounds & 1:
            total = power if total is None else _added(total, power)
        rounds >>= 1
        if not rounds:
            assert total is not None
            return total
        power = _added(power, power)


def _added(a: Losses, b: Losses) -> Losses:
    """The distribution of the sum of two losses; thin tails are rounded up."""
    from scipy.signal import fftconvolve

    mass = np.maximum(fftconvolve(a.mass, b.mass), 0)
    first = int(np.searchsorted(np.cumsum(mass), TAIL))
    last = len(mass) - int(np.searchsorted(np.cumsum(mass[::-1]), TAIL))
    if last - first > MOST:
        raise PrivflError("so little noise over so many rounds bounds nothing; take more noise")
    kept = mass[first:last].copy()
    kept[0] += mass[:first].sum()  # rounded up to the first that is kept
    return Losses(a.low + b.low + first * a.width, a.width, kept, max(0.0, 1 - kept.sum()))


def _best(losses: Losses, kappa: Part) -> float:
    """sup P(E) over Q(E) ≤ κ: outcomes in the order of their loss, the last one by lot."""
    loss = losses.low + losses.width * np.arange(len(losses.mass))
    p = losses.mass[::-1]
    with np.errstate(over="ignore"):
        q = p * np.exp(-loss[::-1])
    spent = np.cumsum(q)
    whole = int(np.searchsorted(spent, kappa, side="right"))  # outcomes that are taken whole
    success = losses.sure + p[:whole].sum()
    if whole < len(p):
        before = spent[whole - 1] if whole else 0.0
        success += p[whole] * (kappa - before) / q[whole]
    return float(min(1.0, success))
