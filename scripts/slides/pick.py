"""What of a chapter belongs on slides, in the order of its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml
from editions.chapter import ROOT, SOURCES, read
from editions.myst import EditionError
from editions.numbers import Index
from editions.paths import parts

from . import words
from .figures import figure
from .fit import fit
from .model import Deck, Slide
from .outline import Section, sections
from .setting import Setter, sentences, signs
from .statements import example, key, statement
from .tables import table
from .timing import timed

MOST, LEAST = 28, 18  # slides
LONGEST, SHORTEST = 42, 22  # minutes
FIXED = 9  # a weight from which on nothing is dropped
STEERING = ROOT / "book" / "slides.yml"


def steering(path: Path = STEERING) -> dict:
    """What ``book/slides.yml`` says, by chapter: skip, take, notes."""
    return (yaml.safe_load(path.read_text("utf-8")) if path.is_file() else None) or {}


def deck(slug: str, index: Index, told: dict | None = None) -> Deck:
    """The deck of a chapter."""
    told = (steering() if told is None else told).get(slug, {})
    setter = Setter(index, slug)
    found = sections(slug)
    drafts = [s for s in candidates(found, setter, slug) if s]
    slides = chosen([steered(s, told, setter) for s in ranked(drafts)])
    part = next((part for part, slugs in parts().items() if slug in slugs), "")
    first = introduced(slides, found[0], setter)
    return Deck(slug, index.chapters[slug], index.titles[slug], part, tuple(first))


def steered(slide: Slide, told: dict, setter: Setter) -> Slide:
    """A slide as the file of steering wants it."""
    name = slide.label or slide.heading
    if note := told.get("notes", {}).get(name):
        slide = replace(slide, notes=(setter.html(note),))
    if name in told.get("skip", []):
        return replace(slide, weight=-1)
    return replace(slide, weight=FIXED) if name in told.get("take", []) else slide


# --- candidates ---


def candidates(found: list[Section], setter: Setter, slug: str) -> Iterator[Slide | None]:
    """Every slide that could be, in order."""
    for section in found:
        if section.role == "opening":
            yield from opening(section, setter)
        elif section.role == "summary":
            taken = [t for t in section.paragraphs if not t.startswith("**Recall")]
            yield words.bullets("summary", "What to remember", section, setter, taken, FIXED)
            yield words.recall(section, section.items, setter)
        elif section.role == "recall":
            yield words.recall(section, section.items, setter)
        elif section.role == "limits":
            yield words.bullets(
                "limits", section.title, Section(""), setter, section.paragraphs, FIXED
            )
        elif section.role != "exercises":
            yield from middle(section, setter)
    yield words.homework(read(SOURCES / f"{slug}.md"), setter)


def opening(section: Section, setter: Setter) -> Iterator[Slide | None]:
    """Title, hook picture, what one can do afterwards, who attacks."""
    number = setter.index.chapters[setter.slug]
    chapter = Section(f"Chapter {number}", section.role, section.part, section.items)
    hook = next(t for t in section.paragraphs if not t.startswith("**"))
    told = sentences(hook)
    count = 2 if signs(" ".join(told[:2])) > 110 else 3
    said = tuple(setter.pieces(re.sub(r":$", ".", " ".join(told[:count]))))
    rest = told[count:]
    notes = (setter.html(" ".join(rest)),) if rest else ()
    title = setter.index.titles[setter.slug]
    yield Slide("title", setter.inline(title), signs(title), "", said, notes)
    for at, item in enumerate(section.items):
        if item.cell and item.cell.figure:
            yield figure(chapter, at, setter)
        elif item.block and "threat model" in item.block.title.lower():
            yield words.threat(item.block, chapter, setter)
        elif item.text.startswith(("* ", "- ")):
            yield words.bullets(
                "goals", "After this lecture you can", chapter, setter,
                [item.text], FIXED,
            )  # fmt: skip


def middle(section: Section, setter: Setter) -> Iterator[Slide | None]:
    """Questions, statements, examples, figures and code of a section."""
    made: list[Slide] = []
    for at, item in enumerate(section.items):
        slide = None
        if words.PREDICT.search(item.text):
            slide = words.question(section, at, setter, sum(s.kind == "question" for s in made))
        elif item.name == "prf:example":
            slide = example(section, at, setter)
        elif key(item.block):
            slide = statement(section, at, setter)
        elif item.cell and item.cell.figure:
            slide = figure(section, at, setter)
        elif item.cell:
            slide = words.code(section, at, setter) or table(section, at, setter)
        if slide:
            made.append(slide)
    weight = {"critical": 2.7, "informed": 3.2, "try": 0.4, "hand": 9}.get(section.role, 1.5)
    if section.role == "informed" and made:
        weight = 0.5
    elif any(s.weight > 2 for s in made) or section.role == "beside":
        weight = 0.3
    yield words.gist(section, setter, weight)
    yield from made


# --- choice ---


def ranked(drafts: list[Slide]) -> list[Slide]:
    """Weights that depend on the others: a first of its kind weighs more, a tenth less."""
    code = sorted((s for s in drafts if s.kind == "code"), key=lambda s: -s.weight)[:1]
    begun: dict[str, int] = {}
    made = []
    for slide in drafts:
        weight = slide.weight
        if slide in code:
            weight = 3.8
        elif weight < FIXED and slide.kind in ("statement", "figure"):
            defines = slide.name.startswith("Definition") and not begun.get("Definition")
            begun["Definition"] = begun.get("Definition", 0) + slide.name.startswith("Definition")
            begun[slide.kind] = begun.get(slide.kind, 0) + 1
            weight += 0.7 * defines - 0.05 * begun[slide.kind] - 0.25 * (len(fit(slide)) - 1)
        made.append(replace(slide, weight=weight))
    return made


def chosen(drafts: list[Slide]) -> list[Slide]:
    """As many as a lecture holds: what weighs least goes first, and of equals the later one."""
    kept = [s for s in drafts if s.weight >= 0]
    done = {id(s): [timed(part) for part in fit(s)] for s in kept}

    def size(slides: list[Slide]) -> tuple[int, float]:
        parts = [p for s in slides for p in done[id(s)]]
        return len(parts), sum(p.minutes for p in parts)

    least = 1.6
    while True:
        order = sorted(range(len(kept)), key=lambda i: (kept[i].weight, -i))
        count, minutes = size(kept)
        worst = kept[order[0]]
        spare = size([s for s in kept if s is not worst])
        too_much = count > MOST or minutes > LONGEST
        can_go = worst.weight < least and spare[0] >= LEAST and spare[1] >= SHORTEST
        if worst.weight >= FIXED or not (too_much or can_go):
            break
        kept.remove(worst)
    return [p for s in kept for p in done[id(s)]]


def introduced(slides: list[Slide], section: Section, setter: Setter) -> list[Slide]:
    """The first slide's notes say how long the deck takes and what listeners should know."""
    needs = [t for t in section.paragraphs if t.startswith("**You need")]
    needs = [re.split(r"\\?\n?\s*\*\*Skim|\s*\*\*Leads to", t)[0] for t in needs]
    notes = [setter.html(t) for t in needs]
    minutes = round(sum(s.minutes for s in slides))
    plan = f"<p><strong>{minutes} minutes</strong> for {len(slides)} slides, by these notes.</p>"
    return [replace(slides[0], notes=(plan, *notes, *slides[0].notes)), *slides[1:]]


def find(slugs: list[str], index: Index) -> list[str]:
    """The chapters that have a deck: those with a number."""
    numbered = [slug for slug, number in index.chapters.items() if number]
    if wrong := [slug for slug in slugs if slug not in numbered]:
        raise EditionError(f"there is no chapter {wrong[0]!r} in _toc.yml")
    return slugs or numbered
