"""Checks for the exercises of the chapter "Cutting gradients": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from ...defenses.prune import largest
from ...runtime import generator
from ..check import TRIALS, Wrong, exercise, number, tensor


@exercise("Per tensor, by magnitude, and ties stay.")
def check_prune(prune: Callable[[Tensor, float], Tensor]) -> None:
    """``prune(t, rate)`` -> t with the entries below its ``rate`` quantile of |t| set to zero."""
    for trial in range(TRIALS):
        t = torch.randn(7, 5, generator=generator(trial))
        ties = torch.randn(4, 4, generator=generator(trial)).sign() * 0.5
        for given, rate in ((t, 0.3 + 0.15 * trial), (ties, 0.5)):
            found = tensor(prune(given.clone(), rate), tuple(given.shape), "the answer").to(t)
            keep = largest(given[None], rate)[0]
            if torch.equal(found, given * keep):
                continue
            if given is ties and not found.any():
                raise Wrong(
                    "all entries are equally large and you removed them all: only what is strictly "
                    "below the quantile goes"
                )
            if torch.equal(found, given * ~keep):
                raise Wrong("you kept the small entries and removed the large ones")
            if torch.equal(found, given * (given >= given.quantile(rate))):
                raise Wrong("large negative entries went too: compare magnitudes, |t|")
            if not torch.equal(found[found != 0], given[found != 0]):
                raise Wrong("entries that stay must keep their value and sign")
            raise Wrong(f"at rate {rate:.2f} you kept {int((found != 0).sum())} of {given.numel()}"
                        f" entries; {int(keep.sum())} should stay")  # fmt: skip


@exercise("The search now compares with what was said, not with silence.")
def check_masked_distance(masked_distance: Callable[[dict, dict], Tensor]) -> None:
    """``masked_distance(mine, sent)`` -> sum of squared differences over the entries sent."""
    for trial in range(TRIALS):
        rng = generator(trial)
        sent = {n: torch.randn(s, generator=rng) for n, s in (("a", (4, 3)), ("b", (5,)))}
        sent = {n: t * largest(t[None], 0.5)[0] for n, t in sent.items()}
        mine = {n: torch.randn(t.shape, generator=rng) for n, t in sent.items()}
        found = tensor(masked_distance(dict(mine), dict(sent)), (), "the sum").float()
        parts = {n: (mine[n] - t).square() for n, t in sent.items()}
        want = cast(Tensor, sum((p * (sent[n] != 0)).sum() for n, p in parts.items()))
        if torch.allclose(found, want, rtol=1e-4):
            continue
        if torch.allclose(found, cast(Tensor, sum(p.sum() for p in parts.values())), rtol=1e-4):
            raise Wrong("zeros of the upload still count: they mean “not said”, not “zero”")
        if torch.allclose(found, want.sqrt(), rtol=1e-4):
            raise Wrong("that is the root; the sum of squares itself is asked for")
        means = sum((p * (sent[n] != 0)).sum() / p.numel() for n, p in parts.items())
        if torch.allclose(found, cast(Tensor, means), rtol=1e-4):
            raise Wrong("you took means; tensors of different sizes then count differently")
        raise Wrong(f"the sum over sent entries of both tensors is {want:.3f}, yours {found:.3f}")


@exercise("Not one value was needed: where the large entries stand is enough.")
def check_label_from_mask(label_from_mask: Callable[[Tensor], int]) -> None:
    """``label_from_mask(mask)`` -> the label, from which entries (m, D) of the head were sent."""
    for trial in range(TRIALS):
        rng = generator(trial)
        p = torch.randn(6, generator=rng).softmax(0)
        y = int(torch.randint(6, (), generator=rng))
        delta = p - torch.eye(6)[y]
        g = torch.outer(delta, torch.rand(40, generator=rng))
        mask = largest(g[None], 0.8)[0]
        found = int(number(label_from_mask(mask.clone()), "the label"))
        if found == y:
            continue
        if found == int(mask.sum(1).argmin()):
            raise Wrong("you took the row with the fewest entries; the label's row is the largest")
        if found >= len(mask):
            raise Wrong("that is no class: sum over the features (dim 1), not over the classes")
        raise Wrong(f"the label is {y}, you found {found}; count the entries sent in each row")
