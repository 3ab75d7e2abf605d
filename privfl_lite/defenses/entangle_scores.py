"""Which units tell most of the input: the score of Model Entanglement (Eq. 8–9), all units at once.

A reverse pass carries ``CHUNK`` units, and only units that are on. On one core most of the time
goes into convolutions of single slopes back to the image, so that they are laid out for it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.functional import unfold

from ..gradients import Tensors, stateless
from ..models import Net, Wrapped, passed
from .base import Context

CHUNK = 256  # rows of the Jacobian that one pass carries


def dense_layers(model: Net) -> Iterator[tuple[str, nn.Linear, nn.Module, nn.Module]]:
    """Each fully connected layer: name, layer, the part before it, and the part that it ends."""
    if isinstance(model, Wrapped):
        for n, layer in model.named_modules():
            if isinstance(layer, nn.Linear):
                yield n, layer, Upto(model, n, 0), Upto(model, n, 1)
        return
    for i, (n, layer) in enumerate(model.features.named_children()):
        if isinstance(layer, nn.Linear):
            yield f"features.{n}", layer, model.features[:i], model.features[: i + 1]
    yield "head", model.head, model.features, model


class Upto(nn.Module):
    """A network up to what enters (end = 0) or leaves (end = 1) the layer of this name."""

    def __init__(self, net: Net, name: str, end: int):
        super().__init__()
        self.net, self.name, self.end = net, name, end

    def forward(self, x: Tensor) -> Tensor:
        return passed(self.net, self.net.get_submodule(self.name), x)[self.end]


def unit_scores(part: nn.Module, ctx: Context) -> Tensor:
    """|r_i| / ‖∂r_i/∂X‖₂ (Eq. 9), mean over each client's images, (K, R), all units at once.

    r is what ``part`` of the model gives, one of ``dense_layers``. The length of column i of the
    inverse's derivative would be right in Theorem 1; 1/‖∂r_i/∂X‖ is that of the pseudo-inverse of
    row i alone, the same where rows of the Jacobian are orthogonal. A unit that is off counts as 0.
    """
    ours = not isinstance(part, Upto)
    home = "features." if ours and part is not ctx.model else ""
    names = {n: home + n.removeprefix("net.") for n, _ in part.named_parameters()}
    net, scores = stateless(part, "eval"), []
    net = unfolded(net) if ours else net
    for k, images in enumerate(ctx.x):
        theta = {n: ctx.theta[own][k] for n, own in names.items()}
        if ours:
            theta = {
                n: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t
                for n, t in theta.items()
            }
        scores.append(torch.stack([_quotients(net, theta, image) for image in images]).mean(0))
    return torch.stack(scores)


def _quotients(net: nn.Module, theta: Tensors, image: Tensor) -> Tensor:
    """|r_i| / ‖∂r_i/∂x‖ of one image (C, H, W), (R,)."""
    r, pull, *_ = vjp(lambda x: functional_call(net, theta, (x[None],))[0], image)
    r = r.detach()
    scores = torch.zeros_like(r)
    for some in r.nonzero().flatten().split(CHUNK):
        rows = torch.zeros(len(some), len(r)).to(r).scatter(1, some[:, None], 1.0)
        (slopes,) = vmap(pull)(rows)
        scores[some] = r[some].abs() / slopes.detach().flatten(1).norm(dim=1)
    return scores.nan_to_num(0.0)


class UnfoldedConv(nn.Conv2d):
    """A convolution as a product of matrices: its slope to few channels is quicker by far."""

    def forward(self, x: Tensor) -> Tensor:
        how: Any = (self.kernel_size, self.dilation, self.padding, self.stride)
        out = self.weight.flatten(1) @ unfold(x, *how)  # (B, O, positions)
        out = out if self.bias is None else out + self.bias[:, None]
        high, *_ = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, d, p, s in zip(x.shape[-2:], *how, strict=True)
        )
        return out.unflatten(2, (high, -1))


def unfolded(net: nn.Module) -> nn.Module:
    """A copy whose convolutions of images (three channels or fewer) are ``UnfoldedConv``."""
    net = copy.deepcopy(net)
    for m in net.modules():
        if type(m) is not nn.Conv2d or m.in_channels > 3 or m.groups > 1:
            continue
        if m.padding_mode == "zeros" and not isinstance(m.padding, str):
            m.__class__ = UnfoldedConv
    return net
