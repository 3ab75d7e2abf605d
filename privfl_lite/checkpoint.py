"""The file from which an interrupted run goes on: written whole or not at all, read or refused.

Its first line is the SHA-256 of the rest, so that a flipped bit is noticed. It may hold what
clients keep to themselves (FedKL's keys, residuals), so only its owner may read it.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import disk
from .runtime import PrivflError, device


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """16 hexadecimal digits that tell these values, in this order, from all others."""
    seen = hashlib.sha256()
    for t in tensors:
        seen.update(t.detach().cpu().contiguous().numpy().tobytes())
    return seen.hexdigest()[:16]


def save(path: str | Path, state: dict[str, Any]) -> None:
    """Write the state, readable by its owner only."""
    file = io.BytesIO()
    torch.save(state, file)
    data = file.getvalue()
    disk.write(Path(path), hashlib.sha256(data).hexdigest().encode() + b"\n" + data, private=True)


def load(
    path: str | Path, settings: str, rates: Callable[[int], list[float]], rounds: int
) -> dict[str, Any]:
    """What was saved by a run of these settings and of no more rounds, on this device.

    ``rates(n)``: what the run multiplies the rate by in its first n rounds.
    """
    try:
        digest, _, data = Path(path).read_bytes().partition(b"\n")
        if digest != hashlib.sha256(data).hexdigest().encode():
            raise ValueError
        saved = torch.load(io.BytesIO(data), map_location=device(), weights_only=True)
        played = len(saved["history"])
        same = saved["settings"] == settings and saved["rates"] == rates(played)
    except (RuntimeError, EOFError, pickle.UnpicklingError, KeyError, TypeError, ValueError):
        raise PrivflError(f"the checkpoint {path} is damaged; delete it to start again") from None
    except OSError as error:
        raise PrivflError(f"the checkpoint {path} cannot be read ({error.strerror})") from None
    if not same or played > rounds:
        raise PrivflError(
            f"the checkpoint {path} is of a run with other settings or more rounds; "
            "delete it or name another file"
        )
    return saved
