"""A study fills a table of the book: named cells, each computed once, stored with how it was made.

The result is ``book/results/NAME.json``. While a study runs, every finished cell is kept beside it
in ``NAME.part.json``, so that an interrupted study goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ..federated import FedAvg
from ..runtime import PrivflError, choose, progress

RESULTS = Path(__file__).resolve().parents[2] / "book" / "results"
PROFILES = ("cpu", "gpu")


@dataclass(frozen=True)
class Study:
    """One experiment: plain settings, the cells to compute, and how to compute one."""

    name: str
    about: str
    settings: Callable[[str], dict]
    cells: Callable[[dict], list[dict]]
    compute: Callable[[dict, dict], dict]

    def run(self, profile: str = "cpu", folder: Path = RESULTS, show: bool = True) -> dict:
        """Compute what is missing, store the result, and return it."""
        choose("profile", profile, PROFILES)
        folder.mkdir(parents=True, exist_ok=True)
        settings = self.settings(profile)
        part = folder / f"{self.name}.part.json"
        done = _read(part) if part.exists() else {}
        if done.get("settings") != settings:
            done = {"settings": settings, "seconds": 0.0, "cells": []}
        cells = self.cells(settings)

        def found(cell: dict) -> dict | None:
            """The stored cell with these settings, if it was computed before."""
            return next((d for d in done["cells"] if cell.items() <= d.items()), None)

        for cell in progress([c for c in cells if not found(c)], self.name, show=show):
            began = time.perf_counter()
            row = {**cell, **self.compute(settings, cell)}
            if not cell.items() <= row.items():  # it would never be found again
                raise PrivflError(f"{self.name}: a result has the name of one of {list(cell)}")
            done["cells"].append(row)
            done["seconds"] += time.perf_counter() - began
            _write(part, done)
        result = {
            "study": self.name,
            "about": self.about,
            "command": f"privfl study run {self.name} --profile {profile}",
            "settings": settings,
            "versions": {
                "python": platform.python_version(),
                **{p: version(p) for p in ("torch", "numpy", "opacus", "privfl_lite")},
            },
            "seconds": round(done["seconds"], 1),
            "cells": [found(cell) for cell in cells],
        }
        _write(folder / f"{self.name}.json", result)
        part.unlink(missing_ok=True)
        return result

    def show(self, folder: Path = RESULTS) -> dict:
        """The stored result."""
        path = folder / f"{self.name}.json"
        if not path.exists():
            raise PrivflError(
                f"{self.name} has no stored result; run: privfl study run {self.name}"
            )
        return _read(path)


def finished(run: FedAvg) -> FedAvg:
    """The run after its last round; or, if it diverges, after the last one with finite uploads."""
    try:
        for _ in run:
            pass
    except PrivflError:  # "client … sent NaN or infinite values"
        if not run.history:
            raise
    return run


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
