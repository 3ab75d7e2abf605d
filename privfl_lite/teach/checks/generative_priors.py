"""Checks for the exercises of the chapter "A prior that dreams": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...runtime import generator
from ..check import TRIALS, Wrong, begun, close, exercise, number, pair, tensor


def _normal(*shape: int, rng: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


@exercise("No search inside the range can do better, whatever it reads from the gradient.")
def check_ceiling(ceiling: Callable[[Tensor, Tensor, Tensor], float]) -> None:
    """``ceiling(mean, A, x)`` -> best PSNR in dB of any image mean + A z, peak 1."""
    for trial in range(TRIALS):
        rng = generator(trial)
        n, d = 20 + trial, 3 + trial
        mean, A, x = (_normal(*s, rng=rng) for s in ((n,), (n, d), (n,)))
        off = x - mean
        rest = off - A @ torch.linalg.lstsq(A, off[:, None]).solution[:, 0]
        found = number(ceiling(mean.clone(), A.clone(), x.clone()), "the ceiling")
        right = 10 * math.log10(n / rest.square().sum().item())
        if close(found, right):
            continue
        if close(found, 10 * math.log10(n / (off - A @ (A.T @ off)).square().sum().item())):
            raise Wrong("Aᵀ(x − mean) gives the nearest z only if the columns are orthonormal")
        plain = x - A @ torch.linalg.lstsq(A, x[:, None]).solution[:, 0]
        if close(found, 10 * math.log10(n / plain.square().sum().item())):
            raise Wrong("the range does not go through 0: subtract the mean before you project")
        if close(found, -10 * math.log10(rest.square().sum().item())):
            raise Wrong("PSNR has the mean squared error in it; divide the squared distance by n")
        if close(found, 10 * math.log10(n / rest.norm().item())):
            raise Wrong("the distance goes into PSNR squared")
        if close(found, rest.norm().item()):
            raise Wrong("that is the distance to the range; turn it into decibels")
        raise Wrong(f"the ceiling is {right:.3f} dB here, not {found:.3f}; what is the nearest z?")


@exercise("About 0 for the truth; far over 3 for an image that cannot be it.")
def check_surprise(surprise: Callable[[Tensor, Tensor, float], float]) -> None:
    """``surprise(s, g_hat, sigma)`` -> (‖s − ĝ‖²/σ² − N) / √(2N)."""
    for trial in range(TRIALS):
        rng, sigma = generator(trial), 0.1 * (trial + 1)
        g = _normal(300 + trial, rng=rng)
        s = g + sigma * _normal(len(g), rng=rng)
        g_hat = g + 0.02 * trial * _normal(len(g), rng=rng)
        gap, count = (s - g_hat).square().sum().item(), len(g)
        right = (gap / sigma**2 - count) / math.sqrt(2 * count)
        found = number(surprise(s.clone(), g_hat.clone(), sigma), "the surprise")
        if close(found, right):
            continue
        if close(found, (gap / sigma - count) / math.sqrt(2 * count)):
            raise Wrong("sigma is a standard deviation: divide the squared gap by its square")
        if close(found, (gap / sigma**2 - count) / (2 * count)):
            raise Wrong("2N is the variance of χ²; divide by its square root")
        if close(found, gap / sigma**2) or close(found, gap / sigma**2 / count):
            raise Wrong("subtract what the truth itself would have on average, N")
        if close(found, (gap / sigma**2 - count) / math.sqrt(count)):
            raise Wrong("a χ² with N degrees of freedom has variance 2N, not N")
        raise Wrong(f"the value is {right:.4f} here, not {found:.4f}")


@exercise("Few unknowns, so little of the noise gets through.")
def check_latent_fit(latent_fit: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """``latent_fit(J, A, s)`` -> the image A ẑ (n,) with the least ‖J A z − s‖."""
    for trial in range(TRIALS):
        rng = generator(trial)
        N, n, d = 30 + trial, 12, 3 + trial % 2
        J, A, x = (_normal(*s, rng=rng) for s in ((N, n), (n, d), (n,)))
        s = J @ x + 0.3 * _normal(N, rng=rng)
        found = tensor(latent_fit(J.clone(), A.clone(), s.clone()), None, "the image")
        z = torch.linalg.lstsq(J @ A, s[:, None]).solution[:, 0]
        if tuple(found.shape) == (d,) and torch.allclose(found, z):
            raise Wrong("that is the latent z; the image is A z")
        if tuple(found.shape) != (n,):
            raise Wrong(f"the image has shape {(n,)}, but yours has shape {tuple(found.shape)}")
        pixels = torch.linalg.lstsq(J, s[:, None]).solution[:, 0]
        if torch.allclose(found, A @ z, rtol=1e-5, atol=1e-7):
            continue
        if torch.allclose(found, pixels):
            raise Wrong("that is the fit over all pixels; search z only, with the map J A")
        if torch.allclose(found, A @ torch.linalg.lstsq(A, pixels[:, None]).solution[:, 0]):
            raise Wrong(
                "you fitted pixels first and projected then; the noise is smaller if you fit z "
                "to the gradient itself"
            )
        raise Wrong("this is not the image of the best z; solve least squares with J A")


@exercise("A generator, an attack, and a dimension that no private image had to tell.")
def check_own_generator(
    fit_generator: Callable[[Tensor, int], tuple[Tensor, Tensor]],
    attack: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    choose: Callable[[Tensor, Tensor, Tensor, Tensor], int],
) -> None:
    """``fit_generator(public, d)`` -> mean (n,), axes (n, d); ``attack(J, s, mean, A)`` -> (n,);
    ``choose(public, held, J, noise)`` -> the dimension with the least error on ``held``."""
    _check_fit_and_attack(fit_generator, attack)
    for trial in range(TRIALS):
        given = _public(generator(trial, 8))
        found = number(choose(*(t.clone() for t in given)), "the dimension")
        images, gradients = _errors(*given)
        best = 1 + int(images.argmin())
        if found == best:
            continue
        public, held, J, noise = given
        wrongs = {
            "counting from 0 is Python's; the first dimension is 1": best - 1,
            "a gradient's misfit never rises with d; compare images with images": 1
            + int(gradients.argmin()),
            "without noise more axes are always better; attack J @ x + e": 1
            + int(_errors(public, held, J, 0 * noise)[0].argmin()),
            "judge by the images kept aside, not by those that the axes were fitted to": 1
            + int(_errors(public, public[: len(held)], J, noise)[0].argmin()),
        }
        otherwise = f"d = {best} has the least error here, not d = {found:g}"
        raise Wrong(next((hint for hint, wrong in wrongs.items() if found == wrong), otherwise))


def _public(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Few images with axes of falling size, as many kept aside, a map, and its noise."""
    n, sizes = 12, 0.6 ** torch.arange(12, dtype=torch.float64)
    basis = torch.linalg.qr(_normal(n, n, rng=rng))[0]
    public, held = (2 + (_normal(14, n, rng=rng) * 3 * sizes) @ basis.T for _ in range(2))
    return public, held, _normal(16, n, rng=rng), 0.6 * _normal(14, 16, rng=rng)


def _errors(public: Tensor, held: Tensor, J: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """For each dimension, mean squared errors of the images and of their gradients."""
    mean, errors = public.mean(0), []
    axes = torch.linalg.svd(public - mean, full_matrices=False)[2].T
    seen = held @ J.T + noise
    for d in range(1, public.shape[1]):
        A = axes[:, :d]
        z = torch.linalg.lstsq(J @ A, (seen - J @ mean).T).solution
        found = mean + (A @ z).T
        errors.append([(found - held).square().mean(), (found @ J.T - seen).square().mean()])
    by_image, by_gradient = torch.tensor(errors).T
    return by_image, by_gradient


def _check_fit_and_attack(
    fit_generator: Callable[[Tensor, int], tuple[Tensor, Tensor]],
    attack: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> None:
    """The first two answers, against principal components and least squares."""
    for trial in range(TRIALS):
        rng, n, d, count = generator(trial, 3), 12, 3, 60
        center, plane = 2 + _normal(n, rng=rng), _normal(n, d, rng=rng)
        images = center + _normal(count, d, rng=rng) @ plane.T + 0.1 * _normal(count, n, rng=rng)
        answer = begun(fit_generator(images.clone(), d))
        if not pair(answer):
            raise Wrong("fit_generator returns two things: the mean, and the axes as columns")
        mean = tensor(answer[0], (n,), "the mean")
        axes = tensor(answer[1], (n, d), "the axes")
        if not close(axes.T @ axes, torch.eye(d, dtype=torch.float64), atol=1e-4):
            raise Wrong("the columns of A are to be orthonormal")
        off = images - mean
        rest = (off - off @ axes @ axes.T).square().sum()
        best = torch.linalg.svdvals(images - images.mean(0))[d:].square().sum()
        if rest > 1.001 * best:
            raw = torch.linalg.svd(images, full_matrices=False)[2][:d].T
            if close(axes @ axes.T, raw @ raw.T, atol=1e-4):
                raise Wrong("center the images before you look for axes")
            raise Wrong("another plane is nearer to the public images; take the first d axes")
        J = _normal(20, n, rng=rng)
        s = J @ images[0] + 0.1 * _normal(20, rng=rng)
        z = torch.linalg.lstsq(J @ axes, (s - J @ mean)[:, None]).solution[:, 0]
        found = tensor(attack(J.clone(), s.clone(), mean.clone(), axes.clone()), (n,), "the image")
        if close(found, mean + axes @ z, rtol=1e-3, atol=1e-4):
            continue
        free = torch.linalg.lstsq(J, s[:, None]).solution[:, 0]
        if close(found, free, rtol=1e-3, atol=1e-4):
            raise Wrong("this searches all pixels; the answer must lie in the plane")
        bare = torch.linalg.lstsq(J @ axes, s[:, None]).solution[:, 0]
        if close(found, mean + axes @ bare, rtol=1e-3, atol=1e-4):
            raise Wrong("the mean has a gradient of its own; take J @ mean off s first")
        raise Wrong("find z with J (mean + A z) nearest to s, and return mean + A z")
