"""Checks for the exercises of "Borrowing someone else's update": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...defenses.entangle import adaptive_term
from ...runtime import generator
from ..check import TRIALS, Wrong, exercise, mask, number, tensor


@exercise("What was not chosen leaves as it is.")
def check_entangle(entangle: Callable[[Tensor, Tensor, Tensor, float], Tensor]) -> None:
    """``entangle(own, guard, scores, share)`` -> (m, R), best-scored columns are the guard's."""
    for trial in range(TRIALS):
        rng, share = generator(trial), 0.3 + 0.1 * trial
        own, guard = (torch.randn(4, 20, generator=rng).double() for _ in range(2))
        scores = torch.rand(20, generator=rng).double()
        count = round(share * 20)

        def mixed(a: Tensor, b: Tensor, chosen: Tensor, dim: int = 1) -> Tensor:
            return a.index_copy(dim, chosen, b.index_select(dim, chosen))

        answer = tensor(
            entangle(own.clone(), guard.clone(), scores.clone(), share), (4, 20), "the upload"
        )
        best = scores.topk(count).indices
        if torch.equal(answer, mixed(own, guard, best)):
            continue
        for hint, wrong in {
            "these are the lowest scores; the guard takes the columns with the highest": mixed(
                own, guard, scores.topk(count, largest=False).indices
            ),
            "the rest is the guard's and the chosen ones are yours; it is the other way round": (
                mixed(guard, own, best)
            ),
            "the guard's entries are added here; Model Entanglement overwrites": (
                mixed(own, own + guard, best)
            ),
            "the chosen columns are 0; that is Soteria. Put the guard's numbers there": mixed(
                own, 0 * own, best
            ),
            "one column is missing or too many: round share · R": mixed(
                own, guard, scores.topk(math.ceil(share * 20) + 1).indices
            ),
            "nothing was replaced": own,
        }.items():
            if torch.equal(answer, wrong):
                raise Wrong(hint)
        raise Wrong("overwrite whole columns, the round(share · R) with the highest scores")


@exercise("Below A = ln 3 the first term takes away from 1 − β.")
def check_ratio(ratio: Callable[[Tensor, Tensor, float, float], float]) -> None:
    """``ratio(delta, w, beta, floor)`` -> μ of Eq. 10, |w| counted as ``floor`` at least."""
    for trial in range(TRIALS):
        rng, beta, floor = generator(trial), 0.7, 0.05
        w = torch.rand(200, generator=rng).double() - 0.5
        delta = (0.02 + 0.2 * trial) * torch.randn(200, generator=rng).double()
        found = number(ratio(delta.clone(), w.clone(), beta, floor), "μ")
        safe = w.abs().clamp(min=floor)

        def share(a: Tensor, beta: float = beta) -> float:
            return adaptive_term(a).item() + 1 - beta

        if math.isclose(found, share((delta.abs() / safe).mean()), rel_tol=1e-6):
            continue
        for hint, wrong in {
            "the floor is missing: a single weight near 0 decides": share((delta / w).abs().mean()),
            "take absolute values before the mean; signs cancel here": share((delta / safe).mean()),
            "this divides the norms; A is the mean of the quotients": share(
                delta.abs().sum() / safe.sum()
            ),
            "A is a mean: divide the sum by the number of weights": share(
                (delta.abs() / safe).sum()
            ),
            "add 1 − β, not β": share((delta.abs() / safe).mean(), 1 - beta),
            "1 − β is missing": share((delta.abs() / safe).mean(), 1.0),
            "floor the weight's size |w|; a negative weight is not a small one": share(
                (delta / w.clamp(min=floor)).abs().mean()
            ),
        }.items():
            if math.isclose(found, wrong, rel_tol=1e-6):
                raise Wrong(hint)
        raise Wrong("μ = 0.4 sigmoid(A) − 0.3 + 1 − β with A the mean of |Δ| / max(|w|, floor)")


@exercise("The upload itself shows where the guard stands.")
def check_foreign_columns(foreign_columns: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``foreign_columns(weight, bias)`` -> (R,) of bool, columns that are not δ r_j."""
    for trial in range(TRIALS):
        rng = generator(trial)
        delta, gamma = (torch.randn(10, generator=rng).double().softmax(0) for _ in range(2))
        delta[trial], gamma[trial + 2] = delta[trial] - 1, gamma[trial + 2] - 1
        r, s = (0.2 + torch.rand(30, generator=rng).double() for _ in range(2))
        r[3] = 0  # a unit that is off
        own, others = delta[:, None] * r, gamma[:, None] * s
        foreign = torch.rand(30, generator=rng) < 0.4
        foreign[3] = False
        if trial % 2:  # added instead of copied
            others = others + own
        answer = mask(
            foreign_columns(torch.where(foreign, others, own), delta.clone()),
            (30,),
            "return a tensor of 30 truth values, one for each column",
        )
        if torch.equal(answer, foreign):
            continue
        if torch.equal(answer, ~foreign):
            raise Wrong("these are the client's own columns; return the others")
        wrong = answer != foreign
        if wrong.nonzero().flatten().tolist() == [3]:
            raise Wrong("a column of zeros is the client's own: its unit is off, and 0/δ is 0")
        if answer[foreign].any() and not answer[foreign].all():
            raise Wrong("compare all rows of a column, not two of them")
        if answer.all():
            raise Wrong("quotients of one column differ in the last digits: allow for rounding")
        raise Wrong("divide each column by the bias; if all rows agree, the column is the client's")
