"""``Plan``: the rules of local training, which the server sets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..runtime import PrivflError, choose


@dataclass(frozen=True)
class Plan:
    """The rules of local training, set by the server and known to it.

    Either ``epochs`` passes over the data in batches of ``batch_size`` (the last may be smaller),
    or exactly ``steps`` full batches, read round and round. ``mode`` is that of batch norm.
    """

    eta: float = 0.1
    epochs: int = 1
    steps: int | None = None
    batch_size: int = 10
    momentum: float = 0.0
    shuffle: bool = True
    mode: str = "train"

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("steps", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise PrivflError(f"{name} must be at least {least}; got {value}")
        if not self.eta > 0 or not 0 <= self.momentum < 1:
            raise PrivflError(
                f"eta must be over 0 and momentum in [0, 1); got {self.eta} and {self.momentum}"
            )
        choose("mode", self.mode, ("eval", "train"))

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

        if self.steps is None:
            return [b for _ in range(self.epochs) for b in once().split(self.batch_size)]
        need = self.steps * self.batch_size
        return list(torch.cat([once() for _ in range(-(-need // n))])[:need].split(self.batch_size))
