"""Shared by all tests: cut off from the machine (hermetic.py), fixed seeds, and the markers.

What truly needs a data set or weights that come with no package asks the fixture ``asset`` for
them, and is skipped with a sentence; where others of the same shapes will do, ``stand_ins``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import hermetic  # noqa: F401  (first)
import pytest
import torch
from chromium import open_browser
from stand_ins import in_place

import privfl_lite as pf

torch.set_num_threads(1)

collect_ignore = ["flower"]  # they need Flower: unit/test_flower.py runs them where it is

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


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bool]:
    """CIFAR-10 and LPIPS weights, or, where they are not at hand, others of the same shapes.

    True if they are the real ones. The others are gone when the module is done.
    """
    if {pf.assets.status()[name] for name in ("cifar10", "lpips")} == {"ready"}:
        yield True
        return

    with in_place(tmp_path_factory.mktemp("stand-ins"), ("cifar10", "lpips")):
        yield False


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


@pytest.fixture
def bar_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """bar_clock(step): show progress bars, whose clock goes on by ``step`` seconds at every look.

    So whether a bar shows up depends on the number of steps, not on how quick this machine is.
    """

    def start(step: float) -> None:
        now = count(0, step)
        monkeypatch.delenv("PRIVFL_PROGRESS", raising=False)
        monkeypatch.setattr("tqdm.std.time", lambda: next(now))

    return start


@pytest.fixture(scope="module")
def chromium():
    """A headless browser. One at a time in a process, and gone when its module is done: while it
    lives, an event loop runs that nothing else may start beside."""
    with open_browser() as browser:
        yield browser
