"""Measuring leakage: distortions of a known size, and LPIPS of what they and empty guesses give.

LPIPS needs downloaded weights, so its values are stored here. Everything else that the chapter
shows is computed in its notebook, with the same distortions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ... import metrics
from ...data import load
from ...runtime import choose, generator
from ..base import Study

# Mean and standard deviation of CIFAR-10's channels, as Inverting Gradients and LODA use them.
CIFAR_MEAN = (0.4914672374725342, 0.4822617471218109, 0.4467701315879822)
CIFAR_STD = (0.24703224003314972, 0.24348513782024384, 0.26158785820007324)


def shift(x: Tensor, t: float) -> Tensor:
    """Moved t pixels to the right and t / 2 down; the border is continued."""
    height, width = x.shape[2:]
    theta = torch.tensor([[1, 0, -2 * t / width], [0, 1, -t / height]]).to(x)
    grid = F.affine_grid(theta.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def brighten(x: Tensor, t: float) -> Tensor:
    """Brighter by t."""
    return x + t


def invert(x: Tensor, t: float) -> Tensor:
    """The share t of the negative: x at 0, uniform gray at 0.5, the negative 1 - x at 1."""
    return (1 - t) * x + t * (1 - x)


def blur(x: Tensor, t: float) -> Tensor:
    """Gaussian blur with a standard deviation of t pixels."""
    radius = math.ceil(3 * t)
    taps = torch.arange(-radius, radius + 1).to(x)
    window = torch.softmax(-taps.square() / (2 * t * t), 0)
    x, shape = x.flatten(0, 1).unsqueeze(1), x.shape
    x = F.pad(x, (radius,) * 4, mode="replicate")
    x = F.conv2d(F.conv2d(x, window.view(1, 1, -1, 1)), window.view(1, 1, 1, -1))
    return x.view(shape)


def noise(x: Tensor, t: float) -> Tensor:
    """Plus Gaussian noise of standard deviation t, the same for the i-th image on every call."""
    draws = [torch.randn(x.shape[1:], generator=generator(0, i)) for i in range(len(x))]
    return x + t * torch.stack(draws).to(x)


def blocks(x: Tensor, t: float) -> Tensor:
    """Rounded to multiples of t in the cosine transform of 8 x 8 blocks, the way JPEG loses."""
    k = torch.arange(8.0, device=x.device)
    cosine = torch.cos(math.pi * (2 * k + 1) * k.view(8, 1) / 16) / 2  # (frequency, pixel)
    cosine[0] /= math.sqrt(2)
    (height, width), cosine = x.shape[2:], cosine.to(x)
    x = F.pad(x, (0, -width % 8, 0, -height % 8), mode="replicate")
    tiles = x.unfold(2, 8, 8).unfold(3, 8, 8)  # (B, C, rows, columns, 8, 8)
    tiles = cosine.T @ (((cosine @ tiles @ cosine.T) / t).round() * t) @ cosine
    return tiles.transpose(3, 4).reshape(x.shape)[..., :height, :width]


def patch(x: Tensor, t: float) -> Tensor:
    """A centered square of t times the width of the image, covered with gray."""
    x, side = x.clone(), x.shape[3]
    edge = round((1 - t) * side / 2)
    x[..., edge : x.shape[2] - edge, edge : side - edge] = 0.5
    return x


DISTORTIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    f.__name__: f for f in (shift, brighten, invert, blur, noise, blocks, patch)
}
LEVELS = {  # weak to strong
    "shift": (0.5, 1, 2, 3, 4),
    "brighten": (0.05, 0.1, 0.2, 0.4, 0.6),
    "invert": (0.1, 0.25, 0.45, 0.75, 1),
    "blur": (0.5, 1, 1.5, 2.5, 4),
    "noise": (0.05, 0.1, 0.2, 0.4, 0.8),
    "blocks": (0.1, 0.25, 0.5, 1, 2),
    "patch": (0.2, 0.3, 0.4, 0.6, 0.8),
}


def distort(name: str, x: Tensor, t: float) -> Tensor:
    """The distortion of that name at strength t, clamped to [0, 1]."""
    return DISTORTIONS[choose("distortion", name, DISTORTIONS)](x, t).clamp(0, 1)


def at_psnr(x_hat: Tensor, x: Tensor, target: float) -> Tensor:
    """clamp(x + s (x_hat - x)) with the s >= 0 for each image that makes the PSNR ``target``.

    An image for which no s up to 16 is enough keeps the largest error it can have.
    """
    low, high = torch.zeros(len(x), 1, 1, 1).to(x), torch.full((len(x), 1, 1, 1), 16.0).to(x)
    for _ in range(60):
        s = (low + high) / 2
        over = metrics.psnr((x + s * (x_hat - x)).clamp(0, 1), x).view_as(s) > target
        low, high = torch.where(over, s, low), torch.where(over, high, s)
    return (x + high * (x_hat - x)).clamp(0, 1)


def distort_to(name: str, x: Tensor, target: float) -> Tensor:
    """Each image of x, distorted so that its PSNR is exactly ``target`` dB.

    Of 40 strengths the first that is strong enough, its error then shrunk to fit (``at_psnr``).
    """
    levels, found = LEVELS[choose("distortion", name, LEVELS)], x.clone()
    open_ = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for i in range(40):
        x_hat = distort(name, x, levels[0] / 2 * (2 * levels[-1] / levels[0]) ** (i / 39))
        found[open_] = x_hat[open_]
        open_ &= metrics.psnr(x_hat, x) > target
    return at_psnr(found, x, target)


GUESSES = (
    *("black", "gray", "uniform noise", "mean image", "another image"),
    *("class mean", "same class"),  # these need the label
)
PORTRAITS = ("digit", "face", "photo")
FOUR = "another digit"


def guesses(dataset: str, n: int, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """n private images (test split), and what an attacker without any upload may hand in for them.

    The attacker knows the training split; in the order of ``GUESSES``.
    """
    data = load(dataset)
    x, y = data.sample(n, seed=seed, split="test")
    rng = generator(seed, n)
    mean = data.x_train.mean(0)
    means = torch.stack([data.x_train[data.y_train == c].mean(0) for c in range(data.num_classes)])
    pools = [(data.y_train == c).nonzero().flatten() for c in y]
    same = [int(pool[torch.randint(len(pool), (), generator=rng)]) for pool in pools]
    other = torch.randint(len(data.y_train), (n,), generator=rng)
    noise = torch.rand(x.shape, generator=rng)
    blind = (torch.zeros_like(x), torch.full_like(x, 0.5), noise, mean.expand_as(x))
    found = (*blind, data.x_train[other], means[y], data.x_train[same])
    return x, dict(zip(GUESSES, found, strict=True))


def lpips_normalized(x_hat: Tensor, x: Tensor, net: str) -> Tensor:
    """LPIPS as LODA's code computes it: of color images normalized by mean and std, not [-1, 1]."""
    mean, std = (torch.tensor(v).view(1, 3, 1, 1).to(x) for v in (CIFAR_MEAN, CIFAR_STD))
    a, b = (((images - mean) / std + 1) / 2 for images in (x_hat, x))  # lpips maps z to 2 z - 1
    return metrics.lpips(a, b, net)


def portraits() -> dict[str, Tensor]:
    """The three images (1, C, H, W) of the chapter's panel: a digit, a face, a photograph."""
    digits, faces = load("mnist"), load("faces")
    digit = digits.x_test[digits.y_test == 3][:1]
    face = faces.x_test[faces.y_test == 0][12:13]
    photo = load("photos", 64).x_train[34:35]  # the astronaut's name tag
    return dict(zip(PORTRAITS, (digit, face, photo), strict=True))


def picture() -> tuple[Tensor, dict[str, Tensor]]:
    """A nine (1, 1, 28, 28), and eight other images at one PSNR: seven distortions and a four.

    The PSNR is that of the four, which is a digit of its own.
    """
    digits = load("mnist")
    nine, four = digits.x_test[749:750], digits.x_train[2162:2163]
    target = metrics.psnr(four, nine).item()
    distorted = {name: distort_to(name, nine, target) for name in DISTORTIONS}
    return nine, {**distorted, FOUR: four}


def _settings(profile: str) -> dict:
    return {
        "datasets": ["mnist", "faces", "photos"],
        "images": 40 if profile == "cpu" else 400,
        "psnr": 15.0,
        "seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    sets = settings["datasets"]
    return [
        *({"kind": "distortion", "data": d, "name": n} for d in sets for n in LEVELS),
        *({"kind": "guess", "data": d, "name": n} for d in sets for n in GUESSES),
        *({"kind": "panel", "data": d, "name": n} for d in PORTRAITS for n in LEVELS),
        *({"kind": "picture", "data": "mnist", "name": n} for n in (*DISTORTIONS, FOUR)),
    ]


def _compute(settings: dict, cell: dict) -> dict:
    name, data = cell["name"], cell["data"]
    if cell["kind"] == "panel":
        x = portraits()[data]
        x_hat = torch.cat([distort(name, x, t) for t in LEVELS[name]])
        return {"alex": _round(metrics.lpips(x_hat, x.expand_as(x_hat)))}
    if cell["kind"] == "picture":
        x, images = picture()
        return {net: _round(metrics.lpips(images[name], x, net)) for net in ("alex", "vgg")}
    n = min(settings["images"], len(load(data).y_test))
    x, empty = guesses(data, n, settings["seed"])
    x_hat = empty[name] if cell["kind"] == "guess" else distort_to(name, x, settings["psnr"])
    scores = {net: _round(metrics.lpips(x_hat, x, net)) for net in ("alex", "vgg")}
    if data == "photos":
        scores["vgg_normalized"] = _round(lpips_normalized(x_hat, x, "vgg"))
    return scores


def _round(scores: Tensor) -> list[float]:
    return [round(v, 4) for v in scores.tolist()]


STUDY = Study(
    name="measuring-leakage/lpips",
    about="LPIPS of distortions at one PSNR, of guesses without information, and of the panel",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
