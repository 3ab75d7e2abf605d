"""Slides of statements and examples: the book's text in its box, and what it says in words."""

from __future__ import annotations

import re
from dataclasses import replace

from editions.myst import Block

from .model import Slide
from .outline import Section, texts
from .setting import Setter, signs, spoken

WEIGHTS = {"theorem": 3.6, "proposition": 3.0, "definition": 2.8, "lemma": 2.2, "corollary": 2.2,
           "algorithm": 2.2}  # fmt: skip
WORDS = re.compile(r"^\*\*(In words|So an attacker can)")


def statement(section: Section, at: int, setter: Setter) -> Slide:
    """The statement that is item ``at`` of a section."""
    block = section.items[at].block
    title = cleaned(block.title) or setter.index.find(block.label).name
    pieces = [p for text in texts(block.body) for p in setter.pieces(text, box=True)]
    for item in section.items[at + 1 : at + 3]:
        if WORDS.match(item.text):
            pieces += setter.pieces(item.text)
    weight = WEIGHTS.get(block.name.removeprefix("prf:"), 1.5)
    return Slide(
        "statement", setter.inline(title), signs(title), section.title,
        tuple(pieces), around(section, at, setter), weight - 1.8 * (section.role == "beside"),
        block.label, setter.index.find(block.label).name,
    )  # fmt: skip


def example(section: Section, at: int, setter: Setter) -> Slide:
    """An example by hand, without a box."""
    found = statement(section, at, setter)
    pieces = tuple(replace(p, box=False) for p in found.pieces)
    weight = 9 if section.role == "hand" else 2.0
    return replace(found, kind="example", pieces=pieces, weight=weight)


def cleaned(title: str) -> str:
    """Without the source of a statement: "Differential privacy; ModelCloak Eq. 2"."""
    return re.split(r"; (?=[A-Z]|after )", title)[0]


def around(section: Section, at: int, setter: Setter) -> tuple[str, ...]:
    """What to say: the words before a statement, where its proof is, and the words after it."""
    before = [i for i in section.items[max(0, at - 1) : at] if i.text]
    after = [i for i in section.items[at + 1 : at + 5] if i.text and not WORDS.match(i.text)]
    notes = [setter.html(text) for i in before if (text := spoken(i.text))]
    if any(i.name == "prf:proof" for i in section.items[at + 1 : at + 4]):
        notes.append("<p>The proof stands on the page, under the statement.</p>")
    notes = notes or ["<p>Say it in words first, then read the formulas.</p>"]
    return tuple(notes + [setter.html(t) for i in after[:1] if (t := spoken(i.text))])


def key(block: Block | None) -> bool:
    """Whether a directive is a statement that may have a slide."""
    return bool(block) and block.name.startswith("prf:") and block.name not in SKIPPED


SKIPPED = ("prf:proof", "prf:example", "prf:remark")
