"""Score a reconstruction against the truth, in the one way that all tables of the book use."""

from __future__ import annotations

import statistics
from typing import Any, Protocol

import torch
from torch import Tensor

from .images import assign, compare, summary
from .statistics import bootstrap_interval, wilson

HIGHEST = 150.0  # dB: what stands in tables for a higher PSNR, which only rounding decides


class Found(Protocol):
    """What an attack brings back, as far as it is judged: a ``Reconstruction``."""

    @property
    def images(self) -> Tensor: ...

    @property
    def labels(self) -> Tensor: ...


def judge(found: Found, x: Tensor, y: Tensor, batch: int = 1) -> tuple[Tensor, dict]:
    """Images in the order of the truth (N, C, H, W), and {"per_image": […], "mean": {…}}."""
    order = matching(found.images, x, batch)
    images, labels = found.images[order], found.labels[order]
    scores = summary(compare(images, x))
    for row, true, guess in zip(scores["per_image"], y.tolist(), labels.tolist(), strict=True):
        row |= {"label_true": true, "label_found": guess}
    return images, scores


def matching(images: Tensor, x: Tensor, batch: int) -> Tensor:
    """The order (N,) of images in which they fit the truth best (``assign``).

    The order within an upload of ``batch`` images is not on the wire; between uploads it is.
    """
    pairs = zip(images.split(batch), x.split(batch), strict=True)
    return torch.cat([i * batch + assign(a, b) for i, (a, b) in enumerate(pairs)])


def rounded(values: Tensor, places: int = 2) -> list[float]:
    """Scores as they stand in tables: rounded, an infinite PSNR as ``HIGHEST``."""
    return [round(min(v, HIGHEST), places) for v in values.tolist()]


def scores(found: Tensor, x: Tensor, success: float) -> dict:
    """PSNR and SSIM of each image, mean, standard deviation, 95 % interval; rate of successes.

    An image with a PSNR of ``success`` dB or more is one.
    """
    values = compare(found, x)
    out: dict[str, Any] = {"images": len(x)}
    for name, places in (("psnr", 2), ("ssim", 4)):
        each = values[name].clamp(max=HIGHEST).tolist()
        out[name] = rounded(values[name], places)
        out[f"{name}_mean"] = round(statistics.fmean(each), places)
        out[f"{name}_std"] = round(statistics.pstdev(each), places)
        out[f"{name}_interval"] = [round(v, places) for v in bootstrap_interval(each)]
    hits = int((values["psnr"] >= success).sum())
    low, high = wilson(hits, len(x))
    return out | {"success": hits, "success_interval": [round(low, 4), round(high, 4)]}
