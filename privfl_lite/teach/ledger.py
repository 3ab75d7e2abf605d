"""The ledger: what each paper says, where our own number is stored, and the verdict.

``privfl_lite/results/ledger.yml`` maps a paper to its entries, one for every table, figure and
statement. The papers' numbers stand there once, as data; chapters and tests read them with
``ledger.paper("dcs2/table-1")``. Our side is never a typed number: it is the name of a test that
checks a statement, or a path into that folder such as
``dcs2/attack.json#/cells/part=table&defense=none&attack=GS/psnr_mean``. After ``#`` stands an RFC
6901 pointer with one addition: of a list of cells, settings pick the one that has them, since a
position would change its meaning with every new cell. The verdict says what we found; the strength
says what it was found on.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..disk import read_record
from ..errors import PrivflError, choose, needs
from ..stored import SHIPPED, is_written

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
FIELDS = ("id", "what", "paper", "ours", "sizes", "verdict", "strength", "why", "chapter")
# The paper's numbers as data; for what the verdict holds; tests that settle a statement.
OPTIONAL = ("numbers", "scope", "tests")
MEASURED = ("table", "figure")  # these need stored results; a statement may be settled by a test
COMPUTED = ("modelcloak/table-3",)  # a table of closed-form values, which a test computes


def load(path: str | Path) -> list[Entry]:
    """Read the ledger into one flat list; an entry filed under the wrong paper is an error."""
    papers = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    for name, entries in papers.items():
        for entry in entries:
            if not str(entry.get("id")).startswith(f"{name}/"):
                raise ValueError(f"entry {entry.get('id')!r} stands under {name!r}")
    return [entry for entries in papers.values() for entry in entries]


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Entry]:
    return {entry["id"]: entry for entry in load(SHIPPED / "ledger.yml")}


def paper(item: str) -> Any:
    """A paper's printed numbers, such as those of "dcs2/table-1", by the paper's own names."""
    held = [name for name, entry in _shipped().items() if "numbers" in entry]
    return copy.deepcopy(_shipped()[choose("table of a paper", item, held)]["numbers"])


def grid(item: str, block: str, **axes: str) -> list[dict[str, Any]]:
    """A printed grid as cells: ``grid("modelcloak/table-2", "MNIST", sigma="σ", clip="C")``."""
    table = paper(item)
    (row, rows), (column, columns) = ((name, table[axis]) for name, axis in axes.items())
    return [
        {row: r, column: c, **{name: values[i][j] for name, values in table[block].items()}}
        for i, r in enumerate(rows)
        for j, c in enumerate(columns)
    ]


def resolve(path: str, results_folder: Folder) -> Any:
    """The value behind ``file.json#/cells/part=table&attack=GS/psnr_mean``, or a PrivflError."""
    name, mark, pointer = path.partition("#") if isinstance(path, str) else ("", "", "")
    inside = name.endswith(".json") and ".." not in Path(name).parts and not name.startswith("/")
    if not (inside and mark and re.fullmatch(r"(/([^~]|~[01])*)?", pointer)):
        raise PrivflError(f"{path!r} is not of the form file.json#/cells/setting=value/name")
    file = Path(results_folder, name)
    if not file.is_file():
        raise PrivflError(f"{path!r}: there is no file {name}")
    value = _read(file, file.stat().st_mtime_ns)
    for part in pointer.split("/")[1:]:
        token = part.replace("~1", "/").replace("~0", "~")
        try:
            value = _pick(value, token) if _is_cells(value) else _step(value, token)
        except LookupError as error:
            raise PrivflError(f"{path!r} {error.args[0]}") from None
    return value


def about(study: str, cell: Mapping[str, Any]) -> list[Entry]:
    """The entries whose evidence is in this cell of a study."""
    start = f"{study}.json#/cells/"
    return [
        entry
        for entry in _shipped().values()
        if any(path.startswith(start) and _has(cell, path) for path in entry.get("ours") or ())
    ]


def _has(cell: Mapping[str, Any], path: str) -> bool:
    """Whether a path of the ledger leads into a cell with these settings."""
    token = path.split("/cells/")[1].split("/")[0].replace("~1", "/").replace("~0", "~")
    wanted = [part.partition("=") for part in token.split("&")]
    return all(key in cell and is_written(cell[key], text) for key, _, text in wanted)


@lru_cache(maxsize=64)
def _read(file: Path, changed: int) -> Any:
    return read_record(file, f"make {file.name} again")


def _is_cells(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _step(value: Any, token: str) -> Any:
    """One step of RFC 6901: a key of an object, or the place in a list of plain values."""
    if isinstance(value, list) and re.fullmatch("0|[1-9][0-9]*", token):
        value = {str(i): v for i, v in enumerate(value)}
    if not (isinstance(value, dict) and token in value):
        raise LookupError(f"points to nothing at {token!r}")
    return value[token]


def _pick(cells: list[dict[str, Any]], token: str) -> Any:
    """The one cell with these settings, written ``part=table&defense=none&noise=0.5``."""
    settings = [part.partition("=") for part in token.split("&")]
    if not all(key and equals for key, equals, _ in settings):
        raise LookupError(f"picks a cell by {token!r} and not by its settings")
    wanted = {key: text for key, _, text in settings}
    found = [c for c in cells if all(k in c and is_written(c[k], t) for k, t in wanted.items())]
    if len(found) != 1:
        raise LookupError(f"picks {len(found)} cells by {token!r}, not one")
    return found[0]


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
    yield from (f"unknown field {f!r}" for f in entry if f not in (*FIELDS, *OPTIONAL))
    if entry.get("verdict") not in VERDICTS:
        yield f"verdict {entry.get('verdict')!r} is not one of {', '.join(VERDICTS)}"
    if entry.get("strength") not in STRENGTHS:
        yield f"strength {entry.get('strength')!r} is not one of {', '.join(STRENGTHS)}"
    needed = ["why"] * (entry.get("verdict") == "not run") + ["scope"] * ("scope" in entry)
    for f in ("what", "paper", "chapter", *needed):
        if not (isinstance(entry.get(f), str) and entry[f].strip()):
            yield f"{f!r} must be text, and not empty"
    for f in ("ours", "tests"):
        if entry.get(f) is not None and not (isinstance(entry[f], list) and entry[f]):
            yield f"{f!r} must be null or a list with something in it"
    if "numbers" in entry:
        yield from _numbers(entry)


def _numbers(entry: Entry) -> Iterable[str]:
    """Numbers that are not data, and numbers of the text in 'paper' that are not among them."""
    if not (isinstance(entry["numbers"], dict) and entry["numbers"]):
        yield "'numbers' must be a mapping with something in it"
        return
    held = {abs(value) for value in leaves(entry["numbers"]) if not isinstance(value, str)}
    quoted = re.findall(r"\d+\.\d+", str(entry.get("paper")))
    yield from (f"'paper' says {q}, 'numbers' do not" for q in quoted if float(q) not in held)


def leaves(data: Any) -> Iterable[Any]:
    """All keys and values of nested mappings and lists that are no mapping or list themselves."""
    if isinstance(data, dict):
        data = [*data, *data.values()]
    if not isinstance(data, list):
        yield data
        return
    for part in data:
        yield from leaves(part)


def _evidence(entry: Entry, results_folder: Folder, tests: Collection[str]) -> Iterable[str]:
    """Paths that lead nowhere, numbers typed by hand, tests that are not there, bare verdicts."""
    ours, named = (v if isinstance(v := entry.get(f), list) else [] for f in ("ours", "tests"))
    for path in ours:
        try:
            if resolve(path, results_folder) is None:
                yield f"{path!r} points to null"
        except PrivflError as error:
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
