"""How long a slide takes: its words and its notes are spoken, and what needs a look gets one.

The counts are those of ``editions.times``; here words are spoken, 130 a minute, and nobody reads
proofs.
"""

from __future__ import annotations

import re
from dataclasses import replace

from editions.times import WORD

from .model import Slide

SPOKEN = 130  # words a minute
LINES = 15  # of code a minute, as in editions.times
LOOK = {"title": 0.5, "figure": 1.0, "statement": 1.0, "example": 1.0, "question": 1.5,
        "recall": 1.5, "code": 0.5, "table": 1.0}  # fmt: skip
FORMULA = re.compile(r"<math.*?</math>", re.S)
TAG = re.compile(r"<[^>]+>")


def words(html: str) -> int:
    """The words of a piece of HTML; a formula counts as one, as on the page."""
    return len(WORD.findall(TAG.sub(" ", FORMULA.sub(" x ", html))))


def timed(slide: Slide) -> Slide:
    """A slide with its minutes, in halves."""
    said = words(slide.heading) + sum(words(p.html) for p in slide.pieces)
    said += sum(words(note) for note in slide.notes)
    code = sum(bool(line.strip()) for line in slide.code.split("\n"))
    minutes = said / SPOKEN + code / LINES + LOOK.get(slide.kind, 0.0)
    return replace(slide, minutes=max(0.5, round(2 * minutes) / 2))
