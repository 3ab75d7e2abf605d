"""What undefended clients with other data would have sent: an attacker's model of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from ..gradients import Tensors, clip, own_gradient, stateless, update_function, weights
from ..runtime import PrivflError

if TYPE_CHECKING:
    from .upload import Upload


def imitator(upload: Upload) -> Callable[[Tensor, Tensor], Tensors]:
    """``Upload.imitator``, which says what this is."""
    model = stateless(upload.model, upload.mode)
    if upload.plan is None:
        f = own_gradient(model)
    else:
        steps = upload.plan.batches(upload.batch)
        update = update_function(model, upload.plan.eta, steps, upload.plan.momentum)
        f = partial(update, weights(model))
    known = upload.knows.clip
    if known and known.per == "example" and upload.plan is not None:
        raise PrivflError("a clip of every example's gradient is imitated for gradients only")

    def imitation(x: Tensor, y: Tensor) -> Tensors:
        each = known is not None and known.per == "example"
        parts = (x.flatten(0, 1)[:, None], y.flatten(0, 1)[:, None]) if each else (x, y)
        sent = {n: t for n, t in f(*parts).items() if n in upload.tensors}
        if known is None:
            return sent
        sent = clip(sent, known.bound, "update" if each else known.per)[0]
        if each:  # the mean over each client's examples
            sent = {n: t.unflatten(0, x.shape[:2]).mean(1) for n, t in sent.items()}
        return sent

    return imitation
