"""Ways through the book: its chapters by part, how long they take, and what each builds on.

Order, parts and numbers come from _toc.yml, titles and times from the sources, the rest from
``book/map.yml``. The first page draws it (book/_ext/reading_map.py); its student copy has a list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from .chapter import ROOT, read
from .myst import EditionError
from .numbers import Index, read_index
from .times import reading, rounded


@dataclass(frozen=True)
class Stop:
    """A chapter on the map; minutes to skim and to study, and its way ("" = not in the course)."""

    slug: str
    number: str
    title: str
    part: str
    skim: int
    study: int
    course: str = ""
    needs: tuple[str, ...] = ()  # numbers of chapters
    leads: tuple[str, ...] = ()

    @property
    def in_course(self) -> int:
        """Minutes in the short course."""
        return getattr(self, self.course) if self.course else 0


def parts(root: Path = ROOT) -> dict[str, list[str]]:
    """Caption -> chapters, of the parts of _toc.yml whose chapters have numbers."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return {
        part["caption"]: [page["file"].removeprefix("book/") for page in part["chapters"]]
        for part in toc["parts"]
        if part.get("numbered")
    }


def read_map(root: Path = ROOT) -> dict[str, dict]:
    """book/map.yml; it may only name chapters, and a chapter may only need earlier ones."""
    found = yaml.safe_load((root / "book" / "map.yml").read_text(encoding="utf-8"))
    order = [slug for slugs in parts(root).values() for slug in slugs]
    needed = [n for slugs in found["needs"].values() for n in slugs]
    for slug in {*found["course"], *found["needs"], *needed}:
        if slug not in order:
            raise EditionError(f"book/map.yml names {slug!r}, which is no chapter of _toc.yml")
    for slug, earlier in found["needs"].items():
        if late := [n for n in earlier if order.index(n) >= order.index(slug)]:
            raise EditionError(f"book/map.yml: {slug} needs {late[0]!r}, which comes later")
    return found


def stops(index: Index | None = None, root: Path = ROOT) -> list[Stop]:
    """All chapters, in order."""
    index, known = index or read_index(root), read_map(root)
    found: list[Stop] = []
    for part, slugs in parts(root).items():
        for slug in slugs:
            skim, study = reading(read(root / "book" / "src" / f"{slug}.md"))
            before = [found[-1].slug] if found else []
            needs = tuple(index.chapters[n] for n in known["needs"].get(slug, before))
            times = rounded(skim), rounded(study)
            way = known["course"].get(slug, "")
            name = slug, index.chapters[slug], index.titles[slug], part
            found.append(Stop(*name, *times, way, needs))
    return [
        replace(stop, leads=tuple(s.number for s in found if stop.number in s.needs))
        for stop in found
    ]


def coming(root: Path = ROOT) -> dict[str, str]:
    """Caption -> what it will hold, of the parts that _toc.yml does not have yet."""
    return {k: v for k, v in read_map(root).get("coming", {}).items() if k not in parts(root)}


def hours(found: list[Stop], way: str) -> int:
    """How long a way takes, without exercises: "course" or "book"."""
    minutes = sum(s.in_course if way == "course" else s.study for s in found)
    return round(minutes / 60)


def listed(index: Index, root: Path = ROOT) -> str:
    """The map as plain Markdown, for a notebook: no times, which change with every chapter."""
    known, lines = read_map(root), []
    for part, slugs in parts(root).items():
        lines.append(f"**Part {part}**\n")
        for slug in slugs:
            way = known["course"].get(slug, "")
            name = f"{index.chapters[slug]}. [{index.titles[slug]}]({index.page(slug)})"
            lines.append(f"* {name}" + (f" (in the short course: {way})" if way else ""))
        lines.append("")
    lines += [f"**Part {part}** is being written: {what}." for part, what in coming(root).items()]
    return "\n".join(lines).strip()
