"""A score: points for each of several goals, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..check import told
from ..tables import table

PASS = 60  # points of 100


@dataclass(frozen=True)
class Goal:
    """One goal: points reached, of how many, and what was measured."""

    name: str
    points: float
    of: float
    why: str


@dataclass(frozen=True)
class Score:
    """The points of one project on one draw; ``seed`` repeats the draw."""

    project: str
    goals: tuple[Goal, ...]
    seed: int

    @property
    def points(self) -> float:
        """0 to 100."""
        return round(sum(goal.points for goal in self.goals), 1)

    @property
    def passed(self) -> bool:
        return self.points >= PASS

    @property
    def said(self) -> str:
        verdict = "passed" if self.passed else f"{PASS} pass"
        return f"{self.project}: {self.points:g} of 100 points ({verdict}), draw {self.seed}"

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {"goal": g.name, "points": round(g.points, 1), "of": g.of, "measured": g.why}
            for g in self.goals
        ]

    def _repr_html_(self) -> str:
        return table(self._rows(), self.said)._repr_html_()

    def __repr__(self) -> str:
        return repr(table(self._rows(), self.said))


def share(value: float, low: float, high: float) -> float:
    """How far a value has come from ``low`` (0) to ``high`` (1)."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def raised(name: str, of: float, error: BaseException) -> Goal:
    """No points, and the line of the reader's code that raised."""
    return Goal(name, 0.0, of, told(error))
