"""One cell of a study, computed again: by the package, the command line and the panel."""

from __future__ import annotations

import json
import time

import pytest

from privfl_lite import cli
from privfl_lite.disk import read_record
from privfl_lite.studies import STUDIES, one_cell
from privfl_lite.teach import ledger
from privfl_lite.teach.panel import size
from privfl_lite.teach.recompute import recompute

NAME = "modelcloak-fixed/epsilon"
CELL = {"sigma": 6, "rounds": 100}


def test_a_cell_is_found_by_its_settings_and_computed_to_the_stored_numbers():
    study = STUDIES[NAME]
    cell = one_cell.find(study, {"sigma": "6", "rounds": "100"})
    assert cell == CELL
    row, stored = one_cell.compute(study, cell), one_cell.stored(study, cell)
    assert one_cell.scores(row, cell) == one_cell.scores(stored, cell) != {}
    assert row["recomputed"]["profile"] == "cpu"


def test_settings_that_pick_none_or_several_are_told(refused):
    refused(lambda: one_cell.find(STUDIES[NAME], {"sigma": "6"}), "name also rounds")
    refused(lambda: one_cell.find(STUDIES[NAME], {"sigma": "77"}), "no cell with sigma=77")


@pytest.mark.parametrize(
    ("settings", "cell", "new"),
    [
        ({"seed": 0}, {"a": 1}, ({"seed": 5}, {"a": 1})),
        ({"seeds": [0, 1]}, {"a": 1}, ({"seeds": [5]}, {"a": 1})),
        ({"seeds": [0, 1]}, {"seed": 1}, ({"seeds": [0, 1]}, {"seed": 5})),
        ({"seeds": {"x": [0], "y": [1]}}, {}, ({"seeds": {"x": [5], "y": [5]}}, {})),
    ],
)
def test_a_seed_goes_where_the_study_keeps_it(settings, cell, new):
    assert one_cell.reseeded(settings, cell, 5) == new


def test_a_study_without_chance_takes_no_seed(refused):
    refused(lambda: one_cell.compute(STUDIES[NAME], CELL, seed=1), "takes no seed")


def test_a_kept_cell_is_preferred_afterwards_and_the_others_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVFL_RESULTS", str(tmp_path))
    study, before = STUDIES[NAME], STUDIES[NAME].show()["cells"]
    row = {**one_cell.compute(study, CELL), "rdp": 0.5}
    place = one_cell.keep(study, CELL, row)
    cells = study.show()["cells"]
    assert one_cell.stored(study, CELL)["rdp"] == 0.5
    assert [c for c in cells if "recomputed" not in c] == [
        c for c in before if c["sigma"] != 6 or c["rounds"] != 100
    ]
    assert read_record(tmp_path / f"{NAME}.json", "")["study"] == NAME and place.endswith(".json")


def test_the_command_line_prints_now_beside_stored(tmp_path, capsys):
    out = tmp_path / "cell.json"
    assert cli.main(["study", "cell", NAME, "sigma=6", "rounds=100", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "sigma=6 rounds=100" in printed and "stored" in printed
    assert json.loads(out.read_text())["now"]["rdp"] == one_cell.stored(STUDIES[NAME], CELL)["rdp"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["cell", NAME, "sigma"], "as attack=gs seed=1"),
        (["show", NAME, "sigma=6"], "privfl study cell NAME"),
        (["cell", NAME, "sigma=6"], "name also rounds"),
    ],
)
def test_the_command_line_says_what_is_wrong(words, says, capsys):
    assert cli.main(["study", *words]) == 2
    assert says in capsys.readouterr().err


def test_the_panel_shows_what_is_stored_and_the_command():
    panel = recompute(NAME)
    assert len(panel.cells) == len(STUDIES[NAME].cells(STUDIES[NAME].settings("cpu")))
    html = panel._stored_card(0)
    assert "privfl study cell modelcloak-fixed/epsilon sigma=" in html
    large = recompute("modelcloak-fixed/attack")
    assert size(large) < 2000 * len(large.cells)


def test_the_panel_computes_a_cell_in_a_process_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVFL_RESULTS", str(tmp_path))
    panel = recompute(NAME, **CELL)
    panel._run(None)
    finish(panel)
    assert "Done" in panel.status.value, panel.status.value
    assert "now" in panel.answer.value and "stored" in panel.answer.value
    panel._keep(None)
    assert one_cell.stored(STUDIES[NAME], CELL)["recomputed"]


def test_the_panel_stops_at_once_and_refuses_a_seed_that_is_none():
    panel = recompute("modelcloak-fixed/attack", part="raw")
    panel.seed.value = "x"
    panel._run(None)
    assert "whole number" in panel.status.value and panel._work is None
    panel.seed.value = ""
    panel._run(None)
    panel._end(None)
    finish(panel)
    assert "Stopped" in panel.status.value and panel.save.disabled


def test_the_ledger_knows_what_a_cell_is_evidence_for():
    cells = STUDIES["modelcloak-fixed/training"].show()["cells"]
    wanted = {"data": "mnist-full", "where": "server", "sigma": 5, "clip": 2}
    cell = next(c for c in cells if wanted.items() <= c.items())
    assert "modelcloak/headline-1" in [
        e["id"] for e in ledger.about("modelcloak-fixed/training", cell)
    ]


def finish(panel, seconds: float = 60.0) -> None:
    """Wait until the panel's thread has told the end."""
    end = time.monotonic() + seconds
    while panel.start.disabled and time.monotonic() < end:
        time.sleep(0.05)
    while "Computing" in panel.status.value and time.monotonic() < end:
        time.sleep(0.05)
