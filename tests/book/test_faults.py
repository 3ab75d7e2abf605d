"""benchmarks/faults.md: its rows are those of scripts/faults, and none of them is a loss."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "benchmarks" / "faults.md"


def tables() -> list[list[list[str]]]:
    """The cells of each table, without its head."""
    found: list[list[list[str]]] = [[]]
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.split(" | ")])
        elif found[-1]:
            found.append([])
    return [rows[2:] for rows in found if rows]


@pytest.fixture
def scripts(monkeypatch):
    """The modules of scripts/faults, which start nothing when they are imported."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "faults"))
    names = ("kills", "races", "damage", "disks", "epsilon_cases", "audits")
    yield {name: importlib.import_module(name) for name in names}
    for name in (*names, "trial"):
        sys.modules.pop(name)


def test_the_document_has_a_row_for_every_case_of_the_script(scripts):
    faults, epsilon, audits = tables()
    assert [row[0].removeprefix("| ") for row in faults] == [*sys.modules["trial"].FAULTS]
    cases = scripts["epsilon_cases"].CASES
    assert [row[0].removeprefix("| ") for row in epsilon] == [case[0] for case in cases]
    for row, (_, setting, before, held, test, *_) in zip(epsilon, cases, strict=True):
        assert [*row[1:4], row[6]] == [f"`{setting}`", before, held, f"`{test}` |"]
        code = (ROOT / "tests" / "unit" / "test_epsilon.py").read_text(encoding="utf-8")
        assert f"def {test}(" in code
    of = scripts["audits"].cases
    names = [*of.CLAIMS, "ModelCloak at the server, 3 rounds", *(f"wrong: {n}" for n in of.WRONG)]
    assert [row[0].removeprefix("| ") for row in audits] == names


def test_nothing_was_lost_and_nothing_loaded_unnoticed():
    text = DOCUMENT.read_text(encoding="utf-8")
    faults, epsilon, audits = tables()
    for row in (*faults, *epsilon, *audits):  # what went wrong is set in bold
        assert "**" not in "".join(row) and "not run" not in row[1], row
    for row in faults:
        assert "unnoticed" not in row[1] or ", 0 loaded unnoticed" in row[1], row
    for word in ("/home/", "/root/", "/work/", "/tmp/", "uncommitted"):
        assert word not in text, word
    assert "{'refused'" in text and "failed" not in text.partition("## Bad inputs")[2]


def test_what_is_stated_now_is_never_below_the_independent_value(scripts):
    compared = 0
    for row in tables()[1]:
        if row[5] != "–":
            now, pld = float(row[4].split()[2]), float(row[5].split()[0])
            assert pld * 0.999 <= now, row
            compared += 1
    assert compared == len(scripts["epsilon_cases"].BY_HAND) == 5
