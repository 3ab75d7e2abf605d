"""``name:key=value,key=value``: how the command line writes an attack or a defense."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from .runtime import PrivflError, choose

BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def read(what: str, table: Mapping[str, type], text: str, **given: Any) -> Any:
    """The object that `text` names in `table`; `what` ("defense", "attack") is for error messages.

    Settings in `text` go before those in `given`. A value is read as Python, or else as a word.
    """
    name, _, settings = text.partition(":")
    kind: Any = table[choose(what, name, table)]
    plain = kind.__init__ is object.__init__  # a class without settings
    allowed = {} if plain else inspect.signature(kind).parameters
    options = dict(given)
    for item in filter(None, settings.split(",")):
        key, _, value = item.partition("=")
        if key not in allowed or not value:
            raise PrivflError(
                f"{what} {name!r} has no setting {item!r}; "
                f"write key=value with key one of: {', '.join(allowed) or 'none'}"
            )
        if value.lower() in BOOLEANS:
            options[key] = BOOLEANS[value.lower()]
            continue
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value  # a word, such as mode=fixed
        usual = allowed[key].default
        if isinstance(usual, int | float) and isinstance(options[key], str):
            raise PrivflError(f"{what} {name!r} cannot use {item!r}: by default it is {usual}")
    try:
        return kind(**options)
    except TypeError as error:
        raise PrivflError(f"{what} {name!r} cannot use {settings!r}: {error}") from None
