"""The study of DCS²: its linear algebra against autograd, and a stored cell comes out again."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from privfl_lite import load, models, share
from privfl_lite.studies import RESULTS, STUDIES
from privfl_lite.studies import dcs2_attack as study


@pytest.fixture(scope="module")
def net():
    return models.build("lenet", (1, 28, 28), 10).double()


@pytest.fixture(scope="module")
def mixed(net):
    """A digit and an image far outside [0, 1], with a mixed label; and their mean gradient."""
    x, y = load("mnist").sample(1, split="test", seed=3)
    far = 6 * torch.randn(1, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    y_s = one_hot(y, 10).double()
    soft = 0.7 * one_hot((y + 1) % 10, 10) + 0.3 * y_s
    images, labels = torch.cat([x, far]).double(), torch.cat([y_s, soft])
    names = [n for n, _ in net.named_parameters()]
    loss = cross_entropy(net(images), labels)
    grads = torch.autograd.grad(loss, list(net.parameters()))
    return images, labels, dict(zip(names, grads, strict=True))


def test_matrix_of_a_convolution(net):
    for i, side in ((0, 28), (2, 14), (4, 7)):
        conv = net.features[i]
        x = torch.rand(1, conv.in_channels, side, side).double()
        want = (conv(x) - conv.bias[:, None, None]).flatten()
        torch.testing.assert_close(study.conv_matrix(conv, side) @ x.flatten(), want)


def test_gradient_of_a_kernel_is_linear_in_the_input(net):
    for i, side in ((2, 14), (4, 7)):
        conv = net.features[i]
        x = torch.rand(1, conv.in_channels, side, side).double()
        out = conv(x)
        errors = torch.randn(out.shape, generator=torch.Generator().manual_seed(i)).double()
        (want,) = torch.autograd.grad((out * errors).sum(), conv.weight)
        found = study.kernel_gradient(errors[0].flatten(1), conv, side) @ x[0].flatten(1).T
        torch.testing.assert_close(found, study.by_channel(want))
    o, c, k = 3, 2, 5
    rows = study.by_channel(want)
    assert rows[o * 25 + k, c] == want[o, c].flatten()[k]


def test_two_images_are_separated_without_any_label(net, mixed):
    images, labels, grads = mixed
    pair = study.separate(net, grads["head.weight"], grads["head.bias"], range(10))
    assert pair.label == labels[0].argmax() and pair.score < 1e-6
    torch.testing.assert_close(pair.f, net.features(images).detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        pair.delta, (net(images).softmax(1) - labels).detach(), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(pair.soft, labels[1], atol=1e-6, rtol=0)
    found = study.image_behind(net, grads, study.refined(net, grads, pair))
    assert (found - images[0]).abs().max() < 1e-3
    other = study.swapped(study.swapped(pair))
    assert torch.equal(other.f, pair.f) and torch.equal(other.delta, pair.delta)


def test_tried_labels_are_those_that_a_concealed_image_may_have():
    labels = study.tried(torch.tensor([4, 0]), 10, 0.7)
    assert labels.shape == (2, 10, 2, 10)
    for u, y in enumerate((4, 0)):
        for c in range(10):
            want = torch.zeros(2, 10)
            want[0, y], want[1, c] = 1.0, 0.7
            want[1, y] += 0.3
            torch.testing.assert_close(labels[u, c], want)


def test_joint_search_lowers_its_cost_and_scales_only_the_concealed_image(net, mixed):
    images, labels, _ = mixed
    upload = share(copy.deepcopy(net).float(), images.float(), labels.float())
    one = replace(upload, batch=1)
    given = labels.float()[None, None]
    ends = [study.joint(one, given, steps, 0, {})[1].item() for steps in (1, 40)]
    assert ends[1] < ends[0]
    plain, wide = (study.joint(one, given, 1, 0, {"width": w})[0][0, 0] for w in (1.0, 9.0))
    assert wide[1].std() > 5 * plain[1].std() and wide[0].std() < 2 * plain[0].std()


def test_class_means():
    data = load("mnist")
    want = sum(x for x, y in zip(data.x_train, data.y_train, strict=True) if y == 7)
    torch.testing.assert_close(study.class_means()[7], want / (data.y_train == 7).sum())


def test_a_stored_cell_comes_out_again():
    """Two of its images, with fewer steps of crafting: how they were concealed does not matter."""
    stored = STUDIES["dcs2-attack"].show()
    cell = {"part": "separate", "variant": study.MAIN}
    settings = {**stored["settings"], "images": 2, "craft": 60}
    again = STUDIES["dcs2-attack"].compute(settings, cell)
    (kept,) = (c for c in stored["cells"] if cell.items() <= c.items())
    assert min(again["psnr"]) > 50 and min(kept["psnr"][:2]) > 50
    assert again["label_right"] == again["success"] == 2
    assert (RESULTS / "dcs2-attack.json").stat().st_size < 200_000
