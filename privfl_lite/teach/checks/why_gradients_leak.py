"""Checks for the exercises of chapter 2, "Why gradients leak": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.functional import conv2d, cross_entropy

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


@exercise("That is Eq. 14 as it should stand, sum included.")
def check_conv_gradient(conv_gradient: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """``conv_gradient(x, delta, k)`` -> ∂ℓ/∂W (K, C, k, k) of a convolution without padding."""
    for trial in range(TRIALS):
        rng = generator(trial)
        B, C, K, k, side = 1 + trial % 3, 1 + trial % 2, 2, 3, 6
        x = torch.randn(B, C, side, side, generator=rng)
        delta = torch.randn(B, K, side - k + 1, side - k + 1, generator=rng)
        W = torch.zeros(K, C, k, k)
        right = grad(lambda W, x=x, delta=delta: (conv2d(x, W) * delta).sum())(W).double()
        found = tensor(conv_gradient(x.clone(), delta.clone(), k), (K, C, k, k), "the gradient")
        if close(found, right):
            continue
        for turned in ((2, 3), (2,), (3,)):
            if close(found, right.flip(turned)):
                raise Wrong(
                    "the kernel is turned round: entry (h, w) goes with pixel (i + h, j + w), "
                    "not (i − h, j − w)"
                )
        positions = delta[0, 0].numel()
        if B > 1 and (close(found * B, right) or close(found * B * positions, right)):
            raise Wrong(
                "take the sum over the batch, not the mean: delta has the 1/B in it already"
            )
        if close(found * positions, right):
            raise Wrong("take the sum over the positions (i, j), not the mean")
        if close(found.transpose(2, 3), right):
            raise Wrong("rows and columns of the kernel are exchanged")
        raise Wrong(
            "some terms are missing: sum δ[n, d, i, j] · x[n, c, i + h, j + w] over every position "
            "(i, j) and every example n"
        )


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
