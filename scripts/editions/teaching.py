"""What the instructor guide says: goals, plans of a course, misconceptions, with minutes of today.

Goals, plans and misconceptions stand in ``book/teaching.yml`` by label; titles, numbers and minutes
are read off _toc.yml, the chapters, their exercises and the labs, so that the guide follows them.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from .chapter import ROOT, SOURCES, Cell, read, slugs
from .myst import EditionError, walk
from .paths import Stop, stops

TITLE = re.compile(r"(?P<stars>★+) (?P<kind>\w+), (?P<minutes>\d+) min\. (?P<name>.+)")
PART = re.compile(r"^## .*\((\d+) min\)", re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    label: str
    slug: str
    kind: str
    stars: int
    minutes: int
    name: str


@dataclass(frozen=True)
class Lab:
    slug: str
    title: str
    minutes: int


@dataclass(frozen=True)
class Unit:
    """One week, day or stretch of a plan."""

    name: str
    about: str
    together: int  # minutes in class
    read: tuple[Stop, ...] = ()
    skim: tuple[Stop, ...] = ()
    do: tuple[Exercise, ...] = ()
    lab: Lab | None = None

    @property
    def minutes(self) -> int:
        """All of it: together, reading, exercises, the lab."""
        reading = sum(s.study for s in self.read) + sum(s.skim for s in self.skim)
        exercises = sum(e.minutes for e in self.do)
        return self.together + reading + exercises + (self.lab.minutes if self.lab else 0)


@dataclass(frozen=True)
class Plan:
    label: str
    name: str
    about: str
    most: int
    skip: str
    units: tuple[Unit, ...] = field(default=())


def exercises(root: Path = ROOT) -> dict[str, Exercise]:
    """All exercises of the book by label, in order."""
    found = {}
    for slug in slugs(root):
        for cell in read(root / "book" / "src" / f"{slug}.md"):
            for block in walk(cell.blocks):
                if block.name in ("exercise", "exercise-start") and (m := TITLE.match(block.title)):
                    number = len(m["stars"]), int(m["minutes"])
                    found[block.label] = Exercise(block.label, slug, m["kind"], *number, m["name"])
    return found


def labs(root: Path = ROOT) -> dict[str, Lab]:
    """The labs of labs/src by slug, with the minutes that their parts add up to."""
    found = []
    for path in (root / "labs" / "src").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        title = re.search(r"^# Lab (\d+)\. (.+)$", text, re.MULTILINE)
        if not title:
            raise EditionError(f"{path.name} begins with no title such as “# Lab 1. Read off …”")
        minutes = sum(map(int, PART.findall(text)))
        found.append((int(title[1]), Lab(path.stem, f"Lab {title[1]}. {title[2]}", minutes)))
    return {lab.slug: lab for _, lab in sorted(found, key=lambda pair: pair[0])}


def read_teaching(root: Path = ROOT) -> dict[str, list[dict]]:
    return yaml.safe_load((root / "book" / "teaching.yml").read_text(encoding="utf-8"))


def plans(root: Path = ROOT) -> dict[str, Plan]:
    """The plans by label, everything that they name resolved."""
    chapters = {stop.slug: stop for stop in stops(root=root)}
    tasks, sheets = exercises(root), labs(root)

    def some(names: list[str], known: dict) -> tuple:
        if missing := [name for name in names if name not in known]:
            raise EditionError(f"book/teaching.yml names {missing[0]!r}, which is not in the book")
        return tuple(known[name] for name in names)

    found = {}
    for plan in read_teaching(root)["plans"]:
        units = []
        for unit in plan["units"]:
            ways = [some(unit.get(way, []), chapters) for way in ("read", "skim")]
            lab = some([unit["lab"]], sheets)[0] if "lab" in unit else None
            done = some(unit.get("do", []), tasks)
            units.append(Unit(unit["name"], unit["about"], unit["class"], *ways, done, lab))
        name = plan["label"], plan["name"], plan["about"], plan["most"], plan["skip"]
        found[plan["label"]] = Plan(*name, tuple(units))
    return found


def believed(wrong: dict, root: Path = ROOT) -> str:
    """Code that holds a misconception: the solution of its exercise, some words exchanged."""
    label = wrong["exercise"]
    cells = [c for c in read(SOURCES / f"{exercises(root)[label].slug}.md") if c.kind == "code"]
    around = [part for c in cells if c.solves != label for part in _parts(c, ast.Import)]
    solved = [part for c in cells if c.solves == label for part in _parts(c, ast.Assign)]
    said = "\n\n".join(part for part in solved if part.startswith(("def ", "_ = checks.")))
    for old, new in wrong["instead"]:
        if said.count(old) != 1:
            raise EditionError(f"{label}: {old!r} is not once in its solution")
        said = said.replace(old, new)
    return "\n\n".join([*around, said]) + "\n"


def _parts(cell: Cell, besides: type[ast.stmt]) -> list[str]:
    """The functions of a cell as they are written, and its imports or assignments."""
    kinds = (ast.FunctionDef, besides, *([ast.ImportFrom] if besides is ast.Import else []))
    found = [node for node in ast.parse(cell.source).body if isinstance(node, kinds)]
    return [ast.get_source_segment(cell.source, node) or "" for node in found]
