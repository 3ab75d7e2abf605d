"""The ledger: what each paper says, where our own number is stored, and the verdict.

``privfl_lite/results/ledger.yml`` maps a paper to its entries, one for every table, figure and
statement. Our side is never a typed number: it is a path into that folder such as
``table2.json#/cells/0`` (after ``#`` an RFC 6901 pointer), or the name of a test that checks a
statement. The verdict says what we found; the strength says what it was found on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from ..disk import read_record
from ..errors import needs

with needs("book"):
    import yaml

Entry = dict[str, Any]
Folder = str | Path
VERDICTS = (
    "reproduced",
    "same direction",
    "differs",
    "refuted",
    "not tested at this size",
    "not run",
)
STRENGTHS = ("same data and net", "smaller", "stand-in", "theory", "none")
# An entry may also have the field tests.
FIELDS = ("id", "what", "paper", "ours", "sizes", "verdict", "strength", "why", "chapter")
MEASURED = ("table", "figure")  # these need stored results; a statement may be settled by a test
COMPUTED = ("modelcloak/table-3",)  # a table of closed-form values, which a test computes


def load(path: str | Path) -> list[Entry]:
    """Read the ledger into one flat list; an entry filed under the wrong paper is an error."""
    papers = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    for paper, entries in papers.items():
        for entry in entries:
            if not str(entry.get("id")).startswith(f"{paper}/"):
                raise ValueError(f"entry {entry.get('id')!r} stands under {paper!r}")
    return [entry for entries in papers.values() for entry in entries]


def resolve(path: str, results_folder: Folder) -> Any:
    """The value behind ``file.json#/a/b/0``; ValueError: no such form, LookupError: no value."""
    name, mark, pointer = path.partition("#") if isinstance(path, str) else ("", "", "")
    inside = name.endswith(".json") and ".." not in Path(name).parts and not name.startswith("/")
    if not (inside and mark and re.fullmatch(r"(/([^~]|~[01])*)?", pointer)):
        raise ValueError(f"{path!r} is not of the form file.json#/a/b/0")
    file = Path(results_folder, name)
    if not file.is_file():
        raise LookupError(f"{path!r}: there is no file {name}")
    value: Any = read_record(file, f"make {name} again")
    token: str | int
    for token in (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]):
        if isinstance(value, list) and re.fullmatch("0|[1-9][0-9]*", str(token)):
            value, token = dict(enumerate(value)), int(token)
        if not (isinstance(value, dict) and token in value):
            raise LookupError(f"{path!r} points to nothing at {token!r}")
        value = value[token]
    return value


def problems(
    ledger: list[Entry], inventory: Collection[str], results_folder: Folder, tests_folder: Folder
) -> list[str]:
    """All that is wrong with a ledger, one sentence each; `inventory` holds every id it needs."""
    needed = set(inventory)
    count = Counter(str(entry.get("id")) for entry in ledger)
    found = [f"{i}: in the paper, but without an entry" for i in sorted(needed - count.keys())]
    found += [f"{i}: not in the inventory" for i in sorted(count.keys() - needed)]
    found += [f"{i}: {n} entries" for i, n in count.items() if n > 1]
    files = sorted(Path(tests_folder).rglob("test_*.py"))
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    tests = set(re.findall(r"^[ \t]*def (test_\w+)\(", code, re.MULTILINE))
    for entry in ledger:
        wrong = [*_form(entry), *_evidence(entry, results_folder, tests)]
        found += [f"{entry.get('id')}: {sentence}" for sentence in wrong]
    return found


def _form(entry: Entry) -> Iterable[str]:
    """Missing, unknown, empty and ill-typed fields."""
    yield from (f"field {f!r} is missing" for f in FIELDS if f not in entry)
    yield from (f"unknown field {f!r}" for f in entry if f not in (*FIELDS, "tests"))
    if entry.get("verdict") not in VERDICTS:
        yield f"verdict {entry.get('verdict')!r} is not one of {', '.join(VERDICTS)}"
    if entry.get("strength") not in STRENGTHS:
        yield f"strength {entry.get('strength')!r} is not one of {', '.join(STRENGTHS)}"
    for f in ("what", "paper", "chapter", *["why"] * (entry.get("verdict") == "not run")):
        if not (isinstance(entry.get(f), str) and entry[f].strip()):
            yield f"{f!r} must be text, and not empty"
    for f in ("ours", "tests"):
        if entry.get(f) is not None and not (isinstance(entry[f], list) and entry[f]):
            yield f"{f!r} must be null or a list with something in it"


def _evidence(entry: Entry, results_folder: Folder, tests: Collection[str]) -> Iterable[str]:
    """Paths that lead nowhere, numbers typed by hand, tests that are not there, bare verdicts."""
    ours, named = (v if isinstance(v := entry.get(f), list) else [] for f in ("ours", "tests"))
    for path in ours:
        try:
            if resolve(path, results_folder) is None:
                yield f"{path!r} points to null"
        except (ValueError, LookupError) as error:
            yield str(error)
    yield from (f"no test is named {name!r}" for name in named if name not in tests)
    kind = str(entry.get("id")).partition("/")[2].partition("-")[0]
    tests_do = kind not in MEASURED or entry.get("id") in COMPUTED
    if entry.get("verdict") == "not run" and (ours or named):
        yield "says 'not run', but names evidence"
    if entry.get("verdict") != "not run" and not (ours or (named and tests_do)):
        yield f"verdict {entry.get('verdict')!r} without evidence in 'ours'"
    yield from _strength(entry, bool(ours), bool(named))


def _strength(entry: Entry, measured: bool, tested: bool) -> Iterable[str]:
    """A strength that the entry's evidence does not have."""
    strength = entry.get("strength")
    if (strength == "none") != (entry.get("verdict") == "not run"):
        yield "strength 'none' and verdict 'not run' go together"
    if strength == "theory" and not tested:
        yield "strength 'theory', but no test is named"
    if strength in STRENGTHS[:3] and not measured:
        yield f"strength {strength!r} needs stored results in 'ours'"
    cut = strength in ("smaller", "stand-in")
    if cut and not entry.get("sizes"):
        yield f"strength {strength!r}, but 'sizes' does not say in what"
    if entry.get("verdict") == "not tested at this size" and not cut:
        yield f"not tested at this size, but of strength {strength!r}"


def table(entries: Iterable[Entry], paper: str | None = None, results: Folder | None = None) -> str:
    """Markdown table of the entries (of one paper); given a results folder, with our values."""
    rows = ["| id | what | the paper | ours | verdict |", "|---|---|---|---|---|"]
    for e in (e for e in entries if paper is None or e["id"].startswith(f"{paper}/")):
        ours = e.get("ours") or []
        if results is not None:
            values = [resolve(path, results) for path in ours]
            ours = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in values]
        ours = ", ".join([*ours, *(f"test {name}" for name in e.get("tests") or [])]) or "–"
        why = f": {e['why']}" if e["verdict"] == "not run" else f" ({e['strength']})"
        cells = (" ".join(c.split()) for c in (e["what"], e["paper"], ours, e["verdict"] + why))
        safe = (re.sub(r"([\\|*_<>$`\[\]#])", r"\\\1", cell) for cell in cells)
        rows.append(f"| `{e['id']}` | {' | '.join(safe)} |")
    return "\n".join(rows) + "\n"
