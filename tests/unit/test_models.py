"""The networks: sizes against the literature, shapes, seeds, and what does not fit."""

from __future__ import annotations

import pytest
import torch

from privfl_lite import models
from privfl_lite.gradients import gradient_function, stateless, weights

GRAY, COLOR = (1, 28, 28), (3, 32, 32)

# (model, image shape, classes, options, parameters counted by hand from the papers' descriptions)
SIZES = [
    ("lenet", GRAY, 10, {}, 312 + 2 * 3612 + 588 * 10 + 10),
    ("lenet", COLOR, 100, {}, 912 + 2 * 3612 + 768 * 100 + 100),  # DLG's FC 768 -> 100
    ("lenet4", GRAY, 10, {}, 312 + 3 * 3612 + 588 * 10 + 10),
    ("lenet5", GRAY, 10, {}, 61_706),  # the classic count
    ("cloak", GRAY, 10, {}, 9 * 32 + 9 * 32 * 64 + 1600 * 10),  # no bias anywhere
    ("mlp", GRAY, 10, {"hidden": (64,)}, 785 * 64 + 650),
    ("mlp", GRAY, 10, {"hidden": ()}, 7850),
    ("resnet18", COLOR, 10, {}, 11_173_962),  # CIFAR stem
    ("resnet34", COLOR, 10, {}, 21_282_122),
    ("vgg16", COLOR, 10, {}, 14_728_266),  # 13 convolutions with batch norm, one dense layer
]


@pytest.mark.parametrize(("name", "shape", "classes", "options", "count"), SIZES)
def test_parameter_counts(name, shape, classes, options, count):
    assert models.build(name, shape, classes, **options).num_parameters == count


def test_convnet_has_eight_convolutions_and_r_of_2304():
    net = models.build("convnet", COLOR, 10, width=64)
    assert sum(isinstance(m, torch.nn.Conv2d) for m in net.modules()) == 8
    assert net.head.in_features == 2304  # as in Inverting Gradients' ConvNet64
    assert models.build("convnet", COLOR, 10, width=16).head.in_features == 576


@pytest.mark.parametrize("name", models.MODELS)
def test_forward_representation_and_second_derivative(name):
    shape = GRAY if name in ("lenet", "lenet4", "lenet5", "mlp", "cloak") else COLOR
    options = {"width": 8} if name == "convnet" else {}
    net = models.build(name, shape, 10, **options)
    x = torch.rand(2, *shape)
    r = net.representation(x)
    assert torch.equal(net.head(r), net(x)) and r.shape == (2, net.head.in_features)
    if net.num_parameters < 5e5:  # what an attack differentiates
        x = x[None].requires_grad_()
        net = stateless(net, "eval")
        g = gradient_function(net)(weights(net), x, torch.tensor([[1, 2]]))
        (gx,) = torch.autograd.grad(sum(t.pow(2).sum() for t in g.values()), x)
        assert gx.isfinite().all() and gx.abs().sum() > 0


def test_dlg_start_is_uniform_and_seeded():
    a, b = (models.build("lenet", GRAY, 10, seed=3) for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    w = torch.cat([p.flatten() for p in a.parameters()])
    assert w.abs().max() <= 0.5 and abs(w.std() - 1 / 12**0.5) < 0.01
    torch.manual_seed(9)
    before = torch.random.get_rng_state()
    other = models.build("lenet", GRAY, 10, seed=4)
    assert torch.equal(before, torch.random.get_rng_state()), "build drew from the global stream"
    assert not torch.equal(next(a.parameters()), next(other.parameters()))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: models.build("lenet6", GRAY, 10), "choose one of: lenet, lenet4"),
        (lambda: models.build("vgg16", (3, 16, 16), 10), "smallest side that it takes is 32"),
        (lambda: models.build("lenet5", (1, 6, 6), 10), "smallest side that it takes is 12"),
        (lambda: models.build("lenet", (28, 28), 10), "shape (C, H, W)"),
        (lambda: models.build("lenet", GRAY), "classes="),
        (lambda: models.build("lenet", GRAY, 10, act="swish"), "unknown activation 'swish'"),
    ],
)
def test_bad_requests_get_one_sentence(refused, call, says):
    refused(call, says)
