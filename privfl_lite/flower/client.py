"""Our client as a Flower ``ClientApp``: the same training, all doors of a defense.

What the client does is ``training.Local`` and ``client.send``, as in ``FedAvg``; here it only gets
its letters from Flower. If anything goes wrong, nothing is sent but the word "refused": the reason
is printed at home, where it belongs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from ..batches import Data, as_batch, image_shape
from ..client import send
from ..defenses.base import Defense, Memory
from ..gradients import Tensors
from ..models import Net, wrap
from ..reports import evaluate
from ..runtime import PrivflError, device
from ..training import Local, private_tensors
from ..wire import Plan
from .records import load, only_record, or_refused, to_record, travelling
from .state import remember, remembered

Config = Mapping[str, Any]
DataFn = Callable[[int], Data]


def client_app(
    model_fn: Callable[[], nn.Module],
    data_fn: DataFn,
    defense: Defense | Callable[[Config], Defense] | None = None,
    plan: Plan | Callable[[Config], Plan] | None = None,
    test_fn: DataFn | None = None,
    seed: int = 0,
    secure: bool = True,
    folder: str | Path | None = None,
    mods: tuple[Callable, ...] = (),
) -> ClientApp:
    """A ``ClientApp`` that trains ``model_fn()`` on ``data_fn(client)`` behind ``defense``.

    ``client`` is the partition id of its node. ``defense`` and ``plan`` are what they are in
    ``FedAvg``, or functions of the run's configuration (``context.run_config``). ``secure``: noise
    comes from the operating system; with False it follows ``seed``, and a run is the same as
    ``FedAvg`` with that seed. ``folder``: where memory is kept, too, so that it survives a restart
    of the node. ``test_fn`` gives the client's own test data; without it, evaluation is refused.
    """
    app = ClientApp()
    told = _Told(model_fn, data_fn, defense, plan, seed, secure, folder)

    @app.train(mods=list(mods))
    def train(message: Message, context: Context) -> Message:
        return or_refused(message, lambda: told.train(message, context))

    @app.evaluate()
    def measure(message: Message, context: Context) -> Message:
        return or_refused(message, lambda: told.measure(message, context, test_fn))

    return app


class _Told:
    """What the app was told, and what it does with a message."""

    def __init__(
        self,
        model_fn: Callable[[], nn.Module],
        data_fn: DataFn,
        defense: Defense | Callable[[Config], Defense] | None,
        plan: Plan | Callable[[Config], Plan] | None,
        seed: int,
        secure: bool,
        folder: str | Path | None,
    ):
        self.model_fn, self.data_fn = model_fn, data_fn
        self._defense, self._plan = defense or Defense(), plan or Plan()
        self.seed, self.secure, self.folder = seed, secure, folder

    def defense(self, context: Context) -> Defense:
        made = self._defense
        made = made if isinstance(made, Defense) else made(context.run_config)
        if made.crosses():
            name = type(made).__name__
            raise PrivflError(f"{name} needs another client's data, which no message brings")
        return made

    def plan(self, context: Context) -> Plan:
        return self._plan if isinstance(self._plan, Plan) else self._plan(context.run_config)

    def at_home(
        self, message: Message, context: Context, data_fn: DataFn
    ) -> tuple[int, Net, Data, Defense, Memory, Tensors]:
        """Who this is, the model as it came, the data, the defense, what is remembered."""
        client, defense = int(context.node_config["partition-id"]), self.defense(context)
        x, y = data_fn(client)
        net = wrap(self.model_fn(), *image_shape(x))
        x, y = as_batch(net, x, y, f"client {client}")
        net = defense.model(copy.deepcopy(net)).to(device())
        came = load(net, only_record(message)[1], defense)
        memory = remembered(context, client, self.secure, self.folder)
        return client, net, (x, y), defense, memory, came

    def train(self, message: Message, context: Context) -> Message:
        client, net, data, defense, memory, came = self.at_home(message, context, self.data_fn)
        r, plan = int(message.content["config"]["server-round"]), self.plan(context)
        local = Local({client: data}, defense, False, self.seed)
        trained = local.train(net, [client], plan, r, memory)
        sent, buffers = send(local, net, [client], trained, plan, r, memory)
        new = {n: came[n] + t[0].to(came[n].dtype) for n, t in {**sent, **buffers}.items()}
        reply = _reply(message, {n: new[n] for n in travelling(net, defense)}, len(data[0]), client)
        remember(memory, context, client, self.folder)
        return reply

    def measure(self, message: Message, context: Context, test_fn: DataFn | None) -> Message:
        """Accuracy and loss of the model as this client uses it, with what it keeps at home."""
        if test_fn is None:
            raise PrivflError("client_app was given no test_fn")
        client, net, data, defense, memory, _ = self.at_home(message, context, test_fn)
        own = private_tensors(defense, net, [client], memory)
        net.load_state_dict({n: t[0] for n, t in own.items()}, strict=False)
        accuracy, loss = evaluate(net, *data)
        scores = {"accuracy": accuracy, "loss": loss, "num-examples": len(data[0])}
        return Message(RecordDict({"metrics": MetricRecord(scores)}), reply_to=message)


def _reply(message: Message, state: Tensors, examples: int, client: int) -> Message:
    """The answer under the key under which the model came. ``client``: the node's partition."""
    key, _ = only_record(message)
    metrics = MetricRecord({"num-examples": examples, "client": client})
    content: dict[str, ArrayRecord | MetricRecord] = {key: to_record(state), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)
