"""What pages say about the book itself: reading times, the map, the promise of one notation."""

from __future__ import annotations

import json
import re

import pytest
from checkout import BOOK, NOTEBOOKS

HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
TIMES = re.compile(r"skim (\d+)(?: min\w*)?, study (\d+)", re.IGNORECASE)
FENCE = r"^(`{3,})\{prf:proof\}.*?^\1\s*$"  # a proof, as far as its closing fence


def cells(name: str) -> list[tuple[str, str, set[str]]]:
    """(kind, source, tags) of each cell of a chapter."""
    notebook = json.loads((BOOK / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [
        (c["cell_type"], "".join(c["source"]), set(c["metadata"].get("tags", [])))
        for c in notebook["cells"]
    ]


def words(name: str) -> str:
    return "\n".join(source for kind, source, _ in cells(name) if kind == "markdown")


def printed(name: str) -> str:
    """All text that a chapter's cells have printed, tables included."""
    notebook = json.loads((BOOK / f"{name}.ipynb").read_text(encoding="utf-8"))
    outputs = [o for c in notebook["cells"] for o in c.get("outputs", [])]
    texts = [o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in outputs]
    return "\n".join("".join(text) for text in texts)


def reading(name: str) -> tuple[float, float]:
    """Minutes to skim and to study a chapter without its exercises.

    Skimming is 200 words a minute, without proofs. To study adds 3 minutes for each proof, and one
    for every 15 lines of visible code.
    """
    text, lines, out = "", 0, False
    for kind, source, tags in cells(name):
        for line in source.splitlines():
            if kind == "markdown" and line.startswith("## "):
                out = line.startswith("## Exercises")
            if not out and kind == "markdown":
                text += line + "\n"
            elif not out and not tags & HIDDEN:
                lines += bool(line.strip())
    text, proofs = re.subn(FENCE, "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", " x ", text, flags=re.DOTALL)
    skim = len(re.findall(r"[^\W_][\w'’-]*", text)) / 200
    return skim, skim + 3 * proofs + lines / 15


STATED = [p.stem for p in NOTEBOOKS if TIMES.search(words(p.stem))]


@pytest.mark.parametrize("name", STATED)
def test_stated_times_are_those_that_reading_takes(name):
    said = [int(minutes) for minutes in TIMES.search(words(name)).groups()]
    for minutes, real in zip(said, reading(name), strict=True):
        assert abs(minutes - real) <= max(6, 0.25 * real), f"{minutes} stated, {real:.0f} needed"


def test_no_chapter_is_called_by_a_number():
    """Pages have titles and no numbers, so a number leads nowhere."""
    pages = {p.stem: words(p.stem) for p in NOTEBOOKS}
    pages |= {p.stem: p.read_text(encoding="utf-8") for p in BOOK.glob("*.md")}
    assert not [n for n, text in pages.items() if re.search(r"\b[Cc]hapter \d", text)]


def test_membership_calls_certain_what_its_table_prints_as_one():
    rows = re.findall(
        r"^(untrained|after 6 rounds) +(plain|informed) +([\d.]+)", printed("membership"), re.M
    )
    auc = {(net, test): float(value) for net, test, value in rows}
    assert [k for k, v in auc.items() if v < 1] == [("after 6 rounds", "plain")]
    assert "AUC {:.2f}".format(auc["after 6 rounds", "plain"]) in words("membership")


def test_notation_names_the_letters_that_change():
    """The page lists letters with other meanings elsewhere; those chapters do use them so."""
    page = (BOOK / "notation.md").read_text(encoding="utf-8")
    table = page.partition("## Letters with a second meaning")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \$(.+?)\$ \|.*\|$", table, re.MULTILINE)
    assert {"N", "d", "P", "k", "s", r"\rho", "C"} <= set(rows)
    for name in set(re.findall(r"\{doc\}`([\w-]+)`", table)):
        assert (BOOK / f"{name}.ipynb").exists()
