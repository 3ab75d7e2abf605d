"""Against CA-FL: compare in the space of what really travels, the measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from ...wire import Upload
from ..matching.search import Matching
from ..matching.terms import distance


@dataclass(frozen=True)
class Measured(Matching):
    """Cosine of measured gradients, with a strong smoothness prior. Chapter: Model Entanglement."""

    distance: str = "cosine"
    optimizer: str = "adam"
    box: bool = True
    tv: float = 0.05
    needs = ("measurement",)
    answers = ("ca_fl",)

    def cost(self, upload: Upload) -> Callable[..., Tensor]:
        imitate, measure = upload.imitator(), cast(Callable, upload.knows.measurement)
        seen = measure(upload.tensors)
        names = list(seen)

        def cost(x: Tensor, y: Tensor, who: Tensor, others: Tensor | None = None) -> Tensor:
            sent = {n: t[who] for n, t in seen.items()}
            return distance(self.distance, measure(imitate(x, y)), sent, names)

        return cost
