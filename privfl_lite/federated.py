"""FedAvg (McMahan et al. 2017): clients train at home, the server averages what they send.

    run = FedAvg(model, clients, rounds=20, test=(x_test, y_test))
    for report in run:
        print(report.round, report.accuracy)
    run.model                                # the global model, as trained so far

Chapter 1 builds the same from nothing.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch

from . import __version__, checkpoint, disk
from .arrays import MODEL
from .batches import Clients, Data, Pair, as_batch, image_shape
from .checking import check, check_fields, checked
from .client import Diverged, send, upload_of
from .defenses.base import Defense, Memory, Pool
from .gradients import Tensors, norm
from .models import Net, wrap
from .privacy import Epsilon, account
from .privacy.mechanisms import Sampling, Weighting
from .reports import Report, evaluate
from .rounds import SERVER, Mean, move, taking_part
from .runtime import PrivflError, choose, device, generator, progress
from .spending import bare_statistics, training_of
from .stored import identity
from .training import MASKS, Local, Trained, batching_pays, clients_at_once, groups, private_tensors
from .values import Count, Number, Seed, Text, Word, most_processes
from .wire import Plan, Upload
from .workers import Workers


@dataclass
class FedAvg:
    """Federated averaging over ``clients``, a list of (images, labels); iterate for the reports.

    Each round takes ``per_round`` of the clients (all by default): exactly that many
    (``sampling="fixed"``), or each one independently so that this many are expected ("poisson").
    ``share="update"``: a client trains by ``plan`` and sends Δ; the server adds the mean of the Δ.
    ``share="gradient"``: it sends the gradient over all its data; the server takes one step with
    rate ``plan.eta``. Means are weighted by numbers of examples, or "uniform"; "fixed": the sum
    over the number of clients that are *expected*, whoever comes, so that the divisor tells nothing
    and a round without clients still passes the server's door. ``schedule(round)`` multiplies the
    rate. ``secure=True`` takes the noise of defenses, and who takes part, from the operating system
    instead of ``seed``. ``fast=True`` trains many clients at once, ``False`` one after the other;
    None takes what is quicker (``batching_pays``). ``workers=2`` trains in so many processes, one
    thread each with ``OMP_NUM_THREADS=1``, and gives the same bits as 1 (``workers``).

    ``checkpoint`` names a file written after every round: a later run with the same settings goes
    on from there and ends with the same bits. The model that is passed in stays as it is.
    """

    model: Annotated[Net, MODEL]
    clients: Clients
    rounds: Count
    plan: Plan = field(default_factory=Plan)
    test: Pair | None = None
    per_round: Count | None = None
    sampling: Sampling = "fixed"
    share: Annotated[str, Word("share", "update", "gradient")] = "update"
    weighting: Weighting = "examples"
    schedule: Callable[[int], float] | None = None
    defense: Defense = field(default_factory=Defense)
    fast: bool | None = None
    workers: Annotated[int, Number(1, most_processes(), whole=True)] = 1
    keep_uploads: bool = False
    checkpoint: Text | Path | None = None
    seed: Seed = 0
    show: bool = True
    secure: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.workers > 1 and (self.share == "gradient" or device().type == "cuda"):
            raise PrivflError("workers train on a CPU; with share='gradient' or a GPU take 1")
        n = len(self.clients)
        if (self.per_round or n) > n:
            got = f"got {self.per_round}"
            raise PrivflError(f"per_round must lie in 1…{n}, the number of clients; {got}")
        self.model = wrap(self.model, *image_shape(self.clients[0][0]))
        self.clients = [
            as_batch(self.model, x, y, f"client {c}") for c, (x, y) in enumerate(self.clients)
        ]
        if self.test is not None:
            self.test = as_batch(self.model, *self.test, "the test data")
        self.memory = Memory(self.secure)  # what clients remember belongs to this run
        self.model = self.defense.model(copy.deepcopy(self.model)).to(device())
        self.per_round = self.expected = self.per_round or len(self.clients)
        self.fast = batching_pays(self.model) if self.fast is None else self.fast
        self.history: list[Report] = []
        self._local = Local(self.clients, self.defense, self.fast, self.seed)
        self.leaving = {
            n: tuple(p.shape) for n, p in self.model.named_parameters() if self.defense.leaves(n)
        }
        self.statistics = bare_statistics(self.model, self.defense, self.plan, self.share)
        self._identity = self._describe()

    def __iter__(self) -> Iterator[Report]:
        if self.checkpoint is None:
            yield from self._rounds()
            return
        disk.check_writable(Path(self.checkpoint))
        with disk.alone(Path(self.checkpoint), f"the checkpoint {self.checkpoint}"):
            yield from self._rounds()

    def _rounds(self) -> Iterator[Report]:
        self._resume()
        yield from self.history
        todo = range(len(self.history) + 1, self.rounds + 1)
        many = self.workers > 1 and len(todo) > 0
        with Workers(self.workers, self._local, self.model) if many else self._local as trainer:
            for r in progress(todo, "rounds", show=self.show):
                self.history.append(self._play(r, trainer))
                self._save()
                yield self.history[-1]

    def finish(self) -> FedAvg:
        """The run after its last round; if it diverges, after the last one with finite uploads."""
        try:
            for _ in self:
                pass
        except Diverged:
            if not self.history:
                raise
        return self

    def _play(self, r: int, trainer: Local | Workers) -> Report:
        """Round r: sample, train, average, measure."""
        began = time.perf_counter()
        n, plan = len(self.clients), self.plan
        chosen = taking_part(n, self.expected, self.sampling, self.seed, r, self.secure)
        if self.schedule is not None:
            plan = replace(plan, eta=plan.eta * self._factor(r))
        mean, largest, norms, uploads = self._gather(chosen, plan, r, trainer)
        if mean:
            rng = generator(self.seed, SERVER, r)
            learned = {n: mean[n] for n, _ in self.model.named_parameters() if n in mean}
            after = self.defense.average(learned, largest, rng, self.memory)
            move(self.model, mean | after, 1.0 if self.share == "update" else -plan.eta)
        accuracy, loss = self._measure(self.test) if self.test else (None, None)
        epsilon = account(self.defense, training_of(self, chosen))
        seconds = time.perf_counter() - began
        return Report(r, chosen, accuracy, loss, norms, epsilon, seconds, uploads)

    def _gather(
        self, chosen: list[int], plan: Plan, r: int, trainer: Local | Workers
    ) -> tuple[Tensors, float, list[float], list[Upload]]:
        """The mean of what the chosen send, the largest weight in it, lengths, uploads."""
        at_once = clients_at_once(self.model, plan.batch_size) if self.fast else 1
        parts, now = groups(chosen, at_once), (plan, r, self.memory)
        each: Iterable[Trained | None] = [None] * len(parts)
        if self.share == "update":
            each = trainer.train_all(self.model, parts, *now)
        sizes = {c: len(self.clients[c][0]) for c in chosen}
        leaving = self.leaving if self.weighting == "fixed" else ()  # a mean even of none
        zero = {n: torch.zeros_like(self.model.get_parameter(n)) for n in leaving}
        pool = self._pool(chosen, r)
        mean = Mean(sizes, self.weighting, self.expected, zero, pool)
        norms: list[float] = []
        uploads: list[Upload] = []
        for who, trained in zip(parts, each, strict=True):
            sent, buffers = send(self._local, self.model, who, trained, *now)
            mean.add(who, {**sent, **buffers})
            if pool is None:
                norms += norm(sent).tolist()
                uploads += self._kept([[c] for c in who], sent, plan)
        done, largest = mean.done()
        if pool is not None:
            one = {n: done[n][None] for n in self.leaving}
            norms, uploads = norm(one).tolist(), self._kept([pool.there], one, plan)
        return done, largest, norms, uploads

    def _pool(self, chosen: list[int], r: int) -> Pool | None:
        """What adds the uploads of round r up, where the server is to see only their sum."""
        rng = partial(generator, self.seed, MASKS, r)
        return self.defense.collect(chosen, rng, self.secure) if chosen else None

    def _kept(self, who: list[list[int]], sent: Tensors, plan: Plan) -> list[Upload]:
        """The rows of what arrived as uploads; ``who`` stands behind each of them."""
        if not self.keep_uploads:
            return []
        rows = [{n: t[k : k + 1] for n, t in sent.items()} for k in range(len(who))]
        about = (plan, self.share)
        return [
            upload_of(self._local, self.model, clients, row, *about)
            for clients, row in zip(who, rows, strict=True)
        ]

    def personal(self, client: int) -> Net:
        """The model as this client uses it: the global one, with what the client keeps at home."""
        check("client", client, Number(0, len(self.clients) - 1, whole=True))
        net = copy.deepcopy(self.model)
        own = private_tensors(self.defense, self.model, [client], self.memory)
        net.load_state_dict({n: t[0] for n, t in own.items()}, strict=False)
        return net

    def _measure(self, test: Data) -> tuple[float, float]:
        """Accuracy and loss of the global model; if clients have their own, the mean over them."""
        if not self.defense.begin(self.model, 0):
            return evaluate(self.model, *test)
        n = len(self.clients)
        scores = [evaluate(self.personal(c), *test) for c in range(n)]
        accuracy, loss = (sum(column) / n for column in zip(*scores, strict=True))
        return accuracy, loss

    def _describe(self) -> str:
        """Settings, first weights and data of this run, so that no other run is continued."""
        data = (t for pair in (*self.clients, self.test or ()) for t in pair)
        seen = checkpoint.fingerprint((*self.model.state_dict().values(), *data))
        how = (self.per_round, self.sampling, self.share, self.weighting, self.seed, self.secure)
        made_by = f"{__version__} torch {torch.__version__}"
        return f"{identity((self.plan, self.defense, how))} {seen} {made_by} {self.model}"

    def _rates(self, rounds: int) -> list[float]:
        """By what the schedule multiplies the rate in the first of the rounds."""
        return [float(self._factor(r)) for r in range(1, rounds + 1)]

    def _factor(self, r: int) -> float:
        """By what the schedule multiplies the rate in round r."""
        factor = 1.0 if self.schedule is None else self.schedule(r)
        check(f"schedule({r})", factor, Number(0, open="low"))
        return factor

    def _resume(self) -> None:
        """Go on from the checkpoint, if there is one and it is of this run."""
        if self.history or self.checkpoint is None or not Path(self.checkpoint).exists():
            return
        saved = checkpoint.load(self.checkpoint, self._identity, self._rates, self.rounds)
        self.model.load_state_dict(saved["model"])
        self.memory.load_state_dict(saved["memory"])
        self.history = [
            Report(**{**r, "epsilon": Epsilon.load(r["epsilon"])}) for r in saved["history"]
        ]

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        state = {
            "settings": self._identity,
            "rates": self._rates(len(self.history)),
            "model": self.model.state_dict(),
            "memory": self.memory.state_dict(),
            "history": [asdict(replace(r, uploads=[])) for r in self.history],
        }
        checkpoint.save(self.checkpoint, state)


@checked
def fedavg(
    model: Annotated[Net, MODEL],
    clients: Clients,
    rounds: Count,
    plan: Plan | None = None,
    **settings: Any,
) -> FedAvg:
    """``FedAvg`` as a function: reads better in ``for report in fedavg(…)``."""
    for name in settings:
        choose("setting of FedAvg", name, [f.name for f in fields(FedAvg)])
    return FedAvg(model, clients, rounds, plan or Plan(), **settings)
