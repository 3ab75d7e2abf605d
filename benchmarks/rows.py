"""Every row of the benchmark: what is measured, against what, and the aim.

``kind`` says what the value is: "peer / ours" (over 1: ours is quicker), "ours / peer" (a price:
the lower the better) or "seconds". ``measure`` gives a ``Pair`` to run in alternation, or a record
with seconds if the row takes its time by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .attacks import COLOR, DIGIT, digit_alone, digits_at_once, gs_row
from .effort import Effort
from .federated import entangled, fedavg_row, first_share, flower
from .measure import Pair, Record, alternate, apart, compared, seconds
from .where import where_time_goes


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    work: str
    against: str  # "" if ours alone is measured
    unit: str  # of the seconds: "image and step"
    aim: float
    measure: Callable[[Effort], Pair | Record]
    kind: str = "peer / ours"
    slow: bool = False  # over ten seconds a repetition

    def reached(self, value: float) -> bool:
        """Whether the aim is met."""
        return value >= self.aim if self.kind == "peer / ours" else value <= self.aim


def _gs(work: str, aim: float, *args: Any, **options: Any) -> Row:
    job = partial(gs_row, **options)
    return Row(work, "breaching", "image and step", aim, lambda e: job(e, *args))


def _fedavg(net: str, which: int, slow: bool = False) -> Row:
    count = ("100", "1,000")[which]
    work = f"FedAvg, {count} clients × 50 images, {net}"
    job = lambda e: fedavg_row(e, net, which)  # noqa: E731
    return Row(work, "hand loop", "client", 1.2, job, slow=slow)


def _flower(net: str, which: int) -> Row:
    count = ("100", "1,000", "10")[which]
    work = f"FedAvg, {count} clients × 50 images, {net}, two cores"
    return Row(work, "Flower", "round", 3.0, lambda e: flower(e, net, which))


ROWS: dict[str, Row] = {
    "gs-lenet": _gs("GS step, LeNet, one image", 1.1, "lenet", DIGIT, 200),
    "gs-lenet-32": _gs("GS step, LeNet, 32 images at once", 8.0, "lenet", DIGIT, 20, many=True),
    "gs-lenet-32-compiled": _gs(
        "GS step, LeNet, 32 images at once, compiled",
        10.0,
        "lenet",
        DIGIT,
        20,
        many=True,
        compile=True,
    ),
    "gs-convnet-16": _gs(
        "GS step, ConvNet of width 16, one image", 1.0, "convnet", COLOR, 30, tv=0.2, width=16
    ),
    "gs-convnet-64": _gs(
        "GS step, ConvNet of width 64, one image", 1.0, "convnet", COLOR, 6, tv=0.2, width=64
    ),
    "digit": Row(
        "one digit to 30 dB, L-BFGS, label inferred", "breaching", "digit", 1.1, digit_alone
    ),
    "digits-32": Row(
        "32 digits to 30 dB at once, L-BFGS, label inferred",
        "breaching",
        "digit that arrives",
        3.0,
        digits_at_once,
    ),
    "fedavg-mlp-100": _fedavg("mlp", 0),
    "fedavg-lenet5-100": _fedavg("lenet5", 0),
    "fedavg-lenet-100": _fedavg("lenet", 0),
    "fedavg-mlp-1000": _fedavg("mlp", 1),
    "fedavg-lenet5-1000": _fedavg("lenet5", 1, slow=True),
    "fedavg-lenet-1000": _fedavg("lenet", 1, slow=True),
    "fedavg-cloak": Row(
        "FedAvg, 10 clients × 50 images, cloak (wide)",
        "hand loop",
        "client",
        1.2,
        lambda e: fedavg_row(e, "cloak", 2),
    ),
    "flower-lenet": _flower("lenet", 0),
    "flower-lenet-10": _flower("lenet", 2),
    "flower-lenet-1000": _flower("lenet", 1),
    "flower-lenet5": _flower("lenet5", 0),
    "entangle": Row(
        "a round of Model Entanglement, ten clients, lenet5",
        "plain FedAvg",
        "client",
        2.0,
        entangled,
        kind="ours / peer",
    ),
    "first-share": Row("first `share` of a process", "", "call", 0.3, first_share, kind="seconds"),
}


def measured(name: str, effort: Effort) -> Record:
    """One row: value, quartiles, the seconds behind them, memory of both sides, where ours goes."""
    row = ROWS[name]
    work = row.measure(effort)
    if not isinstance(work, Pair):
        return compared(work, row.kind)
    record = alternate(work, effort.few if row.slow else effort.repeats, warm=not row.slow)
    sides = ["ours"] + ["peer"] * (work.peer is not None)
    record["memory_mb"] = {side: apart(one_side, name, effort, side)[1] for side in sides}
    if not row.slow:  # the list of all calls would be long, so only a tenth of the steps
        short = row.measure(replace(effort, step_scale=effort.step_scale / 10))
        record["where"] = where_time_goes(short.ours, short.units)
    return compared(record, row.kind)


def one_side(name: str, effort: Effort, side: str) -> float:
    """Make the work of a row and do one side of it, once; for a process of its own."""
    work = ROWS[name].measure(effort)
    return seconds(getattr(work, side))
