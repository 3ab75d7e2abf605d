"""Rows on training: FedAvg beside a loop written by hand and beside Flower, Model Entanglement."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import privfl_lite as pf

from . import hand_loop
from .effort import Effort
from .measure import Pair, Record, rounded

ROOT = Path(__file__).parents[1]
PATIENCE = 1200  # seconds for one side in a process of its own
PER_CLIENT, SHAPE, PLAN = 50, (1, 28, 28), pf.Plan(eta=0.05, batch_size=10)


def noise_client(i: int, shape: tuple[int, ...] = SHAPE) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of noise: the time does not depend on what they show."""
    rng = torch.Generator().manual_seed(i)
    x = torch.rand(PER_CLIENT, *shape, generator=rng)
    return x, torch.randint(10, (PER_CLIENT,), generator=rng)


@lru_cache
def built(net: str, shape: tuple[int, ...] = SHAPE) -> torch.nn.Module:
    """The network, made once in a process."""
    return pf.models.build(net, shape, 10)


def fedavg(net: str, count: int, shape: tuple[int, ...] = SHAPE) -> Pair:
    """One round: ours, from the call on, against the loop written by hand."""
    model, clients = built(net, shape), [noise_client(i, shape) for i in range(count)]
    how = PLAN.eta, PLAN.batch_size
    return Pair(
        lambda: list(pf.FedAvg(model, clients, 1, PLAN, show=False)),
        lambda: hand_loop.one_round(model, clients, *how),
        units=count,
    )


def fedavg_row(effort: Effort, net: str, which: int, shape: tuple[int, ...] = SHAPE) -> Pair:
    """``fedavg`` with the clients of this effort: the few, or the many."""
    return fedavg(net, effort.clients[which], shape)


def entangled(effort: Effort) -> Pair:
    """A round with Model Entanglement against one without, ten clients; as the chapter's study."""
    data = pf.load("mnist")
    clients = data.clients(10, per_client=38 * effort.clients[0] // 10)
    model = pf.models.build("lenet5", data)

    def play(**more: Any) -> None:
        list(pf.FedAvg(model, clients, 1, PLAN, show=False, **more))

    return Pair(lambda: play(defense=pf.defenses.Entangle()), play, units=len(clients))


FIRST = """
import time
import privfl_lite as pf
digits = pf.load("mnist")
model, (x, y) = pf.models.build("lenet", digits), digits.sample(1)
began = time.perf_counter()
pf.share(model, x, y)
print(time.perf_counter() - began)
"""


def first_share(effort: Effort) -> Record:
    """Wall seconds of the first ``share`` of a process, imports of the package not counted."""
    taken = [float(_printed("-c", FIRST)) for _ in range(effort.repeats)]
    return {"clock": "wall", "seconds": {"ours": [rounded(s) for s in taken]}}


def flower(effort: Effort, net: str, which: int) -> Record:
    """Wall seconds of a round after the first, on two cores; each side in processes of its own.

    With the bytes that go down and up in a round.
    """
    times, rounds = effort.flower_many if which == 1 else effort.flower
    sides = ["ours", "flower"] if importlib.util.find_spec("flwr") else ["ours"]
    record: Record = {"clock": "wall", "seconds": {}, "first_round": {}, "bytes": {}}
    record["workers"] = our_workers().get("workers", 1)
    for _ in range(max(1, times)):
        for side in sides:
            words = side, net, str(effort.clients[which]), str(max(2, rounds))
            played = json.loads(_printed("-m", "benchmarks.simulation", *words))
            first, *rest = played["seconds"]
            who = "ours" if side == "ours" else "peer"
            record["seconds"].setdefault(who, []).extend(map(rounded, rest))
            record["first_round"].setdefault(who, []).append(rounded(first))
            record["bytes"][who] = played["bytes"]
    return record


def our_workers() -> dict[str, int]:
    """``workers=2`` where FedAvg takes it."""
    return {"workers": 2} if "workers" in inspect.signature(pf.FedAvg).parameters else {}


def _printed(*words: str) -> str:
    """The last line that a fresh Python prints."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE)
    except subprocess.TimeoutExpired:  # Ray can hang where its start takes over 30 s
        raise pf.PrivflError(f"{' '.join(words[:3])} did not end in {PATIENCE} s") from None
    if done.returncode:
        raise pf.PrivflError(f"{' '.join(words[:3])} failed: {done.stderr.strip()[-300:]}")
    return done.stdout.strip().splitlines()[-1]
