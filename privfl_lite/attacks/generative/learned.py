"""Learning to invert: a network trained on public uploads reads the picture (Wu et al. 2023).

Public images are sent through the model as a client would, the uploads are spoiled as the private
one is seen to be, and a small network learns the way back (arXiv 2210.10880). It answers whatever
can be imitated, because it never asks that a gradient matches (chapter: a prior that dreams).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from ...arrays import Images, Labels
from ...budget import at_once, footprint
from ...gradients import Tensors
from ...runtime import PrivflError, generator, progress, seeded
from ...values import Count, Number, Positive
from ...wire import Upload
from ..base import Attack, Reconstruction
from ..labels import known_labels
from .generator import load_generator

NOISY = 4  # differently noisy uploads of each public image
Width = Annotated[int, Number(1, 10**5, whole=True)]
Spoil = Callable[[Tensors, torch.Generator], Tensors]


@dataclass(frozen=True)
class LearnedInversion(Attack):
    """A network of one hidden layer from uploads to images, trained on public ones: MSE, Adam.

    ``images`` (N, C, H, W) are public, ``labels`` (N,) theirs; without labels they are drawn, and
    without images our generator draws as many as ``draws``. What was done to the uploads is seen on
    them, the same for all: zeros (pruned to that share, tensor by tensor) and signs (one magnitude
    for each tensor); noise has to be granted, ``knows=("noise",)``. Entries are hashed with random
    signs into ``inputs`` sums. ``cost``: 1 − cosine of what the answer would have sent.
    """

    images: Images | None = None
    labels: Labels | None = None
    draws: Width = 2000
    inputs: Width = 1024
    width: Width = 512
    steps: Count = 600
    rate: Positive = 2e-3
    show: bool = True
    letter, most = "D", (1, None)
    answers = ("prune", "dp_gaussian")

    @torch.no_grad()
    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """Train once for this model and defense, then read all uploads."""
        self.check(upload)
        upload = upload.typed()
        label, (x, y), imitate = (
            known_labels(upload, seed),
            self._public(upload, seed),
            sent(upload),
        )
        weights, outputs = footprint(upload.model, upload.model.shape)
        few = min(200, at_once(len(x), 4 * (6 * weights + 2 * outputs), "public uploads"))
        first = imitate(x[:few], y[:few], generator(seed, 2))
        size = {n: t.square().mean(0).sqrt() for n, t in first.items()}
        size = {n: s + 0.1 * s.mean() + 1e-12 for n, s in size.items()}
        noisy, rows = NOISY if upload.knows.noise is not None else 1, []
        for k in range(noisy):
            rng = generator(seed, 3, k)
            for part in zip(x.split(few), y.split(few), strict=True):
                rows.append(self._hashed(imitate(*part, rng), size, seed))
        seen = torch.cat(rows)  # (copies · N, inputs)
        mean, scale = seen.mean(0), seen.std() + 1e-12
        net = self._trained((seen - mean) / scale, x.flatten(1).repeat(noisy, 1), seed)
        own = signs(upload.tensors) if is_signed(upload.tensors) else upload.tensors
        images = net((self._hashed(own, size, seed) - mean) / scale).view(-1, *x.shape[1:])
        again = imitate(images, label[:, 0], generator(seed, 4))
        cost = 1 - torch.cosine_similarity(_flat(again), _flat(own))
        return Reconstruction(images, label.flatten(), cost, evaluations=noisy * len(x))

    def _public(self, upload: Upload, seed: int) -> tuple[Tensor, Tensor]:
        """Public images and labels, where the upload is."""
        shape, rng = tuple(upload.model.shape), generator(seed, 1)
        where = next(iter(upload.tensors.values()))
        x, y = self.images, self.labels
        if x is None:
            net = load_generator(shape[-1])
            x = net(torch.randn(self.draws, net.latent, generator=rng).to(where.device))
        if tuple(x.shape[1:]) != shape:
            got = f"{tuple(x.shape[1:])}, but the model takes {shape}"
            raise PrivflError(f"public images are {got}; give others with images=")
        if y is None:
            y = torch.randint(upload.model.num_classes, (len(x),), generator=rng)
        if len(y) != len(x) or int(y.max()) >= upload.model.num_classes:
            raise PrivflError(f"labels= must name a class of the model for each of {len(x)} images")
        return x.to(where), y.to(where.device)

    def _hashed(self, tensors: Tensors, size: Tensors, seed: int) -> Tensor:
        """Each entry over its size, added with a random sign to one of the inputs: (N, inputs)."""
        flat, rng = _flat({n: t / size[n] for n, t in tensors.items()}), generator(seed, 5)
        place = torch.randint(self.inputs, (flat.shape[1],), generator=rng).to(flat.device)
        sign = 2 * torch.randint(2, (flat.shape[1],), generator=rng).to(flat) - 1
        return flat.new_zeros(len(flat), self.inputs).index_add_(1, place, flat * sign)

    @torch.enable_grad()
    def _trained(self, seen: Tensor, target: Tensor, seed: int) -> nn.Module:
        """The network, fitted to pairs of hashed uploads and images (rows)."""
        with seeded(seed, 6):
            first, last = nn.Linear(self.inputs, self.width), nn.Linear(self.width, target.shape[1])
        net, rng = nn.Sequential(first, nn.ReLU(), last, nn.Sigmoid()).to(seen), generator(seed, 7)
        optimizer = torch.optim.Adam(net.parameters(), self.rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, self.steps)
        for _ in progress(range(self.steps), "learning to invert", show=self.show):
            rows = torch.randint(len(seen), (128,), generator=rng).to(seen.device)
            optimizer.zero_grad()
            (net(seen[rows]) - target[rows]).square().mean().backward()
            optimizer.step()
            schedule.step()
        return net


def sent(upload: Upload) -> Callable[[Tensor, Tensor, torch.Generator], Tensors]:
    """f(x, y, rng): what clients with images x (N, …) and labels y (N,) would have sent, spoiled as
    these uploads visibly are, and with the noise that is granted."""
    share = {n: float((t != 0).float().mean()) for n, t in upload.tensors.items()}
    imitate, noise, only_signs = upload.imitator(), upload.knows.noise, is_signed(upload.tensors)

    def spoiled(x: Tensor, y: Tensor, rng: torch.Generator) -> Tensors:
        g = imitate(x[:, None], y[:, None])
        if noise is not None:
            g = {
                n: t + noise.of(n) * torch.randn(t.shape, generator=rng).to(t) for n, t in g.items()
            }
        g = {n: _largest(t, share[n]) for n, t in g.items()}
        return signs(g) if only_signs else g

    return spoiled


def is_signed(tensors: Tensors) -> bool:
    """Whether all nonzero entries of each upload's tensor have one magnitude."""
    sizes = (t.abs().flatten(1) for t in tensors.values())
    return all(bool(((t == 0) | (t == t.amax(1, keepdim=True))).all()) for t in sizes)


def signs(tensors: Tensors) -> Tensors:
    return {n: t.sign() for n, t in tensors.items()}


def _largest(t: Tensor, share: float) -> Tensor:
    """Each upload's largest entries (N, *shape), so many of them; the others 0."""
    if share <= 0:
        return torch.zeros_like(t)
    size = t.abs().flatten(1)
    least = size.kthvalue(max(1, size.shape[1] - round(share * size.shape[1]) + 1), dim=1).values
    return t if share >= 1 else t * (size >= least[:, None]).view_as(t)


def _flat(tensors: Tensors) -> Tensor:
    return torch.cat([t.flatten(1) for t in tensors.values()], 1)
