"""GGL: search the range of a generator for an image whose upload matches (Li et al. 2022, Eq. 3).

The prior is strong: every answer is an image that the generator can draw, so a noisy or pruned
upload still gives a clean picture, though maybe not the private one (chapter: a prior that dreams).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...arrays import MODEL
from ...budget import at_once, footprint
from ...runtime import PrivflError, generator, progress
from ...values import Count, Holds, NotNegative, Word
from ...wire import Upload
from ..base import Attack, Reconstruction
from ..generative.generator import load_generator
from ..labels import known_labels
from ..matching.rows import Frames, Restarts
from ..matching.terms import distance, total_variation
from ..solvers import Cost, Solution, adam, together

DRAWS = Holds(
    "an nn.Module with an attribute latent, how many numbers it draws an image from",
    lambda v: MODEL.fits(v) and isinstance(getattr(v, "latent", None), int),
)


@dataclass(frozen=True)
class GGL(Attack):
    """Generative gradient leakage: labels off the last layer, then latents z with G(z) matching.

    ``generator``, in eval mode, maps latents (N, n) to images (N, C, H, W) in [0, 1] and has an
    attribute ``latent`` = n; by default it is our own of digits. ``optimizer``: "adam" (signed,
    rate 0.1, all uploads at once) or "cma" (CMA-ES, no gradient through G, a population at a time).
    ``distance`` as in ``Matching``. ``penalty`` weighs the KL-like term on the mean and variance of
    each z, for a standard normal prior; ``tv`` the total variation. ``steps`` counts evaluations
    per start; the best of ``restarts`` is the one with the lowest mismatch.
    """

    generator: Annotated[nn.Module, DRAWS] | None = None
    optimizer: Annotated[str, Word("optimizer", "adam", "cma")] = "adam"
    distance: Annotated[str, Word("distance", "l2", "cosine")] = "cosine"
    steps: Count = 500
    restarts: Restarts = 1
    penalty: NotNegative = 1e-4
    tv: NotNegative = 0.0
    frames: Frames = 0
    show: bool = True

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """Attack all uploads; upload k, restart j draws from its own stream (seed, k, j)."""
        net, r, u = self._generator(upload), self.restarts, len(upload)
        known = known_labels(upload, seed)  # (U, B)
        imitate, shape = upload.imitator(), (upload.batch, *upload.model.shape)

        def images(z: Tensor) -> Tensor:  # (P, B·n) -> (P, B, C, H, W)
            return net(z.reshape(len(z) * upload.batch, -1)).reshape(-1, *shape)

        def mismatch(z: Tensor, rows: Tensor) -> Tensor:
            target = {n: t[rows // r] for n, t in upload.tensors.items()}
            guess = imitate(images(z), known[rows // r])
            return distance(self.distance, guess, target, list(target))

        def objective(z: Tensor, rows: Tensor) -> Tensor:
            smooth = self.tv * total_variation(images(z)) if self.tv else 0
            tame = self.penalty * latent_penalty(z.reshape(len(z), upload.batch, -1))
            return mismatch(z, rows) + smooth + tame

        keys = [(k, j) for k in range(u) for j in range(r)]
        start = [
            torch.randn(upload.batch * net.latent, generator=generator(seed, *k)) for k in keys
        ]
        search = self._adam if self.optimizer == "adam" else self._cma
        z = torch.stack(start).to(known.device)
        parts = torch.arange(u * r, device=z.device).split(self._at_once(upload, z))
        found = together([search(objective, z, rows, seed) for rows in parts])
        with torch.no_grad():
            costs = [mismatch(found.z[rows], rows) for rows in parts]
            cost = torch.cat(costs).nan_to_num(torch.inf)
            best = cost.view(u, r).argmin(1) + r * torch.arange(u, device=cost.device)
            history = [(tick, images(z[best]).flatten(0, 1)) for tick, z in found.snapshots]
            return Reconstruction(
                images=images(found.z[best]).flatten(0, 1),
                labels=known.flatten(),
                cost=cost[best],
                evaluations=found.evaluations,
                failed=int((~cost.isfinite()).sum()),
                history=history,
            )

    def _generator(self, upload: Upload) -> Any:
        """The generator, after a trial: one image of the shape that the attacked model takes."""
        shape = tuple(upload.model.shape)
        net: Any = load_generator(shape[-1]) if self.generator is None else self.generator
        where = next(iter(upload.tensors.values())).device
        with torch.no_grad():
            made = tuple(net(torch.zeros(1, net.latent, device=where)).shape[1:])
        if made != shape:
            raise PrivflError(f"the generator draws images {made}, but the model takes {shape}")
        return net

    def _film(self, end: int) -> list[int]:
        return sorted({max(1, end * k // self.frames) for k in range(1, self.frames + 1)})

    def _at_once(self, upload: Upload, z: Tensor) -> int:
        """How many searches memory holds (``budget``); of CMA-ES one population, whatever it is."""
        if len(z) == 1 or self.optimizer == "cma":
            return len(z)
        weights, outputs = footprint(upload.model, upload.model.shape)
        drawn = 20 * upload.batch * upload.model.last.in_features + 8 * z.shape[1]
        numbers = 4 * (weights + upload.batch * outputs) + drawn
        return at_once(len(z), z.element_size() * numbers, "searches")

    def _adam(self, objective: Cost, z: Tensor, rows: Tensor, seed: int) -> Solution:
        """Signed Adam on these rows of z."""
        ticks = progress(range(1, self.steps + 1), "GGL", show=self.show)
        some = objective if len(rows) == len(z) else lambda z, at: objective(z, rows[at])
        return adam(some, z[rows], ticks, self.steps, self._film(self.steps))

    @torch.no_grad()
    def _cma(self, objective: Cost, z: Tensor, _: Tensor, seed: int) -> Solution:
        """CMA-ES (Hansen & Ostermeier 2001) for each row of z; its population is one batch.

        It starts from the prior of z itself, mean 0 and deviation 1; restarts differ in draws.
        """
        CMA, n = _cmaes(), z.shape[1]
        size = 4 + int(3 * np.log(n))  # Hansen's default
        rounds = self.steps // size
        if not rounds:
            raise PrivflError(f"CMA-ES needs at least {size} steps here; got {self.steps}")
        out = Solution(z.clone(), torch.full_like(z[:, 0], torch.inf), rounds * size)
        snapshots: list[list] = [[] for _ in z]
        wanted = self._film(rounds)
        for row in progress(range(len(z)), "GGL (CMA-ES)", show=self.show):
            stream = generator(seed, row).initial_seed() % 2**32
            search = CMA(np.zeros(n), 1.0, seed=stream, population_size=size)  # the prior
            rows = torch.full((size,), row, device=z.device)
            for turn in range(1, rounds + 1):
                asked = np.stack([search.ask() for _ in range(size)])
                points = torch.as_tensor(asked).to(z)
                f = objective(points, rows).nan_to_num(torch.inf, torch.inf, torch.inf)
                if f.min() < out.cost[row]:
                    out.z[row], out.cost[row] = points[f.argmin()], f.min()
                if turn in wanted:
                    snapshots[row].append(out.z[row].clone())
                if f.isfinite().any():
                    search.tell(list(zip(asked, f.clamp(max=1e30).tolist(), strict=True)))
        out.snapshots = [
            (t * size, torch.stack(f)) for t, *f in zip(wanted, *snapshots, strict=True)
        ]
        return out


def latent_penalty(z: Tensor) -> Tensor:
    """KL(N(m, s²) ‖ N(0, 1)) of the mean m and variance s² of each z, (P, B, n) -> (P,).

    The term of GGL's released code; 0 when the entries of a z look standard normal.
    """
    m, s2 = z.mean(2), z.var(2, unbiased=False).clamp(min=1e-12)
    return 0.5 * (m.square() + s2 - 1 - s2.log()).mean(1)


def _cmaes() -> Callable:
    try:
        from cmaes import CMA
    except ImportError:
        raise PrivflError('optimizer="cma" needs the package cmaes: pip install cmaes') from None
    return CMA
