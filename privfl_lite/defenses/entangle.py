"""Model Entanglement (anonymous, 2024): parts of an update are overwritten by a guard's.

A guard client trains on public images. Each private client finds the units of its fully connected
layers that tell most of the input (Eq. 8–9) and overwrites the entries of its update next to them
by those of the guard (Fig. 2). No code is public; what the paper leaves open is an option here.
Nothing is bounded, and entries that were not overwritten leave as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from ..arrays import GIVEN
from ..gradients import Tensors, flat
from ..runtime import PrivflError
from ..values import Count, Positive, Unit, Word
from ..wire import Facts
from .base import Context, Defense, Memory
from .entangle_scores import Upto as Upto
from .entangle_scores import dense_layers, unit_scores

GUARD = 0  # the client that is the guard, where none is handed over


@dataclass(frozen=True, eq=False)
class Entangle(Defense):
    """Overwrite a share μ of the entries of every fully connected layer by the guard's.

    ``guard``: its gradients or updates, name -> (1, *shape), or (K, *shape) with a row for each
    client. None: client 0 is the guard, must take part in every round, and sends its own update as
    it is, which counts in the mean like any other (§3.1, §4.1). The paper does not say how the
    update gets to the others; here it is there when the guard has trained.

    ``beta``: 1 − β of the units are chosen, plus the ``ratio``'s first term. "adaptive" is Eq. 10;
    "fixed" leaves that term out. Eq. 10 divides by every single weight, and the mean of 1/|w| has
    no bound for weights near 0: |w| counts as ``floor`` at least.

    ``side``: a unit's entries. "columns": units are the inputs of a layer, so column i of its
    weights goes; as in Soteria, to which the paper refers. It is our default since Fig. 1 takes r
    "before the output layer", and of DLG's LeNet these are the only such entries that belong to a
    single unit. "rows": units are the layer's outputs, r = W_f X (Eq. 3b); row i goes, and entry i
    of the bias. "both": both. ``tensors="every"``: of all others (convolutions, biases), which the
    paper leaves as they are, a share μ of the entries goes too, drawn at random.

    ``how``: "copy" overwrites (the paper); "add" adds the guard's entries to the client's.
    ``score``: "quotient", |r_i| / ‖∂r_i/∂X‖ (Eq. 9), where r is not yet modified, since the r' of
    Eq. 9 is never named; "random" draws units, to see whether the score matters. It is the mean
    over ``images`` of the client's images, drawn at random, at the weights it was sent. A score
    takes a backward pass for each unit: on more than a few images it would cost more than training,
    and the paper reports 6.8 % in all.
    """

    beta: Unit = 0.7
    side: Annotated[str, Word("side", "columns", "rows", "both")] = "columns"
    how: Annotated[str, Word("how", "copy", "add")] = "copy"
    score: Annotated[str, Word("score", "quotient", "random")] = "quotient"
    ratio: Annotated[str, Word("ratio", "adaptive", "fixed")] = "adaptive"
    floor: Positive = 1e-3
    images: Count = 1
    tensors: Annotated[str, Word("tensors", "dense", "every")] = "dense"
    guard: Annotated[Tensors, GIVEN] | None = None

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        """Overwrite; what each client did is noted: ``ratio`` μ, ``guard`` (d,), ``mask.NAME``."""
        guard = self._guards(delta, ctx)
        private = [self.guard is not None or client != GUARD for client in ctx.who]
        ratios = self.shares(delta, ctx) * torch.tensor(private).to(flat(delta))
        mask = {n: torch.zeros_like(t, dtype=torch.bool) for n, t in delta.items()}
        for k, share in enumerate(ratios.tolist()):
            if share:
                self._mark({n: t[k] for n, t in mask.items()}, share, k, ctx)
        for k, client in enumerate(ctx.who):
            ctx.memory[client].update({f"mask.{n}": t[k] for n, t in mask.items()})
            ctx.memory[client].update(ratio=ratios[k], guard=flat(guard)[k])
        add = float(self.how == "add")
        return {n: torch.where(mask[n], guard[n] + add * t, t) for n, t in delta.items()}

    def looks(self, door: str) -> bool:
        return door == "update" and self.score != "random"

    def crosses(self) -> bool:
        return self.guard is None

    def _guards(self, delta: Tensors, ctx: Context) -> Tensors:
        """The guard's tensors for each of the K clients, (K, *shape)."""
        who = ctx.who
        if self.guard is not None:
            rows = len(next(iter(self.guard.values())))
            if rows > 1 and max(who) >= rows:
                raise PrivflError(f"guard has {rows} rows; give 1, or one for every client")
            take = who if rows > 1 else [0] * len(who)
            for n, t in delta.items():
                if n not in self.guard or self.guard[n].shape[1:] != t.shape[1:]:
                    raise PrivflError(f"guard needs {n!r} as (rows, *{tuple(t.shape[1:])})")
            return {n: self.guard[n].to(t)[take] for n, t in delta.items()}
        several = ctx.round or len(who) > 1 or ctx.others
        if GUARD in who and several:
            ctx.memory.run["round"] = ctx.round  # in which the guard's tensors were heard
            ctx.memory.run["heard"] = {n: t[who.index(GUARD)] for n, t in delta.items()}
        elif ctx.memory.run.get("round") != ctx.round or not several:
            raise PrivflError(
                f"Entangle has no guard here: client {GUARD} of several is the guard and must take "
                "part in every round; or hand over guard="
            )
        heard = ctx.memory.run["heard"]
        return {n: heard[n].expand_as(t) for n, t in delta.items()}

    def shares(self, delta: Tensors, ctx: Context) -> Tensor:
        """μ of each client (K,), within [0, 1]."""
        first: Tensor | float = 0.0
        if self.ratio == "adaptive":
            first = adaptive_term(relative_size(delta, ctx.theta, self.floor))
        whole = torch.full((len(ctx.who),), 1 - self.beta).to(next(iter(delta.values())))
        return (whole + first).clamp(0, 1)

    def _mark(self, mask: Tensors, share: float, k: int, ctx: Context) -> None:
        """Set the entries of client k's ``mask``, name -> shape, that a share of units stands for.

        The masks are views: writing into them writes into the mask of all clients.
        """
        rng, x = ctx.rngs[k], ctx.x[k]
        few = torch.randperm(len(x), generator=rng)[: self.images].to(x.device)
        theta = {n: t[k : k + 1] for n, t in ctx.theta.items()}
        one = replace(ctx, theta=theta, x=x[few][None], rngs=[rng])

        def top(part: nn.Module, units: int) -> Tensor:
            if self.score == "random":
                scores = torch.rand(units, generator=rng)
            else:
                scores = unit_scores(part, one)[0]
            return scores.topk(round(share * units)).indices

        for name, layer, before, through in dense_layers(ctx.model):
            if self.side != "rows":
                mask[f"{name}.weight"][:, top(before, layer.in_features)] = True
            if self.side != "columns":
                rows = top(through, layer.out_features)
                mask[f"{name}.weight"][rows] = True
                if layer.bias is not None:
                    mask[f"{name}.bias"][rows] = True
        for part in mask.values() if self.tensors == "every" else ():
            if not part.any():
                part |= (torch.rand(part.shape, generator=rng) < share).to(part.device)

    def facts(self, ctx: Context) -> Facts:
        """The guard's tensors as one vector for each upload, (K, d): the server gets them too."""
        return Facts(guard=torch.stack([ctx.memory[c]["guard"] for c in ctx.who]))


def replaced(memory: Memory, who: Sequence[int]) -> Tensors:
    """Which entries of these clients' last uploads were the guard's, name -> (K, *shape)."""
    notes = [memory[c] for c in who]
    names = [n for n in notes[0] if n.startswith("mask.")]
    return {n.removeprefix("mask."): torch.stack([note[n] for note in notes]) for n in names}


def relative_size(delta: Tensors, theta: Tensors, floor: float = 1e-3) -> Tensor:
    """A = ‖Δ/w‖₁ / N of each client (K,) (§4.2.2), where |w| counts as ``floor`` at least.

    N is the number of weights of the model. Where a gradient is shared, it is Δ with a rate of 1.
    """
    w = flat({n: theta[n] for n in delta})
    return (flat(delta) / w.abs().clamp(min=floor)).abs().mean(1)


def adaptive_term(a: Tensor) -> Tensor:
    """Eq. 10's first term, (1 − 3e^−A) / (10 (1 + e^−A)) = 0.4 sigmoid(A) − 0.3.

    The paper gives (0, 0.1) as its range. A is a mean of absolute values: from A = 0 on the term
    goes from −0.1 up to 0.1, and is below 0 for A < ln 3.
    """
    return 0.4 * a.sigmoid() - 0.3
