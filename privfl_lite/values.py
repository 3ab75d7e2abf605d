"""What a setting may be: a rule, which stands in the type of a field or of an argument.

    @dataclass(frozen=True)
    class Blur(Defense):
        width: Positive = 1.0
        edge: Annotated[str, Word("edge", "mirror", "zero")] = "mirror"

``checking`` holds values against their rules when they are given. Rules for tensors are in
``arrays``; nothing here is slow to import.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

FAR, MANY = 1e30, 10**9  # no setting is larger: beyond, 32-bit floats overflow, and loops never end


class Rule:
    """What fits, in words and as a test."""

    @property
    def allowed(self) -> str:
        return "anything"

    def fits(self, value: Any) -> bool:
        raise NotImplementedError

    def sentence(self, name: str, value: Any) -> str:
        """What is said of a value that does not fit."""
        return f"{name} is {shown(value)}; it must be {self.allowed}"


@dataclass(frozen=True)
class Number(Rule):
    """A finite number between two ends, which count unless ``open``; or a ``whole`` one."""

    low: float = -FAR
    high: float = FAR
    whole: bool = False
    open: str = ""  # "low", "high" or "low high": ends that do not count

    @property
    def allowed(self) -> str:
        what = "a whole number" if self.whole else "a number"
        return " ".join([what, *self._ends(self.high in (FAR, MANY))])

    def _ends(self, no_high: bool) -> list[str]:
        low, high = (f"{end:,}" if self.whole else f"{end:g}" for end in (self.low, self.high))
        if not (self.open or no_high) and self.low > -FAR:
            return [f"from {low} to {high}"]
        above = f"over {low}" if "low" in self.open else f"at least {low}"
        below = f"below {high}" if "high" in self.open else f"at most {high}"
        words = [*([above] if self.low > -FAR else []), *([] if no_high else [below])]
        return [" and ".join(words)] if words else []

    def fits(self, value: Any) -> bool:
        kind = numbers.Integral if self.whole else numbers.Real
        if not isinstance(value, kind) or isinstance(value, bool):
            return False
        number: Any = value
        ends = [
            value for value, end in ((self.low, "low"), (self.high, "high")) if end in self.open
        ]
        return self.low <= number <= self.high and number not in ends

    def sentence(self, name: str, value: Any) -> str:
        if (
            isinstance(value, numbers.Real) and cast(float, value) > self.high
        ):  # then its end is worth a word
            what = "a whole number" if self.whole else "a number"
            ends = " ".join(self._ends(False))
            return f"{name} is {shown(value)}; it must be {what} {ends}"
        return super().sentence(name, value)


class Word(Rule):
    """One of these words; ``kind`` says what they name."""

    def __init__(self, kind: str, *options: str):
        self.kind, self.options = kind, options

    @property
    def allowed(self) -> str:
        return f"one of: {', '.join(self.options)}"

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.options

    def sentence(self, name: str, value: Any) -> str:
        return f"unknown {self.kind} {shown(value)}; choose {self.allowed}"


class Holds(Rule):
    """Whatever passes a test of its own; ``allowed`` says it in words."""

    def __init__(self, allowed: str, test: Callable[[Any], bool]):
        self.said, self.test = allowed, test

    @property
    def allowed(self) -> str:
        return self.said

    def fits(self, value: Any) -> bool:
        return self.test(value)


@dataclass(frozen=True)
class Kind(Rule):
    """An object of a class."""

    kind: type

    @property
    def allowed(self) -> str:
        return {bool: "True or False", type(None): "None"}.get(self.kind, f"a {self.kind.__name__}")

    def fits(self, value: Any) -> bool:
        if self.kind is bool:  # numpy has one of its own
            return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
        return isinstance(value, self.kind)


@dataclass(frozen=True)
class Row(Rule):
    """A list, tuple or numpy's row: of things that fit one rule, or one for each place."""

    items: tuple[Rule, ...]
    fixed: bool = False
    least: int = 0

    @property
    def allowed(self) -> str:
        if self.fixed:
            return f"({', '.join(item.allowed for item in self.items)})"
        return f"a list{' of one or more' if self.least else ''}, each {self.items[0].allowed}"

    def _is_row(self, value: Any) -> bool:
        row = isinstance(value, list | tuple | range) or getattr(value, "ndim", 0) == 1
        if not row or hasattr(value, "requires_grad") or len(value) < self.least:
            return False
        return not self.fixed or len(value) == len(self.items)

    def _faults(self, value: Any) -> list[tuple[int, Rule]]:
        """Which places do not fit, and what they break."""
        each = self.items if self.fixed else self.items * len(value)
        return [(i, r) for i, (r, v) in enumerate(zip(each, value, strict=True)) if not r.fits(v)]

    def fits(self, value: Any) -> bool:
        return self._is_row(value) and not self._faults(value)

    def sentence(self, name: str, value: Any) -> str:
        """Of the first place that does not fit, if it is a row at all."""
        if not self._is_row(value):
            return super().sentence(name, value)
        i, rule = self._faults(value)[0]
        return rule.sentence(f"{name}[{i}]", value[i])


@dataclass(frozen=True)
class Table(Rule):
    """Names to things that fit a rule."""

    items: Rule

    @property
    def allowed(self) -> str:
        return f"a dictionary of names, each to {self.items.allowed}"

    def fits(self, value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            isinstance(k, str) and self.items.fits(v) for k, v in value.items()
        )


@dataclass(frozen=True)
class Either(Rule):
    """What fits one of several rules."""

    items: tuple[Rule, ...]

    @property
    def allowed(self) -> str:
        such = [Row((item,), least=n) for item in self.items for n in (0, 1)]
        return ", or ".join("a list of such" if i in such else i.allowed for i in self.items)

    def fits(self, value: Any) -> bool:
        return any(item.fits(value) for item in self.items)

    def sentence(self, name: str, value: Any) -> str:
        words = [item for item in self.items if isinstance(item, Word)]
        if words and isinstance(value, str):
            return words[0].sentence(name, value)
        ranges = [item for item in self.items if isinstance(item, Number)]
        if (
            len(ranges) == 1
            and isinstance(value, numbers.Real)
            and cast(float, value) > ranges[0].high
        ):
            return ranges[0].sentence(name, value)  # says where it ends
        return super().sentence(name, value)


Positive = Annotated[float, Number(0, open="low")]
NotNegative = Annotated[float, Number(0)]
Finite = Annotated[float, Number()]
Unit = Annotated[float, Number(0, 1)]
Part = Annotated[float, Number(0, 1, open="high")]  # a share that is never the whole
Inside = Annotated[float, Number(0, 1, open="low high")]
Count = Annotated[int, Number(1, MANY, whole=True)]
Whole = Annotated[int, Number(0, MANY, whole=True)]
Seed = Annotated[int, Number(-(2**63), 2**63 - 1, whole=True)]
Wholes = Annotated[Sequence[int], Row((Number(0, MANY, whole=True),), least=1)]
Text = Annotated[str, Holds("a text", lambda v: isinstance(v, str) and bool(v))]
Mode = Annotated[str, Word("mode", "eval", "train")]  # of batch norm
Function = Annotated[Callable, Holds("a function", callable)]


def most_processes() -> int:
    """Threads or processes that are worth having here: as many as cores, or a few."""
    return max(16, os.cpu_count() or 1)


def shown(value: Any) -> str:
    """A value in an error: short, on one line; a tensor by its shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a {type(value).__name__.lower()} {tuple(value.shape)} of {value.dtype}"
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}…"
