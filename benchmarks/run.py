"""Ratios measured side by side in one run, on one core; stored in benchmarks/results.json.

Seconds differ from machine to machine and from hour to hour, ratios much less. Each pair is timed
in alternation, in CPU time of the process, and the median of the ratios is kept. What is measured,
and what limits it, stands in benchmarks/README.md.

    make bench

runs all parts; ``python benchmarks/run.py steps until`` runs these two. Every part is stored with
the versions it was measured with, and a part that does not run leaves its last results as they are.
Where the framework ``breaching`` is not installed, its parts are left out, and a sentence says how
to install it.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the ratios are those of one CPU core
os.environ.setdefault("OMP_NUM_THREADS", "1")

import breaching_side
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import privfl_lite as pf
from privfl_lite import metrics
from privfl_lite.attacks import GS, IDLG
from privfl_lite.attacks import solvers as engine
from privfl_lite.wire import Upload

OUT = Path(__file__).with_name("results.json")
REPEATS = 3
Row = dict[str, object]
Run = Callable[[], object]


# --- measuring ---


def cpu_seconds(work: Run) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def ratio(slow: Run, quick: Run, warm: bool = True) -> Row:
    """How many times longer ``slow`` takes than ``quick``, the median of alternating runs."""
    if warm:
        slow(), quick()
    times = [(cpu_seconds(slow), cpu_seconds(quick)) for _ in range(REPEATS)]
    found = [a / b for a, b in times]
    a, b = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "ratio": round(statistics.median(found), 2),
        "lowest": round(min(found), 2),
        "highest": round(max(found), 2),
        "slow_seconds": round(a, 4),
        "quick_seconds": round(b, 4),
    }


def apart(job: Callable[[], float]) -> tuple[float, float]:
    """Result of ``job`` in a process of its own, and by how many MB it raised the memory in use."""

    def child(answer) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        value = job()
        answer.send((value, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))

    context = multiprocessing.get_context("fork")  # keeps what is imported: no 5 s a process
    mine, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,))
    process.start()
    theirs.close()
    try:
        return mine.recv()
    except EOFError:  # out of memory, for one
        return float("nan"), float("nan")
    finally:
        process.join()


# --- what is attacked ---


def uploads(net: str, shape: tuple[int, ...], count: int = 1, **options: int) -> Upload:
    """Gradients of ``count`` single images of noise: the time does not depend on what they show."""
    x = torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))
    model = pf.models.build(net, shape, 10, **options)
    return pf.share(model, x, torch.arange(count) % 10, each=1, knows=("labels",))


def ours(upload: Upload, steps: int, tv: float = 0.0) -> Run:
    return lambda: GS(steps=steps, tv=tv, show=False).run(upload)


def theirs(upload: Upload, steps: int, tv: float = 0.0) -> Run:
    """breaching's inverting gradients, one image after another: it has no other way."""
    start = torch.rand(1, *upload.model.shape, generator=torch.Generator().manual_seed(1))
    runs = [breaching_side.prepare(upload[i], start, steps, tv=tv) for i in range(len(upload))]
    return lambda: [run() for run in runs]


# --- ours against ours ---


def images_at_once(attack: GS | IDLG, count: int) -> Row:
    """Attack ``count`` uploads one by one and all at once, for the same number of evaluations."""
    digits = pf.load("mnist")
    x, y = digits.sample(count)
    upload = pf.share(pf.models.build("lenet", digits), x, y, each=1)
    attack.run(upload[0]), attack.run(upload)  # warm up
    return ratio(
        lambda: [attack.run(upload[i]) for i in range(count)],
        lambda: attack.run(upload),
        warm=False,
    )


def clients_at_once(model: str, clients: int) -> Row:
    """One round of FedAvg by the plain and by the fast path."""
    digits = pf.load("mnist")
    data = digits.clients(clients, per_client=40)
    net = pf.models.build(model, digits)

    def round_of(fast: bool) -> None:
        list(pf.fedavg(net, data, 1, pf.Plan(eta=0.05), fast=fast, show=False))

    return ratio(lambda: round_of(False), lambda: round_of(True))


# --- breaching against ours ---


def iterations(
    net: str, shape: tuple[int, ...], steps: int, count: int = 1, tv: float = 0.0, **options: int
) -> Row:
    """The same objective and the same number of steps on the same images, theirs / ours."""
    upload = uploads(net, shape, count, **options)
    row = ratio(theirs(upload, steps, tv), ours(upload, steps, tv))
    for side in ("slow", "quick"):
        row[f"{side}_ms_an_image_and_step"] = round(
            1e3 * row.pop(f"{side}_seconds") / (count * (steps + 1)), 2
        )  # both evaluate once more at the end
    return row


class Enough(Exception):
    """Raised by a ``Watch`` to end an attack."""


class Watch:
    """Sees every image that an attack tries, and notes the CPU time at which it is near enough."""

    def __init__(self, truth: Tensor, cap: float, level: float = 30.0):
        self.truth, self.cap, self.level = truth, cap, level
        self.seconds: list[float | None] = [None] * len(truth)
        self.evaluations = 0

    def __call__(self, images: Tensor, rows: Tensor) -> None:
        now = time.process_time() - self.began
        self.evaluations += 1
        images = metrics.as_image(images.reshape(-1, *self.truth.shape[1:]))
        near = metrics.psnr(images, self.truth[rows])
        for row in rows[near >= self.level].tolist():
            self.seconds[row] = self.seconds[row] or now
        if None not in self.seconds or now > self.cap:
            raise Enough

    def over(self, run: Run) -> Row:
        """Run until all images are near enough, or the attack ends, or the cap of CPU seconds."""
        self.began = time.process_time()
        with contextlib.suppress(Enough):
            run()
        spent = time.process_time() - self.began
        return {
            "cpu_seconds_a_digit": round(spent / len(self.truth), 3),
            "reached": len(self.seconds) - self.seconds.count(None),
            "of": len(self.truth),
            "evaluations": self.evaluations,
        }


def until_30_db(batch: int = 32, compared: int = 2) -> Row:
    """CPU seconds a digit until 30 dB, on the sigmoid LeNet; the truth only stops the clock.

    All sides infer the label, except ``deepleakage``, which searches for it. Attacks that do not
    arrive are stopped at a cap, so their ratios are lower bounds ("at_least").
    """
    digits = pf.load("mnist")
    x, y = digits.sample(batch)
    upload = pf.share(pf.models.build("lenet", digits), x, y, each=1)

    def mine(rows: slice) -> Row:
        watch = Watch(x[rows], cap=60)

        def seen(cost, z, who, plain=engine.value_and_gradient):
            watch(z.detach(), who)
            return plain(cost, z, who)

        with patch.object(engine, "value_and_gradient", seen):
            return watch.over(lambda: IDLG(steps=1000, show=False).run(upload[rows]))

    def other(i: int, config: str, steps: int, cap: float, **changes: object) -> Row:
        watch, one = Watch(x[i : i + 1], cap), torch.zeros(1, dtype=torch.long)
        draw = torch.rand if config == "invertinggradients" else torch.randn
        start = draw(1, *digits.shape, generator=torch.Generator().manual_seed(i))
        return watch.over(
            breaching_side.prepare(
                upload[i], start, steps, config, watch=lambda z: watch(z, one), **changes
            )
        )

    given = {"attack_type": "optimization", "label_strategy": "iDLG"}
    found: dict[str, list[Row]] = {}
    for i in range(compared):
        for name, row in {
            "ours, iDLG, alone": mine(slice(i, i + 1)),
            "breaching, deepleakage with iDLG's label": other(i, "deepleakage", 60, 5, **given),
            "breaching, deepleakage": other(i, "deepleakage", 60, 5),
            "breaching, invertinggradients": other(i, "invertinggradients", 3000, 40),
        }.items():
            found.setdefault(name, []).append(row)
    together = mine(slice(0, batch))
    sums: Row = {f"ours, iDLG, {batch} at once": together}
    for name, rows in found.items():
        seconds = statistics.mean(row["cpu_seconds_a_digit"] for row in rows)
        reached = sum(row["reached"] for row in rows)
        sums[name] = {
            "cpu_seconds_a_digit": round(seconds, 3),
            "reached": reached,
            "of": compared,
            "evaluations": [row["evaluations"] for row in rows],
            "ratio": round(seconds / together["cpu_seconds_a_digit"], 1),
            "at_least": reached < compared,
        }
    return sums


# --- how the cost grows ---


def growth(with_breaching: bool) -> dict[str, Row]:
    """Milliseconds of a step and MB on top of what is loaded, each in a process of its own."""
    lenet, convnet = (lambda c, s: ("lenet", (c, s, s))), ("convnet", (3, 32, 32))
    settings: dict[str, tuple[tuple, int, dict[str, int], int]] = {
        **{f"lenet 28×28, images {n}": (lenet(1, 28), n, {}, 10) for n in (1, 8, 32, 64)},
        **{f"lenet, side {s}": (lenet(3, s), 1, {}, 20) for s in (16, 32, 64)},
        **{f"convnet, width {w}": (convnet, 1, {"width": w}, 4) for w in (8, 16, 32, 64)},
    }
    found: dict[str, Row] = {}
    for name, (what, count, options, steps) in settings.items():
        row: Row = {"parameters": pf.models.build(*what, 10, **options).num_parameters}
        for side, make in (("ours", ours), ("breaching", theirs)):
            if side == "breaching" and (not with_breaching or count > 1):
                continue  # it takes images one by one, so its cost is that of one times their count

            def job(make=make, what=what, count=count, options=options, steps=steps) -> float:
                upload = uploads(*what, count, **options)
                make(upload, 1)()  # warm up
                return 1e3 * cpu_seconds(make(upload, steps)) / (steps + 1)

            ms, mb = apart(job)
            row |= {f"{side}_ms_a_step": round(ms, 2), f"{side}_mb": round(mb)}
        found[name] = row
    return found


def where_time_goes(net: str, shape: tuple[int, ...], count: int, **options: int) -> Row:
    """Operators called in a step, and the part of its CPU time that convolutions take."""
    upload = uploads(net, shape, count, **options)

    def profiled(steps: int):
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            ours(upload, steps)()
        return seen.key_averages()

    few, many = profiled(1), profiled(5)
    calls = [sum(e.count for e in p if e.key.startswith("aten::")) for p in (few, many)]
    took = sum(e.self_cpu_time_total for e in many if "conv" in e.key.lower())
    share = took / sum(e.self_cpu_time_total for e in many)
    return {"operators_a_step": (calls[1] - calls[0]) // 4, "convolutions": round(share, 2)}


# --- all of it ---


def ratios(jobs: dict[str, Callable[[], Row]]) -> dict[str, Row]:
    found = {}
    for name, job in jobs.items():
        found[name] = row = job()
        print(f"{name:48} {row['ratio']:6.2f}  ({row['lowest']} to {row['highest']})", flush=True)
    return found


def part_growth(with_breaching: bool) -> dict[str, Row]:
    found = growth(with_breaching)
    for name, row in found.items():
        print(f"{name:48}", ", ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    return found


def part_profile(_: bool) -> dict[str, Row]:
    digit, color = (1, 28, 28), (3, 32, 32)
    found = {
        "lenet, 1 image": where_time_goes("lenet", digit, 1),
        "lenet, 32 images": where_time_goes("lenet", digit, 32),
        "convnet of width 16, 1 image": where_time_goes("convnet", color, 1, width=16),
        "convnet of width 16, 8 images": where_time_goes("convnet", color, 8, width=16),
    }
    for name, row in found.items():
        calls, share = row["operators_a_step"], row["convolutions"]
        print(f"{name:48} {calls} operators a step, {share:.0%} of the time in convolutions")
    return found


def part_ratios(_: bool) -> dict[str, Row]:
    gs, idlg = GS(steps=15, show=False), IDLG(steps=15, show=False)
    return ratios(
        {
            "attack gs, 32 images: one by one / at once": lambda: images_at_once(gs, 32),
            "attack idlg, 32 images: one by one / at once": lambda: images_at_once(idlg, 32),
            "attack gs, 8 images: one by one / at once": lambda: images_at_once(gs, 8),
            "fedavg mlp, 100 clients: plain / fast": lambda: clients_at_once("mlp", 100),
            "fedavg lenet5, 100 clients: plain / fast": lambda: clients_at_once("lenet5", 100),
            "fedavg cloak, 50 clients: plain / fast": lambda: clients_at_once("cloak", 50),
        }
    )


def part_steps(with_breaching: bool) -> dict[str, Row]:
    digit, color, wide = (1, 28, 28), (3, 32, 32), {"tv": 0.2, "width": 64}
    jobs: dict[str, Callable[[], Row]] = {
        "lenet: breaching / ours": lambda: iterations("lenet", digit, 60),
        "lenet, 32 images: breaching / ours": lambda: iterations("lenet", digit, 10, count=32),
        "convnet of width 16: breaching / ours": lambda: iterations(
            "convnet", color, 8, tv=0.2, width=16
        ),
        "convnet of width 64: breaching / ours": lambda: iterations("convnet", color, 2, **wide),
    }
    return ratios(jobs if with_breaching else {})


def part_until(with_breaching: bool) -> Row:
    found = until_30_db() if with_breaching else {}
    for name, row in found.items():
        bound = "at least " if row.get("at_least") else ""
        versus = f", {bound}{row['ratio']} times ours at once" if "ratio" in row else ""
        print(
            f"{name:48} {row['cpu_seconds_a_digit']} s a digit,"
            f" {row['reached']} of {row['of']} reached 30 dB{versus}"
        )
    return found


PARTS = {  # growth comes first: later the memory in use is not bare
    "growth": part_growth,
    "profile": part_profile,
    "ratios": part_ratios,
    "steps": part_steps,
    "until": part_until,
}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names:
        pf.runtime.choose("part", name, PARTS)
    with_breaching = breaching_side.load() is not None
    if not with_breaching:
        print(breaching_side.missing())
    about = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "breaching": breaching_side.VERSION if with_breaching else "not installed",
        "threads": 1,
        "clock": "CPU time of the process",
    }
    for name in names or PARTS:
        found = PARTS[name](with_breaching)
        if found:  # else what was measured before stays
            results: Row = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
            results[name] = {**about, "results": found}
            text = json.dumps(results, indent=1, ensure_ascii=False)
            OUT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except pf.PrivflError as error:
        sys.exit(str(error))
