"""Was this image in the training set? Scores per candidate, higher for a likely member.

What the attacker may ask is the threat model. Labels only (``LabelOracle``): the gap attack and the
decision-boundary attack. Confidences (the model itself): the loss threshold and a likelihood test.
Candidates are x (N, C, H, W) in [0, 1] with true labels y (N,); ``metrics.auc`` and ``tpr_at_fpr``
judge the scores. Report the gap attack beside every other: it takes one query.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, logsigmoid

from ...arrays import MODEL, Array, Found, Images, Labels
from ...checking import Checked, checked
from ...runtime import PrivflError, generator, progress
from ...values import Count, Number, Seed, Whole, Word

Model = Annotated[nn.Module, MODEL]
Queries = Annotated[int, Number(1, 10**6, whole=True)]
Many = Annotated[Tensor, Array("images (…, C, H, W)", (4, 5, 6), finite=False, empty=True)]
Asked = Annotated[Tensor, Array("candidates (N,)", (1,), "whole", 0, empty=True)]
Scores = Annotated[Tensor, Array("a score for each candidate (N,)", (1,), "any")]
Flags = Annotated[Tensor, Array("True or False for each candidate (N,)", (1,), "bool")]

NOISE = 100  # images of uniform noise among the starting points
HALVINGS = 10  # step lengths that a round tries
ELEMENTS = 2**22  # pixels in memory at once while directions are tried


class LabelOracle:
    """A model behind a counter: hand in images, get arg-max labels, and nothing else.

    This is the threat model of label-only attacks. The oracle answers for a copy of the model as it
    is now, in eval mode; besides, only the image shape is known. ``total`` counts all images that
    it labeled, ``queries(n)`` those that were asked for each of the candidates 0…n−1.
    """

    @checked
    def __init__(self, model: Model, batch: Count = 1000):
        net, self.shape = copy.deepcopy(model).eval(), getattr(model, "shape", None)
        self.total, self._count = 0, torch.zeros(0, dtype=torch.long)
        self._ask = lambda x: _logits(net, x, batch).argmax(1)

    @checked
    @torch.no_grad()
    def __call__(self, x: Many, who: Asked | None = None) -> Tensor:
        """Labels (…) of x (…, C, H, W). Row r asks for candidate ``who[r]``; None: for no one."""
        lead, flat = x.shape[:-3], x.reshape(-1, *x.shape[-3:])
        if not len(flat):
            return flat.new_empty(lead, dtype=torch.long)
        self.total += len(flat)
        if who is not None:
            self._count = self.queries(max(len(self._count), int(who.max()) + 1))
            self._count += len(flat) // len(who) * who.cpu().bincount(minlength=len(self._count))
        return self._ask(flat).view(lead)

    def queries(self, n: int) -> Tensor:
        """How many images were asked for each of the first n candidates, (n,)."""
        return torch.cat([self._count, self._count.new_zeros(n)])[:n]


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
def gap_scores(oracle: LabelOracle, x: Images, y: Labels) -> Tensor:
    """1 where the label is right, else 0, (N,): one query each (Yeom et al. 2018, the gap attack).

    Its AUC is exactly 1/2 + (accuracy on members − accuracy on nonmembers) / 2.
    """
    x, y = _candidates(x, y, oracle.shape)
    return (oracle(x, torch.arange(len(x), device=x.device)) == y).to(x)


@checked
def loss_scores(model: Model, x: Images, y: Labels) -> Tensor:
    """Minus the cross-entropy in nats, (N,), float64 (Yeom et al. 2018, the loss threshold)."""
    return logsigmoid(_phi(model, x, y)[0])


@checked
def likelihood_scores(
    model: Model, x: Images, y: Labels, reference: tuple[Images, Labels] | None = None
) -> Tensor:
    """The scaled confidence φ = log(p_y / (1 − p_y)), (N,), float64, without shadow models.

    φ is the statistic of LiRA (Carlini et al. 2022). The loss is log(1 + e^−φ), so φ alone ranks
    candidates as ``loss_scores`` does; it is only closer to a normal distribution. LiRA asks shadow
    models how φ of *this* image spreads when it is not a member. Here ``reference`` may stand in
    for them, images (x, y) known to be no members: the score is then (φ − mean) / std over those of
    the same class (over all, for a class with under 8): LiRA's offline test with class mates.
    """
    phi, y = _phi(model, x, y)
    if reference is None:
        return phi
    known, labels = (t.to(phi.device) for t in _phi(model, *reference))
    for label in y.unique():
        mates = known[labels == label] if (labels == label).sum() >= 8 else known
        spread = mates.std(correction=0).clamp_min(1e-12)
        phi[y == label] = (phi[y == label] - mates.mean()) / spread
    return phi


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
    x, y = _candidates(x, y, oracle.shape)
    d, asked = x[0].numel(), oracle.queries(len(x))
    bisections = math.ceil(1.5 * math.log2(d))  # down to d^−1.5, as in the paper
    rounds = _rounds(budget, samples, bisections)
    pool = torch.rand(NOISE, *x.shape[1:], generator=generator(seed, 0)).to(x)
    if starts is not None:
        pool = torch.cat([_candidates(starts, None, x.shape[1:])[0].to(x), pool])
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


def _phi(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """z_y − logsumexp of the other logits, (N,), and y; in float32 confident answers would tie."""
    x, y = _candidates(x, y, getattr(model, "shape", None))
    net = copy.deepcopy(model).eval()
    with torch.no_grad():
        z = _logits(net, x, 500).double()
    if y.min() < 0 or y.max() >= z.shape[1]:
        raise PrivflError(f"labels must lie in 0…{z.shape[1] - 1}; got {y.min()} to {y.max()}")
    own, others = z.gather(1, y[:, None]), z.scatter(1, y[:, None], -torch.inf)
    return own[:, 0] - others.logsumexp(1), y


def _logits(net: nn.Module, x: Tensor, batch: int) -> Tensor:
    """Logits (N, classes) of x, computed where the network is, and handed back to where x is."""
    home = next((p.device for p in net.parameters()), x.device)
    return torch.cat([net(part.to(home)) for part in x.split(batch)]).to(x.device)


def _candidates(x: Tensor, y: Tensor | None, shape: tuple[int, ...] | None) -> tuple[Tensor, ...]:
    good = torch.is_tensor(x) and x.is_floating_point() and x.dim() == 4 and len(x)
    if not good or (shape and tuple(x.shape[1:]) != tuple(shape)):
        want = ", ".join(map(str, shape or ("C", "H", "W")))
        got = tuple(x.shape) if torch.is_tensor(x) else type(x).__name__
        raise PrivflError(f"images must be a float tensor (N, {want}), N at least 1; got {got}")
    if not (x.min() >= 0 and x.max() <= 1):
        raise PrivflError("images must have pixels in [0, 1], none of them NaN")
    labels = x[:, 0, 0, 0].long() if y is None else y  # None: images without labels
    if not torch.is_tensor(labels) or labels.is_floating_point() or labels.shape != x.shape[:1]:
        raise PrivflError(f"{len(x)} images need an integer tensor of {len(x)} labels")
    return x.detach(), labels.to(x.device)
