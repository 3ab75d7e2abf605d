"""Copies of a chapter for students, instructors and JupyterLab: plain Markdown, not run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .chapter import HIDDEN, Cell, identify
from .executed import KERNEL, LANGUAGE
from .myst import Block, walk
from .numbers import Index
from .plain import Writer, call, quoted
from .reasons import reasons
from .times import fill

MOVING = ("explorable", "laboratory")
GRADED = re.compile(r"\b(Think|Prove)\b")
ABOUT = {
    "student": "Student edition of {page}: exercises without solutions. Run the next cell first, "
    "then the others from top to bottom.",
    "instructor": "Instructor edition of {page}: with solutions. Please do not publish it.",
    "full": "Full edition of {page} for JupyterLab: as it was run, with solutions folded. Run all "
    "before you change a cell.",
}
BY = "https://creativecommons.org/licenses/by/4.0/"
LICENSE = f"Text and figures: [CC BY 4.0]({BY}). Code: MIT license."


def make(slug: str, cells: list[Cell], index: Index, seconds: float, edition: str) -> dict:
    """The "student", "instructor" or "full" copy of a chapter."""
    writer = Writer(index, slug, edition)
    shown = list(contents(cells, writer))
    for cell in shown:
        if cell["cell_type"] == "markdown":
            cell["source"] = fill(cell["source"], cells, seconds)
    launch = next(cell for cell in shown if cell["cell_type"] == "code")
    shown.remove(launch)
    title, _, rest = shown[0]["source"].partition("\n")
    number = index.chapters[slug]
    name = f"Chapter {number}" if number else "the page"
    about = ABOUT[edition].format(page=f"[{name}]({index.page(slug)})")
    title = title.replace("# ", f"# {number}. " if number else "# ", 1)
    first = markdown(f"{title}\n\n*{about} {LICENSE}*")
    made = [first, launch, markdown(rest.strip("\n")), *shown[1:]]
    identify(slug, made)
    metadata = {"kernelspec": KERNEL, "language_info": LANGUAGE}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def contents(cells: list[Cell], writer: Writer) -> Iterator[dict]:
    """The cells of a copy: what is to be seen of each, and a caption below each figure."""
    exercises = {b.label: b.title for c in cells for b in walk(c.blocks) if "exercise" in b.name}
    graded = {b.title for c in cells for b in walk(c.blocks) if b.name == "grading"}
    solves = False
    for cell in cells:
        parts = []
        for block in cell.blocks:
            solves = (solves or block.name == "solution-start") and block.name != "solution-end"
            if writer.solutions or not solves:
                parts.append(writer.block(block))
            if block.name == "solution" and block.title not in graded:
                parts.append(place(block, exercises[block.title], writer))
            if block.name in MOVING and writer.edition == "full":
                yield from markdowns(parts)
                yield empty(call(block), {"tags": ["moving"]})
                parts = []
        yield from markdowns(parts)
        if cell.kind == "code" and (writer.solutions or not cell.solves):
            yield code(cell, writer)
            if cell.figure:
                yield markdown(caption(cell, writer))
            if cell.solves and writer.edition == "instructor":
                yield from markdowns([reasons(writer.slug, cell.source)])


def place(solution: Block, exercise: str, writer: Writer) -> str:
    """Room for the rubric of an exercise that people grade."""
    if writer.edition != "instructor" or not GRADED.search(exercise):
        return ""
    name = writer.index.find(solution.title).name
    return quoted(f"**Rubric for {name}.** Not written yet.")


def caption(cell: Cell, writer: Writer) -> str:
    number = writer.index.find(cell.figure["name"]).name
    return f"**{number}.** {writer.text(cell.figure['caption'])}"


def markdowns(parts: list[str]) -> Iterator[dict]:
    """One cell for all parts, or none if all are empty."""
    if text := "\n\n".join(part for part in parts if part):
        yield markdown(text)


def markdown(text: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code(cell: Cell, writer: Writer) -> dict:
    """A code cell that was not run. Plumbing is folded, in JupyterLab and in Colab."""
    source, metadata = cell.source, {}
    if cell.tags & HIDDEN or (cell.solves and writer.edition == "full"):
        metadata = {"cellView": "form", "jupyter": {"source_hidden": True}}
        source = f"# @title {headline(cell, writer.index)}\n{source}"
    if "solution" in cell.tags:
        metadata["tags"] = ["solution"]
    return empty(source, metadata)


def empty(source: str, metadata: dict) -> dict:
    """A code cell that was not run."""
    new = {"cell_type": "code", "metadata": metadata, "source": source}
    return {**new, "execution_count": None, "outputs": []}


def headline(cell: Cell, index: Index) -> str:
    """What stands in place of a folded cell."""
    if cell.solves:
        return f"Solution to {index.find(cell.solves).name}"
    if 'find_spec("privfl_lite")' in cell.source:
        return "Install the package where it is missing"
    return f"Draw {index.find(cell.figure['name']).name}" if cell.figure else "Folded code"
