"""A chapter as sections of items: paragraphs, directives, and code cells with what they printed."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from editions.chapter import HIDDEN, ROOT, SOURCES, Cell, gate, read
from editions.executed import fits
from editions.myst import Block, EditionError, parse
from editions.numbers import ANCHOR

HEADING = re.compile(r"^(?P<marks>#{1,4}) (?P<title>.+)$")
ROLES = (  # what a section is for, by its title
    ("exercises", r"^exercises"),
    ("summary", r"^summary"),
    ("recall", r"^recall"),
    ("try", r"^try "),
    ("hand", r"^by hand"),
    ("limits", r"does not say|cannot say|do not know|where the walls are"),
    ("informed", r"(informed|attentive) attacker|attacker who knows|defender answers"),
    ("beside", r"^for (readers|specialists)|papers? beside|papers?. (statements|table) beside"),
    ("critical", r"critically"),
)


@dataclass(frozen=True)
class Item:
    """A paragraph (``text``), a directive (``block``) or a code cell with its outputs."""

    text: str = ""
    block: Block | None = None
    cell: Cell | None = None
    outputs: tuple[dict, ...] = ()

    @property
    def name(self) -> str:
        return self.block.name if self.block else ""

    @property
    def visible(self) -> bool:
        """Code that readers see, and that is no exercise."""
        return bool(self.cell) and not self.cell.tags & HIDDEN and not self.cell.solves


@dataclass
class Section:
    """``role`` is "opening", one of ROLES, or empty."""

    title: str
    role: str = ""
    part: str = ""  # the title of the section that this one is part of
    items: list[Item] = field(default_factory=list)

    @property
    def paragraphs(self) -> list[str]:
        return [item.text for item in self.items if item.text]


@dataclass(frozen=True)
class Picture:
    """A figure as it was drawn."""

    png: bytes
    alt: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, from the file's head."""
        return struct.unpack(">II", self.png[16:24])

    @property
    def tall(self) -> bool:
        """Whether a slide has room beside it rather than above it."""
        width, height = self.size
        return width < 1.6 * height

    @property
    def address(self) -> str:
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


def picture(item: Item) -> Picture | None:
    for output in item.outputs:
        if png := output.get("data", {}).get("image/png"):
            alt = item.cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            return Picture(base64.b64decode("".join(png)), " ".join(alt.split()))
    return None


def printed(item: Item) -> str:
    """What a cell printed."""
    return "".join("".join(o["text"]) for o in item.outputs if o["output_type"] == "stream")


def sections(slug: str, root: Path = ROOT) -> list[Section]:
    """The sections of a chapter in order; the first is what stands before any heading."""
    cells = read(SOURCES / f"{slug}.md")
    path = root / "book" / f"{slug}.ipynb"
    if not path.is_file():
        raise EditionError(f"book/{slug}.ipynb is not there yet: make chapters CHAPTER={slug}")
    ran = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    if not fits([c for c in cells if c.kind == "code"], ran):
        raise EditionError(f"code of book/src/{slug}.md changed: make chapters CHAPTER={slug}")
    found, done, solves = [Section("", "opening")], iter(ran), ""
    for cell in cells:
        if cell.kind == "code":
            outputs = tuple(next(done).get("outputs", ()))
            found[-1].items.append(Item(cell=cell, outputs=outputs))
            continue
        for block in cell.blocks:
            inside = bool(solves)
            solves = gate([block], solves)
            if not inside and not block.name.startswith("solution"):
                place(block, found)
    return found


def place(block: Block, found: list[Section]) -> None:
    """Put a block into the last section; headings in it begin new ones."""
    if block.kind != "text":
        found[-1].items.append(Item(block=block))
        return
    for part in paragraphs(ANCHOR.sub("", block.raw)):
        if heading := HEADING.match(part):
            begin(len(heading["marks"]), heading["title"], found)
        else:
            found[-1].items.append(Item(text=part))


def begin(level: int, title: str, found: list[Section]) -> None:
    if level == 1:
        found[-1].title = title
        return
    role = next((role for role, words in ROLES if re.search(words, title, re.I)), "")
    if level == 2:
        found.append(Section(title, role))
    else:
        over = found[-1].part or found[-1].title
        above = next(s for s in found if s.title == over and not s.part)
        found.append(Section(title, role or above.role, part=over))


def paragraphs(text: str) -> Iterator[str]:
    """Pieces of Markdown between empty lines; the items of a list stay together."""
    open_list: list[str] = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        if not part.strip():
            continue
        starts = re.match(r"\s*([*+-]|\d+\.) ", part)
        if open_list and (part.startswith("  ") or starts):
            open_list.append(part)
            continue
        if open_list:
            yield "\n\n".join(open_list)
            open_list = []
        if starts:
            open_list = [part]
        else:
            first, _, rest = part.partition("\n")
            if HEADING.match(first) and rest.strip():
                yield first
                yield from paragraphs(rest)
            elif (cut := re.search(r"^([*+-]|1\.) ", part, re.M)) and "$$" not in part:
                yield part[: cut.start()].strip("\n")
                open_list = [part[cut.start() :]]
            else:
                yield part
    if open_list:
        yield "\n\n".join(open_list)


def texts(blocks: tuple[Block, ...]) -> list[str]:
    """The paragraphs inside a directive."""
    return [p for b in blocks if b.kind == "text" for p in paragraphs(ANCHOR.sub("", b.raw))]


__all__ = ["Item", "Picture", "Section", "parse", "picture", "printed", "sections", "texts"]
