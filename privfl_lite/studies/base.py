"""A study fills a table of the book: named cells, each computed once, stored with how it was made.

The result is ``NAME.json`` in the reader's folder of results (``stored.own``). While a study runs,
every finished cell is kept beside it in ``NAME.part.json``, so that an interrupted study goes on
where it stopped. Both files carry a digest that binds the cells to the settings, sources and
versions they were computed with. Of two processes on one study, the second waits.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from .. import __version__, disk
from ..attacks.solvers import solvers
from ..checking import Checked, checked
from ..data import sources
from ..names import PROFILES
from ..runtime import PrivflError, progress
from ..stored import find, own
from ..values import Text, Word

Profile = Annotated[str, Word("profile", *PROFILES)]


@dataclass(frozen=True)
class Study(Checked):
    """One experiment: plain settings, the cells to compute, and how to compute one.

    Settings and cells are known without loading data; a cell's computation loads what it needs,
    and where that came from is recorded then.
    """

    name: Text
    about: Text
    settings: Callable[[str], dict]
    cells: Callable[[dict], list[dict]]
    compute: Callable[[dict, dict], dict]

    @checked
    def run(self, profile: Profile = "cpu", show: bool = True) -> dict:
        """Compute what is missing, store the result among the reader's own, and return it."""
        goal = own() / f"{self.name}.json"
        disk.check_writable(goal, make_folder=True)
        command, before = f"privfl study run {self.name} --profile {profile}", _changed(goal)
        with disk.alone(goal, self.name) as waited:
            if waited and _changed(goal) != before:
                done = self._read(goal)
                if (done["command"], done["versions"]) == (command, versions()):
                    return done  # by the process that this one waited for
            settings = self.settings(profile)
            part = goal.with_suffix(".part.json")
            done = self._resume(part, settings)
            cells = self.cells(settings)
            for cell in progress(_missing(cells, done), self.name, show=show):
                self._add(cell, settings, done, part)
            result = {
                "study": self.name,
                "about": self.about,
                "command": command,
                **{key: done[key] for key in ("settings", "sources", "versions")},
                "seconds": round(done["seconds"], 1),
                "cells": [_found(cell, done) for cell in cells],
            }
            disk.write_record(goal, result, lost=json.dumps(result))
            part.unlink(missing_ok=True)
        return result

    def _resume(self, part: Path, settings: dict) -> dict:
        """The cells that were computed before with these settings; none if there are none."""
        new: dict = {"settings": settings, "versions": versions(), "sources": {}, "seconds": 0.0}
        if not part.exists():
            return {**new, "cells": []}
        remedy = "delete it and run the study again"
        done = disk.read_record(part, remedy)
        if not {*new, "cells"} <= done.keys():
            raise PrivflError(f"{part.name} is damaged; {remedy}")
        if done["settings"] != json.loads(json.dumps(settings)):
            return {**new, "cells": []}
        for name, now in new["versions"].items():
            if (then := done["versions"].get(name)) != now:
                raise PrivflError(
                    f"{part.name} was begun with {name} {then}, and now it is {now}; "
                    "delete that file to start again"
                )
        return done

    def _add(self, cell: dict, settings: dict, done: dict, part: Path) -> None:
        """Compute one cell and keep it."""
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
        disk.write_record(part, done, lost=json.dumps(row))

    def show(self) -> dict:
        """The stored result: the reader's own where there is one, else the shipped one."""
        path = find(f"{self.name}.json")
        if not path.exists():
            raise PrivflError(
                f"{self.name} has no stored result; run: privfl study run {self.name}"
            )
        return self._read(path)

    def _read(self, path: Path) -> dict:
        result = disk.read_record(path, "delete it and run the study again")
        if result.get("study") != self.name:
            raise PrivflError(f"{path} holds {result.get('study')!r}, not {self.name!r}")
        return result


def versions() -> dict[str, str]:
    packages = {p: version(p) for p in ("torch", "numpy", "opacus") if find_spec(p)}
    return {"python": platform.python_version(), **packages, "privfl_lite": __version__}


def _changed(path: Path) -> int:
    """When a file was last written, in ns; 0 if there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


def _found(cell: dict, done: dict) -> dict | None:
    """The stored cell with these settings, if it was computed before."""
    return next((d for d in done["cells"] if cell.items() <= d.items()), None)


def _missing(cells: list[dict], done: dict) -> list[dict]:
    return [cell for cell in cells if not _found(cell, done)]


def _same_sources(before: dict[str, str], now: dict[str, str], part: Path) -> None:
    """A table mixes no two copies of a data set."""
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            raise PrivflError(
                f"{part.name} was begun with {name} from {before[name]}, and now it comes from "
                f"{now[name]}; delete that file to start again"
            )
