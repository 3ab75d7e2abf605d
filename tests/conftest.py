"""Shared by all tests: an empty cache, one thread, no download, fixed seeds, and the markers.

Tests never see the cache of the machine they run on, nor results that somebody made there: both
folders are new and empty. What truly needs a data set or weights that do not come with a package
asks the fixture ``asset`` for it, and is skipped with a sentence; ``make test-data`` fetches all
of them and says so with ``PRIVFL_TEST_DATA``, which is the cache folder to use instead.
"""

from __future__ import annotations

import os
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers and kernels inherit the folders
    _folder = tempfile.TemporaryDirectory(prefix="privfl-tests-")
    os.environ["PRIVFL_CACHE"] = os.environ.get("PRIVFL_TEST_DATA") or f"{_folder.name}/cache"
    os.environ["PRIVFL_RESULTS"] = f"{_folder.name}/results"
os.environ.setdefault("PRIVFL_OFFLINE", "1")  # notebooks inherit it: no test may download
os.environ.setdefault("PRIVFL_PROGRESS", "0")  # they too: on a slow machine a bar may show up
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

from collections.abc import Callable

import pytest
import torch
from browser import open_browser

import privfl_lite as pf

torch.set_num_threads(1)

MARKERS = {
    "notebook": "runs a notebook from top to bottom (nbval)",
    "book": "builds the whole book",
    "browser": "needs Chromium; skipped, with the reason, where there is none",
}


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cells that nbval collects, so that `-m "not notebook"` leaves them out."""
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker("notebook")


@pytest.fixture(scope="session")
def asset() -> Callable[[str], None]:
    """asset(name): go on if this data set or these weights are at hand, else skip, and say so."""

    def need(*names: str) -> None:
        for name in names:
            if pf.assets.status().get(name) != "ready":
                pytest.skip(f"needs {name}, which does not come with a package: make test-data")

    return need


@pytest.fixture
def seed() -> int:
    """A fixed seed, also set as torch's global one."""
    torch.manual_seed(0)
    return 0


@pytest.fixture(scope="session")
def digits() -> pf.data.Dataset:
    """MNIST at 14 × 14 pixels."""
    return pf.load("mnist", size=14)


@pytest.fixture(scope="session")
def batch(digits: pf.data.Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten of those digits and their labels."""
    return digits.sample(10, seed=1)


@pytest.fixture
def expect(capsys: pytest.CaptureFixture) -> Callable[[Callable, Callable, str], None]:
    """expect(check, answer, says): a check says this of an answer, "Right" or a hint."""

    def told(check: Callable, answer: Callable, says: str) -> None:
        passed, said = check(answer), capsys.readouterr().out
        assert passed is (says == "Right")
        assert said.startswith("Right." if passed else "Not yet") and says in said, said

    return told


@pytest.fixture
def refused() -> Callable[[Callable, str], None]:
    """refused(call, says): bad input is answered by one sentence."""

    def told(call: Callable, says: str) -> None:
        with pytest.raises(pf.PrivflError) as error:
            call()
        assert says in str(error.value) and "\n" not in str(error.value)

    return told


@pytest.fixture(scope="module")
def chromium():
    """A headless browser. One at a time in a process, and gone when its module is done: while it
    lives, an event loop runs that nothing else may start beside."""
    with open_browser() as browser:
        yield browser
