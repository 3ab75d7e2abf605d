"""How long a chapter takes: to skim, to study and to run.

Skimming is 200 words a minute, without proofs. Studying adds 3 minutes for each proof and a minute
for every 15 lines of visible code. Both leave the exercises out. Running is measured when a chapter
is executed. A source says ``{{skim}}``, ``{{study}}`` (minutes) and ``{{running}}`` (words).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .chapter import HIDDEN, Cell
from .myst import Block

WORD = re.compile(r"[^\W_][\w'’-]*")
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]*\$", re.DOTALL)
SLOT = re.compile(r"\{\{(skim|study|running)\}\}")


def reading(cells: list[Cell]) -> tuple[float, float]:
    """Minutes to skim and to study."""
    words = proofs = lines = 0
    exercises = False
    for cell in cells:
        if cell.kind == "code":
            if not exercises and not cell.tags & HIDDEN:
                lines += sum(bool(line.strip()) for line in cell.source.split("\n"))
            continue
        for block in _outside_proofs(cell.blocks):
            if block.name == "prf:proof":
                proofs += not exercises
            for line in block.raw.split("\n") if block.kind == "text" else [block.title]:
                if line.startswith("## "):
                    exercises = line.startswith("## Exercises")
            if not exercises:
                text = block.raw if block.kind == "text" else block.title
                words += len(WORD.findall(FORMULA.sub(" x ", text)))
    return words / 200, words / 200 + 3 * proofs + lines / 15


def _outside_proofs(blocks: list[Block] | tuple[Block, ...]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if block.name != "prf:proof":
            yield from _outside_proofs(block.body)


def running(seconds: float) -> str:
    """A measured time in words."""
    if seconds < 10:
        return "seconds"
    if seconds < 45:
        return "under a minute"
    if seconds < 75:
        return "about a minute"
    halves = round(seconds / 30)
    return f"about {halves // 2}{' ½' * (halves % 2)} minutes"


def rounded(minutes: float) -> int:
    """Minutes in steps of 5."""
    return max(5, 5 * round(minutes / 5))


def fill(text: str, cells: list[Cell], seconds: float) -> str:
    """A text with its times filled in, minutes rounded to 5."""
    skim, study = (str(rounded(minutes)) for minutes in reading(cells))
    said = {"skim": skim, "study": study, "running": running(seconds)}
    return SLOT.sub(lambda slot: said[slot[1]], text)
