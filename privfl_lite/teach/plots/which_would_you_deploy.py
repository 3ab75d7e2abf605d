"""The chooser of "Which would you deploy?": rows of the table that four answers leave."""

from __future__ import annotations

from ...runtime import PrivflError
from ..judgment import Judged, control, remaining
from ..tables import table

AXES: dict[str, list[str]] = {
    "who attacks": ["listens (A to C)", "changes the model (F to H)"],
    "you need": ["a proof", "a measurement"],
    "accuracy you can lose": ["5 points", "20 points", "any"],
    "clients in a round": ["under 10", "10 or more"],
}
LOST = {"5 points": 0.05, "20 points": 0.20, "any": 1.0}


def left(answers: dict[str, str]) -> list[Judged]:
    who, need, lose, clients = (answers[axis] for axis in AXES)
    return remaining("changes" in who, need == "a proof", LOST[lose], clients == "10 or more")


def chooser(**answers: str) -> str:
    """What remains, with what it costs; one sentence if nothing does."""
    rows = left(answers)
    if not rows:
        raise PrivflError(
            "No row of the table remains: lose more accuracy, trust more, or gather more clients."
        )
    base = control().accuracy
    lines = [
        {
            "defense": row.name,
            "accuracy lost": 100 * (base.value - row.accuracy.value),
            "time": row.cost("time"),
            "bytes": row.cost("bytes"),
            "bound": row.bound,
            "evidence": row.evidence,
        }
        for row in rows
        if base and row.accuracy
    ]
    units = {"accuracy lost": "points", "time": "×", "bytes": "×"}
    formats = {"accuracy lost": ".0f", "time": ".1f", "bytes": ".2f", "bound": ".2f"}
    return table(lines, "", units, formats)._repr_html_()


def words(**answers: str) -> str:
    """What a frame of the chooser shows."""
    names = [row.name for row in left(answers)]
    asked = "; ".join(f"{axis}: {answer}" for axis, answer in answers.items())
    return f"{asked}. What remains of the table: {', '.join(names) or 'nothing'}."
