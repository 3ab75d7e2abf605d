"""The file from which an interrupted run goes on: written whole or not at all, read or refused."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .runtime import PrivflError, device


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """16 hexadecimal digits that tell these values, in this order, from all others."""
    seen = hashlib.sha256()
    for t in tensors:
        seen.update(t.detach().cpu().contiguous().numpy().tobytes())
    return seen.hexdigest()[:16]


def save(path: str | Path, state: dict[str, Any]) -> None:
    """Write the state beside its place, then move it there in one step."""
    part = Path(f"{path}.part")
    torch.save(state, part)
    os.replace(part, path)


def load(
    path: str | Path, settings: str, rates: Callable[[int], list[float]], rounds: int
) -> dict[str, Any]:
    """What was saved by a run of these settings and of no more rounds, on this device.

    ``rates(n)``: what the run multiplies the rate by in its first n rounds.
    """
    try:
        saved = torch.load(path, map_location=device(), weights_only=True)
        played = len(saved["history"])
        same = saved["settings"] == settings and saved["rates"] == rates(played)
    except (RuntimeError, EOFError, pickle.UnpicklingError, OSError, KeyError, TypeError):
        raise PrivflError(f"the checkpoint {path} is damaged; delete it to start again") from None
    if not same or played > rounds:
        raise PrivflError(
            f"the checkpoint {path} is of a run with other settings or more rounds; "
            "delete it or name another file"
        )
    return saved
