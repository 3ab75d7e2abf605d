"""``make bench``: a quick run of it, what its numbers come from, and what README.md says of it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import privfl_lite as pf
from privfl_lite import stored

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks import growth, hand_loop, measure, report, run  # noqa: E402
from benchmarks.effort import QUICK  # noqa: E402
from benchmarks.rows import ROWS  # noqa: E402

ABOUT = {"effort", "commit", "uncommitted", "code", "machine", "versions", "threads"}
ABOUT |= {"date", "load_before", "load_after", "seconds", "rows", "growth"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> dict:
    """A run of a minute, by the command itself."""
    out = tmp_path_factory.mktemp("bench") / "quick.json"
    command = [sys.executable, "-m", "benchmarks.run", "--quick", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in out.parent.iterdir()] == ["quick.json"]  # no part is left
    found = json.loads(out.read_text(encoding="utf-8"))
    assert done.stdout.rstrip().endswith(report.table(found))
    for package, name in run.PEERS.items():
        said = f"{name} is not installed, so its side is left out; to have it: make bench-peers"
        assert (said in done.stdout) == (found["versions"][package] is None)
    return found


@pytest.fixture(params=["quick", "stored"])
def found(request) -> dict:
    """The quick run, and the one in results.json."""
    if request.param == "quick":
        return request.getfixturevalue("quick")
    return json.loads(report.RESULTS.read_text(encoding="utf-8"))


def test_a_run_says_what_it_is_of(found):
    assert set(found) == ABOUT
    assert set(found["machine"]) == {"cpu", "cores", "system"}
    assert len(found["load_before"]) == len(found["load_after"]) == 3
    flower = {name for name, row in ROWS.items() if row.against == "Flower"}
    left_out = flower if found["effort"] == "quick" else set()
    assert set(found["rows"]) == set(ROWS) - left_out
    assert set(found["growth"]) == set(growth.CURVES)
    for record in found["growth"].values():
        assert all({"x", "ms", "mb"} == set(p) and p["ms"] > 0 for p in record["ours"])


def test_every_value_comes_from_measured_seconds(found):
    """Computed here by other means: the ratio of each turn, and their median."""
    for name, record in found["rows"].items():
        kind, seconds = ROWS[name].kind, record["seconds"]
        assert all(s > 0 for side in seconds.values() for s in side), name
        if kind != "seconds" and "peer" not in seconds:
            assert record["value"] is None, name
            continue
        there = record.get("reached", {})
        turns = range(len(seconds["ours"]))
        turns = [i for i in turns if all(arrived[i] for arrived in there.values())]
        values = seconds["ours"] if kind == "seconds" else []
        if kind != "seconds":
            over, under = ("peer", "ours") if kind == "peer / ours" else ("ours", "peer")
            values = [seconds[over][i] / seconds[under][i] for i in turns]
        assert record["repeats"] == len(values), name
        if values:
            assert record["value"] == pytest.approx(statistics.median(values), rel=1e-3), name
            low, high = record["quartiles"]
            assert low <= record["value"] <= high, name


def test_the_table_has_a_line_for_each_row_and_says_what_is_missed(found):
    lines = report.table(found).splitlines()
    assert len(lines) == 2 + len(found["rows"]) and len({line.count("|") for line in lines}) == 1
    for line, name in zip(lines[2:], (n for n in ROWS if n in found["rows"]), strict=True):
        value, aim = found["rows"][name]["value"], ROWS[name].aim
        good = None
        if value is not None:
            good = value >= aim if ROWS[name].kind == "peer / ours" else value <= aim
        words = {True: "| reached |", False: "| **missed**", None: "| not measured"}
        assert line.startswith(f"| {ROWS[name].work} |") and words[good] in line


def test_what_is_lost_is_said_first():
    row = {"value": 0.5, "quartiles": [0.4, 0.6], "repeats": 3, "load": 0.1}
    rows = {"gs-lenet": row, "gs-lenet-32": row | {"value": 9.0}, "entangle": row | {"value": 3.0}}
    lost, missed, won, unknown = report.balance({"rows": rows}).splitlines()
    assert "one image (0.5×), against breaching" in lost and "Entanglement" in missed
    assert "32 images at once (9×)" in won and "first `share`" in unknown
    assert "missed**, and slower" in report.table({"rows": {"gs-lenet": row}})


# What is stored


def test_readme_and_summary_are_those_of_the_stored_run():
    held = json.loads(report.RESULTS.read_text(encoding="utf-8"))
    text = report.README.read_text(encoding="utf-8")
    assert held["effort"] == "full", "results.json is of a whole run"
    assert report.readme(text, held) == text, "run: python -m benchmarks.report"
    assert json.loads(report.SUMMARY.read_text(encoding="utf-8")) == report.summary(held)
    assert held["commit"][:10] in text and growth.PLOT.name in text


def test_nothing_stored_names_a_machine_or_a_folder():
    for path in (report.RESULTS, report.SUMMARY, report.README, growth.PLOT):
        text = path.read_text(encoding="utf-8")
        assert not [word for word in ("/home/", "/root/", "/work/", "/tmp/") if word in text], path


def test_the_package_reads_a_row(refused):
    row = stored.benchmark("fedavg-lenet5-100")
    assert row["against"] == "hand loop" and row["aim"] == 1.2
    low, high = row["quartiles"]
    assert low <= row["value"] <= high
    refused(lambda: stored.benchmark("moon"), "unknown row of the benchmark 'moon'")


# Parts


def test_a_run_goes_on_where_it_was_and_never_mixes_two(tmp_path, monkeypatch, capsys):
    done = []

    def jobs(_):
        for name in ("a", "b", "c"):
            yield "growth", name, lambda name=name: work(name)

    def work(name):
        if name == "b" and len(done) == 1:
            raise KeyboardInterrupt
        done.append(name)
        return {"ours": []}

    head = {"code": "1"}
    monkeypatch.setattr(run, "jobs", jobs)
    monkeypatch.setattr(run, "about", lambda _: dict(head))
    out = tmp_path / "results.json"
    with pytest.raises(KeyboardInterrupt):
        run.play(QUICK, out)
    assert not out.exists() and (tmp_path / "results.part.json").exists()
    done.append("again")
    held = run.play(QUICK, out)
    assert done == ["a", "again", "b", "c"] and "going on" in capsys.readouterr().out
    assert list(held["growth"]) == ["a", "b", "c"] and json.loads(out.read_text()) == held
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]
    (tmp_path / "results.part.json").write_text(json.dumps({**held, "growth": {"a": 0}}))
    head["code"] = "2"  # another code: nothing of the part may stay
    assert run.play(QUICK, out)["growth"]["a"] == {"ours": []}


def test_single_rows_are_put_into_the_stored_run_and_say_where_they_are_from(tmp_path, monkeypatch):
    old = json.loads(report.RESULTS.read_text(encoding="utf-8"))
    out = tmp_path / "results.json"
    out.write_text(json.dumps(old), encoding="utf-8")
    row = {"value": 2.0, "quartiles": [1.5, 2.5], "repeats": 2}
    row |= {"bytes": {"ours": 2e6, "peer": 3e6}, "seconds": {"ours": [0.25], "peer": [0.4, 0.6]}}
    monkeypatch.setattr(run, "measured", lambda name, effort: dict(row))
    held = run.renew(["flower-lenet"], QUICK, out)
    assert json.loads(out.read_text(encoding="utf-8")) == held
    new = held["rows"].pop("flower-lenet")
    assert held["rows"] == {k: v for k, v in old["rows"].items() if k != "flower-lenet"}
    assert {k: held[k] for k in held if k != "rows"} == {k: old[k] for k in old if k != "rows"}
    assert set(new["run"]) == {"date", "load_before", "commit", "uncommitted", "versions"}
    assert new["run"]["commit"] == run.git("rev-parse", "HEAD")
    mine = {**old, "rows": {"flower-lenet": new}}
    said = f"**Of another run** ({new['run']['date'][:10]}, commit `{new['run']['commit'][:10]}`"
    assert said in report.measured_text(mine) and "`flower-lenet`" in report.others(mine)
    assert report.others({"rows": {"gs-lenet": row}}) == ""
    assert report.throughput(mine).splitlines()[2].endswith("two cores | 4 | 2 | 2 | 3 |")
    shown = report.summary(mine)["rows"]["flower-lenet"]
    assert shown["run"] == new["run"] and shown["bytes"] == row["bytes"] and "load" in shown
    assert shown["rounds_per_second"] == {"ours": 4.0, "peer": 2.0}


def test_only_turns_in_which_both_arrive_count():
    record = {"seconds": {"ours": [1.0, 2.0, 3.0], "peer": [3.0, 1.0, 3.0]}}
    assert measure.compared(record, "peer / ours")["value"] == 1.0
    assert measure.compared(record, "ours / peer")["quartiles"] == [0.6667, 1.5]
    reached = {"ours": [True, True, False], "peer": [True, False, True]}
    found = measure.compared({**record, "reached": reached}, "peer / ours")
    assert found["value"] == 3.0 and found["repeats"] == 1
    none = measure.compared({**record, "reached": {"ours": [False] * 3}}, "peer / ours")
    assert none["value"] is None and none["repeats"] == 0
    assert measure.compared({"seconds": {"ours": [1.0]}}, "peer / ours")["value"] is None


def test_a_process_of_its_own_tells_its_memory_and_may_die():
    result, mb = measure.apart(sum, [1, 2])
    assert result == 3 and 50 < mb < 5000
    _, more = measure.apart(torch.ones, 60_000_000)  # 240 MB
    assert more - mb > 200
    assert measure.apart(os._exit, 1) == (None, None)


@pytest.mark.parametrize("net", ["mlp", "lenet5"])
def test_the_loop_written_by_hand_does_what_ours_does(digits, net):
    model, clients = pf.models.build(net, digits), digits.clients(3, per_client=20)
    plan = pf.Plan(eta=0.05, batch_size=6, shuffle=False)
    ours = pf.FedAvg(model, clients, 1, plan, show=False)
    list(ours)
    by_hand = hand_loop.one_round(model, clients, plan.eta, plan.batch_size, torch.arange)
    for name, value in ours.model.state_dict().items():
        torch.testing.assert_close(by_hand[name], value, rtol=1e-4, atol=1e-6)


def test_quick_is_never_stored_as_the_run(capsys):
    with pytest.raises(SystemExit):
        run.main(["--quick"])
    assert "--out" in capsys.readouterr().err
