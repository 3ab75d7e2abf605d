"""Checks for the exercises of "The red team": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...runtime import generator
from ..check import TRIALS, Wrong, exercise, number, tensor


@exercise("A secret that stays is subtracted.")
def check_subtract(subtract: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``subtract(y, A)``: x (n,) from y_t = A_t x + s, y (T, m), A (T, m, n), s unknown, fixed."""
    for trial in range(TRIALS):
        rng = generator(trial)
        maps = torch.randn(3 + trial % 2, 4, 5, generator=rng).double()
        x, s = torch.rand(5, generator=rng).double(), 9 * torch.randn(4, generator=rng).double()
        y = maps @ x + s
        found = tensor(subtract(y.clone(), maps.clone()), (5,), "the image")
        if (found - x).abs().max() < 1e-6:
            continue
        plain = torch.linalg.lstsq(maps.flatten(0, 1), y.flatten()[:, None]).solution[:, 0]
        if (found - plain).abs().max() < 1e-6:
            raise Wrong("that is least squares as if there were no secret; subtract round 0 first")
        raise Wrong("the differences y[1:] - y[0] and A[1:] - A[0] have no secret in them")


@exercise("So a mask that moves has a deadline.")
def check_rounds_until(rounds_until: Callable[[float, float], int]) -> None:
    """``rounds_until(sent, left)``: the first T with (1 − sent)^T ≤ left."""
    for sent, left in ((0.1, 0.5), (0.5, 0.25), (0.1, 0.01), (0.7, 0.05), (0.9, 0.2)):
        found = number(rounds_until(sent, left), "the number of rounds")
        right = next(t for t in range(1, 10_000) if (1 - sent) ** t <= left * (1 + 1e-12))
        if found == right:
            continue
        if found == math.floor(math.log(left) / math.log(1 - sent)) and found == right - 1:
            raise Wrong("round up: after that many rounds a little too much is still unseen")
        if found == math.ceil(math.log(left) / math.log(sent) - 1e-9):
            raise Wrong("an entry stays unseen with 1 - sent in a round, not with sent")
        raise Wrong(f"for sent={sent:g}, left={left:g} it is not {found:g}")


def borrowed(trial: int, rounds: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """A dense layer's gradients (T, out, in), (T, out) of one image (in,), with columns of a
    guard's gradient in place of the client's: other columns, another guard image every round."""
    rng, out, inp = generator(trial), 6, 12
    x = torch.rand(inp, generator=rng).double()
    weights, biases = [], []
    for t in range(rounds):
        own, guard = torch.randn(2, out, generator=rng).double()
        there = torch.rand(inp, generator=rng).double()
        taken = torch.zeros(inp, dtype=torch.bool)
        taken[torch.randperm(inp, generator=rng)[: inp // 2]] = True
        taken[t::rounds] = False  # every pixel is the client's in some round
        weights.append(torch.where(taken, guard[:, None] * there, own[:, None] * x))
        biases.append(own)
    return torch.stack(weights), torch.stack(biases), x


@exercise("That is the red team's answer to borrowed columns, without the guard's upload.")
def check_read_through(read_through: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``read_through(weights, biases)``: the image (in,) behind T uploads with guards' columns."""
    for trial in range(TRIALS):
        weights, biases, x = borrowed(trial)
        answer = read_through(weights.clone(), biases.clone())
        found = tensor(answer, tuple(x.shape), "the image", nan="is a pixel in no round yours?")
        if (found - x).abs().max() < 1e-6:
            continue
        quotients = weights / biases[:, :, None]
        if (found - quotients.mean((0, 1))).abs().max() < 1e-6:
            raise Wrong("that averages the guard's columns in; find out which are the client's")
        right = int(((found - x).abs() < 1e-6).sum())
        raise Wrong(
            f"{right} of {len(x)} pixels are right: a column is the client's in a round where all "
            "rows give the same quotient; take each pixel from such a round"
        )
