"""Uploads in a coarser number format, as mixed-precision training sends them (chapter: red team).

Not meant as a defense by anyone; but chapters FedKL and Model Entanglement name it as what would
stop their attackers, so it is one here, to be attacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from ..gradients import Tensors
from ..values import Word
from .base import Context, Defense

FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Rounded(Defense):
    """Every number that leaves is the nearest one of a 16-bit format: 11 or 8 significant bits.

    Deterministic, so nothing is bounded: two uploads that differ by more than rounding stay apart.
    """

    format: Annotated[str, Word("format", *FORMATS)] = "float16"
    blind = ("update",)

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        return {n: t.to(FORMATS[self.format]).to(t.dtype) for n, t in delta.items()}
