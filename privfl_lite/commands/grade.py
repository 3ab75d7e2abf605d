"""``privfl grade``: a folder of handed-in labs into a table of points."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from ..errors import PrivflError
from .options import Commands, Option, positive

OPTIONS: list[Option] = [
    ("--labs", str, "_build/labs", "the folder that `make labs` filled"),
    ("--timeout", positive, 600, "seconds for one submission; then it is ended, with a note"),
]
RUN = "from otter.run import main; main({}, autograder={}, output_dir={}, no_logo=True)"


def add(commands: Commands) -> None:
    p = commands.add(grade, *OPTIONS)
    p.add_argument("folder", metavar="FOLDER", help="with one notebook per student")
    p.add_argument("--lab", metavar="LAB", required=True, help="such as read-off")
    p.add_argument("--csv", metavar="FILE", help="write the table to this file")


def grade(args: argparse.Namespace) -> dict:
    """Grade a folder of handed-in labs: points for each question, and what went wrong.

    Each submission runs in a process of its own: one that crashes or never ends costs no other.
    """
    place = Path(args.labs, args.lab)
    archive, about = place / f"{args.lab}-autograder.zip", place / f"{args.lab}.json"
    if not (archive.is_file() and about.is_file()):
        raise PrivflError(f"there is no autograder in {place}: run make labs SECRET=… first")
    if find_spec("otter") is None:
        raise PrivflError("this needs otter-grader: pip install 'privfl_lite[class]'")
    notebooks = sorted(Path(args.folder).glob("*.ipynb"))
    if not notebooks:
        raise PrivflError(f"there is no notebook (.ipynb) in {args.folder}")
    questions = json.loads(about.read_text(encoding="utf-8"))["questions"]
    rows = []
    for notebook in notebooks:
        rows.append(_row(notebook, archive.resolve(), questions, args.timeout))
        print("{submission:32} {points:5g} of {of:g}  {note}".format(**rows[-1]), flush=True)
    if args.csv:
        args.outputs["csv"] = _table(rows)
    return {"lab": args.lab, "rows": rows}


def _row(notebook: Path, archive: Path, questions: list[dict], seconds: int) -> dict:
    """One student's points; for written questions an empty field, for people to fill in."""
    scores, note = _scores(notebook, archive, seconds)
    graded = {q["name"]: scores.get(q["name"], 0.0) for q in questions if not q["written"]}
    of = sum(q["points"] for q in questions if not q["written"])
    row = {"submission": notebook.stem, "points": sum(graded.values()), "of": of}
    for q in questions:
        head = f"{q['name']} ({'written, ' * q['written']}{q['points']:g})"
        row[head] = "" if q["written"] else graded[q["name"]]
    return {**row, "note": note}


def _scores(notebook: Path, archive: Path, seconds: int) -> tuple[dict[str, float], str]:
    """Points by question and "", or nothing and the reason."""
    with tempfile.TemporaryDirectory() as work:
        try:
            copy = _copy(notebook, Path(work))
        except (OSError, ValueError, AttributeError) as error:
            return {}, f"no notebook that can be read: {error}"
        said = _run(RUN.format(*(repr(str(p)) for p in (copy, archive, work))), work, seconds)
        results = Path(work, "results.json")
        if said is None:
            return {}, f"did not end within {seconds} s"
        if not results.is_file():
            last = said.strip().splitlines()[-1:] or ["no reason was given"]
            return {}, f"could not be run: {last[0]}"
        tests = json.loads(results.read_text(encoding="utf-8"))["tests"]
    return {t["name"].split()[0]: float(t["score"]) for t in tests if "score" in t}, ""


def _copy(notebook: Path, work: Path) -> Path:
    """The notebook for this machine: whatever its kernel was called, it is Python's here."""
    book = json.loads(notebook.read_text(encoding="utf-8"))
    book.setdefault("metadata", {})["kernelspec"] = {"display_name": "Python", "name": "python3"}
    copy = work / "submission.ipynb"
    copy.write_text(json.dumps(book), encoding="utf-8")
    return copy


def _run(code: str, work: str, seconds: int) -> str | None:
    """What the process and its kernel said, or None: they were ended after so many seconds."""
    told: dict = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    told |= {"stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=work, start_new_session=True, **told) as process:
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            return None
        finally:  # the kernel too, also after Ctrl-C
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _table(rows: list[dict]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
