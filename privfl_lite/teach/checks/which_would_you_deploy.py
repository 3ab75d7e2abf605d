"""Checks for the exercises of "Which would you deploy?": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable

from ...privacy import epsilon, success_bound
from ..check import Wrong, close, exercise, number


@exercise("So many honest noises hide one picture.")
def check_honest(honest: Callable[[float, float, int], float]) -> None:
    """``honest(kappa, sigma, h)``: the most named behind a sum of which h noises are unknown."""
    for kappa, sigma, h in ((0.01, 2.0, 20), (0.1, 1.0, 4), (0.01, 0.5, 1)):
        found = number(honest(kappa, sigma, h), "the bound")
        right = success_bound(kappa, sigma * h**0.5)
        if close(found, right, 1e-6):
            continue
        if close(found, success_bound(kappa, sigma * h), 1e-6):
            raise Wrong("variances add, not deviations: h noises are √h times as wide")
        if close(found, success_bound(kappa, sigma), 1e-6) and h > 1:
            raise Wrong("that is what one client's own noise gives; the sum has h of them")
        raise Wrong(f"for κ = {kappa:g}, σ = {sigma:g} and {h} honest noises it is not {found:.4g}")


def least(target: float, rate: float, rounds: int, delta: float) -> float:
    """The least multiplier with ε ≤ target, by bisection."""
    low, high = 0.3, 64.0
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        if epsilon(middle, rate, rounds, delta) > target:
            low = middle
        else:
            high = middle
    return high


@exercise("With it you can plan a training before it starts.")
def check_least_sigma(least_sigma: Callable[[float, float, int, float], float]) -> None:
    """``least_sigma(target, rate, rounds, delta)``: within 2 % above the least that holds."""
    for case in ((2.0, 0.001, 500, 1e-7), (8.0, 0.01, 200, 1e-5), (1.0, 0.01, 100, 1e-6)):
        found, right = number(least_sigma(*case), "σ"), least(*case)
        target, rate, rounds, delta = case
        if found < 0.3:
            raise Wrong("so little noise is beyond the accountant; search from 0.3 upward")
        spent = epsilon(found, rate, rounds, delta)
        if spent > target * 1.005:
            raise Wrong(f"σ = {found:.3g} has ε = {spent:.3g}, over the target of {target:g}")
        if found > 1.02 * right:
            raise Wrong(f"σ = {found:.3g} holds, but {right:.3g} would do: more noise than needed")
