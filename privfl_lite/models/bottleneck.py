"""The layer of PRECODE (Scheliga et al. 2022), which draws noise. Chapter: changing the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus


class Bottleneck(nn.Module):
    """A variational bottleneck: r to a normal distribution over ``size`` numbers, a draw, and back.

    encode: r -> (μ, s), standard deviation softplus(s − 5), z = μ + std·N(0, 1), decode: z -> R.
    ``penalty``, which the loss adds: β · KL(N(μ, std²) ‖ N(0, 1)), summed over z, mean over the
    batch. The draw is a new one at every pass, in training and in use. The 5 is the habit of
    information-bottleneck code; a public PRECODE layer has none, and so begins with a draw a
    hundred times as strong (``studies.changing_the_model.precode.Draw``; the chapter runs both).
    """

    def __init__(self, width: int, size: int, beta: float):
        super().__init__()
        self.encode, self.decode = nn.Linear(width, 2 * size), nn.Linear(size, width)
        self.beta = beta
        self.penalty: Tensor | float = 0.0

    def code(self, r: Tensor) -> tuple[Tensor, Tensor]:  # (B, R) -> (B, size) twice
        """Mean and standard deviation of the distribution that r gets."""
        mean, s = self.encode(r).chunk(2, dim=1)
        return mean, softplus(s - 5)

    def noise(self, mean: Tensor) -> Tensor:
        """Standard normal numbers of this shape, new at each call."""
        return torch.randn_like(mean)

    def forward(self, r: Tensor) -> Tensor:  # (B, R) -> (B, R)
        mean, std = self.code(r)
        kl = (mean.square() + std.square() - 1).sum(1) / 2 - std.log().sum(1)
        self.penalty = self.beta * kl.mean()
        return self.decode(mean + std * self.noise(mean))

    def __getstate__(self) -> dict:
        return {**self.__dict__, "penalty": 0.0}  # it hangs on a graph, which cannot be copied
