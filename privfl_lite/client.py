"""What a client does in a round: SGD on its own data, for many clients at once or for one.

``train_many`` keeps the weights of K clients side by side and takes each step for all of them in
one ``vmap``. ``train_one`` is the same in plain PyTorch, one client, one optimizer, readable first;
a test holds the two together.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from .defenses.base import Context, Defense
from .gradients import Tensors, loss_function
from .runtime import PrivflError, device

MEMORY = 2**28  # how many floats the clients that train at once may take (1 GB)
Data = tuple[Tensor, Tensor]  # one client's images (n, C, H, W) and labels (n,) or (n, classes)


@dataclass(frozen=True)
class Plan:
    """The rules of local training, set by the server and known to it.

    Either ``epochs`` passes over the data in batches of ``batch_size`` (the last may be smaller),
    or exactly ``steps`` full batches, read round and round. ``mode`` is that of batch norm.
    """

    eta: float = 0.1
    epochs: int = 1
    steps: int | None = None
    batch_size: int = 10
    momentum: float = 0.0
    shuffle: bool = True
    mode: str = "train"

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("steps", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise PrivflError(f"{name} must be at least {least}; got {value}")
        if not self.eta > 0 or not 0 <= self.momentum < 1:
            raise PrivflError(
                f"eta must be over 0 and momentum in [0, 1); got {self.eta} and {self.momentum}"
            )

    def batches(self, n: int, rng: torch.Generator) -> list[Tensor]:
        """Which examples each local step uses: one index tensor a step."""

        def once() -> Tensor:
            return torch.randperm(n, generator=rng) if self.shuffle else torch.arange(n)

        if self.steps is None:
            return [b for _ in range(self.epochs) for b in once().split(self.batch_size)]
        need = self.steps * self.batch_size
        return list(torch.cat([once() for _ in range(-(-need // n))])[:need].split(self.batch_size))


def train_one(
    model: nn.Module,
    data: Data,
    plan: Plan,
    defense: Defense,
    rng: torch.Generator,
    round: int = 0,
    who: int = 0,
) -> tuple[Tensors, Tensors]:
    """Plain path: (Δ of the weights, buffers after training), each with a leading axis of 1."""
    net = copy.deepcopy(model).train(plan.mode == "train").requires_grad_(True)
    net.load_state_dict({n: t[0] for n, t in defense.home([who], model).items()}, strict=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=plan.eta, momentum=plan.momentum)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    (x, y), loss = data, loss_function(net)
    for take in plan.batches(len(x), rng):
        optimizer.zero_grad()
        loss(net(x[take]), y[take]).backward()
        theta = {n: p.detach()[None] for n, p in net.named_parameters()}
        ctx = Context(model, theta, x[take][None], y[take][None], [rng], round, [who])
        g = defense.gradient({n: p.grad[None] for n, p in net.named_parameters()}, ctx)
        for n, p in net.named_parameters():
            p.grad = g[n][0]
        optimizer.step()
    delta = {n: (p.detach() - before[n])[None] for n, p in net.named_parameters()}
    return delta, {n: b.detach()[None] for n, b in net.named_buffers()}


def train_many(
    model: nn.Module,
    data: Sequence[Data],
    plan: Plan,
    defense: Defense,
    rngs: list[torch.Generator],
    round: int = 0,
    who: Sequence[int] | None = None,
) -> tuple[Tensors, Tensors]:
    """Fast path: the same for K clients together, every result (K, *shape).

    Clients may hold different numbers of examples: at each step those whose batches are of one size
    go together, and those that have finished stay as they are.
    """
    k, net = len(data), copy.deepcopy(model).train(plan.mode == "train")
    number, loss_of = list(range(k) if who is None else who), loss_function(net)
    own = defense.home(number, model)
    start = {n: own.get(n, p.detach()[None]) for n, p in net.named_parameters()}
    theta = {n: p.expand(k, *p.shape[1:]).clone() for n, p in start.items()}
    buffers = {n: own.get(n, b.detach()[None]) for n, b in net.named_buffers()}
    buffers = {n: b.expand(k, *b.shape[1:]).clone() for n, b in buffers.items()}
    velocity: Tensors = {}
    schedule = [plan.batches(len(x), rng) for (x, _), rng in zip(data, rngs, strict=True)]

    def loss(th: Tensors, bu: Tensors, x: Tensor, y: Tensor) -> tuple[Tensor, Tensors]:
        bu = {n: b.clone() for n, b in bu.items()}  # batch norm writes into these
        return loss_of(functional_call(net, (th, bu), (x,)), y), bu

    step = vmap(grad(loss, has_aux=True), randomness="different")
    for s in range(max(map(len, schedule))):
        sizes = {c: len(b[s]) for c, b in enumerate(schedule) if s < len(b)}
        for size in sorted(set(sizes.values())):
            now = [c for c in sizes if sizes[c] == size]
            rows: slice | list[int] = slice(None) if len(now) == k else now
            x = torch.stack([data[c][0][schedule[c][s]] for c in now])  # (k', B, C, H, W)
            y = torch.stack([data[c][1][schedule[c][s]] for c in now])
            th = {n: t[rows] for n, t in theta.items()}
            g, new_buffers = step(th, {n: b[rows] for n, b in buffers.items()}, x, y)
            near = [rngs[c] for c in now], round, [number[c] for c in now]
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


def batching_pays(model: nn.Module) -> bool:
    """Whether many clients at once are quicker than one after the other.

    Always on a GPU. On a CPU, for narrow networks (1.7 to 4 times quicker in ``make bench``); a
    convolution with 32 channels or more fills the core by itself, and nothing is gained.
    """
    widest = max((m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)), default=0)
    return device().type == "cuda" or widest < 32


def clients_at_once(model: nn.Module, batch_size: int) -> int:
    """How many clients fit in MEMORY: weights, gradients, copies, and the batch's activations."""
    outputs = []
    hooks = [
        m.register_forward_hook(lambda _m, _i, out: outputs.append(out.numel()))
        for m in model.modules()
        if not list(m.children())
    ]
    with torch.no_grad():
        copy.deepcopy(model).eval()(torch.zeros(1, *model.shape, device=device()))
    for hook in hooks:
        hook.remove()
    weights = sum(p.numel() for p in model.parameters())
    return max(1, MEMORY // (6 * weights + 4 * batch_size * sum(outputs)))
