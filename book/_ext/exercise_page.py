"""Two things on exercises, built from their sources, so that they are never stale.

``{exercise-table}``: all exercises as a table that readers sort and filter (tables.js), each linked
to its place; without a script it is a plain table in the order of the book. ``{exercise-count}``
counts them in a sentence. What is read is scripts/editions/exercises.py's.
"""

from __future__ import annotations

import sys
from collections import Counter
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from editions.exercises import Exercise

ROOT = Path(__file__).resolve().parents[2]
HEADS = ("Exercise", "Title", "Kind", "Stars", "Minutes", "Topic", "Chapter")
CHOSEN = ("Kind", "Stars", "Topic", "Chapter")  # tables.js makes a list of these to choose from
STARS = {1: "one idea", 2: "combine", 3: "build"}


def everything() -> list[Exercise]:
    """The editions are imported when a page asks for them, and not before."""
    if str(ROOT / "scripts") not in sys.path:
        sys.path.append(str(ROOT / "scripts"))
    from editions.exercises import exercises

    return list(exercises())


def html(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")


class Page(SphinxDirective):
    """Common to both: the page is built again when an exercise changes."""

    def found(self) -> list[Exercise]:
        found = everything()
        for slug in dict.fromkeys(e.slug for e in found):
            self.env.note_dependency(str(ROOT / "book" / "src" / f"{slug}.md"))
        for name in ("_toc.yml", "book/topics.yml"):
            self.env.note_dependency(str(ROOT / name))
        return found


class ExerciseTable(Page):
    def run(self) -> list[nodes.Node]:
        heads = "".join(f'<th scope="col"{self.marks(head)}>{head}</th>' for head in HEADS)
        start = (
            '<div class="pf-table pf-sortable pf-exercises" role="region" tabindex="0"'
            ' aria-label="All exercises"><table class="table">'
            f"<thead><tr>{heads}</tr></thead><tbody>"
        )
        made: list[nodes.Node] = [html(start)]
        for place, exercise in enumerate(self.found()):
            made += self.row(exercise, place)
        return [*made, html("</tbody></table></div>")]

    @staticmethod
    def marks(head: str) -> str:
        number = ' class="pf-number"' if head == "Minutes" else ""
        return number + (" data-choose" if head in CHOSEN else "")

    def row(self, e: Exercise, place: int) -> list[nodes.Node]:
        """One row; its title may hold a formula, so it is parsed."""
        title, _ = self.state.inline_text(e.title, self.lineno)
        link = f'<a href="{e.slug}.html#{e.label}">'
        hidden = f'<span class="pf-hidden"> {e.stars} of 3: {STARS[e.stars]}</span>'
        chapter = f"{e.number.partition('.')[0]} · {e.chapter}"
        after = (
            f'</a></td><td>{e.kind}</td><td data-value="{e.stars}" data-choice="{"★" * e.stars}">'
            f'<span aria-hidden="true">{"★" * e.stars}</span>{hidden}</td>'
            f'<td class="pf-number" data-value="{e.minutes}">{e.minutes}</td>'
            f'<td data-choice="{escape("|".join(e.topics))}">{escape(", ".join(e.topics))}</td>'
            f'<td data-value="{place}" data-choice="{escape(chapter)}">{escape(chapter)}</td></tr>'
        )
        before = f'<tr><th scope="row" data-value="{place}">{link}{e.number}</a></th><td>{link}'
        return [html(before), nodes.inline("", "", *title), html(after)]


class ExerciseCount(Page):
    def run(self) -> list[nodes.Node]:
        found = self.found()
        kinds, stars = Counter(e.kind for e in found), Counter(e.stars for e in found)
        by_kind = ", ".join(f"{kinds[k]} {k}" for k in ("Think", "Prove", "Code"))
        by_stars = ", ".join(f"{stars[n]} with {'★' * n}" for n in (1, 2, 3))
        hours = round(sum(e.minutes for e in found) / 60)
        said = f"{len(found)} exercises: {by_kind}; {by_stars}. All take about {hours} hours."
        return [nodes.paragraph("", said)]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("exercise-table", ExerciseTable)
    app.add_directive("exercise-count", ExerciseCount)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
