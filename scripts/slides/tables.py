"""Slides of small tables, as the notebook computed them."""

from __future__ import annotations

import re

from .model import Slide
from .outline import Section
from .setting import Piece, Setter, lead, sentences, signs

ROWS, COLUMNS, CELL = 9, 6, 30  # at most; characters of a cell
TAG = re.compile(r"<[^>]+>")


def table(section: Section, at: int, setter: Setter) -> Slide | None:
    """The table that item ``at`` of a section shows, if it can be read from the last row."""
    item = section.items[at]
    if "hide-cell" in item.cell.tags or not (html := shown(item.outputs)):
        return None
    before = next((i.text for i in reversed(section.items[:at]) if i.text), "")
    after = next((i.text for i in section.items[at + 1 : at + 2] if i.text), "")
    context = sentences(before)[-1] if before else ""
    context = context if signs(context) < 170 and not context.startswith(("*", "|")) else ""
    pieces = [*setter.pieces(context), Piece(html, "table", 0, html.count("<tr") + lines(html))]
    notes = (setter.html(lead(after, 3) or "Read one row aloud, then let others read the next."),)
    return Slide(
        "table", setter.inline(section.title), signs(section.title), section.part or "Table",
        tuple(pieces), notes, weight=1.7,
    )  # fmt: skip


def shown(outputs: tuple[dict, ...]) -> str:
    """The HTML of a table that is small enough, else nothing."""
    for output in outputs:
        html = "".join(output.get("data", {}).get("text/html", ""))
        heads = html.partition("</thead>")[0].count("<th ")
        if "pf-table" in html and html.count("<tr") <= ROWS and heads <= COLUMNS:
            cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", html, re.S)
            if max(len(TAG.sub("", cell)) for cell in cells) <= CELL:
                return html
    return ""


def lines(html: str) -> int:
    """Lines that long cells of the head take besides."""
    cells = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", html, re.S)
    return max(len(TAG.sub("", cell)) for cell in cells) // 14
