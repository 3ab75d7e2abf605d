"""Ratios measured side by side in one run, on one core; stored in benchmarks/results.json.

Seconds differ from machine to machine and from hour to hour, ratios much less. Each pair is timed
in alternation, and the median of the ratios is kept.

    make bench
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import privfl_lite as pf
from privfl_lite.attacks import GS, IDLG

OUT = Path(__file__).with_name("results.json")
REPEATS = 3


def ratio(slow: Callable[[], object], quick: Callable[[], object]) -> dict[str, float]:
    """How many times longer ``slow`` takes than ``quick``, the median of alternating runs."""
    slow(), quick()  # warm up
    times = []
    for _ in range(REPEATS):
        pair = []
        for work in (slow, quick):
            began = time.perf_counter()
            work()
            pair.append(time.perf_counter() - began)
        times.append(pair)
    found = [a / b for a, b in times]
    a, b = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "ratio": round(statistics.median(found), 2),
        "lowest": round(min(found), 2),
        "highest": round(max(found), 2),
        "slow_seconds": round(a, 2),
        "quick_seconds": round(b, 2),
    }


def images_at_once(attack: GS | IDLG, count: int) -> dict[str, float]:
    """Attack ``count`` uploads one by one and all at once, for the same number of evaluations."""
    digits = pf.load("mnist")
    x, y = digits.sample(count)
    upload = pf.share(pf.models.build("lenet", digits), x, y, each=1)
    return ratio(
        lambda: [attack.run(upload[i]) for i in range(count)],
        lambda: attack.run(upload),
    )


def clients_at_once(model: str, clients: int) -> dict[str, float]:
    """One round of FedAvg by the plain and by the fast path."""
    digits = pf.load("mnist")
    data = digits.clients(clients, per_client=40)
    net = pf.models.build(model, digits)

    def round_of(fast: bool) -> None:
        list(pf.fedavg(net, data, 1, pf.Plan(eta=0.05), fast=fast, show=False))

    return ratio(lambda: round_of(False), lambda: round_of(True))


def main() -> None:
    torch.set_num_threads(1)
    gs, idlg = GS(steps=25, show=False), IDLG(steps=25, show=False)
    found = {
        "attack gs, 32 images: one by one / at once": images_at_once(gs, 32),
        "attack idlg, 32 images: one by one / at once": images_at_once(idlg, 32),
        "attack gs, 8 images: one by one / at once": images_at_once(gs, 8),
        "fedavg mlp, 100 clients: plain / fast": clients_at_once("mlp", 100),
        "fedavg lenet5, 100 clients: plain / fast": clients_at_once("lenet5", 100),
        "fedavg cloak, 50 clients: plain / fast": clients_at_once("cloak", 50),
    }
    for name, row in found.items():
        print(f"{name:48} {row['ratio']:6.2f}  ({row['lowest']} to {row['highest']})")
    about = {
        "command": "make bench",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": 1,
        "repeats": REPEATS,
    }
    OUT.write_text(json.dumps({**about, "ratios": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
