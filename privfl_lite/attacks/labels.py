"""Reading labels off the last layer's gradient, before any image is rebuilt."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from ..checking import checked
from ..runtime import PrivflError, generator
from ..values import Number, Seed
from ..wire import Upload

Probes = Annotated[int, Number(1, 10**6, whole=True)]


@checked
def infer_label(upload: Upload) -> Tensor:
    """iDLG's rule for one image behind each upload: labels (U, 1).

    Row c of the last weight gradient is (p_c − [c = y])·r. Where r has no negative entry, as after
    a sigmoid or ReLU, the row of the label is the only one with a negative sum (Zhao et al. 2020).
    """
    return _head(upload, "weight").sum(2).argmin(1, keepdim=True)


@checked
def infer_labels(upload: Upload, probes: Probes = 64, seed: Seed = 0) -> Tensor:
    """How often each class stands in a batch, as sorted labels (U, B).

    The last bias gradient is the mean over the batch of p − onehot(y), so class c stands
    B·(p̄_c − g_c) times. The server does not know the mean prediction p̄ of the private images; it
    takes that of noise images instead, which is close while the network is untrained. Counts are
    rounded so that they add up to B (largest remainder).

    With B = 1 the last gradient is δ times (r, 1), where δ = p − onehot(y) is negative at the label
    alone. Each row is weighed by the mean r̄ of the noise images, a matched filter: it reads δ
    through more noise than the sums of rows do. Where r may have both signs, the filter's sign is
    open; then the label is the entry of largest size, which outweighs all others together.
    """
    model = upload.model
    with torch.no_grad():
        noise = torch.rand(probes, *model.shape, generator=generator(seed))
        r = model.representation(noise.to(next(model.parameters())))
        p = model.last(r).softmax(1).mean(0)  # (classes,)
    if upload.batch == 1:
        weight = _head(upload, "weight")
        g = weight @ r.mean(0).to(weight)  # (U, classes)
        g = g + _head(upload, "bias") if f"{model.head_name}.bias" in upload.tensors else g
        return (g.argmin(1) if (r >= 0).all() else g.abs().argmax(1))[:, None]
    if f"{model.head_name}.bias" in upload.tensors:
        g = _head(upload, "bias")
    else:  # Σ_j of row c is the mean of (p_c − [c = y])·Σ_j r_j; divide by the usual Σ_j r_j
        g = _head(upload, "weight").sum(2) / r.sum(1).mean()
    return torch.stack([_apportion(upload.batch * (p - row), upload.batch) for row in g])


def known_labels(upload: Upload, seed: int = 0) -> Tensor:
    """Labels (U, B) as granted (or distributions), else read off the last layer."""
    known = upload.knows.labels
    return infer_labels(upload, seed=seed) if known is None else known


def _apportion(share: Tensor, total: int) -> Tensor:
    """Whole numbers near ``share`` that add up to ``total``, as sorted labels (total,)."""
    share = share.clamp(min=0)
    share = share * total / share.sum().clamp(min=1e-12)
    count = share.floor().long()
    left = total - int(count.sum())
    count[(share - count).topk(left).indices] += 1
    return torch.repeat_interleave(torch.arange(len(count), device=count.device), count)


def _head(upload: Upload, part: str) -> Tensor:
    name = f"{upload.model.head_name}.{part}"
    if name not in upload.tensors:
        raise PrivflError(
            f"labels cannot be read: the tensor {name!r} is not in the upload; "
            'grant them with knows=("labels",)'
        )
    return upload.gradients()[name]
