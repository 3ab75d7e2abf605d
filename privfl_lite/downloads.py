"""How the sets that need a network are had: one reader each, for torchvision or scikit-learn.

A reader turns a download into the tensors that ``assets`` caches; the registry copies and the cache
itself are there. Every download is silent, quick to fail, and not tried again within a minute.

torchvision checks what it downloads by MD5, and takes SVHN and Fashion-MNIST by plain http. So the
files are compared with ``SHA256`` as well, and nothing is kept of one that differs. scikit-learn
checks LFW by SHA-256 itself.
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

# fmt: off
SHA256 = {  # torchvision's class: file -> SHA-256, as torchvision's own prototype of 2022 has them
    "MNIST": {
        "train-images-idx3-ubyte.gz":
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz":
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz":
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz":
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
    "FashionMNIST": {
        "train-images-idx3-ubyte.gz":
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz":
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz":
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz":
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"},
    "CIFAR10": {
        "cifar-10-python.tar.gz":
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"},
    "CIFAR100": {
        "cifar-100-python.tar.gz":
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"},
    "SVHN": {
        "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"},
    "CelebA": {
        "img_align_celeba.zip": "46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
        "list_attr_celeba.txt": "f0e5da289d5ccf75ffe8811132694922b60f2af59256ed362afa03fefba324d0",
        "list_eval_partition.txt":
            "fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7"},
    "TinyImageNet": {  # torchvision has no such class
        "tiny-imagenet-200.zip":
            "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"},
}
# fmt: on


def _compare_hashes(work: Path, kind: str) -> None:
    """Every file that is pinned must be there, and be the one that was pinned."""
    for name, sha256 in SHA256.get(kind, {}).items():
        found = {assets.sha256(path) for path in work.rglob(name)}
        if found != {sha256}:
            raise PrivflError(f"{name} does not have the expected sha256")


def _download(origin: str, kind: str, read: Callable[[Path], assets.Files]) -> assets.Source:
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
                _compare_hashes(work, kind)
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

    return _download("torchvision", kind, read)


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
    archive = "https://cs231n.stanford.edu/tiny-imagenet-200.zip"
    datasets.utils.download_url(archive, work)
    _compare_hashes(work, "TinyImageNet")
    datasets.utils.extract_archive(work / "tiny-imagenet-200.zip")
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
    "lfw": ((2801, 934), "`faces`", _download("scikit-learn", "LFW", _lfw)),
    "celeba": ((162770, 19962), "`faces`", _download("torchvision", "CelebA", _celeba)),
    "tinyimagenet": (
        (100000, 10000),
        "`photos`",
        _download("torchvision", "TinyImageNet", _tinyimagenet),
    ),
}
