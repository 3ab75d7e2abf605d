"""FedAvg (McMahan et al. 2017): clients train at home, the server averages what they send.

    run = FedAvg(model, clients, rounds=20, test=(x_test, y_test))
    for report in run:
        print(report.round, report.accuracy)
    run.model                                # the global model, as trained so far

Chapter 1 builds the same from nothing.
"""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .client import (
    Data,
    as_batch,
    batching_pays,
    clients_at_once,
    gradients_of,
    image_shape,
    private_tensors,
    server_copy,
    through_update_door,
    train_many,
    train_one,
    update_context,
)
from .defenses.base import Defense, Memory
from .gradients import Tensors, length
from .models import Net, wrap
from .privacy import Epsilon, Training, account
from .runtime import PrivflError, choose, device, generator, progress, seeded
from .stored import identity
from .wire import Plan, Upload

# purposes of random streams: who takes part; what a client draws; what the server draws
SAMPLING, SHUFFLE, SERVER = 0, 1, 2


@dataclass(frozen=True)
class Report:
    """One round: who took part, how good the global model now is, and what it cost."""

    round: int  # counted from 1
    clients: list[int]
    accuracy: float | None  # share of right answers on the test data
    loss: float | None  # mean cross-entropy there
    norms: list[float]  # Euclidean length of each client's upload
    epsilon: Epsilon  # what holds for all rounds so far, or why nothing does
    seconds: float
    uploads: list[Upload] = field(default_factory=list, repr=False)


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
    None takes what is quicker (``batching_pays``).

    ``checkpoint`` names a file written after every round: a later run with the same settings goes
    on from there and ends with the same bits. The model that is passed in stays as it is.
    """

    model: Net
    clients: Sequence[Data]
    rounds: int
    plan: Plan = field(default_factory=Plan)
    test: Data | None = None
    per_round: int | None = None
    sampling: str = "fixed"
    share: str = "update"
    weighting: str = "examples"
    schedule: Callable[[int], float] | None = None
    defense: Defense = field(default_factory=Defense)
    fast: bool | None = None
    keep_uploads: bool = False
    checkpoint: str | Path | None = None
    seed: int = 0
    show: bool = True
    secure: bool = False

    def __post_init__(self) -> None:
        choose("sampling", self.sampling, ("fixed", "poisson"))
        choose("share", self.share, ("update", "gradient"))
        choose("weighting", self.weighting, ("examples", "uniform", "fixed"))
        if self.rounds < 1:
            raise PrivflError(f"rounds must be at least 1; got {self.rounds}")
        if not 1 <= (self.per_round or len(self.clients)) <= len(self.clients):
            raise PrivflError(
                f"per_round must lie in 1…{len(self.clients)}, the number of clients; "
                f"got {self.per_round}"
            )
        self.model = wrap(self.model, *image_shape(self.clients[0][0]))
        self.clients = [
            as_batch(self.model, x, y, f"client {c}") for c, (x, y) in enumerate(self.clients)
        ]
        if self.test is not None:
            self.test = as_batch(self.model, *self.test, "the test data")
        self.memory = Memory(self.secure)  # what clients remember belongs to this run
        self.model = self.defense.model(copy.deepcopy(self.model)).to(device())
        self.per_round = self._expected = self.per_round or len(self.clients)
        self.fast = batching_pays(self.model) if self.fast is None else self.fast
        self.history: list[Report] = []
        self._leaving = {
            n: tuple(p.shape) for n, p in self.model.named_parameters() if self.defense.leaves(n)
        }
        self._statistics = self._bare_statistics()
        self._identity = self._describe()

    def __iter__(self) -> Iterator[Report]:
        self._resume()
        yield from self.history
        todo = range(len(self.history) + 1, self.rounds + 1)
        for r in progress(todo, "rounds", show=self.show):
            self.history.append(self._play(r))
            self._save()
            yield self.history[-1]

    def _play(self, r: int) -> Report:
        """Round r: sample, train, average, measure."""
        began = time.perf_counter()
        chosen, plan = self._sample(r), self.plan
        if self.schedule is not None:
            plan = replace(plan, eta=plan.eta * self.schedule(r))
        fixed = self.weighting == "fixed"
        total = {n: torch.zeros_like(self.model.get_parameter(n)) for n in self._leaving if fixed}
        weight, largest, norms, uploads = 0.0, float(fixed), [], []
        at_once = clients_at_once(self.model, plan.batch_size) if self.fast else 1
        for i in range(0, len(chosen), at_once):
            who = chosen[i : i + at_once]
            with seeded(self.seed, SHUFFLE, r, who[0]):  # for a network that draws noise itself
                sent, buffers = self._collect(who, plan, r)
            w = torch.tensor([self._weight(c) for c in who], device=device())
            for n, t in {**sent, **buffers}.items():
                t = t if t.is_floating_point() else t.to(w)  # batch norm's counter
                part = torch.tensordot(w.to(t), t, dims=1)  # sum of the clients' w·Δ
                total[n] = total[n] + part if n in total else part
            weight += w.sum().item()
            largest = max(largest, w.max().item())
            norms += length(sent).tolist()
            if self.keep_uploads:
                uploads += [self._upload(c, k, sent, plan) for k, c in enumerate(who)]
        if fixed:
            weight = float(self._expected)
        if chosen or fixed:
            mean = {n: t / weight for n, t in total.items()}
            rng = generator(self.seed, SERVER, r)
            learned = {n: mean[n] for n, _ in self.model.named_parameters() if n in mean}
            door = learned, largest / weight, rng, self.memory
            self._step(mean | self.defense.average(*door), plan)
        accuracy, loss = self._measure(self.test) if self.test else (None, None)
        epsilon = account(self.defense, self._training(chosen))
        seconds = time.perf_counter() - began
        return Report(r, chosen, accuracy, loss, norms, epsilon, seconds, uploads)

    def _training(self, chosen: list[int]) -> Training:
        """What was done so far, and in this round, as far as ε depends on it."""
        played = [*(report.clients for report in self.history), chosen]
        joined, n = Counter(c for some in played for c in some), len(self.clients)
        return Training(
            len(played),
            n,
            min(n, self._expected),
            self.sampling,
            self.weighting,
            self.plan if self.share == "update" else None,
            tuple(len(x) for x, _ in self.clients),
            tuple(joined[c] for c in range(n)),
            self._leaving,
            self._statistics,
            self.secure,
        )

    def _bare_statistics(self) -> tuple[str, ...]:
        """Buffers that training moves and that leave as they are: batch norm's, as a rule."""
        if self.share == "gradient" or self.plan.mode == "eval":
            return ()
        own = self.defense.begin(self.model, 0)
        before, net = dict(self.model.named_buffers()), copy.deepcopy(self.model).train()
        there = [n for n, b in before.items() if b.is_floating_point() and n not in own]
        if there:
            with torch.no_grad(), seeded(0):
                net(torch.rand(2, *net.shape).to(next(net.parameters())))
        return tuple(n for n in there if not torch.equal(net.get_buffer(n), before[n]))

    def _sample(self, r: int) -> list[int]:
        n, rng = len(self.clients), generator(self.seed, SAMPLING, r)
        if self.secure:  # who takes part must be as secret as the noise
            coins = [c for c in range(n) if secrets.randbelow(n) < self._expected]
            drawn = secrets.SystemRandom().sample(range(n), min(n, self._expected))
            return coins if self.sampling == "poisson" else sorted(drawn)
        if self.sampling == "poisson":
            return (torch.rand(n, generator=rng) < self._expected / n).nonzero().flatten().tolist()
        return torch.randperm(n, generator=rng)[: self._expected].sort().values.tolist()

    def personal(self, client: int) -> Net:
        """The model as this client uses it: the global one, with what the client keeps at home."""
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

    def _weight(self, client: int) -> float:
        return float(len(self.clients[client][0])) if self.weighting == "examples" else 1.0

    def _collect(self, who: list[int], plan: Plan, r: int) -> tuple[Tensors, Tensors]:
        """What these clients send, (K, *shape) each, and the changes of their buffers."""
        rngs = [generator(self.seed, SHUFFLE, r, c) for c in who]
        held = ([t.to(device()) for t in self.clients[c]] for c in who)
        data = [
            self.defense.data(x, y, rng, self.memory[c])
            for (x, y), c, rng in zip(held, who, rngs, strict=True)
        ]
        own = private_tensors(self.defense, self.model, who, self.memory)
        if self.share == "gradient":
            how = plan.mode, r, who, self.memory
            sent = gradients_of(self.model, data, self.defense, rngs, *how)
            buffers, after = {}, {n: t - plan.eta * sent[n] for n, t in own.items() if n in sent}
        else:
            if self.fast:
                many = data, plan, self.defense, rngs, r, who, self.memory
                delta, after = train_many(self.model, *many)
            else:
                one = data[0], plan, self.defense, rngs[0], r, who[0], self.memory
                delta, after = train_one(self.model, *one)
            buffers = {n: after[n] - b for n, b in self.model.named_buffers() if n not in own}
            after |= {n: t + delta[n] for n, t in own.items() if n in delta}
            ctx = update_context(self.model, data, rngs, self.defense, who, r, self.memory)
            sent = through_update_door(delta, ctx, self.defense)
        for k, ok in enumerate(length(sent).isfinite().tolist()):
            if not ok:
                raise PrivflError(
                    f"client {who[k]} sent NaN or infinite values in round {r}; "
                    f"a lower rate than eta={plan.eta:g} may help"
                )
        for k, c in enumerate(who):
            mine = {n: after.get(n, t)[k].detach().clone() for n, t in own.items()}
            self.memory.private[c] = mine
        return {n: t for n, t in sent.items() if self.defense.leaves(n)}, buffers

    def _upload(self, client: int, k: int, sent: Tensors, plan: Plan) -> Upload:
        update = self.share == "update"
        return Upload(
            {n: t[k : k + 1].detach().clone() for n, t in sent.items()},
            self.share,
            server_copy(self.model, self.defense),
            batch=len(self.clients[client][0]),
            mode=plan.mode,
            plan=plan if update else None,
        )

    def _step(self, mean: Tensors, plan: Plan) -> None:
        """Move the global model by the mean update, or by −η times the mean gradient."""
        rate = 1.0 if self.share == "update" else -plan.eta
        with torch.no_grad():
            for n, p in self.model.named_parameters():
                if n in mean:
                    p.add_(rate * mean[n])
            for n, b in self.model.named_buffers():
                if n in mean:
                    b.add_(mean[n].to(b.dtype))

    def _describe(self) -> str:
        """Settings, first weights and data of this run, so that no other run is continued."""
        seen = hashlib.sha256()
        for t in (*self.model.state_dict().values(), *(t for pair in self.clients for t in pair)):
            seen.update(t.detach().cpu().contiguous().numpy().tobytes())
        how = (self.per_round, self.sampling, self.share, self.weighting, self.seed)
        what = seen.hexdigest()[:16] + " secure" * self.secure
        return f"{identity(self.plan)} {identity(self.defense)} {how} {what}"

    def _rates(self, rounds: int) -> list[float]:
        """By what the schedule multiplies the rate in the first of the rounds."""
        return [float(self.schedule(r)) if self.schedule else 1.0 for r in range(1, rounds + 1)]

    def _resume(self) -> None:
        """Go on from the checkpoint, if there is one and it is of this run."""
        if self.history or self.checkpoint is None or not Path(self.checkpoint).exists():
            return
        try:
            saved = torch.load(self.checkpoint, map_location=device(), weights_only=True)
            history = [
                Report(**{**r, "epsilon": Epsilon.load(r["epsilon"])}) for r in saved["history"]
            ]
        except (RuntimeError, EOFError, pickle.UnpicklingError, OSError, KeyError, TypeError):
            raise PrivflError(
                f"the checkpoint {self.checkpoint} is damaged; delete it to start again"
            ) from None
        same = saved["settings"] == self._identity and saved["rates"] == self._rates(len(history))
        if not same or len(history) > self.rounds:
            raise PrivflError(
                f"the checkpoint {self.checkpoint} is of a run with other settings or more rounds; "
                "delete it or name another file"
            )
        self.model.load_state_dict(saved["model"])
        self.memory.load_state_dict(saved["memory"])
        self.history = history

    def _save(self) -> None:
        """Write the checkpoint beside its place, then move it there in one step."""
        if self.checkpoint is None:
            return
        reports = [asdict(replace(r, uploads=[])) for r in self.history]
        state: dict[str, Any] = {"settings": self._identity}
        state |= {"model": self.model.state_dict(), "history": reports}
        state |= {"rates": self._rates(len(self.history)), "memory": self.memory.state_dict()}
        part = Path(f"{self.checkpoint}.part")
        torch.save(state, part)
        os.replace(part, self.checkpoint)


def fedavg(
    model: Net, clients: Sequence[Data], rounds: int, plan: Plan | None = None, **settings: Any
) -> FedAvg:
    """``FedAvg`` as a function: reads better in ``for report in fedavg(…)``."""
    return FedAvg(model, clients, rounds, plan or Plan(), **settings)


def evaluate(model: nn.Module, x: Tensor, y: Tensor, batch: int = 500) -> tuple[float, float]:
    """(accuracy, mean cross-entropy) of the model in eval mode on x (N, C, H, W) and y (N,)."""
    home, net = next(model.parameters()).device, copy.deepcopy(model).eval()
    right = loss = 0.0
    with torch.no_grad(), seeded(0):
        for xb, yb in zip(x.split(batch), y.split(batch), strict=True):
            logits, yb = net(xb.to(home)), yb.to(home)
            right += (logits.argmax(1) == yb).sum().item()
            loss += cross_entropy(logits, yb, reduction="sum").item()
    return right / len(x), loss / len(x)
