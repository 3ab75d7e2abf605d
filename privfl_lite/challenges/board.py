"""The leaderboard: a file for each player, merged by whoever wants a table of the class.

A file can be edited by its owner, as any file can. What cannot be made up is the proof that stands
beside a solved challenge: it needs the flag's key, and holds for one name only. Whoever has the
set's secret checks it. That hints were not used is on trust.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import disk
from ..errors import PrivflError
from .base import Challenge, Hint
from .registry import CHALLENGES

REMEDY = "restore a copy, or begin anew under another name: --board FILE"
Check = Callable[[str, str, str], bool]  # challenge, player, proof -> whether it holds
LONG = 40  # letters of a player's name


def is_name(player: object) -> bool:
    """Whether it can stand in a table."""
    return isinstance(player, str) and 0 < len(player) <= LONG and player.isprintable()


@dataclass
class Board:
    """What one player has done in one set."""

    player: str
    set: str
    hints: dict[str, int] = field(default_factory=dict)  # challenge -> how many were read
    tries: dict[str, int] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)  # of what was solved
    paid: dict[str, int] = field(default_factory=dict)  # hints read before it was solved

    @classmethod
    def read(cls, path: Path) -> Board:
        """The board in a file, or one sentence."""
        held = disk.read_record(path, REMEDY)
        try:
            board = cls(**held)
            tables = (board.hints, board.tries, board.proofs, board.paid)
            known = all(name in CHALLENGES for table in tables for name in table)
            whole = all(isinstance(v, int) for t in (*tables[:2], tables[3]) for v in t.values())
        except (TypeError, AttributeError):
            known = whole = False
        if not (known and whole and is_name(board.player) and isinstance(board.set, str)):
            raise PrivflError(f"{path} is no leaderboard of these challenges; {REMEDY}")
        return board

    @classmethod
    def at(cls, path: Path, player: str | None, set: str) -> Board:
        """The board in a file, or a new one; of this player and set, or one sentence."""
        if not path.exists():
            if not player:
                raise PrivflError("say who you are: --player NAME (once; the board remembers)")
            if not is_name(player):
                raise PrivflError(f"a player's name has 1 to {LONG} printable letters")
            return cls(player, set)
        board = cls.read(path)
        if player not in (None, board.player):
            raise PrivflError(f"{path} is the board of {board.player}; take another with --board")
        if board.set != set:
            raise PrivflError(f"{path} is of the set {board.set!r}, not {set!r}; use --board FILE")
        return board

    def write(self, path: Path) -> None:
        """At once or not at all."""
        disk.write_record(path, vars(self))

    def hint(self, challenge: Challenge) -> Hint:
        """The next hint; the last one again, for nothing, when all are read."""
        seen = min(self.hints.get(challenge.name, 0), len(challenge.hints) - 1)
        self.hints[challenge.name] = seen + 1
        return challenge.hints[seen]

    def solve(self, challenge: Challenge, proof: str) -> int:
        """Points for it; hints that are read afterwards cost nothing."""
        self.proofs.setdefault(challenge.name, proof)
        self.paid.setdefault(challenge.name, self.hints.get(challenge.name, 0))
        return self.points(challenge.name)

    def points(self, name: str) -> int:
        """Of one challenge."""
        if name not in self.proofs:
            return 0
        challenge = CHALLENGES[name]
        read = min(max(self.paid.get(name, 0), 0), len(challenge.hints))
        return challenge.points - sum(hint.cost for hint in challenge.hints[:read])

    @property
    def score(self) -> int:
        return sum(map(self.points, self.proofs))


def merged(boards: Iterable[Board], check: Check | None = None) -> list[dict[str, Any]]:
    """The table of a class, best first; with ``check`` a solved challenge counts if its proof does.

    Two boards of one player count as one: of a challenge in both, the one with fewer points.
    """
    found, players = list(boards), dict[str, list[Board]]()
    if len({board.set for board in found}) > 1:
        sets = ", ".join(sorted({board.set for board in found}))
        raise PrivflError(f"these boards are of several sets ({sets}) and cannot be compared")
    for board in found:
        players.setdefault(board.player, []).append(board)
    rows = [_row(player, own, check) for player, own in players.items()]
    return sorted(rows, key=lambda row: (-row["points"], row["hints"], row["player"]))


def _row(player: str, boards: list[Board], check: Check | None) -> dict[str, Any]:
    """What one player has done, on one board or several."""
    solved: dict[str, int] = {}
    refused: set[str] = set()
    for board in boards:
        for name, proof in board.proofs.items():
            if check is not None and not check(name, player, proof):
                refused.add(name)
                continue
            points = board.points(name)
            solved[name] = min(points, solved.get(name, points))
    return {
        "player": player,
        "points": sum(solved.values()),
        "solved": len(solved),
        "hints": sum(max(b.hints.get(name, 0) for b in boards) for name in CHALLENGES),
        "refused": " ".join(sorted(refused)),
        **{name: solved.get(name, 0) for name in CHALLENGES},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """As CSV."""
    file = io.StringIO(newline="")
    written = csv.DictWriter(file, list(rows[0]))
    written.writeheader()
    written.writerows({k: _safe(v) for k, v in row.items()} for row in rows)
    return file.getvalue()


def _safe(value: Any) -> Any:
    """A name that a spreadsheet does not take for a formula."""
    formula = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if formula else value
