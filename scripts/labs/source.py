"""A lab's source as otter-assign's master notebook, with the data and the key of one class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import jupytext
import nbformat
import yaml

from privfl_lite.teach.labs.kit import lab_key, pack

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "labs" / "src"
CHAPTER = ROOT / "book" / "src" / "first-answers.md"  # its first code cell installs the package
FOLDED = {"cellView": "form", "jupyter": {"source_hidden": True}}
HOME = "https://github.com/privfl-lite/privfl_lite"
CONFIG = {  # what all labs have in common
    "init_cell": False,
    "export_cell": False,
    "run_tests": False,
    "tests": {"files": False, "ok_format": False},
    "generate": {"pdf": False, "show_hidden": False},
    "requirements": [f"privfl_lite[book,class] @ git+{HOME}"],
    "python_version": "3.12",
}
KEY = re.compile(r"\bKEY\b")


@dataclass(frozen=True)
class Question:
    """One question of a lab; ``written`` ones are graded by people, with the rubric."""

    name: str
    points: float
    written: bool


def slugs() -> list[str]:
    return sorted(path.stem for path in SOURCES.glob("*.md"))


def read(slug: str) -> nbformat.NotebookNode:
    return jupytext.read(SOURCES / f"{slug}.md", fmt="md:myst")


def module(slug: str):
    """The lab's cases and checks."""
    return import_module(f"privfl_lite.teach.labs.{slug.replace('-', '_')}")


def questions(slug: str) -> list[Question]:
    """All questions, in order; the points of a graded one are those of its tests."""
    found: list[Question] = []
    tests = 0.0
    for cell in read(slug).cells:
        if cell.cell_type == "raw" and cell.source.startswith("# BEGIN QUESTION"):
            said = yaml.safe_load(cell.source)
            found.append(Question(said["name"], said.get("points", 0), said.get("manual", False)))
            tests = 0.0
        if config := _config(cell.source):
            tests += config["points"]
            found[-1] = Question(found[-1].name, tests, False)
    return found


def _config(source: str) -> dict:
    """The configuration of a test cell."""
    said = re.match(r'""" # BEGIN TEST CONFIG\n(.*?)\n""" # END TEST CONFIG', source, re.DOTALL)
    return yaml.safe_load(said[1]) if said else {}


def master(slug: str, secret: str) -> nbformat.NotebookNode:
    """The notebook that otter-assign takes, for the class with this secret."""
    nb, key = read(slug), lab_key(secret, slug)
    first, *rest = nb.cells
    config = yaml.safe_dump({"name": slug, **CONFIG}, sort_keys=False)
    cells = [nbformat.v4.new_raw_cell(f"# ASSIGNMENT CONFIG\n{config}"), first, launch()]
    cells += [*data(slug, key), *rest]
    for cell in cells:
        if cell.cell_type == "raw" and cell.source.startswith("# BEGIN QUESTION"):
            cell.source += "\ncheck_cell: false"  # the visible check is a cell of its own
        if _config(cell.source):
            cell.source = KEY.sub(repr(key), cell.source)
    nb.cells = cells
    nb.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(nb.cells):
        cell["id"] = f"{slug}-{number}"
    return nb


def launch() -> nbformat.NotebookNode:
    """The cell that installs the package where it is missing, as in the chapters."""
    cells = jupytext.read(CHAPTER, fmt="md:myst").cells
    source = next(cell.source for cell in cells if cell.cell_type == "code")
    title = "# @title Install the package where it is missing\n"
    return nbformat.v4.new_code_cell(title + source, metadata=FOLDED)


def data(slug: str, key: str) -> Iterator[nbformat.NotebookNode]:
    """The cell with what this class captured, if the lab has such tensors."""
    if tensors := module(slug).handout(key):
        source = "# @title What your class captured: run this cell once\n"
        source += "from privfl_lite.teach.labs.kit import unpack\n\n"
        source += f'captured = unpack(r"""\n{pack(tensors)}\n""")\nprint(len(captured), "tensors")'
        yield nbformat.v4.new_code_cell(source, metadata=FOLDED)
