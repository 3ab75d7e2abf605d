"""Sources of data and weights for tests where the real ones are not at hand: same shapes and names.

Each is an ``assets.Source``: given an empty folder, it returns what it is, and the files to keep.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from privfl_lite import assets, data

TRAIN, TEST, CLASSES = 25_800, 2_200, 10  # LODA calls training images from 25,000 on public
VGG16 = (64, 64, 128, 128, 256, 256, 256, *6 * (512,))
ALEXNET = ((64, 11), (192, 5), (384, 3), (256, 3), (256, 3))  # channels, size of the kernel


def cifar10(work: Path) -> tuple[str, assets.Files]:
    """Random tiles of the ten photographs, 32 × 32; the class is the photograph."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, TRAIN + TEST)
    x = np.empty((len(y), 32, 32, 3), np.uint8)
    for label, path in enumerate(data.embedded.PHOTOS.values()):
        photo = Image.open(data.embedded.bundled(path))
        scale = 256 / min(photo.size)
        pixels = np.array(photo.resize([round(scale * side) for side in photo.size]))
        tiles = np.lib.stride_tricks.sliding_window_view(pixels, (32, 32), (0, 1))
        rows = np.flatnonzero(y == label)
        top, left = (rng.integers(0, n, len(rows)) for n in tiles.shape[:2])
        x[rows] = tiles[top, left].transpose(0, 2, 3, 1)
    images, labels = torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(y)
    train, test = (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])
    return "a stand-in for tests", assets.pack(*train, *test, assets.readers.CIFAR10)


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
