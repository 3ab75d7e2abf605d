"""Checks for the exercises of "Hiding the input": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...runtime import generator
from ..check import TRIALS, Wrong, close, exercise, tensor


def _matrix(encodings: int, images: int, rng: torch.Generator) -> Tensor:
    """Rows of nonnegative weights that add up to 1, the first ones heavy on the diagonal."""
    m = torch.rand(encodings, images, generator=rng)
    m[:images] += torch.eye(images)
    return m / m.sum(1, keepdim=True)


@exercise("Enough blends are as good as the images.")
def check_unmix(unmix: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``unmix(e, M)`` -> the images (n, P) with the least ‖M x − e‖²."""
    for trial in range(TRIALS):
        rng = generator(trial, 1)
        m, x = _matrix(12, 4, rng), torch.rand(4, 30, generator=rng)
        e = m @ x + 0.01 * torch.randn(12, 30, generator=rng)
        found = tensor(unmix(e, m), (4, 30), "the batch of images")
        if close(found, torch.linalg.pinv(m) @ e, atol=1e-4):
            continue
        if close(found, torch.linalg.inv(m[:4]) @ e[:4], atol=1e-3):
            raise Wrong("you use n blends only; the others would average the errors out")
        if close(found, m.T @ e):
            raise Wrong("the transpose does not undo M; solve the least squares problem")
        raise Wrong("M times your images is not as near to the blends as it can be")


@exercise("The loss needs the soft label, so the gradient carries it.")
def check_mixing_weights(mixing_weights: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``mixing_weights(logits, g_bias)`` -> the soft label (classes,) of one encoding."""
    for trial in range(TRIALS):
        rng = generator(trial, 2)
        logits = torch.randn(10, generator=rng)
        label = torch.zeros(10)
        label[torch.randperm(10, generator=rng)[:3]] = _matrix(3, 3, rng)[0]
        g_bias = logits.softmax(0) - label
        found = tensor(mixing_weights(logits, g_bias), (10,), "the soft label")
        if close(found, label):
            continue
        if close(found, -label):
            raise Wrong("the sign is turned round: the bias gradient is prediction minus label")
        if close(found, -g_bias):
            raise Wrong("the bias gradient still contains the prediction; take it out")
        if close(found, logits - g_bias):
            raise Wrong("the logits are not the prediction yet; a softmax is missing")
        raise Wrong("the gradient of cross-entropy by the outputs is p − q; solve for q")


@exercise("That is the residual of the public decoder.")
def check_sign_misfit(sign_misfit: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``sign_misfit(e, m)`` -> distance of m to the nearer of |e| and −|e|, entry by entry."""
    rng = generator(0, 3)
    e, m = torch.randn(3, 40, generator=rng), torch.randn(3, 40, generator=rng)
    found = tensor(sign_misfit(e, m), (3, 40), "the misfit")
    want = torch.minimum((e.abs() - m).abs(), (e.abs() + m).abs())
    if close(found, want):
        return
    if close(found, (e - m).abs()):
        raise Wrong("you trust the sign of e, which is random; only |e| means something")
    if close(found, (e.abs() - m).abs()):
        raise Wrong("you compare with |e| only; where m is negative, −|e| is nearer")
    if close(found, torch.minimum(e.abs() - m, -e.abs() - m)):
        raise Wrong("you take the smaller number; the smaller in size is meant")
    if close(found.abs(), want):
        raise Wrong("the size is right, but a distance is never negative")
    raise Wrong("for each entry compare m with |e| and with −|e|, and keep the smaller distance")


@exercise("Repeat it from many starts, and keep the end with the least misfit.")
def check_search_step(search_step: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """``search_step(size, M, u)`` -> the next guess (n, P) of the alternating search."""
    for trial in range(TRIALS):
        rng = generator(trial, 4)
        m = _matrix(12, 4, rng)
        truth = 2 * torch.rand(4, 25, generator=rng) - 1
        size = (m @ truth).abs()
        u = 2 * torch.rand(4, 25, generator=rng) - 1
        u[:, 0] = 0  # all blends 0: a tie
        inverse = torch.linalg.pinv(m)
        want = inverse @ torch.where(m @ u >= 0, size, -size)
        found = tensor(search_step(size, m, u), (4, 25), "the guess")
        if close(found, want.clamp(-1, 1), atol=1e-4):
            continue
        if close(found, want, atol=1e-4):
            raise Wrong("the guess leaves the box; clamp it to [-1, 1]")
        if close(found[:, 1:], want.clamp(-1, 1)[:, 1:], atol=1e-4):
            raise Wrong("where M u is 0, torch.sign gives 0 and the equation is lost; take +1")
        if close(found, (inverse @ size).clamp(-1, 1), atol=1e-4):
            raise Wrong("the sizes need the signs of M u before you solve")
        raise Wrong("signs of M u, times the sizes, then least squares, then the box")


@exercise("Every place by itself, up to its sign. Neighbors tell the rest.")
def check_decode_signs(decode_signs: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``decode_signs(size, M)`` -> images (n, P) with |M u| = size, up to one sign for a place."""
    for trial in range(TRIALS):
        rng = generator(trial, 5)
        m, truth = _matrix(20, 4, rng), 2 * torch.rand(4, 40, generator=rng) - 1
        size = (m @ truth).abs()
        u = tensor(decode_signs(size, m), (4, 40), "the guess")
        off = torch.minimum((u - truth).abs().amax(0), (u + truth).abs().amax(0))
        right = int((off < 1e-2).sum())
        if right == 40:
            continue
        if close(u, torch.linalg.pinv(m) @ size, atol=1e-3):
            raise Wrong("you solve with all signs +; take those of M u, and repeat")
        if right > 4:
            raise Wrong(
                f"{right} of 40 places are right, the others stopped too early or in a local "
                "minimum; start again, and keep for each place the end with the least misfit"
            )
        raise Wrong("M times your guess does not have these sizes; repeat the step of the search")
