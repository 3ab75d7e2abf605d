"""A study fills a table of the book: named cells, each computed once, stored with how it was made.

The result is ``NAME.json`` in the reader's folder of results (``stored.own``). While a study runs,
every finished cell is kept beside it in ``NAME.part.json``, so that an interrupted study goes on
where it stopped.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from .. import __version__
from ..attacks.solvers import solvers
from ..data import sources
from ..names import PROFILES
from ..runtime import PrivflError, choose, progress
from ..stored import find, own


@dataclass(frozen=True)
class Study:
    """One experiment: plain settings, the cells to compute, and how to compute one.

    Settings and cells are known without loading data; a cell's computation loads what it needs,
    and where that came from is recorded then.
    """

    name: str
    about: str
    settings: Callable[[str], dict]
    cells: Callable[[dict], list[dict]]
    compute: Callable[[dict, dict], dict]

    def run(self, profile: str = "cpu", show: bool = True) -> dict:
        """Compute what is missing, store the result among the reader's own, and return it."""
        choose("profile", profile, PROFILES)
        settings = self.settings(profile)
        part = own() / f"{self.name}.part.json"
        part.parent.mkdir(parents=True, exist_ok=True)
        done = _read(part) if part.exists() else {}
        if done.get("settings") != settings:
            done = {"settings": settings, "sources": {}, "seconds": 0.0, "cells": []}
        cells = self.cells(settings)

        def found(cell: dict) -> dict | None:
            """The stored cell with these settings, if it was computed before."""
            return next((d for d in done["cells"] if cell.items() <= d.items()), None)

        for cell in progress([c for c in cells if not found(c)], self.name, show=show):
            began = time.perf_counter()
            with sources() as seen, solvers() as made_by:
                row = {**cell, **self.compute(settings, cell)}
            row["solvers"] = sorted(made_by)  # a cell without it is of the first edition
            if not cell.items() <= row.items():  # it would never be found again
                raise PrivflError(f"{self.name}: a result has the name of one of {list(cell)}")
            _same_sources(done["sources"], seen, part)
            done["sources"] |= seen
            done["cells"].append(row)
            done["seconds"] += time.perf_counter() - began
            _write(part, done)
        result = {
            "study": self.name,
            "about": self.about,
            "command": f"privfl study run {self.name} --profile {profile}",
            "settings": settings,
            "sources": done["sources"],
            "versions": {
                "python": platform.python_version(),
                **{p: version(p) for p in ("torch", "numpy", "opacus") if find_spec(p)},
                "privfl_lite": __version__,
            },
            "seconds": round(done["seconds"], 1),
            "cells": [found(cell) for cell in cells],
        }
        _write(own() / f"{self.name}.json", result)
        part.unlink(missing_ok=True)
        return result

    def show(self) -> dict:
        """The stored result: the reader's own where there is one, else the shipped one."""
        path = find(f"{self.name}.json")
        if not path.exists():
            raise PrivflError(
                f"{self.name} has no stored result; run: privfl study run {self.name}"
            )
        return _read(path)


def _same_sources(before: dict[str, str], now: dict[str, str], part: Path) -> None:
    """A table mixes no two copies of a data set."""
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            raise PrivflError(
                f"{part.name} was begun with {name} from {before[name]}, and now it comes from "
                f"{now[name]}; delete that file to start again"
            )


def _read(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise PrivflError(f"{path.name} is damaged; delete it and run the study again") from None


def _write(path: Path, content: dict) -> None:
    """Beside its place first, then there in one step: an interruption leaves the old file whole."""
    part = path.with_suffix(".tmp")
    part.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(part, path)
