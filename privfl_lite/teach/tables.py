"""Tables of results: one number in a cell, its unit in the head, the best one marked.

``table(rows)`` takes rows as dictionaries, head -> value, and is an object that a notebook shows:
an HTML table on a page and in JupyterLab, columns of text where there is no HTML. With ``sort`` the
book's script (book/_assets/tables.js) lets readers sort and filter it; else it is a plain table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ..runtime import PrivflError, choose

DASH = "–"  # where there is no number


@dataclass(frozen=True)
class Spread:
    """A number with its interval, which stands in small type beside it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Table:
    """What ``table`` returns."""

    rows: tuple[Mapping[str, Any], ...]
    caption: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    best: Mapping[str, str] = field(default_factory=dict)
    sort: bool = False

    @property
    def heads(self) -> list[str]:
        return list(dict.fromkeys(head for row in self.rows for head in row))

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col"{_side(self, h)}>{self._head(h)}</th>' for h in self.heads)
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        body = "".join(f"<tr>{self._row(row)}</tr>" for row in self.rows)
        name = escape(self.caption or f"Table of {', '.join(self.heads)}", quote=True)
        kind = "pf-table pf-sortable" if self.sort else "pf-table"
        return (
            f'<div class="{kind}" role="region" tabindex="0" aria-label="{name}">'
            f'<table class="table">{caption}<thead><tr>{heads}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def __repr__(self) -> str:
        lines = [[_plain(self, h) for h in self.heads]]
        lines += [[self._text(h, row.get(h)) for h in self.heads] for row in self.rows]
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        put = [str.rjust if self._number(h) else str.ljust for h in self.heads]
        text = [
            "  ".join(p(c, w) for p, c, w in zip(put, line, wide, strict=True)) for line in lines
        ]
        return "\n".join([*([self.caption] if self.caption else []), *(t.rstrip() for t in text)])

    def _head(self, head: str) -> str:
        unit = f" <small>{escape(self.units[head])}</small>" if head in self.units else ""
        return escape(head) + unit

    def _row(self, row: Mapping[str, Any]) -> str:
        cells = []
        for i, head in enumerate(self.heads):
            value, side = row.get(head), _side(self, head)
            text = escape(self._text(head, value, interval=False))
            if isinstance(value, Spread):
                low, high = (escape(self._number_text(head, v)) for v in (value.low, value.high))
                text += f" <small>{low} to {high}</small>"
            if self._is_best(head, value):
                text = f'<strong>{text}</strong><span class="pf-hidden"> (best)</span>'
            side += self._key(value) if self.sort else ""
            cells.append(f'<th scope="row">{text}</th>' if i == 0 else f"<td{side}>{text}</td>")
        return "".join(cells)

    def _key(self, value: Any) -> str:
        """What a script sorts by: the number, with all its digits."""
        size = _size(value)
        return "" if size is None else f' data-value="{size!r}"'

    def _text(self, head: str, value: Any, interval: bool = True) -> str:
        if isinstance(value, Spread):
            middle, low, high = (
                self._number_text(head, v) for v in (value.value, value.low, value.high)
            )
            return f"{middle} ({low} to {high})" if interval else middle
        if isinstance(value, bool):
            return "yes" if value else "no"
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return DASH
        return self._number_text(head, value) if isinstance(value, int | float) else str(value)

    def _number_text(self, head: str, value: float) -> str:
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        return format(
            value, self.formats.get(head, "," if isinstance(value, int) else ".3g")
        ).replace("-", "−")

    def _number(self, head: str) -> bool:
        values = [row.get(head) for row in self.rows]
        return any(_size(v) is not None for v in values) and not any(
            isinstance(v, str) for v in values
        )

    def _is_best(self, head: str, value: Any) -> bool:
        sizes = [s for row in self.rows if (s := _size(row.get(head))) is not None]
        if head not in self.best or len(sizes) < 2 or (size := _size(value)) is None:
            return False
        return size == (max if self.best[head] == "high" else min)(sizes)


def table(
    rows: Sequence[Mapping[str, Any]],
    caption: str = "",
    units: Mapping[str, str] | None = None,
    formats: Mapping[str, str] | None = None,
    best: Mapping[str, str] | None = None,
    sort: bool = False,
) -> Table:
    """A table to be the last line of a cell, or to be given to ``display``.

    ``rows``: head -> value, the first head naming the row; a value is a number (a tensor of one,
    too), a text, a ``Spread`` (number with interval) or None (a dash). ``units``: head -> unit.
    ``formats``: head -> format of its numbers, as ".1f" or ".0%" (default: three digits).
    ``best``: head -> "high" or "low", whose best number is marked. ``sort``: readers of the page
    may sort by any head, and filter by words.
    """
    if not rows or not all(rows):
        raise PrivflError("a table needs at least one row, and each row at least one value")
    plain = [{h: v.item() if hasattr(v, "item") else v for h, v in row.items()} for row in rows]
    made = Table(tuple(plain), caption, units or {}, formats or {}, best or {}, sort)
    for head, which in (best or {}).items():
        choose("direction", which, ("high", "low"))
        choose("head", head, made.heads)
    for head in {**made.units, **made.formats}:
        choose("head", head, made.heads)
    return made


def _size(value: Any) -> float | None:
    """The number in a cell, if there is one."""
    if isinstance(value, Spread):
        value = value.value
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)


def _side(made: Table, head: str) -> str:
    return ' class="pf-number"' if made._number(head) else ""


def _plain(made: Table, head: str) -> str:
    return f"{head} ({made.units[head]})" if head in made.units else head
