"""A small generator of digits, G: latent z -> image in [0, 1], for attacks that search its range.

It is the decoder of a variational autoencoder (Kingma & Welling 2014) that
``studies/generative_priors/generator.py`` trained on *public* digits: the training images of
``load("mnist")`` from index 2,000 on. Private images of an honest experiment come from the first
2,000 or from the test split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ...checking import checked
from ...runtime import device
from ...stored import fill, find
from ...values import Number

Side = Annotated[int, Number(4, 512, whole=True)]
Width = Annotated[int, Number(1, 10**5, whole=True)]

PUBLIC_FROM = 2000  # training images from this index on were seen by the generator, no others


class Generator(nn.Module):
    """Latents (N, latent), standard normal under its prior, to gray images (N, 1, size, size).

    Computes 28×28 pixels; another ``size`` is resized as ``load("mnist", size=…)`` does.
    """

    @checked
    def __init__(
        self, latent: Width = 32, widths: tuple[Width, Width] = (128, 256), size: Side = 28
    ):
        super().__init__()
        self.latent, self.size = latent, size
        self.body = nn.Sequential(
            *(nn.Linear(latent, widths[0]), nn.ELU(), nn.Linear(*widths), nn.ELU()),
            *(nn.Linear(widths[1], 28 * 28), nn.Unflatten(1, (1, 28, 28))),
        )

    def forward(self, z: Tensor) -> Tensor:  # (N, latent) -> (N, 1, size, size)
        x = self.body(z).sigmoid()
        if self.size == 28:
            return x
        return interpolate(x, (self.size,) * 2, mode="bilinear", antialias=True).clamp(0, 1)


@checked
def load_generator(size: Side = 28, path: Path | None = None) -> Generator:
    """The stored generator of digits, in eval mode, after a check of shapes and digest."""
    with torch.device("meta"):  # no random start, so nobody's stream moves
        net = Generator(size=size)
    net = net.to_empty(device="cpu")
    fill(net, path or find("weights/digits.safetensors"), "generator")
    return net.eval().requires_grad_(False).to(device())
