"""Reading labels off the last layer's gradient or update, before any image is rebuilt.

Behind a last layer with softmax and cross-entropy, with p the mean prediction of class j's images
and k_j their number, the last bias gradient of a batch of B images is (Geng et al. 2021, zero-shot
labels; Ma et al. 2023, iLRG)

    B g = Σ_j k_j (p_j − e_j),    Σ_j k_j = B                                                (Eq. 1)

exactly: C + 1 linear equations for C counts. What the server lacks are the p_j; the methods differ
in where they take them from. For an update g is its mean gradient (``Upload.gradients``), and the
predictions moved while the client trained. Chapters: why gradients leak, reach.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Annotated

import torch
from torch import Tensor

from ..batches import Pair, as_batch
from ..checking import checked
from ..models import Net
from ..runtime import PrivflError, generator
from ..values import Number, Seed, Word
from ..wire import Upload

Probes = Annotated[int, Number(1, 10**6, whole=True)]
Method = Annotated[str, Word("method", "probes", "signs", "quotients")]
STOPS = 5  # networks that are probed on the way from before to after local training


@checked
def infer_label(upload: Upload) -> Tensor:
    """iDLG's rule for one image behind each upload: labels (U, 1).

    Row c of the last weight gradient is (p_c − [c = y])·r. Where r has no negative entry, as after
    a sigmoid or ReLU, the row of the label is the only one with a negative sum (Zhao et al. 2020).
    """
    return _head(upload, "weight").sum(2).argmin(1, keepdim=True)


@checked
def infer_labels(
    upload: Upload,
    probes: Probes = 64,
    seed: Seed = 0,
    method: Method = "probes",
    public: Pair | None = None,
) -> Tensor:
    """How often each class stands in a batch, as sorted labels (U, B).

    "probes": all p_j of Eq. 1 are the mean prediction p̄ of noise images, so k = B(p̄ − g). Close
    while the network is untrained. For an update p̄ is the mean over networks on the straight line
    from before to after training (Dimitrov et al. 2022 interpolate so): the server has both ends.
    ``public``: labeled images that the attacker has (letter D); p_j is the mean prediction of
    those of class j: better where the network has learned, and no better than equal counts of all
    classes where it has learned so much that little of a label is left in g.
    "quotients" (iLRG): p_j is what the last layer says of row j of its weight gradient over entry
    j of its bias gradient, which is r for one image. Exact for images with one representation,
    whatever the network knows; elsewhere, and over several steps, mostly behind "probes".
    "signs" (LLG, Wainakh et al. 2022): classes with a negative sum of row j are there; each label
    named takes the mean impact m = (1 + 1/C)/B Σ of the negative sums away, and the most negative
    class is named next. Needs no probe, no bias, and r without negative entries; for small batches
    with few labels twice, also of a trained network.

    Counts are rounded so that they add up to B (largest remainder). One image behind an upload is
    read by ``_one``, if by probes.
    """
    if method == "signs":
        return torch.stack([_signs(row, upload.batch) for row in _head(upload, "weight").sum(2)])
    if method == "quotients":
        return _rounded(_solved(upload.batch, _head(upload, "bias"), _quotients(upload)), upload)
    net = upload.model
    y, x = None, torch.rand(probes, *net.shape, generator=generator(seed))
    if public is not None:
        x, y = as_batch(net, *public, "public")
    x = x.to(next(net.parameters()))
    with torch.no_grad():
        r = net.representation(x)
    if upload.batch == 1 and y is None:
        return _one(upload, r)
    if f"{net.head_name}.bias" in upload.tensors:
        g = _head(upload, "bias")
    else:  # Σ_j of row c is the mean of (p_c − [c = y])·Σ_j r_j; divide by the usual Σ_j r_j
        g = _head(upload, "weight").sum(2) / r.sum(1).mean()
    p = _predictions(upload, x)  # (U, N, classes)
    if y is None:
        return _rounded(upload.batch * (p.mean(1) - g), upload)
    of = (y.argmax(1) if y.is_floating_point() else y).to(x.device)
    rows = [p[:, of == c] if (of == c).any() else p for c in range(net.num_classes)]
    return _rounded(_solved(upload.batch, g, torch.stack([row.mean(1) for row in rows], 1)), upload)


def _one(upload: Upload, r: Tensor) -> Tensor:
    """The label of one image behind each upload, (U, 1), from representations r of noise images.

    The last gradient is δ times (r, 1), where δ = p − onehot(y) is negative at the label alone.
    Each row is weighed by the mean r̄ of the noise images, a matched filter: it reads δ through more
    noise than the sums of rows do. Where r may have both signs, the filter's sign is open; then the
    label is the entry of largest size, which outweighs all others together.
    """
    weight = _head(upload, "weight")
    g = weight @ r.mean(0).to(weight)  # (U, classes)
    g = g + _head(upload, "bias") if f"{upload.model.head_name}.bias" in upload.tensors else g
    return (g.argmin(1) if (r >= 0).all() else g.abs().argmax(1))[:, None]


def _predictions(upload: Upload, x: Tensor) -> Tensor:
    """What the network says of images x, (U, N, classes); for updates the mean on its way."""

    @torch.no_grad()
    def says(net: Net) -> Tensor:
        return net.last(net.representation(x)).softmax(1)

    if upload.plan is None:
        return says(upload.model)[None].expand(len(upload), -1, -1)
    return torch.stack([torch.stack([*map(says, _on_the_way(one))]).mean(0) for one in upload])


def _on_the_way(upload: Upload) -> Iterator[Net]:
    """Networks on the straight line from before to after the training of one client."""
    for stop in range(STOPS):
        net = copy.deepcopy(upload.model)
        with torch.no_grad():
            for name, p in net.named_parameters():
                if name in upload.tensors:
                    p.add_(upload.tensors[name][0], alpha=stop / (STOPS - 1))
        yield net


def _quotients(upload: Upload) -> Tensor:
    """p_j of iLRG, (U, classes, classes): the last layer's answer to r_j = ∇W_j / ∇b_j."""
    weight, bias, last = _head(upload, "weight"), _head(upload, "bias"), upload.model.last
    with torch.no_grad():
        return last(weight / torch.where(bias == 0, torch.inf, bias)[..., None]).softmax(2)


def _solved(batch: int, g: Tensor, p: Tensor) -> Tensor:
    """Counts k (U, classes) that solve Eq. 1 with least error, in double precision."""
    a = p.double().mT - torch.eye(p.shape[1], dtype=torch.double, device=p.device)
    a = torch.cat([a, torch.ones_like(a[:, :1])], 1)  # (U, classes + 1, classes)
    right = torch.cat([batch * g.double(), torch.full_like(g[:, :1], batch).double()], 1)
    return (torch.linalg.pinv(a) @ right[..., None])[..., 0]


def _signs(g: Tensor, batch: int) -> Tensor:
    """LLG's greedy naming of ``batch`` labels from the sums of rows g (classes,), sorted."""
    left, impact = g.clone(), (1 + 1 / len(g)) * g[g < 0].sum() / batch
    named = g.argsort()[: min(batch, int((g < 0).sum()))].tolist()
    left[named] -= impact
    while len(named) < batch:
        named.append(int(left.argmin()))
        left[named[-1]] -= impact
    return torch.tensor(sorted(named), device=g.device)


def _rounded(shares: Tensor, upload: Upload) -> Tensor:
    return torch.stack([_apportion(row, upload.batch) for row in shares])


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
