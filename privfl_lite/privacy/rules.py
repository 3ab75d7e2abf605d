"""ε of a defense, or of a chain of them, in a run: the mechanism, and all that stands around it.

Rules for a part that clips and adds noise:

1. *Before the clip* anything may happen to one client's data, but for two things: another client's
   data must not come in, and an example must not be copied where each example is clipped.
2. *Between clip and noise* (clipped at the client, noised at the server) nothing may happen.
3. *After the noise* whatever uses only what it is handed changes nothing; a part that looks at
   private data again ends the guarantee.
4. *Beside it* nothing may leave: running statistics of batch norm are data, too.
5. *In a secure sum* the noises of all clients add up, if every upload is in it as its client's
   noise left it. What one upload guarantees by itself holds all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Annotated, Protocol

from ..checking import checked
from ..values import Holds, Inside
from .mechanisms import Mechanism, Training, of_the_sum, spent
from .record import Epsilon, best

DOORS = ("gradient", "update", "average")  # in the order in which an upload passes them
DOOR = {"step": "gradient", "upload": "update", "mean": "average"}  # where the noise is added
NOTHING = "no part clips and adds noise, so one client's data can change what leaves by any amount"


class Part(Protocol):
    """What accounting asks of a defense (``defenses.Defense`` has the answers)."""

    def mechanism(self, tensors: Mapping[str, tuple[int, ...]]) -> Mechanism | str: ...
    def guards(self, door: str) -> bool: ...
    def looks(self, door: str) -> bool: ...
    def rows(self) -> int | None: ...
    def crosses(self) -> bool: ...
    def speaks(self, claim: str, door: str) -> bool: ...
    def summed(self) -> float | str | None: ...


ASKED = ("mechanism", "guards", "looks", "rows", "crosses", "speaks", "summed")
PART = Holds("a defense", lambda v: not isinstance(v, type) and all(hasattr(v, a) for a in ASKED))


@checked
def account(defense: Annotated[Part, PART], run: Training, delta_dp: Inside = 1e-5) -> Epsilon:
    """What holds for this defense in this run: an ε with all that belongs to it, or the reason.

    Of a chain every part is asked. Where several guarantees hold, those of one kind give the
    least; others stand in ``also``.
    """
    parts: Sequence[Part] = getattr(defense, "parts", (defense,))
    found, reasons = [], []
    beside: list[Epsilon] = []  # of the sum
    for i, part in enumerate(parts):
        made = part.mechanism(run.tensors)
        if not isinstance(made, str) and not all(part.speaks("mechanism", d) for d in DOORS):
            made = "a door was changed by a class that states no mechanism of its own"
        if isinstance(made, str):
            reasons += [f"{_name(part)}: {made}"] if made else []
            continue
        why = broken(parts, i, made.place, run)
        rows = prod(_rows(p) or 1 for p in parts)
        one = Epsilon(None, reason=why) if why else spent(made, run, rows, delta_dp)
        if one.value is None:
            reasons.append(f"{_name(part)}: {one.reason}")
        else:
            found.append(one)
            beside += _in_the_sum(parts, i, made, run, delta_dp)
    if not found:
        return Epsilon(None, reason="; ".join(reasons) or NOTHING, secure=run.secure)
    first = best([*found, *(e for e in beside if e.value is not None)])
    none = [e for e in beside if e.value is None]
    return first if len(none) < len(beside) else replace(first, also=(*first.also, *none))


def _in_the_sum(
    parts: Sequence[Part], i: int, made: Mechanism, run: Training, delta_dp: float
) -> list[Epsilon]:
    """What part i's noise is worth in a secure sum, or why nothing more; none without such a sum.

    Between noise and sum nothing may happen: then what is added is no longer noise of one law.
    """
    for part in parts:
        if (step := part.summed()) is None:
            continue
        later = [_name(p) for p in parts[i + 1 :] if _guards(p, "update")]
        if later and not isinstance(step, str):
            step = f"{later[0]} acts between the noise and the sum"
        if isinstance(step, str):
            why = f"of the sum: {step}"
            return [Epsilon(None, reason=why, against="sums", secure=run.secure)]
        return [of_the_sum(made, run, step, delta_dp)]
    return []


def broken(parts: Sequence[Part], i: int, place: str, run: Training) -> str:
    """Why part i, which adds its noise at ``place``, guarantees nothing here; "" if it does."""
    if run.statistics:
        return (
            f"the statistics of batch norm ({run.statistics[0]}, …) leave without noise; "
            "add KeepStatistics()"
        )
    for j, part in enumerate(parts):
        if j != i and (what := _breaks(part, j < i, place)):
            return f"{_name(part)} {what}"
    return ""


def _breaks(part: Part, before: bool, place: str) -> str:
    """What this part does to noise that another one, before or after it, adds at ``place``."""
    door = DOOR[place]
    if place == "step" and _rows(part) is None:
        return "does not say in how many rows of the training data an example ends up"
    if place != "step" and before and part.crosses():
        return "puts one client's data into the uploads of others"
    if place == "mean" and _guards(part, "average" if before else "update"):
        return "acts between the clip and the noise"
    if place == "mean" and part.summed() is not None:
        return "rounds between the clip and the noise"
    later = DOORS[DOORS.index(door) + before :]
    return "uses private data again after the noise" if any(_looks(part, d) for d in later) else ""


def _rows(part: Part) -> int | None:
    return part.rows() if part.speaks("rows", "data") else None


def _guards(part: Part, door: str) -> bool:
    return part.guards(door) or not part.speaks("guards", door)


def _looks(part: Part, door: str) -> bool:
    told = part.speaks("looks", door) or part.speaks("blind", door)
    return part.looks(door) or not told


def _name(part: object) -> str:
    return type(part).__name__
