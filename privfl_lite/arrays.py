"""Rules for tensors and networks (``values``): what they hold, their axes, where they may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from .values import Holds, Rule, Table

SLACK = 1e-4  # pixels may lie so far outside of [0, 1]: rounding of blends and of resizing


@dataclass(frozen=True)
class Array(Rule):
    """A tensor with numbers in it: ``what`` in words, so many axes, "float" or "whole" numbers.

    ``low`` and ``high``: all entries lie between. ``finite=False`` lets NaN pass, as in what an
    attacker found, and ``empty`` none at all. ``loose`` takes what ``torch.as_tensor`` does:
    arrays, and lists of numbers.
    """

    what: str
    axes: tuple[int, ...] = ()  # none: any
    holds: str = "float"  # or "whole", "bool", "any" of the first two, "all" of these
    low: float = -torch.inf
    high: float = torch.inf
    finite: bool = True
    loose: bool = False
    empty: bool = False
    meta: bool = False  # shapes alone will do

    @property
    def allowed(self) -> str:
        return self.what

    def sentence(self, name: str, value: Any) -> str:
        """With what a tensor holds, where that is what is wrong with it."""
        said = super().sentence(name, value)
        if not isinstance(value, Tensor) or value.is_meta or not value.numel():
            return said
        if not value.is_floating_point() or (self.axes and value.dim() not in self.axes):
            return said
        if not value.isfinite().all():
            return f"{said}; it holds NaN or infinite numbers"
        return f"{said}; it holds numbers from {value.min():g} to {value.max():g}"

    def fits(self, value: Any) -> bool:
        if self.loose and isinstance(value, np.ndarray | list | tuple):
            value = torch.as_tensor(value, device="cpu")
        if not isinstance(value, Tensor) or (value.is_meta and not self.meta):
            return False
        if not value.numel():
            return self.empty and self._holds(value)
        if (self.axes and value.dim() not in self.axes) or not self._holds(value):
            return False
        if self.low == -torch.inf and self.high == torch.inf:
            return not self.finite or bool(value.isfinite().all())
        low, high = value.aminmax()  # NaN where there is one, which lies nowhere
        return bool(low >= self.low and high <= min(self.high, torch.finfo().max))

    def _holds(self, value: Tensor) -> bool:
        if self.holds == "bool":
            return value.dtype == torch.bool
        if self.holds in ("any", "all"):
            return not value.is_complex() and (value.dtype != torch.bool or self.holds == "all")
        return value.is_floating_point() == (self.holds == "float") and (
            value.dtype != torch.bool and not value.is_complex()
        )


def floats(what: str, *axes: int, **ends: Any) -> Array:
    """A tensor of floating-point numbers."""
    return Array(f"{what}, a tensor of floating-point numbers", axes, **ends)


IMAGES = floats("images (B, C, H, W) in [0, 1]", 4, low=-SLACK, high=1 + SLACK)
FOUND = floats("images (B, C, H, W)", 4, finite=False)
LABELS = Array("labels (N,), a tensor of whole numbers, 0 or more", (1,), "whole", 0)
# tensors by name, each with an axis of clients in front
GIVEN = Table(Array("a tensor of numbers", finite=False, empty=True))


def _is_model(value: Any) -> bool:
    return isinstance(value, nn.Module) and not any(p.is_meta for p in value.parameters())


MODEL = Holds("an nn.Module, with its weights on a device and not on meta", _is_model)
Images = Annotated[Tensor, IMAGES]
Pictures = Annotated[Tensor, floats("images (B, C, H, W)", 4)]  # normalized ones, too
Found = Annotated[Tensor, FOUND]  # what an attacker found: any range, NaN where nothing was
Labels = Annotated[Tensor, LABELS]
Matrix = Annotated[Tensor, floats("a matrix (rows, columns)", 2)]
Row1 = Annotated[Tensor, floats("a row of numbers (N,)", 1)]
Values = Annotated[Any, Array("one or more numbers, none of them NaN", (1,), "any", loose=True)]
