"""What Otter makes of a master notebook: for students, for the grader, for the instructor."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import nbformat
from otter.assign import main as assign

from .source import ROOT, master, questions

OUT = ROOT / "_build" / "labs"


def build(slug: str, secret: str, out: Path = OUT) -> Path:
    """A folder with ``<slug>.ipynb``, ``<slug>-autograder.zip``, ``<slug>-solution.ipynb``.

    ``<slug>.json`` names questions and points; ``privfl grade`` reads it.
    """
    folder = out / slug
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        notebook = Path(work, f"{slug}.ipynb")
        nbformat.write(master(slug, secret), notebook)
        assign(str(notebook), str(Path(work, "dist")), no_pdfs=True, no_run_tests=True)
        student, grader = Path(work, "dist", "student"), Path(work, "dist", "autograder")
        shutil.copy(student / notebook.name, folder)
        (archive,) = grader.glob("*.zip")
        shutil.copy(archive, folder / f"{slug}-autograder.zip")
        solution = nbformat.read(grader / notebook.name, as_version=4)
    solution.metadata["otter"] = {"assignment_name": slug}  # without tests, which hold the key
    nbformat.write(solution, folder / f"{slug}-solution.ipynb")
    about = {"lab": slug, "questions": [asdict(q) for q in questions(slug)]}
    (folder / f"{slug}.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return folder
