"""Slides of figures: the picture as it was drawn, one sentence, and the rest in the notes."""

from __future__ import annotations

import re

from .model import Slide
from .outline import Item, Picture, Section, picture
from .setting import Setter, sentences, signs, spoken

FRAME = re.compile(
    r"^(One frame|Two frames|Three frames|Four frames|Frames|A frame)|for print", re.I
)
WEIGHTS = {"opening": 9, "informed": 3.6, "beside": 1.0, "hand": 2.6}
MOST = 130  # characters of a message


def figure(section: Section, at: int, setter: Setter) -> Slide | None:
    """The figure that item ``at`` of a section draws."""
    item = section.items[at]
    if not (drawn := picture(item)):
        return None
    said = sentences(item.cell.figure["caption"])
    frame = bool(FRAME.search(said[0]))
    message, rest = chosen(said, frame)
    shown, rest = split(rest, room(drawn, signs(message)))
    label = item.cell.figure["name"]
    weight = 1.4 if frame else WEIGHTS.get(section.role, 3.0)
    weight -= 1.2 * (drawn.size[1] > 1.6 * drawn.size[0] and weight < 9)  # too narrow for a wall
    notes = [setter.html(" ".join(rest))] if rest else []
    notes += [setter.html(text) for t in near(section.items, at) if (text := spoken(t))]
    notes = notes or [setter.html(f"To be seen: {drawn.alt}")]
    return Slide(
        "figure", setter.inline(message), signs(message), section.title,
        tuple(setter.pieces(" ".join(shown))) if shown else (), tuple(notes),
        weight, label, setter.index.find(label).name, drawn,
    )  # fmt: skip


def chosen(said: list[str], frame: bool) -> tuple[str, list[str]]:
    """The message of a caption, and its other sentences."""
    if frame and len(said) > 1:
        said = said[1:]
    message, rest = said[0], said[1:]
    cut = next((m for m in re.finditer(r"[:;] ", message) if whole(message[: m.start()])), None)
    if cut and signs(message) > MOST:
        rest = [message[cut.end()].upper() + message[cut.end() + 1 :], *rest]
        message = message[: cut.start()] + "."
    elif signs(message) < 45 and rest and signs(message + rest[0]) < MOST:
        message, rest = f"{message} {rest[0]}", rest[1:]
    return message, rest


def whole(text: str) -> bool:
    """Long enough for a message, and no bracket or formula is open at its end."""
    return len(text) > 40 and text.count("(") == text.count(")") and text.count("$") % 2 == 0


def room(drawn: Picture, message: int) -> int:
    """How many characters stand beside a tall picture, or above a wide one."""
    return 560 - 2 * message if drawn.tall else 175 if message < 60 else 110


def split(said: list[str], most: int) -> tuple[list[str], list[str]]:
    """The sentences that fit, and those that are spoken."""
    count = len(said)
    while count and signs(" ".join(said[:count])) > most:
        count -= 1
    return said[:count], said[count:]


def near(items: list[Item], at: int) -> list[str]:
    """The paragraphs beside a figure, without those that only lead over to something."""
    beside = [*items[max(0, at - 1) : at], *items[at + 1 : at + 2]]
    return [i.text for i in beside if i.text and not i.text.startswith("**You need")]
