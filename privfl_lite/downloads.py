"""How the sets that need a network are had: one reader each, for torchvision or scikit-learn.

A reader turns a download into the tensors that ``assets`` caches; the registry copies and the cache
itself are there. Every download is silent, quick to fail, and not tried again within a minute.
"""

from __future__ import annotations

import contextlib
import io
import socket
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from . import assets
from .runtime import PrivflError, needs, torchvision


def _download(origin: str, read: Callable[[Path], assets.Files]) -> assets.Source:
    """A source from a reader that downloads: silent, quick to fail, not tried twice in a minute."""
    failed = -np.inf

    def source(work: Path) -> tuple[str, assets.Files]:
        nonlocal failed
        assets.require_network()
        if time.monotonic() - failed < 60:
            raise PrivflError(f"{origin} failed to download a moment ago")
        patience, silence = socket.getdefaulttimeout(), io.StringIO()
        socket.setdefaulttimeout(5)
        try:
            with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
                files = read(work)
                return f"{origin} {version(origin)}", files
        except Exception as error:
            failed = time.monotonic()
            raise PrivflError(f"{origin} says {error}") from error
        finally:
            socket.setdefaulttimeout(patience)

    return source


def _plain(kind: str, *splits: bool | str, classes: tuple[str, ...] = ()) -> assets.Source:
    """torchvision's MNIST (N, H, W), CIFAR (N, H, W, 3) and SVHN (N, 3, H, W) classes."""

    def read(work: Path) -> assets.Files:
        sets = [getattr(torchvision().datasets, kind)(work, s, download=True) for s in splits]
        parts = []
        for part in sets:
            x = torch.as_tensor(part.data)
            x = x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2) if x.shape[3] == 3 else x
            parts += [x, torch.as_tensor(part.labels if kind == "SVHN" else part.targets)]
        x_train, y_train, x_test, y_test = parts
        return assets.pack(x_train, y_train, x_test, y_test, classes or sets[0].classes)

    return _download("torchvision", read)


def _thumbnails(images: Iterable[Image.Image], size: int) -> Tensor:
    """The central squares of PIL images -> uint8 (N, 3, size, size)."""
    fit = (ImageOps.fit(i.convert("RGB"), (size, size), Image.Resampling.BILINEAR) for i in images)
    return torch.from_numpy(np.stack([np.asarray(i) for i in fit])).permute(0, 3, 1, 2)


def _celeba(work: Path) -> assets.Files:
    parts = []
    for split in ("train", "test"):
        part = torchvision().datasets.CelebA(work, split, download=True)
        parts += [_thumbnails((image for image, _ in part), 32)]
        parts += [part.attr[:, part.attr_names.index("Male")]]
    x_train, y_train, x_test, y_test = parts
    return assets.pack(x_train, y_train, x_test, y_test, ("not male", "male"))


def _lfw(work: Path) -> assets.Files:
    with needs("book"):
        from sklearn.datasets import fetch_lfw_people
        from sklearn.model_selection import train_test_split

    center = (slice(61, 189), slice(61, 189))  # 128 of 250 pixels
    people = fetch_lfw_people(
        data_home=work, min_faces_per_person=14, color=True, slice_=center, resize=0.25, n_retries=1
    )
    x = torch.from_numpy(people.images * 255).round().byte().permute(0, 3, 1, 2)
    y = torch.from_numpy(people.target)
    train, test = train_test_split(np.arange(len(y)), random_state=0, stratify=people.target)
    return assets.pack(x[train], y[train], x[test], y[test], people.target_names)


def _tinyimagenet(work: Path) -> assets.Files:
    datasets = torchvision().datasets
    archive = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
    md5 = "90528d7ca1a48142e341f4ef8d21d0de"
    datasets.utils.download_and_extract_archive(archive, work, md5=md5)
    root = work / "tiny-imagenet-200"
    train = datasets.ImageFolder(root / "train")
    words = dict(line.split("\t") for line in (root / "words.txt").read_text().splitlines())
    lines = (root / "val" / "val_annotations.txt").read_text().splitlines()
    names, labels = zip(*(line.split("\t")[:2] for line in lines), strict=True)
    x_test = _thumbnails((Image.open(root / "val" / "images" / name) for name in names), 64)
    y_test = torch.tensor([train.class_to_idx[label] for label in labels])
    x_train, y_train = _thumbnails((image for image, _ in train), 64), torch.tensor(train.targets)
    return assets.pack(x_train, y_train, x_test, y_test, [words[c] for c in train.classes])


def _debian_fashion(work: Path) -> tuple[str, assets.Files]:
    if not FASHION.is_dir():
        raise PrivflError("the Debian package dataset-fashion-mnist is not installed")
    classes = torchvision().datasets.FashionMNIST.classes
    return "Debian's dataset-fashion-mnist", assets.read_idx_set(FASHION, classes, ".gz")


FASHION = Path("/usr/share/datasets/fashion-mnist")  # of a Debian package
_mnist_full = _plain("MNIST", True, False, classes=assets.readers.DIGITS)
_fashion = _plain("FashionMNIST", True, False)
_svhn = _plain("SVHN", "train", "test", classes=assets.readers.DIGITS)
REMOTE: dict[
    str, tuple[Any, ...]
] = {  # name: (training and test images), stand-in, sources to try before a registry copy
    "mnist-full": ((60000, 10000), "`mnist`", _mnist_full),
    "fashion": ((60000, 10000), "`mnist`", _fashion, _debian_fashion),
    "cifar10": ((50000, 10000), "`photos`", _plain("CIFAR10", True, False)),
    "cifar100": ((50000, 10000), "`photos` or `cifar10`", _plain("CIFAR100", True, False)),
    "svhn": ((73257, 26032), "`mnist`", _svhn),
    "lfw": ((2801, 934), "`faces`", _download("scikit-learn", _lfw)),
    "celeba": ((162770, 19962), "`faces`", _download("torchvision", _celeba)),
    "tinyimagenet": ((100000, 10000), "`photos`", _download("torchvision", _tinyimagenet)),
}
