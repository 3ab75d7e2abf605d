"""Sources of data and weights for tests where the real ones are not at hand: same shapes and names.

Each is an ``assets.Source``: given an empty folder, it returns what it is, and the files to keep.
``in_place`` puts some of them into a cache of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from privfl_lite import assets, data, downloads, metrics

COUNTS = {  # training and test images; LODA calls those of CIFAR-10 from 25,000 on public
    "cifar10": (25_800, 2_200),
    "cifar100": (48, 24),
    "svhn": (200, 100),
    "lfw": (300, 100),
    "mnist-full": (2_000, 1_000),
}
CLASSES = {
    "cifar10": assets.readers.CIFAR10,
    "cifar100": [f"class {k}" for k in range(100)],
    "svhn": assets.readers.DIGITS,
    "lfw": [f"person {k}" for k in range(20)],
    "mnist-full": assets.readers.DIGITS,
}
VGG16 = (64, 64, 128, 128, 256, 256, 256, *6 * (512,))
ALEXNET = ((64, 11), (192, 5), (384, 3), (256, 3), (256, 3))  # channels, size of the kernel


def images(name: str, work: Path) -> tuple[str, assets.Files]:
    """As many images as ``COUNTS`` says: random tiles of photographs, or the embedded digits."""
    (train, test), classes = COUNTS[name], CLASSES[name]
    if name == "mnist-full":
        digits = data.load("mnist")
        x = torch.cat([digits.x_train, digits.x_test]).mul(255).byte()
        y = torch.cat([digits.y_train, digits.y_test])
    else:
        x, y = tiles(train + test, len(classes))
    split = (x[:train], y[:train], x[train : train + test], y[train : train + test])
    return "a stand-in for tests", assets.pack(*split, classes)


def tiles(count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tiles of the ten photographs, 32 × 32; the last digit of a class is its photograph."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, count)
    x = np.empty((count, 32, 32, 3), np.uint8)
    for label, path in enumerate(data.embedded.PHOTOS.values()):
        photo = Image.open(data.embedded.bundled(path))
        scale = 256 / min(photo.size)
        pixels = np.array(photo.resize([round(scale * side) for side in photo.size]))
        windows = np.lib.stride_tricks.sliding_window_view(pixels, (32, 32), (0, 1))
        rows = np.flatnonzero(y % len(data.embedded.PHOTOS) == label)
        top, left = (rng.integers(0, n, len(rows)) for n in windows.shape[:2])
        x[rows] = windows[top, left].transpose(0, 2, 3, 1)
    return torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(y)


def lpips(work: Path) -> tuple[str, assets.Files]:
    """Backbones with random weights (He et al. 2015)."""
    rng = torch.Generator().manual_seed(0)

    def backbone(layers: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
        tensors, inputs = {}, 3
        for i, (outputs, size) in enumerate(layers):
            shape = (outputs, inputs, size, size)
            scale = (2 / (inputs * size * size)) ** 0.5
            tensors[f"conv{i}.weight"] = scale * torch.randn(shape, generator=rng)
            tensors[f"conv{i}.bias"] = torch.zeros(outputs)
            inputs = outputs
        return tensors

    files = {"alexnet.safetensors": list(ALEXNET), "vgg16.safetensors": [(n, 3) for n in VGG16]}
    return "a stand-in for tests", {file: backbone(layers) for file, layers in files.items()}


@contextmanager
def in_place(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """These stand-ins, and nothing else, in a cache of their own, until the end of the block."""

    def forget() -> None:
        data._load.cache_clear()
        metrics.perceptual._lpips_net.cache_clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVFL_CACHE", str(folder))
        forget()
        for name in names:
            if name == "lpips":
                assets.fetch(name, lpips)
                continue
            _, *rest = downloads.REMOTE[name]
            patch.setitem(downloads.REMOTE, name, (COUNTS[name], *rest))
            assets.fetch(name.removesuffix("-full"), lambda work, name=name: images(name, work))
        yield
    forget()
