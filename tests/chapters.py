"""Chapters as tests of editions see them: sources, student copies, and counts of formulas."""

from __future__ import annotations

import json
import re
import sys

from checkout import BOOK, ROOT
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

sys.path.insert(0, str(ROOT / "scripts"))
from editions.chapter import SOURCES, read, slugs
from editions.numbers import read_index

INDEX = read_index()
SLUGS = slugs()
MARKDOWN = MarkdownIt("commonmark").use(dollarmath_plugin, double_inline=True).enable("table")
RAW = re.compile(r"^[\s>]*(?:`{3,}|:{3,})\s*\{|\{[\w:]+\}`|^\([\w-]+\)=|^[\s>]*:\w+:|\{\{", re.M)
RUBRIC = r"^(?P<marks>[`:]{3,})\{grading\}.*?^(?P=marks)$"
ANSWER = r"^(?P<marks>[`:]{3,})\{(?:solution|grading)\}.*?^(?P=marks)$"
GATED = r"^`{3,}\{solution-start\}.*?\{solution-end\}\n`{3,}$"
CODE = r"^(?P<marks>`{3,})(?:\{code-cell\}|\w+$).*?^(?P=marks)$"


def student(slug: str) -> dict:
    return json.loads((BOOK / "student" / f"{slug}.ipynb").read_text(encoding="utf-8"))


def text(notebook: dict) -> str:
    """The Markdown cells of a notebook."""
    cells = [c for c in notebook["cells"] if c["cell_type"] == "markdown"]
    return "\n\n".join("".join(c["source"]) for c in cells)


def source(slug: str, answers: bool = False) -> str:
    """The text of a source without code and rubrics, and without solutions unless asked for."""
    found = (SOURCES / f"{slug}.md").read_text(encoding="utf-8").split("---\n", 2)[2]
    for pattern in ((RUBRIC,) if answers else (GATED, ANSWER)) + (CODE,):
        found = re.sub(pattern, "", found, flags=re.MULTILINE | re.DOTALL)
    return found


def formulas(markdown: str) -> list[str]:
    """The formulas that a plain renderer sees."""
    tokens = MARKDOWN.parse(markdown)
    found = [t for token in tokens for t in (token, *(token.children or []))]
    return [t.content for t in found if t.type.startswith("math")]


def rendered(notebook: dict) -> list[str]:
    """The formulas of all Markdown cells; the parts in <details> are Markdown of their own."""
    cells = [c for c in notebook["cells"] if c["cell_type"] == "markdown"]
    return [f for c in cells for f in formulas("".join(c["source"]))]


def written(slug: str, answers: bool = False) -> int:
    """The formulas in a source and its captions, counted by their dollars."""
    captions = [c.figure.get("caption", "") for c in read(SOURCES / f"{slug}.md")]
    whole = re.sub(r"`[^`\n]*`", "", "\n".join([source(slug, answers), *captions]))
    displayed = len(re.findall(r"\$\$", whole))
    return (displayed + len(re.findall(r"(?<!\\)\$", whole.replace("$$", "")))) // 2
