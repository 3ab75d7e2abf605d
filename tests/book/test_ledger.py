"""The ledger is complete, well formed, and points to results that exist; so is its checker.

With PRIVFL_PAPERS set to a folder with the five papers as text (not committed), the inventory and
every figure that the ledger quotes are compared with the papers themselves.
"""

import json
import os
import re
from pathlib import Path

import pytest
from pybtex.database import parse_file

from privfl_lite.disk import write_record
from privfl_lite.errors import PrivflError
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


def test_a_papers_numbers_are_read_by_its_own_names():
    table = ledger.paper("dcs2/table-1")
    assert table["MNIST"]["DCS²"]["PSNR"] == [7.84, 2.56]
    table.clear()  # a copy: nobody changes what the next one reads
    assert ledger.paper("dcs2/table-1")
    with pytest.raises(PrivflError, match="unknown table of a paper 'dcs2/table-99'"):
        ledger.paper("dcs2/table-99")


def test_a_grid_is_read_as_cells():
    cells = ledger.grid("modelcloak/table-2", "CIFAR10", sigma="σ", clip="C")
    table = ledger.paper("modelcloak/table-2")
    assert len(cells) == len(table["σ"]) * len(table["C"]) == 30
    (cell,) = [c for c in cells if (c["sigma"], c["clip"]) == (3, 2)]
    assert cell == {"sigma": 3, "clip": 2, "accuracy": 0.613, "success": 0}
    for k in ("accuracy", "success"):
        assert [c[k] for c in cells] == [v for row in table["CIFAR10"][k] for v in row]


def test_code_reads_the_papers_numbers_and_does_not_repeat_them():
    """Chapters type no number of four digits, which would be no accident, that a paper has."""
    entries = [entry for entry in ledger.load(LEDGER) if "numbers" in entry]
    values = {v for e in entries for v in ledger.leaves(e["numbers"]) if isinstance(v, float)}
    known = {v for v in values if len(f"{v:f}".replace(".", "").strip("0")) >= 4}
    assert len(known) > 150
    typed = {}
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        found = {n for n in re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", code) if float(n) in known}
        typed |= {path.name: sorted(found)} if found else {}
    assert typed == {}


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


@needs_papers
@pytest.mark.parametrize("paper", INVENTORY)
def test_numbers_in_ledger_stand_in_paper(paper):
    """As values, since YAML drops a last zero. δ = 1e-5 is printed with its exponent."""
    text = Path(PAPERS, f"{paper}.txt").read_text(encoding="utf-8")
    printed = {float(n) for n in re.findall(r"\d+(?:\.\d+)?", text)} | {1e-5}
    for entry in ledger.load(LEDGER):
        if entry["id"].startswith(f"{paper}/"):
            held = [v for v in ledger.leaves(entry.get("numbers", {})) if not isinstance(v, str)]
            assert {abs(v) for v in held} <= printed, entry["id"]


# --- the checker itself --------------------------------------------------------------------------

GOOD = {
    "id": "p/table-1",
    "what": "a table",
    "paper": "0.9",
    "ours": ["r.json#/cells/part=x&of=20/a~1b"],
    "sizes": None,
    "verdict": "reproduced",
    "strength": "same data and net",
    "why": None,
    "chapter": "book/p",
}
CELL = "r.json#/cells/part=x&of=20"
NOT_RUN = {"ours": None, "verdict": "not run", "strength": "none", "why": "no data"}
STATEMENT = {"id": "p/claim-1", "ours": None, "strength": "theory"}
SMALL = {"verdict": "not tested at this size", "strength": "smaller", "sizes": "one image"}


@pytest.fixture
def folders(tmp_path):
    """A results folder with one file, and a tests folder with one test."""
    cells = [
        {"part": "x", "of": 20.0, "a/b": 0.91, "seen": [3, 5], "rows": [{"net": "a", "n": 7}]},
        {"part": "x", "of": 3, "on": True},
        {"part": "1", "of": 20, "on": 1},
    ]
    write_record(tmp_path / "r.json", {"cells": cells, "~": 0, "none": None})
    (tmp_path / "test_p.py").write_text("def test_claim():\n    pass\n# def test_comment():\n")
    return tmp_path, tmp_path


@pytest.mark.parametrize(
    "change",
    [
        {},
        NOT_RUN,
        STATEMENT | {"tests": ["test_claim"]},
        {"ours": ["r.json#/~0"]},
        SMALL,
        {"numbers": {"a": [0.9]}, "scope": "gray"},
    ],
    ids=["results", "not run", "test of a statement", "zero is a value", "too small", "numbers"],
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
        ({"ours": ["r.json#/cells/0/a~1b"]}, "picks a cell by '0' and not by its settings"),
        ({"ours": ["r.json#/cells/part/a~1b"]}, "picks a cell by 'part' and not by"),
        ({"ours": ["r.json#/cells/part=x&=20/a~1b"]}, "and not by its settings"),
        ({"ours": ["r.json#/cells/part=x/a~1b"]}, "picks 2 cells by 'part=x', not one"),
        ({"ours": ["r.json#/cells/part=y/a~1b"]}, "picks 0 cells by 'part=y', not one"),
        ({"ours": ["r.json#/cells/gone=x/a~1b"]}, "picks 0 cells by 'gone=x', not one"),
        ({"ours": ["r.json#/cells/of=twenty/a~1b"]}, "picks 0 cells by"),
        ({"ours": [f"{CELL}/seen/2"]}, "points to nothing at '2'"),
        ({"ours": [f"{CELL}/seen/00"]}, "points to nothing at '00'"),
        ({"ours": [f"{CELL}/seen/-"]}, "points to nothing at '-'"),
        ({"ours": [f"{CELL}/a~1b/c"]}, "points to nothing at 'c'"),
        ({"numbers": None}, "'numbers' must be a mapping"),
        ({"numbers": {}}, "'numbers' must be a mapping"),
        ({"numbers": {"a": [0.8]}}, "'paper' says 0.9, 'numbers' do not"),
        ({"scope": ""}, "'scope' must be text"),
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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/cells/part=x&of=20/a~1b", 0.91),
        ("/cells/of=20.0&part=x/seen/1", 5),
        ("/cells/part=x&of=20/rows/net=a/n", 7),
        ("/cells/on=true/of", 3),  # true is not 1
        ("/cells/on=1/of", 20),
        ("/cells/part=1/of", 20),  # the text "1"
        ("/~0", 0),
    ],
)
def test_resolve_picks_cells_by_settings_and_follows_rfc_6901(path, value, folders):
    assert ledger.resolve(f"r.json#{path}", folders[0]) == value


def test_resolve_sees_a_result_that_was_made_again(folders):
    assert ledger.resolve("r.json#/~0", folders[0]) == 0
    write_record(folders[0] / "r.json", {"~": 1})
    os.utime(folders[0] / "r.json", ns=(1, 1))
    assert ledger.resolve("r.json#/~0", folders[0]) == 1
