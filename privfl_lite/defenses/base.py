"""A defense is settings and doors; each door does nothing unless a subclass overrides it.

    data      the images and labels of one client, before it trains
    model     the network; which of its tensors may leave, and what clients have in their place
    gradient  the gradient of one step
    update    what leaves at the end of a round (with a single shared gradient: that gradient)

Two are not one client's: ``collect`` adds the uploads of a round up before the server sees them,
and ``average`` is what a trusted server does to their mean.

A defense is a frozen dataclass and remembers nothing. What clients must remember (a residual, a
key) stands in ``ctx.memory``, which belongs to the run. Gradients and updates come for *many
clients at once*: each tensor is (K, *shape), client first. Random numbers come from ``ctx.rngs``,
one generator per client, so that the outcome for a client does not depend on which others were
computed beside it. ``A() + B()`` applies A, then B, at every door.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from ..checking import Checked
from ..gradients import Tensors
from ..models import Net
from ..privacy.mechanisms import Mechanism
from ..runtime import PrivflError
from ..wire import Facts, Noise, Plan
from .memory import Memory, Notes
from .noise import Source, normal


@dataclass(frozen=True)
class Context:
    """What the clients hold while a defense acts on their gradients or updates."""

    model: Net
    theta: Tensors  # weights at which the gradient was taken, name -> (K, *shape)
    x: Tensor | list[Tensor]  # the batch (K, B, C, H, W); at the update door, all local data
    y: Tensor | list[Tensor]
    rngs: list[torch.Generator]
    round: int = 0
    who: list[int] = field(default_factory=list)  # the clients' numbers; 0, 1, … by default
    memory: Memory = field(default_factory=Memory)
    plan: Plan | None = None  # for ``facts``: the rules of training, where an update leaves
    others: bool = False  # whether more clients take part, computed before or after these

    def __post_init__(self) -> None:
        if not self.who:
            object.__setattr__(self, "who", list(range(len(self.rngs))))

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal noise shaped like ``like`` (K, *shape), each from its own source."""
        return normal(like, self.sources)

    @property
    def sources(self) -> Sequence[Source]:
        """Where each client's noise comes from: its generator, or the operating system."""
        return [None] * len(self.rngs) if self.memory.secure else self.rngs

    def on_upload(self, std: Callable[[int], float]) -> Noise:
        """Noise of ``std(B)`` on the mean gradient of B examples, as it lies on the upload.

        With a plan: Σ over its steps. That noise also moves the weights at which later gradients
        are taken is left out; of a single step, or at a small rate, it is exact.
        """
        n = len(self.x[0]) if len(self.x) else 0
        if self.plan is None:
            return Noise(std(n))
        sizes = [len(rows) for rows in self.plan.batches(n)]
        weights = self.plan.step_weights(len(sizes))
        each = (w * std(size) for w, size in zip(weights, sizes, strict=True))
        return Noise(self.plan.eta * math.hypot(*each))


class Pool(Protocol):
    """Adds up the uploads of a round in place of the server, who then sees the sum only."""

    there: list[int]  # clients whose uploads are in the sum

    def add(self, who: Sequence[int], rows: Mapping[str, Tensor], weights: Sequence[float]) -> None:
        """What the clients ``who`` send, (K, *shape), and by what each is multiplied."""

    def done(self) -> tuple[Tensors, float]:
        """Σ w Δ, (*shape), and Σ w."""
        ...


@dataclass(frozen=True)
class Defense(Checked):
    """No defense: every door is open. Subclasses override the doors that they guard.

    ``draws``: its network draws random numbers itself, for many clients at once other ones than for
    one after the other. ``blind``: see ``looks``. ``anew``: its gradient door computes the gradient
    from the data, whatever it is handed.
    """

    draws: ClassVar[bool] = False
    blind: ClassVar[tuple[str, ...]] = ()
    anew: ClassVar[bool] = False

    def data(
        self, x: Tensor, y: Tensor, rng: torch.Generator, kept: Notes | None = None
    ) -> tuple[Tensor, Tensor]:
        """Replace one client's images (n, C, H, W) and labels (n,) or (n, classes).

        ``kept`` is what the client remembers (``memory[client]``), to read and write.
        """
        return x, y

    def model(self, model: Net) -> Net:
        """Change the network that the clients train (a copy is handed in)."""
        return model

    def leaves(self, name: str) -> bool:
        """Whether the tensor of this name may leave the client."""
        return True

    def begin(self, model: Net, client: int) -> Tensors:
        """What this client has, at first, in place of the server's weights and buffers."""
        return {}

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        """Change the gradient of one step, name -> (K, *shape)."""
        return g

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        """Change what leaves at the end of a round, name -> (K, *shape)."""
        return delta

    def collect(
        self, who: Sequence[int], rng: Callable[[int], torch.Generator], secure: bool = False
    ) -> Pool | None:
        """What adds these clients' uploads up, at the wire; None: the server sees each of them.

        ``rng(client)`` is a random stream of its own; ``secure``: take the operating system's.
        """
        return None

    def average(self, mean: Tensors, share: float, rng: torch.Generator, memory: Memory) -> Tensors:
        """Change the mean of the uploads, at the server; a client weighs at most ``share``."""
        return mean

    # What accounting asks (privacy.account); the answers here are safe for any subclass.

    def mechanism(self, tensors: Mapping[str, tuple[int, ...]]) -> Mechanism | str:
        """The clip and the noise from which an ε follows; or why there is none ("": no noise).

        ``tensors``: name -> shape of all that leaves a client.
        """
        return ""

    def guards(self, door: str) -> bool:
        """Whether this door does anything."""
        return getattr(type(self), door) is not getattr(Defense, door)

    def looks(self, door: str) -> bool:
        """Whether this door uses private data besides what it is handed, so that after noise has
        been added it brings them in again. ``blind`` names those that do not."""
        return self.guards(door) and door not in self.blind

    def rows(self) -> int | None:
        """Rows of the training data in which one example ends up; None where that is unknown."""
        return None if self.guards("data") else 1

    def crosses(self) -> bool:
        """Whether one client's data get into the uploads of others."""
        return False

    def summed(self) -> float | str | None:
        """The step to which uploads are rounded before a secure sum adds all of them up, or why not
        all are in it; None: the server sees each upload."""
        return None

    def speaks(self, claim: str, door: str) -> bool:
        """Whether this claim is of the class that wrote the door, or of a later one: where a
        subclass changes a door, what its parent said of it no longer counts."""

        def written(name: str) -> int:
            return next(i for i, c in enumerate(type(self).__mro__) if name in vars(c))

        return written(claim) <= written(door)

    def facts(self, ctx: Context) -> Facts:
        """What an attacker may be granted about these clients' uploads with ``knows=``."""
        return Facts()

    def __add__(self, other: Defense) -> Chain:
        if not isinstance(other, Defense):
            return NotImplemented
        return Chain((*getattr(self, "parts", (self,)), *getattr(other, "parts", (other,))))


@dataclass(frozen=True)
class Chain(Defense):
    """Several defenses, one after the other at every door."""

    parts: tuple[Defense, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.parts:
            raise PrivflError("a chain needs one defense or more")
        before: list[str] = []
        for part in self.parts:
            if part.anew and before:
                raise PrivflError(
                    f"{before[0]} has no effect before {type(part).__name__}, which computes the "
                    "gradient anew; put it behind"
                )
            before += [type(part).__name__] if part.guards("gradient") else []
        pools = [i for i, part in enumerate(self.parts) if part.guards("collect")]
        for part in self.parts[pools[0] + 1 :] if pools else ():
            if any(part.guards(door) for door in ("data", "gradient", "update", "collect")):
                raise PrivflError(
                    f"{type(part).__name__} acts at the client, so it stands before "
                    f"{type(self.parts[pools[0]]).__name__}, which acts on what clients send"
                )

    @property
    def draws(self) -> bool:  # type: ignore[override]
        return any(part.draws for part in self.parts)

    def data(
        self, x: Tensor, y: Tensor, rng: torch.Generator, kept: Notes | None = None
    ) -> tuple[Tensor, Tensor]:
        for i, part in enumerate(self.parts):
            x, y = part.data(x, y, rng, None if kept is None else kept.part(i))
        return x, y

    def model(self, model: Net) -> Net:
        for part in self.parts:
            model = part.model(model)
        return model

    def leaves(self, name: str) -> bool:
        return all(part.leaves(name) for part in self.parts)

    def begin(self, model: Net, client: int) -> Tensors:
        return {n: t for part in self.parts for n, t in part.begin(model, client).items()}

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        for i, part in enumerate(self.parts):
            g = part.gradient(g, replace(ctx, memory=ctx.memory.part(i)))
        return g

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        for i, part in enumerate(self.parts):
            delta = part.update(delta, replace(ctx, memory=ctx.memory.part(i)))
        return delta

    def collect(
        self, who: Sequence[int], rng: Callable[[int], torch.Generator], secure: bool = False
    ) -> Pool | None:
        found = (part.collect(who, rng, secure) for part in self.parts if part.guards("collect"))
        return next(found, None)

    def average(self, mean: Tensors, share: float, rng: torch.Generator, memory: Memory) -> Tensors:
        for i, part in enumerate(self.parts):
            mean = part.average(mean, share, rng, memory.part(i))
        return mean

    def facts(self, ctx: Context) -> Facts:
        """Of all parts together: noises add as variances."""
        found = Facts()
        for i, part in enumerate(self.parts):
            found |= part.facts(replace(ctx, memory=ctx.memory.part(i)))
        return found

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))
