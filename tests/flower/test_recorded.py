"""What the chapter "From one machine to many" shows is what the example prints and sends now."""

import copy
import importlib
import sys
from pathlib import Path

import pytest
import torch
from flwr.app import Context, RecordDict
from in_process import InProcess
from test_same_model import DEFENSES, compared

from privfl_lite.stored import read_tensors
from privfl_lite.teach.plots import one_to_many as shown

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


@pytest.fixture
def example(monkeypatch):
    """The parts of examples/flower, imported anew."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in [n for n in sys.modules if n.partition(".")[0] == "example"]:
        monkeypatch.delitem(sys.modules, name)

    def part(name):
        return importlib.import_module(f"example.{name}")

    return part


def played(part, nodes, **config):
    """A run of the example without a network."""
    settings = {"clients": nodes, "wait": 0, **config}
    grid = InProcess(part("client").app, nodes, settings)
    part("server").app(grid, Context(7, 1, {}, RecordDict(), settings))
    return grid


RUNS = {"hundred": (100, {}), "deployment": (2, {}), "modelcloak": (2, {"defense": "modelcloak"})}


@pytest.mark.parametrize("name", RUNS)
def test_the_tap_prints_what_the_chapter_shows(name, example, capsys):
    nodes, config = RUNS[name]
    played(example, nodes, **config)
    said = capsys.readouterr().out.splitlines()
    recorded = shown.record()["runs"][name]
    assert recorded["status"] == "finished:completed"
    for line in recorded["printed"]:
        if not line.startswith("the final model"):  # its digest may differ on another machine
            assert line in said
    assert sum(line.startswith("round ") for line in recorded["printed"]) == 2


def test_clients_that_all_refuse_end_a_run_that_is_called_completed(example, capsys, monkeypatch):
    monkeypatch.setenv("PRIVFL_MEMORY", "/dev/null")  # no folder: nothing can be remembered
    grid = played(example, 2)
    assert [m.error.reason for m in grid.replies] == ["refused"] * 4
    said = capsys.readouterr().out.splitlines()
    recorded = shown.record()["runs"]["refused"]
    assert recorded["status"] == "finished:completed"
    assert [s for s in recorded["printed"] if s.startswith("round")] == [
        s for s in said if s.startswith("round")
    ]


def test_the_recorded_uploads_are_what_the_example_sends(example, tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVFL_UPLOADS", str(tmp_path))
    played(example, 2)
    before = read_tensors(tmp_path / "none" / "before.safetensors")
    for client in range(2):
        now = read_tensors(tmp_path / "none" / f"client-{client}.safetensors")
        then = shown.reply("none", client)
        assert list(now) == list(then)
        for name, t in now.items():
            torch.testing.assert_close(t, then[name], rtol=0, atol=1e-6)
            assert (t - before[name]).abs().max() > 1e-3


def test_the_chapter_and_the_example_have_one_task(example):
    task = example("task")
    assert task.PLAN == shown.PLAN
    here, there = shown.model_fn().state_dict(), task.model_fn().state_dict()
    assert all(torch.equal(t, there[n]) for n, t in here.items())
    for client in (0, 1, 99, 333):
        for a, b in zip(shown.data_fn(client), task.data_fn(client), strict=True):
            assert torch.equal(a, b)


def test_the_table_of_equal_models_is_that_of_now(small):
    ds, clients = small
    stored = copy.deepcopy(shown.record()["equal"])
    assert {(row["defense"], row["clients"]) for row in stored} == {
        (name, n) for name in DEFENSES for n in (2, 10)
    }
    for row in stored:
        found = compared(row.pop("defense"), ds, clients[row.pop("clients")])
        assert found["epsilon"] == row["epsilon"] and found["same epsilon"] is row["same epsilon"]
        assert found["moved"] == pytest.approx(row["moved"], rel=1e-3)
        assert max(found["apart"], row["apart"]) < 1e-4 * row["moved"]
