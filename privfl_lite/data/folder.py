"""A folder of the reader's own pictures as a data set: ``load("folder:PATH")``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from ..runtime import PrivflError
from .dataset import Dataset, resize, split

PICTURES = (".png", ".jpg", ".jpeg")


def read_folder(path: Path, size: int | None) -> Dataset:
    """The user's own pictures; gray if all of them are. The source does not tell where they are."""
    if not path.is_dir():
        raise PrivflError(f"there is no folder {str(path)!r} to read pictures from")
    classes = sorted(d.name for d in path.iterdir() if d.is_dir() and _pictures(d))
    files = [(f, label) for label, name in enumerate(classes) for f in _pictures(path / name)]
    loose = _pictures(path)
    if bool(files) == bool(loose):
        what = "pictures beside folders of pictures" if files else "no pictures"
        raise PrivflError(
            f"the folder {path.name!r} holds {what}; give a folder for each class, or put all "
            f"pictures in one: {', '.join(PICTURES)}"
        )
    files = files or [(f, 0) for f in loose]
    opened = [_picture(f) for f, _ in files]
    mode = "L" if all(p.mode in ("1", "L") for p in opened) else "RGB"
    sizes = {p.size for p in opened}
    if size is None and len(sizes) > 1:
        (a, b), (c, d) = sorted(sizes)[:2]
        raise PrivflError(
            f"the pictures have different sizes, as {a} x {b} and {c} x {d}: give size="
        )
    x = torch.stack([_pixels(p.convert(mode), size) for p in opened])
    source = f"{len(files):,} pictures in {len(classes) or 1} classes, from a folder of your own"
    y = torch.tensor([label for _, label in files])
    return split("folder", x, y, classes or ("picture",), source)


def _pictures(folder: Path) -> list[Path]:
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in PICTURES and f.is_file())


def _picture(file: Path) -> Image.Image:
    """A picture as it is meant to stand (a camera may note that it lies on its side)."""
    try:
        with Image.open(file) as picture:
            upright = ImageOps.exif_transpose(picture)
            upright.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise PrivflError(f"{file.name} is no picture that can be read") from None
    if upright.mode[0] in "IF":  # converting would cut off at 255
        raise PrivflError(
            f"{file.name} has more than 8 bits a pixel ({upright.mode}); save it in 8"
        )
    return upright


def _pixels(picture: Image.Image, size: int | None) -> Tensor:
    """(C, H, W) in [0, 1]; with ``size``, the square in the middle, resized."""
    x = torch.from_numpy(np.array(picture)).float() / 255
    x = x[None] if x.dim() == 2 else x.permute(2, 0, 1)
    if size is None:
        return x
    side = min(x.shape[1:])
    top, left = ((n - side) // 2 for n in x.shape[1:])
    return resize(x[None, :, top : top + side, left : left + side], size, size)[0]
