"""Checks for the exercises of "Proof, bound, audit": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...privacy import Audit
from ..check import TRIALS, Wrong, close, exercise, number

LEVEL = 0.05


@exercise("Every attack with a known prior is an audit.")
def check_least_epsilon(least_epsilon: Callable[[float, float, float], float]) -> None:
    """``least_epsilon(s, kappa, delta)``: the larger of two logarithms, or 0."""
    cases = [(0.9, 0.01, 1e-5), (0.9999, 0.5, 0.0), (0.005, 0.01, 0.0), (1e-6, 0.1, 1e-5)]
    for s, kappa, delta in [*cases, (0.3, 0.1, 0.05), (0.6, 0.5, 0.55)]:
        found = number(least_epsilon(s, kappa, delta), "ε")
        first = math.log((s - delta) / kappa) if s > delta else -1.0
        rest = 1 - kappa - delta
        second = math.log(rest / (1 - s)) if rest > 0 else -1.0
        right = max(0.0, first, second)
        if close(found, right, 1e-6, 1e-9):
            continue
        if found < 0:
            raise Wrong("ε is never below 0: an attack that fails proves nothing")
        if close(found, max(0.0, first), 1e-6, 1e-9):
            raise Wrong("the second term is missing: failures that are too rare prove more")
        if close(found, max(0.0, second), 1e-6, 1e-9):
            raise Wrong("the first term is missing: (s − δ) / κ")
        if delta and close(found, max(0.0, math.log(s / kappa)), 1e-6, 1e-9):
            raise Wrong("take δ off: it may all be success")
        raise Wrong(f"for s = {s}, κ = {kappa} and δ = {delta} it is not {found:.4g}")


def _best(right: np.ndarray) -> float:
    """The largest ε that some first guesses prove at 5 %."""
    from scipy.stats import beta

    v, r = np.cumsum(right), np.arange(1, len(right) + 1)
    q = np.where(v > 0, beta.ppf(LEVEL, np.maximum(v, 1), r - np.maximum(v, 1) + 1), 0.5).max()
    return max(0.0, math.log(q / (1 - q)))


@exercise("The numbers that you choose afterwards you choose with the data.")
def check_best_afterwards(best_afterwards: Callable[[np.ndarray], float]) -> None:
    """``best_afterwards(right)``: the best of all numbers of first guesses; it often exceeds 1."""
    rng, q = np.random.default_rng(0), 1 / (1 + math.exp(-1))
    for _ in range(TRIALS):
        right = (rng.random(100) < q).astype(int)
        found, want = number(best_afterwards(right.copy()), "ε"), _best(right)
        if close(found, want, 1e-3, 1e-3):
            continue
        all_of_them = Audit(0.0, int(right.sum()), 100, 100, 1e-12, 0.95)
        if found > 0 and abs(all_of_them.p_value(found) - LEVEL) < 1e-3:
            raise Wrong("this is the ε of all guesses; look at every number of first guesses")
        if found < want:
            raise Wrong(f"some number of first guesses proves {want:.3f}, more than {found:.3f}")
        raise Wrong(f"no number of first guesses proves {found:.3f}; the most is {want:.3f}")


@exercise("This is the audit that refuted dynamic noise.")
def check_audited(audited: Callable[[np.ndarray, np.ndarray, int, float], float]) -> None:
    """``audited(scores, coins, guesses, delta)``: the largest ε refuted at 5 %."""
    for trial in range(TRIALS + 2):
        scores, coins, guesses, delta = _run(trial)
        found = number(audited(scores.copy(), coins.copy(), guesses, delta), "ε")
        right = _right(scores, coins, guesses)
        want = _largest(right, guesses, len(coins), delta)
        if close(found, want, 1e-3, 2e-3):
            continue
        for words, slip in {
            "δ is left out: add 2mδ times the largest mean of the sums": (right, guesses, 1, 0.0),
            "m is the number of canaries, not of guesses": (right, guesses, guesses, delta),
            "the tail has v in it: P(W ≥ v) is binom.sf(v − 1, …)": (
                right + 1, guesses, len(coins), delta
            ),
            "all canaries were guessed; only the ends of the order count": (
                _right(scores, coins, len(coins)), len(coins), len(coins), delta
            ),
        }.items():  # fmt: skip
            if slip[0] <= slip[1] and close(found, _largest(*slip), 1e-3, 2e-3):
                raise Wrong(words)
        raise Wrong(f"with {right} of {guesses} right it is {want:.3f}, not {found:.3f}")


def _run(trial: int) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Scores of a release that tells something; in one trial nothing, in one everything."""
    rng, m = np.random.default_rng(trial), 120 + 40 * trial
    coins = rng.random(m) < 0.5
    shift = {0: 0.0, 1: 50.0}.get(trial, 0.5 + 0.5 * trial)
    return shift * coins + rng.normal(size=m), coins, 40 + 10 * trial, (1e-5, 1e-3, 3e-3)[trial % 3]


def _right(scores: np.ndarray, coins: np.ndarray, guesses: int) -> int:
    order, half = np.argsort(scores), guesses // 2
    return int((~coins[order[:half]]).sum() + coins[order[len(order) - half :]].sum())


def _largest(right: int, guesses: int, canaries: int, delta: float) -> float:
    """By the package's p-value and bisection."""
    made = Audit(0.0, right, guesses, max(canaries, guesses), delta, 0.95)
    low, high = 0.0, 30.0
    if made.p_value(low) >= LEVEL:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if made.p_value(middle) < LEVEL else (low, middle)
    return low
