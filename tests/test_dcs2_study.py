"""The study of DCS²: the joint search, and a stored cell comes out again."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from privfl_lite import load, models, share
from privfl_lite.attacks.joint import joint, tried
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


def test_tried_labels_are_those_that_a_concealed_image_may_have():
    labels = tried(torch.tensor([4, 0]), 10, 0.7)
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
    ends = [joint(one, given, steps, 0, {})[1].item() for steps in (1, 40)]
    assert ends[1] < ends[0]
    plain, wide = (joint(one, given, 1, 0, {"width": w})[0][0, 0] for w in (1.0, 9.0))
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
