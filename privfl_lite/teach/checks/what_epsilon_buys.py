"""Checks for the exercises of "What ε buys": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...runtime import generator
from ..check import TRIALS, Wrong, close, exercise, number, tensor


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


@exercise("Rounds with moving weights add up, as ε says they may.")
def check_posterior(
    posterior: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    sure_after: Callable[[Tensor, Tensor, Tensor, Tensor, float], int],
) -> None:
    """``posterior(seen, candidates, stds, prior)`` -> P(candidate | all rounds), (N,);
    ``sure_after(…, sure)`` -> the first number of rounds with a candidate that sure, or 0."""
    for trial in range(TRIALS):
        given = _rounds(generator(trial), width=1.0)
        found = tensor(posterior(*(t.clone() for t in given)), (6,), "the probabilities")
        if not close(found, posterior_of(*given), atol=1e-5):
            raise _why(found, *given)
    far = _rounds(generator(99), width=100.0)  # every likelihood is below the smallest float
    small = "likelihoods too small for a float became 0; subtract the largest logarithm first"
    found = tensor(posterior(*(t.clone() for t in far)), (6,), "the probabilities", nan=small)
    if not close(found, posterior_of(*far), atol=1e-5):
        raise Wrong(small)
    for trial in range(TRIALS):
        given = _rounds(generator(trial, 2), width=4.0)
        for sure in (0.6, 0.9, 0.99, 0.999999999):
            seen, candidates, stds, prior = (t.clone() for t in given)
            answer = sure_after(seen, candidates, stds, prior, sure)
            found_after = number(answer, "their number")
            if found_after != after(*given, sure):
                raise _why_after(found_after, *given, sure)


def after(
    seen: Tensor, candidates: Tensor, stds: Tensor, prior: Tensor, sure: float, alone: bool = False
) -> int:
    """The first number of rounds after which a candidate is that sure, or 0."""
    for t in range(1, len(seen) + 1):
        part = slice(t - 1 if alone else 0, t)
        if posterior_of(seen[part], candidates[part], stds[part], prior).max() >= sure:
            return t
    return 0


def _why_after(
    found: float, seen: Tensor, candidates: Tensor, stds: Tensor, prior: Tensor, sure: float
) -> Wrong:
    """What is wrong with a number of rounds."""
    right = after(seen, candidates, stds, prior, sure)
    if not right:
        return Wrong(f"nobody is that sure after all {len(seen)} rounds: return 0")
    if found == right - 1:
        return Wrong("one round too few: after the first round the number is 1")
    if found == after(seen, candidates, stds, prior, sure, alone=True):
        return Wrong("rounds add up: ask about the first t rounds together, not about round t")
    if found == len(seen):
        return Wrong("stop at the first number of rounds that suffices")
    return Wrong(f"{right} rounds suffice for probability {sure}, and you return {found:g}")


def posterior_of(seen: Tensor, candidates: Tensor, stds: Tensor, prior: Tensor) -> Tensor:
    """Bayes' rule with Gaussian noise in each round (N,)."""
    apart = (candidates - seen[:, None]).square().sum(2)  # (T, N)
    return (prior.log() - (apart / (2 * stds[:, None] ** 2)).sum(0)).softmax(0)


def _rounds(rng: torch.Generator, width: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Five rounds, six candidates, three weights; noise of different sizes."""
    candidates = width * torch.randn(5, 6, 3, generator=rng)
    stds = torch.tensor([2.0, 6.0, 3.0, 9.0, 4.0])
    seen = candidates[:, 2] + stds[:, None] * torch.randn(5, 3, generator=rng)
    if width > 10:
        seen = seen + 3 * width
    return seen, candidates, stds, torch.tensor([0.05, 0.3, 0.1, 0.2, 0.25, 0.1])


def _why(found: Tensor, seen: Tensor, candidates: Tensor, stds: Tensor, prior: Tensor) -> Wrong:
    """What is wrong with a posterior."""
    flat_prior, same = torch.ones_like(prior) / len(prior), torch.ones_like(stds)
    mean = candidates.mean(0, keepdim=True), stds.square().mean().sqrt()[None] / len(stds) ** 0.5
    wrongs = {
        "the prior is missing: candidates are not equally likely": (
            seen, candidates, stds, flat_prior
        ),
        "rounds with less noise count more: divide by each round's variance": (
            seen, candidates, same, prior
        ),
        "divide by 2s², the variance, not by 2s": (seen, candidates, stds.sqrt(), prior),
        "the exponent is −‖…‖²/2s²: the 2 is missing": (seen, candidates, stds / 2**0.5, prior),
        "uploads of different weights cannot be averaged: compare round by round": (
            seen.mean(0, keepdim=True), *mean, prior
        ),
        "use all rounds, not only the last": (seen[-1:], candidates[-1:], stds[-1:], prior),
    }  # fmt: skip
    for hint, case in wrongs.items():
        if close(found, posterior_of(*case), atol=1e-5):
            return Wrong(hint)
    if not close(found.sum(), 1.0):
        return Wrong(f"probabilities sum to 1, yours to {found.sum():.3g}: divide by their sum")
    return Wrong("add −‖seen − candidate‖²/2s² over the rounds to the logarithm of the prior")
