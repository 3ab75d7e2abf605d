"""The wire: what leaves a client, and what the server knows of it. Types only.

An attack sees an ``Upload`` and nothing else, so the threat model is this class. Whatever the
server holds by its role is a field: the model it sent, the rules of training it set (``Plan``), the
number of examples a client reports. Anything more, such as the labels or the level of the noise, is
granted by name with ``knows=`` and then stands in ``upload.knows`` (``Facts``).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .gradients import (
    Tensors,
    clip,
    fill,
    named,
    own_gradient,
    stateless,
    update_function,
    weights,
)
from .models import Net, wrap
from .runtime import PrivflError, choose, device

if TYPE_CHECKING:
    from .extractor import Extractor


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
        choose("mode", self.mode, ("eval", "train"))

    def step_weights(self, steps: int) -> list[float]:
        """How often the gradient of each step counts in −Δ/η, the first step's first.

        With momentum m step s moves by Σ_j m^(s−j) g_j, so g_j counts (1 − m^(S−j)) / (1 − m), j
        from 0.
        """
        m = self.momentum
        return [(1 - m ** (steps - j)) / (1 - m) for j in range(steps)]

    def batches(self, n: int, rng: torch.Generator | None = None) -> list[Tensor]:
        """Which of n examples each local step uses: one index tensor a step.

        Without ``rng`` the examples are taken as they stand, as an attacker has to take them who
        does not know in which order they were drawn.
        """

        def once() -> Tensor:
            if rng is None or not self.shuffle:
                return torch.arange(n)
            return torch.randperm(n, generator=rng)

        if self.steps is None:
            return [b for _ in range(self.epochs) for b in once().split(self.batch_size)]
        need = self.steps * self.batch_size
        return list(torch.cat([once() for _ in range(-(-need // n))])[:need].split(self.batch_size))


@dataclass(frozen=True)
class Noise:
    """Independent noise of mean 0 on an upload: its standard deviation, one or by tensor or layer.

    ``Noise + Noise`` is that of the sum: variances add.
    """

    std: float | Mapping[str, float]

    def of(self, name: str) -> float:
        """The standard deviation in the tensor of this name; its layer's, where that is listed."""
        std = self._entry(name)
        if std is None:
            raise PrivflError(f"no noise is stated for {name!r}, only by other names; got {self}")
        return std

    def _entry(self, name: str) -> float | None:
        if not isinstance(self.std, Mapping):
            return float(self.std)
        for key in (name, name.rpartition(".")[0]):
            if key in self.std:
                return float(self.std[key])
        return None

    def __add__(self, other: Noise) -> Noise:
        names = {n: None for a in (self, other) if isinstance(a.std, Mapping) for n in a.std}
        if not names:
            return Noise(math.hypot(self.of(""), other.of("")))
        both = ((n, self._entry(n), other._entry(n)) for n in names)
        return Noise({n: math.hypot(a, b) for n, a, b in both if a is not None and b is not None})

    def __mul__(self, factor: float) -> Noise:
        if isinstance(self.std, Mapping):
            return Noise({n: factor * s for n, s in self.std.items()})
        return Noise(factor * self.std)


@dataclass(frozen=True)
class Clip:
    """What was shortened to a length of at most ``bound``.

    The "update" as one vector, every "layer" by itself, or the gradient of each "example".
    """

    bound: float
    per: str = "update"


@dataclass(frozen=True)
class Facts:
    """What an attacker is granted besides its role; None is not granted.

    U uploads, B examples behind each. Labels may be classes (U, B) or distributions.
    """

    labels: Tensor | None = None  # (U, B) or (U, B, classes), as they were trained on
    noise: Noise | None = None  # on each upload
    clip: Clip | None = None
    key: Tensor | None = None  # FedKL: (U, S)
    lock: Tensor | None = None  # FedKL: weights and bias of the lock, (U, 2C, S + 1)
    coefficients: Tensor | None = None  # FedKL: γ before β, (U, 2C)
    guard: Tensor | None = None  # Model Entanglement: the guard's upload as one vector, (U, d)
    lambda_g: float | None = None  # DCS²: Eq. 10
    concealed: Tensor | None = None  # DCS²: labels ỹ of the M concealed samples, (U, M)
    mixture: Tensor | None = None  # DCS²: labels of the augmented batch, (U, B + M, classes)
    shares: tuple[float, float] | None = None  # DCS²: weights of both parts in Eq. 10
    policy: str | None = None  # ATS: which transformations
    matrix: Tensor | None = None  # Mixup, InstaHide: blends by images, (U, n)
    c: float | None = None  # LODA: weight of the pixels in Eq. 4
    extractor: Extractor | None = None  # LODA: g of Eq. 4
    measurement: Callable[..., Tensors] | None = None  # CA-FL: f(tensors, round), what travels
    eps: float | None = None  # CA-FL: the budget of one measurement

    @property
    def names(self) -> tuple[str, ...]:
        """What is granted."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is not None)

    def select(self, names: Sequence[str] | str) -> Facts:
        """Only these; one that does not exist here is refused."""
        names = (names,) if isinstance(names, str) else tuple(names)
        return Facts(**{n: getattr(self, choose("fact in knows=", n, self.names)) for n in names})

    def without(self, *names: str) -> Facts:
        """All but these."""
        return replace(self, **dict.fromkeys(names))

    def __getitem__(self, rows: slice) -> Facts:
        """The facts about some of the uploads."""
        held = {n: getattr(self, n) for n in self.names}
        some: dict[str, Any] = {n: v[rows] if isinstance(v, Tensor) else v for n, v in held.items()}
        return Facts(**some)

    def __or__(self, other: Facts) -> Facts:
        """Both together, as of two defenses in a row: noises add, else the later one counts."""
        both = {n: getattr(other, n) for n in other.names}
        if self.noise is not None and other.noise is not None:
            both["noise"] = self.noise + other.noise
        return replace(self, **both)

    def __repr__(self) -> str:
        def short(value: Any) -> str:
            return f"{tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"

        return f"Facts({', '.join(f'{n}={short(getattr(self, n))}' for n in self.names)})"


@dataclass(frozen=True, repr=False)
class Upload:
    """U independent uploads, one per client, of the same kind and for the same model.

    ``tensors[name]`` is (U, *shape). ``kind="gradient"``: gradients of the mean loss over ``batch``
    examples. ``kind="update"``: weights after local training minus weights before,
    Δ = θ_client − θ_server, made by the rules in ``plan``. ``mode`` is that of batch norm.
    ``from_gradients`` and ``from_update`` make one out of what people have.
    """

    tensors: Tensors
    kind: str
    model: Net
    batch: int
    mode: str = "eval"
    plan: Plan | None = None
    knows: Facts = field(default_factory=Facts)

    @classmethod
    def from_gradients(
        cls,
        model: nn.Module,
        gradients: Any,
        labels: Any = None,
        batch: int | None = None,
        mode: str = "eval",
    ) -> Upload:
        """Gradients of the mean loss over a batch, as people have them (``gradients.named``).

        ``Upload.from_gradients(net, torch.autograd.grad(loss, net.parameters()))``. ``labels``,
        (B,) or (U, B), are granted to the attacker; ``batch`` is as many, or 1.
        """
        net = copy.deepcopy(wrap(model)).to(device())
        tensors = named(net, gradients)
        y, clients = _labels(labels, net), len(next(iter(tensors.values()), ()))
        if y is not None and y.dim() - y.is_floating_point() == 1:
            y = y.unflatten(0, (clients, -1)) if clients and not len(y) % clients else y[None]
        batch = batch or (1 if y is None else y.shape[1])
        return cls(tensors, "gradient", net, batch, mode, knows=Facts(labels=y))

    @classmethod
    def from_update(
        cls,
        before: Any,
        after: Any,
        plan: Plan,
        batch: int,
        model: nn.Module | None = None,
        labels: Any = None,
    ) -> Upload:
        """Δ = ``after`` − ``before``, local training by ``plan`` on ``batch`` examples.

        Both are modules, state dicts or lists of arrays (Flower's ``get_parameters``); ``after``
        may be a list of them, one per client. ``model`` is needed where ``before`` is no module.
        """
        if not isinstance(before, nn.Module) and model is None:
            raise PrivflError("before= holds weights only; give the network, too: model=net")
        net = copy.deepcopy(wrap(before if model is None else model)).to(device())
        fill(net, before)
        own = dict(net.named_parameters())
        delta = {n: t - own[n].detach() for n, t in named(net, after).items()}
        made = cls.from_gradients(net, delta, labels, batch)
        return replace(made, kind="update", mode=plan.mode, plan=plan)

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", wrap(self.model))
        choose("kind of upload", self.kind, ("gradient", "update"))
        choose("mode", self.mode, ("eval", "train"))
        if self.kind == "update" and self.plan is None:
            raise PrivflError("an update needs plan=Plan(…), the rules by which it was trained")
        if self.batch < 1:
            raise PrivflError(f"batch is the number of examples, at least 1; got {self.batch}")
        self._check_tensors()
        self._check_labels()

    def _check_tensors(self) -> None:
        shapes = {n: tuple(p.shape) for n, p in self.model.named_parameters()}
        if self.tensors and all(tuple(t.shape) == shapes.get(n) for n, t in self.tensors.items()):
            raise PrivflError(
                "the tensors have no axis of clients in front: add it with t[None], "
                "or use Upload.from_gradients(model, tensors)"
            )
        rows = {len(t) if t.dim() else 0 for t in self.tensors.values()}
        if len(rows) != 1 or 0 in rows:
            raise PrivflError(
                "an upload needs one tensor or more, each with a row for every client; "
                f"got {len(self.tensors)} tensors with {sorted(rows)} rows"
            )
        for name, t in self.tensors.items():
            if tuple(t.shape[1:]) != shapes.get(name):
                raise PrivflError(
                    f"upload tensor {name!r} has shape {tuple(t.shape[1:])} after the clients' "
                    f"axis; the model's is {shapes.get(name, 'missing')}"
                )
            bad = (~t.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
            if bad:
                raise PrivflError(
                    f"upload {bad[0]} holds NaN or infinite values in tensor {name!r}; "
                    "only finite numbers can be averaged or attacked"
                )

    def _check_labels(self) -> None:
        y = self.knows.labels
        if y is not None and tuple(y.shape[:2]) != (len(self), self.batch):
            raise PrivflError(
                f"labels must be ({len(self)}, {self.batch}), uploads by examples; "
                f"got {tuple(y.shape)}"
            )

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __iter__(self) -> Iterator[Upload]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int | slice) -> Upload:
        """Upload i (or a slice of them), with what is known about it; indices as a list's."""
        if isinstance(i, int):
            i = range(len(self))[i]  # counts from the end, and refuses, like a list
            i = slice(i, i + 1)
        tensors = {n: t[i] for n, t in self.tensors.items()}
        return replace(self, tensors=tensors, knows=self.knows[i])

    @property
    def nbytes(self) -> int:
        """Bytes on the wire for one upload of 32-bit floats."""
        return sum(4 * t[0].numel() for t in self.tensors.values())

    @property
    def local_steps(self) -> int:
        """How many steps of SGD stand behind one upload."""
        return 1 if self.plan is None else len(self.plan.batches(self.batch))

    @property
    def letter(self) -> str:
        """The threat model by the letters of Carletti et al. (2025), and what is granted besides.

        A: the uploads alone. C: the rules of local training, too. Labels, keys and the like are
        more than any letter.
        """
        return " + ".join(("A" if self.plan is None else "C", *self.knows.names))

    def __repr__(self) -> str:
        what = "gradients" if self.kind == "gradient" else f"updates of {self.local_steps} steps"
        besides = ", ".join(self.knows.names) or "nothing"
        return (
            f"Upload: {len(self)} {what} of {self.nbytes // 4:,} numbers, {self.batch} examples "
            f"behind each, for {self.model.name}; granted besides: {besides}; letter {self.letter}"
        )

    def gradients(self) -> Tensors:
        """The uploads as mean gradients: as they are, or Δ over −η and the weight of all steps."""
        if self.plan is None:
            return self.tensors
        weight = sum(self.plan.step_weights(self.local_steps))
        return {n: -t / (self.plan.eta * weight) for n, t in self.tensors.items()}

    def imitator(self) -> Callable[[Tensor, Tensor], Tensors]:
        """f(x, y): what undefended clients with data x (U, B, C, H, W) and y would have sent.

        The server set the rules of training, so it can follow them on data of its own. It does not
        know in which order a client drew its examples and takes them as they stand. Where it is
        granted the clip, the imitation is clipped too.
        """
        model = stateless(self.model, self.mode)
        if self.plan is None:
            f = own_gradient(model)
        else:
            steps = self.plan.batches(self.batch)
            update = update_function(model, self.plan.eta, steps, self.plan.momentum)
            f = partial(update, weights(model))
        known = self.knows.clip
        if known and known.per == "example" and self.plan is not None:
            raise PrivflError("a clip of every example's gradient is imitated for gradients only")

        def imitation(x: Tensor, y: Tensor) -> Tensors:
            each = known is not None and known.per == "example"
            parts = (x.flatten(0, 1)[:, None], y.flatten(0, 1)[:, None]) if each else (x, y)
            sent = {n: t for n, t in f(*parts).items() if n in self.tensors}
            if known is None:
                return sent
            sent = clip(sent, known.bound, "update" if each else known.per)[0]
            if each:  # the mean over each client's examples
                sent = {n: t.unflatten(0, x.shape[:2]).mean(1) for n, t in sent.items()}
            return sent

        return imitation


def _labels(given: Any, model: Net) -> Tensor | None:
    """Classes as whole numbers, or distributions (…, classes) in the model's type."""
    if given is None:
        return None
    like = next(model.parameters())
    y = torch.atleast_1d(torch.as_tensor(given, device=like.device)).detach()
    if y.is_floating_point():
        return y.to(like)
    if y.numel() and not 0 <= int(y.min()) <= int(y.max()) < model.num_classes:
        raise PrivflError(f"labels must lie in 0…{model.num_classes - 1}; got {y.tolist()}")
    return y.long()
