"""What studies made: tables and trained weights, shipped with the package or made by the reader.

``privfl_lite/results`` is package data: a JSON file for each study, the ledger, and in ``weights``
the networks we trained (16-bit safetensors with digests of their own, under 2 MB each; larger ones
lie in the cache). A study that the reader runs writes into ``results`` where they are, or into
``PRIVFL_RESULTS``, in the same order; what stands there is preferred to what was shipped.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from . import disk
from .runtime import PrivflError, choose

SHIPPED = Path(str(files(__package__) / "results"))


def own() -> Path:
    """The reader's own folder of results: ``PRIVFL_RESULTS``, else ``results`` where they are."""
    return Path(os.environ.get("PRIVFL_RESULTS") or "results").expanduser().absolute()


def find(name: str) -> Path:
    """The reader's own file of this name, such as ``dcs2/attack.json``, else the shipped one."""
    mine, shipped = own() / name, SHIPPED / name
    if not mine.is_file() or (shipped.exists() and mine.samefile(shipped)):
        return shipped
    _say_once(f"{name}: your own, from {mine.parent}, in place of the one that was shipped")
    return mine


@lru_cache(maxsize=64)
def _say_once(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def benchmark(row: str) -> dict[str, Any]:
    """A row of the last ``make bench``: ``value``, its ``quartiles``, against what, and the aim."""
    rows = json.loads(find("benchmark.json").read_text(encoding="utf-8"))["rows"]
    return rows[choose("row of the benchmark", row, rows)]


def digest(state: dict[str, Tensor]) -> str:
    """SHA-256 over the names and values of all tensors, in order of their names."""
    sha = hashlib.sha256()
    for name in sorted(state):
        sha.update(name.encode() + state[name].cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()


def identity(value: object) -> str:
    """Settings as a text that is the same exactly when they are: tensors by their digest."""
    if isinstance(value, Tensor):
        return f"tensor {digest({'': value})[:16]}"
    if isinstance(value, nn.Module):
        return f"{type(value).__name__} {digest(value.state_dict())[:16]}"
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: getattr(value, f.name) for f in fields(value)}
        return f"{type(value).__name__}({identity(held)})"
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={identity(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(identity, value))}]"
    return repr(value)


def save(net: nn.Module, path: Path, about: dict[str, str]) -> str:
    """Store a network's weights and buffers, and how they were made; returns their digest."""
    state = {n: t.detach().cpu().contiguous() for n, t in net.state_dict().items()}
    state = {n: t.half() if t.is_floating_point() else t for n, t in state.items()}
    about = {**about, "sha256": digest(state)}
    disk.check_writable(path, make_folder=True)
    disk.write(path, to_bytes(state, {**about, "about_sha256": disk.digest(about)}))
    return about["sha256"]


def read_tensors(path: str | Path) -> dict[str, Tensor] | list[Tensor]:
    """Tensors by name, or a list of them, from the user's own ``.pt`` or ``.safetensors`` file.

    Nothing but tensors is read: a file that would run code, as a pickled module does, is refused.
    """
    path = Path(path)
    if not path.is_file():
        raise PrivflError(f"there is no file {str(path)!r}")
    if path.suffix != ".safetensors" and not _whole(path):
        raise PrivflError(f"{path.name} is damaged: it does not match its own checksums")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        held = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise PrivflError(
            f"{path.name} is damaged or holds more than tensors, which could run code; "
            "save a dict or list of tensors, such as model.state_dict()"
        ) from None
    except Exception:  # torch.load fails in many ways: a text is an IndexError
        raise PrivflError(f"{path.name} is no file of torch.save or safetensors") from None
    values = (
        held.values()
        if isinstance(held, Mapping)
        else held
        if isinstance(held, list | tuple)
        else ()
    )
    if not values or not all(isinstance(t, Tensor) for t in values):
        raise PrivflError(f"{path.name} must hold a dict of tensors by name, or a list of tensors")
    return dict(held) if isinstance(held, Mapping) else list(held)


def _whole(path: Path) -> bool:
    """Whether all in a ``.pt`` file has the checksum that ``torch.save`` wrote; load looks at none.

    Files of the form before PyTorch 1.6, no archives, have none.
    """
    try:
        if not zipfile.is_zipfile(path):
            return True
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:  # a damaged archive fails in many ways
        return False


def fill(net: nn.Module, path: Path, study: str) -> dict[str, str]:
    """Put stored weights into a network of their shapes; returns how they were made.

    A file that is missing, damaged or of another network is refused, with the command that makes
    it again.
    """
    remedy = f"make it again with: privfl study run {study}"
    if not path.is_file():
        raise PrivflError(f"the weights {path.name} are missing; {remedy}")
    try:
        with safe_open(path, "pt") as file:
            state, about = load_file(path), file.metadata() or {}
    except (SafetensorError, OSError, ValueError, KeyError):
        raise PrivflError(f"{path.name} is damaged; {remedy}") from None
    described = about.pop("about_sha256", None)
    if digest(state) != about.get("sha256") or disk.digest(about) != described:
        raise PrivflError(f"{path.name} does not match its own SHA-256; {remedy}")
    own = net.state_dict()
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in state.items()}:
        raise PrivflError(f"{path.name} holds weights of another network; {remedy}")
    with torch.no_grad():
        for name, t in own.items():
            t.copy_(state[name])
    return about


def is_written(value: Any, text: str) -> bool:
    """Whether a setting is written so: text as it is, all else as in JSON, 20 also for 20.0."""
    if isinstance(value, str):
        return value == text
    try:
        written = json.loads(text)
    except ValueError:
        return False
    return isinstance(written, bool) == isinstance(value, bool) and written == value
