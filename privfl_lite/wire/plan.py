"""``Plan``: the rules of local training, which the server sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from ..budget import at_once
from ..checking import Checked
from ..values import Mode, Number, Part, Positive

MANY = 10**6  # examples read in a round, from which on memory is looked at
Local = Annotated[int, Number(1, 10**6, whole=True)]  # a number of steps, passes or examples


@dataclass(frozen=True)
class Plan(Checked):
    """The rules of local training, set by the server and known to it.

    Either ``epochs`` passes over the data in batches of ``batch_size`` (the last may be smaller),
    or exactly ``steps`` full batches, read round and round. ``mode`` is that of batch norm.
    """

    eta: Positive = 0.1
    epochs: Local = 1
    steps: Local | None = None
    batch_size: Local = 10
    momentum: Part = 0.0
    shuffle: bool = True
    mode: Mode = "train"

    def count(self, n: int) -> int:
        """How many steps are taken with n examples."""
        return self.epochs * -(-n // self.batch_size) if self.steps is None else self.steps

    def step_weights(self, steps: int) -> list[float]:
        """How often the gradient of each step counts in −Δ/η, the first step's first.

        With momentum m step s moves by Σ_j m^(s−j) g_j, so g_j counts (1 − m^(S−j)) / (1 − m), j
        from 0.
        """
        m = self.momentum
        return [(1 - m ** (steps - j)) / (1 - m) for j in range(steps)]

    def batches(self, n: int, rng: torch.Generator | None = None) -> list[Tensor]:
        """Which of n examples each local step uses: one index tensor per step.

        Without ``rng`` the examples are taken as they stand, as an attacker has to take them who
        does not know in which order they were drawn.
        """

        def once() -> Tensor:
            if rng is None or not self.shuffle:
                return torch.arange(n)
            return torch.randperm(n, generator=rng)

        read = self.epochs * n if self.steps is None else self.steps * self.batch_size
        if read > MANY:
            at_once(1, 8 * read + 500 * self.count(n), "plan of local training")
        if self.steps is None:
            return [b for _ in range(self.epochs) for b in once().split(self.batch_size)]
        need = self.steps * self.batch_size
        return list(torch.cat([once() for _ in range(-(-need // n))])[:need].split(self.batch_size))

    def together(self, sizes: Sequence[int]) -> Plan:
        """By which one client with the data of all these would train as they do on average.

        As many steps, each on the batches of all. Exact for one step, to first order in η for
        more, where all hold equally many examples; else the steps are those of the largest.
        """
        each = [min(self.batch_size, n) for n in sizes]
        return replace(self, epochs=1, steps=self.count(max(sizes)), batch_size=sum(each))
