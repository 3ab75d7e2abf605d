"""A learned decoder for LODA: E is public, so an attacker obscures public images and learns back.

The network sees an encoding x′ and its features g(x′), and is trained on pairs (x, E(x)) of public
images to give x. It needs no equation and learns whatever E leaves: the kept features, and that
pixels were driven away from where they were.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ...arrays import Images
from ...checking import checked
from ...models import Block
from ...models.extractor import Extractor
from ...runtime import PrivflError, choose, generator, progress, seeded
from ...values import Count, Number, Positive, Seed

Wide = Annotated[int, Number(1, 4096, whole=True)]


class Decoder(nn.Module):
    """Encodings (B, C, H, W) -> images (B, C, H, W) in [0, 1].

    Maps of g are enlarged to the image's size and laid on top of x′; vectors are repeated.
    """

    @checked
    def __init__(self, g: Extractor, like: Images, width: Wide = 32, blocks: Wide = 3):
        super().__init__()
        self.g = g
        inputs = self._inputs(like[:1]).shape[1]
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, width, 1),
            *(Block(width, width, 1, nn.ReLU) for _ in range(blocks)),
            nn.Conv2d(width, like.shape[1], 3, padding=1),
            nn.Sigmoid(),
        )

    def _inputs(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            maps = [t if t.dim() == 4 else t[:, :, None, None] for t in self.g(x)]
            size = x.shape[2:]
            return torch.cat([x, *(interpolate(t, size, mode="nearest") for t in maps)], 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self._inputs(x))


@checked
def train_decoder(
    g: Extractor,
    images: Images,
    encodings: Images,
    steps: Count = 400,
    batch: Count = 32,
    rate: Positive = 2e-3,
    seed: Seed = 0,
    show: bool = True,
    **size: int,
) -> Decoder:
    """A decoder fitted to public images (N, C, H, W) and their encodings: mean squared error, Adam.

    Pairs are mirrored at random. ``size``: ``width`` and ``blocks`` of the decoder.
    """
    if images.shape != encodings.shape:
        got = f"{tuple(images.shape)} and {tuple(encodings.shape)}"
        raise PrivflError(f"images and encodings must be pairs of one shape; got {got}")
    for name in size:
        choose("size of the decoder", name, ("width", "blocks"))
    rng = generator(seed, 1)
    with seeded(seed):
        net = Decoder(g, encodings, **size).to(images.device).train()
    optimizer = torch.optim.Adam(net.body.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    for _ in progress(range(steps), "decoder", show=show):
        rows = torch.randint(len(images), (batch,), generator=rng)
        axes = (3,) if torch.rand((), generator=rng) < 0.5 else ()
        x, e = images[rows].flip(axes), encodings[rows].flip(axes)
        optimizer.zero_grad()
        (net(e) - x).square().mean().backward()
        optimizer.step()
        schedule.step()
    return net.eval()
