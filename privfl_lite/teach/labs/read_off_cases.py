"""What a class captures in lab 1, and random layers for its checks.

Chapter "Why gradients leak": lem-layer-gradient, prop-lone-active-unit.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

from ...data import load
from ...gradients import Tensors
from .kit import draws

SIDE = 14  # pixels of a side of the captured digits
UNITS, BATCH = 48, 6  # of the captured batch
Truth = tuple[Tensor, Tensor]  # images (B, pixels), labels (B,)


def network(rng: torch.Generator, pixels: int, units: int) -> nn.Sequential:
    """pixels -> units, ReLU, -> 10, with PyTorch's usual bounds of uniform weights."""
    net = nn.Sequential(nn.Linear(pixels, units), nn.ReLU(), nn.Linear(units, 10))
    for weight in net.parameters():
        size = pixels if weight.shape[0] == units else units
        weight.data.uniform_(-(size**-0.5), size**-0.5, generator=rng)
    return net


def digits(rng: torch.Generator, count: int) -> Truth:
    """Digits of 14 x 14 pixels, drawn without replacement."""
    data = load("mnist")
    rows = torch.randperm(len(data.y_train), generator=rng)[:count]
    return avg_pool2d(data.x_train[rows], 2).flatten(1), data.y_train[rows]


def gradients(net: nn.Sequential, x: Tensor, y: Tensor) -> Tensors:
    """What leaves a client: the mean cross-entropy's gradient, by name of the weight."""
    loss = cross_entropy(net(x), y)
    names, weights = zip(*net.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, weights), strict=True))


def lone(net: nn.Sequential, x: Tensor) -> Tensor:
    """How many first-layer units each image (B, pixels) has for itself: (B,)."""
    on = net[0](x) > 0  # (B, units)
    return on[:, on.sum(0) == 1].sum(1)


@lru_cache(maxsize=4)
def captured(key: str) -> tuple[dict[str, Tensor], Truth, Truth]:
    """What a class's server has, and the truth behind it: of one image, and of a batch.

    Drawn again until the batch has images that two units or more have for themselves, and others.
    """
    rng = draws(key, "captured")
    x, y = digits(rng, 1)
    sent = gradients(network(rng, SIDE**2, 8), x, y)
    while not sent["0.bias"].count_nonzero():
        sent = gradients(network(rng, SIDE**2, 8), x, y)
    while True:
        net, (xs, ys) = network(rng, SIDE**2, UNITS), digits(rng, BATCH)
        if 2 <= int((lone(net, xs) > 1).sum()) < BATCH:
            break
    both = gradients(net, xs, ys)
    handout = {
        "one_weight": sent["0.weight"],
        "one_bias": sent["0.bias"],
        "one_head_bias": sent["2.bias"],
        "batch_weight": both["0.weight"],
        "batch_bias": both["0.bias"],
        "batch_head_bias": both["2.bias"],
        "batch_p_mean": net(xs).softmax(1).mean(0).detach(),
    }
    return handout, (x, y), (xs[lone(net, xs) > 1], ys)


def handout(key: str) -> dict[str, Tensor]:
    """The tensors in the student's notebook: gradients, and the mean prediction."""
    return captured(key)[0]


def mixed(rng: torch.Generator, repeated: int) -> tuple[Tensor, Tensor, Tensor]:
    """∇W, ∇b of a layer behind four images, the first ``repeated`` of which two rows or more show.

    The others have one row each or none. Some mixtures lie in [0, 1], some do not, and some units
    are off; every entry carries a rounding error of 32 bits.
    """
    x = torch.rand(4, 15, generator=rng)
    own = torch.zeros(2 * repeated + 1, 4)
    own[range(2 * repeated), [n for n in range(repeated) for _ in range(2)]] = 1.0
    own[-1, 3] = 1.0  # a lone row that nothing repeats
    own *= torch.randn(len(own), 1, generator=rng).sign() * (
        0.3 + torch.rand(len(own), 1, generator=rng)
    )
    inside = 0.1 + torch.rand(4, 4, generator=rng)
    outside = torch.tensor([1.0, -1.3, 1.1, -0.7]) * (0.5 + torch.rand(3, 4, generator=rng))
    signals = torch.cat([own, inside, outside, torch.zeros(2, 4)]) / 4
    signals = signals[torch.randperm(len(signals), generator=rng)]
    dust = 1 + 1e-6 * torch.randn(len(signals), 15, generator=rng)
    return signals @ x * dust, signals.sum(1), x[:repeated]
