"""All exercises of the book, as their sources have them: for the index page and for a test.

A title says kind, stars and minutes (``★★ Code, 15 min. The private mean``). Topics come from
book/topics.yml; a chapter that the file does not name has its own title as topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from .chapter import ROOT, read
from .myst import EditionError, walk
from .numbers import Index, read_index
from .paths import parts

KINDS = ("Think", "Prove", "Code")
TITLE = re.compile(rf"(★{{1,3}}) ({'|'.join(KINDS)}), (\d+) min\. (\S.*)")


@dataclass(frozen=True)
class Exercise:
    """One exercise; ``hints`` and ``solutions`` as texts, ``code`` the lines of its code cells."""

    label: str
    slug: str
    heading: str  # "★ Think, 5 min. A quotation"
    number: str = ""  # "9.1"
    chapter: str = ""  # its title
    stars: int = 0
    kind: str = ""
    minutes: int = 0
    title: str = ""
    topics: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    solutions: tuple[str, ...] = ()  # "block" or "cells"
    code: tuple[str, ...] = ()  # lines of the solution that do something
    stubs: tuple[str, ...] = field(default=(), repr=False)  # cells that ask a check


def told(exercise: Exercise) -> Exercise:
    """With what its heading says, or EditionError."""
    if not (said := TITLE.fullmatch(exercise.heading)):
        raise EditionError(
            f"{exercise.slug}: write the exercise {exercise.heading!r} as '★★ Code, 15 min. Title'"
        )
    stars, kind, minutes, title = said.groups()
    return replace(exercise, stars=len(stars), kind=kind, minutes=int(minutes), title=title.strip())


def lines(code: str) -> list[str]:
    """Lines of code that do something: no comment, and not the call of the check."""
    found = (line.strip() for line in code.split("\n"))
    return [f for f in found if f and not f.startswith("#") and "checks." not in f]


def of_chapter(slug: str, root: Path = ROOT) -> list[Exercise]:
    """The exercises of one chapter, in order, each with what belongs to it."""
    found: dict[str, Exercise] = {}
    last = ""
    for cell in read(root / "book" / "src" / f"{slug}.md"):
        if cell.kind == "code" and cell.solves:
            _add(found, cell.solves, code=tuple(lines(cell.source)))
        elif cell.kind == "code" and last and "checks.check_" in cell.source:
            _add(found, last, stubs=(cell.source,))
        for block in walk(cell.blocks):
            if block.name in ("exercise", "exercise-start"):
                last = block.label
                found[last] = Exercise(last, slug, block.title)
            elif block.name == "hint" and last:
                inside = " ".join(b.raw for b in block.body)
                _add(found, last, hints=(" ".join(inside.split()),))
            elif block.name in ("solution", "solution-start"):
                _add(found, block.title, solutions=("block" if block.body else "cells",))
    return [told(exercise) for exercise in found.values()]


def _add(found: dict[str, Exercise], label: str, **more: tuple[str, ...]) -> None:
    if label not in found:
        raise EditionError(f"a solution names the exercise {label!r}, which is not before it")
    old = found[label]
    found[label] = replace(old, **{key: getattr(old, key) + value for key, value in more.items()})


def exercises(index: Index | None = None, root: Path = ROOT) -> Iterator[Exercise]:
    """All of them, in the order of _toc.yml, with numbers and topics."""
    index, known = index or read_index(root), read_topics(root)
    for slug in [s for slugs in parts(root).values() for s in slugs]:
        for exercise in of_chapter(slug, root):
            topics = known.get(exercise.label, known.get(slug, [index.titles[slug]]))
            number = index.targets[exercise.label].number
            chapter = index.titles[slug]
            yield replace(exercise, number=number, chapter=chapter, topics=tuple(topics))


def read_topics(root: Path = ROOT) -> dict[str, list[str]]:
    """book/topics.yml: chapter or label -> topics. It may only use the topics that it lists."""
    found = yaml.safe_load((root / "book" / "topics.yml").read_text(encoding="utf-8"))
    topics, named = found["topics"], found["chapters"] | found["exercises"]
    for name, keys in named.items():
        if unknown := [key for key in keys if key not in topics]:
            raise EditionError(f"book/topics.yml: {name} has the topic {unknown[0]!r}, not listed")
    return {name: [topics[key] for key in keys] for name, keys in named.items()}
