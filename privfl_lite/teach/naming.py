"""Naming one of N candidates from a clipped, noisy gradient (chapter: what ε buys).

The nearest candidate is the most likely one, so this attack is the best there is for equal odds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..client import share
from ..defenses import DPSGD
from ..gradients import flat
from ..models import Net
from ..runtime import generator


def clipped_gradients(net: Net, x: Tensor, y: Tensor, clip: float = 1.0) -> Tensor:
    """One clipped gradient for each image, as a row (N, weights)."""
    return flat(share(net, x, y, DPSGD(clip, 0.0), each=1).tensors)


def coordinates(rows: Tensor) -> Tensor:
    """Rows in a basis of their span (N, N): noise outside of it tells nothing."""
    return torch.linalg.qr(rows.double().T)[1].T


def named(rows: Tensor, sigma: float, draws: int = 50, seed: int = 0) -> tuple[int, int]:
    """How often the nearest row is the true one, each being true in turn: (right, tries)."""
    rng, many = generator(seed), rows.repeat(draws, 1)
    seen = many + sigma * torch.randn(many.shape, generator=rng, dtype=many.dtype)
    nearest = torch.cdist(seen, rows).argmin(1)
    return int((nearest == torch.arange(len(rows)).repeat(draws)).sum()), len(many)
