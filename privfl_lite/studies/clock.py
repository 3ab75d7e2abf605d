"""What one evaluation of a gradient mismatch takes, as the unit for the time of other attacks."""

from __future__ import annotations

import time
from typing import cast

import torch
from torch import Tensor

from ..attacks import Matching
from ..attacks.solvers import value_and_gradient
from ..wire import Upload


def evaluation(attack: Matching, upload: Upload, times: int = 20) -> float:
    """Process time (s) of one evaluation with its gradient, for all uploads at once.

    Labels are granted. Nothing is searched, so no solver has a part in the cells that use it.
    """
    cost, y = attack.cost(upload), cast(Tensor, upload.knows.labels)
    weight, rows = upload.model.head.weight, torch.arange(len(upload), device=y.device)
    x = weight.new_zeros(len(upload), upload.batch, *upload.model.shape)
    rest = weight.new_zeros(len(upload), attack.unknowns(upload))

    def evaluate() -> None:
        value_and_gradient(lambda z, who: cost(z, y, who, rest), x, rows)

    evaluate()  # the first is slower
    began = time.process_time()
    for _ in range(times):
        evaluate()
    return (time.process_time() - began) / times
