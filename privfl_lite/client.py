"""What a client does: SGD on its own data, for many clients at once or for one; and ``share``.

``train_many`` keeps the weights of K clients side by side and takes each step for all of them in
one ``vmap``. ``train_one`` is the same in plain PyTorch, one client, one optimizer, readable first;
a test holds the two together.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from .defenses.base import Context, Defense, Memory
from .gradients import Tensors, gradient_function, loss_function, stateless, weights
from .models import Net, wrap
from .runtime import PrivflError, choose, device, generator, seeded
from .wire import Facts, Plan, Upload

MEMORY = 2**28  # how many floats the clients that train at once may take (1 GB)
Data = tuple[Tensor, Tensor]  # one client's images (n, C, H, W) and labels (n,) or (n, classes)


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
    optimizer = torch.optim.SGD(net.parameters(), lr=plan.eta, momentum=plan.momentum)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    (x, y), loss = data, loss_function(net)
    for take in plan.batches(len(x), rng):
        optimizer.zero_grad()
        loss(net(x[take]), y[take]).backward()
        theta = {n: p.detach()[None] for n, p in net.named_parameters()}
        ctx = Context(model, theta, x[take][None], y[take][None], [rng], round, [who], memory)
        own_g = {n: cast(Tensor, p.grad)[None] for n, p in net.named_parameters()}
        g = defense.gradient(own_g, ctx)
        for n, p in net.named_parameters():
            p.grad = g[n][0]
        optimizer.step()
    delta = {n: (p.detach() - before[n])[None] for n, p in net.named_parameters()}
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

    Always on a GPU. On a CPU, for narrow networks (1.7 to 4 times quicker in ``make bench``); a
    convolution with 32 channels or more fills the core by itself, and nothing is gained.
    """
    widest = max((m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)), default=0)
    return device().type == "cuda" or widest < 32


def clients_at_once(model: Net, batch_size: int) -> int:
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


def as_batch(model: Net, x: Any, y: Any, whose: str = "the batch") -> Data:
    """Images and labels as the model takes them, or one sentence (``check_batch``).

    Images of 8 bits become numbers in [0, 1]; floating-point ones get the model's type. Labels are
    whole numbers, or distributions (n, classes) in the model's type.
    """
    like, x = next(model.parameters()), as_images(x, whose)
    y = torch.as_tensor(y, device=getattr(y, "device", None))
    x, y = x.to(like.dtype), y.to(like.dtype) if y.is_floating_point() else y.long()
    check_batch(model, x, y, whose)
    return x, y


def image_shape(x: Any) -> tuple[Any, ...]:
    """((C, H, W),) of a batch of images, to tell a bare module's shape; () where it is none."""
    shape = tuple(getattr(x, "shape", ()))
    return (shape[1:],) if len(shape) == 4 else ()


def as_images(x: Any, whose: str = "the batch") -> Tensor:
    """8-bit images 0…255 as floats in [0, 1]; floats as they are; anything else is refused."""
    x = torch.as_tensor(x, device=getattr(x, "device", None))
    if x.dtype == torch.uint8:
        return x / 255
    if not x.is_floating_point():
        raise PrivflError(
            f"{whose} holds images of {x.dtype}; give floating-point pixels in [0, 1], "
            "or 8-bit ones (torch.uint8) in 0…255"
        )
    return x


def check_batch(model: Net, x: Tensor, y: Tensor, whose: str = "the batch") -> None:
    """One clear sentence if images x or labels y do not fit the model."""
    if x.dim() != 4 or tuple(x.shape[1:]) != tuple(model.shape):
        want = ", ".join(map(str, model.shape))
        raise PrivflError(f"the model takes images of shape (B, {want}); got {tuple(x.shape)}")
    if len(x) == 0 or len(x) != len(y):
        raise PrivflError(
            f"{whose} needs at least one image and as many labels; "
            f"got {len(x)} images and {len(y)} labels"
        )
    if not x.isfinite().all():
        raise PrivflError(f"{whose} holds NaN or infinite pixels; images lie in [0, 1]")
    if y.dim() == 1 and not (y.min() >= 0 and y.max() < model.num_classes):
        raise PrivflError(
            f"labels must lie in 0…{model.num_classes - 1}; got {y.min().item()}…{y.max().item()}"
        )


def share(
    model: Net,
    x: Tensor,
    y: Tensor,
    defense: Defense | None = None,
    knows: Sequence[str] = (),
    each: int | None = None,
    plan: Plan | None = None,
    mode: str = "eval",
    seed: int = 0,
    memory: Memory | None = None,
    secure: bool = False,
) -> Upload:
    """What clients with images x (N, C, H, W) and labels y (N,) send to the server.

    By default all of x is one client's batch, and its gradient leaves. ``each=k`` makes N/k
    independent clients with k images each; attacks then work on all of them at once. With a
    ``plan`` the clients train by it and send their updates. ``knows`` names what the attacker is
    granted besides: "labels", or a field of ``Facts`` that the defense has. ``memory`` is what the
    clients remember: new for every call, unless it is handed in. ``secure=True`` takes a defense's
    noise from the operating system, so that no seed tells it. A model of your own is taken as it is
    (``models.wrap``).
    """
    model = wrap(model, *image_shape(x))
    x, y = as_batch(model, x, y)
    choose("mode", mode, ("eval", "train"))
    defense, each = defense or Defense(), each or len(x)
    if len(x) % each:
        raise PrivflError(f"each={each} does not divide {len(x)} images into equal clients")
    net = defense.model(copy.deepcopy(model)).to(device())
    x, y = x.to(device()), y.to(device())
    memory = Memory() if memory is None else memory
    memory.secure = memory.secure or secure
    rngs = [generator(seed, k) for k in range(len(x) // each)]
    data = [
        defense.data(own_x, own_y, rng, memory[k])
        for k, (own_x, own_y, rng) in enumerate(
            zip(x.split(each), y.split(each), rngs, strict=True)
        )
    ]
    with seeded(seed):
        if plan is None:
            sent = gradients_of(net, data, defense, rngs, mode, memory=memory)
        else:
            delta, _ = train_many(net, data, plan, defense, rngs, memory=memory)
            ctx = update_context(net, data, rngs, defense, memory=memory)
            sent = through_update_door(delta, ctx, defense)
    labels = Facts(labels=torch.stack([labels for _, labels in data]))
    ctx = update_context(net, data, rngs, defense, memory=memory)
    facts = defense.facts(replace(ctx, plan=plan))
    return Upload(
        {n: t.detach() for n, t in sent.items() if defense.leaves(n)},
        kind="gradient" if plan is None else "update",
        model=server_copy(net, defense),
        batch=len(data[0][0]),
        mode=mode if plan is None else plan.mode,
        plan=plan,
        knows=(labels | facts).select(knows),
    )


def gradients_of(
    net: Net,
    data: Sequence[Data],
    defense: Defense,
    rngs: list[torch.Generator],
    mode: str,
    round: int = 0,
    who: Sequence[int] | None = None,
    memory: Memory | None = None,
) -> Tensors:
    """One gradient per client over all its data, through the gradient and the update door."""
    f, theta = gradient_function(stateless(net, mode)), weights(net)
    rows: dict[int, Tensors] = {}
    who = list(range(len(data)) if who is None else who)
    memory = Memory() if memory is None else memory
    # clients with equally many examples go together, those of the first client first
    for size in dict.fromkeys(len(x) for x, _ in data):
        now = [k for k, (x, _) in enumerate(data) if len(x) == size]
        numbers = [who[k] for k in now]
        mine = [data[k] for k in now], [rngs[k] for k in now]
        ctx = update_context(net, *mine, defense, numbers, round, memory)
        g = f(theta, ctx.x, ctx.y, private_tensors(defense, net, numbers, memory))
        g = through_update_door(defense.gradient(g, ctx), ctx, defense)
        for i, k in enumerate(now):
            rows[k] = {n: t[i] for n, t in g.items()}
    return {n: torch.stack([rows[k][n] for k in range(len(data))]) for n in rows[0]}


def update_context(
    net: Net,
    data: Sequence[Data],
    rngs: list[torch.Generator],
    defense: Defense,
    who: Sequence[int] | None = None,
    round: int = 0,
    memory: Memory | None = None,
) -> Context:
    """What clients hold at the update door: the round's first weights, and all their data."""
    who = list(range(len(data)) if who is None else who)
    memory = Memory() if memory is None else memory
    own, theta = private_tensors(defense, net, who, memory), weights(net)
    theta = {n: own.get(n, p.expand(len(data), *p.shape)) for n, p in theta.items()}
    x, y = ([pair[i] for pair in data] for i in (0, 1))
    near = rngs, round, who, memory
    if len({len(part) for part in x}) == 1:
        return Context(net, theta, torch.stack(x), torch.stack(y), *near)
    return Context(net, theta, x, y, *near)


def through_update_door(delta: Tensors, ctx: Context, defense: Defense) -> Tensors:
    """What the defense makes of the part that leaves; what stays at home is as it was."""
    out = {n: t for n, t in delta.items() if defense.leaves(n)}
    return delta | defense.update(out, ctx)


def server_copy(net: Net, defense: Defense) -> Net:
    """The network as the server has it: weights that never leave a client are blank there.

    Of buffers it has its own, whatever the clients have.
    """
    net = copy.deepcopy(net)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if not defense.leaves(name):
                p.zero_()
    return net
