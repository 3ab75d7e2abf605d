"""The order in memory in which a CPU is quickest with convolutions: a pixel's channels together.

``vmap`` makes one convolution with K groups of channels out of those of K clients. With the
channels of all clients last in memory it takes a fifth to a half of the time that it takes with
images one after the other, and so does max pooling, once K is folded into its channels and not
into its batch. Results are the same up to rounding.

Only the package's own networks are laid out so. In a network of somebody else ``x.view(…)`` may
count on the usual order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .gradients import Tensors
from .models import Net, Wrapped
from .runtime import device

Settings = tuple[list[int], list[int], list[int], list[int], bool]  # of a pooling, as aten has them
aten = torch.ops.aten


def channels_last_pays(net: Net) -> bool:
    """Whether this network has convolutions and is one of ours; a GPU keeps the usual order.

    So does a network with group norm, which ``vmap`` can't take in another one (PyTorch 2.13).
    """
    kinds = {type(m) for m in net.modules()}
    fits = nn.Conv2d in kinds and nn.GroupNorm not in kinds and not isinstance(net, Wrapped)
    return fits and device().type != "cuda"


def side_by_side(x: Tensor) -> Tensor:
    """Images (K, B, C, H, W) that lie in memory as (B, H, W, K, C)."""
    return x.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)


def kernels_last(theta: Tensors) -> Tensors:
    """Weights of K clients, those of convolutions (K, O, C, h, w) in memory as (K, O, h, w, C)."""
    return {
        n: t.movedim(2, -1).contiguous().movedim(-1, 2) if t.dim() == 5 else t
        for n, t in theta.items()
    }


def fold_pooling(net: Net) -> Net:
    """Put max pooling that folds clients into channels into the network (it is changed)."""
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.MaxPool2d and not child.return_indices:
                setattr(parent, name, FoldedMaxPool(child))
    return net


class FoldedMaxPool(nn.Module):
    """``nn.MaxPool2d`` whose K clients under ``vmap`` are channels of one pooling."""

    def __init__(self, like: nn.MaxPool2d):
        super().__init__()
        given = (like.kernel_size, like.stride, like.padding, like.dilation)
        sides = [[v, v] if isinstance(v, int) else list(v) for v in given]
        self.settings: Any = (*sides, like.ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        return _MaxPool.apply(x, self.settings)[0]


def _fold(x: Tensor, axis: int) -> Tensor:
    """(B, C, H, W) of K clients as (B, K·C, H, W)."""
    return x.movedim(axis, 1).flatten(1, 2)


class _MaxPool(torch.autograd.Function):
    """Largest values, and where they stood."""

    @staticmethod
    def forward(x: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
        return aten.max_pool2d_with_indices(x, *settings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.save_for_backward(inputs[0], output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.settings = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor, None]:
        return _MaxPoolBackward.apply(g, *ctx.saved_tensors, ctx.settings), None

    @staticmethod
    def vmap(info: Any, axes: tuple, x: Tensor, settings: Settings) -> tuple[Any, Any]:
        out = _MaxPool.apply(_fold(x, axes[0]), settings)
        return tuple(t.unflatten(1, (info.batch_size, -1)) for t in out), (1, 1)


class _MaxPoolBackward(torch.autograd.Function):
    """The slope goes to where the largest values stood. Training differentiates once only."""

    @staticmethod
    def forward(g: Tensor, x: Tensor, at: Tensor, settings: Settings) -> Tensor:
        return aten.max_pool2d_with_indices_backward(g, x, *settings, at)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any, axes: tuple, g: Tensor, x: Tensor, at: Tensor, settings: Settings
    ) -> tuple[Tensor, int]:
        folded = (_fold(t, axis) for t, axis in zip((g, x, at), axes, strict=False))
        return _MaxPoolBackward.apply(*folded, settings).unflatten(1, (info.batch_size, -1)), 1
