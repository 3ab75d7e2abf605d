"""What was found, judged twice: by the upload itself, and by the truth where it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..attacks import Reconstruction
from ..attacks.labels import known_labels
from ..batches import Data
from ..gradients import Tensors
from ..metrics import compare, identify
from ..metrics.judge import HIGHEST, matching, rounded
from ..runtime import PrivflError, generator
from ..wire import Upload

SHARP = 20.0  # dB: an image is counted as found from here on
CLOSE = 0.01  # of the upload's length: what reproduces it to less is counted as found,
BETTER = 10  # if a blind guess misses by so many times more
BLIND = 3  # guesses of noise, beside one of gray


def consistency(upload: Upload, found: Reconstruction) -> tuple[list[float], list[float]]:
    """Relative error and cosine (U,) between the upload and what the images found would send.

    The images go through the client that the server knows of (``Upload.imitator``): its own rules
    of training, undefended, in the order in which they stand.
    """
    u = len(upload)
    x = found.images.nan_to_num(0.5, 1.0, 0.0).unflatten(0, (u, -1))
    x = x.to(next(upload.model.parameters()))
    with torch.no_grad():
        sent = upload.imitator()(x, found.labels.unflatten(0, (u, -1)))
    seen = upload.typed().tensors
    a, b, both = (_dot(s, t) for s, t in ((sent, sent), (seen, seen), (sent, seen)))
    apart = _dot(*[{n: sent[n] - seen[n] for n in seen}] * 2)
    misfit = (apart / b.clamp(min=1e-30)).sqrt()
    cosine = both / (a * b).clamp(min=1e-30).sqrt()
    return _plain(misfit), _plain(cosine)


def blind(upload: Upload, seed: int) -> float:
    """The misfit of guesses that never saw the upload but for its labels: gray, and noise.

    Where it is small, the upload hardly depends on the images (as behind many layers that shrink
    what they see), and that an image reproduces it says nothing.
    """
    like, shape = next(upload.model.parameters()), (len(upload) * upload.batch, *upload.model.shape)
    cost = like.new_zeros(len(upload))
    try:
        labels = known_labels(upload, seed)
    except PrivflError:
        labels = like.new_zeros(len(upload), upload.batch, dtype=torch.long)
    guesses = [like.new_full(shape, 0.5)]
    guesses += [torch.rand(shape, generator=generator(seed, 5, i)).to(like) for i in range(BLIND)]
    y = labels.argmax(-1) if labels.is_floating_point() else labels
    found = (Reconstruction(x, y.flatten(), cost) for x in guesses)
    return min(min(consistency(upload, f)[0]) for f in found)


def paired(upload: Upload, found: Reconstruction) -> Reconstruction:
    """The same images, each with the label that explains the upload best.

    Algebra finds images and how often each label is there, but not which belongs to which. With the
    images the representations R are known, and so the error signals are, by [∇W ∇b] = Δᵀ [R 1] / B
    of the last layer. Row i of Δ is least at the label of image i.
    """
    head = upload.model.head_name
    if upload.batch == 1 or f"{head}.weight" not in upload.tensors:
        return found
    g, like = upload.gradients(), next(upload.model.parameters())
    images = found.images.nan_to_num(0.5, 1.0, 0.0).unflatten(0, (len(upload), -1)).to(like)
    rows = []
    for u, x in enumerate(images):
        with torch.no_grad():
            r = upload.model.representation(x).double()
        right = g[f"{head}.weight"][u].double()
        if f"{head}.bias" in g:
            r = torch.cat([r, torch.ones_like(r[:, :1])], 1)
            right = torch.cat([right, g[f"{head}.bias"][u].double()[:, None]], 1)
        rows.append((right @ torch.linalg.pinv(r)).argmin(0))
    other = replace(found, labels=torch.cat(rows).to(found.labels))
    before, after = (sum(consistency(upload, f)[0]) for f in (found, other))
    return other if after < before else found


def truth_scores(
    found: Reconstruction, data: Data, batch: int, gallery: Tensor | None, seed: int
) -> tuple[Reconstruction, dict[str, Any]]:
    """Images and labels in the order of the truth; PSNR, SSIM and rank (in the gallery) of each."""
    x, _ = data
    order = matching(found.images, x, batch)
    found = replace(found, images=found.images[order], labels=found.labels[order])
    told: dict[str, Any] = {}
    if min(x.shape[2:]) >= 11:
        values = compare(found.images, x)
        told = {"psnr": rounded(values["psnr"]), "ssim": rounded(values["ssim"], 4)}
    else:  # too small for SSIM's window
        told = {"psnr": [round(v, 2) for v in _psnr(found.images, x)]}
    if gallery is not None:
        told["ranks"] = identify(found.images, x, gallery, batch=batch, seed=seed).ranks.tolist()
    return found, told


def close(misfit: Sequence[float], guess: float) -> int:
    """How many uploads are reproduced, and far better than by a blind guess."""
    return sum(m <= min(CLOSE, guess / BETTER) for m in misfit)


def is_found(misfit: Sequence[float], guess: float, psnr: Sequence[float]) -> bool:
    """By the truth where it is known: one image or more; else by the upload."""
    return max(psnr) >= SHARP if psnr else close(misfit, guess) > 0


def _psnr(images: Tensor, x: Tensor) -> list[float]:
    from ..metrics import as_image, psnr

    return psnr(as_image(images), x).clamp(max=HIGHEST).tolist()


def percent(part: float) -> str:
    """A part of the upload's length, for people."""
    return f"{100 * part:.0f} %" if 0.1 <= part < 100 else f"{100 * part:.2g} %"


def _dot(a: Tensors, b: Tensors) -> Tensor:
    return torch.stack([(a[n] * b[n]).double().flatten(1).sum(1) for n in a]).sum(0)


def _plain(values: Tensor) -> list[float]:
    return [float(f"{v:.4g}") for v in values.tolist()]
