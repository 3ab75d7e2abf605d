"""The parts of the instructor guide that come from data (scripts/editions/teaching.py).

``{goals}`` is a table of what students can do, and where that is taught and shown;
``{plan} ten-weeks`` a plan of a course with its minutes; ``{misconceptions}`` what students
believe, and the words of the check that catches it. Written as Markdown, so that links and numbers
are those of the book.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from editions.teaching import Exercise, Lab, Unit

ROOT = Path(__file__).resolve().parents[2]
LABS = "https://github.com/privfl-lite/privfl_lite/blob/main/labs/src"


def source() -> Any:
    """The editions are imported when a page asks for them, and not before."""
    if str(ROOT / "scripts") not in sys.path:
        sys.path.append(str(ROOT / "scripts"))
    from editions import teaching

    return teaching


def chapter(slug: str) -> str:
    return f"{{numref}}`chapter-{slug}`"


def exercise(label: str, task: Exercise) -> str:
    return f"{{ref}}`{task.name} <{label}>` {'★' * task.stars}"


def sheet(lab: Lab) -> str:
    return f"[{lab.title}]({LABS}/{lab.slug}.md)"


def hours(minutes: int) -> str:
    """Minutes in quarters of an hour: "2 h 15 min"."""
    whole, rest = divmod(5 * round(minutes / 5), 60)
    return " ".join(filter(None, [f"{whole} h" if whole else "", f"{rest} min" if rest else ""]))


def grid(heads: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["", *(f"| {' | '.join(cells)} |" for cells in lines), ""]


def goals() -> list[str]:
    teaching = source()
    tasks, sheets = teaching.exercises(ROOT), teaching.labs(ROOT)
    rows = []
    for number, goal in enumerate(teaching.read_teaching(ROOT)["goals"], 1):
        where = ", ".join(map(chapter, goal["chapters"]))
        shown = "; ".join(exercise(label, tasks[label]) for label in goal["exercises"])
        graded = [sheet(sheets[slug]) for slug in goal["labs"]]
        graded += [f"challenge {{doc}}`{name} <challenges>`" for name in goal.get("challenges", [])]
        rows.append([str(number), goal["can"], where, shown, "; ".join(graded)])
    return grid(["", "Students can", "Taught in", "Practiced by", "Lab and challenges"], rows)


def week(unit: Unit) -> list[str]:
    reading = [f"study {chapter(s.slug)}" for s in unit.read]
    reading += [f"skim {chapter(s.slug)}" for s in unit.skim]
    tasks = "; ".join(exercise(e.label, e) for e in unit.do)
    homework = ". ".join(filter(None, [", ".join(reading), tasks, unit.lab and sheet(unit.lab)]))
    return [unit.name, unit.about, homework or "–", hours(unit.together), hours(unit.minutes)]


def plan(label: str) -> list[str]:
    found = source().plans(ROOT)[label]
    whole = hours(sum(unit.minutes for unit in found.units))
    heads = ["", "Together", "To read and do", "In class", "In all"]
    return [
        f"For {found.about}. In all about {whole}, reading, exercises and labs included.",
        *grid(heads, [week(unit) for unit in found.units]),
        f"**Skip:** {found.skip}.",
    ]


def misconceptions() -> list[str]:
    tasks = source().exercises(ROOT)
    rows = [
        [w["thinks"], w["but"], exercise(w["exercise"], tasks[w["exercise"]]), f"“{w['says']}”"]
        for w in source().read_teaching(ROOT)["misconceptions"]
    ]
    return grid(["Students think", "But", "Caught in", "by the words"], rows)


class FromData(SphinxDirective):
    """A directive whose content is written by one of the functions above."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        for path in ("book/teaching.yml", "_toc.yml", "book/map.yml"):
            self.env.note_dependency(str(ROOT / path))
        made = {"goals": goals, "plan": plan, "misconceptions": misconceptions}[self.name]
        lines = made(*self.arguments)
        box = nodes.container(classes=["pf-teaching"])
        self.state.nested_parse(StringList(lines, "book/teaching.yml"), 0, box)
        return [box]


def setup(app: Sphinx) -> dict[str, bool]:
    for name in ("goals", "plan", "misconceptions"):
        app.add_directive(name, FromData)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
