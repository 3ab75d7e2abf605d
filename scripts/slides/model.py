"""What a slide is, before it is a page."""

from __future__ import annotations

from dataclasses import dataclass

from .outline import Picture
from .setting import Piece


@dataclass(frozen=True)
class Slide:
    """One slide. ``weight``: what is dropped last when a deck is too long; from 9 on, nothing.

    ``heading`` is HTML, ``signs`` about how many characters it shows; ``kicker`` stands above it.
    ``label``: of the statement or figure that it shows. ``notes``: paragraphs of HTML.
    """

    kind: str
    heading: str
    signs: int
    kicker: str = ""
    pieces: tuple[Piece, ...] = ()
    notes: tuple[str, ...] = ()
    weight: float = 9
    label: str = ""
    name: str = ""  # such as "Proposition 3.4"
    picture: Picture | None = None
    code: str = ""
    output: str = ""
    size: int = 32
    count: tuple[int, int] = (1, 1)  # this one, of how many
    minutes: float = 0


@dataclass(frozen=True)
class Deck:
    """The slides of a chapter."""

    slug: str
    number: str
    title: str
    part: str
    slides: tuple[Slide, ...]

    @property
    def minutes(self) -> int:
        return round(sum(slide.minutes for slide in self.slides))
