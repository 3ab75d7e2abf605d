"""Part IV: an audit whose lower bounds hold, and are worth something."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...privacy import analytic_gaussian_epsilon
from ...privacy.one_run import audit as reference
from ...runtime import PrivflError
from ..check import Wrong, number
from .points import Goal, Score, raised, share

RELEASES, CANARIES, CALLS, MISTAKES, DELTA = 40, 400, 5, 5, 1e-5
LEAST, MOST = 0.3, 8.0  # strengths of what is drawn: ε of pure mechanisms, 1/σ × 2 of Gaussian ones
LOW, HIGH = 0.6, 1.4  # of the usual audit's mean bound: no points, and all of them
Release = Callable[[np.ndarray], Sequence[float]]


class Mechanism:
    """Noise on each canary's bit, seen through an increasing curve; ``eps`` is its true ε."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.calls = rng, 0
        self.kind = str(rng.choice(["gaussian", "laplace", "answers"]))
        strength = math.exp(rng.uniform(math.log(LEAST), math.log(MOST)))
        self.spread = 2 / strength if self.kind == "gaussian" else 1 / strength
        gaussian = self.kind == "gaussian"
        self.eps = analytic_gaussian_epsilon(self.spread, DELTA) if gaussian else strength
        self.bend = rng.uniform(0.2, 3.0, 3)

    def __call__(self, coins: np.ndarray) -> list[float]:
        self.calls += 1
        bits = np.asarray(coins)
        if self.calls > CALLS:
            raise Wrong(f"release may be called {CALLS} times")
        if bits.shape != (CANARIES,) or not np.isin(bits, (0, 1)).all():
            raise Wrong(f"release takes {CANARIES} coins, each true or false")
        return self.curve(self.noisy(bits.astype(float))).tolist()

    def noisy(self, bits: np.ndarray) -> np.ndarray:
        """ε of the bit is ``self.eps``, at δ for Gaussian noise and at 0 for the others."""
        if self.kind == "gaussian":
            return bits + self.spread * self.rng.standard_normal(len(bits))
        if self.kind == "laplace":
            return bits + self.rng.laplace(0, self.spread, len(bits))
        lies = self.rng.random(len(bits)) < 1 / (1 + math.exp(self.eps))
        return np.abs(bits - lies) + 1e-9 * self.rng.random(len(bits))  # ties by lot

    def curve(self, scores: np.ndarray) -> np.ndarray:
        """The same order, other numbers."""
        a, b, c = self.bend
        return a * np.sinh(np.clip(b * scores, -30, 30)) + c * scores


def judge_audit(audit: Callable[[Release, int], float], seed: int) -> Score:
    """``audit(release, canaries)`` -> a lower bound on ε with 95 % confidence."""
    if not callable(audit):
        got = type(audit).__name__
        raise PrivflError(f"part-4 asks for a function of a release and a count, not {got}")
    bounds, usual, above = [], [], 0
    for trial in range(RELEASES):
        ours, theirs = (Mechanism(np.random.default_rng([seed, trial])) for _ in range(2))
        try:
            bounds.append(number(audit(ours, CANARIES), "the bound"))
        except Wrong as wrong:
            return _none(str(wrong), seed)
        except (Exception, SystemExit) as error:
            return Score("part-4", (raised("bounds", 100.0, error),), seed)
        above += bounds[-1] > ours.eps
        usual.append(reference(theirs, CANARIES, delta_dp=DELTA, seed=seed + trial).epsilon)
    if above > MISTAKES:
        return _none(f"{above} of {RELEASES} bounds are above the truth", seed)
    mean, other = float(np.mean(np.maximum(bounds, 0))), float(np.mean(usual))
    why = f"mean bound {mean:.2f}; pf.privacy.audit has {other:.2f}; {above} above the truth"
    points = 100 * share(mean / other, LOW, HIGH)
    return Score("part-4", (Goal("bounds", points, 100.0, why),), seed)


def _none(why: str, seed: int) -> Score:
    return Score("part-4", (Goal("bounds", 0.0, 100.0, why),), seed)
