"""Checks for the exercises of "How far does it reach?": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from ...runtime import generator
from ..check import TRIALS, Wrong, close, exercise, number, tensor


@exercise("That is the chance of one line in SPEAR's lottery.")
def check_chance(chance: Callable[[int, int, int], float]) -> None:
    """``chance(off, live, batch)``: all of batch − 1 different units drawn are off."""
    for off, live, batch in ((100, 250, 2), (60, 200, 4), (5, 12, 6), (3, 50, 8), (1, 9, 2)):
        found = number(chance(off, live, batch), "the chance")
        right = math.comb(off, batch - 1) / math.comb(live, batch - 1)
        slips = {
            "that is the chance with repetition; the units drawn are different ones": (off / live)
            ** (batch - 1),
            "one unit too many: batch − 1 units fix a direction": math.comb(off, batch)
            / math.comb(live, batch),
        }
        if close(found, right, 1e-6, 1e-12):
            continue
        for words, slip in slips.items():
            if close(found, slip, 1e-6, 1e-12):
                raise Wrong(words)
        if off < batch - 1 and found != 0:
            raise Wrong(f"with {off} units off and {batch - 1} drawn the chance is 0")
        raise Wrong(f"for {off} units off of {live} and a batch of {batch} it is not {found:.3g}")


@exercise("With it you can tell how long SPEAR will take before it starts.")
def check_expected(expected: Callable[[list[float]], float]) -> None:
    """``expected(chances)``: mean number of proposals until each image was hit."""
    for trial in range(TRIALS):
        rng = generator(trial)
        p = (0.02 + 0.2 * torch.rand(2 + trial % 3, generator=rng)).double().tolist()
        found = number(expected(list(p)), "the mean")
        right = sum(
            (-1) ** (size + 1) / sum(some)
            for size in range(1, len(p) + 1)
            for some in combinations(p, size)
        )
        if close(found, right, 0.02):
            continue
        if close(found, 1 / min(p), 0.02):
            raise Wrong("the rarest image decides most, but not alone: the others may come later")
        if close(found, sum(1 / v for v in p), 0.02):
            raise Wrong("while you wait for one image, the others may come: do not add the waits")
        raise Wrong(f"for the chances {[round(v, 3) for v in p]} it is not {found:.4g}")


def _layer(trial: int) -> tuple[Tensor, Tensor]:
    """G (m, n + 1) of a ReLU layer in 64 bits, and the batch (B, n) behind it."""
    rng, batch = generator(trial), 2 + trial % 4
    x = torch.rand(batch, 20, generator=rng).double()
    errors = torch.randn(60, batch, generator=rng).double()
    errors = errors * (torch.rand(60, batch, generator=rng) < 0.6)
    return errors @ torch.cat([x, torch.ones(batch, 1).double()], 1), x


@exercise("That is SPEAR: a whole batch, exactly, from one layer.")
def check_read_batch(read_batch: Callable[[Tensor, int], Tensor]) -> None:
    """``read_batch(G, batch)``: the images (batch, n) behind G = D X̂, in any order."""
    for trial in range(TRIALS):
        sent, x = _layer(trial)
        batch = len(x)
        answer = read_batch(sent.clone(), batch)
        found = tensor(answer, tuple(x.shape), "the batch", nan="is a direction missing?")
        apart = torch.cdist(x, found)
        if apart.min(1).values.max() < 1e-4:
            continue
        hit = int((apart.min(1).values < 1e-4).sum())
        mixed = torch.linalg.lstsq(x.T, found.T).solution.T  # found as mixtures of the batch
        if (mixed @ x - found).abs().max() > 1e-4:
            raise Wrong("these are no mixtures of the batch: take rows of Q⁻¹ R, without the ones")
        if (mixed.sum(1) - 1).abs().max() > 1e-4:
            raise Wrong("divide each image by its last coordinate, which must be 1")
        if hit:
            raise Wrong(
                f"{hit} of {batch} images are right, the others are mixtures: a direction was "
                "taken twice, or one with too few zeros was taken; draw more, and count zeros"
            )
        raise Wrong(
            "all are mixtures of the batch: keep the directions q for which L q has more zeros "
            f"than the {batch - 1} that every draw has"
        )
