"""Importing this cuts tests off from the machine: new folders, no download, one thread.

Tests never see the cache of the machine they run on, nor results that somebody made there: both
folders are new and empty. ``make test-data`` fetches data and weights that come with no package,
and names the cache that holds them in ``PRIVFL_TEST_DATA``, which is then used instead.
Workers of pytest-xdist and the kernels of notebooks inherit all this by their environment.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def forbidden() -> Path:
    """The usual cache of this machine, which no test may read."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "privfl_lite").expanduser()


def _watch(event: str, arguments: tuple) -> None:
    """An audit hook: Python calls it before it opens any file."""
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(_usual):
        raise PermissionError(f"a test reads the cache of this machine: {arguments[0]}")


if "PYTEST_XDIST_WORKER" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="privfl-tests-")
    os.environ["PRIVFL_CACHE"] = os.environ.get("PRIVFL_TEST_DATA") or f"{_folder.name}/cache"
    os.environ["PRIVFL_RESULTS"] = f"{_folder.name}/results"
    os.environ["TORCH_HOME"] = f"{_folder.name}/torch"  # where LPIPS would look first
if not os.environ.get("PRIVFL_TEST_DATA"):
    _usual = f"{forbidden()}{os.sep}"
    sys.addaudithook(_watch)
os.environ.setdefault("PRIVFL_OFFLINE", "1")
os.environ.setdefault("PRIVFL_PROGRESS", "0")  # on a slow machine a bar may show up
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
