"""Run by an environment that has otter-grader: what a lab's tests give for right and wrong answers.

    python tests/lab_trial.py SLUG FOLDER <<< '{"name of a variant": [["old", "new"], …], …}'

Builds the lab for two classes in FOLDER. Prints points by question, as JSON: of the stub, of the
solution by ``otter run``, and of variants of the solution, whose cells run here in one process.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import zipfile
from pathlib import Path

import matplotlib as mpl
import nbformat
from labs.build import build
from otter.run import main as run
from otter.test_files.exception_test import ExceptionTestFile


def points(notebook: nbformat.NotebookNode, archive: Path) -> dict[str, float]:
    """Points by question, with the tests in the archive and the notebook's cells run here."""
    import matplotlib.pyplot as plt

    names: dict = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in notebook.cells:
            if cell.cell_type == "code":
                with contextlib.suppress(Exception):
                    exec(compile(cell.source, "<cell>", "exec"), names)
        plt.close("all")
        found = {}
        with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(archive) as opened:
            opened.extractall(work)
            for path in sorted(Path(work, "tests").glob("*.py")):
                test = ExceptionTestFile.from_file(str(path))
                test.run(names)
                found[test.name] = float(test.score)
    return found


def changed(text: str, swaps: list[list[str]]) -> nbformat.NotebookNode:
    """The notebook with other answers; each is looked for in the solution's source."""
    book = nbformat.reads(text, as_version=4)
    for old, new in swaps:
        cells = [c for c in book.cells if c.cell_type == "code" and old in c.source]
        assert cells, f"the solution does not have: {old}"
        for cell in cells:
            cell.source = cell.source.replace(old, new)
    return book


def official(notebook: Path, archive: Path) -> dict[str, float]:
    """Points by question, by ``otter run``."""
    with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(io.StringIO()):
        results = run(str(notebook), autograder=str(archive), output_dir=work, no_logo=True)
    return {name: float(result.score) for name, result in results.results.items()}


def main(slug: str, folder: str) -> None:
    mpl.use("agg")
    variants = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        here = build(slug, "blue", Path(folder, "blue"))
        build(slug, "green", Path(folder, "green"))
    archive, solution = here / f"{slug}-autograder.zip", here / f"{slug}-solution.ipynb"
    text = solution.read_text(encoding="utf-8")
    found = {"solution": official(solution, archive)}
    found["stub"] = points(nbformat.read(here / f"{slug}.ipynb", as_version=4), archive)
    for name, swaps in variants.items():
        found[name] = points(changed(text, swaps), archive)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
