"""Checks for the exercises of "Borrowing someone else's update": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...defenses.entangle import adaptive_term
from ...runtime import generator
from ..check import TRIALS, Wrong, begun, exercise, mask, number, tensor


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


@exercise("With its rows filled in, the upload is the one that no defense had touched.")
def check_fill_in(
    fill_in: Callable[[Tensor, Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor, Tensor]],
) -> None:
    """``fill_in(gW, gb, W, b, y)`` -> own rows (m,), the client's weight and bias gradients."""
    for trial in range(TRIALS):
        rng = generator(trial)
        W, b = (torch.randn(9, *n, generator=rng).double() / 4 for n in ((20,), ()))
        r, s = (0.2 + torch.rand(20, generator=rng).double() for _ in range(2))
        y, k = trial % 9, (trial + 4) % 9
        own = torch.ones(9, dtype=torch.bool)
        own[torch.randperm(9, generator=rng)[: 2 + trial % 2]] = False
        own[y] = False  # the sign of the bias does not show the label
        delta, gamma = _error(W @ r + b, y), _error(W @ s + b, k)
        weight = torch.where(own[:, None], delta[:, None] * r, gamma[:, None] * s)
        bias = torch.where(own, delta, gamma)
        answer = begun(fill_in(weight.clone(), bias.clone(), W.clone(), b.clone(), y))
        if not isinstance(answer, tuple | list) or len(answer) != 3:
            raise Wrong("return three things: own rows, weight gradient, bias gradient")
        rows = mask(answer[0], (9,), "the first answer has 9 truth values, one for each row")
        _rows(rows, own)
        found_w = tensor(answer[1], (9, 20), "the weight gradient")
        found_b = tensor(answer[2], (9,), "the bias gradient")
        _filled(found_b, delta, bias, (W @ r + b).softmax(0), own)
        if not torch.allclose(found_w, delta[:, None] * r, rtol=1e-6, atol=1e-9):
            raise Wrong("the bias is right; a missing row c of the weights is δ_c · r")


def _error(logits: Tensor, label: int) -> Tensor:
    """p − e_y."""
    p = logits.softmax(0)
    p[label] -= 1
    return p


def _rows(found: Tensor, own: Tensor) -> None:
    if torch.equal(found, ~own):
        raise Wrong("these rows are the guard's: the client kept more than half")
    if found.sum() <= 1:
        raise Wrong("rows of one group differ in the last digits: allow for rounding")
    if found.all():
        raise Wrong("no row was told apart: compare the rows of gW / gb[:, None] with each other")
    if not torch.equal(found, own):
        raise Wrong("own rows all show the same representation; the larger group is the client's")


def _filled(found: Tensor, delta: Tensor, sent: Tensor, p: Tensor, own: Tensor) -> None:
    """The bias gradient is δ, or what went wrong with it."""
    if torch.allclose(found, delta, rtol=1e-6, atol=1e-9):
        return
    if torch.allclose(found, sent):
        raise Wrong("the guard's entries still stand in the bias gradient: put δ_c there")
    if torch.allclose(found, p) or torch.allclose(found, torch.where(own, delta, p)):
        raise Wrong("the label is missing: δ = p − e_y, one less at y")
    raise Wrong("δ = softmax(W r + b) − e_y with r from the own rows only")
