"""How much fits on a slide. Text that is too long goes on over several, and is never set small.

All lengths are those of a window of 1280 by 720 pixels; ``slides.css`` has the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from .model import Slide
from .setting import Piece

WIDTH, BODY = 1152, 584  # of the text, and from the top of the heading to the foot
GO_ON = ("<p>The same, continued.</p>",)
SIZES = (36, 32, 28, 25)  # of letters, in pixels: the first that lets all stand on one slide, the
# last only where a single piece is too long
SIGN = 0.47  # of a letter's size: its mean width
LINE = 1.4  # of a letter's size: the height of a line
CODE = {24: 33, 22: 30.5}  # letter and line of code
COLUMNS = {24: 75, 22: 82}
KICKER, HEADING, SIGNS = 34, 46, 58  # heights, and how many characters a line of a heading has
BOX = 44  # what the frame and the name of a statement add


def heading(slide: Slide) -> float:
    """The height of a slide's heading."""
    return KICKER + HEADING * math.ceil(max(slide.signs, 1) / SIGNS) + 22


def height(piece: Piece, size: float) -> float:
    """About how high a piece stands."""
    width = WIDTH - 60 * piece.box - 40 * (piece.kind == "item")
    if piece.kind == "table":
        return piece.rows * size * 1.85 + size
    if piece.kind == "code":
        return piece.rows * CODE[22] + 40
    if piece.kind == "math":
        return (piece.rows * 1.5 + piece.tall + 0.9) * size
    lines = math.ceil(piece.signs * SIGN * size / width) + piece.rows - 1
    return (lines * LINE + piece.tall * LINE + 0.5) * size


def total(pieces: Sequence[Piece], size: float) -> float:
    return sum(height(p, size) for p in pieces) + BOX * any(p.box for p in pieces)


def fit(slide: Slide) -> list[Slide]:
    """The slide itself, with the largest letters that fit, or several."""
    room = BODY - heading(slide)
    for size in SIZES[:-1]:
        if total(slide.pieces, size) <= room:
            return [replace(slide, size=size)]
    size = SIZES[-2]
    parts = cut(slide.pieces, room, size)
    return [
        replace(
            slide, pieces=tuple(part), size=largest(part, room),
            count=(number, len(parts)), notes=slide.notes if number == 1 else GO_ON,
        )
        for number, part in enumerate(parts, start=1)
    ]  # fmt: skip


def largest(pieces: Sequence[Piece], room: float) -> int:
    """The largest letters with which pieces fit; the smallest where none do."""
    return next((size for size in SIZES[1:] if total(pieces, size) <= room), SIZES[-1])


def cut(pieces: Sequence[Piece], room: float, size: float) -> list[list[Piece]]:
    """As few slides as possible, about equally full."""
    for count in range(2, len(pieces) + 1):
        share = total(pieces, size) / count
        for slack in (1.0, 1.1, 1.2, 1.35, 1.5):
            parts = fill(pieces, min(room, share * slack), size)
            if len(parts) <= count and all(total(p, size) <= room for p in parts):
                return parts
    return [[piece] for piece in pieces]


def fill(pieces: Sequence[Piece], room: float, size: float) -> list[list[Piece]]:
    parts: list[list[Piece]] = [[]]
    for piece in pieces:
        if parts[-1] and total([*parts[-1], piece], size) > room:
            parts.append([])
        parts[-1].append(piece)
    return parts
