"""What a client does: it looks at its batch, computes a gradient or trains, and shares.

``share`` is all of it in one call.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, cast

import torch
from torch import Tensor

from .arrays import MODEL
from .batches import Data, GivenImages, GivenLabels, as_batch, image_shape
from .budget import joined, refused_if_full
from .checking import checked
from .defenses.base import Context, Defense, Memory, Pool
from .gradients import Tensors, gradient_function, norm, own_gradient, stateless, weights
from .models import Net, wrap
from .runtime import PrivflError, device, generator, seeded
from .training import MASKS, SHUFFLE, Local, Trained, fitting, private_tensors, train_many
from .values import Count, Mode, Seed, Text
from .wire import Facts, Plan, Upload


@checked
def share(
    model: Annotated[Net, MODEL],
    x: GivenImages,
    y: GivenLabels,
    defense: Defense | None = None,
    knows: Sequence[Text] | Text = (),
    each: Count | None = None,
    plan: Plan | None = None,
    mode: Mode = "eval",
    seed: Seed = 0,
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
    parts = fitting(net, data, defense, plan)
    with seeded(seed), refused_if_full("share"):
        one_by_one = (
            _sent(net, data, defense, rngs, plan, mode, memory, part, len(parts) > 1)
            for part in parts
        )
        sent = joined(one_by_one, len(data))
    labels = Facts(labels=torch.stack([labels for _, labels in data]))
    ctx = update_context(net, data, rngs, defense, memory=memory)
    facts = labels | defense.facts(replace(ctx, plan=plan))
    sent = {n: t.detach() for n, t in sent.items() if defense.leaves(n)}
    batch, who = len(data[0][0]), range(len(data))
    pool = defense.collect(who, lambda k: generator(seed, MASKS, k), memory.secure)
    if pool is not None:
        sent, there = pooled(pool, sent), pool.there
        facts = replace(facts, labels=None if facts.labels is None else facts.labels[there])
        facts, plan_of = facts.summed(batch, plan is None), [batch] * len(there)
        plan, batch = plan and plan.together(plan_of), sum(plan_of)
    return Upload(
        sent,
        kind="gradient" if plan is None else "update",
        model=server_copy(net, defense),
        batch=batch,
        mode=mode if plan is None else plan.mode,
        plan=plan,
        knows=facts.select(knows),
    )


def pooled(pool: Pool, sent: Tensors) -> Tensors:
    """The mean of the uploads (K, *shape) of clients of equal weight, (1, *shape), by their sum."""
    clients = len(next(iter(sent.values())))
    pool.add(range(clients), sent, [1.0] * clients)
    total, weight = pool.done()
    return {n: t[None] / weight for n, t in total.items()}


def _sent(
    net: Net,
    data: Sequence[Data],
    defense: Defense,
    rngs: Sequence[torch.Generator],
    plan: Plan | None,
    mode: str,
    memory: Memory,
    who: range,
    others: bool,
) -> Tensors:
    """What the clients ``who`` of a ``share`` send, (K, *shape); ``others``: there are more."""
    mine, own = [data[k] for k in who], [rngs[k] for k in who]
    if plan is None:
        return gradients_of(net, mine, defense, own, mode, 0, who, memory, others)
    delta, _ = train_many(net, mine, plan, defense, own, 0, who, memory)
    ctx = update_context(net, mine, own, defense, who, memory=memory)
    return through_update_door(delta, replace(ctx, others=others), defense)


def gradients_of(
    net: Net,
    data: Sequence[Data],
    defense: Defense,
    rngs: list[torch.Generator],
    mode: str,
    round: int = 0,
    who: Sequence[int] | None = None,
    memory: Memory | None = None,
    others: bool = False,
) -> Tensors:
    """One gradient per client over all its data, through the gradient and the update door."""
    copied = stateless(net, mode)
    at_shared, at_own = own_gradient(copied), gradient_function(copied)
    rows: dict[int, Tensors] = {}
    who = list(range(len(data)) if who is None else who)
    memory = Memory() if memory is None else memory
    # clients with equally many examples go together, those of the first client first
    for size in dict.fromkeys(len(x) for x, _ in data):
        now = [k for k, (x, _) in enumerate(data) if len(x) == size]
        numbers = [who[k] for k in now]
        mine = [data[k] for k in now], [rngs[k] for k in now]
        ctx = replace(update_context(net, *mine, defense, numbers, round, memory), others=others)
        own = private_tensors(defense, net, numbers, memory)
        batch = cast(tuple[Tensor, Tensor], (ctx.x, ctx.y))  # stacked: they are of one size
        g = at_own(weights(net), *batch, own) if own else at_shared(*batch)
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


class Diverged(PrivflError):
    """A client sent what is no number: training has diverged."""


def send(
    local: Local,
    model: Net,
    who: Sequence[int],
    trained: Trained | None,
    plan: Plan,
    r: int,
    memory: Memory,
) -> tuple[Tensors, Tensors]:
    """What these clients of a run send in round r, (K, *shape), and the changes of their buffers.

    Updates where they have trained, else a gradient each. What stays at home goes into memory.
    """
    defense, buffers = local.defense, {}
    own = private_tensors(defense, model, who, memory)
    if trained is None:
        with seeded(local.seed, SHUFFLE, r, who[0]):  # for a network that draws noise itself
            data, rngs = local.data(who, r, memory)
            sent = gradients_of(model, data, defense, rngs, plan.mode, r, who, memory)
        kept = {n: t - plan.eta * sent[n] if n in sent else t for n, t in own.items()}
    else:
        data, delta, after, rngs = trained
        buffers = {n: after[n] - b for n, b in model.named_buffers() if n not in own}
        kept = {n: t + delta[n] if n in delta else after[n] for n, t in own.items()}
        ctx = update_context(model, data, rngs, defense, who, r, memory)
        sent = through_update_door(delta, ctx, defense)
    check_finite(sent, who, plan, r)
    for k, c in enumerate(who):
        memory.private[c] = {n: t[k].detach().clone() for n, t in kept.items()}
    return {n: t for n, t in sent.items() if defense.leaves(n)}, buffers


def upload_of(
    local: Local, model: Net, clients: Sequence[int], row: Tensors, plan: Plan, kind: str
) -> Upload:
    """What the server keeps of one ``row``, name -> (1, *shape): that of one client or of many."""
    sizes = [len(local.clients[c][0]) for c in clients]
    plan = plan if len(sizes) == 1 else plan.together(sizes)
    return Upload(
        {n: t.detach().clone() for n, t in row.items()},
        kind,
        server_copy(model, local.defense),
        batch=sum(sizes),
        mode=plan.mode,
        plan=plan if kind == "update" else None,
    )


def check_finite(sent: Tensors, who: Sequence[int], plan: Plan, r: int) -> None:
    """One sentence that names the first client whose upload is not finite."""
    for client, ok in zip(who, norm(sent).isfinite().tolist(), strict=True):
        if not ok:
            raise Diverged(
                f"client {client} sent NaN or infinite values in round {r}; "
                f"a lower rate than eta={plan.eta:g} may help"
            )
