"""What players hand in: numbers, or images out of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..errors import PrivflError
from ..metrics import as_image
from ..stored import read_tensors
from .base import Challenge
from .flags import nearest
from .searches import POOL
from .sending import CLASSES, SHAPE

FLAT = 0.02  # standard deviation of pixels below which an image is one gray


def numbers(challenge: Challenge, given: Sequence[int]) -> Tensor:
    """Labels or places (N,), or one sentence."""
    if challenge.answer == "images":
        raise PrivflError(f"{challenge.name} asks for images: --images FILE")
    what, end = ("labels", CLASSES) if challenge.answer == "labels" else ("places", POOL)
    if len(given) != challenge.count:
        raise PrivflError(f"{challenge.name} asks for {challenge.count} {what}; got {len(given)}")
    if not all(0 <= n < end for n in given):
        raise PrivflError(f"{what} lie in 0…{end - 1}; got {max(given)}")
    return torch.tensor(list(given), device="cpu")


def images(challenge: Challenge, path: str, pool: Tensor | None) -> Tensor:
    """Images (N, 1, 28, 28) out of a file, or for a line-up the places nearest to them."""
    if challenge.answer == "labels":
        raise PrivflError(f"{challenge.name} asks for labels: --labels 3,1,4,…")
    found = _shaped(_read(Path(path)), challenge.count, path)
    if not found.isfinite().all():
        raise PrivflError(f"{path} holds NaN or infinite pixels")
    found = as_image(found.float().cpu())
    flat = (found.flatten(1).std(1) < FLAT).nonzero().flatten().tolist()
    if flat:
        raise PrivflError(f"image {flat[0]} of {path} is blank: one gray everywhere")
    if challenge.answer == "images":
        return found
    if pool is None:
        raise PrivflError("give the candidates' numbers: --places 12,80,…")
    return torch.tensor(nearest(found, pool), device="cpu")


def _read(path: Path) -> Tensor:
    """Any tensor of a .pt, .safetensors, .npy or .png file."""
    if not path.is_file():
        raise PrivflError(f"there is no file {str(path)!r}")
    if path.suffix == ".png":
        return _tiles(path)
    if path.suffix == ".npy":
        try:
            pixels = np.load(path, allow_pickle=False).astype(np.float32)
        except (ValueError, TypeError, EOFError, OSError):
            raise PrivflError(f"{path.name} is no array of numbers that numpy.save wrote") from None
        return torch.as_tensor(pixels, device="cpu")
    return _one(path)


def _one(path: Path) -> Tensor:
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        held = None
    if isinstance(held, Tensor):
        return held
    found = read_tensors(path)
    tensors = list(found.values()) if isinstance(found, dict) else found
    if len(tensors) > 1 and all(t.shape == tensors[0].shape for t in tensors):
        return torch.stack(list(tensors))
    if len(tensors) != 1:
        raise PrivflError(f"{path.name} must hold one tensor of images; it holds {len(tensors)}")
    return tensors[0]


def _tiles(path: Path) -> Tensor:
    """A picture cut in tiles of 28 × 28, row by row, without gaps between them."""
    _, high, wide = SHAPE
    try:
        pixels = np.asarray(Image.open(path).convert("L"), dtype=np.float32) / 255
    except (OSError, ValueError):
        raise PrivflError(f"{path.name} is no picture") from None
    if pixels.shape[0] % high or pixels.shape[1] % wide:
        size = f"{pixels.shape[1]} × {pixels.shape[0]}"
        raise PrivflError(f"{path.name} must be a grid of {wide} × {high} tiles, not {size} pixels")
    rows = torch.tensor(pixels, device="cpu").unfold(0, high, high).unfold(1, wide, wide)
    return rows.reshape(-1, *SHAPE)


def _shaped(found: Tensor, count: int, path: str) -> Tensor:
    pixels = count * int(np.prod(SHAPE))
    grid = path.endswith(".png") and found.numel() >= pixels  # the last row may not be full
    if not grid and (found.numel() != pixels or found.is_complex()):
        sides = " × ".join(map(str, SHAPE))
        raise PrivflError(
            f"{path} must hold {count} images of {sides}; it holds {tuple(found.shape)}"
        )
    return found.flatten()[:pixels].view(count, *SHAPE)
