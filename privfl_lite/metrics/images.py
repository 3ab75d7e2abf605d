"""Scores of images, one value per image; units and the papers' other names are in ``metrics``."""

from __future__ import annotations

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arrays import Array, Found
from ..checking import checked
from ..runtime import PrivflError
from ..values import Positive
from . import perceptual
from .pairs import as_image, pair
from .perceptual import Backbone

Scores = Annotated[Tensor, Array("scores (B,)", (1,), "any", finite=False)]


@checked
def mse(x_hat: Found, x: Found) -> Tensor:
    """Mean squared error per image, in squared pixel units: 0 (equal) to 1 (black for white)."""
    x_hat, x = pair(x_hat, x)
    return (x_hat - x).square().mean((1, 2, 3))


@checked
def l2(x_hat: Found, x: Found) -> Tensor:
    """‖x_hat − x‖₂ per image: 0 to sqrt(C H W). ModelCloak prints it as "MSE" (Table IV)."""
    x_hat, x = pair(x_hat, x)
    return (x_hat - x).flatten(1).norm(dim=1)


@checked
def affine_fit(x_hat: Found, x: Found) -> Tensor:
    """α x_hat + κ per image, with the contrast α ≥ 0 and brightness κ that bring it nearest to x.

    For attacks on networks with batch norm, whose gradient may not show α and κ (chapter: FedKL).
    Not after a clamp: ``psnr(affine_fit(x_hat, x), x)``, for an x_hat of any range. All channels
    have one α and one κ. It uses the truth, so it favors the attacker.
    """
    x_hat, x = pair(x_hat, x)
    a, b = (t.double().flatten(1) for t in (x_hat.nan_to_num(0.5, 1.0, 0.0), x))
    a0, b0 = a.mean(1, keepdim=True), b.mean(1, keepdim=True)
    spread = (a - a0).square().sum(1, keepdim=True).clamp(min=1e-30)
    alpha = (((a - a0) * (b - b0)).sum(1, keepdim=True) / spread).clamp(min=0)
    return (b0 + alpha * (a - a0)).view_as(x).to(x)


@checked
def psnr(x_hat: Found, x: Found, peak: Positive = 1.0) -> Tensor:
    """10 log10(peak² / MSE) per image, in dB: 0 (black for white) to inf (equal) in [0, peak]."""
    return 10 * torch.log10(peak**2 / mse(x_hat, x))


@checked
def fedkl_mse(x_hat: Found, x: Found) -> Tensor:
    """FedKL's "MSE": the root of the mean squared error on the scale 0-255, so 0 to 255."""
    return 255 * mse(x_hat, x).sqrt()


@checked
def fedkl_psnr(x_hat: Found, x: Found) -> Tensor:
    """FedKL's "PSNR", 10 log10(255² / RMSE): above ``psnr`` by 10 log10(RMSE), up to 24 dB."""
    return 10 * torch.log10(255**2 / fedkl_mse(x_hat, x))


@checked
def ssim(x_hat: Found, x: Found) -> Tensor:
    """Structural similarity per image (Wang et al. 2004, Eq. 13), -1 to 1; 1 for equal images.

    Gaussian window of 11 x 11 pixels, sigma 1.5, K1 = 0.01, K2 = 0.03, data range 1; windows across
    the border are left out; mean over windows and channels. Equal to scikit-image's with
    ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1.0``.
    """
    x_hat, x = pair(x_hat, x)
    if min(x.shape[2:]) < 11:
        raise PrivflError(f"SSIM needs images of at least 11 x 11 pixels, not {tuple(x.shape[2:])}")
    a, b = x_hat.double().flatten(0, 1).unsqueeze(1), x.double().flatten(0, 1).unsqueeze(1)
    window = torch.softmax(-torch.arange(-5.0, 6.0).double().square() / (2 * 1.5**2), 0).to(a)

    def blur(images: Tensor) -> Tensor:  # (B C, 1, H, W) -> (B C, 1, H - 10, W - 10)
        return F.conv2d(F.conv2d(images, window.view(1, 1, 11, 1)), window.view(1, 1, 1, 11))

    mean_a, mean_b = blur(a), blur(b)
    squares, product = mean_a**2 + mean_b**2, mean_a * mean_b
    var, cov = blur(a * a + b * b) - squares, blur(a * b) - product  # var: of both images together
    c1, c2 = 0.01**2, 0.03**2
    score = (2 * product + c1) * (2 * cov + c2) / ((squares + c1) * (var + c2))
    return score.mean((1, 2, 3)).view(x.shape[:2]).mean(1).to(x)


@checked
def assign(x_hat: Found, x: Found) -> Tensor:
    """The order (B,) in which reconstructions fit best: ``x_hat[order[i]]`` belongs to ``x[i]``.

    Of all permutations the one with the smallest summed MSE (Hungarian method), after ``as_image``:
    the gradient of a batch fixes its images, but not their order.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    x_hat, x = pair(x_hat, x)
    a, b = as_image(x_hat).double().flatten(1), x.double().flatten(1)
    cost = torch.cdist(b, a, compute_mode="donot_use_mm_for_euclid_dist").square()  # [true, found]
    return torch.as_tensor(linear_sum_assignment(cost.cpu().numpy())[1], device=x.device)


@checked
def compare(x_hat: Found, x: Found, lpips: Backbone | None = None, match: bool = False) -> dict:
    """Scores (B,) by name: mse, psnr, ssim, and lpips with the net that is named.

    Reconstructions pass ``as_image`` first: clamped to [0, 1] (DCS² does, ModelCloak's code does
    not), NaN scored as gray. ``match`` puts them in ``assign``'s order, which favors the attacker.
    """
    x_hat, x = pair(x_hat, x)
    if not (x.min() >= -1e-6 and x.max() <= 1 + 1e-6):
        raise PrivflError(f"true images must lie in [0, 1], not [{x.min():.3g}, {x.max():.3g}]")
    x_hat = as_image(x_hat)
    if match:
        x_hat = x_hat[assign(x_hat, x)]
    scores = {"mse": mse(x_hat, x), "psnr": psnr(x_hat, x), "ssim": ssim(x_hat, x)}
    return scores if lpips is None else {**scores, "lpips": perceptual.lpips(x_hat, x, net=lpips)}


@checked
def summary(scores: dict[str, Scores]) -> dict[str, list | dict[str, float]]:
    """Plain floats: {"per_image": [{"mse": …}, …], "mean": {"mse": …}}; a PSNR may be inf."""
    if len({len(values) for values in scores.values()}) != 1:
        raise PrivflError("scores must be one or more rows of numbers, all equally long")
    columns = {name: values.tolist() for name, values in scores.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"per_image": rows, "mean": {k: math.fsum(v) / len(v) for k, v in columns.items()}}
