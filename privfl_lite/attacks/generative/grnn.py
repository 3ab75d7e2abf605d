"""GRNN: a fresh network draws the image, and its weights are searched for (Ren et al. 2022).

No pretrained generator and no public data: the prior is the shape of a convolutional network alone.
Its input z is drawn once and stays (chapter: a prior that dreams).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from ...budget import at_once, footprint
from ...runtime import PrivflError, generator, progress
from ...values import Count, NotNegative, Number, Part, Positive
from ...wire import Upload
from ..base import Attack, Reconstruction, together
from ..matching.rows import Frames

Width = Annotated[int, Number(1, 10**4, whole=True)]


class GRNNNet(nn.Module):
    """z (B, latent) to images (B, C, size, size) in [0, 1] and label distributions (B, classes).

    As in the released code: a 4×4 transposed convolution with a gated linear unit, then blocks of
    nearest ×2, 3×3 convolution, batch norm (statistics of this batch) and gated linear unit.
    """

    def __init__(self, channels: int, size: int, classes: int, latent: int = 128, width: int = 32):
        super().__init__()
        blocks = int(math.log2(size)) - 3
        widths = [width * 2**k for k in range(blocks, -1, -1)] + [channels]  # e.g. 128, 64, 32, C
        self.label = nn.Linear(latent, classes)
        layers = [nn.ConvTranspose2d(latent, 2 * widths[0], 4), nn.GLU(1)]
        for inp, out in pairwise(widths):
            layers += [
                nn.Upsample(scale_factor=2),
                nn.Conv2d(inp, 2 * out, 3, padding=1, bias=False),
            ]
            layers += [nn.BatchNorm2d(2 * out, track_running_stats=False), nn.GLU(1)]
        self.image = nn.Sequential(*layers)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.image(z[:, :, None, None]).sigmoid(), self.label(z).softmax(1)


@dataclass(frozen=True)
class GRNN(Attack):
    """Generative regression network: minimize ‖Δg‖² + ‖Δg‖₂ + tv·TV over a generator's weights.

    Δg is the difference between the upload and that of the drawn batch. ‖Δg‖₂ is what the released
    code computes as its "Wasserstein distance". TV is twice the mean squared difference of
    neighbors. RMSprop, one generator an upload, all uploads at once. Images must be
    squares whose side is a power of two, 8 or more: ``load("mnist", size=32)``. Labels are searched
    for too, unless granted with ``knows=``. ``steps`` counts evaluations of the gradient;
    ``frames`` asks for that many images on the way. The answer is the image of lowest ‖Δg‖², which
    is also the ``cost``; the released code keeps its last logged one.
    """

    steps: Count = 1000
    rate: Positive = 1e-4
    momentum: Part = 0.99
    tv: NotNegative = 1e-3
    latent: Width = 128
    width: Width = 32
    frames: Frames = 0
    show: bool = True

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """Attack all uploads at once; upload k draws its network and z from stream (seed, k)."""
        self.check(upload)
        check_side(upload.model.shape)
        few = self._at_once(upload)
        firsts = range(0, len(upload), few)
        return together([self._some(upload[i : i + few], seed, i) for i in firsts])

    def _at_once(self, upload: Upload) -> int:
        """How many generators memory holds (``budget``), with their gradients and averages."""
        if len(upload) == 1:
            return 1
        (channels, size, _), classes = upload.model.shape, upload.model.num_classes
        with torch.device("meta"):
            net = GRNNNet(channels, size, classes, self.latent, self.width)
        own = sum(p.numel() for p in net.parameters())
        weights, outputs = footprint(upload.model, upload.model.shape)
        drawn = 24 * self.width * size**2 * upload.batch
        numbers = 6 * (own + weights + upload.batch * outputs) + drawn
        return at_once(len(upload), 4 * numbers, "generators")

    def _some(self, upload: Upload, seed: int, first: int) -> Reconstruction:
        """Attack these uploads, the ``first`` and those behind it."""
        net, theta, z = self._start(upload, seed, first)
        draw = vmap(lambda w, z: functional_call(net, w, (z,)))
        imitate, known = upload.imitator(), upload.knows.labels
        optimizer = torch.optim.RMSprop(theta.values(), lr=self.rate, momentum=self.momentum)
        snapshots = {self.steps * k // self.frames for k in range(1, self.frames + 1)}
        best_cost, history = torch.full((len(upload),), torch.inf, device=z.device), []
        for tick in progress(range(1, self.steps + 1), "GRNN", show=self.show):
            x, y = draw(theta, z)  # (U, B, C, H, W), (U, B, classes)
            sent = imitate(x, y if known is None else known)
            gaps = ((sent[n] - t).flatten(1).square().sum(1) for n, t in upload.tensors.items())
            gap = cast(Tensor, sum(gaps))
            loss = gap + (gap + 1e-12).sqrt() + self.tv * squared_variation(x)
            if tick == 1:
                best_x, best_y = x.detach().clone(), y.detach().clone()
            better = gap.detach() < best_cost
            best_cost = torch.where(better, gap.detach(), best_cost)
            best_x[better], best_y[better] = x.detach()[better], y.detach()[better]
            if tick in snapshots:
                history.append((tick, best_x.flatten(0, 1).clone()))
            gradients = torch.autograd.grad(loss.sum(), tuple(theta.values()), allow_unused=True)
            for w, g in zip(theta.values(), gradients, strict=True):
                w.grad = torch.zeros_like(w) if g is None else g.nan_to_num(0.0, 0.0, 0.0)
            optimizer.step()
        return Reconstruction(
            images=best_x.flatten(0, 1),
            labels=(best_y.argmax(2) if known is None else known).flatten(),
            cost=best_cost,
            evaluations=self.steps,
            failed=int(best_cost.isinf().sum()),
            history=history,
        )

    def _start(
        self, upload: Upload, seed: int, first: int = 0
    ) -> tuple[nn.Module, dict[str, Tensor], Tensor]:
        """A network to call, its weights for each upload (U, *shape), and z (U, B, latent)."""
        channels, size, _ = upload.model.shape
        classes, z, nets = upload.model.num_classes, [], []
        for k in range(len(upload)):
            rng = generator(seed, first + k)
            z.append(torch.randn(upload.batch, self.latent, generator=rng))
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(rng.initial_seed())
                nets.append(GRNNNet(channels, size, classes, self.latent, self.width))
        where = next(iter(upload.tensors.values())).device
        theta, _ = stack_module_state(nets)
        theta = {n: w.detach().to(where).requires_grad_() for n, w in theta.items()}
        return nets[0].to(where), theta, torch.stack(z).to(where)


def check_side(shape: tuple[int, ...]) -> None:
    """One clear sentence unless images are squares with a power of two, 8 or more, as side."""
    _, height, width = shape
    side = max(8, 2 ** round(math.log2(max(height, width))))
    if (height, width) != (side, side):
        raise PrivflError(
            f"GRNN draws squares whose side is a power of two, 8 or more, not {height}×{width}; "
            f"the nearest is {side}: load the data with size={side}"
        )


def squared_variation(x: Tensor) -> Tensor:
    """Twice the mean squared difference of neighbors along both axes, (P, B, C, H, W) -> (P,)."""
    down, right = x.diff(dim=-2).square(), x.diff(dim=-1).square()
    return 2 * (down.flatten(1).mean(1) + right.flatten(1).mean(1))
