"""What a search is told and what it looks for: types of its settings, and places in a row of z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ...arrays import Array
from ...values import Number, Word

Distance = Annotated[str, Word("distance", "l2", "cosine", "likelihood")]
Optimizer = Annotated[str, Word("optimizer", "lbfgs", "adam")]
Restarts = Annotated[int, Number(1, 10**6, whole=True)]
Frames = Annotated[int, Number(0, 10**5, whole=True)]
Begin = Annotated[Tensor, Array("an image (C, H, W) or images (U, B, C, H, W)", (3, 4, 5))]
Start = Begin | Annotated[str, Word("start", "patterned")]


@dataclass(frozen=True)
class Row:
    """What stands where in a row of z (P, n): pixels, logits of unknown labels, other unknowns."""

    shape: tuple[int, ...]  # (B, C, H, W)
    classes: int
    known: Tensor | None  # labels (U, B), or distributions (U, B, classes)
    restarts: int

    @property
    def pixels(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def logits(self) -> int:
        return self.shape[0] * self.classes * (self.known is None)

    def images(self, z: Tensor) -> Tensor:  # (P, B, C, H, W)
        return z[:, : self.pixels].reshape(-1, *self.shape)

    def labels(self, z: Tensor, rows: Tensor) -> Tensor:
        if self.known is not None:
            return self.known[rows // self.restarts]
        logits = z[:, self.pixels : self.pixels + self.logits]
        return logits.reshape(-1, self.shape[0], self.classes).softmax(2)

    def others(self, z: Tensor) -> Tensor:
        return z[:, self.pixels + self.logits :]
