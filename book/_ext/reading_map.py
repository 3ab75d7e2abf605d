"""The map on the first page: a drawing of all chapters that leads to them, and two ways through.

``{reading-map}`` draws each part as a line with its chapters as stations, from _toc.yml,
book/map.yml and the times of the sources (scripts/editions/paths.py). The short course is a second
line beside it. ``{hours}`course``` and ``{hours}`book``` are computed from the same.
"""

from __future__ import annotations

import sys
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

if TYPE_CHECKING:
    from editions.paths import Stop

ROOT = Path(__file__).resolve().parents[2]
WIDE, LEFT, LETTERS = 340, 56, 36  # width of a drawing, where its text begins, letters in a line
BOOK, COURSE = 34, 14  # x of the two lines
LINE, SMALL, GAP = 19, 16, 14  # heights: a line of a title, one of small type, between stations


def ways() -> list[Stop]:
    """All chapters. The editions are imported when a page asks for them, and not before."""
    if str(ROOT / "scripts") not in sys.path:
        sys.path.append(str(ROOT / "scripts"))
    from editions.paths import stops

    return stops(root=ROOT)


def numbers(found: tuple[str, ...]) -> str:
    return f"{'chapter' if len(found) == 1 else 'chapters'} {', '.join(found)}"


def said(stop: Stop) -> str:
    """A station in words, for those who do not see it."""
    way = f" In the short course: {stop.course} it." if stop.course else ""
    needs = f" Needs {numbers(stop.needs)}." if stop.needs else ""
    leads = f" Leads to {numbers(stop.leads)}." if stop.leads else ""
    times = f"Skim {stop.skim} minutes, study {stop.study}."
    return f"Chapter {stop.number}: {stop.title}. {times}{way}{needs}{leads}"


def small(stop: Stop) -> list[str]:
    """The lines below a title."""
    times = {way: f"{way} {getattr(stop, way)}" for way in ("skim", "study")}
    if stop.course:
        times[stop.course] = f'<tspan class="pf-way">{times[stop.course]}</tspan>'
    needs = f"needs {', '.join(stop.needs)}" if stop.needs else "needs nothing"
    leads = f" · leads to {', '.join(stop.leads)}" if stop.leads else ""
    return [f"{times['skim']} · {times['study']} min", needs + leads]


def station(stop: Stop, y: float) -> tuple[str, float]:
    """A chapter whose top is at y, as a link; and its height."""
    lines = textwrap.wrap(stop.title, LETTERS)
    middle = y + LINE / 2
    if stop.course:
        shape = f'<rect x="2" y="{middle - 12:g}" width="46" height="24" rx="12"/>'
    else:
        shape = f'<circle cx="{BOOK}" cy="{middle:g}" r="12"/>'
    x = (COURSE + BOOK) / 2 if stop.course else BOOK
    parts = [shape, f'<text class="pf-number" x="{x:g}" y="{middle + 5:g}">{stop.number}</text>']
    for i, line in enumerate(lines):
        at = f'x="{LEFT}" y="{y + 15 + LINE * i:g}"'
        parts.append(f'<text class="pf-title" {at}>{escape(line)}</text>')
    below = y + LINE * len(lines)
    for i, line in enumerate(small(stop)):
        parts.append(
            f'<text class="pf-small" x="{LEFT}" y="{below + 13 + SMALL * i:g}">{line}</text>'
        )
    kind = "pf-stop pf-in-course" if stop.course else "pf-stop"
    link = (
        f'<a class="{kind}" href="{stop.slug}.html" aria-label="{escape(said(stop), quote=True)}">'
    )
    return link + "".join(parts) + "</a>", LINE * len(lines) + 2 * SMALL + GAP


def draw(part: str, found: list[Stop]) -> str:
    """One part: its line, the course beside it, and its chapters."""
    y, drawn, middles = 4.0, [], []
    for stop in found:
        link, height = station(stop, y)
        drawn.append(link)
        middles.append(y + LINE / 2)
        y += height
    course = [m for m, stop in zip(middles, found, strict=True) if stop.course]
    lines = [f'<path class="pf-book" d="M{BOOK} {middles[0]:g}V{middles[-1]:g}"/>']
    if course:
        lines.append(f'<path class="pf-course" d="M{COURSE} {course[0]:g}V{course[-1]:g}"/>')
    name = escape(f"Part {part}: its chapters in order", quote=True)
    return (
        f'<div class="pf-part"><p class="pf-part-name">{escape(part)}</p>'
        f'<svg viewBox="0 0 {WIDE} {y:g}" role="group" aria-label="{name}">'
        f"{''.join(lines)}{''.join(drawn)}</svg></div>"
    )


def legend(course: int, book: int) -> str:
    """The two ways, with their hours."""

    def key(kind: str, shape: str, words: str) -> str:
        drawing = f'<svg class="pf-key {kind}" viewBox="0 0 48 24" aria-hidden="true">{shape}</svg>'
        return f"<li>{drawing} {words}</li>"

    pill = '<rect x="2" y="2" width="44" height="20" rx="10"/>'
    ring = '<circle cx="24" cy="12" r="10"/>'
    return (
        '<ul class="pf-legend">'
        + key("pf-in-course", pill, f"in the short course, about {course} hours")
        + key("", ring, f"only in the whole book, about {book} hours")
        + "</ul>"
    )


class ReadingMap(Directive):
    """``{reading-map}``, without arguments."""

    def run(self) -> list[nodes.Node]:
        env = self.state.document.settings.env
        found = ways()
        from editions.paths import coming, hours

        for path in ("_toc.yml", "book/map.yml", *(f"book/src/{s.slug}.md" for s in found)):
            env.note_dependency(str(ROOT / path))
        names = list(dict.fromkeys(stop.part for stop in found))
        drawn = [draw(name, [s for s in found if s.part == name]) for name in names]
        for name, what in coming(ROOT).items():
            words = f"Being written: {escape(what)}."
            drawn.append(
                f'<div class="pf-part pf-coming"><p class="pf-part-name">{escape(name)}</p>'
                f"<p>{words}</p></div>"
            )
        whole = f'<div class="pf-map">{"".join(drawn)}</div>'
        keys = legend(hours(found, "course"), hours(found, "book"))
        return [nodes.raw("", keys + whole, format="html")]


def say_hours(name, rawtext, text, lineno, inliner, options=None, content=None):
    """``{hours}`course``` or ``{hours}`book```: a whole number."""
    found = ways()
    from editions.paths import hours

    return [nodes.Text(str(hours(found, text)))], []


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("reading-map", ReadingMap)
    app.add_role("hours", say_hours)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
