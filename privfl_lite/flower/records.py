"""Between tensors by name and Flower's records, what must travel, and how a client says no."""

from __future__ import annotations

import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping

import torch
from flwr.app import ArrayRecord, Error, Message
from torch import Tensor

from ..defenses.base import Defense
from ..gradients import Tensors
from ..models import Net
from ..runtime import PrivflError, device

REFUSED = 100  # the code of an error that says nothing more: its text would go to the server


def travelling(model: Net, defense: Defense) -> list[str]:
    """The names of what goes to and fro: weights that may leave, and buffers nobody keeps."""
    own = defense.begin(model, 0)
    names = [n for n, _ in model.named_parameters() if defense.leaves(n)]
    return names + [n for n, _ in model.named_buffers() if n not in own]


def to_record(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord(OrderedDict((n, t.detach().cpu()) for n, t in tensors.items()))


def from_record(record: ArrayRecord, like: Mapping[str, Tensor]) -> Tensors:
    """The tensors of a record, in the types of ``like``: Flower's mean turns counters into floats.

    Names and shapes must be those of ``like``; else one sentence.
    """
    found = record.to_torch_state_dict()
    if list(found) != list(like):
        raise PrivflError(
            f"the record holds {', '.join(found) or 'nothing'}; expected {', '.join(like)}"
        )
    for name, t in found.items():
        if t.shape != like[name].shape:
            got, want = tuple(t.shape), tuple(like[name].shape)
            raise PrivflError(f"{name!r} came as {got}; the model's is {want}")
    return {n: t.to(device=device(), dtype=like[n].dtype) for n, t in found.items()}


def only_record(message: Message) -> tuple[str, ArrayRecord]:
    """The one record of arrays of a message, with its key."""
    records = list(message.content.array_records.items())
    if len(records) != 1:
        raise PrivflError(
            f"a message must hold one record of arrays; this one holds {len(records)}"
        )
    return records[0]


def load(model: Net, record: ArrayRecord, defense: Defense) -> Tensors:
    """Put what came into the model; returns it by name."""
    state = model.state_dict()
    came = from_record(record, {n: state[n] for n in travelling(model, defense)})
    with torch.no_grad():
        model.load_state_dict(came, strict=False)
    return came


def refused(message: Message) -> Message:
    """The reply of a client that sends nothing: one constant word, whatever went wrong."""
    return Message(Error(code=REFUSED, reason="refused"), reply_to=message)


def or_refused(message: Message, act: Callable[[], Message]) -> Message:
    """Fails closed: an exception would carry its text, and perhaps data in it, to the server."""
    try:
        return act()
    except PrivflError as error:
        print(f"nothing was sent: {error}", file=sys.stderr)
    except Exception:
        print("nothing was sent:", file=sys.stderr)
        traceback.print_exc()
    return refused(message)
