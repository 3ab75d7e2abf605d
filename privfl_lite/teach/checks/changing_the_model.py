"""Checks for the exercises of the chapter "Changing the model": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

from ...runtime import generator
from ..check import TRIALS, Wrong, begun, close, exercise, pair, tensor


def _normal(*shape: int, rng: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


@exercise("This is what the penalty adds to the encoder's error signal, for every draw.")
def check_kl_gradient(kl_gradient: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
    """``kl_gradient(mean, s)`` -> ∂KL/∂mean and ∂KL/∂s (k,), where std = softplus(s − 5)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        mean, s = _normal(6, rng=rng), 5 + 2 * _normal(6, rng=rng)
        a, b = mean.clone().requires_grad_(), s.clone().requires_grad_()
        kl_divergence(Normal(a, softplus(b - 5)), Normal(0.0, 1.0)).sum().backward()
        by_mean, by_s = cast(Tensor, a.grad), cast(Tensor, b.grad)
        answer = begun(kl_gradient(mean.clone(), s.clone()))
        if not pair(answer):
            raise Wrong("return two tensors: the derivative by the mean, then that by s")
        for_mean = tensor(answer[0], (6,), "the derivative by the mean")
        for_s = tensor(answer[1], (6,), "the derivative by s")
        if not close(for_mean, by_mean):
            raise Wrong("the derivative by the mean is off; only μ²/2 in the KL holds the mean")
        if close(for_s, by_s):
            continue
        std, slope = softplus(s - 5), torch.sigmoid(s - 5)
        if close(for_s, std - 1 / std):
            raise Wrong(
                "that is the derivative by std; std = softplus(s − 5) has a slope of its own"
            )
        if close(for_s, std * slope):
            raise Wrong("the part from −log std is missing, which pushes std up while it is small")
        if close(for_s, -by_s):
            raise Wrong("the sign of the derivative by s is turned round")
        if close(for_s, (std - 1 / std) * torch.sigmoid(s)):
            raise Wrong("the slope of softplus(s − 5) is the logistic function at s − 5, not at s")
        raise Wrong("the derivative by s is off; chain ∂KL/∂std = std − 1/std with ∂std/∂s")


@exercise("The client's secret noise, number by number, from one upload.")
def check_read_noise(read_noise: Callable[..., Tensor]) -> None:
    """``read_noise(gW_e, gb_e, gW_d, gb_d, W_e, b_e)`` -> the client's draw ε (k,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        R, k = 9, 4
        W_e, b_e, r = _normal(2 * k, R, rng=rng), _normal(2 * k, rng=rng), _normal(R, rng=rng)
        noise, error_e, error_d = (_normal(n, rng=rng) for n in (k, 2 * k, R))
        error_e[[0, k]] = error_d[0] = 0.0
        mean, s = (W_e @ r + b_e).chunk(2)
        std = softplus(s - 5)
        z = mean + std * noise
        given = torch.outer(error_e, r), error_e, torch.outer(error_d, z), error_d, W_e, b_e
        found = tensor(read_noise(*(t.clone() for t in given)), (k,), "the noise")
        if close(found, noise):
            continue
        if close(found, z):
            raise Wrong("that is z, the draw itself; take off its mean and divide by its std")
        if close(found, std * noise):
            raise Wrong("that is z − μ; the noise is this divided by the standard deviation")
        if close(found, (z - mean) / softplus(s)):
            raise Wrong("the standard deviation is softplus(s − 5), not softplus(s)")
        if close(found, (z - mean) / s):
            raise Wrong("s is not the standard deviation yet; that is softplus(s − 5)")
        raise Wrong("this is not ε = (z − μ) / std; read r off the encoder and z off the decoder")


@exercise("No bias in the encoder, and still its whole input is known.")
def check_read_without_bias(
    read_without_bias: Callable[[Tensor, Tensor, Tensor, float], Tensor],
    read_alone: Callable[[Tensor, Tensor, Tensor, float], dict[int, Tensor]],
) -> None:
    """``read_without_bias(gW, d, W, beta)`` -> r (R,), from gW = (d + β W r) rᵀ (k, R);
    ``read_alone`` -> number of an upload -> r, for the uploads (U, k, R) of a single image."""
    _check_lengths(read_without_bias)
    for trial, beta in enumerate((0.5, 0.0)):
        given, alone = _uploads(generator(trial, 4), beta)
        gradients, signals, W = (t.clone() for t in given)
        answer = begun(read_alone(gradients, signals, W, beta))
        if not isinstance(answer, Mapping):
            raise Wrong("read_alone returns a dictionary, from the number of an upload to its r")
        if set(answer) == set(range(len(given[0]))):
            raise Wrong("some uploads come from two images: keep an r that explains its gradient")
        for i in answer:
            if i not in alone:
                raise Wrong(
                    f"upload {i} comes from two images, and a small gradient leaves a small "
                    "misfit: compare the misfit with the size of the upload"
                )
        if missing := [i for i in alone if i not in answer]:
            raise Wrong(f"upload {missing[0]} comes from one image, and you left it out")
        for i, r in alone.items():
            if not close(tensor(answer[i], (8,), "the input"), r):
                raise Wrong(f"what you return for upload {i} is not its input")


def _uploads(
    rng: torch.Generator, beta: float
) -> tuple[tuple[Tensor, Tensor, Tensor], dict[int, Tensor]]:
    """Six uploads, of one image or of two, half of them quiet; and what is to be read."""
    W, gradients, signals, alone = _normal(5, 8, rng=rng), [], [], {}
    for i, batch in enumerate((1, 2, 1, 2, 1, 2)):
        # the penalty β W r does not shrink with d, but it does with r²
        size = 1e-5 if i > 2 else 1.0
        r, d = size * _normal(batch, 8, rng=rng), size * _normal(batch, 5, rng=rng)
        gradients.append((d + beta * r @ W.T).T @ r)
        signals.append(d.sum(0))
        if batch == 1:
            alone[i] = r[0]
    return (torch.stack(gradients), torch.stack(signals), W), alone


def _check_lengths(read_without_bias: Callable[[Tensor, Tensor, Tensor, float], Tensor]) -> None:
    """The first answer, with and without the penalty's share."""
    for trial in range(TRIALS):
        rng = generator(trial)
        k, R, beta = 5, 8, (0.0, 1e-3, 0.1, 0.5, 2.0)[trial]
        W, r, d = _normal(k, R, rng=rng), _normal(R, rng=rng), _normal(k, rng=rng)
        g = torch.outer(d + beta * W @ r, r)
        answer = read_without_bias(g.clone(), d.clone(), W.clone(), beta)
        found = tensor(answer, (R,), "the input")
        if close(found, r):
            continue
        if beta and close(found, g.T @ d / d.square().sum()):
            raise Wrong("right for β = 0 only: the error signal is d + β W r, not d")
        cosine = float(found @ r / (found.norm() * r.norm()).clamp(min=1e-30))
        if cosine < -1 + 1e-6:
            raise Wrong("the direction is right but the sign is turned round; κ may be negative")
        if cosine > 1 - 1e-6:
            raise Wrong(
                f"the direction is right, but the length is {float(found.norm()):.3g} instead of "
                f"{float(r.norm()):.3g}; solve gW v = κ d + β κ² W v for κ"
            )
        raise Wrong("the direction is not that of r; every row of gW is a multiple of r")
