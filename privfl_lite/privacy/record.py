"""ε as a record: a number never stands alone; where none holds, the reason stands in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from ..checking import Checked
from ..errors import PrivflError
from ..values import Holds, Number, Part, Text, Word

AGAINST = {  # whom an ε holds against -> in words
    "server": "the server",
    "sums": "a server that sees sums only, all clients honest",
    "outsiders": "outsiders",
}
Said = Annotated[str, Holds("a text", lambda v: isinstance(v, str))]  # or none


@dataclass(frozen=True)
class Epsilon(Checked):
    """(``value``, ``delta``)-differential privacy, for whom and against whom; or why there is none.

    ``unit``: neighbors differ by one "example", or by all data of one "client". ``neighbors``: it
    is "replace"d by any other of the same size, or there is one more or less ("add/remove").
    ``against`` the "server", which sees every upload, who sent it and of how many examples; or
    "sums": a server that sees nothing of a round but the sum, keeps to the protocol, and where all
    clients are honest and none drops out; or "outsiders", who see the global models only.
    ``sampling`` that is given credit for, with its rate. ``secure``: noise and sampling came from
    the operating system; else they follow a seed, and ε holds against those who do not know it.

    All of it is for noise of real numbers; ``privacy.discrete`` says what floating point changes.
    With ``value`` None no ε holds, and ``reason`` says why. ``also`` are others that hold at the
    same time, in another unit or against others: they are never compared with this one.
    """

    value: Annotated[float, Number(0, 1e300)] | None
    delta: Part = 0.0
    unit: Annotated[str, Word("unit", "example", "client")] = "client"
    neighbors: Annotated[str, Word("neighbors", "replace", "add/remove")] = "replace"
    against: Annotated[str, Word("against", *AGAINST)] = "server"
    accountant: Text = "exact"
    sampling: Text = "none"
    secure: bool = False
    reason: Said = ""
    also: tuple[Epsilon, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value is None and not self.reason:
            raise PrivflError("an ε of None needs a reason")

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Epsilon:
        """The record from its fields, as ``dataclasses.asdict`` gives them."""
        return cls(**{**fields, "also": tuple(map(cls.load, fields["also"]))})

    @property
    def kind(self) -> tuple[str, str, str, float]:
        """Only values of one kind can be compared."""
        return self.unit, self.neighbors, self.against, self.delta

    def __str__(self) -> str:
        if self.value is None:
            return f"no ε: {self.reason}"
        words = [f"δ = {self.delta:g}", f"per {self.unit}", self.neighbors]
        words += [f"against {AGAINST[self.against]}", self.accountant]
        words += [self.sampling] if self.sampling != "none" else []
        words += [] if self.secure else ["if the seed is secret"]
        return "; also ".join([f"ε = {self.value:.4g} ({', '.join(words)})", *map(str, self.also)])


def best(found: list[Epsilon]) -> Epsilon:
    """All that hold at once: the least of each kind, what holds against the server first."""
    least: dict[tuple, Epsilon] = {}
    for one in sorted(found, key=lambda e: e.value or 0.0):
        least.setdefault(one.kind, one)
    first, *others = sorted(least.values(), key=lambda e: (e.against != "server", e.unit, e.delta))
    return replace(first, also=tuple(others))
