"""The student's and the instructor's copy of a chapter: notebooks in plain Markdown, not run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .chapter import HIDDEN, Cell, identify
from .executed import KERNEL, LANGUAGE
from .myst import Block, walk
from .numbers import Index
from .plain import Writer, quoted
from .reasons import reasons
from .times import fill

GRADED = re.compile(r"\b(Think|Prove)\b")
ABOUT = {
    False: "Student edition of [{name}]({page}): exercises without solutions. Run the next cell "
    "first, then the others from top to bottom.",
    True: "Instructor edition of [{name}]({page}): with solutions. Please do not publish it.",
}
BY = "https://creativecommons.org/licenses/by/4.0/"
LICENSE = f"Text and figures: [CC BY 4.0]({BY}). Code: MIT license."


def make(slug: str, cells: list[Cell], index: Index, seconds: float, solutions: bool) -> dict:
    """A copy of a chapter, with or without solutions."""
    writer = Writer(index, slug, solutions)
    shown = list(contents(cells, writer))
    for cell in shown:
        if cell["cell_type"] == "markdown":
            cell["source"] = fill(cell["source"], cells, seconds)
    launch = next(cell for cell in shown if cell["cell_type"] == "code")
    shown.remove(launch)
    title, _, rest = shown[0]["source"].partition("\n")
    number = index.chapters[slug]
    name = f"Chapter {number}" if number else "the page"
    about = ABOUT[solutions].format(name=name, page=index.page(slug))
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
            if writer.solutions and block.name == "solution" and block.title not in graded:
                parts.append(place(block, exercises[block.title], writer))
        if text := "\n\n".join(part for part in parts if part):
            yield markdown(text)
        if cell.kind == "code" and (writer.solutions or not cell.solves):
            yield code(cell, writer.index)
            if cell.figure:
                yield markdown(caption(cell, writer))
            if cell.solves and (said := reasons(writer.slug, cell.source)):
                yield markdown(said)


def place(solution: Block, exercise: str, writer: Writer) -> str:
    """Room for the rubric of an exercise that people grade."""
    if not GRADED.search(exercise):
        return ""
    name = writer.index.find(solution.title).name
    return quoted(f"**Rubric for {name}.** Not written yet.")


def caption(cell: Cell, writer: Writer) -> str:
    number = writer.index.find(cell.figure["name"]).name
    return f"**{number}.** {writer.text(cell.figure['caption'])}"


def markdown(text: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code(cell: Cell, index: Index) -> dict:
    """A code cell that was not run. Plumbing is folded, in JupyterLab and in Colab."""
    source, metadata = cell.source, {}
    if cell.tags & HIDDEN:
        metadata = {"cellView": "form", "jupyter": {"source_hidden": True}}
        source = f"# @title {headline(cell, index)}\n{source}"
    if "solution" in cell.tags:
        metadata["tags"] = ["solution"]
    new = {"cell_type": "code", "metadata": metadata, "source": source}
    return {**new, "execution_count": None, "outputs": []}


def headline(cell: Cell, index: Index) -> str:
    """What Colab shows in place of a folded cell."""
    if 'find_spec("privfl_lite")' in cell.source:
        return "Install the package where it is missing"
    return f"Draw {index.find(cell.figure['name']).name}" if cell.figure else "Folded code"
