"""FedKL (Ren et al. 2023): scale and shift of a normalization come from a private key.

The server averages everything but the locks, so that each client has a model of its own. Chapter:
FedKL.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import torch
from torch import Tensor

from ..gradients import Tensors
from ..models import Net
from ..models.keylock import Activation, Blocks, KeyLength, coefficients, lock, lock_matrix, locks
from ..runtime import PrivflError, generator
from ..values import Positive, Seed
from ..wire import Facts
from .base import Context, Defense

KEY, WEIGHTS = 0, 1  # purposes of a client's random numbers


@dataclass(frozen=True)
class FedKL(Defense):
    """Each client has its own key, ``key_length`` numbers from U[0, 1), and its own lock (Eq. 30).

    Neither leaves the client; the lock is trained with the rest, the key never changes. ``blocks``:
    "first" convolution, as in the paper, "all", or "chained" (``keylock.lock``). ``activation`` of
    γ and β: "none" (Eq. 30), "relu" (the released code) or "sigmoid". ``init``: as in
    ``keylock.lock``.

    ``fresh=False``: all clients begin with the lock weights that the server sent (Sec. 3.4), so
    that in their first round the key alone is secret. ``fresh=True``: each draws its own.
    ``share_statistics``: running mean and variance of the locked normalizations are averaged like
    all others (as in the released code), or stay at home. ``share_lock`` lets the lock leave and be
    averaged, so that only the key is secret (Table 7, "Lock").

    Keys come from the operating system's cryptographic generator. A ``seed`` makes them
    reproducible, and known to whoever knows the seed: for studies only.
    """

    key_length: KeyLength = 1024
    activation: Activation = "none"
    blocks: Blocks = "first"
    init: Positive | None = None
    fresh: bool = False
    share_statistics: bool = True
    share_lock: bool = False
    seed: Seed | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fresh and self.share_lock:
            raise PrivflError("fresh=True and share_lock=True exclude each other")

    def model(self, model: Net) -> Net:
        """The locked network; one that is locked already stays as it is."""
        if any(locks(model)):
            return model
        how = self.key_length, self.activation, self.blocks, self.init
        return lock(model, *how, seed=self.seed or 0)

    def leaves(self, name: str) -> bool:
        """The key never leaves; lock and statistics as the settings say."""
        if name.endswith(".lock.key"):
            return False
        if ".lock." in name:
            return self.share_lock
        return self.share_statistics or ".norm." not in name  # Locked.norm

    def facts(self, ctx: Context) -> Facts:
        """Over all locks: key (U, S); lock (U, 2C, S + 1), rows of weights and bias, scale before
        shift; coefficients (U, 2C), γ before β."""
        homes, names = [ctx.memory.private[c] for c in ctx.who], [n for n, _ in locks(ctx.model)]
        key = torch.stack([h[f"{names[0]}.lock.key"] for h in homes])
        if self.share_lock or self.blocks == "chained":  # a chain's locks fit into no one matrix
            return Facts(key=key)
        lock = torch.stack([lock_matrix(h, names) for h in homes])
        return Facts(key=key, lock=lock, coefficients=coefficients(lock, key, self.activation))

    def begin(self, model: Net, client: int) -> Tensors:
        """Key, lock weights and, unless shared, statistics, as this client has them at first."""
        mine = {n: t.clone() for n, t in model.state_dict().items() if not self.leaves(n)}
        key = uniform(self.key_length, self.seed, client, KEY)
        bound = self.init or self.key_length**-0.5
        for i, n in enumerate(mine):
            if n.endswith(".lock.key"):
                mine[n] = key.to(mine[n])
            elif self.fresh and ".lock." in n:
                draw = uniform(mine[n].numel(), self.seed, client, WEIGHTS, i)
                mine[n] = ((2 * draw - 1) * bound).view_as(mine[n]).to(mine[n])
        return mine


def uniform(count: int, seed: int | None, *stream: int) -> Tensor:
    """Numbers from U[0, 1), 24 bits each: of the cryptographic generator, or of a seeded one."""
    if seed is not None:
        return torch.rand(count, generator=generator(seed, *stream))
    raw = torch.frombuffer(bytearray(secrets.token_bytes(4 * count)), dtype=torch.int32)
    return (raw.long() & 0xFFFFFF) / 2**24
