"""Images and labels as a model takes them, or one sentence that says what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from .arrays import Array
from .models import Net
from .runtime import PrivflError
from .values import Row

FARTHEST = 100.0  # no pixel is so far from 0, normalized or not; those of 0…255 are
_loose: Any = {"holds": "any", "finite": False, "loose": True, "empty": True}  # the rest: below
IMAGES_GIVEN = Array("images (B, C, H, W), a tensor of pixels", **_loose)
LABELS_GIVEN = Array("labels (B,), a tensor of whole numbers", **_loose)
GivenImages = Annotated[Tensor, IMAGES_GIVEN]
GivenLabels = Annotated[Tensor, LABELS_GIVEN]
Data = tuple[Tensor, Tensor]  # one client's images (n, C, H, W) and labels (n,) or (n, classes)
_pair = Row((IMAGES_GIVEN, LABELS_GIVEN), fixed=True)
Pair = Annotated[Data, _pair]
Clients = Annotated[Sequence[Data], Row((_pair,), least=1)]


def as_batch(model: Net, x: Any, y: Any, whose: str = "the batch") -> Data:
    """Images and labels as the model takes them, or one sentence (``check_batch``).

    Images of 8 bits become numbers in [0, 1]; floating-point ones get the model's type. Labels are
    whole numbers, or distributions (n, classes) in the model's type.
    """
    like, x = next(model.parameters()), as_images(x, whose)
    y = torch.as_tensor(y, device=getattr(y, "device", None))
    x, y = x.to(like.dtype), y.to(like.dtype) if y.is_floating_point() else y.long()
    check_batch(model, x, y, whose)
    return x, y


def image_shape(x: Any) -> tuple[Any, ...]:
    """((C, H, W),) of a batch of images, to tell a bare module's shape; () where it is none."""
    shape = tuple(getattr(x, "shape", ()))
    return (shape[1:],) if len(shape) == 4 else ()


def as_images(x: Any, whose: str = "the batch") -> Tensor:
    """8-bit images 0…255 as floats in [0, 1]; floats as they are; anything else is refused."""
    x = torch.as_tensor(x, device=getattr(x, "device", None))
    if x.dtype == torch.uint8:
        return x / 255
    if not x.is_floating_point():
        raise PrivflError(
            f"{whose} holds images of {x.dtype}; give floating-point pixels in [0, 1], "
            "or 8-bit ones (torch.uint8) in 0…255"
        )
    return x


def check_batch(model: Net, x: Tensor, y: Tensor, whose: str = "the batch") -> None:
    """One clear sentence if images x or labels y do not fit the model."""
    if x.dim() != 4 or tuple(x.shape[1:]) != tuple(model.shape):
        want = ", ".join(map(str, model.shape))
        raise PrivflError(f"the model takes images of shape (B, {want}); got {tuple(x.shape)}")
    if len(x) == 0 or len(x) != len(y):
        raise PrivflError(
            f"{whose} needs at least one image and as many labels; "
            f"got {len(x)} images and {len(y)} labels"
        )
    if not x.isfinite().all():
        raise PrivflError(f"{whose} holds NaN or infinite pixels; images lie in [0, 1]")
    low, high = x.min().item(), x.max().item()
    if low > 1 or high < 0 or max(-low, high) > FARTHEST:
        raise PrivflError(
            f"{whose} holds pixels from {low:g} to {high:g}; images lie in [0, 1], "
            "or around 0 where they are normalized"
        )
    _check_labels(y, model.num_classes, whose)


def _check_labels(y: Tensor, classes: int, whose: str) -> None:
    if y.dim() == 1 and not y.is_floating_point():
        if not 0 <= y.min() <= y.max() < classes:
            ends = f"{y.min().item()}…{y.max().item()}"
            raise PrivflError(f"labels must lie in 0…{classes - 1}; got {ends}")
        return
    whole = y.is_floating_point() and y.dim() == 2 and y.shape[1] == classes
    if not whole or not (y >= 0).all() or not ((y.sum(1) - 1).abs() < 1e-3).all():
        raise PrivflError(
            f"{whose} needs labels (B,) of whole numbers, or distributions (B, {classes}), rows of "
            f"numbers from 0 on that add up to 1; got {tuple(y.shape)} of {y.dtype}"
        )
