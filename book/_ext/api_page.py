"""The API page: what autodoc needs to read docstrings that are written for people.

Our docstrings are plain text with ``literals``; shapes such as (K, *shape) and |x| are no markup.
Settings of a dataclass are explained at the ends of their lines, and that is where they are read
from. An object stands on the page once: first at the top of the package, else in its room.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx

EMPHASIS = r"(?<!\w)\*\w[^*]*\w\*(?!\w)"
MARKUP = re.compile(rf"(``.+?``|:\w+:`.+?`|{EMPHASIS})|([*|`]|(?<=\w)_(?!\w))", re.DOTALL)
SETTING = re.compile(r"^    (?P<name>\w+): .*?  # (?P<text>.+)$", re.MULTILINE)
SEEN = "api-page-seen"


def as_written(text: str) -> str:
    """The text with stars, bars and backquotes escaped, save in literals, *emphasis* and roles."""

    def escape(found: re.Match[str]) -> str:
        if not found[1]:
            return f"\\{found[2]}"
        joined = text[found.end() : found.end() + 1].isalnum()  # ``Upload``s
        return found[1] + "\\ " * joined

    return MARKUP.sub(escape, text)


def paragraph(lines: list[str]) -> list[str]:
    """Prose as it is written; what is indented, or a table of bars, in fixed width."""
    if all(line.startswith(("    ", "|")) for line in lines):
        return ["::", "", *(f"    {line}" for line in lines)]
    return as_written("\n".join(lines)).split("\n")


def paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """The runs of lines between empty ones."""
    for filled, run in groupby(lines, lambda line: bool(line.strip())):
        if filled:
            yield [*run]


def settings(cls: type) -> dict[str, str]:
    """Name -> the comment at the end of its line, for the fields of a dataclass."""
    source = inspect.getsource(cls)
    names = {f.name for f in fields(cls)}
    return {m["name"]: m["text"] for m in SETTING.finditer(source) if m["name"] in names}


def without_rules(signature: str) -> str:
    """A signature with plain types: of ``Annotated[float, rule]`` the page shows ``float``."""
    while (start := signature.find("Annotated[")) >= 0:
        depth, comma, end = 0, 0, 0
        for end in range(start + len("Annotated"), len(signature)):
            depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(signature[end], 0)
            if depth == 1 and signature[end] == "," and not comma:
                comma = end
            if depth == 0:
                break
        kind = signature[start + len("Annotated[") : comma or end]
        signature = signature[:start] + kind + signature[end + 1 :]
    return signature


def declared(cls: type) -> dict[str, Any]:
    """What a class declares of itself: variables that it or a parent calls ``ClassVar``."""
    own = [vars(c).get("__annotations__", {}) for c in reversed(cls.__mro__)]
    names = [n for notes in own for n, kind in notes.items() if "ClassVar" in str(kind)]
    return {n: getattr(cls, n) for n in names if hasattr(cls, n)}


def silent(cls: type) -> list[str]:
    """Methods of a class that say nothing new: they do what its parent's docstring says."""
    own = {n: m for n, m in vars(cls).items() if not n.startswith("_")}
    return [n for n, m in own.items() if inspect.isroutine(m) and not m.__doc__]


def read_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: dict, lines: list[str]
) -> None:
    lines[:] = [line for part in paragraphs(lines) for line in (*paragraph(part), "")]
    if what != "class" or not inspect.isclass(obj):
        return
    notes = []
    if is_dataclass(obj):
        notes = [f"``{field}``: {as_written(text)}" for field, text in settings(obj).items()]
        said = [f"``{n} = {value!r}``" for n, value in declared(obj).items() if value]
        notes += ["declares " + ", ".join(said)] * bool(said)
    if methods := silent(obj):
        notes.append("has its own " + ", ".join(f"``{n}``" for n in methods))
    lines += ["", *(f"* {note}" for note in notes), ""]


def read_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: dict, call: str | None, gives: str | None
) -> tuple[str | None, str | None]:
    """Plain types; defaults that are no Python, such as <factory>, as three dots."""
    return call and re.sub(r"<[^<>]+>", "...", without_rules(call)), gives and without_rules(gives)


def skip_member(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: dict) -> bool:
    """True for what stands elsewhere on the page: notes of a class, and objects shown before."""
    if skip or what not in ("module", "class"):
        return skip
    here = app.env.temp_data.get("autodoc:module")
    if what == "class":
        owner = getattr(import_module(here), app.env.temp_data["autodoc:class"])
        noted = (
            {f.name for f in fields(owner)} | {*declared(owner)} if is_dataclass(owner) else set()
        )
        return name in noted or name in silent(owner)
    if not inspect.isroutine(obj) and not inspect.isclass(obj):
        return False
    seen = app.env.temp_data.setdefault(SEEN, {})  # of this document
    return seen.setdefault(obj, here) != here


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", read_signature)
    app.connect("autodoc-skip-member", skip_member)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
