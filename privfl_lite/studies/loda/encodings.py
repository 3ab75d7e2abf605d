"""What the studies of LODA share: private and public images, their encodings, scores, pictures."""

from __future__ import annotations

import hashlib
import statistics

import torch
from torch import Tensor

from ... import assets, metrics
from ...data import load
from ...defenses import LODA
from ...defenses.loda import AT_ONCE, WEIGHT, obscured_set
from ...metrics.judge import rounded
from ...models.extractor import PUBLIC_FROM, Extractor, load_extractor
from ...pictures import pack
from ...runtime import device, generator
from ...stored import identity
from ..measuring_leakage.lpips import lpips_normalized

MAIN = ("loda1", "loda2")  # the paper's choices of layers for CIFAR-10


def extractor(settings: dict, layers: str) -> Extractor:
    """g of a study's profile."""
    return load_extractor(layers, settings["profile"])


def private_images(settings: dict, layers: str = "loda1") -> tuple[Tensor, Tensor]:
    """The private images (N, C, H, W) and labels: of the test split."""
    data = load(settings["data"].get(layers, "cifar10"))
    x, y = data.sample(settings["images"], settings["seed"], "test")
    return x.to(device()), y


def public_sample(settings: dict, n: int) -> Tensor:
    """n public images; the first k of them are those of k."""
    pool = load("cifar10").x_train[PUBLIC_FROM:]
    return pool[torch.randperm(len(pool), generator=generator(settings["seed"], 1))[:n]].to(
        device()
    )


def encoded(settings: dict, x: Tensor, layers: str, c: float, seed: int = 0) -> Tensor:
    """8-bit encodings of x, c in the paper's units; kept in the cache, AT_ONCE images a file."""
    c = c * settings["unit"]
    start = {"start": settings["start"], "seed": seed}
    loda = LODA(settings["profile"], layers, c, settings["steps"], **start)
    parts = []
    for some in x.split(AT_ONCE):
        sha = hashlib.sha256(identity(loda).encode() + some.cpu().numpy().tobytes()).hexdigest()[
            :20
        ]
        path = assets.cache() / "obscured" / f"{sha}.safetensors"
        parts.append(obscured_set(loda, some, path, show=False))
    return torch.cat(parts)


def private(settings: dict, layers: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Private images and their encodings with the paper's c."""
    x, _ = private_images(settings, layers)
    return x, encoded(settings, x, layers, WEIGHT[layers], seed)


def public(settings: dict, layers: str, n: int) -> tuple[Tensor, Tensor]:
    x = public_sample(settings, n)
    return x, encoded(settings, x, layers, WEIGHT[layers])


def scores(found: Tensor, x: Tensor) -> dict:
    """PSNR, SSIM and LPIPS of each image; mean, spread, extremes and 95 % interval of the mean."""
    found = metrics.as_image(found)
    values = metrics.compare(found, x) | {"lpips": lpips_normalized(found, x, "vgg")}
    out: dict = {"images": len(x)}
    for name, places in (("psnr", 2), ("ssim", 3), ("lpips", 3)):
        each = rounded(values[name], places)
        out[name] = {
            "mean": round(statistics.fmean(each), places),
            "std": round(statistics.pstdev(each), places),
            "min": min(each),
            "max": max(each),
            "interval": [round(v, places) for v in metrics.bootstrap_interval(each)],
            "each": each,
        }
    return out


def means(score: dict) -> dict:
    """The means alone of what ``scores`` gives."""
    return {name: score[name]["mean"] for name in ("psnr", "ssim", "lpips")}


def strip(settings: dict, images: Tensor) -> list[str]:
    """One image of each class side by side (Fig. 2)."""
    y = private_images(settings)[1].tolist()
    return side_by_side(images[[y.index(label) for label in sorted(set(y))]])


def side_by_side(images: Tensor) -> list[str]:
    """Images (N, C, H, W) in a row, as a packed picture (1, H, N·W) a channel."""
    return [pack(channel[None]) for channel in torch.cat(list(images), 2).cpu()]


def choose_by_lpips(x: Tensor, found: dict[str, Tensor]) -> tuple[str, dict]:
    """The option with the least mean LPIPS, and the scores of all."""
    table = {}
    for name, images in found.items():
        table[name] = means(scores(images, x))
    return min(table, key=lambda name: table[name]["lpips"]), table
