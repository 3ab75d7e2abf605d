"""SPEAR: exact batches behind a ReLU layer, from zeros (Dimitrov et al. 2024). Chapter: reach.

For a dense layer z = W x + b followed by a ReLU, ∇W = D Xᵀ and ∇b = D 1, where column j of
D (m, B) is ∂ℓ/∂z of image j, and is zero in every unit that is off for it. The column space of
[∇W ∇b] is that of D, so D = L Q for a basis L (m, B) and some invertible Q, and the images are
X = Q⁻¹ R, their scale fixed by the last coordinate, which is 1. A column of Q is the null vector of
any B − 1 independent rows of L in which that image's units are off. So: draw B − 1 rows, take
their null vector, keep it if L q has more zeros than were asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ...runtime import PrivflError, generator, progress
from ...values import Count
from ...wire import Upload
from ..base import Attack, Reconstruction
from ..labels import known_labels
from .closed_form import first_dense

CHUNK = 4096  # proposals at a time
SURE = 0.9999  # agreement at which the search ends: a strong sign of success, not a proof


@dataclass(frozen=True)
class Layer:
    """The gradient of a dense layer in a basis of its row space; rows that are not zero."""

    rows: Tensor  # (m', B), of length 1
    basis: Tensor  # (n + 1, B), orthonormal
    sizes: Tensor  # (m',): lengths of the rows before
    live: Tensor  # (m,): which units are on for some image
    noise: Tensor  # (m',): how far a row is from the span, relative to its length


@dataclass
class Directions:
    """Columns of Q that were found: unit vectors, and the rows in which each is zero."""

    q: Tensor  # (k, B)
    zeros: Tensor  # (k, m')


@dataclass(frozen=True)
class Batch:
    """What was found behind one upload."""

    inputs: Tensor  # (B, n)
    agreement: float  # of D's zeros with the units that are off for these inputs
    proposals: int
    directions: int


def decompose(g_weight: Tensor, g_bias: Tensor, count: int) -> Layer:
    """A rank-``count`` basis of [∇W ∇b], (m, n + 1), and its rows in it."""
    both = torch.cat([g_weight, g_bias[:, None]], 1).double()
    basis = torch.linalg.svd(both, full_matrices=False)[2][:count].T
    rows = both @ basis
    sizes = rows.norm(dim=1)
    live = sizes > 1e-6 * sizes.max()
    rest = (both - rows @ basis.T).norm(dim=1) / max(1, both.shape[1] - count) ** 0.5
    rows, sizes, rest = rows[live], sizes[live], rest[live]
    return Layer(rows / sizes[:, None], basis, sizes, live, (rest / sizes).clamp(min=1e-15))


def propose(layer: Layer, number: int, rng: torch.Generator) -> Tensor:
    """Null vectors (number, B) of B − 1 rows drawn at random, each."""
    m, b = layer.rows.shape
    drawn = torch.rand(number, m, generator=rng).topk(b - 1).indices
    rows = layer.rows[drawn.to(layer.rows.device)]  # (number, B - 1, B)
    return torch.linalg.qr(rows.mT, mode="complete")[0][:, :, -1]


def distinct(q: Tensor, score: Tensor, most: int) -> Tensor:
    """Which of the directions (k, B) to keep: the best of those that agree, at most ``most``."""
    kept: list[Tensor] = []
    left = score.argsort(descending=True, stable=True)
    while len(left) and len(kept) < most:
        kept.append(left[0])
        left = left[(q[left] @ q[left[0]]).abs() < 1 - 1e-6]
    return torch.stack(kept) if kept else left


def refine(layer: Layer, q: Tensor, loose: Tensor, tight: Tensor) -> tuple[Tensor, Tensor]:
    """Fit a direction to all rows that look like its zeros; the direction, and its zeros (m',)."""
    for bound in (loose, tight, tight):
        zero = (layer.rows @ q).abs() < bound
        if zero.sum() < len(q) - 1:
            break
        q = torch.linalg.svd(layer.rows[zero], full_matrices=False)[2][-1]
    return q, (layer.rows @ q).abs() < tight


def undominated(found: Directions) -> Directions:
    """Leave out directions whose zeros are among those of another with more of them.

    A mixture of images j and k is zero where the units of both are off, so where those of j are.
    """
    zeros = found.zeros.double()
    outside = zeros @ (1 - zeros).T  # (k, k): zeros of the one that the other lacks
    size = zeros.sum(1)
    inside = (outside <= 0.02 * size[:, None]) & (size[None] > 1.02 * size[:, None])
    keep = ~inside.any(1)
    return Directions(found.q[keep], found.zeros[keep])


def independent(found: Directions, count: int) -> Tensor | None:
    """Q (B, B) of the directions with most zeros that are linearly independent, if there are B."""
    order = found.zeros.sum(1).argsort(descending=True, stable=True)
    chosen: list[Tensor] = []
    for q in found.q[order]:
        trial = torch.stack([*chosen, q], 1)
        if torch.linalg.svdvals(trial)[-1] > 1e-4:
            chosen.append(q)
        if len(chosen) == count:
            return trial
    return None


def read(layer: Layer, q: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, float]:
    """Inputs (B, n) that Q gives; how well the zeros of D agree with the units they leave off."""
    inputs = torch.linalg.solve(q, layer.basis.T)  # (B, n + 1)
    scale = inputs[:, -1]
    if scale.abs().min() < 1e-12:
        return inputs[:, :-1], 0.0
    inputs = inputs[:, :-1] / scale[:, None]
    errors = (layer.rows @ q).abs() / layer.noise[:, None]  # in units of the noise of a row
    on = inputs @ weight.T + bias > 0  # (B, m)
    agree = (errors > 50) == on[:, layer.live].T
    return inputs, agree.double().mean().item()


def spear(
    g_weight: Tensor, g_bias: Tensor, weight: Tensor, bias: Tensor, count: int,
    proposals: int, rng: torch.Generator, show: bool = False,
) -> Batch:  # fmt: skip
    """The ``count`` inputs of one layer (m, n) with ReLU, from its gradients; float64 inside."""
    weight, bias = weight.detach().double(), bias.detach().double()
    layer = decompose(g_weight, g_bias, count)
    if len(layer.rows) < count:
        raise PrivflError(f"{len(layer.rows)} units answer, too few for a batch of {count} images")
    if count == 1:  # every unit that answers is on, and the one direction is known
        inputs, agreement = read(layer, layer.rows.new_ones(1, 1), weight, bias)
        return Batch(inputs, agreement, 0, 1)
    loose, tight = (1000 * layer.noise).clamp(1e-8, 0.05), (50 * layer.noise).clamp(1e-10, 0.02)
    found = Directions(layer.rows.new_empty(0, count), layer.rows.new_empty(0, len(layer.rows)))
    best = Batch(layer.basis.new_full((count, weight.shape[1]), 0.5), 0.0, 0, 0)
    rounds = range(math.ceil(proposals / CHUNK))
    for i in progress(rounds, "SPEAR", show=show):
        found = _grow(layer, found, propose(layer, CHUNK, rng), loose, tight)
        q = independent(found, count)
        used = CHUNK * (i + 1)
        if q is None:
            best = Batch(best.inputs, best.agreement, used, len(found.q))
            continue
        inputs, agreement = read(layer, q, weight, bias)
        if agreement >= best.agreement:
            best = Batch(inputs, agreement, used, len(found.q))
        if agreement > SURE:
            break
    return best


def _grow(layer: Layer, found: Directions, q: Tensor, loose: Tensor, tight: Tensor) -> Directions:
    """What was found before and what these proposals add: more zeros than were asked for."""
    b = q.shape[1]
    zeros = ((q @ layer.rows.T).abs() < loose).sum(1)
    q, zeros = q[zeros > b], zeros[zeros > b]
    if len(found.q):
        new = ((q @ found.q.T).abs() < 1 - 1e-6).all(1)
        q, zeros = q[new], zeros[new]
    pairs = [refine(layer, v, loose, tight) for v in q[distinct(q, zeros, 8 * b)]]
    pairs = [(v, z) for v, z in pairs if z.sum() > b]
    if not pairs:
        return found
    vs, zs = (torch.stack(part) for part in zip(*pairs, strict=True))
    q, z = torch.cat([found.q, vs]), torch.cat([found.zeros, zs.to(found.zeros)])
    kept = distinct(q, z.sum(1), 16 * b)
    return undominated(Directions(q[kept], z[kept]))


@dataclass(frozen=True)
class Spear(Attack):
    """Read a whole batch behind a first dense layer with ReLU (Dimitrov et al. 2024, Algorithm 1).

    Where it ends with agreement 1 (``details["agreement"]``), the found images leave off just the
    units in which the gradient has zeros: a strong sign of success, and no proof. ``proposals``
    bounds the work; about f^(1−B) are needed for each image, where f is the share of units that are
    off for it. An update of several steps is read as well: it mixes the same images, and zeros are
    left where a unit was off at every step (``lem-reach-mixture``). It ends at smooth activations,
    at a batch wider than the layer, and where noise fills the zeros.
    """

    proposals: Count = 400_000
    show: bool = field(default=True, repr=False)
    letter = "B"

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        self.check(upload)
        name, layer = first_dense(upload, "Spear")
        if not any(isinstance(m, nn.ReLU) for m in upload.model.modules()):
            raise PrivflError("Spear needs ReLU: other activations leave no zeros in the gradient")
        g = upload.gradients()
        batches = [
            spear(g[f"{name}.weight"][u], g[f"{name}.bias"][u], layer.weight, layer.bias,
                  upload.batch, self.proposals, generator(seed, 0), self.show)
            for u in range(len(upload))
        ]  # fmt: skip
        labels = known_labels(upload)
        like = g[f"{name}.weight"]
        images = torch.stack([b.inputs for b in batches]).to(like)
        cost = like.new_tensor([1 - b.agreement for b in batches])
        said = ("agreement", "proposals", "directions")
        details = {name: [getattr(b, name) for b in batches] for name in said}
        shape = tuple(upload.model.shape)
        return Reconstruction(images.reshape(-1, *shape), labels.flatten(), cost, details=details)
