"""What people have, such as a list from ``autograd.grad``, as the parts of an ``Upload``."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..models import Net, wrap
from ..runtime import PrivflError, device
from .facts import Facts
from .naming import fill, named


def gradient_parts(model: nn.Module, gradients: Any, labels: Any, batch: int | None) -> dict:
    """The fields of ``Upload.from_gradients``, where all arguments are explained."""
    net = copy.deepcopy(wrap(model)).to(device())
    tensors = named(net, gradients)
    y, clients = _labels(labels, net), len(next(iter(tensors.values()), ()))
    if y is not None and y.dim() - y.is_floating_point() == 1:
        y = y.unflatten(0, (clients, -1)) if clients and not len(y) % clients else y[None]
    batch = batch or (1 if y is None else y.shape[1])
    facts = Facts(labels=y)
    return {"tensors": tensors, "kind": "gradient", "model": net, "batch": batch, "knows": facts}


def update_parts(before: Any, after: Any, batch: int, model: nn.Module | None, labels: Any) -> dict:
    """The fields of ``Upload.from_update``, save its plan."""
    if not isinstance(before, nn.Module) and model is None:
        raise PrivflError("before= holds weights only; give the network, too: model=net")
    net = copy.deepcopy(wrap(before if model is None else model)).to(device())
    fill(net, before)
    own = dict(net.named_parameters())
    delta = {n: t - own[n].detach() for n, t in named(net, after).items()}
    return {**gradient_parts(net, delta, labels, batch), "kind": "update"}


def _labels(given: Any, model: Net) -> Tensor | None:
    """Classes as whole numbers, or distributions (…, classes) in the model's type."""
    if given is None:
        return None
    like = next(model.parameters())
    y = torch.atleast_1d(torch.as_tensor(given, device=like.device)).detach()
    if y.is_floating_point():
        return y.to(like)
    if y.numel() and not 0 <= int(y.min()) <= int(y.max()) < model.num_classes:
        raise PrivflError(f"labels must lie in 0…{model.num_classes - 1}; got {y.tolist()}")
    return y.long()
