"""What is said of a round: who took part, how good the model now is, and what it cost."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .privacy import Epsilon
from .runtime import seeded
from .wire import Upload


@dataclass(frozen=True)
class Report:
    """One round: who took part, how good the global model now is, and what it cost."""

    round: int  # counted from 1
    clients: list[int]
    accuracy: float | None  # share of right answers on the test data
    loss: float | None  # mean cross-entropy there
    norms: list[float]  # Euclidean length of each upload that the server sees
    epsilon: Epsilon  # what holds for all rounds so far, or why nothing does
    seconds: float
    uploads: list[Upload] = field(default_factory=list, repr=False)


def evaluate(model: nn.Module, x: Tensor, y: Tensor, batch: int = 500) -> tuple[float, float]:
    """(accuracy, mean cross-entropy) of the model in eval mode on x (N, C, H, W) and y (N,)."""
    home, net = next(model.parameters()).device, copy.deepcopy(model).eval()
    right = loss = 0.0
    with torch.no_grad(), seeded(0):
        for xb, yb in zip(x.split(batch), y.split(batch), strict=True):
            logits, yb = net(xb.to(home)), yb.to(home)
            right += (logits.argmax(1) == yb).sum().item()
            loss += cross_entropy(logits, yb, reduction="sum").item()
    return right / len(x), loss / len(x)
