"""Score a reconstruction against the truth, in the one way that all tables of the book use."""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from .. import metrics
from ..attacks import Reconstruction


def judge(found: Reconstruction, x: Tensor, y: Tensor, batch: int = 1) -> tuple[Tensor, dict]:
    """Images in the order of the truth (N, C, H, W), and {"per_image": […], "mean": {…}}."""
    order = matching(found.images, x, batch)
    images, labels = found.images[order], found.labels[order]
    scores = metrics.summary(metrics.compare(images, x))
    for row, true, guess in zip(scores["per_image"], y.tolist(), labels.tolist(), strict=True):
        row |= {"label_true": true, "label_found": guess}
    return images, scores


def matching(images: Tensor, x: Tensor, batch: int) -> Tensor:
    """The order (N,) of images in which they fit the truth best (``metrics.assign``).

    The order within an upload of ``batch`` images is not on the wire; between uploads it is.
    """
    pairs = zip(images.split(batch), x.split(batch), strict=True)
    return torch.cat([i * batch + metrics.assign(a, b) for i, (a, b) in enumerate(pairs)])


def scores(settings: dict, found: Tensor, x: Tensor) -> dict:
    """PSNR and SSIM of each image, mean, standard deviation, 95 % interval; rate of successes."""
    values = metrics.compare(found, x)
    out: dict[str, Any] = {"images": len(x)}
    for name, places in (("psnr", 2), ("ssim", 4)):
        each = [min(v, 150.0) for v in values[name].tolist()]
        out[name] = [round(v, places) for v in each]
        out[f"{name}_mean"] = round(statistics.fmean(each), places)
        out[f"{name}_std"] = round(statistics.pstdev(each), places)
        out[f"{name}_interval"] = [round(v, places) for v in metrics.bootstrap_interval(each)]
    hits = int((values["psnr"] >= settings["success"]).sum())
    low, high = metrics.wilson(hits, len(x))
    return out | {"success": hits, "success_interval": [round(low, 4), round(high, 4)]}


def spread(values: list[float]) -> dict:
    """Mean, standard deviation (n − 1) and Student's 95 % interval; the last two need 2 values."""
    from scipy.stats import t as student  # slow to import

    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return {"mean": mean, "std": None, "interval": None}
    std = statistics.stdev(values)
    half = float(student.ppf(0.975, n - 1)) * std / n**0.5
    return {"mean": mean, "std": std, "interval": [mean - half, mean + half]}
