"""The server's part of a round: who takes part, the mean of what they send, the step it makes."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .defenses.base import Pool
from .gradients import Tensors
from .models import Net
from .runtime import device, generator

SAMPLING, SERVER = 0, 2  # purposes of random streams: who takes part; what the server draws


def taking_part(n: int, expected: int, sampling: str, seed: int, r: int, secure: bool) -> list[int]:
    """Who of n clients takes part in round r, in their order; ``FedAvg`` says how."""
    if secure:  # who takes part must be as secret as the noise
        coins = [c for c in range(n) if secrets.randbelow(n) < expected]
        drawn = secrets.SystemRandom().sample(range(n), min(n, expected))
        return coins if sampling == "poisson" else sorted(drawn)
    rng = generator(seed, SAMPLING, r)
    if sampling == "poisson":
        return (torch.rand(n, generator=rng) < expected / n).nonzero().flatten().tolist()
    return torch.randperm(n, generator=rng)[:expected].sort().values.tolist()


class Mean:
    """Σ wΔ / Σ w over clients that come in groups, one group after the other; none is kept."""

    def __init__(
        self,
        sizes: Mapping[int, int],
        weighting: str,
        expected: int,
        zero: Tensors,
        pool: Pool | None = None,
    ):
        """``sizes``: examples of each client; ``zero``: what the sums begin with.

        With a ``pool`` it is the pool that adds, and that says at the end who is in the sum.
        """
        by_size, self.fixed = weighting == "examples", weighting == "fixed"
        self.weight = {c: float(n) if by_size else 1.0 for c, n in sizes.items()}
        self.expected, self.total, self.pool = expected, dict(zero), pool

    def add(self, who: Sequence[int], sent: Mapping[str, Tensor]) -> None:
        """What the clients ``who`` sent, (K, *shape)."""
        if self.pool is not None:
            self.pool.add(who, sent, [self.weight[c] for c in who])
            return
        w = torch.tensor([self.weight[c] for c in who], device=device())
        for n, t in sent.items():
            t = t if t.is_floating_point() else t.to(w)  # batch norm's counter
            part = torch.tensordot(w.to(t), t, dims=1)  # sum of the clients' w·Δ
            self.total[n] = self.total[n] + part if n in self.total else part

    def done(self) -> tuple[Tensors, float]:
        """The mean, and the largest weight that one client has in it."""
        came = sum(self.weight.values())
        if self.pool is not None:
            self.total, came = self.pool.done()
        whole = float(self.expected) if self.fixed else came
        largest = 1.0 if self.fixed else max(self.weight.values(), default=0.0)
        return {n: t / whole for n, t in self.total.items()}, largest / (whole or 1.0)


def move(model: Net, mean: Tensors, rate: float) -> None:
    """Add ``rate`` times the mean to the weights, and the mean to the buffers."""
    with torch.no_grad():
        for n, p in model.named_parameters():
            if n in mean:
                p.add_(rate * mean[n])
        for n, b in model.named_buffers():
            if n in mean:
                b.add_(mean[n].to(b.dtype))
