"""How time and memory are taken: two sides in alternation, medians with quartiles, fresh processes.

Seconds differ from machine to machine and from hour to hour, ratios of two sides that take turns
much less. CPU time of the process where both sides run in it, wall time where processes are part
of what is measured.
"""

from __future__ import annotations

import multiprocessing
import pickle
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Run = Callable[[], object]
Record = dict[str, Any]
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}


@dataclass(frozen=True)
class Pair:
    """The same work by two sides, ready to run; ``peer`` is None where it is not installed."""

    ours: Run
    peer: Run | None
    units: int = 1  # pieces of work in a run: images × steps, clients


def seconds(work: Run, clock: str = "cpu") -> float:
    """How long one run takes."""
    now = CLOCKS[clock]
    began = now()
    work()
    return now() - began


def rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


def alternate(pair: Pair, repeats: int, warm: bool = True) -> Record:
    """CPU seconds of a unit of work by each side, which take turns; warmed up by a run of each."""
    sides = {"ours": pair.ours} | ({"peer": pair.peer} if pair.peer else {})
    if warm:
        for run in sides.values():
            run()
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, run in sides.items():
            taken[side].append(rounded(seconds(run) / pair.units))
    return {"clock": "cpu", "seconds": taken}


def spread(values: Sequence[float]) -> tuple[float | None, list[float]]:
    """Median and quartiles; the quartiles of one or two values are the lowest and the highest."""
    if not values:
        return None, []
    outer = [min(values), max(values)]
    if len(values) > 2:
        outer = statistics.quantiles(values, n=4, method="inclusive")[::2]
    return rounded(statistics.median(values)), [rounded(v) for v in outer]


def compared(record: Record, kind: str) -> Record:
    """The record with ``value``, ``quartiles`` and ``repeats``, all from its measured seconds.

    ``kind``: "peer / ours" or "ours / peer", the ratio of each turn; "seconds", ours alone. Where
    a side did not always reach the goal (``reached``), only turns in which both did count.
    """
    ours, peer = (record["seconds"].get(side, []) for side in ("ours", "peer"))
    if kind == "seconds":
        values = ours
    else:
        reached = zip(*record.get("reached", {}).values(), strict=True)
        both = [all(turn) for turn in reached] or [True] * len(peer)
        turns = [(a, b) for a, b, ok in zip(ours, peer, both, strict=False) if ok]
        values = [b / a if kind == "peer / ours" else a / b for a, b in turns]
    value, quartiles = spread(values)
    return {"value": value, "quartiles": quartiles, "repeats": len(values), **record}


# Memory: processes forked from a server that has only imported


def megabytes() -> float:
    """The most memory that this process has held so far."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def apart(job: Callable[..., object], *args: object) -> tuple[Any, float | None]:
    """Result of ``job(*args)`` in a process of its own, and the most memory it held, in MB.

    (None, None) if the process ends without an answer: out of memory, for one.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.rows", "privfl_lite.attacks"])
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, job, args))
    process.start()
    theirs.close()
    try:
        return pickle.loads(mine.recv_bytes())
    except EOFError:
        return None, None
    finally:
        process.join()


def _answer(pipe: Any, job: Callable[..., object], args: tuple) -> None:
    import torch

    torch.set_num_threads(1)
    pipe.send_bytes(pickle.dumps((job(*args), round(megabytes()))))  # no memory is shared
