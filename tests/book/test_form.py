"""The form of a chapter (WRITING): a picture first, little visible code, and code that fits."""

from __future__ import annotations

import json
import re

import pytest
from chapters import SLUGS, SOURCES, read
from checkout import BOOK

LATER = ("intro",)  # not in the second edition's form yet
SECOND = [slug for slug in SLUGS if slug not in LATER]
LINES, CELL, COLUMNS = 150, 16, 79
WORDS = 130  # before the first picture: a title and a hook
HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}


def visible(slug: str) -> list[list[str]]:
    """The lines of each code cell that a reader sees before the exercises."""
    found = []
    for cell in read(SOURCES / f"{slug}.md"):
        if cell.kind == "markdown" and re.search(r"^## Exercises", cell.source, re.M):
            break
        if cell.kind == "code" and not cell.tags & HIDDEN:
            found.append([line for line in cell.source.split("\n") if line.strip()])
    return found


@pytest.mark.parametrize("slug", SECOND)
def test_code_fits_the_page(slug):
    for cell in read(SOURCES / f"{slug}.md"):
        if cell.kind == "code":
            long = [line for line in cell.source.split("\n") if len(line) > COLUMNS]
            assert not long, long


@pytest.mark.parametrize("slug", SECOND)
def test_visible_code_is_the_idea_only(slug):
    cells = visible(slug)
    assert sum(map(len, cells)) < LINES
    assert all(len(cell) <= CELL for cell in cells), [c for c in cells if len(c) > CELL]


@pytest.mark.parametrize("slug", SECOND)
def test_the_first_screen_is_a_hook_and_a_picture(slug):
    words = 0
    for cell in read(SOURCES / f"{slug}.md"):
        if cell.figure or "{figure}" in cell.source:
            break
        if cell.kind == "code":
            assert "remove-cell" in cell.tags, "only cells that the page leaves out come first"
        words += len(cell.source.split()) if cell.kind == "markdown" else 0
    assert cell.kind == "markdown" or "remove-input" in cell.tags, "its code is not shown"
    assert words <= WORDS


@pytest.mark.parametrize("slug", SECOND)
def test_every_statement_is_said_in_words(slug):
    text = (SOURCES / f"{slug}.md").read_text(encoding="utf-8")
    statement = r"^(?P<m>[`:]{3,})\{prf:(?:theorem|proposition|lemma|corollary)\}.*?^(?P=m)$"
    bare = [m for m in re.finditer(statement, text, re.M | re.S) if not _said(text[m.end() :])]
    assert not bare, [m[0].split("\n")[0] for m in bare]


def _said(after: str) -> bool:
    """A sentence **In words:** follows before the next heading or statement, but for a proof."""
    until = re.split(r"^#|^[`:]{3,}\{prf:(?!proof)", after, maxsplit=1, flags=re.M)[0]
    return "**In words:**" in until


@pytest.mark.parametrize("slug", SECOND)
def test_there_is_an_example_by_hand(slug):
    assert "{prf:example}" in (SOURCES / f"{slug}.md").read_text(encoding="utf-8")


def in_columns(said: str) -> bool:
    """Whether three lines or more, one below the other, are held in columns by spaces."""
    wide = ["x" if re.search(r"\S {2,}\S", line) else " " for line in said.split("\n")]
    return "xxx" in "".join(wide)


@pytest.mark.parametrize("slug", SLUGS)
def test_tables_are_tables(slug):
    cells = json.loads((BOOK / f"{slug}.ipynb").read_text(encoding="utf-8"))["cells"]
    said = ["".join(o.get("text", "")) for c in cells for o in c.get("outputs", [])]
    assert not (found := [text for text in said if in_columns(text)]), found


def test_columns_are_noticed():
    assert in_columns("DP-SGD     4 dB  69%\nPrune      15 dB  82%\nATS   10 dB  14%")
    assert not in_columns("z = 1.00, error [0.25 0.  ]\nanother line\nequal:   True")
