"""Rows on attacks: a step of inverting gradients, and digits until 30 dB, beside breaching.

The objective, the model, the images and the number of steps are the same on both sides, which
tests/unit/test_breaching.py holds to five digits. Until 30 dB: a first run of each side, not timed,
looks at the truth to find how many evaluations it needs; the timed run makes that many.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import privfl_lite as pf
from privfl_lite.attacks import solvers

from . import breaching_side
from .effort import Effort
from .measure import Pair, Record, Run, rounded, seconds

DIGIT, COLOR = (1, 28, 28), (3, 32, 32)
GOAL = 30.0  # dB
GIVEN = {"attack_type": "optimization", "label_strategy": "iDLG"}  # breaching's words for iDLG


def noise_upload(net: str, shape: tuple[int, ...], count: int, **options: int) -> pf.Upload:
    """Gradients of ``count`` single images of noise: the time does not depend on what they show."""
    x = torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))
    model = pf.models.build(net, shape, 10, **options)
    return pf.share(model, x, torch.arange(count) % 10, each=1, knows=("labels",))


def gs(
    net: str,
    shape: tuple[int, ...],
    count: int,
    steps: int,
    tv: float = 0.0,
    compile: bool = False,
    **options: int,
) -> Pair:
    """GS on ``count`` images: ours at once, breaching one after the other, as it has to."""
    upload = noise_upload(net, shape, count, **options)
    attack = pf.attacks.GS(steps=steps, tv=tv, show=False, compile=compile)
    ours: Run = lambda: attack.run(upload)  # noqa: E731
    ours = compiled_once(ours) if compile else ours
    peer = None
    if breaching_side.load():
        start = torch.rand(1, *shape, generator=torch.Generator().manual_seed(1))
        runs = [breaching_side.prepare(upload[i], start, steps, tv=tv) for i in range(count)]

        def peer() -> None:
            for run in runs:
                run()

    return Pair(ours, peer, units=count * (steps + 1))


def compiled_once(run: Run) -> Run:
    """The same run, which compiles when it is made and then only searches, as a long one does."""
    make, kept = solvers.compiled, []

    def compiled(*given: Any) -> Callable:
        kept.extend([] if kept else [make(*given)])  # the same upload, so the same graph
        return kept[0]

    def searching() -> None:
        with mock.patch.object(solvers, "compiled", compiled):
            run()

    searching()
    return searching


def gs_row(effort: Effort, net: str, shape: tuple[int, ...], steps: int, **more: Any) -> Pair:
    """``gs`` with the steps of this effort; ``many=True`` for as many images as it searches."""
    count = effort.images if more.pop("many", False) else 1
    return gs(net, shape, count, max(2, round(effort.step_scale * steps)), **more)


# Until 30 dB


@lru_cache
def digits(count: int) -> tuple[pf.Upload, Tensor]:
    """Gradients of digits in the sigmoid LeNet, and the truth."""
    data = pf.load("mnist")
    x, y = data.sample(count)
    return pf.share(pf.models.build("lenet", data), x, y, each=1), x


def near(images: Tensor, truth: Tensor) -> Tensor:
    """Which of the images are the truth, for the eye: (n,)."""
    images = pf.metrics.as_image(images.reshape(truth.shape).detach())
    return pf.metrics.psnr(images, truth) >= GOAL


def ours_until(upload: pf.Upload, truth: Tensor, cap: int) -> tuple[Run, list[bool], int]:
    """iDLG until all digits are near, or the cap: ready to run, which arrive, evaluations."""
    found = pf.attacks.IDLG(steps=cap, frames=cap, show=False).run(upload)
    there, needed = torch.zeros(len(truth), dtype=torch.bool), cap
    for tick, images in found.history:
        there |= near(images, truth)
        if there.all():
            needed = tick
            break
    attack = pf.attacks.IDLG(steps=needed, show=False)
    return lambda: attack.run(upload), there.tolist(), needed


class Enough(Exception):
    """Ends a run of breaching."""


def peer_until(upload: pf.Upload, i: int, truth: Tensor, cap: int) -> tuple[Run, list[bool], int]:
    """breaching's L-BFGS with the label of iDLG on one digit, in the same terms as ours."""
    start = torch.randn(1, *upload.model.shape, generator=torch.Generator().manual_seed(i))
    seen = {"count": 0, "last": cap, "near": False, "look": True}

    def watch(images: Tensor) -> None:
        seen["count"] += 1
        if seen["look"]:
            seen["near"] = bool(near(images, truth).all())
        if (seen["near"] and seen["look"]) or seen["count"] >= seen["last"]:
            raise Enough

    given: dict[str, Any] = {"config": "deepleakage", "watch": watch, **GIVEN}
    whole = breaching_side.prepare(upload, start, cap, **given)

    def run() -> None:
        seen["count"] = 0
        with contextlib.suppress(Enough):
            whole()

    run()
    reached, evaluations = bool(seen["near"]), seen["count"]
    seen |= {"last": evaluations, "look": False}
    return run, [reached], evaluations


def digit_alone(effort: Effort) -> Record:
    """One digit after the other by both sides in turn; a ratio for each digit."""
    upload, x = digits(effort.images)
    sides = ["ours"] + ["peer"] * bool(breaching_side.load())
    record: Record = {"clock": "cpu"}
    record |= {k: {side: [] for side in sides} for k in ("seconds", "reached", "evaluations")}
    for i in range(effort.digits):
        for side in sides:
            one, truth = upload[i], x[i : i + 1]
            found = (
                ours_until(one, truth, effort.cap)
                if side == "ours"
                else peer_until(one, i, truth, effort.cap)
            )
            run, reached, evaluations = found
            record["seconds"][side].append(rounded(seconds(run)))
            record["reached"][side] += reached
            record["evaluations"][side].append(evaluations)
    return record


def digits_at_once(effort: Effort) -> Record:
    """All digits at once, breaching one by one; CPU seconds for each digit that arrives."""
    upload, x = digits(effort.images)
    ours, arrived, evaluations = ours_until(upload, x, effort.cap)
    sides = {"ours": ([ours], sum(arrived))}
    record: Record = {"clock": "cpu", "arrived": {"ours": [sum(arrived), len(x)]}}
    record["evaluations"] = {"ours": [evaluations]}
    if breaching_side.load():
        chosen = range(effort.digits)
        runs = [peer_until(upload[i], i, x[i : i + 1], effort.cap) for i in chosen]
        count = sum(reached[0] for _, reached, _ in runs)
        sides["peer"] = ([run for run, _, _ in runs], count)
        record["arrived"]["peer"] = [count, len(chosen)]
        record["evaluations"]["peer"] = [n for _, _, n in runs]
    record["seconds"] = {side: [] for side in sides}
    record["reached"] = {side: [count > 0] * effort.few for side, (_, count) in sides.items()}
    for _ in range(effort.few):
        for side, (runs, count) in sides.items():
            taken = sum(seconds(run) for run in runs) / max(1, count)
            record["seconds"][side].append(rounded(taken))
    return record
