"""Files that are whole or not there, and noticed when they are damaged. Imports nothing slow.

A file is written beside its place, under a name that no other process uses, and moved there in one
step: whoever reads sees the old one or the new one. A record is a JSON object with a field
``sha256`` over all others, so that a changed number does not pass for the one that was computed.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from .errors import PrivflError

PROBE = 65536  # bytes that must fit before the work begins


def _beside(path: Path) -> Path:
    """A name for the time of writing, in the same folder: of this process and this call alone."""
    return path.with_name(f".{path.name[:80]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _left_by_others(path: Path) -> Iterator[Path]:
    """What was half-written of ``path`` and of its part, and nothing of files with like names."""
    for name in (path.name, path.with_suffix(f".part{path.suffix}").name):
        yield from path.parent.glob(f".{glob.escape(name[:80])}.[0-9]*-{'[0-9a-f]' * 8}.tmp")


def _write(path: Path, data: bytes, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # some file systems find out only now that they are full


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file()


def check_writable(path: Path, make_folder: bool = False) -> None:
    """Say now, and not after the work, that ``path`` cannot be written."""
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.absolute().parent.is_dir():
            raise PrivflError(f"{path}: the folder {path.parent} does not exist")
        if path.is_dir():
            raise PrivflError(f"{path} is a folder, not a file")
        if path.exists() and not os.access(path, os.W_OK):
            raise PrivflError(f"{path} cannot be written (it is read-only)")
        if not _is_device(path):
            with _removed(_beside(Path(os.path.realpath(path)))) as probe:
                _write(probe, bytes(PROBE), 0o600)
    except OSError as error:
        raise PrivflError(f"{path} cannot be written ({error.strerror})") from None


@contextlib.contextmanager
def _removed(path: Path) -> Iterator[Path]:
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def write(path: Path, data: bytes, lost: str = "", private: bool = False) -> None:
    """Write a whole file; ``private``: only its owner may read it.

    If that fails (a full disk), nothing partial is left, ``lost`` is printed, and a PrivflError
    says so.
    """
    try:
        path = Path(os.path.realpath(path))  # a link stays one
        if _is_device(path):
            with path.open("wb", buffering=0) as file:
                file.write(data)
            return
        with _removed(_beside(path)) as part:
            _write(part, data, 0o600 if private else 0o666)
            os.replace(part, path)
    except OSError as error:
        if lost:
            print(lost)
        kept = "what it would hold is printed above; " if lost else ""
        raise PrivflError(
            f"{path} could not be written ({error.strerror}); {kept}no part of it is left"
        ) from None


def digest(content: dict) -> str:
    """SHA-256 of a JSON object, however its file is laid out."""
    return _digest(json.loads(json.dumps(content)))  # keys are text from here on


def _digest(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_record(path: Path, content: dict, lost: str = "") -> None:
    """Write a JSON object and its digest; ``lost`` as in ``write``."""
    record = {**content, "sha256": digest(content)}
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    write(path, text.encode(), lost)


def read_record(path: Path, remedy: str) -> dict:
    """What ``write_record`` wrote, or one sentence with the remedy if it is not that any more."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError
        stored = content.pop("sha256", None)
        good = stored == _digest(content)
    except (ValueError, RecursionError):  # no UTF-8, no JSON, no object
        raise PrivflError(f"{path.name} is damaged; {remedy}") from None
    except OSError as error:
        raise PrivflError(f"{path} cannot be read ({error.strerror})") from None
    if not good:
        raise PrivflError(f"{path.name} is damaged: it does not match its own SHA-256; {remedy}")
    return content


@contextlib.contextmanager
def alone(path: Path, what: str) -> Iterator[bool]:
    """Inside, no other process works on ``path``; true if this one had to wait for another.

    The operating system holds the lock and drops it when its process ends in whatever way, so no
    stale lock exists. What processes that were killed left half-written is removed.
    """
    import filelock

    lock = filelock.FileLock(path.with_name(f".{path.name}.lock"))
    file, waited = Path(lock.lock_file), False
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        waited, owner = True, ""
        with contextlib.suppress(OSError):
            owner = file.read_text()
        if owner == str(os.getpid()):
            raise PrivflError(f"{what} is being worked on by this process already") from None
        what += f" (process {owner or 'unknown'})"
        print(f"another process works on {what}; waiting until it is done", file=sys.stderr)
        lock.acquire()
    try:
        file.write_text(str(os.getpid()))
        for left in _left_by_others(path):
            left.unlink(missing_ok=True)
        yield waited
    finally:
        with contextlib.suppress(OSError):  # Windows deletes no open file
            file.unlink(missing_ok=True)
        lock.release()
