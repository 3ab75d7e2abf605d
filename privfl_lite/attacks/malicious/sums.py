"""What a server learns of one client although it sees nothing but sums (chapter: malicious server).

It knows some of the others' uploads (they are its own, or it has the sum of another round without
the target): ``remainder``. Or it sends the others a model behind whose last layer nothing moves,
and the target an ordinary one: ``silenced`` and ``spoken``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from torch import nn

from ...arrays import MODEL
from ...checking import checked
from ...gradients import per_client
from ...models import Net, wrap
from ...runtime import PrivflError
from ...values import Count
from ...wire import Facts, Upload


@checked
def remainder(upload: Upload, known: Sequence[Upload]) -> Upload:
    """What is left of a mean over examples if some of the uploads in it are known.

    ``known``: those of clients that the server runs itself; or one, the mean of a round in which
    all but the target took part, with the same weights. B g = Σ B_k g_k, so the rest is exact, up
    to the rounding of the two sums.
    """
    left = upload.batch - sum(one.batch for one in known)
    if left < 1:
        raise PrivflError(f"of {upload.batch} examples none are left behind the known uploads")
    if any(one.tensors.keys() != upload.tensors.keys() or len(one) != 1 for one in known):
        raise PrivflError("known uploads must be of one client each, with the same tensors")
    tensors = {
        n: (upload.batch * t - sum(one.batch * one.tensors[n] for one in known)) / left
        for n, t in upload.tensors.items()
    }
    plan = upload.plan
    if plan is not None:
        plan = replace(plan, batch_size=max(1, round(plan.batch_size * left / upload.batch)))
    return replace(upload, tensors=tensors, batch=left, plan=plan, knows=Facts())


@checked
def silenced(model: Annotated[nn.Module, MODEL]) -> Net:
    """A copy whose last layer has zero weights, so that no error goes back through it.

    Whatever a client holds, its gradient in front of the last layer is exactly zero.
    """
    net = copy.deepcopy(wrap(model))
    with torch.no_grad():
        net.last.weight.zero_()
    return net


@checked
def spoken(upload: Upload, batch: Count) -> Upload:
    """The target's upload, from a sum in which all others were sent a ``silenced`` model.

    ``batch``: the target's examples. In front of the last layer the sum is its gradient alone; the
    last layer's tensors mix all clients and are left out.
    """
    head = tuple(f"{upload.model.head_name}.{part}" for part in ("weight", "bias"))
    share = torch.full((len(upload),), upload.batch / batch)
    own = {n: t * per_client(share, t) for n, t in upload.tensors.items() if n not in head}
    return replace(upload, tensors=own, batch=batch, knows=Facts())
