"""A chapter as its source has it: cells, and which parts of them are solutions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import jupytext
import yaml

from .myst import Block, EditionError, parse

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "book" / "src"
HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}


@dataclass(frozen=True)
class Cell:
    """One cell. ``solves``: the label of the exercise that a code cell solves, else empty."""

    kind: str  # "markdown" or "code"
    source: str
    metadata: dict = field(default_factory=dict)
    solves: str = ""

    @property
    def tags(self) -> set[str]:
        return set(self.metadata.get("tags", []))

    @property
    def figure(self) -> dict:
        """Name and caption of the figure that the cell draws, if it says so."""
        return self.metadata.get("mystnb", {}).get("figure", {})

    @property
    def blocks(self) -> list[Block]:
        return parse(self.source) if self.kind == "markdown" else []


def slugs(root: Path = ROOT) -> list[str]:
    """The chapters that have a source, in the order of the book."""
    return [slug for slug, _ in pages(root) if (root / "book" / "src" / f"{slug}.md").is_file()]


def pages(root: Path = ROOT) -> list[tuple[str, bool]]:
    """(slug, numbered) of every page of _toc.yml, in order."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    found = [(toc["root"], False)]
    for part in toc["parts"]:
        found += [(page["file"], bool(part.get("numbered"))) for page in part["chapters"]]
    return [(name.removeprefix("book/"), numbered) for name, numbered in found]


def read(path: Path) -> list[Cell]:
    """The cells of a source. A code cell inside a gated solution must bear the tag ``solution``."""
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="md:myst")
    cells, solves = [], ""
    for raw in notebook.cells:
        kind = "code" if raw.cell_type == "code" else "markdown"
        cell = Cell(kind, raw.source, _plain(raw.metadata), solves if kind == "code" else "")
        if kind == "code" and bool(solves) != ("solution" in cell.tags):
            first = raw.source.strip().split("\n")[0]
            raise EditionError(
                f"{path.name}: tag `solution` and solution-start disagree at the cell {first!r}"
            )
        solves = gate(cell.blocks, solves)
        cells.append(cell)
    if solves:
        raise EditionError(f"{path.name}: the solution of {solves} has no solution-end")
    return cells


def gate(blocks: list[Block], solves: str) -> str:
    """The exercise whose gated solution is open after these blocks, or nothing."""
    for block in blocks:
        if block.name == "solution-start":
            solves = block.title
        elif block.name == "solution-end":
            solves = ""
    return solves


def _plain(metadata: object) -> dict:
    """Metadata as plain dictionaries."""
    if isinstance(metadata, dict):
        return {key: _plain(value) for key, value in metadata.items()}
    return metadata


def identify(slug: str, cells: list[dict]) -> None:
    """Give each cell an id that follows from its chapter and its text; repeats are counted."""
    seen: dict[str, int] = {}
    for cell in cells:
        digest = hashlib.sha256(f"{slug}\n{cell['cell_type']}\n{cell['source']}".encode())
        name = digest.hexdigest()[:12]
        seen[name] = seen.get(name, 0) + 1
        cell["id"] = name if seen[name] == 1 else f"{name}-{seen[name]}"
