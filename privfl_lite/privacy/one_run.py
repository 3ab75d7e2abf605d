"""An audit with one training run: a lower bound on ε (Steinke, Nasr and Jagielski 2023).

A proof bounds ε from above and may be of other code than what ran. An audit bounds it from below,
by what ran: m canaries are put in or left out (or replaced) by fair coins, all at once; the output
is scored, and the coins are guessed from the scores. Too many right guesses refute a claimed ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..checking import Checked, checked
from ..errors import PrivflError
from ..values import Inside, Number, Part, Seed, Whole
from .gaussian import Eps

Many = Annotated[int, Number(1, 10**6, whole=True)]


@dataclass(frozen=True)
class Audit(Checked):
    """``right`` of ``guesses`` about ``canaries`` coins; ``epsilon`` is a lower bound at δ.

    It holds with probability ``confidence``, over the coins and the run.
    """

    epsilon: Eps
    right: Whole
    guesses: Many
    canaries: Many
    delta: Part
    confidence: Inside

    def p_value(self, eps: float) -> float:
        """At most how probable so many right guesses are if the run is (``eps``, δ)-DP.

        P[W ≥ v] + 2mδ max_i (1/i) P[v − i ≤ W < v], W ~ Binomial(r, e^ε / (1 + e^ε)): Theorem 5.2
        of the paper, with v right of r guesses and m canaries.
        """
        return audit_p_value(eps, self.right, self.guesses, self.canaries, self.delta)

    def __str__(self) -> str:
        return (
            f"ε ≥ {self.epsilon:.3g} (δ = {self.delta:g}, {self.confidence:.0%} confidence; "
            f"{self.right} of {self.guesses} guesses right, {self.canaries} canaries, one run)"
        )


@checked
def audit(
    release: Callable[[np.ndarray], Sequence[float]],
    canaries: Many,
    guesses: Many | None = None,
    delta_dp: Inside = 1e-5,
    confidence: Inside = 0.95,
    seed: Seed | None = None,
) -> Audit:
    """A lower bound on the ε of ``release``, which is called once.

    ``release(coins)``: with canary i in where ``coins[i]``, else out (or replaced by another), run
    the mechanism once and return a score for each canary, the higher the more it looks as if it
    was in. Canaries are examples for an ε per example, clients for one per client. The
    ``guesses``/2 highest scores are called in, as many of the lowest out (by default half of all
    canaries is called); choose the number before you see the scores. ``seed`` of the coins, for
    tests: None tosses anew.
    """
    count = canaries // 2 if guesses is None else guesses
    if not 2 <= count <= canaries:
        raise PrivflError(
            f"an audit needs 4 canaries or more, and 2 to as many guesses; got {canaries}, {count}"
        )
    coins = np.random.default_rng(None if seed is None else seed % 2**63).random(canaries) < 0.5
    scores = _floats(release(coins.copy()))
    if scores.shape != (canaries,) or np.isnan(scores).any():
        raise PrivflError(f"release must return one score for each of {canaries} canaries")
    order, low = np.argsort(scores, kind="stable"), count // 2
    right = int((~coins[order[:low]]).sum() + coins[order[canaries - (count - low) :]].sum())
    least = _largest_refuted(right, count, canaries, delta_dp, 1 - confidence)
    return Audit(least, right, count, canaries, delta_dp, confidence)


@checked
def audit_p_value(eps: Eps, right: Whole, guesses: Many, canaries: Many, delta_dp: Part) -> float:
    """``Audit.p_value`` by numbers."""
    from scipy.stats import binom  # slow to import

    if not right <= guesses <= canaries:
        got = f"{right}, {guesses} and {canaries}"
        raise PrivflError(f"right guesses are some of all, one a canary at most; got {got}")
    q = 1 / (1 + math.exp(-eps))
    mass = binom.pmf(np.arange(right - 1, -1, -1), guesses, q)  # of v − 1, v − 2, …, 0
    slips = float((np.cumsum(mass) / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, float(binom.sf(right - 1, guesses, q)) + 2 * canaries * delta_dp * slips)


def _floats(given: Sequence[float]) -> np.ndarray:
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        return np.zeros(0)


def _largest_refuted(right: int, guesses: int, canaries: int, delta: float, level: float) -> float:
    """The largest ε whose p-value is below the level; 0 where none is."""

    def refuted(eps: float) -> bool:
        return audit_p_value(eps, right, guesses, canaries, delta) < level

    low, high = 0.0, 1.0
    if not refuted(low):
        return 0.0
    while refuted(high):  # p grows to 1 with ε
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
