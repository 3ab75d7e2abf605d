"""What people have as an ``Upload``: gradients, weights after training, or their change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..batches import image_shape
from ..gradients import Tensors
from ..models import Net, wrap
from ..runtime import PrivflError
from ..values import Holds, Word
from ..wire import Plan, Upload
from ..wire.naming import named

SENT = Holds(
    "an Upload, tensors or arrays (a list in the order of model.parameters(), or a dict by name), "
    "or a module after training",
    lambda v: (
        isinstance(v, Upload | Sequence | Mapping | nn.Module) and not isinstance(v, str | bytes)
    ),
)
As = Annotated[str, Word("kind of what was sent", "auto", "gradient", "change", "weights")]


def as_upload(
    model: nn.Module, sent: Any, kind: str, plan: Plan | None, batch: int | None, labels: Any,
    mode: str, x: Tensor | None,
) -> tuple[Upload, str]:  # fmt: skip
    """The upload, and in words what it was taken for.

    "auto": with a plan, tensors nearer to the model's own weights than to 0 are weights after
    training, others their change; without a plan they are gradients.
    """
    if isinstance(sent, Upload):
        if plan is not None or labels is not None or batch not in (None, sent.batch):
            raise PrivflError(
                "an Upload has a plan, a batch and labels of its own; leave plan=, batch= and "
                "labels= out"
            )
        return sent, "an Upload, as it is"
    net = wrap(model, *image_shape(x))
    batch = batch or _count(labels, x)
    if isinstance(sent, nn.Module):
        kind = "weights" if kind == "auto" else kind
    tensors = named(net, sent)
    near = _is_near(net, tensors)
    if plan is None:
        if kind in ("change", "weights") or (kind == "auto" and near):
            raise PrivflError(
                "these tensors are weights after training or their change, not gradients; say by "
                "which rules they were trained: plan=pf.Plan(eta=…, steps=…, batch_size=…)"
            )
        return Upload.from_gradients(net, sent, labels, batch, mode), "gradients of the mean loss"
    if kind == "gradient":
        raise PrivflError("gradients need no plan=; leave it out, or give weights or their change")
    if kind == "change" or (kind == "auto" and not near):
        own = dict(net.named_parameters())
        after = {n: t + own[n].detach() for n, t in tensors.items()}
        said = "the change of the weights, after minus before"
    else:
        after, said = tensors, "weights after training; their change is attacked"
    whole = {n: p.detach().expand(len(next(iter(after.values()))), *p.shape)
             for n, p in net.named_parameters()}  # fmt: skip
    upload = Upload.from_update(net, {**whole, **after}, plan, batch, labels=labels)
    return _only(upload, set(tensors)), said


def _only(upload: Upload, names: set[str]) -> Upload:
    """Without the tensors that were not sent."""
    kept = {n: t for n, t in upload.tensors.items() if n in names}
    return Upload(
        kept, upload.kind, upload.model, upload.batch, upload.mode, upload.plan, upload.knows
    )


def _is_near(net: Net, tensors: Tensors) -> bool:
    """Whether tensors are nearer to the model's weights than to 0."""
    own = dict(net.named_parameters())
    apart = sum((t - own[n].detach()).square().sum() for n, t in tensors.items())
    return bool(apart < sum(t.square().sum() for t in tensors.values()))


def _count(labels: Any, x: Tensor | None) -> int:
    """How many examples stand behind an upload, where that was not said."""
    if x is not None:
        return len(x)
    return 1 if labels is None else max(1, torch.as_tensor(labels, device="cpu").numel())
