"""The API page has every public name, and reads docstrings as they are meant."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from chromium import ROOT, shared_site
from sphinx.util.inventory import InventoryFile

import privfl_lite as pf

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import api_page

PAGE = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
MODULES = re.findall(r"^\.\. automodule:: (\S+)$", PAGE, re.MULTILINE)
OFFERED = ("data", "models", "wire", "privacy", "defenses", "federated", "attacks", "metrics")


def public(module: ModuleType) -> dict[str, object]:
    """What a module offers: ``__all__``, else the functions and classes that it defines."""
    if hasattr(module, "__all__"):
        return {name: getattr(module, name) for name in module.__all__}
    return {
        name: thing
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(thing) or inspect.isclass(thing))
        and thing.__module__ == module.__name__
    }


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """All Python names of the built book."""
    site = shared_site(tmp_path_factory)
    with (site / "objects.inv").open("rb") as file:
        found = InventoryFile.load(file, "", lambda base, path: path)
    return {name for kind, entries in found.items() if kind.startswith("py:") for name in entries}


def test_the_page_has_every_room_that_is_offered():
    assert {"privfl_lite", *(f"privfl_lite.{room}" for room in OFFERED)} <= set(MODULES)
    rooms = [thing.__name__ for thing in public(pf).values() if inspect.ismodule(thing)]
    inner = [t.__name__ for t in public(pf.attacks).values() if inspect.ismodule(t)]
    assert {*rooms, *inner} <= set(MODULES), (
        "a module of __all__ needs an automodule in book/api.md"
    )
    assert len(MODULES) == len(set(MODULES))


@pytest.mark.book
@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_the_page(module, listed):
    """Under the package or a room that comes first on the page, else under its own."""
    before = MODULES[: MODULES.index(module) + 1]
    for name, thing in public(import_module(module)).items():
        if inspect.ismodule(thing) or isinstance(thing, int | float):  # a constant of its code
            continue
        places = {f"{room}.{name}" for room in before}
        places.add(f"{getattr(thing, '__module__', '')}.{name}")
        assert places & listed, f"{module}.{name} is not on the API page"


def test_public_names_say_what_they_are():
    for module in MODULES:
        for name, thing in public(import_module(module)).items():
            if inspect.isfunction(thing) or inspect.isclass(thing):
                assert (thing.__doc__ or "").strip(), f"{module}.{name} has no docstring"


# --- how docstrings are read ---


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("each tensor is (K, *shape)", r"each tensor is (K, \*shape)"),
        ("``(K, *shape)`` and |x|", r"``(K, *shape)`` and \|x\|"),
        ("several ``Upload``s", r"several ``Upload``\ s"),
        ("the *mean* of (U, *shape) and *", r"the *mean* of (U, \*shape) and \*"),
        ("see :func:`partition`", "see :func:`partition`"),
        ("the weights w_ of x_hat", r"the weights w\_ of x_hat"),
    ],
)
def test_only_literals_and_roles_are_markup(text, read):
    assert api_page.as_written(text) == read


def test_code_and_tables_keep_their_form():
    assert api_page.paragraph(["    run = FedAvg()"]) == ["::", "", "        run = FedAvg()"]
    assert api_page.paragraph(["| a | b |"])[0] == "::"


@dataclass(frozen=True)
class Example:
    """A class as the package writes them."""

    kind: ClassVar[str] = "toy"
    rate: float = 0.5  # of what is dropped

    def run(self) -> None:
        pass

    def told(self) -> None:
        """This one is told."""


def test_settings_are_read_from_the_ends_of_their_lines():
    assert api_page.settings(Example) == {"rate": "of what is dropped"}
    assert api_page.declared(Example) == {"kind": "toy"}
    assert api_page.silent(Example) == ["run"]


def test_the_page_is_in_the_book():
    assert "book/api" in (ROOT / "_toc.yml").read_text(encoding="utf-8")
    assert Path(ROOT, "book", "api.md").is_file()
