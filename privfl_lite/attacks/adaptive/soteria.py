"""Against Soteria: it spoils one tensor, and all others go out as they are."""

from __future__ import annotations

from dataclasses import dataclass

from ..matching.search import IDLG


@dataclass(frozen=True)
class Unmask(IDLG):
    """Leave the pruned tensor out of the match. Chapter: cutting gradients."""

    drop: tuple[str, ...] = ("head.weight",)
    answers = ("soteria",)
