"""Lab 4, DP-SGD with an ε that you can defend: its checks, with ``PRACTICE`` or a class's key.

Chapters "Noise and ε" (the Gaussian mechanism, composition) and "Proof, bound, audit".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..check import TRIALS, Wrong, begun, close, exercise, number, tensor
from .dp_sgd_cases import (
    BUDGET,
    DELTA,
    PEOPLE,
    ROUNDS,
    captured,
    clipped,
    delta,
    epsilon,
    gradients,
    handout,
    interval,
    least,
    mechanisms,
    train,
)
from .kit import PRACTICE, demand, draws, own, unpack

__all__ = ["BUDGET", "PRACTICE", "demand", "handout", "interval", "train", "unpack"]  # and checks
LEARNS = 0.82  # accuracy that the last question asks for


@exercise("Clip each, add up, add noise, divide: what one person can move is bounded.")
def check_private_step(
    private_step: Callable[[Tensor, float, float, Tensor], Tensor], key=PRACTICE, zero=True
) -> None:
    """``private_step(rows, C, sigma, z)`` -> (Σ clip_C(g_i) + σ C z) / B, as (d,)."""
    for trial in range(TRIALS):
        rng = draws(key, "private_step", str(trial))
        rows, z = gradients(rng, 6 + trial, 9), torch.randn(9, generator=rng)
        rows = rows if zero else rows[2:]
        clip, sigma = 0.5 + 3 * float(torch.rand(1, generator=rng)), 0.7
        found = tensor(
            own(private_step, "defenses", "privacy")(rows.clone(), clip, sigma, z.clone()),
            (9,),
            "the step",
            nan="a gradient of length zero stays zero; do not divide by its length",
        )
        total, count = clipped(rows, clip).sum(0), len(rows)
        if close(found, ((total + sigma * clip * z) / count).double()):
            continue
        mean = rows.mean(0)
        one = mean * min(1.0, clip / float(mean.norm()))
        for wrong, hint in (
            (rows.mean(0) + sigma * clip * z / count, "there is no clip"),
            (one + sigma * clip * z / count, "clip every row, not their mean"),
            ((total + sigma * z) / count, "the noise has deviation σC on the sum: C is missing"),
            (total / count + sigma * clip * z, "the noise goes on the sum, before the division"),
            (total + sigma * clip * z, "this is the sum; divide it by the number of rows"),
        ):
            if close(found, wrong.double()):
                raise Wrong(hint)
        raise Wrong("compute (Σ clip_C(g_i) + σ C z) / B; short rows stay as they are")


@exercise("A number above zero. Whether it is the right one, the grader knows.")
def check_clip_form(clip: float) -> None:
    if number(clip, "the clip") <= 0:
        raise Wrong("a clip is above zero")


@exercise("With this clip the mean is the published one.")
def check_clip(clip: float, key: str) -> None:
    if not math.isclose(number(clip, "the clip"), captured(key)[1], rel_tol=1e-2):
        raise Wrong("the mean of the gradients, clipped so, is not the published one")


@exercise("Exact, and the same for every number of rounds.")
def check_epsilon(my_epsilon: Callable[[float, int, float], float], key=PRACTICE) -> None:
    """``my_epsilon(sigma, rounds, delta_dp)`` -> the least ε, to 0.1 % and never too small."""
    for trial in range(TRIALS):
        rng = draws(key, "epsilon", str(trial))
        sigma = 1 + 9 * float(torch.rand(1, generator=rng))
        rounds = int(torch.randint(1, 100, (1,), generator=rng))
        delta_dp = 10.0 ** -float(4 + 2 * torch.rand(1, generator=rng))
        mu = math.sqrt(rounds) / sigma
        found = number(own(my_epsilon, "privacy")(sigma, rounds, delta_dp), "ε")
        right = epsilon(mu, delta_dp)
        if delta(found, mu) <= delta_dp * (1 + 1e-6) and found <= right * 1.001 + 1e-6:
            continue
        case = f"for σ = {sigma:.2f}, {rounds} rounds and δ = {delta_dp:.2g}"
        if math.isclose(found, rounds * epsilon(1 / sigma, delta_dp), rel_tol=1e-3):
            raise Wrong("you added the ε of each round; the shifts add in squares: μ = √T / σ")
        if math.isclose(found, epsilon(1 / sigma, delta_dp), rel_tol=1e-3):
            raise Wrong("this is the ε of one round")
        if found < right:
            raise Wrong(
                f"{case} your ε = {found:.4g} has δ = {delta(found, mu):.3g}: it does not hold; "
                "bisect, and return the end at which the promise is kept"
            )
        raise Wrong(f"{case} a smaller ε holds as well: {right:.4g}, yours is {found:.4g}")


@exercise("The least noise that keeps the promise, on the side that keeps it.")
def check_noise_for(noise_for: Callable[[float, int, float], float], key=PRACTICE) -> None:
    """``noise_for(eps, rounds, delta_dp)`` -> the least σ, to 0.1 % and never too small."""
    for trial in range(TRIALS):
        rng = draws(key, "noise_for", str(trial))
        eps = 0.3 + 4 * float(torch.rand(1, generator=rng))
        rounds = int(torch.randint(1, 200, (1,), generator=rng))
        found = number(own(noise_for, "privacy")(eps, rounds, DELTA), "σ")
        if found <= 0 or delta(eps, math.sqrt(rounds) / found) > DELTA * (1 + 1e-6):
            raise Wrong(
                f"with σ = {found:.4g}, {rounds} rounds exceed ε = {eps:.3g}: return the end "
                "of the interval that keeps the promise"
            )
        if delta(eps, math.sqrt(rounds) / (found / 1.002)) <= DELTA:
            raise Wrong(f"for ε = {eps:.3g} over {rounds} rounds less than σ = {found:.4g} will do")


@exercise("Hits from below, alarms from above: luck on both sides is paid for.")
def check_at_least(
    at_least: Callable[[int, int, int, float], float], key=PRACTICE, lucky=True
) -> None:
    """``at_least(hits, alarms, tries, delta_dp)`` -> ε at least, from counts, never below 0."""
    for trial in range(2 * TRIALS):
        rng = draws(key, "at_least", str(trial))
        tries = int(torch.randint(50, 2000, (1,), generator=rng))
        hits = int(tries * (0.3 + 0.6 * float(torch.rand(1, generator=rng))))
        alarms = int(hits * float(torch.rand(1, generator=rng)) ** 2)
        if lucky and trial % 4 == 0:
            alarms = 0 if trial else hits  # no alarm at all; or a test that tells nothing
        elif not lucky:
            alarms = max(alarms, 3)
        delta_dp = [DELTA, 0.01][trial % 2]
        found = number(own(at_least, "privacy")(hits, alarms, tries, delta_dp), "ε")
        right = least(hits, alarms, tries, delta_dp)
        if math.isclose(found, right, rel_tol=1e-6, abs_tol=1e-9):
            continue
        case = f"{hits} hits, {alarms} alarms of {tries}"
        if found < 0:
            raise Wrong("ε is never below zero: an attack that fails proves nothing")
        plain = hits / tries - delta_dp, alarms / tries
        if alarms and math.isclose(found, max(0, math.log(plain[0] / plain[1])), rel_tol=1e-6):
            raise Wrong("these are the observed rates; luck is part of them, so take ends")
        if math.isclose(found, least(hits, alarms, tries, 0.0), rel_tol=1e-6):
            raise Wrong("δ is taken off the rate of hits")
        raise Wrong(f"for {case} and δ = {delta_dp:g} it is {right:.4f}, not {found:.4f}")


@exercise("Some of the three names. Whether they are the right ones, the grader knows.")
def check_refuted_form(refuted: Iterable[str]) -> None:
    if isinstance(refuted, str) or not set(begun(refuted)) <= set("ABC"):
        raise Wrong('give a list of names, such as ["A", "C"]')


@exercise("These claims are refuted, and only these.")
def check_refuted(refuted: Iterable[str], key: str) -> None:
    right = {name for name, way in mechanisms(key).items() if way != "as it claims"}
    if set(begun(refuted)) != right:
        raise Wrong("another set of claims is refuted at ε = 1 with 95 %")


def _plan(plan: Any) -> tuple[float, float, float]:
    if not isinstance(begun(plan), Mapping) or set(plan) != {"clip", "sigma", "rate"}:
        raise Wrong('the plan is a dictionary with "clip", "sigma" and "rate"')
    clip, sigma, rate = (number(plan[name], name) for name in ("clip", "sigma", "rate"))
    if min(clip, sigma, rate) <= 0:
        raise Wrong("clip, sigma and rate are above zero")
    return clip, sigma, rate


@exercise(
    f"Over {ROUNDS} rounds this keeps ε at {BUDGET:g} or below, for each of {PEOPLE:,} people."
)
def check_plan(plan: dict[str, float]) -> None:
    """The promise alone: ε of 30 rounds at this σ, one person added or taken away."""
    _, sigma, _ = _plan(plan)
    if (spent := epsilon(math.sqrt(ROUNDS) / sigma)) > BUDGET * (1 + 1e-6):
        raise Wrong(f"{ROUNDS} rounds at σ = {sigma:g} spend ε = {spent:.3g}, more than {BUDGET:g}")


@exercise("It learns, within the budget.")
def check_learns(plan: dict[str, float], key=PRACTICE) -> None:
    """The plan keeps the budget, and its training on the key's people learns."""
    clip, sigma, rate = _plan(plan)
    if epsilon(math.sqrt(ROUNDS) / sigma) > BUDGET * (1 + 1e-6):
        raise Wrong("the plan exceeds the budget, so its accuracy does not count")
    reached = train(clip, sigma, rate, key)
    if reached < LEARNS:
        raise Wrong(f"accuracy {reached:.3f}; {LEARNS:g} can be had: weigh clip and rate together")
