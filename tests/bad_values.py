"""Bad values, made from the rules that settings declare (``privfl_lite.values``).

``bad(rule)`` gives values that the rule does not allow: of the wrong type, not finite, below and
above its ends, empty, of another shape, dtype or device, misspelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from privfl_lite.arrays import Array
from privfl_lite.values import Either, Kind, Number, Row, Rule, Table, Word


class Thing:
    """Of no use to anybody."""

    def __repr__(self) -> str:
        return "Thing()"


EVERYWHERE: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**30, -(10**30)),
    *(1e300, math.nan, math.inf, -math.inf, 1j),
    *("", "no such thing", b"bytes", [], (), {}, [None], {"a": None}, {3: 4}, Thing(), Thing),
    *(torch.zeros(0), torch.tensor(math.nan), torch.ones(2, device="meta"), np.zeros((2, 2))),
]


def bad(rule: Rule) -> list[Any]:
    """Values that this rule refuses, each of another kind."""
    some = [*_near(rule), *EVERYWHERE]
    return list({repr(v): v for v in some if not _fits(rule, v)}.values())


def _fits(rule: Rule, value: Any) -> bool:
    try:
        return rule.fits(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False


def _near(rule: Rule) -> Iterator[Any]:
    """Values that just miss the rule."""
    if isinstance(rule, Either | Row):
        for item in rule.items:
            yield from _near(item)
            if isinstance(rule, Row):
                yield from ([v] for v in _near(item))
    elif isinstance(rule, Table):
        yield from ({"a": v} for v in _near(rule.items))
    elif isinstance(rule, Number):
        yield from _around(rule)
    elif isinstance(rule, Word):
        yield from (word.upper() for word in rule.options[:1])
        yield from (f"{word} " for word in rule.options[-1:])
        yield [*rule.options]
    elif isinstance(rule, Kind):
        yield from ("no", "False", 2) if rule.kind is bool else (rule.kind,)
    elif isinstance(rule, Array):
        yield from _tensors(rule)


def _around(rule: Number) -> Iterator[Any]:
    whole = rule.whole
    yield from (rule.low, rule.high)  # of an open end, the end itself
    yield rule.low - 1 if whole else math.nextafter(rule.low, -math.inf)
    yield rule.high + 1 if whole else math.nextafter(rule.high, math.inf)
    yield str(rule.high)
    yield torch.tensor(0.5)
    yield np.array([0.5, 0.5])
    if whole:
        yield float(rule.low)
        yield np.float64(2.0)


def _tensors(rule: Array) -> Iterator[Any]:
    for axes in range(7):
        yield torch.full((2,) * axes, 0.5)
        yield torch.ones((2,) * axes, dtype=torch.long)
    good = rule.axes[0] if rule.axes else 2
    like = torch.full((2,) * good, 0.5)
    yield from (like * math.nan, like * math.inf, like - 3, like + 3, -like.long() - 1)
    yield from (like.bool(), like.to(torch.cfloat), like.to("meta"), like[:0] if good else like)
    yield like.tolist() if good else 0.5
