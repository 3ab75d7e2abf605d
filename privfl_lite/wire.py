"""The wire: what leaves a client. An attack sees an ``Upload`` and nothing else.

The threat model is this class. Whatever the server holds by its role is a field: the model it sent,
the rules of training it set, the number of examples a client reports. Anything more, such as the
labels or the level of the noise, is granted by name with ``knows=`` and then stands in ``knows``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from .client import Data, Plan, train_many
from .defenses.base import Context, Defense
from .gradients import Tensors, clip, gradient_function, stateless, update_function, weights
from .runtime import PrivflError, choose, device, generator, seeded


@dataclass(frozen=True)
class Upload:
    """U independent uploads, one a client, of the same kind and for the same model.

    ``tensors[name]`` is (U, *shape). ``kind="gradient"``: gradients of the mean loss over ``batch``
    examples. ``kind="update"``: weights after local training minus weights before,
    Δ = θ_client − θ_server, made by the rules in ``plan``. ``mode`` is that of batch norm.
    """

    tensors: Tensors
    kind: str
    model: nn.Module
    batch: int
    mode: str = "eval"
    plan: Plan | None = None
    knows: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        choose("kind of upload", self.kind, ("gradient", "update"))
        shapes = {n: tuple(p.shape) for n, p in self.model.named_parameters()}
        for name, t in self.tensors.items():
            if tuple(t.shape[1:]) != shapes.get(name):
                raise PrivflError(
                    f"upload tensor {name!r} has shape {tuple(t.shape[1:])}; "
                    f"the model's is {shapes.get(name, 'missing')}"
                )
            bad = (~t.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
            if bad:
                raise PrivflError(
                    f"upload {bad[0]} holds NaN or infinite values in tensor {name!r}; "
                    "only finite numbers can be averaged or attacked"
                )

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, i: int | slice) -> Upload:
        """Upload i (or a slice of them), with what is known about it."""
        rows = slice(i, i + 1) if isinstance(i, int) else i
        known = {n: v[rows] if isinstance(v, Tensor) else v for n, v in self.knows.items()}
        return replace(self, tensors={n: t[rows] for n, t in self.tensors.items()}, knows=known)

    @property
    def nbytes(self) -> int:
        """Bytes on the wire for one upload of 32-bit floats."""
        return sum(4 * t[0].numel() for t in self.tensors.values())

    @property
    def local_steps(self) -> int:
        """How many steps of SGD stand behind one upload."""
        if self.kind == "gradient":
            return 1
        return self.plan.steps or self.plan.epochs * -(-self.batch // self.plan.batch_size)

    def gradients(self) -> Tensors:
        """The uploads as mean gradients: as they are, or −Δ/(η·steps) for updates."""
        if self.kind == "gradient":
            return self.tensors
        return {n: -t / (self.plan.eta * self.local_steps) for n, t in self.tensors.items()}

    def imitator(self) -> Callable[[Tensor, Tensor], Tensors]:
        """f(x, y): what undefended clients with data x (U, B, C, H, W) and y would have sent.

        The server set the rules of training, so it can follow them on data of its own. It does not
        know in which order a client drew its examples and takes them as they stand. Where it is
        granted the clip C (and what is clipped, "per"), the imitation is clipped too.
        """
        model, theta = stateless(self.model, self.mode), weights(self.model)
        if self.kind == "gradient":
            f = gradient_function(model)
        else:
            f = update_function(model, self.plan.eta, self.local_steps, self.plan.batch_size)
        bound, per = self.knows.get("clip"), self.knows.get("per", "update")

        def imitation(x: Tensor, y: Tensor) -> Tensors:
            sent = {n: t for n, t in f(theta, x, y).items() if n in self.tensors}
            return sent if bound is None else clip(sent, float(bound), per)[0]

        return imitation


def check_batch(model: nn.Module, x: Tensor, y: Tensor, whose: str = "the batch") -> None:
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
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    defense: Defense | None = None,
    knows: Sequence[str] = (),
    each: int | None = None,
    plan: Plan | None = None,
    mode: str = "eval",
    seed: int = 0,
) -> Upload:
    """What clients with images x (N, C, H, W) and labels y (N,) send to the server.

    By default all of x is one client's batch, and its gradient leaves. ``each=k`` makes N/k
    independent clients with k images each; attacks then work on all of them at once. With a
    ``plan`` the clients train by it and send their updates. ``knows`` names what the attacker is
    granted besides: "labels", or anything in ``defense.secrets()``.
    """
    check_batch(model, x, y)
    choose("mode", mode, ("eval", "train"))
    defense, each = defense or Defense(), each or len(x)
    if len(x) % each:
        raise PrivflError(f"each={each} does not divide {len(x)} images into equal clients")
    net = defense.model(copy.deepcopy(model)).to(device())
    x, y = x.to(device()), y.to(device())
    rngs = [generator(seed, k) for k in range(len(x) // each)]
    data = [
        defense.data(*pair, rng)
        for *pair, rng in zip(x.split(each), y.split(each), rngs, strict=True)
    ]
    with seeded(seed):
        if plan is None:
            sent = gradients_of(net, data, defense, rngs, mode)
        else:
            delta, _ = train_many(net, data, plan, defense, rngs)
            sent = through_update_door(delta, update_context(net, data, rngs, defense), defense)
    return Upload(
        {n: t.detach() for n, t in sent.items() if defense.leaves(n)},
        kind="gradient" if plan is None else "update",
        model=server_copy(net, defense),
        batch=each,
        mode=mode if plan is None else plan.mode,
        plan=plan,
        knows=_granted(knows, torch.stack([labels for _, labels in data]), defense),
    )


def gradients_of(
    net: nn.Module,
    data: Sequence[Data],
    defense: Defense,
    rngs: list[torch.Generator],
    mode: str,
    round: int = 0,
    who: Sequence[int] | None = None,
) -> Tensors:
    """One gradient a client over all its data, through the gradient and the update door."""
    f, theta = gradient_function(stateless(net, mode)), weights(net)
    rows: list[Tensors | None] = [None] * len(data)
    who = list(range(len(data)) if who is None else who)
    # clients with equally many examples go together, those of the first client first
    for size in dict.fromkeys(len(x) for x, _ in data):
        now = [k for k, (x, _) in enumerate(data) if len(x) == size]
        mine = [[part[k] for k in now] for part in (data, rngs, who)]
        ctx = update_context(net, *mine[:2], defense, mine[2], round)
        g = f(theta, ctx.x, ctx.y, defense.home(mine[2], net))
        g = through_update_door(defense.gradient(g, ctx), ctx, defense)
        for i, k in enumerate(now):
            rows[k] = {n: t[i] for n, t in g.items()}
    return {n: torch.stack([row[n] for row in rows]) for n in rows[0]}


def update_context(
    net: nn.Module,
    data: Sequence[Data],
    rngs: list[torch.Generator],
    defense: Defense,
    who: Sequence[int] | None = None,
    round: int = 0,
) -> Context:
    """What clients hold at the update door: the round's first weights, and all their data."""
    who = list(range(len(data)) if who is None else who)
    own, theta = defense.home(who, net), weights(net)
    theta = {n: own.get(n, p.expand(len(data), *p.shape)) for n, p in theta.items()}
    x, y = ([pair[i] for pair in data] for i in (0, 1))
    same = len({len(part) for part in x}) == 1
    x, y = (torch.stack(x), torch.stack(y)) if same else (x, y)
    return Context(net, theta, x, y, rngs, round, who)


def through_update_door(delta: Tensors, ctx: Context, defense: Defense) -> Tensors:
    """What the defense makes of the part that leaves; what stays at home is as it was."""
    out = {n: t for n, t in delta.items() if defense.leaves(n)}
    return delta | defense.update(out, ctx)


def server_copy(net: nn.Module, defense: Defense) -> nn.Module:
    """The network as the server has it: weights that never leave a client are blank there.

    Of buffers it has its own, whatever the clients have.
    """
    net = copy.deepcopy(net)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if not defense.leaves(name):
                p.zero_()
    return net


def _granted(names: Sequence[str], labels: Tensor, defense: Defense) -> dict[str, object]:
    """The facts that the attacker is granted, by name."""
    facts = {"labels": labels, **defense.secrets()}
    names = (names,) if isinstance(names, str) else names
    return {name: facts[choose("fact in knows=", name, facts)] for name in names}
