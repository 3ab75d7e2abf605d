"""What a leak report holds, in plain numbers and sentences, and the forms it is handed on in."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from .. import disk
from ..arrays import Found
from ..checking import Checked, checked
from ..values import Holds, Kind, NotNegative, Text, Whole, Word

SCHEMA = 1  # of the JSON; a field that changes its meaning raises it
TABLE = Kind(dict)
Plain = Annotated[dict[str, Any], TABLE]
FILE = Holds("the name of a file that ends in .html", lambda v: str(v).endswith(".html"))
Outcome = Annotated[str, Word("outcome", "found", "not found", "does not apply", "not tried")]


@dataclass(frozen=True)
class Attempt(Checked):
    """One attacker: what it brought back from the upload, or why it does not apply.

    ``misfit`` and ``cosine``, one for each upload, compare what was seen with what the same client
    would have sent from the images found: the attacker's only evidence where the truth is unknown.
    ``psnr``, ``ssim``, ``ranks``: one for each image, where the truth was given.
    """

    attack: Text
    outcome: Outcome
    says: Text
    letter: Text = "B"
    settings: Text = "none"
    seconds: NotNegative = 0.0
    evaluations: Whole = 0
    cost: Annotated[tuple, Kind(tuple)] = ()
    misfit: Annotated[tuple, Kind(tuple)] = ()
    cosine: Annotated[tuple, Kind(tuple)] = ()
    labels: Annotated[tuple, Kind(tuple)] = ()
    psnr: Annotated[tuple, Kind(tuple)] = ()
    ssim: Annotated[tuple, Kind(tuple)] = ()
    ranks: Annotated[tuple, Kind(tuple)] = ()
    images: Found | None = field(default=None, repr=False)

    @property
    def ran(self) -> bool:
        return self.outcome in ("found", "not found")


@dataclass(frozen=True, repr=False)
class LeakReport(Checked):
    """Can this upload leak, how much, under which letter: as a page, as JSON, as a few lines.

    ``structure`` is counted before any attack, ``attempts`` are the attackers in the order in which
    they ran, ``changes`` sentences on what would change the verdict. ``settings`` has the seed, the
    versions and the command that makes the report again.
    """

    verdict: Text
    sent: Plain
    structure: Plain
    attempts: Annotated[tuple[Attempt, ...], Kind(tuple)]
    privacy: Plain
    changes: Annotated[tuple[str, ...], Kind(tuple)]
    settings: Plain
    interrupted: bool = False
    truth: Found | None = field(default=None, repr=False)

    @property
    def found(self) -> tuple[Attempt, ...]:
        """The attackers that found something, the best first."""
        hits = (a for a in self.attempts if a.outcome == "found")
        return tuple(sorted(hits, key=lambda a: (-_mean(a.psnr), _mean(a.misfit))))

    def to_json(self) -> str:
        """All but the pictures, as standard JSON: what is not finite becomes null."""
        held = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "truth"}
        tried = [
            {f.name: getattr(a, f.name) for f in fields(a) if f.name != "images"}
            for a in self.attempts
        ]
        content = plain({"schema": SCHEMA, **held, "attempts": tried})
        return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """One page that asks for nothing from outside."""
        from .page import page

        return page(self)

    @checked
    def save(self, path: Annotated[str | Path, FILE]) -> Path:
        """Write the page; returns where it is."""
        disk.write(Path(path), self.to_html().encode(), lost=self.to_json())
        return Path(path)

    def __repr__(self) -> str:
        lines = [self.verdict, f"  sent     {self.sent['summary']}"]
        lines += [f"  labels   {self.structure['labels']['says']}"]
        width = max([len(a.attack) for a in self.attempts], default=0)
        lines += [f"  {a.attack:{width}}  {a.says}" for a in self.attempts]
        lines += [f"  ε        {self.privacy['says']}"]
        return "\n".join(lines)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Tensor):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mean(values: tuple) -> float:
    return sum(values) / len(values) if values else 0.0
