"""One cell of a study, computed again: another seed, another machine, another profile.

The study's table stays; the new numbers stand beside the stored ones, and a reader may keep them
among their own results, where ``Study.show`` finds them first.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from .. import disk
from ..data import sources
from ..errors import PrivflError
from ..runtime import device
from ..stored import is_written, own
from .base import Study, versions

Cell = dict[str, Any]


def find(study: Study, wanted: Mapping[str, str], profile: str = "cpu") -> Cell:
    """The one cell of a study with these settings, given as text: {"attack": "gs"}."""
    cells = study.cells(study.settings(profile))
    found = [c for c in cells if all(k in c and is_written(c[k], v) for k, v in wanted.items())]
    if len(found) == 1:
        return found[0]
    if found:
        more = sorted({key for cell in found for key in cell} - wanted.keys())
        raise PrivflError(f"{len(found)} cells have these settings; name also {', '.join(more)}")
    said = ", ".join(f"{key}={value}" for key, value in wanted.items())
    first = " ".join(f"{key}={value}" for key, value in cells[0].items())
    raise PrivflError(f"{study.name} has no cell with {said}; its first one is {first}")


def reseeded(settings: dict, cell: Cell, seed: int) -> tuple[dict, Cell]:
    """Settings and cell with another seed: the cell's own, else the study's, else its only one."""
    if "seed" in cell:
        return settings, {**cell, "seed": seed}
    if "seed" in settings:
        return {**settings, "seed": seed}, cell
    if isinstance(many := settings.get("seeds"), dict):
        return {**settings, "seeds": {name: [seed] for name in many}}, cell
    if many is not None:
        return {**settings, "seeds": [seed]}, cell
    raise PrivflError("this study draws nothing at random, so it takes no seed")


def compute(study: Study, cell: Cell, profile: str = "cpu", seed: int | None = None) -> Cell:
    """The cell computed now; ``recomputed`` says how: profile, seed, device, versions, sources."""
    settings = study.settings(profile)
    if seed is not None:
        settings, cell = reseeded(settings, cell, seed)
    with sources() as seen:
        row = {**cell, **study.compute(settings, cell)}
    how = {"profile": profile, "seed": seed, "device": str(device()), "sources": seen}
    return {**row, "recomputed": {**how, "versions": versions()}}


def stored(study: Study, cell: Cell) -> Cell | None:
    """The stored cell with these settings, if there is one."""
    cells = study.show()["cells"]
    return next((row for row in cells if cell.items() <= row.items()), None)


def keep(study: Study, cell: Cell, row: Cell) -> str:
    """Put a recomputed row in place of a cell in the reader's own results; where it was put."""
    goal = own() / f"{study.name}.json"
    disk.check_writable(goal, make_folder=True)
    with disk.alone(goal, study.name):
        result = copy.deepcopy(study.show())
        new = {**row, **cell}  # found by its own settings, whatever seed made it
        rows = [new if cell.items() <= old.items() else old for old in result["cells"]]
        result["cells"] = rows if new in rows else [*rows, new]
        result.pop("sha256", None)
        disk.write_record(goal, result, lost=json.dumps(row))
    return str(goal)


def scores(row: Cell, cell: Cell) -> dict[str, float]:
    """The numbers of a row, the means of its lists of numbers, and those inside it as "a / b"."""
    left = {name: value for name, value in row.items() if name not in {*cell, "recomputed"}}
    return dict(_scores(left))


def _scores(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            value = {str(i): v for i, v in enumerate(value, 1)}
        if isinstance(value, Mapping):
            yield from _scores(value, f"{before}{name} / ")
        elif isinstance(value, list) and value and all(_number(v) for v in value):
            yield f"{before}{name}", sum(value) / len(value)
        elif _number(value):
            yield f"{before}{name}", value


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
