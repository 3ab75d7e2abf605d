"""What a run has done so far, as far as its ε depends on it (``privacy.account``)."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import torch

from .defenses.base import Defense
from .models import Net
from .privacy import Training
from .reports import Report
from .runtime import seeded
from .training import Data
from .wire import Plan


class Run(Protocol):
    """What is asked of a run; ``FedAvg`` has it."""

    clients: Sequence[Data]
    history: list[Report]
    plan: Plan
    expected: int  # clients in a round
    sampling: str
    weighting: str
    share: str
    leaving: dict[str, tuple[int, ...]]  # name -> shape of what leaves a client
    statistics: tuple[str, ...]  # buffers that leave bare
    secure: bool


def training_of(run: Run, chosen: list[int]) -> Training:
    """The rounds of the run's history and one more, of the chosen clients."""
    played = [*(report.clients for report in run.history), chosen]
    joined, n = Counter(c for some in played for c in some), len(run.clients)
    return Training(
        len(played),
        n,
        min(n, run.expected),
        run.sampling,
        run.weighting,
        run.plan if run.share == "update" else None,
        tuple(len(x) for x, _ in run.clients),
        tuple(joined[c] for c in range(n)),
        run.leaving,
        run.statistics,
        run.secure,
    )


def bare_statistics(model: Net, defense: Defense, plan: Plan, share: str) -> tuple[str, ...]:
    """Buffers that training moves and that leave as they are: batch norm's, as a rule."""
    if share == "gradient" or plan.mode == "eval":
        return ()
    own = defense.begin(model, 0)
    before, net = dict(model.named_buffers()), copy.deepcopy(model).train()
    there = [n for n, b in before.items() if b.is_floating_point() and n not in own]
    if there:
        with torch.no_grad(), seeded(0):
            net(torch.rand(2, *net.shape).to(next(net.parameters())))
    return tuple(n for n in there if not torch.equal(net.get_buffer(n), before[n]))
