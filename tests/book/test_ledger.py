"""The ledger is complete, well formed, and points to results that exist; so is its checker.

With PRIVFL_PAPERS set to a folder with the five papers as text (not committed), the inventory and
every figure that the ledger quotes are compared with the papers themselves.
"""

import os
import re
from pathlib import Path

import pytest
from pybtex.database import parse_file

from privfl_lite.disk import write_record
from privfl_lite.teach import ledger

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "privfl_lite" / "results"
LEDGER = RESULTS / "ledger.yml"
PAPERS = os.environ.get("PRIVFL_PAPERS")

# What each paper holds: 1..5 is a range, 3-4 one group of equations. A headline is a claim without
# a number: first those of the abstract, then those that only the text makes.
INVENTORY = {
    "modelcloak": {
        "headline": "1..4",
        "table": "1..5",
        "figure": "1..2",
        "proposition": "1..2",
        "equation": "3-4 5 6",
    },
    "dcs2": {
        "headline": "1..6",
        "table": "1..11",
        "figure": "1..8",
        "algorithm": "1",
        "equation": "3 4-5 6-9 10 11-12",
    },
    "fedkl": {
        "headline": "1..5",
        "table": "1..7",
        "figure": "1..3",
        "definition": "1..3",
        "claim": "1..4",
        "proposition": "1..2",
        "equation": "6-7 8-10 11-16 21-26 27-29 30",
    },
    "model_entanglement": {
        "headline": "1..3",
        "figure": "1..6",
        "assumption": "1..3",
        "theorem": "1",
        "equation": "10 11-12",
    },
    "loda": {
        "headline": "1..4",
        "table": "1..7",
        "figure": "1..2",
        "definition": "4.1 4.2",
        "algorithm": "1",
        "equation": "2-3 4 5-6",
    },
}
# Equations without an entry of their own: part of a statement that has one, or notation only.
ELSEWHERE = {
    "modelcloak": {"notation": "1..2", "proposition-1": "7", "proposition-2": "8..9"},
    "dcs2": {"notation": "1..2"},
    "fedkl": {
        "definition-1": "1",
        "definition-2": "2",
        "claim-1": "3",
        "claim-2": "4..5",
        "definition-3": "17..20",
    },
    "model_entanglement": {"notation": "1..4", "theorem-1": "5..9"},
    "loda": {"notation": "1"},
}


def expand(numbers: str) -> list[str]:
    """'1..3 5-6' -> ['1', '2', '3', '5-6']."""
    found = []
    for part in numbers.split():
        first, dots, last = part.partition("..")
        found += map(str, range(int(first), int(last) + 1)) if dots else [part]
    return found


def equations(groups: str) -> list[int]:
    """Every single equation in groups such as '1..2 5-6'."""
    spans = [group.split("-") for group in expand(groups)]
    return [n for span in spans for n in range(int(span[0]), int(span[-1]) + 1)]


IDS = [
    f"{paper}/{kind}-{number}"
    for paper, kinds in INVENTORY.items()
    for kind, numbers in kinds.items()
    for number in expand(numbers)
]


def test_ledger_is_complete_and_points_to_something():
    assert ledger.problems(ledger.load(LEDGER), IDS, RESULTS, ROOT / "tests") == []


def test_ledger_table_has_a_row_for_each_entry():
    entries = ledger.load(LEDGER)
    assert ledger.table(entries).count("\n| `") == len(entries)
    for row in ledger.table(entries, "loda").splitlines()[2:]:
        assert row.startswith("| `loda/") and len(re.findall(r"(?<!\\)\|", row)) == 6


def test_references_parse():
    entries = parse_file(str(ROOT / "book" / "references.bib")).entries  # refuses a repeated key
    for key, entry in entries.items():
        assert entry.persons.get("author") and entry.fields.get("title"), key
    five = "wei2023modelcloak wu2024dcs2 ren2023fedkl anonymous2024entanglement wan2022loda"
    assert set(five.split()) <= set(entries)


# --- against the papers themselves ---------------------------------------------------------------

needs_papers = pytest.mark.skipif(
    not PAPERS, reason="PRIVFL_PAPERS is not set: the papers' texts are not part of the repository"
)
CAPTION = re.compile(
    r"^[*# ]*(?:Figure (?P<pair>\d+) & )?"
    r"(?P<kind>table|fig\.|figure|proposition|claim|lemma|theorem|definition|corollary|assumption|"
    r"algorithm) (?P<number>\d+(?:\.\d+)?|[IVX]+)(?=[.:*]|$| For| LEARNING| &)",
    re.IGNORECASE | re.MULTILINE,
)
ROMAN = {"I": "1", "II": "2", "III": "3", "IV": "4", "V": "5"}
TAG = re.compile(r"\\tag\{(\d+)[a-d]?\}|\((\d+)[a-d]?\)\s*\$\$|\$\$\s*\((\d+)[a-d]?\)\s*$", re.M)


@needs_papers
@pytest.mark.parametrize("paper", INVENTORY)
def test_inventory_agrees_with_paper(paper):
    text = Path(PAPERS, f"{paper}.txt").read_text(encoding="utf-8")
    found = set()
    for match in CAPTION.finditer(text):
        kind = match["kind"].lower().replace("fig.", "figure")
        found.add(f"{kind}-{ROMAN.get(match['number'], match['number'])}")
        found |= {f"figure-{match['pair']}"} if match["pair"] else set()
    ours = {item.partition("/")[2] for item in IDS if item.startswith(f"{paper}/")}
    assert found == {item for item in ours if not item.startswith(("headline", "equation"))}


@needs_papers
@pytest.mark.parametrize("paper", INVENTORY)
def test_every_numbered_equation_is_accounted_for(paper):
    text = Path(PAPERS, f"{paper}.txt").read_text(encoding="utf-8")
    found = {int(next(filter(None, match.groups()))) for match in TAG.finditer(text)}
    groups = [INVENTORY[paper]["equation"], *ELSEWHERE[paper].values()]
    ours = [n for group in groups for n in equations(group)]
    assert sorted(ours) == sorted(found)
    assert {f"{paper}/{item}" for item in ELSEWHERE[paper]} - {f"{paper}/notation"} <= set(IDS)


@needs_papers
@pytest.mark.parametrize("paper", INVENTORY)
def test_figures_quoted_in_ledger_stand_in_paper(paper):
    number = re.compile(r"\d+(?:\.\d+)?")
    printed = set(number.findall(Path(PAPERS, f"{paper}.txt").read_text(encoding="utf-8")))
    for entry in ledger.load(LEDGER):
        if entry["id"].startswith(f"{paper}/"):
            assert set(number.findall(entry["paper"])) <= printed, entry["id"]


# --- the checker itself --------------------------------------------------------------------------

GOOD = {
    "id": "p/table-1",
    "what": "a table",
    "paper": "0.9",
    "ours": ["r.json#/cells/0/a~1b"],
    "sizes": None,
    "verdict": "reproduced",
    "strength": "same data and net",
    "why": None,
    "chapter": "book/p",
}
NOT_RUN = {"ours": None, "verdict": "not run", "strength": "none", "why": "no data"}
STATEMENT = {"id": "p/claim-1", "ours": None, "strength": "theory"}
SMALL = {"verdict": "not tested at this size", "strength": "smaller", "sizes": "one image"}


@pytest.fixture
def folders(tmp_path):
    """A results folder with one file, and a tests folder with one test."""
    write_record(tmp_path / "r.json", {"cells": [{"a/b": 0.91}], "~": 0, "none": None})
    (tmp_path / "test_p.py").write_text("def test_claim():\n    pass\n# def test_comment():\n")
    return tmp_path, tmp_path


@pytest.mark.parametrize(
    "change",
    [{}, NOT_RUN, STATEMENT | {"tests": ["test_claim"]}, {"ours": ["r.json#/~0"]}, SMALL],
    ids=["results", "not run", "test of a statement", "zero is a value", "too small"],
)
def test_checker_accepts(change, folders):
    entry = GOOD | change
    assert ledger.problems([entry], [entry["id"]], *folders) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"what": " "}, "'what' must be text"),
        ({"paper": None}, "'paper' must be text"),
        ({"paper": 0.9}, "'paper' must be text"),
        ({"chapter": ""}, "'chapter' must be text"),
        ({"color": "red"}, "unknown field 'color'"),
        ({"verdict": "fine"}, "verdict 'fine' is not one of"),
        (NOT_RUN | {"why": None}, "'why' must be text"),
        ({"verdict": "not run", "why": "later"}, "names evidence"),
        ({"strength": "strong"}, "strength 'strong' is not one of"),
        ({"strength": None}, "strength None is not one of"),
        ({"strength": "none"}, "go together"),
        (NOT_RUN | {"strength": "smaller"}, "go together"),
        ({"strength": "theory"}, "no test is named"),
        (STATEMENT | {"tests": ["test_claim"], "strength": "smaller"}, "needs stored results"),
        ({"strength": "stand-in"}, "'sizes' does not say in what"),
        (SMALL | {"strength": "same data and net"}, "not tested at this size, but"),
        ({"ours": 0.91}, "'ours' must be null or a list"),
        ({"ours": "r.json#/cells"}, "'ours' must be null or a list"),
        ({"ours": []}, "'ours' must be null or a list"),
        ({"ours": [0.91]}, "0.91 is not of the form"),
        ({"ours": ["0.91"]}, "'0.91' is not of the form"),
        ({"ours": ["r.json"]}, "is not of the form"),
        ({"ours": ["../r.json#/cells"]}, "is not of the form"),
        ({"ours": ["/r.json#/cells"]}, "is not of the form"),
        ({"ours": ["r.json#cells"]}, "is not of the form"),
        ({"ours": ["r.json#/~2"]}, "is not of the form"),
        ({"ours": ["gone.json#/cells"]}, "there is no file gone.json"),
        ({"ours": ["r.json#/cells/1"]}, "points to nothing at 1"),
        ({"ours": ["r.json#/cells/00"]}, "points to nothing at '00'"),
        ({"ours": ["r.json#/cells/-"]}, "points to nothing at '-'"),
        ({"ours": ["r.json#/cells/0/a~1b/c"]}, "points to nothing at 'c'"),
        ({"ours": ["r.json#/none"]}, "points to null"),
        ({"ours": None}, "without evidence"),
        ({"ours": None, "tests": ["test_claim"]}, "without evidence"),  # a table needs results
        (STATEMENT, "without evidence"),
        (STATEMENT | {"tests": ["test_gone"]}, "no test is named 'test_gone'"),
        (STATEMENT | {"tests": ["test_comment"]}, "no test is named 'test_comment'"),
        (STATEMENT | {"tests": "test_claim"}, "'tests' must be null or a list"),
    ],
)
def test_checker_refuses(change, complaint, folders):
    entry = GOOD | change
    found = ledger.problems([entry], [entry["id"]], *folders)
    assert any(complaint in sentence for sentence in found), found
    assert all(sentence.startswith(f"{entry['id']}: ") for sentence in found)


@pytest.mark.parametrize("field", ledger.FIELDS[1:])
def test_checker_misses_each_field(field, folders):
    entry = {key: value for key, value in GOOD.items() if key != field}
    assert f"p/table-1: field {field!r} is missing" in ledger.problems(
        [entry], ["p/table-1"], *folders
    )


def test_checker_compares_with_inventory(folders):
    found = ledger.problems([GOOD, GOOD], ["p/table-2"], *folders)
    assert found == [
        "p/table-2: in the paper, but without an entry",
        "p/table-1: not in the inventory",
        "p/table-1: 2 entries",
    ]


def test_checker_lets_a_test_settle_the_table_of_epsilons(folders):
    entry = GOOD | STATEMENT | {"id": "modelcloak/table-3", "tests": ["test_claim"]}
    assert ledger.problems([entry], [entry["id"]], *folders) == []


def test_load_refuses_entry_under_wrong_paper(tmp_path):
    (tmp_path / "l.yml").write_text("q:\n  - id: p/table-1\n")
    with pytest.raises(ValueError, match="stands under 'q'"):
        ledger.load(tmp_path / "l.yml")


def test_resolve_follows_rfc_6901(folders):
    assert ledger.resolve("r.json#/cells/0/a~1b", folders[0]) == 0.91
    assert ledger.resolve("r.json#", folders[0])["~"] == 0


def test_table_shows_our_values_and_escapes(folders):
    row = ledger.table([GOOD | {"what": "a | b*"}], "p", folders[0]).splitlines()[2]
    assert row == r"| `p/table-1` | a \| b\* | 0.9 | 0.91 | reproduced (same data and net) |"
    assert "not run: no data" in ledger.table([GOOD | NOT_RUN])
