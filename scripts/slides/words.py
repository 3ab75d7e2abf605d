"""Slides of words and code: questions, goals, limits, summary, recall, exercises, code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from editions.chapter import Cell
from editions.myst import Block, walk

from .model import Slide
from .outline import Item, Section, printed, texts
from .setting import Piece, Setter, lead, sentences, signs

PREDICT = re.compile(r"\*\*(Predict|Guess)\.?\*\*\s*", re.S)
LIST = re.compile(r"^\s*([*+-]|\d+\.) ")
STARS = re.compile(r"^(?P<stars>★+) (?P<kind>[^,]+), (?P<minutes>\d+) min\. (?P<title>.+)$")
LIVE = ("laboratory", "explorable")
SAID = {
    "goals": "Read them out, and come back to them at the end.",
    "limits": "Ask for each of these who would have claimed the opposite after this lecture.",
    "summary": "Let somebody say each of these in words of their own before it is read.",
}
POINT = 180  # characters of a point of a list
MOST, MOST_COLUMNS = 16, 80  # lines of code, and of what it prints


def plain(kind: str, heading: str, section: Section, setter: Setter, **rest) -> Slide:
    return Slide(kind, setter.inline(heading), signs(heading), section.title, **rest)


# --- questions ---


def question(section: Section, at: int, setter: Setter, number: int) -> Slide:
    """A prediction, what it is about, and the answer on the next press of a key."""
    item = section.items[at]
    before, asked = PREDICT.split(item.text)[0].strip(), PREDICT.split(item.text)[-1]
    around = [before] if before else [i.text for i in section.items[max(0, at - 1) : at] if i.text]
    context = tail(" ".join(around), 300)
    pieces = setter.pieces(context) if signs(context) > 45 else []
    pieces += [marked(p, "ask") for p in setter.pieces(asked)]
    notes = ["<p>Let everybody decide before anything moves, and count the hands.</p>"]
    if live := next((i for i in section.items[at + 1 : at + 3] if shows(i)), None):
        notes.append(f"<p>Then show it: {address(live, setter)}.</p>")
    for item in section.items[at + 1 : at + 8]:
        if PREDICT.search(item.text):
            break
        if item.name == "dropdown" and "happens" in item.block.title.lower():
            answer = lead(" ".join(texts(item.block.body)[:1]), 3, 320)
            pieces += setter.pieces(answer, step=True)
            break
    return plain(
        "question", "What do you expect?", section, setter, pieces=tuple(pieces),
        notes=tuple(notes), weight=9 if section.role == "try" and number < 2 else 1.8,
    )  # fmt: skip


def tail(text: str, most: int) -> str:
    """The last two sentences of a paragraph, or the last one if they are long."""
    two = " ".join(sentences(text)[-2:])
    return two if signs(two) <= most else sentences(text)[-1]


def shows(item: Item) -> bool:
    """Whether an item moves on the page."""
    views = (o.get("data", {}) for o in item.outputs)
    return item.name in LIVE or any("widget-view" in key for data in views for key in data)


def address(item: Item, setter: Setter) -> str:
    name = f"explorable-{item.block.title}" if item.name == "explorable" else ""
    page = setter.index.page(setter.slug, name)
    return f'<a href="{page}">on the chapter’s page</a>'


def marked(piece: Piece, name: str) -> Piece:
    return Piece(f'<div class="{name}">{piece.html}</div>', piece.kind, round(piece.signs * 1.15),
                 piece.rows, piece.tall + 1.7)  # fmt: skip


# --- lists ---


def bullets(
    kind: str, heading: str, section: Section, setter: Setter, found: Sequence[str], weight: float
) -> Slide | None:
    """Lists as they stand; what follows the first sentences of a long point is spoken."""
    pieces, notes = [], []
    for text in found:
        for point in points(text):
            short = lead(point, 3, POINT)
            mark = "* " if LIST.match(text) else ""
            pieces += setter.pieces(mark + short)
            if rest := " ".join(sentences(point)[len(sentences(short)) :]):
                notes.append(setter.html(rest))
    if not pieces:
        return None
    notes = notes or [f"<p>{SAID[kind]}</p>"]
    given = {"pieces": tuple(pieces), "notes": tuple(notes), "weight": weight}
    return plain(kind, heading, section, setter, **given)


def points(text: str) -> Iterator[str]:
    """The items of a list as paragraphs, or the paragraph."""
    if not LIST.match(text):
        yield text
        return
    for item in re.split(r"^(?:[*+-]|\d+\.) +", text, flags=re.M):
        if item.strip():
            yield " ".join(item.split())


def gist(section: Section, setter: Setter, weight: float, most: int = 4) -> Slide | None:
    """The first sentence of each paragraph of a section, or two where it begins in bold."""
    said = [p for text in section.paragraphs for p in points(text) if not PREDICT.search(p)]
    said = [s for s in said if not s.startswith(("|", "$$", "**In words"))]
    if any(s.startswith("**") for s in said):
        said = [s for s in said if s.startswith("**")] or said
    short = [lead(s, 2 if s.startswith("**") else 1, 230) for s in said]
    taken = [f"* {s}" for s in short if not s.endswith(":") and signs(s) < 330][:most]
    if len(taken) < 2 or signs(" ".join(taken)) < 130:
        return None
    heading = section.title
    notes = tuple(setter.html(lead(s, 3)) for s in said[:1])
    pieces = tuple(p for s in taken for p in setter.pieces(s))
    above = Section(section.part or "", section.role)
    return plain("text", heading, above, setter, pieces=pieces, notes=notes, weight=weight)


# --- recall and exercises ---


def recall(section: Section, items: Sequence[Item], setter: Setter) -> Slide | None:
    """The two questions with the shortest answers, in their order; answers come by key."""
    asked = [i.block for i in items if i.name in ("dropdown", "admonition")]
    asked = [b for b in asked if texts(b.body)]
    short = sorted(asked, key=lambda b: signs(b.title) + signs(" ".join(texts(b.body))))[:2]
    pieces: list[Piece] = []
    for block in (b for b in asked if b in short):
        title = re.sub(r"^\d+\. ", "", block.title)
        pieces += [marked(p, "ask") for p in setter.pieces(title)]
        pieces += [p for text in texts(block.body) for p in setter.pieces(text, step=True)]
    if not pieces:
        return None
    notes = ("<p>Without notes, in pairs, one minute each. Then press a key for the answer.</p>",)
    above = Section("Recall")
    return plain("recall", "Do you remember?", above, setter, pieces=tuple(pieces), notes=notes)


def homework(cells: list[Cell], setter: Setter) -> Slide:
    """One exercise of each number of stars, and where all is."""
    found: dict[str, str] = {}
    for block in (b for c in cells for b in walk(c.blocks)):
        if block.name in ("exercise", "exercise-start") and (m := STARS.match(block.title)):
            name = setter.index.find(block.label).name
            line = f"* **{name}** {m['title']} ({m['stars']} {m['kind']}, {m['minutes']} minutes)"
            found.setdefault(m["stars"], line)
    pieces = [p for stars in sorted(found) for p in setter.pieces(found[stars])]
    page = setter.index.page(setter.slug)
    link = f'<p class="link"><a href="{page}">{page.removeprefix("https://")}</a></p>'
    words = "Proofs, code, live pictures and all exercises:"
    pieces += [*setter.pieces(words), Piece(link, "p", 60)]
    above = Section("To take home")
    return plain("home", "Now it is your turn", above, setter, pieces=tuple(pieces), notes=(
        "<p>The exercises check themselves in the notebook, and have hints.</p>",
    ))  # fmt: skip


# --- code ---


def code(section: Section, at: int, setter: Setter) -> Slide | None:
    """Visible code that is short enough to be read from the last row."""
    item = section.items[at]
    source = item.cell.source.strip("\n")
    lines = source.split("\n")
    if not item.visible or not 4 <= len(lines) <= MOST:
        return None
    before = next((i.text for i in reversed(section.items[:at]) if i.text), "")
    before = "" if LIST.match(before) else before
    out = printed(item).strip()
    rows = len(lines) + out.count("\n") + 2 * bool(out)
    context = sentences(before)[-1] if before and rows <= 10 else ""
    context = context if signs(context) < 170 and not PREDICT.search(context) else ""
    shown = out if rows <= 14 - 3 * bool(context) and columns(out) <= MOST_COLUMNS else ""
    notes = [setter.html(before)] if before and not context else []
    notes = notes or ["<p>Read it line by line, and name the shapes.</p>"]
    if out and not shown and out.count("\n") < 6:
        notes.append(f"<p>It prints:</p><pre>{out.replace('<', '&lt;')}</pre>")
    named = re.search(
        r"code|fifteen lines|thirty lines|a page of", f"{section.title} {section.part}"
    )
    heading = "The idea as code" if named else "In code"
    return plain("code", heading, section, setter, notes=tuple(notes), code=source, output=shown,
                 pieces=tuple(setter.pieces(context)), weight=2.1 if named else 1.9)  # fmt: skip


def columns(text: str) -> int:
    return max(map(len, text.split("\n")))


def threat(block: Block, section: Section, setter: Setter) -> Slide | None:
    """Who attacks and what they see: the first points of the threat model."""
    said = [p for text in texts(block.body) for p in points(text)]
    said = [s for s in said if s.startswith("**")][:4]
    taken = [f"* {lead(s, 1 if signs(lead(s)) > 40 else 2, 200)}" for s in said]
    pieces = tuple(p for s in taken for p in setter.pieces(s))
    if not pieces:
        return None
    notes = ("<p>Ask for each line: what would change if it were not so?</p>",)
    return plain("threat", "Who attacks, and what they see", section, setter, pieces=pieces,
                 notes=notes, weight=2.4)  # fmt: skip
