"""The server's ear: a strategy that keeps every reply as an ``Upload``, ready for our attacks."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from safetensors.torch import save as to_bytes
from torch import nn

from .. import disk
from ..client import server_copy
from ..defenses.base import Defense, Memory
from ..models import Net, wrap
from ..privacy import Epsilon, Training, account
from ..rounds import SERVER
from ..runtime import PrivflError, generator
from ..spending import bare_statistics
from ..wire import Plan, Upload
from .records import from_record, load, to_record, travelling


@dataclass
class Seen:
    """One round as the server saw it."""

    round: int
    asked: int  # nodes that were sent the model
    clients: list[int]  # who answered: partition ids where clients tell them, else node ids
    examples: list[int]
    uploads: list[Upload] = field(repr=False)
    failed: int = 0  # answered with an error
    epsilon: Epsilon | None = None

    @property
    def silent(self) -> int:
        """Nodes of which nothing came, not even an error: Flower itself does not count them."""
        return self.asked - len(self.clients) - self.failed

    def save(self, folder: str | Path) -> None:
        """Weights as ``before.safetensors`` went down and ``client-….safetensors`` came back.

        ``privfl report --model-file before.safetensors --upload client-0.safetensors`` reads them.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for client, upload in zip(self.clients, self.uploads, strict=True):
            before = {n: upload.model.state_dict()[n].cpu() for n in upload.tensors}
            after = {n: t + upload.tensors[n][0].cpu() for n, t in before.items()}
            disk.write(folder / "before.safetensors", to_bytes(before), private=True)
            disk.write(folder / f"client-{client}.safetensors", to_bytes(after), private=True)

    def __str__(self) -> str:
        sizes = f"{min(self.examples)} to {max(self.examples)}" if self.examples else "no"
        return (
            f"round {self.round}: asked {self.asked}, {len(self.clients)} answered, "
            f"{self.failed} refused or failed, {self.silent} silent; in clear: one update each of "
            f"{sum(u.nbytes // 4 for u in self.uploads[:1]):,} numbers, of {sizes} examples; "
            f"{self.epsilon}"
        )


class Tap(Strategy):
    """``strategy`` as it is, but every reply is kept in ``history``, and its summary printed.

    ``model_fn``, ``defense``, ``plan`` and ``clients`` (how many there are) are what the server
    knows, because it set them; from them follow the model in each ``Upload`` and the ε of the run.
    Replies are put into the order of their clients, so that sums do not depend on who was first.
    ``wait``: fewer answers than this end the run in one sentence; Flower would go on with what
    came, and call it completed. ``secure`` says whether clients draw their noise from the operating
    system.
    """

    def __init__(
        self,
        strategy: FedAvg,
        model_fn: Callable[[], nn.Module],
        defense: Defense | None = None,
        plan: Plan | None = None,
        clients: int = 1,
        shape: tuple[int, int, int] | None = None,
        wait: int = 1,
        keep: bool = True,
        seed: int = 0,
        secure: bool = True,
        show: bool = True,
    ):
        self.strategy, self.defense, self.plan = strategy, defense or Defense(), plan or Plan()
        net = wrap(model_fn(), shape=shape)
        self.model: Net = self.defense.model(copy.deepcopy(net))
        self.statistics = bare_statistics(self.model, self.defense, self.plan, "update")
        self.clients, self.wait, self.keep, self.show = clients, wait, keep, show
        self.seed, self.secure, self.memory = seed, secure, Memory()
        self.history: list[Seen] = []
        self._asked = 0

    def initial(self) -> ArrayRecord:
        """What the first round sends: all that may travel."""
        state = server_copy(self.model, self.defense).state_dict()
        return to_record({n: state[n] for n in travelling(self.model, self.defense)})

    def final(self, arrays: ArrayRecord) -> Net:
        """The model with these arrays in it; Flower returns none where nobody ever answered."""
        net = copy.deepcopy(self.model)
        if arrays:
            load(net, arrays, self.defense)
        return net

    def summary(self) -> None:
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        load(self.model, arrays, self.defense)
        sent = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._asked = len(sent)
        return sent

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        came = sorted(replies, key=_who)
        good = [m for m in came if not m.has_error()]
        self.history.append(self._seen(server_round, good, len(came) - len(good)))
        if self.show:
            print(self.history[-1], flush=True)
        if len(good) < self.wait:
            raise PrivflError(
                f"round {server_round}: {len(good)} of {self._asked} clients answered, and "
                f"wait={self.wait}"
            )
        arrays, metrics = self.strategy.aggregate_train(server_round, came)
        return self._averaged(arrays, server_round, good), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _seen(self, r: int, good: list[Message], failed: int) -> Seen:
        sizes = [_examples(m) for m in good]
        uploads = [self._upload(m, n) for m, n in zip(good, sizes, strict=True) if self.keep]
        seen = Seen(r, self._asked, [_who(m) for m in good], sizes, uploads, failed)
        seen.epsilon = account(self.defense, self._training(seen))
        return seen

    def _upload(self, message: Message, examples: int) -> Upload:
        """Δ of the weights that leave, as ``share`` would have handed it over."""
        state = self.model.state_dict()
        names = travelling(self.model, self.defense)
        after = from_record(_arrays(message), {n: state[n] for n in names})
        weights = [n for n, _ in self.model.named_parameters() if n in after]
        delta = {n: (after[n] - state[n].to(after[n]))[None] for n in weights}
        net = server_copy(self.model, self.defense)
        return Upload(delta, "update", net, max(1, examples), self.plan.mode, self.plan)

    def _training(self, now: Seen) -> Training:
        """All rounds so far, as ``FedAvg`` tells them to the accountant."""
        rounds = [*self.history, now]
        joined, held = Counter[int](), dict.fromkeys(range(self.clients), 1)
        for seen in rounds:
            joined.update(seen.clients)
            held |= dict(zip(seen.clients, seen.examples, strict=True))
        return Training(
            len(rounds),
            len(held),
            min(len(held), max(1, now.asked)),
            plan=self.plan,
            weighting="examples",
            examples=tuple(held.values()),
            joined=tuple(joined[c] for c in held),
            tensors={
                n: tuple(p.shape)
                for n, p in self.model.named_parameters()
                if self.defense.leaves(n)
            },
            statistics=self.statistics,
            secure=self.secure,
        )

    def _averaged(self, arrays: ArrayRecord | None, r: int, good: list[Message]) -> Any:
        """Flower's mean through the defense's door at the server; counters as whole numbers."""
        if arrays is None:
            return None
        before = {n: self.model.state_dict()[n].cpu() for n in travelling(self.model, self.defense)}
        after = {n: t.cpu() for n, t in from_record(arrays, before).items()}
        weights = [n for n, _ in self.model.named_parameters() if n in after]
        mean = {n: after[n] - before[n] for n in weights}
        sizes = [_examples(m) for m in good]
        share = max(sizes) / (sum(sizes) or 1)
        moved = self.defense.average(mean, share, generator(self.seed, SERVER, r), self.memory)
        with torch.no_grad():
            after |= {n: before[n] + moved[n] for n in weights if moved[n] is not mean[n]}
        return to_record(after)


def _metrics(message: Message) -> MetricRecord:
    return next(iter(message.content.metric_records.values()), MetricRecord())


def _arrays(message: Message) -> ArrayRecord:
    return next(iter(message.content.array_records.values()))


def _examples(message: Message) -> int:
    return int(_metrics(message).get("num-examples", 0))


def _who(message: Message) -> int:
    """The client's own number if it tells it, else the number of its node."""
    node = int(message.metadata.src_node_id)
    if message.has_error():
        return node
    return int(_metrics(message).get("client", node))
