"""What a federation costs where this machine can still run it: 10 to 10,000 simulated clients.

Chapter: at a million clients. A cell is one family of numbers. "run": whole rounds of FedAvg, bytes
counted from the uploads. "mean": the server's adding up alone. "memory": the most that a round
adds to a fresh process. "masks" and "shares": one client's part of a secure sum; "unmask": the
server's. One process, one thread: seconds are those of one core; every cell with a clock has the
machine's load of the last minute beside it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ... import models
from ...batches import Data
from ...data import load
from ...defenses import SecureSum
from ...defenses.masking import Member, masked, number, secret_of, stream, weights_at_zero
from ...federated import FedAvg
from ...rounds import Mean, move
from ...runtime import generator
from ...wire import Plan
from ..base import Study
from .fresh import peak

NETS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> network, its options
    "lenet": ("lenet", {}),
    "mlp": ("mlp", {"hidden": (16,)}),
    "wide": ("mlp", {"hidden": (1024,)}),
}


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "data": "mnist",
        "clients": {"lenet": [10, 100, 1000, *([10000] if large else [])],
                    "mlp": [10, 100, 1000, 10000]},
        "wide": [10, 100, 1000],  # uploads of a wide network that are added up, and no more
        "kept": [10, 100, 1000],  # a server that keeps every upload
        "images": 20,  # of each client; clients share them, since there are 5,000 digits
        "batch": 10,
        "eta": 0.1,
        "rounds": 5,  # measured, after one that is not
        "numbers": [1000, 13426],  # of an upload that is masked
        "masks": [10, 100, 1000, 10000],  # clients that agree on masks
        "shares": [10, 100, 1000],  # clients for whom one cuts its two secrets
        "unmask": [10, 100, 1000],
    }  # fmt: skip


def _cells(settings: dict) -> list[dict]:
    runs = [(net, n) for net, counts in settings["clients"].items() for n in counts]
    cells = [{"part": part, "net": net, "clients": n} for net, n in runs for part in RUNS]
    cells += [{"part": "mean", "net": "wide", "clients": n} for n in settings["wide"]]
    cells += [{"part": "memory", "kept": False, "clients": n} for n in settings["clients"]["mlp"]]
    cells += [{"part": "memory", "kept": True, "clients": n} for n in settings["kept"]]
    cells += [{"part": "shares", "clients": n} for n in settings["shares"]]
    sums = [(part, n) for part in ("masks", "unmask") for n in settings[part]]
    return cells + [
        {"part": part, "clients": n, "numbers": d} for part, n in sums for d in settings["numbers"]
    ]


def built(net: str) -> models.Net:
    """One of the study's networks, for digits."""
    name, options = NETS[net]
    return models.build(name, (1, 28, 28), 10, seed=0, **options)


def federation(settings: dict, net: str, clients: int) -> tuple[models.Net, list[Data], Plan]:
    """A network, clients with images drawn with replacement, and the rules of training."""
    ds = load(settings["data"])
    model = built(net)
    pool = len(ds.x_train)
    where = torch.randint(pool, (clients, settings["images"]), generator=generator(0, clients))
    pairs = [(ds.x_train[i], ds.y_train[i]) for i in where]
    return model, pairs, Plan(eta=settings["eta"], batch_size=settings["batch"])


def run(settings: dict, cell: dict) -> dict:
    """Rounds in which everybody takes part. Of 10,000 uploads one is counted, times arrivals."""
    model, clients, plan = federation(settings, cell["net"], cell["clients"])
    made = FedAvg(model, clients, settings["rounds"] + 1, plan, show=False)
    rounds, seconds = iter(made), []
    next(rounds)
    for _ in range(settings["rounds"]):
        began = time.process_time()
        report = next(rounds)
        seconds.append((time.process_time() - began) / cell["clients"])
    some = min(cell["clients"], 1000)
    first = FedAvg(model, clients[:some], 1, plan, show=False, keep_uploads=True)
    sent = [upload.nbytes for upload in first.finish().history[0].uploads]
    counted = "every upload" if some == cell["clients"] else "1,000 uploads, times arrivals"
    return {
        "numbers": sum(p.numel() for p in model.parameters()),
        "bytes_down": sum(t.numel() * t.element_size() for t in model.state_dict().values()),
        "bytes_up": sum(sent) * len(report.norms) // some,
        "counted": counted,
        "steps": plan.count(settings["images"]),
        **timed(seconds, "seconds_client"),
    }


def mean(settings: dict, cell: dict) -> dict:
    """Adding up so many uploads, one after the other as they would arrive, and the model's step."""
    model = built(cell["net"])
    sizes = dict.fromkeys(range(cell["clients"]), settings["images"])
    row = {n: torch.zeros_like(p)[None] for n, p in model.named_parameters()}

    def once() -> None:
        total = Mean(sizes, "examples", cell["clients"], {})
        for c in sizes:
            total.add([c], row)
        move(model, total.done()[0], 1.0)

    return {
        "numbers": sum(p.numel() for p in model.parameters()),
        "tensors": len(row),
        **timed(repeated(once, settings["rounds"]), "seconds_server"),
    }


def memory(settings: dict, cell: dict) -> dict:
    """The most that a round adds to what a process held after a round of ten."""
    return {"time_peak_bytes": peak(settings, cell["clients"], cell["kept"])}


def masks(settings: dict, cell: dict) -> dict:
    """The client in the middle: a key agreement and a mask for each other one, and its own."""
    pool = SecureSum().collect(range(cell["clients"]), lambda c: generator(1, c))
    mine, values = pool.members[cell["clients"] // 2], np.zeros(1 + cell["numbers"], np.uint64)
    bits = SecureSum().bits
    sent = masked(mine, values, pool.publics, bits)
    times = repeated(lambda: masked(mine, values, pool.publics, bits), 3)
    return {"bytes_masked": len(sent) * bits // 8, **timed(times, "seconds_client")}


def shares(settings: dict, cell: dict) -> dict:
    """One client cuts its two secrets into a share for everybody, of which two thirds suffice."""
    n, mine = cell["clients"], Member(1, bytes(32))
    least = SecureSum().needed(n)

    def once() -> list[int]:
        places = range(1, n + 1)
        return [mine.share(what, least, at) for what in ("key", "own") for at in places]

    return timed(repeated(once, 3 if n < 1000 else 1), "seconds_client")


def unmask(settings: dict, cell: dict) -> dict:
    """The server brings back all own masks from shares it was handed, and takes them off."""
    n, size, rule = cell["clients"], 1 + cell["numbers"], SecureSum()
    held = [number(bytes([i % 251]), f"share {i}") for i in range(rule.needed(n))]

    def once() -> None:
        total = np.zeros(size, np.uint64)
        weights = weights_at_zero(range(1, len(held) + 1))
        for _ in range(n):
            total = total - stream(secret_of(held, weights), size, rule.bits)

    return timed(repeated(once, 3), "seconds_server")


def repeated(once: Callable[[], Any], times: int) -> list[float]:
    """CPU seconds of each call, after one that is not counted."""
    once()
    found = []
    for _ in range(times):
        began = time.process_time()
        once()
        found.append(time.process_time() - began)
    return found


def timed(seconds: list[float], name: str) -> dict:
    """The median, all values, and the load under which they were measured."""
    each = [float(f"{s:.4g}") for s in seconds]
    median = float(f"{statistics.median(each):.4g}")
    return {name: median, f"{name}_each": each, "time_load": round(os.getloadavg()[0], 1)}


RUNS = {"run": run, "mean": mean}
PARTS = {**RUNS, "memory": memory, "masks": masks, "shares": shares, "unmask": unmask}


def _compute(settings: dict, cell: dict) -> dict:
    return PARTS[cell["part"]](settings, cell)


STUDY = Study(
    name="million-clients/measured",
    about="bytes, seconds of one core and memory of FedAvg in process with 10 to 10,000 simulated "
    "clients of 20 digits, and of a secure sum's client and server",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
