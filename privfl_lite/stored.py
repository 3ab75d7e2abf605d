"""Weights that we train and ship: safetensors of 16-bit floats that carry their own digest.

``book/weights`` holds what is committed (under 2 MB a file, each with the study that makes it);
what is larger lies in the cache.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .runtime import PrivflError

WEIGHTS = Path(__file__).resolve().parents[1] / "book" / "weights"


def digest(state: dict[str, Tensor]) -> str:
    """SHA-256 over the names and values of all tensors, in order of their names."""
    sha = hashlib.sha256()
    for name in sorted(state):
        sha.update(name.encode() + state[name].cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()


def save(net: nn.Module, path: Path, about: dict[str, str]) -> str:
    """Store a network's weights and buffers, and how they were made; returns their digest."""
    state = {n: t.detach().cpu().contiguous() for n, t in net.state_dict().items()}
    state = {n: t.half() if t.is_floating_point() else t for n, t in state.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    sha = digest(state)
    save_file(state, path, {**about, "sha256": sha})
    return sha


def fill(net: nn.Module, path: Path, study: str) -> dict[str, str]:
    """Put stored weights into a network of their shapes; returns how they were made.

    A file that is missing, damaged or of another network is refused, with the command that makes
    it again.
    """
    remedy = f"make it again with: privfl study run {study}"
    if not path.is_file():
        raise PrivflError(f"the weights {path.name} are missing; {remedy}")
    try:
        with safe_open(path, "pt") as file:
            state, about = load_file(path), file.metadata() or {}
    except (SafetensorError, OSError):
        raise PrivflError(f"{path.name} is damaged; {remedy}") from None
    if digest(state) != about.get("sha256"):
        raise PrivflError(f"{path.name} does not match its own SHA-256; {remedy}")
    own = net.state_dict()
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in state.items()}:
        raise PrivflError(f"{path.name} holds weights of another network; {remedy}")
    with torch.no_grad():
        for name, t in own.items():
            t.copy_(state[name])
    return about
