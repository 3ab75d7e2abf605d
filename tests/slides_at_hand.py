"""Decks of all chapters, made once in a process."""

from __future__ import annotations

import functools
import sys

from checkout import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from editions.numbers import read_index
from slides import pick
from slides.deck import page
from slides.model import Deck

INDEX = read_index()
CHAPTERS = pick.find([], INDEX)


@functools.cache
def deck(slug: str) -> Deck:
    return pick.deck(slug, INDEX)


@functools.cache
def html(slug: str) -> str:
    return page(deck(slug))
