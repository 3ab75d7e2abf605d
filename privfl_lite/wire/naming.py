"""What people have as tensors by name, in the order, type and device of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..gradients import Tensors
from ..runtime import PrivflError


def named(model: nn.Module, given: Any) -> Tensors:
    """What people have as name -> (U, *shape), in the model's order, type and device.

    ``given``: a list as from ``autograd.grad`` or Flower (of the parameters, of the trainable ones
    or of the whole state dict, in the model's order), a dict by name, or a module; of tensors or
    arrays, of one client or with a first axis of U clients; or a list of such, one per client. What
    is no parameter, such as the statistics of batch norm, is left out.
    """
    several = isinstance(given, Sequence) and len(given) > 0
    if several and isinstance(given[0], Mapping | Sequence | nn.Module):
        each = [named(model, one) for one in given]
        if len({tuple(one) for one in each}) > 1:
            raise PrivflError("the clients' uploads hold tensors of different names")
        return {n: torch.cat([one[n] for one in each]) for n in each[0]}
    found, own = _by_name(model, given), dict(model.named_parameters())
    dropped = model.state_dict().keys() - own.keys()
    for name in found:
        if name not in own and name not in dropped:
            raise PrivflError(f"the model has no tensor {name!r}; it has: {_short(list(own))}")
    return {n: _with_clients(n, found[n], p) for n, p in own.items() if n in found}


def fill(model: nn.Module, given: Any) -> None:
    """Put all weights of one model, as ``named`` takes them, and its buffers into ``model``."""
    weights, own = named(model, given), model.state_dict()
    for name, p in model.named_parameters():
        if name not in weights or len(weights[name]) > 1:
            what = "are missing" if name not in weights else "have an axis of several clients"
            raise PrivflError(f"the weights {name!r} {what}; a model needs all of its own, once")
        with torch.no_grad():
            p.copy_(weights[name][0])
    for name, value in _by_name(model, given).items():
        if name not in weights and own[name].shape == value.shape:
            own[name].copy_(torch.as_tensor(value, device=own[name].device))


def _by_name(model: nn.Module, given: Any) -> Mapping[str, Any]:
    """A list takes the names of the model's tensors; which ones, its length tells."""
    if isinstance(given, nn.Module):
        return given.state_dict()
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, Sequence):
        raise PrivflError(
            "give a list of tensors in the order of model.parameters(), or a dict by name; "
            f"got {type(given).__name__}"
        )
    every = dict(model.named_parameters())
    ways = (list(every), [n for n, p in every.items() if p.requires_grad], list(model.state_dict()))
    for names in ways:
        if len(names) == len(given):
            return dict(zip(names, given, strict=True))
    raise PrivflError(
        f"got {len(given)} tensors, but the model has {len(every)} parameters; "
        "give them in the order of model.parameters(), or as a dict by name"
    )


def _with_clients(name: str, value: Any, like: Tensor) -> Tensor:
    """One tensor or array as (U, *shape of the model's), like the model's in type and device."""
    if not isinstance(value, Tensor | np.ndarray | np.generic):
        what = "None: the loss does not depend on it" if value is None else type(value).__name__
        raise PrivflError(f"{name!r} is no tensor or array but {what}")
    t = torch.as_tensor(value, device=like.device).detach()
    if not t.is_floating_point():
        raise PrivflError(f"{name!r} holds {t.dtype}, not floating-point numbers")
    if t.shape != like.shape and t.shape[1:] != like.shape:
        axes = ", ".join(map(str, ("clients", *like.shape)))
        raise PrivflError(
            f"{name!r} has shape {tuple(t.shape)}; the model's is {tuple(like.shape)}, "
            f"or ({axes}) with an axis of clients"
        )
    return (t[None] if t.shape == like.shape else t).to(like, copy=True)


def _short(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f", … ({len(names)})" if len(names) > 4 else "")
