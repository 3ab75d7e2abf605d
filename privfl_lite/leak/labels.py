"""Which labels an upload gives away: exactly, by number, or not at all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ..attacks import infer_labels
from ..runtime import PrivflError
from ..wire import Upload

METHODS = ("probes", "quotients", "signs")


def labels(upload: Upload, truth: Tensor | None, seed: int) -> dict[str, Any]:
    """How readable labels are, what is read from the first upload, and how sure that is.

    ``truth``: the labels behind all uploads, the first upload's first.
    """
    if upload.knows.labels is not None:
        return _told("granted", "granted to the attacker, so they were not read", {}, truth)
    read: dict[str, list[int]] = {}
    why = ""
    for method in METHODS:
        try:
            read[method] = infer_labels(upload, method=method, seed=seed)[0].sort().values.tolist()
        except PrivflError as error:
            why = why or str(error)
    if not read:
        return _told("not readable", why, read, truth)
    first = next(iter(read.values()))
    if upload.batch == 1 and _one_negative(upload):
        says = f"exact: {first[0]}, the only negative entry of the last layer's error signal"
        return _told("exact", says, read, truth)
    shown = ", ".join(f"{n} × {y}" for y, n in sorted(Counter(first).items()))
    if len({tuple(v) for v in read.values()}) == 1 and len(read) > 1:
        says = f"counts: {shown}; {len(read)} rules agree ({', '.join(read)})"
        return _told("counts", says, read, truth)
    says = f"not sure: {shown} by {next(iter(read))}, other rules say otherwise"
    return _told("not sure", says, read, truth)


def _told(level: str, says: str, read: dict, truth: Tensor | None) -> dict[str, Any]:
    right = None
    if truth is not None and read and not truth.is_floating_point():
        first = next(iter(read.values()))
        right = sum((Counter(truth[: len(first)].tolist()) & Counter(first)).values())
        says += f"; {right} of {len(first)} right"
    return {"level": level, "says": says, "read": read, "right": right}


def _one_negative(upload: Upload) -> bool:
    """Whether the last layer's error signal has one negative entry, as behind one image."""
    g = upload.gradients()
    bias, weight = (g.get(f"{upload.model.head_name}.{p}") for p in ("bias", "weight"))
    if bias is not None:
        return bool(((bias[0] < 0).sum() == 1).item())
    if weight is None:
        return False
    _, s, v = torch.linalg.svd(weight[0].T.double(), full_matrices=False)
    signs = (v[0] < 0).sum()
    return bool(s[0] > 0) and int(min(signs, len(v[0]) - signs)) == 1
