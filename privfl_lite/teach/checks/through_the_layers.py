"""Checks for the exercises of "Through the layers": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.functional import conv2d, cross_entropy

from ...runtime import generator
from ..check import TRIALS, Wrong, close, exercise, tensor

SLOPES: dict[str, Callable[[Tensor], Tensor]] = {  # of an activation, from its output
    "sigmoid": lambda a: a * (1 - a),
    "tanh": lambda a: 1 - a * a,
    "relu": lambda a: (a > 1e-12).to(a),
}


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


def _chain(trial: int) -> tuple[list[Tensor], list[Tensor], str, Tensor]:
    """Weights and gradients of a chain without biases, its activation, and the input behind it."""
    rng, act = generator(trial), list(SLOPES)[trial % 3]
    sizes = [9, 8, 7, 5, 4] if trial % 2 else [9, 8, 7, 4]
    shapes = list(zip(sizes[1:], sizes, strict=False))
    W = [torch.randn(*s, generator=rng, dtype=torch.float64) / s[1] ** 0.5 for s in shapes]
    x = torch.rand(sizes[0], generator=rng, dtype=torch.float64) + 0.1
    y = torch.tensor(trial % 4)

    def loss(W: list[Tensor]) -> Tensor:
        f = x
        for w in W[:-1]:
            f = getattr(torch, act)(w @ f)
        return cross_entropy(W[-1] @ f, y)

    return W, grad(loss)(W), act, x


def _back(W: list[Tensor], g: list[Tensor], delta: Tensor, slope: Callable) -> Tensor:
    """The input by the recursion, with any function in place of the slope."""
    f = W[-1][0]
    for w, gradient in zip(reversed(W), reversed(g), strict=True):
        f = gradient.T @ delta / delta.square().sum()
        delta = (w.T @ delta) * slope(f)
    return f


def _start(W: list[Tensor], x: Tensor, act: str, trial: int) -> Tensor:
    """∂ℓ/∂z, from the truth."""
    f = x
    for w in W[:-1]:
        f = getattr(torch, act)(w @ f)
    return (W[-1] @ f).softmax(0) - torch.eye(4, dtype=torch.float64)[trial % 4]


@exercise("Three layers deep, and not one bias was needed.")
def check_go_back(go_back: Callable[[list[Tensor], list[Tensor], str], Tensor]) -> None:
    """``go_back(W, g, act)`` -> the input (in,) of a chain without biases, from its gradients."""
    for trial in range(2 * TRIALS):
        W, g, act, x = _chain(trial)
        answer = go_back([w.clone() for w in W], [t.clone() for t in g], act)
        found = tensor(answer, tuple(x.shape), "the input", nan="is an error signal zero?")
        if torch.allclose(found, x, rtol=1e-4, atol=1e-6):
            continue
        start = _start(W, x, act, trial)
        slips = {
            "the slope is missing: δ of the layer below is (Wᵀδ) times the slope of the activation "
            "there": torch.ones_like,
            "multiply by the slope of the activation at its output, not by the output": lambda f: f,
        }
        slips |= {
            f"that is the slope of {name}, but the chain has {act}; look at `act`": SLOPES[name]
            for name in SLOPES
            if name != act
        }
        for words, slope in slips.items():
            if torch.allclose(found, _back(W, g, start, slope), rtol=1e-4, atol=1e-6):
                raise Wrong(words)
        cosine = (found @ x) / (found.norm() * x.norm()).clamp(min=1e-30)
        if cosine.abs() > 1 - 1e-6:
            raise Wrong(
                "the direction is right, the length is not: with ∇W = δ fᵀ, divide ∇Wᵀδ by the "
                "squared length of δ, and find the length of the head's input by two wrong classes"
            )
        raise Wrong(
            f"with {act} and {len(W)} layers this is not the input; check δ at the outputs first "
            "(it sums to zero, and only the label's entry is negative), then one layer at a time"
        )
