"""Identification: does what was found single out the private image among others like it?

A picture may be legible at a low PSNR and a blind guess may have a high one; this score has a
chance level that is known beforehand (chapters: measuring leakage, reach).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import torch
from torch import Tensor

from ..arrays import Array, Found, Images, Labels
from ..checking import Checked, checked
from ..models.extractor import Extractor, load_extractor
from ..runtime import PrivflError, device, generator
from ..values import Count, Either, Holds, Number, Seed, Word
from .pairs import as_image, pair
from .statistics import wilson

AT_ONCE = 64  # images through the feature net at a time
Ranks = Annotated[Tensor, Array("ranks (N,), whole numbers, 1 or more", (1,), "whole", 1)]
Many = Annotated[int, Number(2, 10**6, whole=True)]
Judge = Annotated[
    str | Callable[[Tensor], Tensor],
    Either(
        (
            Word("judge in by=", "pixels", "features"),
            Holds("a function of images (B, C, H, W) to rows (B, D)", callable),
        )
    ),
]


@dataclass(frozen=True)
class Identification(Checked):
    """At which place of ``of`` candidates the private image of each row came: 1 is identified."""

    ranks: Ranks  # (N,)
    of: Many

    @property
    def hits(self) -> int:
        """Private images that came first."""
        return int((self.ranks == 1).sum())

    @property
    def rate(self) -> float:
        return self.hits / len(self.ranks)

    @property
    def chance(self) -> float:
        """The rate of whoever knows nothing (``prop-chance-identification``)."""
        return 1 / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the rate, for images that are independent of one another."""
        return wilson(self.hits, len(self.ranks))

    @property
    def median(self) -> float:
        """The median rank; (of + 1) / 2 for a guess."""
        return self.ranks.double().quantile(0.5).item()

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"Identification: {self.hits} of {len(self.ranks)} first among {self.of}, rate "
            f"{self.rate:.2f} [{low:.2f}, {high:.2f}], chance {self.chance:.3g}, "
            f"median rank {self.median:g}"
        )


@checked
def identify(
    found: Found,
    truth: Images,
    pool: Images,
    of: Many | None = None,
    by: Judge = "pixels",
    batch: Count = 1,
    labels: Labels | None = None,
    pool_labels: Labels | None = None,
    seed: Seed = 0,
) -> Identification:
    """The rank of each private image among ``of`` candidates, by distance to what was found.

    ``truth[i]`` competes with ``of`` − 1 images drawn from ``pool``, those that equal it left out;
    with ``of=None`` with all of them. ``labels`` of the private images and ``pool_labels`` ask for
    candidates of the same class only: the harder question, after the label is known.
    ``by``: "pixels" (Euclidean, after ``as_image``), "features" (what the first five convolutions
    of the public network in ``models.extractor`` say, each layer scaled to length 1; it sees
    through a blend with noise, and less through blur), or a function that makes rows.

    ``batch`` images were found behind each upload, and in an order that means nothing: a
    candidate's distance is that to the nearest of them. No permutation is chosen by the truth, so
    a guess still has chance 1 / ``of`` exactly. Ties are broken by lot.
    """
    found, truth = pair(found, truth)
    pool = pool.to(truth)
    if pool.shape[1:] != truth.shape[1:] or len(truth) % batch:
        raise PrivflError(
            f"pool must hold images {tuple(truth.shape[1:])} and batch divide {len(truth)} images; "
            f"got {tuple(pool.shape[1:])} and {batch}"
        )
    allowed = torch.stack([(pool != x).flatten(1).any(1) for x in truth])  # (N, M)
    allowed &= _same_class(truth, pool, labels, pool_labels)
    most = 1 + int(allowed.sum(1).min())
    if (of or most) > most or most < 2:
        raise PrivflError(f"the pool has candidates for at most {most}; got of={of}")
    of = of or most
    rng = generator(seed, 2)
    lots = torch.rand(len(truth), len(pool), generator=rng).to(truth)
    drawn = torch.where(allowed, lots, -1).topk(of - 1).indices  # (N, of - 1)
    far = _distances(as_image(found), torch.cat([truth, pool]), by, batch)  # (N, N + M)
    own, others = far.diagonal()[:, None], far[:, len(truth) :].gather(1, drawn)
    tied = torch.rand(len(truth), of, generator=rng).to(truth)
    lost = (others == own) & (tied[:, 1:] < tied[:, :1])
    return Identification(1 + ((others < own) | lost).sum(1), of)


def _same_class(truth: Tensor, pool: Tensor, y: Tensor | None, pool_y: Tensor | None) -> Tensor:
    """Which images of the pool have the label of each private one, (N, M)."""
    if y is None and pool_y is None:
        return truth.new_ones(len(truth), len(pool), dtype=torch.bool)
    if y is None or pool_y is None or (len(y), len(pool_y)) != (len(truth), len(pool)):
        raise PrivflError("labels and pool_labels go together, one for each image of both")
    return y.to(truth.device)[:, None] == pool_y.to(truth.device)[None]


def _distances(found: Tensor, candidates: Tensor, by: Judge, batch: int) -> Tensor:
    """From the nearest image behind an upload to each candidate, (N, candidates)."""
    known: dict[str, Callable[[Tensor], Tensor]] = {"pixels": _pixels, "features": _features}
    rows = known[by] if isinstance(by, str) else by
    exact = "donot_use_mm_for_euclid_dist"  # rounding must not decide
    with torch.no_grad():
        seen = torch.cat([rows(some) for some in found.split(AT_ONCE)])
        parts = (torch.cdist(seen, rows(c), compute_mode=exact) for c in candidates.split(AT_ONCE))
        far = torch.cat(list(parts), 1)
    return far.unflatten(0, (-1, batch)).amin(1).repeat_interleave(batch, 0)


def _pixels(x: Tensor) -> Tensor:
    return x.flatten(1)


def _features(x: Tensor) -> Tensor:
    """What the fixed network says of images, gray or in color, each layer of length 1: (B, D)."""
    if x.shape[1] not in (1, 3):
        raise PrivflError(f"by='features' needs images with 1 or 3 channels, not {x.shape[1]}")
    net = _net(device())
    seen = net(x.expand(-1, 3, -1, -1).to(next(net.net.parameters())))
    return torch.cat([torch.nn.functional.normalize(t.flatten(1), dim=1) for t in seen], 1).to(x)


@lru_cache
def _net(where: torch.device) -> Extractor:
    """The network, once on each device: it is made where ``where`` is in use."""
    return load_extractor("loda1")
