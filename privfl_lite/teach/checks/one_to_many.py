"""Checks for the exercises of "From one machine to many": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...gradients import Tensors
from ...runtime import generator
from ..check import TRIALS, Wrong, begun, close, exercise, hint, tensor

SECRET = "patient 4711"


def _round(trial: int) -> tuple[Tensor, list[int], list[int]]:
    """Updates (5, 3), examples of each client, and who answered."""
    rng = generator(trial)
    sizes = torch.randint(1, 20, (5,), generator=rng).tolist()
    sizes[0] += sizes[1]  # they differ
    answered = torch.randperm(5, generator=rng)[: 2 + trial % 3].tolist()
    return torch.randn(5, 3, generator=rng), sizes, sorted(answered)


@exercise("So a lost node changes the weights of all others.")
def check_mean(mean: Callable[[Tensor, list[int], Sequence[int]], Tensor]) -> None:
    """``mean(deltas, sizes, answered)``: what the server adds when only these answered."""
    for trial in range(TRIALS):
        deltas, sizes, answered = _round(trial)
        found = tensor(mean(deltas.clone(), list(sizes), list(answered)), (3,), "the mean")
        n = torch.tensor(sizes).double()
        weighted = n[:, None] * deltas.double()
        right = weighted[answered].sum(0) / n[answered].sum()
        if close(found, right):
            continue
        wrongs = {
            "weight each update by its numbers of examples": deltas.double()[answered].mean(0),
            "some of these clients did not answer": weighted.sum(0) / n.sum(),
            "divide by the examples of those who answered": weighted[answered].sum(0) / n.sum(),
        }
        raise hint(found, wrongs, "that is not the mean of those who answered")


@exercise("Two sums that differ by one client are that client's upload.")
def check_lost(lost: Callable[[Tensor, Tensor, int, int], Tensor]) -> None:
    """``lost(whole, some, n_all, n_some)``: the update of the one client that is only in whole."""
    for trial in range(TRIALS):
        rng = generator(trial, 1)
        sizes = torch.randint(2, 20, (4,), generator=rng).double()
        deltas = torch.randn(4, 4, generator=rng).double()
        whole, some = (sizes[:k] @ deltas[:k] / sizes[:k].sum() for k in (4, 3))
        n_all, n_some = int(sizes.sum()), int(sizes[:3].sum())
        found = tensor(lost(whole.clone(), some.clone(), n_all, n_some), (4,), "the update")
        if close(found, deltas[3]):
            continue
        wrongs = {
            "means are no sums: multiply them by their examples first": whole - some,
            "that is n Δ: divide by the examples of the lost client": sizes[3] * deltas[3],
            "the sign is wrong": -deltas[3],
        }
        raise hint(found, wrongs, "that is not what the lost client sent")


def _raises(*_: Any) -> Any:
    raise RuntimeError(SECRET)


def _nan(change: Tensors) -> Tensors:
    return {n: t * float("nan") for n, t in change.items()}


Answer = Callable[[Tensors, Callable[[Tensors], Tensors], Callable[[Tensors], Tensors]], Any]


@exercise("Whatever goes wrong, nothing leaves but one constant word.")
def check_answer(answer: Answer) -> None:
    """``answer(before, train, defend)``: the reply of a client that fails closed."""
    before = {"w": torch.randn(2, 3, generator=generator(0)), "b": torch.zeros(2)}

    def train(weights: Tensors) -> Tensors:
        return {n: t + 1 for n, t in weights.items()}

    def half(change: Tensors) -> Tensors:
        return {n: t / 2 for n, t in change.items()}

    def other(weights: Tensors) -> Tensors:
        return {"w": weights["w"]}

    def asked(how: Callable, door: Callable) -> Any:
        return begun(answer({n: t.clone() for n, t in before.items()}, how, door))

    _sent(asked(train, half), {n: t + 0.5 for n, t in before.items()}, train(before))
    for what, how, door in (
        ("the defense raises", train, _raises),
        ("training raises", _raises, half),
        ("the defense returns NaN", train, _nan),
        ("training returns other names", other, half),
    ):
        _closed(asked(how, door), what)


def _sent(reply: Any, right: Tensors, undefended: Tensors) -> None:
    if not isinstance(reply, dict):
        raise Wrong("return a dictionary, with the key weights or with the key error")
    if "weights" not in reply:
        raise Wrong("nothing was wrong, and still nothing was sent")
    if not isinstance(reply["weights"], dict) or set(reply["weights"]) != set(right):
        raise Wrong("the weights that leave have the names of those that came")
    for name, t in right.items():
        found = tensor(reply["weights"][name], tuple(t.shape), f"the weights {name!r}")
        if close(found, undefended[name]):
            raise Wrong("the change leaves undefended: send before + defend(after − before)")
        if not close(found, t):
            raise Wrong("send before + defend(after − before)")


def _closed(reply: Any, what: str) -> None:
    if not isinstance(reply, dict):
        raise Wrong(f"return a dictionary also where {what}")
    if "weights" in reply:
        raise Wrong(f"where {what}, weights still leave, bare or broken")
    if reply != {"error": "refused"}:
        raise Wrong(f"where {what}, the reply must be the constant, without any other text")
