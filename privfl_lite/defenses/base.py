"""A defense is one class with four doors; each does nothing unless a subclass overrides it.

    data      the images and labels of one client, before it trains
    model     the network, and which of its tensors may leave
    gradient  the gradient of one step
    update    what leaves at the end of a round (with a single shared gradient: that gradient)

A fifth is not the client's: ``average`` is what a trusted server does to the mean of the uploads.

Gradients and updates come for *many clients at once*: each tensor is (K, *shape), client first.
Random numbers come from ``ctx.rngs``, one generator a client, so that the outcome for a client does
not depend on which other clients were computed beside it. What a client must remember (a residual,
a key) a defense keeps by the client's number, in attributes that begin with an underscore.
``A() + B()`` applies A, then B, at every door.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..gradients import Tensors


@dataclass(frozen=True)
class Context:
    """What the clients hold while a defense acts on their gradients or updates."""

    model: nn.Module
    theta: Tensors  # weights at which the gradient was taken, name -> (K, *shape)
    x: Tensor | list[Tensor]  # the batch (K, B, C, H, W); at the update door, all local data
    y: Tensor | list[Tensor]
    rngs: list[torch.Generator]
    round: int = 0
    who: list[int] = field(default_factory=list)  # the clients' numbers, for what they remember

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal noise shaped like ``like`` (K, *shape), each client from its own rng."""
        draws = [torch.randn(like.shape[1:], generator=rng) for rng in self.rngs]
        return torch.stack(draws).to(like)


class Defense:
    """No defense: every door is open. Subclasses override the doors that they guard."""

    def data(self, x: Tensor, y: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Replace one client's images (n, C, H, W) and labels (n,) or (n, classes)."""
        return x, y

    def model(self, model: nn.Module) -> nn.Module:
        """Change the network that the clients train (a copy is handed in)."""
        return model

    def leaves(self, name: str) -> bool:
        """Whether the tensor of this name may leave the client."""
        return True

    def home(self, who: list[int], model: nn.Module) -> Tensors:
        """What these clients have in place of the server's weights and buffers, (K, *shape)."""
        return {}

    def take_home(self, who: list[int], tensors: Tensors) -> None:
        """What became of it in a round of training, for these clients' next round."""

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        """Change the gradient of one step, name -> (K, *shape)."""
        return g

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        """Change what leaves at the end of a round, name -> (K, *shape)."""
        return delta

    def average(self, mean: Tensors, share: float, rng: torch.Generator) -> Tensors:
        """Change the mean of the uploads, at the server; a client weighs at most ``share``."""
        return mean

    def epsilon(
        self, rounds: int, rate: float, delta_dp: float = 1e-5, sampling: str = "poisson"
    ) -> float | None:
        """The ε that holds after these rounds, or None where no guarantee is claimed.

        A share ``rate`` of the clients takes part in a round, drawn by ``sampling``.
        """
        return None

    def secrets(self) -> dict[str, object]:
        """What an attacker may be granted by name with ``knows=``."""
        return {}

    def state(self) -> dict:
        """What clients remember from one round to the next, for a checkpoint; never on the wire."""
        return {}

    def restore(self, state: dict) -> None:
        """Go on from a ``state``."""

    def __add__(self, other: Defense) -> Defense:
        return Chain((*getattr(self, "parts", (self,)), *getattr(other, "parts", (other,))))

    def __repr__(self) -> str:
        settings = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if k[0] != "_")
        return f"{type(self).__name__}({settings})"


class Chain(Defense):
    """Several defenses, one after the other at every door."""

    def __init__(self, parts: tuple[Defense, ...]):
        self.parts = parts

    def data(self, x: Tensor, y: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        for part in self.parts:
            x, y = part.data(x, y, rng)
        return x, y

    def model(self, model: nn.Module) -> nn.Module:
        for part in self.parts:
            model = part.model(model)
        return model

    def leaves(self, name: str) -> bool:
        return all(part.leaves(name) for part in self.parts)

    def home(self, who: list[int], model: nn.Module) -> Tensors:
        return {n: t for part in self.parts for n, t in part.home(who, model).items()}

    def take_home(self, who: list[int], tensors: Tensors) -> None:
        for part in self.parts:
            part.take_home(who, tensors)

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        for part in self.parts:
            g = part.gradient(g, ctx)
        return g

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        for part in self.parts:
            delta = part.update(delta, ctx)
        return delta

    def average(self, mean: Tensors, share: float, rng: torch.Generator) -> Tensors:
        for part in self.parts:
            mean = part.average(mean, share, rng)
        return mean

    def epsilon(
        self, rounds: int, rate: float, delta_dp: float = 1e-5, sampling: str = "poisson"
    ) -> float | None:
        """The smallest ε that a part gives: what other parts do before or after cannot raise it.

        After: a function of a private output is private. Before: each part's own guarantee must
        hold for any input, as it does when the part clips what it is handed.
        """
        each = (part.epsilon(rounds, rate, delta_dp, sampling) for part in self.parts)
        return min((eps for eps in each if eps is not None), default=None)

    def secrets(self) -> dict[str, object]:
        return {k: v for part in self.parts for k, v in part.secrets().items()}

    def state(self) -> dict:
        return {str(i): part.state() for i, part in enumerate(self.parts)}

    def restore(self, state: dict) -> None:
        for i, part in enumerate(self.parts):
            part.restore(state[str(i)])

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))
