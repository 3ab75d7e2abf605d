"""The chapter "From one machine to many" quotes the example as it is, and speaks of its numbers."""

from __future__ import annotations

import re

from chapters import SOURCES
from checkout import ROOT

from privfl_lite import attacks
from privfl_lite.teach.plots import one_to_many as shown

TEXT = (SOURCES / "one-to-many.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "flower" / "example"


def lines(code: str) -> list[str]:
    return [line.strip() for line in code.splitlines() if line.strip()]


def test_the_files_that_it_shows_are_those_of_the_example():
    task, client, server = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    for quoted, name in ((task, "task.py"), (client, "client.py")):
        held = lines((EXAMPLE / name).read_text(encoding="utf-8"))
        missing = [line for line in lines(quoted) if line not in held and line != "data_fn,"]
        assert not missing, f"not in {name}: {missing}"
    held = (EXAMPLE / "server.py").read_text(encoding="utf-8")
    assert "slowly(client)" in (EXAMPLE / "client.py").read_text(encoding="utf-8")  # data_fn, later
    for word in re.findall(r"\w+", server):
        assert word in {"defense", *re.findall(r"\w+", held)}, word


def test_what_it_says_of_the_digits():
    """Eight of 24 in two replies; none in the weights; none behind ModelCloak."""
    found = []
    for client in range(2):
        x, upload = shown.node(client)
        found.append(int(shown.exact(attacks.ClosedForm().run(upload).images, x)[1].sum()))
    assert found == [3, 5]
    x = shown.data_fn(0)[0]
    weights, _, mean = (shown.read_as("none", reading) for reading in shown.READINGS)
    count = [shown.exact(attacks.ClosedForm().run(u).images, x)[1].sum() for u in (weights, mean)]
    assert count[0] == 0 and 0 < count[1] < found[0]
    for reading in shown.READINGS:
        upload = shown.read_as("modelcloak", reading)
        assert not shown.exact(attacks.ClosedForm().run(upload).images, x)[1].any()


def test_what_it_says_of_sums():
    """The share falls from about a quarter to a thousandth, the number hardly up to 16 clients."""
    mean = {n: sum(v) / len(v) for n, v in shown.in_sums().items()}
    assert 0.2 < mean[1] / 12 < 0.35 and mean[64] / (64 * 12) < 0.0015
    assert mean[16] >= mean[1] - 0.5 and max(map(max, shown.in_sums().values())) <= 4


def test_the_recorded_runs_say_what_the_text_says():
    runs = shown.record()["runs"]
    assert {name for name, run in runs.items() if run["status"] != "finished:completed"} == {
        "stopped"
    }
    asked = {
        name: re.findall(r"asked (\d+), (\d+) answered", str(run)) for name, run in runs.items()
    }
    assert asked["thousand"] == [("1000", "1000")] * 2
    assert asked["killed"] == [("2", "1"), ("1", "1")]
    assert asked["refused"] == [("2", "0")] * 2
    assert "0 of 2 clients answered, and wait=2" in str(runs["stopped"])
    told = [[re.search(r"ε = [\d.]+", s)[0] for s in runs[n]["printed"][:2]] for n in
            ("modelcloak", "killed")]  # fmt: skip
    assert told[0] == told[1]  # "the ε of the node that answered is as before"
    assert all(len(row["epsilon"]) == 3 and row["same epsilon"] for row in shown.record()["equal"])
