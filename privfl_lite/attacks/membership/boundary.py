"""The decision-boundary attack: how far a candidate is from another label, by labels alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ...arrays import Array, Found, Images, Labels
from ...checking import Checked, checked
from ...runtime import PrivflError, generator, progress
from ...values import Number, Seed, Whole, Word
from .scores import LabelOracle, candidates

Queries = Annotated[int, Number(1, 10**6, whole=True)]
Scores = Annotated[Tensor, Array("a score for each candidate (N,)", (1,), "any")]
Flags = Annotated[Tensor, Array("True or False for each candidate (N,)", (1,), "bool")]

NOISE = 100  # images of uniform noise among the starting points
HALVINGS = 10  # step lengths that a round tries
ELEMENTS = 2**22  # pixels in memory at once while directions are tried


@dataclass(frozen=True)
class Boundary(Checked):
    """What the decision-boundary attack found for N candidates.

    ``scores`` is the L2 distance to the nearest point found with another label than y: an upper
    bound of the true distance. It is 0 for a candidate that is misclassified already, and
    sqrt(C·H·W), the most that [0, 1] allows, where no image with another label was found; those are
    marked in ``failed`` (the public code drops them: ``scores[~failed]``).
    """

    scores: Scores  # (N,)
    adversarial: Found  # (N, C, H, W); the candidate itself where its score is 0; NaN where failed
    queries: Scores  # (N,) images asked for this candidate, at most the budget
    shared: Whole  # images asked once for all: the pool of starting points
    failed: Flags  # (N,) bool


@checked
@torch.no_grad()
def boundary_scores(
    oracle: LabelOracle,
    x: Images,
    y: Labels,
    budget: Queries = 2000,
    subspace: Annotated[str, Word("subspace", "full", "resize")] = "full",
    samples: Queries = 100,
    starts: Images | None = None,
    seed: Seed = 0,
    show: bool = True,
) -> Boundary:
    """L2 distance of each candidate to the decision boundary, from labels alone.

    Membership by distance: Choquette-Choo et al. 2021, Li and Zhang 2021. The search is HopSkipJump
    (Chen et al. 2020) with ``subspace="full"``, and QEBA-S (Li et al. 2020) with ``"resize"``:
    directions drawn at half resolution and enlarged bilinearly, which find smooth gradients with
    fewer queries and rough ones never. Round t asks ``samples``·sqrt(t) points around the current
    one for a direction, takes the longest of 10 steps (each half the one before) whose label is
    wrong, and bisects back to the boundary, for as long as ``budget`` (queries a candidate) lasts.

    The first point is the nearest of a pool that has another label: ``starts`` (M, C, H, W), images
    of the attacker's own, and 100 of uniform noise (often all of one class). All candidates share
    pool and directions, so that a score does not depend on who else is tested.
    """
    x, y = candidates(x, y, oracle.shape)
    d, asked = x[0].numel(), oracle.queries(len(x))
    bisections = math.ceil(1.5 * math.log2(d))  # down to d^−1.5, as in the paper
    rounds = _rounds(budget, samples, bisections)
    pool = torch.rand(NOISE, *x.shape[1:], generator=generator(seed, 0)).to(x)
    if starts is not None:
        pool = torch.cat([candidates(starts, None, x.shape[1:])[0].to(x), pool])
    right = oracle(x, torch.arange(len(x), device=x.device)) == y
    gap = torch.cdist(x.flatten(1), pool.flatten(1), compute_mode="donot_use_mm_for_euclid_dist")
    gap = gap.masked_fill(oracle(pool) == y[:, None], torch.inf)
    failed = right & gap.amin(1).isinf()
    who = (right & ~failed).nonzero().flatten()  # only these have a boundary to look for
    a, b = x[who], y[who]

    def wrong(images: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:  # (rows, …)
        return oracle(images, who[rows]) != b[rows].view(-1, *(1,) * (images.dim() - 4))

    best = point = _bisect(wrong, a, pool[gap.argmin(1)[who]], bisections)
    for t, count in enumerate(progress(rounds, "boundary", show=show), 1):
        reach = _length(point - a)
        delta = torch.full_like(reach, 0.1) if t == 1 else reach / d
        v = _estimate(wrong, point, delta, _directions(count, x, subspace, generator(seed, 1, t)))
        point = _bisect(wrong, a, _step(wrong, point, v, reach / math.sqrt(t)), bisections)
        best = point.where(_length(point - a) < _length(best - a), best)
    scores, points = torch.zeros_like(x[:, 0, 0, 0]), x.clone()
    scores[who], points[who] = _length(best - a).flatten(), best
    scores[failed], points[failed] = math.sqrt(d), torch.nan
    return Boundary(scores, points, oracle.queries(len(x)) - asked, len(pool), failed)


def _rounds(budget: int, samples: int, bisections: int) -> list[int]:
    """How many directions each round tries; the last may get only half of ``samples``."""
    left, rest = budget - 1 - bisections, HALVINGS + bisections
    counts: list[int] = []
    if left < 0 or samples < 2:
        want = f"at least {1 + bisections} queries a candidate, samples at least 2"
        raise PrivflError(f"budget must be {want}; got {budget} and {samples}")
    while (n := min(int(samples * math.sqrt(len(counts) + 1)), left - rest)) >= samples // 2:
        counts.append(n)
        left -= n + rest
    return counts


def _bisect(wrong: Callable, x: Tensor, far: Tensor, steps: int) -> Tensor:
    """The point on the line from x to ``far`` where the label changes, on the wrong side of it."""
    low, high = torch.zeros_like(x[:, :1, :1, :1]), torch.ones_like(x[:, :1, :1, :1])
    for _ in range(steps):
        middle = (low + high) / 2
        over = wrong(x.lerp(far, middle))[:, None, None, None]
        low, high = middle.where(~over, low), middle.where(over, high)
    return x.lerp(far, high)


def _directions(count: int, x: Tensor, subspace: str, rng: torch.Generator) -> Tensor:
    """Random directions of length 1, (count, C, H, W)."""
    c, *size = x.shape[1:]
    small = size if subspace == "full" else [-(-side // 2) for side in size]
    u = torch.randn(count, c, *small, generator=rng).to(x)
    u = interpolate(u, size, mode="bilinear")  # of the full size: changes nothing
    return u / _length(u)


def _estimate(wrong: Callable, point: Tensor, delta: Tensor, u: Tensor) -> Tensor:
    """Which way the wrong label lies: the mean direction, weighted by ±1, the label's side."""
    found = []
    everyone = torch.arange(len(point), device=point.device)
    for k in everyone.split(max(1, ELEMENTS // u.numel())):
        here = point[k, None]
        near = (here + delta[k, None] * u).clamp(0, 1)  # (k, count, C, H, W)
        side = wrong(near, k).to(point) * 2 - 1  # (k, count)
        mean = side.mean(1, keepdim=True)
        weight = torch.where(mean.abs() < 1, side - mean, side)  # their mean is the baseline
        v = (weight[:, None] @ (near - here).flatten(2)).view_as(point[k])
        found.append(v / _length(v).clamp_min(1e-30))
    return torch.cat(found)


def _step(wrong: Callable, point: Tensor, v: Tensor, length: Tensor) -> Tensor:
    """The longest step along v, of lengths halved again and again, that ends at a wrong label."""
    eps = length[:, None] / 2 ** torch.arange(HALVINGS).view(-1, 1, 1, 1).to(point)
    new = (point[:, None] + eps * v[:, None]).clamp(0, 1)  # (N, HALVINGS, C, H, W)
    hit = wrong(new)
    longest = new[
        torch.arange(len(new), device=new.device), hit.int().argmax(1)
    ]  # argmax: the first
    return longest.where(hit.any(1).view(-1, 1, 1, 1), point)  # or no step at all


def _length(v: Tensor) -> Tensor:
    return v.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
