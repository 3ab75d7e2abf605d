"""Local training: SGD on a client's own data, for many clients at once or for one.

``train_many`` keeps the weights of K clients side by side and takes each step for all of them in
one ``vmap``. ``train_one`` is the same in plain PyTorch, one client, one optimizer, readable first;
a test holds the two together.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import grad as grad_of
from torch.func import functional_call, grad, vmap

from .batches import Data
from .budget import at_once, footprint
from .defenses.base import Context, Defense, Memory
from .gradients import Tensors, loss_function
from .layout import channels_last_pays, fold_pooling, kernels_last, side_by_side
from .models import Net
from .runtime import device, generator, seeded
from .wire import Plan

CACHE = 12 * 2**20  # bytes for the clients that train at once: what a core finds in its cache
GPU = 2**28  # the same on a GPU: a small part of its memory
SHUFFLE, MASKS = 1, 3  # purposes of a client's random stream; the server's are in ``rounds``


def private_tensors(defense: Defense, model: Net, who: Sequence[int], memory: Memory) -> Tensors:
    """What these clients have in place of the server's weights and buffers, (K, *shape)."""
    for client in who:
        if client not in memory.private:
            memory.private[client] = defense.begin(model, client)
    own = [memory.private[c] for c in who]
    return {
        n: torch.stack([mine[n] for mine in own]).to(t.device)
        for n, t in model.state_dict().items()
        if n in own[0]
    }


def train_one(
    model: Net,
    data: Data,
    plan: Plan,
    defense: Defense,
    rng: torch.Generator,
    round: int = 0,
    who: int = 0,
    memory: Memory | None = None,
) -> tuple[Tensors, Tensors]:
    """Plain path: (Δ of the weights, buffers after training), each with a leading axis of 1."""
    net, memory = copy.deepcopy(model), Memory() if memory is None else memory
    net.train(plan.mode == "train").requires_grad_(True)
    own = private_tensors(defense, model, [who], memory)
    net.load_state_dict({n: t[0] for n, t in own.items()}, strict=False)
    (x, y), loss, named = data, loss_function(net), dict(net.named_parameters())
    before = {n: p.detach().clone() for n, p in named.items()}
    order = torch.channels_last if channels_last_pays(net) else torch.contiguous_format
    net = net.to(memory_format=order)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(net.parameters(), lr=plan.eta, momentum=plan.momentum)
    for take in plan.batches(len(x), rng):
        xb, yb = x[take], y[take]
        slopes = grad_of(loss(net(xb.contiguous(memory_format=order)), yb), list(named.values()))
        own_g = {n: g.contiguous()[None] for n, g in zip(named, slopes, strict=True)}
        theta = {n: p.detach().contiguous()[None] for n, p in named.items()}
        ctx = Context(model, theta, xb[None], yb[None], [rng], round, [who], memory)
        for n, g in defense.gradient(own_g, ctx).items():
            named[n].grad = g[0]
        optimizer.step()
    delta = {n: (p.detach() - before[n]).contiguous()[None] for n, p in named.items()}
    return delta, {n: b.detach()[None] for n, b in net.named_buffers()}


def train_many(
    model: Net,
    data: Sequence[Data],
    plan: Plan,
    defense: Defense,
    rngs: list[torch.Generator],
    round: int = 0,
    who: Sequence[int] | None = None,
    memory: Memory | None = None,
) -> tuple[Tensors, Tensors]:
    """Fast path: the same for K clients together, every result (K, *shape).

    Clients may hold different numbers of examples: at each step those whose batches are of one size
    go together, and those that have finished stay as they are.
    """
    k, net = len(data), copy.deepcopy(model).train(plan.mode == "train")
    last = channels_last_pays(net)
    net = fold_pooling(net) if last else net
    number, loss_of = list(range(k) if who is None else who), loss_function(net)
    memory = Memory() if memory is None else memory
    own = private_tensors(defense, model, number, memory)
    start = {n: own.get(n, p.detach()[None]) for n, p in net.named_parameters()}
    theta = {n: p.expand(k, *p.shape[1:]).clone() for n, p in start.items()}
    buffers = {n: own.get(n, b.detach()[None]) for n, b in net.named_buffers()}
    buffers = {n: b.expand(k, *b.shape[1:]).clone() for n, b in buffers.items()}
    velocity: Tensors = {}
    schedule = [plan.batches(len(x), rng) for (x, _), rng in zip(data, rngs, strict=True)]

    def loss(th: Tensors, bu: Tensors, x: Tensor, y: Tensor) -> tuple[Tensor, Tensors]:
        bu = {n: b.clone() for n, b in bu.items()}  # batch norm writes into these
        return loss_of(functional_call(net, (th, bu), (x,)), y), bu

    each = vmap(grad(loss, has_aux=True), randomness="different")

    def step(th: Tensors, bu: Tensors, x: Tensor, y: Tensor) -> tuple[Tensors, Tensors]:
        if not last:
            return each(th, bu, x, y)
        g, bu = each(kernels_last(th), bu, side_by_side(x), y)
        return {n: t.contiguous() for n, t in g.items()}, bu

    for s in range(max(map(len, schedule))):
        sizes = {c: len(b[s]) for c, b in enumerate(schedule) if s < len(b)}
        for size in sorted(set(sizes.values())):
            now = [c for c in sizes if sizes[c] == size]
            rows: slice | list[int] = slice(None) if len(now) == k else now
            x = torch.stack([data[c][0][schedule[c][s]] for c in now])  # (k', B, C, H, W)
            y = torch.stack([data[c][1][schedule[c][s]] for c in now])
            th = {n: t[rows] for n, t in theta.items()}
            g, new_buffers = step(th, {n: b[rows] for n, b in buffers.items()}, x, y)
            near = [rngs[c] for c in now], round, [number[c] for c in now], memory
            g = defense.gradient(g, Context(model, th, x, y, *near))
            if plan.momentum:
                for n, t in g.items():
                    v = velocity.setdefault(n, torch.zeros_like(theta[n]))
                    v[rows] = plan.momentum * v[rows] + t
                    g[n] = v[rows]
            for n, t in g.items():
                theta[n][rows] -= plan.eta * t
            for n, b in new_buffers.items():
                buffers[n][rows] = b
    return {n: t - start[n] for n, t in theta.items()}, buffers


def batching_pays(model: Net) -> bool:
    """Whether many clients at once are quicker than one after the other.

    Always on a GPU. On a CPU, for narrow networks (``make bench``): a convolution with 32 channels
    or more fills the core by itself, and one client after the other is quicker.
    """
    widest = max((m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)), default=0)
    return device().type == "cuda" or widest < 32


def clients_at_once(model: Net, batch_size: int) -> int:
    """How many clients' weights, gradients and activations of a batch fit into ``CACHE``.

    More are slower: each step then fetches everything from memory. Fewer are slower, too, since
    the fixed cost of a step is shared by fewer.
    """
    weights, outputs = footprint(model, model.shape)
    each = 4 * (2 * weights + batch_size * outputs)
    return max(1, (GPU if device().type == "cuda" else CACHE) // each)


def fitting(net: Net, data: Sequence[Data], defense: Defense, plan: Plan | None) -> list[range]:
    """The clients, in as few groups as memory allows (``budget``): one, as a rule."""
    if len(data) == 1:
        return [range(1)]
    (weights, outputs), batch = footprint(net, net.shape), len(data[0][0])
    if plan is not None:
        batch = min(batch, plan.batch_size)
    copies = 6 + 2 * batch * defense.anew  # of the weights, an example's own gradient among them
    few = at_once(len(data), 4 * (copies * weights + 4 * batch * outputs), "uploads", 4 * weights)
    return [range(i, min(i + few, len(data))) for i in range(0, len(data), few)]


def groups(who: Sequence[int], at_once: int) -> list[list[int]]:
    """These clients in groups of at most ``at_once``, as equal as can be."""
    size = -(-len(who) // max(1, -(-len(who) // at_once)))
    return [list(who[i : i + size]) for i in range(0, len(who), size)] if who else []


class Trained(NamedTuple):
    """Clients after local training, before the update door; tensors are (K, *shape)."""

    data: list[Data]  # what they trained on: their own, as the data door left it
    delta: Tensors
    buffers: Tensors
    rngs: list[torch.Generator]


@dataclass(frozen=True)
class Local:
    """What is the same in all rounds of a run, for every client: data, defense, way and seed."""

    clients: Sequence[Data] | Mapping[int, Data]
    defense: Defense
    fast: bool
    seed: int

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end: training happens in this process."""

    def data(self, who: Sequence[int], r: int, memory: Memory) -> tuple[list[Data], list]:
        """What these clients train on in round r, and their random streams."""
        rngs = [generator(self.seed, SHUFFLE, r, c) for c in who]
        held = ([t.to(device()) for t in self.clients[c]] for c in who)
        data = [
            self.defense.data(x, y, rng, memory[c])
            for (x, y), c, rng in zip(held, who, rngs, strict=True)
        ]
        return data, rngs

    def train(self, model: Net, who: Sequence[int], plan: Plan, r: int, memory: Memory) -> Trained:
        """These clients' updates of the model in round r; many at once, or the first one only."""
        with seeded(self.seed, SHUFFLE, r, who[0]):  # for a network that draws noise itself
            data, rngs = self.data(who, r, memory)
            if self.fast:
                many = data, plan, self.defense, rngs, r, who, memory
                delta, buffers = train_many(model, *many)
            else:
                one = data[0], plan, self.defense, rngs[0], r, who[0], memory
                delta, buffers = train_one(model, *one)
        return Trained(data, delta, buffers, rngs)

    def train_all(
        self, model: Net, parts: Sequence[list[int]], plan: Plan, r: int, memory: Memory
    ) -> Iterator[Trained]:
        """Group after group; a group begins when it is asked for."""
        return (self.train(model, who, plan, r, memory) for who in parts)
