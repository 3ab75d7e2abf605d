"""Worker processes: the same bits, memory and checkpoints as one process, and none is left over."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
import torch
from toy import make_clients

from privfl_lite import FedAvg, Plan, PrivflError, fedavg, models, training
from privfl_lite.defenses import DCS2, Defense, Entangle, FedKL, Mixup, ModelCloak, Prune
from privfl_lite.stored import identity

CASES = {
    "none": {},
    "one after the other": {"fast": False, "plan": Plan(momentum=0.5, batch_size=4)},
    "prune with feedback": {"defense": Prune(0.7, feedback=True)},
    "fedkl": {"defense": FedKL(seed=0)},
    "dcs2": {"defense": DCS2(steps=2)},
    "modelcloak": {"defense": ModelCloak(0.3, 0.05)},
    "entangle": {"defense": Entangle()},  # later groups hear the guard, who is in the first
    "mixup, a chain": {"defense": Mixup(2) + Prune(0.5, feedback=True)},  # changed data come back
}


def play(net, workers: int, rounds: int = 3, **options) -> FedAvg:
    options = {"show": False, "keep_uploads": True, **options}
    run = fedavg(net, make_clients([6, 5, 6, 4, 6]), rounds, workers=workers, **options)
    list(run)
    return run


@pytest.fixture
def net(monkeypatch):
    monkeypatch.setattr(training, "CACHE", 2 * 2**18)  # several groups of this few clients
    return models.build("lenet", (1, 12, 12), 10, init=0.2)


@pytest.mark.parametrize("name", CASES)
def test_two_workers_give_the_bits_and_memory_of_one(net, name):
    assert training.clients_at_once(net, 10) in (2, 3, 4)
    one, two = (play(net, workers, **CASES[name]) for workers in (1, 2))
    assert identity(one.model.state_dict()) == identity(two.model.state_dict())
    assert identity(one.memory.state_dict()) == identity(two.memory.state_dict())
    for a, b in zip(one.history, two.history, strict=True):
        assert a.norms == b.norms and a.clients == b.clients and a.epsilon == b.epsilon
        for u, v in zip(a.uploads, b.uploads, strict=True):
            assert identity(u.tensors) == identity(v.tensors)
    assert not multiprocessing.active_children()


def test_workers_stay_over_rounds_and_go_when_the_run_is_left(net):
    run = fedavg(net, make_clients([6] * 5), 4, workers=2, show=False)
    seen = []
    for _ in islice(rounds := iter(run), 2):
        seen.append({p.pid for p in multiprocessing.active_children()})
    assert seen[0] == seen[1] and len(seen[0]) == 2
    rounds.close()
    assert not multiprocessing.active_children()


def test_a_run_goes_on_with_another_number_of_workers(net, tmp_path):
    clients, file = make_clients([6] * 5), tmp_path / "run.pt"
    how = {"defense": Prune(0.7, feedback=True), "show": False}
    whole = fedavg(net, clients, 4, **how).finish()
    list(islice(fedavg(net, clients, 4, checkpoint=file, workers=2, **how), 2))
    again = fedavg(net, clients, 4, checkpoint=file, **how).finish()
    assert identity(again.model.state_dict()) == identity(whole.model.state_dict())
    assert identity(again.memory.state_dict()) == identity(whole.memory.state_dict())


class Notes(Defense):
    def gradient(self, g, ctx):
        ctx.memory.run["steps"] = ctx.memory.run.get("steps", 0) + 1
        return g


class Poison(Defense):
    def update(self, delta, ctx):
        return {n: t * (torch.nan if ctx.round == 2 else 1) for n, t in delta.items()}


def test_what_workers_cannot_do_is_said_in_one_sentence(net, refused):
    class Hidden(Defense):
        pass

    def run(**options) -> None:
        list(fedavg(net, make_clients([4] * 5), 3, **{"workers": 2, "show": False, **options}))

    refused(lambda: run(workers=0), "workers is 0; it must be a whole number")
    refused(lambda: run(share="gradient"), "workers train on a CPU")
    refused(lambda: run(defense=Hidden()), "defined in a module that can be imported")
    refused(lambda: run(defense=Notes()), "writes about the whole run")
    refused(lambda: run(defense=Poison()), "sent NaN or infinite values in round 2")
    assert not multiprocessing.active_children()


SCRIPT = """
import os, torch, multiprocessing
import privfl_lite as pf
{define}
def main():
    net = pf.models.build("lenet", (1, 12, 12), 10)
    clients = [(torch.rand(40, 1, 12, 12), torch.arange(40) % 10) for _ in range(40)]
    run = pf.FedAvg(net, clients, {rounds}, workers=2, defense={defense}, show=False)
    for report in run:
        pids = [p.pid for p in multiprocessing.active_children()]
        print(report.round, *pids, flush=True)
{guard}    main()
"""
GUARD = 'if __name__ == "__main__":\n'
OWN = "class Own(pf.defenses.Defense):\n    pass\n"


def start(tmp_path: Path, how: str, *, rounds: int = 2, guard: str = GUARD, own: bool = False):
    """A process that runs the script: from a file, or as a notebook's cells are, from a text."""
    parts = {"define": OWN if own else "", "defense": "Own()" if own else "pf.defenses.Defense()"}
    text = SCRIPT.format(rounds=rounds, guard=guard, **parts)
    file = tmp_path / "script.py"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, str(file)] if how == "file" else [sys.executable, "-c", text]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.mark.parametrize("how", ["file", "text"])
def test_a_script_with_a_main_guard_and_a_notebook_have_workers(tmp_path, how):
    out, err = start(tmp_path, how).communicate(timeout=120)
    assert [line.split()[0] for line in out.splitlines()] == ["1", "2"], err


def test_what_a_fresh_python_cannot_import_is_said_in_one_sentence(tmp_path):
    _, err = start(tmp_path, "text", own=True).communicate(timeout=120)
    assert err.count("worker processes could not be given this run") == 1, err
    (tmp_path / "second").mkdir()
    _, err = start(tmp_path / "second", "file", guard="if True:\n").communicate(timeout=120)
    assert err.count("a script needs its run under") == 1 and err.count("Traceback") == 1, err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process(tmp_path, how):
    run = start(tmp_path, "file", rounds=10_000)
    pids = [int(word) for word in run.stdout.readline().split()[1:]]
    assert len(pids) == 2
    run.send_signal(how)
    _, err = run.communicate(timeout=60)
    assert ("KeyboardInterrupt" in err) == (how == signal.SIGINT)
    for _ in range(100):
        left = [pid for pid in pids if alive(pid)]
        if not left:
            break
        time.sleep(0.1)
    assert not left


def alive(pid: int) -> bool:
    """Whether the process computes still; one that has ended may wait to be asked how."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except ProcessLookupError:
        return False


def test_finish_gives_the_run_before_it_diverged(net):
    run = fedavg(net, make_clients([4, 4]), 3, defense=Poison(), show=False).finish()
    assert len(run.history) == 1
    with pytest.raises(PrivflError, match="in round 2"):
        list(run)
