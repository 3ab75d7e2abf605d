"""Checks for the exercises of "Why gradients leak": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.functional import cross_entropy

from ...runtime import generator
from ..check import TRIALS, Wrong, close, exercise, tensor


@exercise("One division, and the input of the layer is yours.")
def check_read_off(read_off: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``read_off(g_weight, g_bias)`` -> the input (in,) of a layer behind one example."""
    for trial in range(TRIALS):
        rng = generator(trial)
        x, delta = torch.rand(12, generator=rng), torch.randn(6, generator=rng)
        delta[[0, 3]] = 0  # units that are off
        delta[1] = 1e-7  # and one that is nearly so: 32-bit rounding spoils its row
        g_weight = torch.outer(delta, x)
        g_weight[1] += 1e-8 * torch.randn(12, generator=rng)
        found = tensor(
            read_off(g_weight.clone(), delta.clone()),
            (12,),
            "the input",
            nan="some bias gradients are zero (units that are off), so choose a row, then divide",
        )
        if close(found, x.double()):
            continue
        scale = (found @ x.double()) / x.double().square().sum()
        if close(found, scale * x.double()):
            raise Wrong(
                f"your answer is the input times {scale:.3g}; divide the row of the weight "
                "gradient by the same entry of the bias gradient"
            )
        raise Wrong(
            "your answer is near the input at best; take one row whose bias gradient is large, "
            "since a tiny one magnifies rounding errors"
        )


def _dusty_batches() -> Iterator[tuple[Tensor, Tensor, int, Tensor]]:
    """(∇b, p̄, B, counts) of batches in which B(p̄ − ∇b) falls just short of a whole number."""
    for trial in count():
        rng = generator(trial)
        B, m = 5 + 3 * (trial % 8), 4 + trial % 5
        y = torch.randint(m, (B,), generator=rng)
        z = torch.randn(B, m, generator=rng, dtype=torch.float32)
        p, right = z.softmax(1).mean(0), torch.bincount(y, minlength=m)
        g = grad(lambda b, z=z, y=y: cross_entropy(z + b, y))(torch.zeros_like(p))
        cut = [(B * (p.to(kind) - g.to(kind))).long() for kind in (torch.float32, torch.float64)]
        if not any(torch.equal(c, right) for c in cut):  # in 32 and in 64 bits
            yield g, p, B, right


@exercise("Exact whenever the mean prediction is known.")
def check_label_counts(label_counts: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """``label_counts(g_bias, p_mean, B)`` -> how often each class is in the batch (classes,)."""
    for g, p, B, right in islice(_dusty_batches(), TRIALS):
        answer = label_counts(g.clone(), p.clone(), B)
        found, truth = tensor(answer, right.shape, "the answer"), right.double()
        if torch.equal(found, truth):
            continue
        if close(found, -truth) or close(found, -truth / B):
            raise Wrong(
                "the sign is turned round: ∇b = p̄ − counts / B, so the counts come with −∇b"
            )
        if close(found * B, truth):
            raise Wrong("these are shares of the batch, not counts; what turns a mean into a sum?")
        if close(found, (-B * g).double().round().clamp(min=0)):
            raise Wrong("the mean prediction p̄ is missing: ∇b = p̄ − counts / B")
        raw = [B * (p.to(kind) - g.to(kind)) for kind in (torch.float32, torch.float64)]
        cut = [f(r).double() for r in raw for f in (torch.trunc, torch.floor, torch.ceil)]
        if close(found, truth) or any(torch.equal(found, c) for c in cut):
            raise Wrong(
                "almost: counts are whole numbers, but B(p̄ − ∇b) carries floating-point dust, "
                "such as 2.9999998; round it (.long() and int() alone would make it 2)"
            )
        raise Wrong("these are not the counts; solve ∇b = p̄ − counts / B for them")


@exercise("No bias, and still the head gives its whole input away.")
def check_head_without_bias(read_head: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``read_head(g_weight, W)`` -> r (D,) behind a softmax head without bias, from one example."""
    for trial in range(TRIALS):
        rng = generator(trial)
        m, D = 4 + trial, 8
        W = torch.randn(m, D, generator=rng, dtype=torch.float64)
        r = torch.randn(D, generator=rng, dtype=torch.float64)
        y = torch.tensor(trial % m)
        g_weight = grad(lambda W, r=r, y=y: cross_entropy(W @ r, y))(W)
        found = tensor(
            read_head(g_weight.clone(), W.clone()),
            (D,),
            "the representation",
            nan="the label's error is negative and has no logarithm; use two wrong classes",
        )
        if torch.allclose(found, r, rtol=1e-4, atol=1e-6):
            continue
        cosine = (found @ r) / (found.norm() * r.norm()).clamp(min=1e-30)
        if cosine > 1 - 1e-6:
            raise Wrong(
                f"direction and sign are right, but the length is {found.norm():.3g} instead of "
                f"{r.norm():.3g}; compare the errors of two wrong classes"
            )
        if cosine < -1 + 1e-6:
            raise Wrong("the sign is turned round: exactly one entry of p − e_y is negative")
        raise Wrong("the direction is not that of r; every row of the gradient is a multiple of r")


def _mixed(trial: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """∇W, ∇b of a layer, the images that two rows or more show, and those in no row alone.

    Rows: three and two units of their own for images 0 and 1, mixtures that lie in [0, 1] (image 2
    is in these only), mixtures that do not, and units that are off.
    """
    rng = generator(trial)
    x = torch.rand(3 + trial % 2, 12, generator=rng)
    B = len(x)
    own = torch.zeros(5, B)
    own[[0, 1, 2, 3, 4], [0, 0, 0, 1, 1]] = torch.randn(5, generator=rng)
    inside = torch.rand(4, B, generator=rng) + 0.1  # all of one sign: a mean of images
    outside = torch.randn(3, B, generator=rng) * torch.tensor([1.0, -1.3, 1.1, -0.7])[:B]
    signals = torch.cat([own, inside, outside, torch.zeros(2, B)]) / B
    signals = signals[torch.randperm(len(signals), generator=rng)]
    dust = 1 + 1e-6 * torch.randn(len(signals), 12, generator=rng)  # 32-bit rounding
    return signals @ x * dust, signals.sum(1), x[:2], x[2:]


@exercise("Only what repeats is a picture; whatever does not is a mixture, or cannot be told.")
def check_read_batch(read_batch: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``read_batch(g_weight, g_bias)`` -> (k, in): each image that two or more rows show, once."""
    for trial in range(TRIALS):
        g_weight, g_bias, right, _ = _mixed(trial)
        found = tensor(
            read_batch(g_weight.clone(), g_bias.clone()),
            None,
            "the images",
            nan="some bias gradients are zero (units that are off); drop these rows first",
        )
        if found.dim() != 2 or found.shape[1] != right.shape[1]:
            raise Wrong(f"return a tensor (k, {right.shape[1]}): one row for each image found")
        near = torch.cdist(found, right.double(), p=torch.inf) < 1e-3  # (found, right)
        if not near.any(1).all():
            raise Wrong(
                "one of your images is a mixture: it may lie in [0, 1], but no other row agrees "
                "with it; keep only rows that repeat"
            )
        if not near.any(0).all():
            raise Wrong(
                "an image is missing that several rows show; rows agree only up to rounding, so "
                "compare them with a tolerance such as 0.0001"
            )
        if len(found) > len(right):
            raise Wrong("an image stands there more than once; skip rows that you already have")
