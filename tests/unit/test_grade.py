"""``privfl grade``: a row for every submission, whatever it does. Otter is a stand-in here."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from privfl_lite.cli import main

OTTER = '''
"""Does with a submission what it says, as otter.run.main would."""
import json, os, sys, time
from pathlib import Path


def main(submission, *, autograder, output_dir, no_logo):
    assert Path(autograder).read_text() == "tests" and no_logo
    book = json.loads(Path(submission).read_text())
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    does = book["cells"][0]["source"]
    if does == "never ends":
        if os.fork():
            time.sleep(600)
        Path(os.environ["HEARTBEAT"]).write_text(str(os.getpid()))
        time.sleep(600)
    if does == "dies":
        print("nothing more to say", flush=True)  # os._exit flushes nothing
        os._exit(3)
    if does == "raises":
        raise RuntimeError("this is assignment 'other'")
    tests = [{"name": "q1", "score": 2.0}, {"name": "q3", "score": float(does)}, {"name": "all"}]
    Path(output_dir, "results.json").write_text(json.dumps({"tests": tests}))
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of submissions, labs that were made, and an otter that does what it is told."""
    (tmp_path / "otter").mkdir()
    (tmp_path / "otter" / "__init__.py").touch()
    (tmp_path / "otter" / "run.py").write_text(OTTER)
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("HEARTBEAT", str(tmp_path / "heartbeat"))
    monkeypatch.syspath_prepend(str(tmp_path))
    lab = tmp_path / "labs" / "toy"
    lab.mkdir(parents=True)
    (lab / "toy-autograder.zip").write_text("tests")
    asked = [("q1", 2, False), ("q2", 3, True), ("q3", 5.0, False)]
    questions = [{"name": n, "points": p, "written": w} for n, p, w in asked]
    (lab / "toy.json").write_text(json.dumps({"lab": "toy", "questions": questions}))
    handed = tmp_path / "handed-in"
    handed.mkdir()
    return handed


def hand_in(folder, **does: str) -> None:
    for name, what in does.items():
        book = {"cells": [{"source": what}], "metadata": {"kernelspec": {"name": "conda-env"}}}
        (folder / f"{name}.ipynb").write_text(json.dumps(book))


def grades(folder, *more: str) -> dict[str, dict[str, str]]:
    table = folder.parent / "grades.csv"
    words = ["grade", str(folder), "--lab", "toy", "--labs", str(folder.parent / "labs")]
    assert main([*words, "--csv", str(table), *more]) == 0
    with open(table, newline="", encoding="utf-8") as file:
        return {row["submission"]: row for row in csv.DictReader(file)}


def test_every_submission_has_a_row(folder, capsys):
    hand_in(folder, ann="5", bob="1.5", cat="dies", dan="raises")
    (folder / "eve.ipynb").write_text('{"cells": [')
    (folder / "fay.ipynb").write_text("[]")
    (folder / "notes.txt").write_text("not a notebook")
    rows = grades(folder)
    assert list(rows) == ["ann", "bob", "cat", "dan", "eve", "fay"]
    heads = ["submission", "points", "of", "q1 (2)", "q2 (written, 3)", "q3 (5)", "note"]
    assert list(rows["ann"]) == heads
    assert list(rows["ann"].values()) == ["ann", "7.0", "7.0", "2.0", "", "5.0", ""]
    assert rows["bob"]["points"] == "3.5" and rows["bob"]["note"] == ""
    notes = {
        "cat": "could not be run: nothing more to say",
        "dan": "could not be run: RuntimeError: this is assignment 'other'",
        "eve": "no notebook that can be read: Expecting value",
        "fay": "no notebook that can be read: ",
    }
    for name, note in notes.items():
        assert rows[name]["note"].startswith(note) and rows[name]["points"] == "0.0"
    assert "ann" in capsys.readouterr().out


@pytest.mark.skipif(os.name == "nt", reason="process groups")
def test_one_that_never_ends_is_ended_with_all_its_processes(folder):
    hand_in(folder, ann="never ends", bob="5")
    rows = grades(folder, "--timeout", "5")
    assert rows["ann"]["note"] == "did not end within 5 s" and rows["ann"]["points"] == "0.0"
    assert rows["bob"]["points"] == "7.0"
    child = int((folder.parent / "heartbeat").read_text())
    status = Path(f"/proc/{child}/status")
    assert not status.exists() or "Z (zombie)" in status.read_text()


def test_what_is_missing_is_said(folder, capsys, monkeypatch):
    words = ["grade", str(folder), "--lab", "toy", "--labs", str(folder.parent / "labs")]
    assert main(words) == 2 and "there is no notebook (.ipynb) in" in capsys.readouterr().err
    words[3] = "other"
    assert main(words) == 2 and "run make labs SECRET=… first" in capsys.readouterr().err
    words[3] = "toy"
    monkeypatch.setattr("privfl_lite.commands.grade.find_spec", lambda name: None)
    assert main(words) == 2
    assert "pip install 'privfl_lite[class]'" in capsys.readouterr().err
