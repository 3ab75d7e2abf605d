"""CA-FL: compressed sensing, then local differential privacy by layer (Miao et al. 2022).

We found no public code. From the paper's abstract: local models are compressed by compressed
sensing; each remaining value is perturbed by the center of its layer's range and its own offset
from that center; this is ε-LDP and without bias; the server reconstructs. The perturbation that
fits (center, offset, no bias) is that of LDP-FL (Sun, Qian and Chen 2021), used here. Everything
else is said below to be reconstructed. Model Entanglement compares with ε = 5 and ratio 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from ..gradients import Tensors
from ..privacy.mechanisms import Mechanism, Pure
from ..runtime import generator
from ..values import Number, Positive, Seed, Word
from ..wire import Facts
from .base import Context, Defense
from .noise import Source, uniform
from .pogz import by_layer, from_layers, layer_names

BLOCK = 256  # reconstructed: at most so many entries are measured together


@dataclass(frozen=True)
class CAFL(Defense):
    """Measure each layer's update, y = ΦΔ; randomize every y to two values; reconstruct.

    ``ratio``: measurements an entry. ``eps``: the budget ε of *one measurement*. ``radius``: the
    public range of a measurement, [−radius, radius], outside of which it is clipped; None takes
    each client's own range, layer by layer. ``decoder``: "transpose", the shortest vector with
    these measurements, Φᵀy; or "omp", a sparse one found by orthogonal matching pursuit, with a
    quarter as many nonzero entries as measurements.

    With center c, radius r and k = coth(ε/2), y leaves as c + r k with probability
    1/2 + (y − c)/(2 r k), else as c − r k. The mean is y, the variance r²k² − (y − c)². The
    probability of either value is at least (1 − 1/k)/2 and at most (1 + 1/k)/2, a factor of
    (k + 1)/(k − 1) = e^ε.

    Reconstructed: it is the update that is measured, not the model (the server knows θ, and Φ is
    linear, so this is the same with a smaller range); Φ has orthonormal Gaussian rows and is drawn
    anew each round, for all clients, from ``seed`` and the round, so that no direction is never
    sent; blocks of up to 256 entries. In the paper the server reconstructs the *mean* of the
    measurements. Here the upload is the reconstruction for one client, since an upload has the
    model's shape: the same for "transpose", which is linear; for "omp" it is not. ``measure`` and
    ``perturb`` give what really travels.
    """

    eps: Annotated[float, Number(1e-12)] = 5.0
    ratio: Annotated[float, Number(0, 1, open="low")] = 0.1
    radius: Positive | None = None
    decoder: Annotated[str, Word("decoder", "transpose", "omp")] = "transpose"
    seed: Seed = 0
    blind = ("update",)

    def _blocks(self, n: int) -> tuple[int, int, int]:
        """(blocks, entries a block, measurements a block) for a layer of n entries."""
        count = -(-n // BLOCK)
        size = -(-n // count)
        return count, size, math.ceil(self.ratio * size)

    def matrix(self, layer: int, n: int, round: int) -> Tensor:
        """Φ for one block of the ``layer``-th layer, (measurements, entries), rows orthonormal."""
        _, size, rows = self._blocks(n)
        rng = generator(self.seed, round, layer)
        draw = torch.randn(size, rows, generator=rng, dtype=torch.float64)
        return torch.linalg.qr(draw).Q.T

    def measure(self, delta: Tensors, round: int = 0) -> Tensors:
        """y: layer -> (K, blocks, measurements), from tensors (K, *shape)."""
        y = {}
        for i, (layer, t) in enumerate(by_layer(delta).items()):
            count, size, _ = self._blocks(t.shape[1])
            whole = nn.functional.pad(t, (0, count * size - t.shape[1])).view(len(t), count, size)
            y[layer] = whole @ self.matrix(i, t.shape[1], round).to(t).T
        return y

    def perturb(self, y: Tensors, sources: Sequence[Source]) -> Tensors:
        """Each measurement as one of two values, c + r k or c − r k: what travels."""
        k, out = 1 / math.tanh(self.eps / 2), {}
        for layer, t in y.items():
            if self.radius is None:
                low, high = t.amin((1, 2), keepdim=True), t.amax((1, 2), keepdim=True)
                center, r = (low + high) / 2, (high - low) / 2
            else:
                center, r = t.new_zeros(1, 1, 1), t.new_full((1, 1, 1), self.radius)
                t = t.clamp(-self.radius, self.radius)
            up = 0.5 + (t - center) / (2 * k * r.clamp(min=torch.finfo(t.dtype).tiny))
            heads = uniform(t, sources) < up
            out[layer] = center + r * k * torch.where(heads, 1.0, -1.0)
        return out

    def reconstruct(self, y: Tensors, like: Tensors, round: int = 0) -> Tensors:
        """The server's part: measurements back to tensors named and shaped as ``like``."""
        flat = {}
        for i, (layer, t) in enumerate(by_layer(like).items()):
            phi = self.matrix(i, t.shape[1], round).to(t)
            blocks = y[layer] @ phi if self.decoder == "transpose" else omp(phi, y[layer])
            flat[layer] = blocks.flatten(1)[:, : t.shape[1]]
        return from_layers(flat, like)

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        y = self.perturb(self.measure(delta, ctx.round), ctx.sources)
        return self.reconstruct(y, delta, ctx.round)

    def mechanism(self, tensors: Mapping[str, tuple[int, ...]]) -> Mechanism | str:
        """ε of one upload with a public radius: measurements · eps.

        The eps that the paper states holds for one measurement. An upload is as many independent
        releases as it has measurements, and they add up.
        """
        if self.radius is None:
            return "the two values that leave tell the range of private measurements; set radius="
        if not tensors:
            return "how many measurements leave is not known; give tensors=, names and shapes"
        sizes = dict.fromkeys(layer_names(tensors), 0)
        for name, shape in tensors.items():
            sizes[name.rpartition(".")[0]] += math.prod(shape)
        blocks = (self._blocks(n) for n in sizes.values())
        return Pure(self.eps * sum(count * rows for count, _, rows in blocks))

    def facts(self, ctx: Context) -> Facts:
        """``measurement``: f(tensors, round) = ΦΔ, in whose values an attacker can compare."""
        return Facts(measurement=self.measure, eps=self.eps)


def omp(phi: Tensor, y: Tensor) -> Tensor:
    """Sparse x with Φx ≈ y by orthogonal matching pursuit: y (…, m) -> x (…, n).

    m/4 times: add the column best aligned with what is left, and fit all chosen ones to y. The fit
    is by Gram and Schmidt, twice for the rounding: what is left loses its part along the new
    direction. (LAPACK's least squares would give other last bits, and choices, at every call.)
    """
    m, n = phi.shape
    target = y.reshape(-1, m)  # (N, m)
    unit = phi / phi.norm(dim=0)
    chosen = torch.empty(len(target), 0, dtype=torch.long, device=y.device)
    basis = target.new_zeros(len(target), m, 0)  # orthonormal, of the columns chosen so far
    rest = target
    for _ in range(max(1, m // 4)):
        align = (rest @ unit).abs().scatter(1, chosen, -1.0)  # (N, n), none twice
        chosen = torch.cat([chosen, align.argmax(1, keepdim=True)], 1)
        new = phi.T[chosen[:, -1], :, None]  # (N, m, 1)
        for _ in range(2):
            new = new - basis @ (basis.mT @ new)
        basis = torch.cat([basis, new / new.norm(dim=1, keepdim=True)], 2)
        rest = rest - (basis[..., -1] * rest).sum(1, keepdim=True) * basis[..., -1]
    corner = basis.mT @ phi.T[chosen].mT  # (N, picked, picked), upper triangular
    fit = torch.linalg.solve_triangular(corner, basis.mT @ target[..., None], upper=True)
    return target.new_zeros(len(target), n).scatter(1, chosen, fit[..., 0]).view(*y.shape[:-1], n)
