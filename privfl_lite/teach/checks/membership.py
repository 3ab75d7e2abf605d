"""Checks for the exercises of "Was I in the training set?": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from scipy.stats import beta
from torch import Tensor

from ... import metrics
from ...runtime import generator
from ..check import TRIALS, Wrong, close, exercise, number, tensor


@exercise("It needs no threshold, and ties count one half.")
def check_auc(auc: Callable[[Tensor, Tensor], float]) -> None:
    """``auc(members, others)`` -> P(member > other) + P(equal) / 2 over all pairs."""
    for trial in range(TRIALS):
        rng = generator(trial)
        members = torch.randint(0, 6, (30 + trial,), generator=rng).float() + 0.5 * (trial % 2)
        others = torch.randint(0, 5, (20,), generator=rng).float() + 0.5 * (trial % 2)
        found = number(auc(members.clone(), others.clone()), "the AUC")
        right = metrics.auc(members, others)
        if close(found, right):
            continue
        above = (members[:, None] > others).double().mean().item()
        upto = (members[:, None] >= others).double().mean().item()
        if close(found, above):
            raise Wrong("ties are missing: a pair with equal scores counts one half, not nothing")
        if close(found, upto):
            raise Wrong("a pair with equal scores counts one half, not one")
        if close(found, 1 - right):
            raise Wrong("the sides are exchanged: a member's score should be the higher one")
        raise Wrong("compare every member with every other one, and average over all pairs")


@exercise("What is left after the gap is what the distances add.")
def check_beyond_gap(beyond_gap: Callable[[Tensor, Tensor], float]) -> None:
    """``beyond_gap(members, others)`` -> AUC of distances minus AUC of the gap attack in them."""
    for trial in range(TRIALS):
        rng = generator(trial)
        members = (torch.rand(40, generator=rng) + 0.1 * trial).clamp_min(0.3) - 0.3
        others = torch.rand(30, generator=rng).clamp_min(0.4) - 0.4
        found = number(beyond_gap(members.clone(), others.clone()), "the difference")
        whole = metrics.auc(members, others)
        gap = metrics.auc(members > 0, others > 0)
        among = metrics.auc(members[members > 0], others[others > 0])
        if close(found, whole - gap):
            continue
        if close(found, among - 0.5):
            raise Wrong(
                "this is the part among right answers only; weigh it by the share of pairs in "
                "which both are right"
            )
        if close(found, gap) or close(found, gap - 0.5):
            raise Wrong("this is the gap attack itself; what do the distances add to it?")
        if close(found, gap - whole):
            raise Wrong("the sign is turned round: take the gap away from the whole")
        raise Wrong("a score over 0 means a right answer; the gap attack sees nothing else")


@exercise("One inner product a candidate, and no training at all.")
def check_gradient_scores(gradient_scores: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """``gradient_scores(g, upload, reference)`` -> ⟨g − μ, upload − μ⟩ for each row of g (N,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        g, reference = torch.randn(9, 7, generator=rng) + 1, torch.randn(20, 7, generator=rng) + 1
        upload = g[:4].mean(0)
        answer = gradient_scores(g.clone(), upload.clone(), reference.clone())
        answer = tensor(answer, (9,), "the list of scores").float()
        mu = reference.mean(0)
        right = (g - mu) @ (upload - mu)
        if torch.allclose(answer, right, rtol=1e-3, atol=1e-4):
            continue
        if torch.allclose(answer, g @ upload, rtol=1e-3, atol=1e-4):
            raise Wrong("the mean μ of the reference gradients is not taken away")
        if torch.allclose(answer, (g - mu) @ upload, rtol=1e-3, atol=1e-4) or torch.allclose(
            answer, g @ (upload - mu), rtol=1e-3, atol=1e-4
        ):
            raise Wrong("take μ away from both, the candidates' gradients and the upload")
        if torch.allclose(answer, -right, rtol=1e-3, atol=1e-4):
            raise Wrong("the sign is turned round: members should score high")
        raise Wrong("the score is the inner product of g − μ with upload − μ")


def _audit(hits: int, m: int, false: int, n: int, level: float = 0.025) -> tuple[float, float]:
    """TPR from below and FPR from above, by Clopper and Pearson, each wrong with ``level``."""
    tpr = float(beta.ppf(level, hits, m - hits + 1)) if hits else 0.0
    fpr = float(beta.ppf(1 - level, false + 1, n - false)) if false < n else 1.0
    return tpr, fpr


def _lines(tpr: float, fpr: float, delta_dp: float) -> tuple[float, float]:
    """ε by the two lines of prop-dp-bounds-roc, 0 where a line says nothing."""
    one = math.log((tpr - delta_dp) / fpr) if tpr > delta_dp and fpr > 0 else 0.0
    two = math.log((1 - fpr - delta_dp) / (1 - tpr)) if 1 - fpr > delta_dp and tpr < 1 else 0.0
    return max(one, 0.0), max(two, 0.0)


@exercise("An attack that works refutes every smaller ε.")
def check_epsilon_at_least(
    epsilon_at_least: Callable[[Tensor, Tensor, float, float], float],
) -> None:
    """``epsilon_at_least(members, others, tau, delta_dp)`` -> ε that the attack rules out below."""
    # the first line decides, the second, neither; no false alarm; with a large δ
    cases = ((2.0, 2.0, 0.0), (2.0, -0.5, 0.0), (0.0, 0.0, 0.0), (3.0, 3.5, 1e-5), (2.0, 1.5, 0.1))
    for trial, (shift, tau, delta_dp) in enumerate(cases):
        rng = generator(trial)
        members = torch.randn(180, generator=rng) + shift
        others = torch.randn(200 + trial, generator=rng)
        counts = int((members >= tau).sum()), 180, int((others >= tau).sum()), len(others)
        given = members.clone(), others.clone(), tau, delta_dp
        found = number(epsilon_at_least(*given), "the bound")
        right = max(_lines(*_audit(*counts), delta_dp))
        if not close(found, right, atol=1e-4):
            raise _audited(found, counts, delta_dp, right)


def _audited(
    found: float, counts: tuple[int, int, int, int], delta_dp: float, right: float
) -> Wrong:
    """What went wrong on the way to a bound."""
    hits, m, false, n = counts
    tpr, fpr = _audit(*counts)
    plain = max(_lines(hits / m, false / n, delta_dp))
    wrongs = {
        "you inserted the observed rates; a bound needs TPR from below and FPR from above": plain,
        "δ is missing: it is subtracted from what stands on the left": max(_lines(tpr, fpr, 0.0)),
        "use 2.5 % on each side, so that both bounds hold with 95 %": max(
            _lines(*_audit(*counts, level=0.05), delta_dp)
        ),
        "the first line alone; the second, about those who are not accused, says more here": _lines(
            tpr, fpr, delta_dp
        )[0],
        "the second line alone; the first, about those who are accused, says more here": _lines(
            tpr, fpr, delta_dp
        )[1],
    }
    if found < 0:
        return Wrong("ε is never negative; where neither line says anything, return 0")
    for hint, wrong in wrongs.items():
        if close(found, wrong, atol=1e-4):
            return Wrong(hint)
    said = f"{hits} of {m} members and {false} of {n} others accused, δ = {delta_dp:g}"
    return Wrong(f"for {said}, the bound is {right:.3f}, not {found:.3f}")
