"""Checks for the exercises of "A lock on the gradient: FedKL": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ...runtime import generator
from ..check import TRIALS, Wrong, begun, close, exercise, hint, pair, tensor


@exercise("The next layer gives s away, and s tells what the key did.")
def check_read_secret(read_secret: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
    """``read_secret(s)`` -> (|γ|, β), each (C,), from s (C, H, W) of one image in train mode."""
    for trial in range(TRIALS):
        rng = generator(trial)
        u = torch.randn(4, 3, 5, generator=rng, dtype=torch.float64)
        u = u - u.mean((1, 2), keepdim=True)
        u = u / u.square().mean((1, 2), keepdim=True).sqrt()
        gamma, beta = torch.randn(2, 4, generator=rng, dtype=torch.float64)
        s = gamma[:, None, None] * u + beta[:, None, None]
        answer = begun(read_secret(s.clone()))
        if not pair(answer):
            raise Wrong("return two tensors, |γ| and β")
        scale, shift = (tensor(a, (4,), what) for a, what in zip(answer, ("|γ|", "β"), strict=True))
        if not close(shift, beta):
            if close(scale, beta):
                raise Wrong("the order is |γ|, then β")
            raise Wrong("û has mean 0 in every channel, so β is the mean of s over the positions")
        if not close(scale, gamma.abs()):
            wrongs = {
                "divide by the number of positions, not by one less": s.flatten(1).std(1),
                "this is the variance; take its root": gamma.square(),
                "the sign of γ is not in s alone; give |γ|": gamma,
            }
            raise hint(scale, wrongs, "û has variance 1, so |γ| is the standard deviation of s")


@exercise("One division a channel; no key is needed.")
def check_read_scale(read_scale: Callable[[Tensor, Tensor, Tensor, float], Tensor]) -> None:
    """``read_scale(g_bias, delta, var, eps)`` -> γ (C,) in eval mode."""
    for trial in range(TRIALS):
        rng = generator(trial)
        delta = torch.randn(4, 3, 5, generator=rng, dtype=torch.float64)
        gamma, var = torch.randn(2, 4, generator=rng, dtype=torch.float64)
        var, eps = var.square() + 0.3, 0.1
        total = delta.sum((1, 2))
        g_bias = gamma / (var + eps).sqrt() * total
        found = tensor(read_scale(g_bias.clone(), delta.clone(), var.clone(), eps), (4,), "γ")
        if not close(found, gamma):
            wrongs = {
                "the running variance is missing: u was divided by √(var + eps)": g_bias / total,
                "eps is missing under the root": var.sqrt() * g_bias / total,
                "take the root of var + eps": (var + eps) * g_bias / total,
                "multiply by √(var + eps): γ stands over it in ∂ℓ/∂u": g_bias
                / total
                / (var + eps).sqrt(),
                "the bias gradient is a sum over positions, not a mean": 15 * gamma,
                "it is the other way round: ∇b over Σ δ": (var + eps).sqrt() * total / g_bias,
            }
            raise hint(found, wrongs, "∇b is γ / √(var + eps) times the sum of δ over positions")


@exercise("The lock's gradient is the key times a vector.")
def check_key_of(key_of: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``key_of(g_weight, g_bias)`` -> the key (S,) from gradients (C, S) and (C,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        key = torch.rand(7, generator=rng, dtype=torch.float64)
        g = torch.randn(6, generator=rng, dtype=torch.float64)
        g[0], g[1], g[2] = 0.0, 1e-9, g[2].sign() * (1 + g[2].abs())
        weight = torch.outer(g, key)
        weight[1] += 1e-8 * torch.randn(7, generator=rng, dtype=torch.float64)
        nan = "a dead channel has 0 / 0; use the channels together"
        found = tensor(key_of(weight.clone(), g.clone()), (7,), "the key", nan=nan)
        if not torch.allclose(found, key, rtol=1e-4, atol=1e-6):
            live = g != 0
            wrongs = {
                "divide by ‖g_bias‖², not by its root": weight.T @ g / g.norm(),
                "divide by ‖g_bias‖²": weight.T @ g,
                "one row is spoiled by rounding; weigh rows by their bias gradient": (
                    weight[live] / g[live, None]
                ).mean(0),
                "this row is spoiled by rounding; take a row with a large bias gradient": weight[1]
                / g[1],
            }
            raise hint(found, wrongs, "g_weight is the outer product of g_bias and the key")


@exercise("A digit and its negative are one image now.")
def check_turn(turn: Callable[[Tensor], Tensor]) -> None:
    """``turn(images)`` -> the images (B, C, H, W), each over its pixel of largest magnitude."""
    for trial in range(TRIALS):
        x = torch.rand(3, 2, 4, 4, generator=generator(trial), dtype=torch.float64)
        scale = torch.tensor([0.3, -2.0, -0.7]).double()[:, None, None, None]
        images, flat = scale * x, (scale * x).flatten(1)
        right = x / x.amax((1, 2, 3), keepdim=True)
        found = tensor(turn(images.clone()), (3, 2, 4, 4), "the images")
        if not close(found, right):
            top = flat.abs().amax(1)[:, None, None, None]
            wrongs = {
                "keep the sign of that pixel: a negative must be turned over": images / top,
                "the pixel of largest magnitude may be negative; max misses it": images
                / flat.amax(1)[:, None, None, None],
                "each image has its own brightest pixel": images / flat[0].max(),
                "divide by that pixel; the absolute value of an image is not needed": right.abs()
                * images.sign(),
            }
            raise hint(found, wrongs, "divide by the pixel whose magnitude is largest")


OpenLock = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Given = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@exercise("The lock is open: no key, no search, one singular vector.")
def check_open_lock(open_lock: OpenLock) -> None:
    """``open_lock(patches, kernels, s, delta, g)`` -> the image (n,), its brightest pixel 1."""
    for trial in range(TRIALS):
        x, given = _locked_upload(trial)
        found = tensor(open_lock(*(t.clone() for t in given)), (len(x),), "the image")
        if not torch.allclose(found, x, atol=1e-5):
            _, vectors = _solved(*given)
            unprojected, _ = _solved(*given, project=False)
            wrongs = {
                "set the pixel of largest magnitude to 1, sign included": vectors[-1, : len(x)],
                "this is the negative; divide by the signed pixel": -x,
                "∂ℓ/∂u is P δ over a, not δ over a: take off the mean of δ and its part along û": (
                    unprojected
                ),
                "this is the first singular vector; the solution has singular value 0": _turned(
                    vectors[0, : len(x)]
                ),
            }
            raise hint(found, wrongs, "the unknowns are x, a and d; both lines of the theorem hold")


def _locked_upload(seed: int) -> tuple[Tensor, Given]:
    """An image (36,) with brightest pixel 1, and what the wire tells of it, by autograd."""
    rng = generator(seed)
    x = torch.rand(1, 1, 6, 6, generator=rng, dtype=torch.float64)
    x = x / x.max()
    kernels = torch.randn(4, 1, 3, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    gamma, beta = torch.randn(2, 4, 1, generator=rng, dtype=torch.float64)
    gamma = gamma + gamma.sign()  # not 0
    u = F.conv2d(x, kernels, padding=1).flatten(2)[0]  # (4, 36)
    u_hat = (u - u.mean(1, keepdim=True)) / u.std(1, keepdim=True, correction=0)
    s = gamma * u_hat + beta
    delta = torch.randn(s.shape, generator=rng, dtype=torch.float64)
    (g,) = torch.autograd.grad((s * delta).sum(), kernels)
    basis = torch.eye(36, dtype=torch.float64).view(36, 1, 6, 6)
    patches = F.unfold(basis, 3, padding=1).permute(2, 1, 0)  # (36 positions, 9, 36 pixels)
    seen = (patches, kernels.detach().flatten(1), s.detach(), delta, g.flatten(1))
    return x.flatten(), seen


def _solved(
    patches: Tensor, kernels: Tensor, s: Tensor, delta: Tensor, g: Tensor, project: bool = True
) -> tuple[Tensor, Tensor]:
    """The image as it should be (or without P), and the right singular vectors."""
    u_hat = (s - s.mean(1, keepdim=True)) / s.std(1, keepdim=True, correction=0)
    error = delta
    if project:
        error = delta - delta.mean(1, keepdim=True)
        error = error - u_hat * (u_hat * delta).mean(1, keepdim=True)
    channels, (positions, size, pixels) = torch.eye(len(s)).to(s), patches.shape
    lines = torch.einsum("cq,pqn->cpn", kernels, patches).reshape(-1, pixels)
    own = channels.repeat_interleave(positions, 0)
    first = torch.cat([lines, -own * s.reshape(-1, 1), -own], 1)
    lines = torch.einsum("cp,pqn->cqn", error, patches).reshape(-1, pixels)
    own = channels.repeat_interleave(size, 0)
    second = torch.cat([lines, -own * g.reshape(-1, 1), 0 * own], 1)
    vectors = torch.linalg.svd(torch.cat([first, second]))[2]
    return _turned(vectors[-1, :pixels]), vectors


def _turned(image: Tensor) -> Tensor:
    return image / image[image.abs().argmax()]
