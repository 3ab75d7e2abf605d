"""The matrix of Mixup and InstaHide, for an attacker to whom it is not granted (LODA §3.2).

What is private is which images stand in which encoding e (E, C, H, W), and how heavily: M (E, n).
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from ...arrays import Array, Labels
from ...checking import checked
from ...gradients import stateless
from ...runtime import PrivflError
from ...values import Count, NotNegative
from ...wire import Upload
from .instahide import Encodings

Soft = Annotated[Tensor, Array("soft labels (E, classes)", (2,))]


@checked
def pair_scores(encodings: Encodings, signed: bool = True) -> Tensor:
    """How alike two encodings are, (E, E): high where they may share a private image.

    The correlation of their pixels, of absolute values if signs were flipped (``signed``), after
    the mean over all encodings is taken off; the diagonal is 1. A stand-in without training for the
    network of Carlini et al. (2021). It finds pairs in which the shared image is heavy on both
    sides (always so for k = 2), and is little better than a guess at the rest for k = 4.
    """
    v = encodings.flatten(1).double()
    v = v.abs() if signed else v
    return torch.corrcoef(v - v.mean(0))


@checked
def soft_labels(upload: Upload, images: Encodings) -> Tensor:
    """The soft labels (U, classes) behind gradients of single images that are known, (U, C, H, W).

    For a batch of one the last bias gradient is p − y, and p is the model's own answer to the
    image. So an attacker who has found the encodings, say by ``ClosedForm``, has their labels.
    """
    bias = f"{upload.model.head_name}.bias"
    if upload.batch != 1 or upload.kind != "gradient" or bias not in upload.tensors:
        raise PrivflError(f"soft labels are read off the gradient of one image at {bias!r}")
    if (len(images), *images.shape[1:]) != (len(upload), *upload.model.shape):
        want = f"({len(upload)}, {', '.join(map(str, upload.model.shape))})"
        raise PrivflError(f"images must be {want}, one an upload; got {tuple(images.shape)}")
    with torch.no_grad():
        p = stateless(upload.model, upload.mode)(images).softmax(1)
    return p - upload.tensors[bias]


@checked
def coefficients_from_labels(labels: Soft, tol: NotNegative = 1e-4) -> tuple[Tensor, Tensor]:
    """M (E, n) read off the soft labels (E, classes), and the class (n,) of each of its columns.

    Exact if no two private images have one class: the soft label of class c is then the weight of
    its only image. Otherwise a column is the total weight of all images of a class, and regression
    on it gives a mixture of them. The attacker can tell: the client reports n, and the columns are
    fewer.
    """
    present = (labels > tol).any(0).nonzero().flatten()
    return labels[:, present], present


@checked
def assign_by_known(
    encodings: Encodings,
    labels: Soft,
    known: Encodings,
    known_labels: Labels,
    sweeps: Count = 3,
    signed: bool = True,
) -> Tensor:
    """M (E, n) for candidate images ``known`` (n, C, H, W): which one stands for each class in e.

    The attacker holds candidates (records of people who may take part, or results of an earlier
    decoding) with their classes, and the soft labels (E, classes). A label gives the weight of each
    class; for every encoding, class after class, the candidate with the least misfit is put in,
    the others held fixed, ``sweeps`` times over. The start is each class's mean candidate. Assumes
    that the images of a blend are of different classes.
    """
    if known.shape[1:] != encodings.shape[1:] or len(labels) != len(encodings):
        got = ", ".join(str(tuple(t.shape)) for t in (encodings, labels, known))
        raise PrivflError(f"encodings, labels and known must fit each other; got {got}")
    e, x = encodings.flatten(1), known.flatten(1).to(encodings)
    e = e.abs() if signed else e
    classes = labels.shape[1]
    if known_labels.max() >= classes or len(known) != len(known_labels):
        raise PrivflError(
            f"{len(known)} candidates need as many labels in 0…{classes - 1}; "
            f"got {len(known_labels)} up to {int(known_labels.max())}"
        )
    member = torch.nn.functional.one_hot(known_labels, classes).to(x)  # (n, classes)
    filled = member.sum(0) > 0
    means = (member.T @ x) / member.sum(0).clamp(min=1)[:, None]  # (classes, P)
    out = torch.zeros(len(e), len(x)).to(x)
    for row in range(len(e)):
        weight = labels[row].to(x)
        present = ((weight > 1e-4) & filled).nonzero().flatten().tolist()
        parts, chosen = {c: weight[c] * means[c] for c in present}, {}
        for c in present * sweeps:
            rest = sum(
                (part for other, part in parts.items() if other != c), torch.zeros_like(e[0])
            )
            mine = (known_labels == c).nonzero().flatten()
            blend = rest + weight[c] * x[mine]
            gap = (e[row] - (blend.abs() if signed else blend)).square().sum(1)
            chosen[c] = mine[gap.argmin()]
            parts[c] = weight[c] * x[chosen[c]]
        for c, index in chosen.items():
            out[row, index] = weight[c]
    return out
