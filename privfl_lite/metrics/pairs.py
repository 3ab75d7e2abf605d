"""What every score of images does first: check the two, and make an image of what was found."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from ..arrays import Array
from ..checking import checked
from ..runtime import PrivflError

Picture = Annotated[Tensor, Array("an image or images, floating-point numbers", finite=False)]


def pair(x_hat: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Found and true images, in the type and place of the true ones; refused if they differ."""
    if x_hat.shape != x.shape:
        shapes = f"{tuple(x_hat.shape)} and {tuple(x.shape)}"
        raise PrivflError(f"the images must have one shape (B, C, H, W), not {shapes}")
    return x_hat.detach().to(x), x.detach()


@checked
def as_image(x_hat: Picture) -> Tensor:
    """What an attacker hands in: clamped to [0, 1], with gray 0.5 for NaN (no result there)."""
    return x_hat.nan_to_num(nan=0.5, posinf=1.0, neginf=0.0).clamp(0, 1)
