"""Two images behind one upload: by linear algebra (attacks/pair.py), by search (joint.py)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from privfl_lite import Plan, load, metrics, models, share
from privfl_lite.attacks import Pair
from privfl_lite.attacks.adaptive import dcs2_algebra as pair
from privfl_lite.attacks.adaptive.dcs2_matching import ConcealedMatching, candidate_labels, joint
from privfl_lite.attacks.adaptive.dcs2_split import SCALES
from privfl_lite.attacks.analytic.equations import by_channel, kernel_equations
from privfl_lite.attacks.analytic.gauss_newton import gauss_newton
from privfl_lite.defenses import DCS2
from privfl_lite.runtime import PrivflError
from privfl_lite.wire import Facts


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


def test_maps_are_the_convolutions(net):
    x = torch.rand(1, 1, 28, 28).double()
    for conv, act, m in zip(
        net.features[0:6:2], net.features[1:6:2], pair.conv_maps(net), strict=True
    ):
        out = conv(x)
        torch.testing.assert_close(m @ x.flatten(), (out - conv.bias[:, None, None]).flatten())
        x = act(out)


def test_gradient_of_a_kernel_is_linear_in_the_input(net):
    for i, side in ((2, 14), (4, 7)):
        conv = net.features[i]
        x = torch.rand(1, conv.in_channels, side, side).double()
        out = conv(x)
        errors = torch.randn(out.shape, generator=torch.Generator().manual_seed(i)).double()
        (want,) = torch.autograd.grad((out * errors).sum(), conv.weight)
        found = kernel_equations(conv, errors[0].flatten(1), (side, side)) @ x[0].flatten(1).T
        torch.testing.assert_close(found, by_channel(want))
    o, c, k = 3, 2, 5
    rows = by_channel(want)
    assert rows[o * 25 + k, c] == want[o, c].flatten()[k]


def test_two_images_are_separated_without_any_label(net, mixed):
    images, labels, grads = mixed
    split = pair.separate(net, grads["head.weight"], grads["head.bias"], range(10))
    assert split.label == labels[0].argmax() and split.score < 1e-6
    torch.testing.assert_close(split.f, net.features(images).detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        split.delta, (net(images).softmax(1) - labels).detach(), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(split.soft, labels[1], atol=1e-6, rtol=0)
    found = pair.image_behind(net, grads, pair.refined(net, grads, split), pair.conv_maps(net))
    assert (found - images[0]).abs().max() < 1e-3
    assert split.weights.tolist() == pytest.approx([0.5, 0.5], rel=1e-6)
    other = pair.swapped(pair.swapped(split))
    assert all(torch.equal(getattr(other, n), getattr(split, n)) for n in ("f", "delta", "weights"))


@pytest.mark.parametrize("scale", [1.0, 1 / 3, 0.37, 2.9])
def test_the_scale_is_found(net, mixed, scale):
    """Those of Eq. 10 exactly; any other by the rank of the last layer, and by x̃'s label."""
    images, labels, grads = mixed
    sent = {n: 2 * scale * t for n, t in grads.items()}
    split = pair.separate(net, sent["head.weight"], sent["head.bias"], range(10))
    assert split.label == labels[0].argmax()
    assert split.weights.tolist() == pytest.approx([scale, scale], rel=1e-4)
    torch.testing.assert_close(split.f, net.features(images).detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(split.soft, labels[1], atol=1e-4, rtol=0)
    found = pair.image_behind(net, sent, pair.refined(net, sent, split), pair.conv_maps(net))
    assert (found - images[0]).abs().max() < 1e-2


def test_two_different_weights_are_found(net, mixed):
    """As where the released code's projection acts: v = ½ on top of ⅓ and ⅓."""
    images, labels, _ = mixed
    r = net.features(images).detach()
    delta = net.head(r).softmax(1).detach() - labels
    a, b = 5 / 6, 1 / 3
    weight = a * torch.outer(delta[0], r[0]) + b * torch.outer(delta[1], r[1])
    split = pair.separate(net, weight, a * delta[0] + b * delta[1], range(10))
    assert split.label == labels[0].argmax()
    assert split.weights.tolist() == pytest.approx([a, b], rel=1e-4)
    torch.testing.assert_close(split.delta, delta, atol=1e-4, rtol=0)


def test_where_errors_are_parallel_only_the_known_scales_are_tried(net):
    """There the last layer tells a + b and no more: a factor of no rule is not found."""
    x, y = load("mnist").sample(2, split="test", seed=13)
    r = net.features(x.double()).detach()
    own = one_hot(y[:1], 10).double()
    delta = net.head(r).softmax(1).detach() - own  # both with the first one's label
    for scale, found in ((1.0, True), (1 / 3, True), (0.37, False)):
        sent = scale * delta.T @ r, scale * delta.sum(0)
        split = pair.separate(net, *sent, [int(y[0])])
        assert any(split.weights.tolist() == [s, s] for s in SCALES)
        assert (split.weights.tolist() == [scale, scale]) is found


def test_a_digit_is_read_behind_dcs2():
    """From a 32-bit upload, with nothing granted; and at another size of images."""
    for size in (25, 16):
        digits = load("mnist", size=size)
        net = models.build("lenet", digits)
        x, y = digits.sample(1, split="test", seed=5)
        pool = digits.x_train[digits.y_train != y], digits.y_train[digits.y_train != y]
        upload = share(net, x, y, DCS2(steps=40, start="sample", pool=pool))
        found = Pair().run(upload)
        assert found.labels.tolist() == y.tolist() and found.cost.item() < 1e-2
        assert metrics.psnr(found.images.clamp(0, 1), x).item() > 50


@pytest.mark.parametrize(("scale", "weight"), [("sum", 1.0), ("code", 1 / 3)])
def test_a_digit_is_read_behind_eq_10_as_printed_and_as_released(scale, weight):
    """From 32-bit uploads, nothing granted; seeds that no study has and the attack never saw."""
    digits = load("mnist")
    net = models.build("lenet", digits, seed=2024)
    x, y = digits.sample(2, split="test", seed=2024)
    keep = ~torch.isin(digits.y_train, y)
    pool = digits.x_train[keep], digits.y_train[keep]
    defense = DCS2(steps=40, start="sample", pool=pool, scale=scale)
    found = Pair().run(share(net, x, y, defense, each=1, seed=2024))
    assert found.labels.tolist() == y.tolist()
    splits = found.details["splits"]
    assert all(split.weights.tolist() == [weight, weight] for split in splits)
    assert metrics.psnr(found.images.clamp(0, 1), x).min() > 50


def test_more_images_or_steps_are_refused(net):
    x, y = torch.rand(4, 1, 28, 28), torch.tensor([0, 1, 2, 3])
    model = copy.deepcopy(net).float()
    two = share(model, x, y, each=2)
    steps = share(model, x[:1], y[:1], plan=Plan(eta=0.1, steps=3, batch_size=1))
    for attack in (Pair().run, gauss_newton):
        for upload, got in ((two, "2, 1"), (steps, "1, 3")):
            with pytest.raises(PrivflError, match=f"1 step; got {got}") as error:
                attack(upload)
            assert "\n" not in str(error.value)


def test_other_networks_are_refused():
    relu = models.build("lenet", (1, 16, 16), 10, act="relu")
    upload = share(relu, torch.rand(2, 1, 16, 16), torch.tensor([0, 1]), each=1)
    with pytest.raises(PrivflError, match="Pair knows the sigmoid lenet only"):
        Pair().run(upload)


def test_tried_labels_are_those_that_a_concealed_image_may_have():
    labels = candidate_labels(torch.tensor([4, 0]), 10, 0.7)
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


def test_concealed_images_are_further_unknowns_of_the_one_search(net, mixed):
    images, labels, _ = mixed
    images, labels = images.float(), labels.float()
    upload = share(copy.deepcopy(net).float(), images, labels)
    granted = Facts(labels=labels[None, :1].argmax(2), mixture=labels[None])
    one, who = replace(upload, batch=1, knows=granted), torch.zeros(1, dtype=torch.long)
    attack = ConcealedMatching(steps=25, width=4.0, tv=0.01, show=False)
    cost, hidden = attack.cost(one), images[1].flatten()[None]
    right, wrong = (cost(images[None, :1], granted.labels, who, v) for v in (hidden / 4, hidden))
    assert right < 1e-6 < wrong and attack.unknowns(one) == 28 * 28
    found, ends, count = joint(one, labels[None, None].expand(1, 2, 2, 10), 25, 0, vars(attack))
    best = replace(attack, restarts=2).run(one)  # the same two starts, of which it keeps the better
    assert torch.equal(best.images, found[0, ends.argmin(), :1]) and count == best.evaluations
    assert torch.equal(best.cost, ends.min(1).values)
