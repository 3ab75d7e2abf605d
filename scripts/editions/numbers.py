"""Numbers of chapters, statements, exercises and figures, as Sphinx counts them on the pages.

Each kind has a counter of its own that starts anew with each numbered chapter: Proposition 3.4.
Pages without a number (the intro) count together: Fig. 1. A test compares all with the built pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pybtex.database import Person, parse_file

from .chapter import ROOT, Cell, pages, read
from .myst import EditionError, parse, walk

TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
ANCHOR = re.compile(r"^\((?P<label>[\w-]+)\)=$(?=\n+#* *(?P<title>.*))?", re.MULTILINE)
EQUATION = re.compile(r"^\s*\$\$[ \t]*\((?P<label>[\w-]+)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Target:
    """What a label stands for: "Proposition", "3.4", its title, and the page that has it."""

    kind: str
    number: str
    title: str
    slug: str

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}".strip()


@dataclass(frozen=True)
class Work:
    """A reference as a text calls it, and its anchor on the page Bibliography."""

    authors: str
    year: str
    anchor: str


@dataclass
class Index:
    """All that links need: the site's address, chapters, labels and references."""

    site: str
    chapters: dict[str, str] = field(default_factory=dict)  # slug -> "3", or "" without a number
    titles: dict[str, str] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    works: dict[str, Work] = field(default_factory=dict)
    terms: dict[str, str] = field(default_factory=dict)  # of the glossary, in lower case -> anchor

    def page(self, slug: str, anchor: str = "") -> str:
        """The address of a published page."""
        return f"{self.site}/book/{slug}.html" + (f"#{anchor}" if anchor else "")

    def find(self, label: str) -> Target:
        if label not in self.targets:
            raise EditionError(f"no chapter has the label {label!r}")
        return self.targets[label]


def read_index(root: Path = ROOT) -> Index:
    """Count everything in the sources, in the order of _toc.yml."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    index = Index(config["html"]["baseurl"].rstrip("/"))
    counters: dict[tuple[str, str], int] = {}
    for slug, numbered in pages(root):
        chapter = str(sum(map(bool, index.chapters.values())) + 1) if numbered else ""
        source = root / "book" / "src" / f"{slug}.md"
        page = source if source.is_file() else root / "book" / f"{slug}.md"
        index.chapters[slug] = chapter
        index.titles[slug] = TITLE.search(page.read_text(encoding="utf-8"))[1]
        if chapter:
            index.targets[f"chapter-{slug}"] = Target("Chapter", chapter, index.titles[slug], slug)
        for cell in read(source) if page == source else []:
            for kind, label, title in named(cell):
                number = ""
                if kind != "Section":
                    counters[kind, chapter] = counters.get((kind, chapter), 0) + 1
                    number = f"{chapter}.{counters[kind, chapter]}".lstrip(".")
                if not label or label in index.targets:
                    fault = f"repeats the label {label!r}" if label else "needs a label"
                    raise EditionError(f"{slug}: {kind} {number} ({title[:40]}) {fault}")
                index.targets[label] = Target(kind, number, title, slug)
    index.works = works(root / "book")
    index.terms = terms(root / "book")
    return index


def named(cell: Cell) -> list[tuple[str, str, str]]:
    """(kind, label, title) of all in a cell that Sphinx counts, and of its anchors."""
    if cell.figure:
        return [("Fig.", cell.figure.get("name", ""), cell.figure["caption"])]
    found = []
    for block in walk(cell.blocks):
        if block.name.startswith("prf:") and block.name != "prf:proof":
            found.append((block.name[4:].capitalize(), block.label, block.title))
        elif block.name in ("exercise", "exercise-start"):
            found.append(("Exercise", block.label, block.title))
        elif block.kind == "text":
            found += [("Section", m["label"], m["title"]) for m in ANCHOR.finditer(block.raw)]
            found += [("Eq.", m["label"], "") for m in EQUATION.finditer(block.raw)]
    return found


def works(book: Path) -> dict[str, Work]:
    """The references, each with its anchor in the first list of the page that takes it."""
    lists = re.findall(
        r'^:filter: (not )?key % "(.+)"$', (book / "bibliography.md").read_text(), re.M
    )
    found = {}
    for key, entry in parse_file(str(book / "references.bib")).entries.items():
        taken = [bool(re.search(keys, key)) != bool(other) for other, keys in lists]
        anchor = f"cite-{taken.index(True) + 1}-{key}"
        authors = _authors(entry.persons.get("author", []))
        found[key] = Work(authors, entry.fields.get("year", ""), anchor)
    return found


def terms(book: Path) -> dict[str, str]:
    """The terms of the page Glossary, each with the anchor that Sphinx gives it."""
    page = book / "glossary.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    lists = [b.raw.split("\n")[1:-1] for b in parse(text) if b.name == "glossary"]
    found = [line for lines in lists for line in lines if line.strip() and line[0] not in " :"]
    return {t.lower(): "term-" + re.sub(r"[^a-zA-Z0-9._]+", "-", t).strip("-") for t in found}


def _authors(people: list[Person]) -> str:
    def last(person: Person) -> str:
        return " ".join(map(str, (*person.rich_prelast_names, *person.rich_last_names)))

    if len(people) > 2:
        return f"{last(people[0])} *et al.*"
    return " and ".join(map(last, people))
