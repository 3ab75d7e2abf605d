"""Values are checked when they are given: fields of a dataclass, arguments of a function.

``Checked`` is the base of dataclasses whose fields are held against their rules (``values``),
``checked`` does the same for a function. A value that does not fit gets one sentence. Plain
classes, ``bool``, unions, lists and tables of these are rules already. A bare ``int``, ``float`` or
``str`` says nothing of a range: tests/unit/test_bad_inputs.py does not let that pass in anything
public, and makes its bad inputs from the rules.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter
from typing import Annotated, Any, ParamSpec, TypeVar, cast

from .errors import PrivflError
from .values import Either, Holds, Kind, Row, Rule, Table

P = ParamSpec("P")
R = TypeVar("R")
REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)  # of a signature: checked where they go


def rule_of(hint: Any) -> Rule | None:
    """The rule that a type states; None where it states no range, as a bare ``float`` does."""
    of, parts = typing.get_origin(hint), typing.get_args(hint)
    if of is Annotated:
        return next((note for note in parts[1:] if isinstance(note, Rule)), None)
    if of in (typing.Union, types.UnionType):
        rules = [rule_of(part) for part in parts]
        return Either(tuple(filter(None, rules))) if all(rules) else None
    if of is collections.abc.Callable or hint is collections.abc.Callable:
        return Holds("a function", callable)
    if of in (dict, collections.abc.Mapping):
        item = rule_of(parts[1])
        return Table(item) if item else None
    if of in (list, tuple, collections.abc.Sequence):
        each = [rule_of(part) for part in parts if part is not ...]
        fixed = of is tuple and ... not in parts
        return Row(tuple(filter(None, each)), fixed) if all(each) else None
    if hint is None or hint is type(None):
        return Kind(type(None))
    plain = isinstance(hint, type) and hint.__module__ != "builtins" and hint.__name__ != "Tensor"
    return Kind(hint) if plain or hint is bool else None


def _read(hint: Any, module: str) -> Rule | None:
    """The rule of an annotation; none where a name in it is known to a type checker only."""
    if isinstance(hint, str):
        try:
            hint = eval(hint, dict(vars(sys.modules[module])))
        except (NameError, KeyError, TypeError, AttributeError):
            return None
    return rule_of(hint)


@functools.cache
def rules(thing: Any) -> dict[str, Rule | None]:
    """Name -> rule of every field of a dataclass, or of every argument of a function.

    Where a subclass gives a field another default and a bare type, its parent's rule goes on.
    """
    if not isinstance(thing, type):
        hints, every = inspect.get_annotations(thing), inspect.signature(thing).parameters
        names = [n for n, p in every.items() if n not in ("self", "cls") and p.kind not in REST]
        return {n: _read(hints.get(n, Any), thing.__module__) for n in names}
    found: dict[str, Rule | None] = {}
    for part in thing.__mro__:
        for name, hint in inspect.get_annotations(part).items():
            found[name] = found.get(name) or _read(hint, part.__module__)
    return {f.name: found.get(f.name) for f in fields(thing) if f.init}


def check(name: str, value: Any, rule: Rule | None) -> None:
    """One sentence unless the value fits."""
    if rule is None:
        return
    try:
        good = rule.fits(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        good = False
    if not good:
        raise PrivflError(rule.sentence(name, value))


def check_fields(made: Any) -> None:
    """Hold every field of a dataclass against its rule."""
    for name, rule in rules(cast(Any, type(made))).items():
        check(name, getattr(made, name), rule)


class Checked:
    """Base of dataclasses that are checked when they are made.

    A ``__post_init__`` of its own begins with ``super().__post_init__()``.
    """

    def __post_init__(self) -> None:
        check_fields(self)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which first holds its arguments against their rules."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        for name, rule in rules(function).items():
            if name in given:
                check(name, given[name], rule)
        return function(*args, **kwargs)

    vars(call)["checked"] = True  # tests look for it
    return call
