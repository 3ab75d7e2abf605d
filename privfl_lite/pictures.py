"""Small pictures as text, to store in results and to show on pages."""

from __future__ import annotations

import base64
import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .metrics import as_image


def pack(image: Tensor) -> str:
    """A gray image (1, H, W) as PNG of 16 grays in base64."""
    file = io.BytesIO()
    grays = (15 * as_image(image)[0]).round().byte() * 17
    Image.fromarray(grays.cpu().numpy()).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def pack_color(image: Tensor) -> str:
    """An image (C, H, W) as PNG in base64, in color if it has three channels, else its mean."""
    file = io.BytesIO()
    x = as_image(image) if len(image) == 3 else as_image(image).mean(0, keepdim=True)
    pixels = (255 * x).round().byte().cpu().permute(1, 2, 0).numpy()
    Image.fromarray(pixels if len(x) == 3 else pixels[..., 0]).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def packed(images: Tensor) -> list[str]:
    """The first four of images (N, C, H, W), in gray."""
    return [pack(image.mean(0, keepdim=True)) for image in images[:4]]


def unpack(text: str) -> Tensor:
    """The image (1, H, W) in [0, 1] that ``pack`` wrote.

    Some stored results have a hexadecimal digit a pixel instead, 0 black and f white; their images
    are square.
    """
    if text.startswith("iVBOR"):  # PNG
        pixels = np.array(Image.open(io.BytesIO(base64.b64decode(text))).convert("L"))
        return torch.from_numpy(pixels)[None].float() / 255
    side = int(len(text) ** 0.5)
    return torch.tensor([int(v, 16) / 15 for v in text]).view(1, side, side)


def unpack_color(text: str) -> Tensor:
    """The image (3, H, W) in [0, 1] that ``pack_color`` wrote."""
    pixels = np.array(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB"))
    return torch.as_tensor(pixels, device="cpu").permute(2, 0, 1).float() / 255
