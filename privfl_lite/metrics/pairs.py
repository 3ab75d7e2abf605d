"""What every score of images does first: check the two, and make an image of what was found."""

from __future__ import annotations

import torch
from torch import Tensor

from ..runtime import PrivflError


def pair(x_hat: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Found and true images, in the type and place of the true ones; refused if they differ."""
    if not all(torch.is_tensor(images) and images.is_floating_point() for images in (x_hat, x)):
        raise PrivflError("images must be float tensors (B, C, H, W) with values in [0, 1]")
    if x_hat.shape != x.shape or x.dim() != 4 or not x.numel():
        shapes = f"{tuple(x_hat.shape)} and {tuple(x.shape)}"
        raise PrivflError(f"the images must have one shape (B, C, H, W), not {shapes}")
    return x_hat.detach().to(x), x.detach()


def as_image(x_hat: Tensor) -> Tensor:
    """What an attacker hands in: clamped to [0, 1], with gray 0.5 for NaN (no result there)."""
    return x_hat.nan_to_num(nan=0.5, posinf=1.0, neginf=0.0).clamp(0, 1)
