"""What an attack returns. An attack is an object with ``run(upload, seed)`` and sees no more."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Reconstruction:
    """What an attacker found behind U uploads of B images each.

    ``cost`` is the attacker's own score, the only thing by which a restart may be chosen: the truth
    is not in reach. ``history`` holds (evaluations so far, images) to watch an attack at work.
    """

    images: Tensor  # (U·B, C, H, W), upload by upload
    labels: Tensor  # (U·B,)
    cost: Tensor  # (U,), lower is better
    evaluations: int = 1  # of the gradient, per start
    failed: int = 0  # starts that ended without a finite cost
    history: list[tuple[int, Tensor]] = field(default_factory=list, repr=False)
