"""How much of the private image an attacker has: scores, their units, and their spread.

Images are float tensors (B, C, H, W) in [0, 1]; a score of images is a float tensor (B,), one value
an image (chapter: measuring leakage). Papers use the same names for other units, so their numbers
compare with ours only after a conversion:

| paper | name there | what it is | here |
|---|---|---|---|
| ModelCloak | MSE | L2 norm of the difference; success is <= 1.4 | ``l2`` |
| FedKL | MSE, PSNR | RMSE on 0-255; 10 log10(255^2 / RMSE) | ``fedkl_mse``, ``fedkl_psnr`` |
| Inverting Gradients, Soteria | MSE, PSNR | of images normalized by mean and std | 1 to 12 dB off |
| DCS² | PSNR, SSIM | after a clamp to [0, 1] | ``compare`` |
| LODA | LPIPS-VGG | of normalized images, not of [-1, 1] | no equivalent |
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from statistics import NormalDist

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from . import assets
from .runtime import PrivflError, choose, generator, needs, torchvision

Values = Tensor | np.ndarray | Sequence[float]


def _pair(x_hat: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    if not all(torch.is_tensor(images) and images.is_floating_point() for images in (x_hat, x)):
        raise PrivflError("images must be float tensors (B, C, H, W) with values in [0, 1]")
    if x_hat.shape != x.shape or x.dim() != 4 or not x.numel():
        shapes = f"{tuple(x_hat.shape)} and {tuple(x.shape)}"
        raise PrivflError(f"the images must have one shape (B, C, H, W), not {shapes}")
    return x_hat.detach().to(x), x.detach()


def as_image(x_hat: Tensor) -> Tensor:
    """What an attacker hands in: clamped to [0, 1], with gray 0.5 for NaN (no result there)."""
    return x_hat.nan_to_num(nan=0.5, posinf=1.0, neginf=0.0).clamp(0, 1)


def mse(x_hat: Tensor, x: Tensor) -> Tensor:
    """Mean squared error per image, in squared pixel units: 0 (equal) to 1 (black for white)."""
    x_hat, x = _pair(x_hat, x)
    return (x_hat - x).square().mean((1, 2, 3))


def l2(x_hat: Tensor, x: Tensor) -> Tensor:
    """‖x_hat − x‖₂ per image: 0 to sqrt(C H W). ModelCloak prints it as "MSE" (Table IV)."""
    x_hat, x = _pair(x_hat, x)
    return (x_hat - x).flatten(1).norm(dim=1)


def affine_fit(x_hat: Tensor, x: Tensor) -> Tensor:
    """α x_hat + κ per image, with the contrast α ≥ 0 and brightness κ that bring it nearest to x.

    For attacks on networks with batch norm, whose gradient may not show α and κ (chapter: FedKL).
    Not after a clamp: ``psnr(affine_fit(x_hat, x), x)``, for an x_hat of any range. All channels
    have one α and one κ. It uses the truth, so it favors the attacker.
    """
    x_hat, x = _pair(x_hat, x)
    a, b = (t.double().flatten(1) for t in (x_hat.nan_to_num(0.5, 1.0, 0.0), x))
    a0, b0 = a.mean(1, keepdim=True), b.mean(1, keepdim=True)
    spread = (a - a0).square().sum(1, keepdim=True).clamp(min=1e-30)
    alpha = (((a - a0) * (b - b0)).sum(1, keepdim=True) / spread).clamp(min=0)
    return (b0 + alpha * (a - a0)).view_as(x).to(x)


def psnr(x_hat: Tensor, x: Tensor, peak: float = 1.0) -> Tensor:
    """10 log10(peak² / MSE) per image, in dB: 0 (black for white) to inf (equal) in [0, peak]."""
    return 10 * torch.log10(peak**2 / mse(x_hat, x))


def fedkl_mse(x_hat: Tensor, x: Tensor) -> Tensor:
    """FedKL's "MSE": the root of the mean squared error on the scale 0-255, so 0 to 255."""
    return 255 * mse(x_hat, x).sqrt()


def fedkl_psnr(x_hat: Tensor, x: Tensor) -> Tensor:
    """FedKL's "PSNR", 10 log10(255² / RMSE): above ``psnr`` by 10 log10(RMSE), up to 24 dB."""
    return 10 * torch.log10(255**2 / fedkl_mse(x_hat, x))


def ssim(x_hat: Tensor, x: Tensor) -> Tensor:
    """Structural similarity per image (Wang et al. 2004, Eq. 13), -1 to 1; 1 for equal images.

    Gaussian window of 11 x 11 pixels, sigma 1.5, K1 = 0.01, K2 = 0.03, data range 1; windows across
    the border are left out; mean over windows and channels. Equal to scikit-image's with
    ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1.0``.
    """
    x_hat, x = _pair(x_hat, x)
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


def _backbone(net: str) -> list[Tensor]:
    """Weight and bias of each convolution in order, as torchvision trained them on ImageNet.

    A file in torch's hub folder counts if its SHA-256 begins as its name says: alexnet-owt-7be5…
    """
    models = torchvision().models
    weights = models.AlexNet_Weights if net == "alex" else models.VGG16_Weights
    path = Path(torch.hub.get_dir(), "checkpoints", Path(weights.IMAGENET1K_V1.url).name)
    if path.is_file() and assets.sha256(path).startswith(path.stem.rpartition("-")[2]):
        state = torch.load(path, map_location="cpu", weights_only=True)
        return [value for key, value in state.items() if key.startswith("features.")]
    state = load_file(assets.fetch("lpips") / f"{path.stem.split('-')[0]}.safetensors")
    return [state[f"conv{i}.{part}"] for i in range(len(state) // 2) for part in ("weight", "bias")]


@lru_cache
def _lpips_net(net: str) -> torch.nn.Module:
    weights = _backbone(net)  # imports torchvision in our way, before lpips does in its own
    with needs("book"):
        from lpips import LPIPS

    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):  # it draws, then we fill
        warnings.simplefilter("ignore")  # lpips builds its backbone with a deprecated argument
        model = LPIPS(net=net, pnet_rand=True, verbose=False)
    for parameter, stored in zip(model.net.parameters(), weights, strict=True):
        parameter.data.copy_(stored)
    return model


@torch.no_grad()
def lpips(x_hat: Tensor, x: Tensor, net: str = "alex") -> Tensor:
    """Learned perceptual distance per image (Zhang et al. 2018, v0.1): 0 when equal, seldom over 1.

    ``net``: "alex" or "vgg", FedKL's LPIPS-A and LPIPS-V. Images go from [0, 1] to [-1, 1], as the
    ``lpips`` package wants; gray ones are repeated to three channels. A shorter side under 32
    pixels is enlarged to 32 (bilinear, for both nets: AlexNet cannot take 28 x 28). The backbone's
    weights come from torch's hub cache, else from the asset ``lpips``.
    """
    x_hat, x = _pair(x_hat, x)
    choose("LPIPS net", net, ("alex", "vgg"))
    if x.shape[1] not in (1, 3):
        raise PrivflError(f"LPIPS needs images with 1 or 3 channels, not {x.shape[1]}")
    model = _lpips_net(net).to(x.device)
    scale = max(1, 32 / min(x.shape[2:]))  # under 31 pixels AlexNet's pooling leaves nothing
    size = [round(side * scale) for side in x.shape[2:]]

    def prepare(images: Tensor) -> Tensor:
        images = 2 * images.float().expand(-1, 3, -1, -1) - 1
        return F.interpolate(images, size, mode="bilinear") if scale > 1 else images

    pairs = zip(x_hat.split(16), x.split(16), strict=True)  # VGG's features are large
    return torch.cat([model(prepare(a), prepare(b)).flatten() for a, b in pairs]).to(x)


def assign(x_hat: Tensor, x: Tensor) -> Tensor:
    """The order (B,) in which reconstructions fit best: ``x_hat[order[i]]`` belongs to ``x[i]``.

    Of all permutations the one with the smallest summed MSE (Hungarian method), after ``as_image``:
    the gradient of a batch fixes its images, but not their order.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    x_hat, x = _pair(x_hat, x)
    a, b = as_image(x_hat).double().flatten(1), x.double().flatten(1)
    cost = torch.cdist(b, a, compute_mode="donot_use_mm_for_euclid_dist").square()  # [true, found]
    return torch.as_tensor(linear_sum_assignment(cost.cpu().numpy())[1], device=x.device)


_lpips = lpips  # compare has an argument of that name


def compare(x_hat: Tensor, x: Tensor, lpips: str | None = None, match: bool = False) -> dict:
    """Scores (B,) by name: mse, psnr, ssim, and lpips with the net that is named.

    Reconstructions pass ``as_image`` first: clamped to [0, 1] (DCS² does, ModelCloak's code does
    not), NaN scored as gray. ``match`` puts them in ``assign``'s order, which favors the attacker.
    """
    x_hat, x = _pair(x_hat, x)
    if not (x.min() >= -1e-6 and x.max() <= 1 + 1e-6):
        raise PrivflError(f"true images must lie in [0, 1], not [{x.min():.3g}, {x.max():.3g}]")
    x_hat = as_image(x_hat)
    if match:
        x_hat = x_hat[assign(x_hat, x)]
    scores = {"mse": mse(x_hat, x), "psnr": psnr(x_hat, x), "ssim": ssim(x_hat, x)}
    return scores if lpips is None else {**scores, "lpips": _lpips(x_hat, x, net=lpips)}


def summary(scores: dict[str, Tensor]) -> dict[str, list | dict[str, float]]:
    """Plain floats: {"per_image": [{"mse": …}, …], "mean": {"mse": …}}; a PSNR may be inf."""
    columns = {name: values.tolist() for name, values in scores.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"per_image": rows, "mean": {k: math.fsum(v) / len(v) for k, v in columns.items()}}


def _values(values: Values, what: str) -> np.ndarray:
    array = torch.as_tensor(values, dtype=torch.float64).detach().cpu().numpy()
    if array.ndim != 1 or not array.size or np.isnan(array).any():
        raise PrivflError(f"{what} must be a list of at least one number, none of them NaN")
    return array


def _tails(level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise PrivflError(f"level is {level}; it must lie between 0 and 1")
    return 0.5 - level / 2, 0.5 + level / 2


def wilson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a success rate (1927): stays in [0, 1], also at 0 of n."""
    if not (n >= 1 and 0 <= successes <= n):
        raise PrivflError(f"{successes} successes of {n} is impossible; want 0 <= successes <= n")
    z2 = NormalDist().inv_cdf(_tails(level)[1]) ** 2
    center = (successes + z2 / 2) / (n + z2)
    half = math.sqrt(z2 * (successes * (n - successes) / n + z2 / 4)) / (n + z2)
    return max(0.0, center - half), min(1.0, center + half)


def success_rate(scores: Values, threshold: float, higher_is_better: bool) -> tuple[float, ...]:
    """Share of images at or beyond ``threshold``, with its 95 % Wilson interval: (rate, low, high).

    NaN counts as a failure. ModelCloak's Table II is ``success_rate(l2(x_hat, x), 1.4, False)``.
    """
    scores = torch.as_tensor(scores)
    hits = int((scores >= threshold if higher_is_better else scores <= threshold).sum())
    interval = wilson(hits, len(scores))  # refuses an empty list
    return hits / len(scores), *interval


def auc(members: Values, nonmembers: Values) -> float:
    """Area under the ROC curve: P(member > nonmember) + P(equal) / 2, scores high for members."""
    members, others = _values(members, "members"), np.sort(_values(nonmembers, "nonmembers"))
    below, upto = (np.searchsorted(others, members, side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(others)))


def tpr_at_fpr(members: Values, nonmembers: Values, fpr: float = 0.01) -> float:
    """Most members found by a threshold that accuses no more than a share ``fpr`` of nonmembers."""
    members, others = _values(members, "members"), np.sort(_values(nonmembers, "nonmembers"))
    if not 0 <= fpr < 1:
        raise PrivflError(f"fpr is {fpr}; it must lie in [0, 1)")
    allowed = math.floor(fpr * len(others) + 1e-9)  # none where there are fewer than 1 / fpr
    return float((members > others[-1 - allowed]).mean())


def bootstrap_interval(
    values: Values, statistic: Callable = np.mean, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic that takes ``axis`` (2,000 resamples)."""
    array = _values(values, "values")
    draws = torch.randint(len(array), (2000, len(array)), generator=generator(seed)).numpy()
    found = statistic(array[draws], axis=1)
    return tuple(np.quantile(found, _tails(level), method="inverted_cdf").tolist())


def auc_interval(
    members: Values, nonmembers: Values, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of ``auc``; members and nonmembers are resampled apart."""
    return _two_sample(auc, members, nonmembers, level, seed)


def tpr_interval(
    members: Values, nonmembers: Values, fpr: float = 0.01, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of ``tpr_at_fpr``; rough where fpr·nonmembers is under ten."""
    return _two_sample(partial(tpr_at_fpr, fpr=fpr), members, nonmembers, level, seed)


def _two_sample(
    statistic: Callable, members: Values, nonmembers: Values, level: float, seed: int
) -> tuple[float, float]:
    a, b = _values(members, "members"), _values(nonmembers, "nonmembers")
    rng = np.random.default_rng(seed)
    found = [statistic(rng.choice(a, len(a)), rng.choice(b, len(b))) for _ in range(2000)]
    return tuple(np.quantile(found, _tails(level), method="inverted_cdf").tolist())
