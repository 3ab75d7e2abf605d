"""Mixup and InstaHide: a client trains on blends of its images instead of the images themselves.

Row i of a blend is Σ_j M_ij x_j, with labels mixed by the same matrix M (LODA §3.2, Eq. 2). The
door keeps M to itself: no ``Upload`` and no ``Facts`` holds it. Experiments that grant it, as
LODA and GradAttack do for an upper bound, call ``mix`` with the client's generator and get the same
blend together with its M.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..gradients import Tensors
from ..runtime import PrivflError
from ..values import Number, Unit
from .base import Defense

TRIES = 2000  # times that coefficients over the cap are drawn again


class Mixed(NamedTuple):
    """Blended images (n, C, H, W), soft labels (n, classes) and the matrix M (n, n) behind both."""

    images: Tensor
    labels: Tensor
    matrix: Tensor


@dataclass(frozen=True)
class Mixup(Defense):
    """Blend every image of a client with ``k`` − 1 others of the same client (Zhang et al. 2018).

    A fresh blend for each call of the door, so for each round. Coefficients are Dirichlet(3, 1, …,
    1), drawn again until none is over ``cap``; the 3 belongs to the row's own image. Row i always
    contains image i, as LODA's text has it, and no image twice; GradAttack's code draws k free
    permutations, so its row i need not contain image i, and two coefficients of one image may add
    up to more than the cap. Here every image stands in exactly k rows and M_ij ≤ cap always.

    Labels become distributions over ``classes``. Blends are of one client's data: with
    ``share(…, each=b)`` those are its b images. For one gradient an image with a larger pool to
    blend from, call ``mix`` on the pool and share its images and labels without a defense.
    """

    k: Annotated[int, Number(2, 1000, whole=True)] = 4
    cap: Annotated[float, Number(0, 1, open="low")] = 0.65
    classes: Annotated[int, Number(2, 10**6, whole=True)] = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        k, cap = self.k, self.cap
        if not cap * k > 1:
            raise PrivflError(
                f"cap must be over 1/k = {1 / k:.3g}, since {k} coefficients add up to 1; got {cap}"
            )

    def data(
        self, x: Tensor, y: Tensor, rng: torch.Generator, kept: Tensors | None = None
    ) -> tuple[Tensor, Tensor]:
        members, weights = draw(len(x), self.k, self.cap, rng)
        y = distributions(y, self.classes)
        return blend(x, members, weights), blend(y, members, weights)

    def rows(self) -> int:
        return self.k  # every image stands in exactly k blends


@dataclass(frozen=True)
class InstaHide(Mixup):
    """Mixup, then an independent random sign for every pixel and channel (Huang et al. 2020).

    InstaHide flips signs of images that were centered. Ours lie in [0, 1], so a pixel of the blend
    m is reflected about ``center``: the client trains on c + s·(m − c), s = ±1, which is InstaHide
    for a network that subtracts c first. Test images stay as they are. c = ½ maps [0, 1] onto
    itself, so attacks keep their box; it is the map to [−1, 1], a flip there, and the way back. The
    public code subtracts the mean of the data set.

    What the encoding e gives away is |e − c| = |m − c|. Where most pixels lie on one side of c that
    is m itself, or its negative: blends of digits, mostly dark, show their strokes dark on bright
    for c = ½ and bright on dark for c = 0.13, their mean.

    ``crypto=True`` takes the signs from the operating system's generator, which nobody can replay.
    With ``crypto=False`` they follow from the client's seed, as an experiment that must repeat
    needs. It is no defense: the public InstaHide challenge drew its secrets from a seedable,
    non-cryptographic generator, and its key was recovered; with the signs known,
    the encodings are a linear system again (``attacks.mixup_regression``). The matrix M comes from
    the seed in both cases, so that it can be granted; in earnest it too must not.

    Unlike InstaHide's stronger variant, this one mixes with no public images.
    """

    center: Unit = 0.5
    crypto: bool = True

    def data(
        self, x: Tensor, y: Tensor, rng: torch.Generator, kept: Tensors | None = None
    ) -> tuple[Tensor, Tensor]:
        x, y = super().data(x, y, rng)
        return flip(x, None if self.crypto else rng, self.center), y

    def rows(self) -> int:
        return super().rows()  # signs are drawn for each blend by itself


def mix(
    x: Tensor, y: Tensor, rng: torch.Generator, k: int = 4, cap: float = 0.65, classes: int = 10
) -> Mixed:
    """What ``Mixup(k, cap, classes)`` makes of x and y with this generator, and its matrix M.

    With the generator in the state that the door finds it in, images and labels are the door's:
    ``generator(seed, client)`` in ``share``, ``generator(seed, 1, round, client)`` in FedAvg.
    InstaHide's encodings are ``flip(images)``, by the same M.
    """
    door = Mixup(k, cap, classes)
    members, weights = draw(len(x), door.k, door.cap, rng)
    labels = blend(distributions(y, classes), members, weights)
    matrix = torch.zeros(len(x), len(x)).scatter_(1, members, weights)
    return Mixed(blend(x, members, weights), labels, matrix.to(x))


def flip(x: Tensor, rng: torch.Generator | None = None, center: float = 0.5) -> Tensor:
    """c ± (x − c), c the center, with a fair sign for each entry: the operating system's, or rng's.

    The system's signs are the bits of ``secrets.token_bytes``.
    """
    if rng is None:
        bits = np.frombuffer(secrets.token_bytes(-(-x.numel() // 8)), np.uint8)
        heads = torch.from_numpy(np.unpackbits(bits, count=x.numel())).view(x.shape)
    else:
        heads = torch.randint(2, x.shape, generator=rng)
    return torch.where(heads.to(x.device).bool(), x, 2 * center - x)


def draw(n: int, k: int, cap: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Who is blended: members (n, k) of the rows, no one twice in a row, and weights (n, k).

    Each column is a permutation of 0…n−1, the first the identity. Where an entry would repeat
    another of its row, it changes places with a random one of its column until none does. A client
    with few images leaves hardly a choice; there the column is an assignment of random costs.
    """
    if n < k:
        raise PrivflError(f"a blend of k={k} needs a client with {k} images or more; got {n}")
    columns = [torch.arange(n)]
    while len(columns) < k:
        taken = torch.stack(columns)  # (columns so far, n)
        if n < 4 * k:
            from scipy.optimize import linear_sum_assignment  # slow to import

            cost = torch.rand(n, n, generator=rng).scatter_(1, taken.T, 1e6)
            column = torch.from_numpy(linear_sum_assignment(cost.numpy())[1])
        else:
            column = torch.randperm(n, generator=rng)
            while len(bad := (taken == column).any(0).nonzero().flatten()):
                pair = torch.stack([bad[0], torch.randint(n, (), generator=rng)])
                column[pair] = column[pair.flip(0)]
        columns.append(column)
    return torch.stack(columns, 1), coefficients(n, k, cap, rng)


def coefficients(n: int, k: int, cap: float, rng: torch.Generator) -> Tensor:
    """n draws (n, k) from Dirichlet(3, 1, …, 1), given that no entry is over ``cap``.

    A Dirichlet vector is independent gamma variables over their sum; one of shape 3 is a sum of
    three of shape 1, the exponential.
    """
    weights, todo = torch.ones(n, k), torch.arange(n)
    for _ in range(TRIES):
        gamma = torch.empty(len(todo), k + 2).exponential_(generator=rng)
        gamma = torch.cat([gamma[:, :3].sum(1, keepdim=True), gamma[:, 3:]], 1)
        weights[todo] = gamma / gamma.sum(1, keepdim=True)
        todo = (weights.amax(1) > cap).nonzero().flatten()
        if not len(todo):
            return weights
    raise PrivflError(
        f"cap={cap} is too near 1/k = {1 / k:.3g}: no coefficients under it in {TRIES} draws"
    )


def blend(t: Tensor, members: Tensor, weights: Tensor) -> Tensor:
    """Σ_j weights[i, j] · t[members[i, j]] for every row i; t is (n, …), and so is the result."""
    members, weights = members.to(t.device), weights.to(t)
    return sum(
        t[index] * w.view(-1, *[1] * (t.dim() - 1))
        for index, w in zip(members.T, weights.T, strict=True)
    )


def distributions(y: Tensor, classes: int) -> Tensor:
    """Labels (n,) as one-hot rows (n, classes); rows that are distributions already stay."""
    if y.dim() == 2:
        if y.shape[1] != classes:
            raise PrivflError(f"labels are over {y.shape[1]} classes; mixing has classes={classes}")
        return y
    if len(y) and not 0 <= y.min() <= y.max() < classes:
        raise PrivflError(
            f"labels must lie in 0…{classes - 1} with classes={classes}; "
            f"got {y.min().item()}…{y.max().item()}"
        )
    return one_hot(y, classes).to(torch.get_default_dtype())
