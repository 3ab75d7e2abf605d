"""Channels last: pooling with clients as channels gives the same values and slopes as usual."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from privfl_lite import models
from privfl_lite.defenses import DPSGD
from privfl_lite.layout import (
    FoldedMaxPool,
    channels_last_pays,
    fold_pooling,
    kernels_last,
    side_by_side,
)


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.MaxPool2d((2, 3), ceil_mode=True),
        nn.MaxPool2d(2, stride=1, dilation=2),
    ],
)
def test_folded_pooling_has_the_values_and_slopes_of_plain_pooling(pool):
    """Also where values tie, as on an empty background: the first of them takes the slope."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(3, 2, 5, 11, 10, generator=rng).mul(4).round()
    weight = torch.rand(3, *pool(x[0]).shape, generator=rng)

    def slopes(layer: nn.Module, images: torch.Tensor) -> tuple:
        one = grad(lambda x, w: (w * layer(x).square()).sum())
        return vmap(layer)(images), vmap(one)(images, weight)

    for a, b in zip(slopes(pool, x), slopes(FoldedMaxPool(pool), side_by_side(x)), strict=True):
        assert torch.equal(a, b)
    image = x[0].requires_grad_()
    a, b = (torch.autograd.grad(f(image).sum(), image) for f in (pool, FoldedMaxPool(pool)))
    assert torch.equal(a[0], b[0])


@pytest.mark.parametrize("name", ["lenet", "lenet5", "cloak"])
def test_the_layout_changes_rounding_only(name):
    net = models.build(name, (1, 28, 28), 10).double()
    rng = torch.Generator().manual_seed(1)
    x = torch.rand(3, 4, 1, 28, 28, generator=rng).double()
    theta = {n: p.detach() + torch.zeros(3, *p.shape) for n, p in net.named_parameters()}

    def slopes(used: nn.Module, theta: dict, x: torch.Tensor) -> dict:
        one = grad(lambda th, x: functional_call(used, th, (x,)).square().mean())
        return vmap(one)(theta, x)

    assert channels_last_pays(net)
    folded = fold_pooling(copy.deepcopy(net))
    want, got = slopes(net, theta, x), slopes(folded, kernels_last(theta), side_by_side(x))
    for n, t in want.items():
        torch.testing.assert_close(got[n], t, rtol=1e-10, atol=1e-14)
    kept = sum(isinstance(m, nn.MaxPool2d) for m in folded.modules())
    assert kept == 0 and side_by_side(x).equal(x)


def test_only_our_own_networks_with_convolutions_are_laid_out_so():
    assert not channels_last_pays(models.build("mlp", (1, 12, 12), 10))
    own = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(400, 10))
    assert not channels_last_pays(models.wrap(own, (1, 12, 12)))


def test_group_norm_keeps_the_usual_order():
    """DP-SGD puts group norm in place of batch norm, and vmap takes it in the usual order only."""
    net = models.build("convnet", (3, 16, 16), 10)
    assert channels_last_pays(net)
    assert not channels_last_pays(DPSGD().model(copy.deepcopy(net)))
