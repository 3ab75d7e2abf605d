"""A secure sum (Bonawitz et al. 2017): the server learns the sum of a cohort and no part of it."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from ..arrays import GIVEN
from ..checking import checked
from ..gradients import Tensors
from ..runtime import PrivflError, generator
from ..values import Number, Seed, Whole
from ..wire import Upload
from .base import Defense
from .masking import Member, masked, unmasked

WEIGHT = " weight"  # beside the tensors: a whole number, without places after the point


@dataclass(frozen=True)
class SecureSum(Defense):
    """Σ w Δ over a round's clients arrives, in fixed point modulo 2^bits; nothing else does.

    It acts at the wire, after all that clients do, so it stands last in a chain: ``ModelCloak(…) +
    SecureSum()``. ``share`` then gives one upload for all clients, with their examples together as
    its batch, and ``FedAvg`` one for each round.

    Every number w Δ is rounded to a multiple of 2^−places by its client. A sum over K clients is
    therefore off by at most K · 2^−(places + 1), their mean over weights Σ w by that over Σ w, and
    not at all by the masks, which cancel exactly. A number with which K such could overflow is
    refused. ``threshold``: the share of a cohort, at least two clients, that must remain so that
    lost masks can be brought back. ``lost``: so many clients of each round vanish after all have
    agreed on masks (chosen by their secrets, to try it).

    It hides who sent what, not what was sent: see the chapter "The malicious server". No ε
    follows from it; with ``ModelCloak`` before it, ``privacy.account`` says what the sum of noises
    is worth to a server that sees nothing but sums.
    """

    bits: Annotated[int, Number(8, 62, whole=True)] = 48
    places: Annotated[int, Number(0, 52, whole=True)] = 24
    threshold: Annotated[float, Number(0, 1, open="low")] = 2 / 3
    lost: Whole = 0

    def collect(
        self, who: Sequence[int], rng: Callable[[int], torch.Generator], secure: bool = False
    ) -> Masked:
        return Masked(self, who, [_seed(None if secure else rng(c)) for c in who])

    def summed(self) -> float | str:
        if self.lost:
            return "clients drop out, and their noise with them"
        return 2.0**-self.places

    def needed(self, clients: int) -> int:
        """How many of so many clients must remain: a share of them, and never fewer than two."""
        return max(2, math.ceil(self.threshold * clients))

    def largest(self, clients: int) -> float:
        """What one number of one of so many clients may be at most, so that no sum overflows."""
        return (2 ** (self.bits - 1) - 1) // max(clients, 1) / 2**self.places

    def encode(self, values: Tensor, places: int, clients: int, who: int = 0) -> np.ndarray:
        """Numbers in fixed point, modulo 2^bits; negative ones wrap to the upper half."""
        whole = (values.detach().cpu().double() * 2.0**places).round()
        most = (2 ** (self.bits - 1) - 1) // clients
        if whole.numel() and whole.abs().max() > most:
            raise PrivflError(
                f"client {who} would add {whole.abs().max() / 2**places:.4g}, but the sum of "
                f"{clients} clients could overflow beyond {most / 2**places:.4g} each; "
                "clip uploads, or take more bits or fewer places"
            )
        return whole.long().numpy().astype(np.uint64) & np.uint64(2**self.bits - 1)

    def decode(self, total: np.ndarray, places: int) -> Tensor:
        """A sum back from fixed point: the upper half of 2^bits is negative."""
        signed = total.astype(np.int64)
        signed = np.where(signed >= 2 ** (self.bits - 1), signed - 2**self.bits, signed)
        return torch.from_numpy(signed).double() / 2**places


class Masked:
    """One round of a ``SecureSum``: takes uploads as they come, keeps nothing but their sum."""

    def __init__(self, rule: SecureSum, who: Sequence[int], seeds: Sequence[bytes]):
        self.rule, self.clients = rule, len(who)
        placed = enumerate(zip(who, seeds, strict=True), start=1)
        self.members = {client: Member(place, seed) for place, (client, seed) in placed}
        self.publics = {m.place: m.public for m in self.members.values()}
        fate = sorted(who, key=lambda c: (self.members[c].own, c))
        gone = set(fate[: rule.lost])
        self.there = [c for c in who if c not in gone]
        if len(self.there) < (least := rule.needed(self.clients)):
            raise PrivflError(
                f"{len(self.there)} of {self.clients} clients remain, but a secure sum needs "
                f"{least}, so that it is a sum and lost masks can be recovered"
            )
        self.total: np.ndarray | None = None
        self.like: Tensors = {}

    def add(self, who: Sequence[int], rows: Mapping[str, Tensor], weights: Sequence[float]) -> None:
        """What the clients ``who`` send, (K, *shape), each masked by itself."""
        self.like = self.like or {n: t[0] for n, t in rows.items()}
        for k, (c, w) in enumerate(zip(who, weights, strict=True)):
            if c in self.there:
                sent = self.upload(c, {n: t[k] for n, t in rows.items()}, w)
                self.total = sent if self.total is None else self.total + sent

    def upload(self, client: int, row: Mapping[str, Tensor], weight: float = 1.0) -> np.ndarray:
        """All that leaves this client: weight and weighted numbers, masked (1 + d,)."""
        rule = self.rule
        flat = torch.cat([t.detach().cpu().double().flatten() for t in row.values()])
        values = [
            rule.encode(torch.tensor([weight]), 0, self.clients, client),
            rule.encode(weight * flat, rule.places, self.clients, client),
        ]
        return masked(self.members[client], np.concatenate(values), self.publics, rule.bits)

    def done(self) -> tuple[Tensors, float]:
        """Σ w Δ and Σ w of those who remained: all that the server learns."""
        assert self.total is not None, "nobody has sent anything yet"
        arrived = [self.members[c] for c in self.there]
        least = self.rule.needed(self.clients)
        total = unmasked(self.total, list(self.members.values()), arrived, least, self.rule.bits)
        weight = float(self.rule.decode(total[:1], 0))
        flat, out = self.rule.decode(total[1:], self.rule.places), {}
        for n, t in self.like.items():
            here, flat = flat[: t.numel()], flat[t.numel() :]
            kind = t.dtype if t.is_floating_point() else torch.get_default_dtype()
            out[n] = here.view(t.shape).to(t.device, kind)
        return out, weight


def _seed(rng: torch.Generator | None) -> bytes:
    """32 bytes of a client's own, from its generator or from the operating system."""
    if rng is None:
        return secrets.token_bytes(32)
    return bytes(torch.randint(256, (32,), generator=rng).tolist())


@checked
def masked_uploads(
    uploads: Annotated[Tensors, GIVEN], rule: SecureSum | None = None, seed: Seed = 0
) -> Tensor:
    """What leaves each of the K clients with these uploads (K, *shape): (K, 1 + d) whole numbers.

    For looking at: each row by itself, and any that lack one client, are uniform in 0 … 2^bits − 1
    whatever the uploads hold. The first number of a row is the client's weight, 1.
    """
    rule, clients = rule or SecureSum(), len(next(iter(uploads.values())))
    pool = rule.collect(range(clients), lambda k: generator(seed, k))
    rows = [pool.upload(k, {n: t[k] for n, t in uploads.items()}) for k in pool.there]
    return torch.from_numpy(np.stack(rows).astype(np.int64))


@checked
def sum_of(uploads: Sequence[Upload], rule: SecureSum | None = None, seed: Seed = 0) -> Upload:
    """One upload for several clients, by a secure sum; each weighs by its examples.

    For clients who were not sent the same model: the sum's model is that of the first. Plans and
    facts are left behind: gradients only.
    """
    rule, first = rule or SecureSum(), uploads[0]
    if any(len(one) != 1 or one.kind != "gradient" for one in uploads):
        raise PrivflError("a sum of uploads takes gradients, of one client each")
    pool = rule.collect(range(len(uploads)), lambda k: generator(seed, k))
    for k, one in enumerate(uploads):
        pool.add([k], one.tensors, [float(one.batch)])
    total, weight = pool.done()
    tensors = {n: t[None] / weight for n, t in total.items()}
    return Upload(tensors, "gradient", first.model, int(weight), first.mode)
