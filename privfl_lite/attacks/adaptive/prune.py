"""Against pruning: a zero means "not said", not "nothing"."""

from __future__ import annotations

from dataclasses import dataclass

from ..matching.search import IDLG


@dataclass(frozen=True)
class Unprune(IDLG):
    """Match only the entries that were sent, with a smoothness prior for what they leave open.

    Chapter: cutting gradients.
    """

    nonzero: bool = True
    tv: float = 0.1
    answers = ("prune",)
