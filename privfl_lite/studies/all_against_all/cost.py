"""Cost cells: a client's time and bytes as ratios to no defense, both sides measured in turn."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from ... import models
from ...client import share
from ...data import load
from ...defenses import Defense, Entangle, SecureSum
from ...wire import Plan, Upload
from .rows import ROWS, SUMMED, build


def cost(settings: dict, cell: dict) -> dict:
    """Medians over repetitions, defended and undefended alternating in one process."""
    name, how = cell["row"], settings["cost"]
    data = ROWS[name].data[0]
    ds = load(data)
    clients = 2 if name in SUMMED else 1  # a sum of one is refused
    x, y = ds.sample(clients * how["images"], seed=0)
    net = models.build("lenet", ds, seed=0, act="relu", init=0.1)
    plan = Plan(eta=settings["train"]["eta"], batch_size=how["batch"])
    made = build(settings, name, data, plan.eta, 0, settings["craft"])
    if isinstance(made, Entangle):
        guard = share(net, *ds.sample(how["images"], seed=1), plan=plan).tensors
        made = replace(made, guard=guard)
    knows = ("measurement",) if "ca_fl" in ROWS[name].text else ()

    def once(defense: Defense, knows: tuple[str, ...] = ()) -> tuple[float, Upload]:
        began = time.process_time()
        sent = share(net, x, y, defense, knows, how["images"], plan)
        return (time.process_time() - began) / clients, sent

    once(Defense())  # the first call is slower
    turns = [(once(Defense()), once(made, knows)) for _ in range(how["repeats"])]
    ratios = [guarded[0] / bare[0] for bare, guarded in turns]
    bare, guarded = turns[-1][0][1], turns[-1][1][1]
    return {
        "time_ratio": round(statistics.median(ratios), 2),
        "bytes_ratio": round(wide(made) * on_the_wire(guarded) / on_the_wire(bare), 3),
    }


def wide(defense: Defense) -> float:
    """How wide a number is over 32 bits: whole numbers of a secure sum; its keys are left out."""
    sums = [p for p in getattr(defense, "parts", (defense,)) if isinstance(p, SecureSum)]
    return sums[0].bits / 32 if sums else 1.0


def on_the_wire(upload: Upload) -> int:
    """Bytes for one client: 4 for a number; with many zeros 8 for each other entry, if less."""
    measured = upload.knows.measurement
    tensors = upload.tensors if measured is None else measured(upload.tensors)
    return sum(min(4 * t[0].numel(), 8 * int(t[0].count_nonzero())) for t in tensors.values())
