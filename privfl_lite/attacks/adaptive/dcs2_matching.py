"""All images of a mixed batch at once: the attacker who knows that there are more than are named.

DCS² adds concealed images to a batch (its Eq. 10); whoever knows of them looks for them too.
Chapter: DCS².
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...runtime import generator
from ...wire import Upload
from ..matching.search import Matching, total_variation
from ..solvers import lbfgs


def candidate_labels(y: Tensor, classes: int, lambda_g: float) -> Tensor:
    """Labels (U, classes, 2, classes) of x_s and x̃, for every label ỹ that x̃ may have."""
    y_s = one_hot(y, classes).float()[:, None].expand(-1, classes, -1)
    return torch.stack([y_s, lambda_g * torch.eye(classes).to(y_s) + (1 - lambda_g) * y_s], 2)


def joint(
    upload: Upload, labels: Tensor, steps: int, seed: int, how: dict, nonzero: bool = False
) -> tuple[Tensor, Tensor, int]:
    """L-BFGS for all images behind U uploads, one search for each of labels (U, S, B + M, classes).

    ``width``: x̃ is sought as a multiple of that, and so begins that wide. ``tv`` smooths the
    sensitive images only. Returns images (U, S, B + M, C, H, W), mismatch (U, S), evaluations.
    """
    u, s, n, _ = labels.shape
    shape = (n, *upload.model.shape)
    like = upload.tensors[next(iter(upload.tensors))]
    scale = like.new_ones(n, 1, 1, 1)
    scale[upload.batch :] = how.get("width", 1.0)
    term = Matching(nonzero=nonzero).cost(replace(upload, batch=n))
    flat = labels.flatten(0, 1).to(like)

    def mismatch(z: Tensor, rows: Tensor) -> Tensor:
        return term(z.view(-1, *shape) * scale, flat[rows], rows // s)

    def objective(z: Tensor, rows: Tensor) -> Tensor:
        smooth = total_variation(z.view(-1, *shape)[:, : upload.batch]) if how.get("tv") else 0
        return mismatch(z, rows) + how.get("tv", 0) * smooth

    z = torch.stack([torch.randn(shape, generator=generator(seed, p)) for p in range(u * s)])
    z = z.to(like)
    z[:, : upload.batch] = 0.5 + 0.3 * z[:, : upload.batch]
    found = lbfgs(objective, z.flatten(1), range(1, steps + 1))
    with torch.no_grad():
        cost = mismatch(found.z, torch.arange(u * s, device=like.device)).nan_to_num(torch.inf)
    return (found.z.view(-1, *shape) * scale).view(u, s, *shape), cost.view(u, s), found.evaluations
