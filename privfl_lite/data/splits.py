"""The split of examples over clients: iid, by shards of labels, or by Dirichlet proportions."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from ..arrays import Array
from ..checking import checked
from ..runtime import PrivflError
from ..values import Count, Number, Seed, Word

Named = Annotated[Tensor, Array("labels (N,), whole numbers", (1,), "whole", 0, loose=True)]
How = Annotated[str, Word("partition", "iid", "shards", "dirichlet")]
Alpha = Annotated[float, Number(1e-6, 1e6)]


@checked
def partition(
    labels: Named,
    clients: Count,
    how: How = "iid",
    per_client: Count | None = None,
    alpha: Alpha = 0.5,
    shards: Count = 2,
    seed: Seed = 0,
) -> list[Tensor]:
    """Split examples with these ``labels`` (N,) over clients: one int64 index tensor per client.

    ``iid``: shuffled. ``shards``: sorted by label and cut in clients x shards pieces, ``shards``
    random ones a client (McMahan et al. 2017). ``dirichlet``: each class is dealt in proportions
    from Dirichlet(alpha) (Hsu et al. 2019); with ``per_client``, each client draws its own class
    proportions and takes from what is left, so the last clients of a used-up set are less skewed.
    Parts are disjoint and never empty; each holds exactly ``per_client``, or else together all N
    (for iid and shards, their sizes then differ by at most one).
    """
    n, need = len(labels), clients * (per_client or 1)
    if need > n:
        raise PrivflError(
            f"{clients} clients with {per_client or 1} or more examples each need {need}, "
            f"but there are {n}"
        )
    y, rng = torch.as_tensor(labels).cpu().numpy(), np.random.default_rng(int(seed) % 2**63)
    if how == "dirichlet" and per_client:
        owner = _dirichlet_exact(y, clients, per_client, alpha, rng)
    elif how == "dirichlet":
        owner = _dirichlet(y, clients, alpha, rng)
    else:
        even = len(y) // clients + (np.arange(clients) < len(y) % clients)
        sizes = np.full(clients, per_client) if per_client else even
        owner = _deal(y, sizes, shards if how == "shards" else 0, rng)
    parts = (np.flatnonzero(owner == client) for client in range(clients))
    return [torch.from_numpy(rng.permutation(part)) for part in parts]


# The next three return the owner (N,) of each example, -1 for none.


def _deal(y: np.ndarray, sizes: np.ndarray, shards: int, rng: np.random.Generator) -> np.ndarray:
    """``sizes`` (clients,) examples each, shuffled; with ``shards``, that many sorted pieces."""
    pool = rng.permutation(len(y))[: sizes.sum()]
    if shards:
        pool = pool[np.argsort(y[pool], kind="stable")]
    count = max(shards, 1)
    pieces = sizes[:, None] // count + (np.arange(count) < sizes[:, None] % count)
    order = rng.permutation(pieces.size)
    owner = np.full(len(y), -1)
    owner[pool] = np.repeat(order // count, pieces.ravel()[order])
    return owner


def _dirichlet(y: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    owner = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        where = rng.permutation(np.flatnonzero(y == label))
        ends = np.cumsum(rng.dirichlet(np.full(clients, alpha))) * len(where)
        owner[where] = np.searchsorted(ends[:-1], np.arange(len(where)) + 0.5)
    for client in np.flatnonzero(np.bincount(owner, minlength=clients) == 0):
        largest = np.bincount(owner).argmax()
        owner[rng.choice(np.flatnonzero(owner == largest))] = client
    return owner


def _dirichlet_exact(
    y: np.ndarray, clients: int, per_client: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    stacks = [rng.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    left = np.array([len(stack) for stack in stacks])  # (classes,)
    owner = np.full(len(y), -1)
    for client in range(clients):
        share = rng.dirichlet(np.full(len(left), alpha))
        take = np.zeros_like(left)
        while (missing := per_client - take.sum()) > 0:
            room = left - take
            p = share * (room > 0)  # classes that ran out hand their share to the others
            p = p / p.sum() if p.sum() > 0 else room / room.sum()
            take += np.minimum(rng.multinomial(missing, p), room)
        for stack, end, count in zip(stacks, left, take, strict=True):
            owner[stack[end - count : end]] = client
        left -= take
    return owner
