"""Running statistics of batch norm stay at home (SiloBN, Andreux et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from ..gradients import Tensors
from ..models import Net
from .base import Defense

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class KeepStatistics(Defense):
    """Each client has running means and variances of its own, and none of them leaves.

    They are averages of private data, and FedAvg sends them as they are: whatever noise lies on the
    weights, no ε holds beside them. Training does not use them; a client's own model
    (``FedAvg.personal``) does. Scale and shift are weights and leave like all others.
    """

    def leaves(self, name: str) -> bool:
        return name.rpartition(".")[2] not in STATISTICS

    def begin(self, model: Net, client: int) -> Tensors:
        return {n: t.clone() for n, t in model.state_dict().items() if not self.leaves(n)}
