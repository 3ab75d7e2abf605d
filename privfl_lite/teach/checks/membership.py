"""Checks for the exercises of "Was I in the training set?": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable

import torch
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
