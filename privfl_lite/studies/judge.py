"""Score a reconstruction against the truth, in the one way that all tables of the book use."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import metrics
from ..attacks import Reconstruction


def judge(found: Reconstruction, x: Tensor, y: Tensor, batch: int = 1) -> tuple[Tensor, dict]:
    """Images in the order of the truth (N, C, H, W), and {"per_image": […], "mean": {…}}.

    The order of images within an upload of ``batch`` is not on the wire, so each upload's images
    are matched to the truth as well as they can be (``metrics.assign``).
    """
    order = torch.cat(
        [
            i + metrics.assign(found.images[i : i + batch], x[i : i + batch])
            for i in range(0, len(x), batch)
        ]
    )
    images, labels = found.images[order], found.labels[order]
    scores = metrics.summary(metrics.compare(images, x))
    for row, true, guess in zip(scores["per_image"], y.tolist(), labels.tolist(), strict=True):
        row |= {"label_true": true, "label_found": guess}
    return images, scores
