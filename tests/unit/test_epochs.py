"""Epochs: the order of shuffled batches is sought with the images, and then followed exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from privfl_lite import load, metrics, models, share
from privfl_lite.attacks import IDLG, Epochs
from privfl_lite.attacks.matching.epochs import InOrder, likeliest, passes, shares
from privfl_lite.runtime import generator
from privfl_lite.wire import Plan


@pytest.fixture(scope="module")
def four():
    """Four digits of 8 × 8 pixels with labels of their own, and a sigmoid LeNet for them."""
    digits = load("mnist", size=8)
    x, y = digits.sample(4, distinct=True)
    return models.build("lenet", digits), x, y


def true_orders(plan, n, steps):
    """How the one client of ``share`` read its n examples with seed 0, (1, S, n)."""
    orders = torch.zeros(1, steps, n)
    for s, batch in enumerate(plan.batches(n, generator(0, 0))):
        orders[0, s].index_add_(0, batch, torch.ones(len(batch)))
    return orders


@pytest.mark.parametrize(
    "rules",
    [
        {"epochs": 2, "batch_size": 2, "momentum": 0.9},
        {"epochs": 3, "batch_size": 3},  # the last batch of an epoch is smaller
        {"steps": 5, "batch_size": 3, "momentum": 0.5},  # batches cross passes; the last is cut
        {"steps": 2, "batch_size": 6},  # an image stands in a batch twice
    ],
)
def test_the_right_order_imitates_shuffled_training_exactly(four, rules):
    net, x, y = four
    plan = Plan(eta=0.1, mode="eval", **rules)
    sent = share(net, x, y, plan=plan)
    orders, who = true_orders(plan, 4, sent.local_steps), torch.tensor([0])
    long = sum(t.square().sum() for t in sent.tensors.values())
    right = InOrder(orders=orders).cost(sent)(x[None], y[None], who) / long
    stands = IDLG().cost(sent)(x[None], y[None], who) / long
    assert right < 1e-9 and stands > 1e-4


def test_passes_by_hand():
    two = passes(Plan(epochs=2, batch_size=3), 4)
    assert [(p.steps, p.sizes.tolist()) for p in two] == [([0, 1], [3, 1]), ([2, 3], [3, 1])]
    cut = passes(Plan(steps=2, batch_size=3), 4)  # 6 places: all four images, then two of them
    assert [(p.steps, p.sizes.tolist()) for p in cut] == [([0, 1], [3, 1]), ([1, 2], [2, 2])]


def test_shares_fill_batches_and_the_likeliest_is_an_order():
    sizes = torch.tensor([3, 1])
    logits = torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(0))
    share = shares(logits, sizes)
    torch.testing.assert_close(share.sum(2), torch.ones(5, 4))
    torch.testing.assert_close(share.sum(1), sizes.expand(5, 2).float(), atol=1e-3, rtol=0)
    order = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert torch.equal(likeliest(shares(9 * order[None], sizes)[0], sizes), order)


def test_epochs_finds_images_and_order_where_others_do_not(four):
    net, x, y = four
    plan = Plan(eta=0.02, epochs=2, batch_size=2, mode="eval")
    sent = share(net, x, y, knows=("labels",), plan=plan)
    naive = replace(sent, tensors=sent.gradients(), kind="gradient", plan=None)
    found = Epochs(steps=150, show=False).run(sent)
    score = metrics.psnr(metrics.as_image(found.images), x).median()
    for other in (naive, sent):
        rival = IDLG(steps=150, show=False).run(other)
        assert score > 5 + metrics.psnr(metrics.as_image(rival.images), x).median()
    assert torch.equal(found.details["orders"], true_orders(plan, 4, 4))


@pytest.mark.parametrize(
    "how", [{}, {"plan": Plan(batch_size=4)}, {"plan": Plan(batch_size=2, shuffle=False)}]
)
def test_with_no_order_open_it_is_idlg(four, how):
    """A gradient; one batch with all images; batches whose composition is known."""
    net, x, y = four
    sent = share(net, x, y, knows=("labels",), **how)
    one, two = (kind(steps=5, show=False).run(sent) for kind in (Epochs, IDLG))
    assert torch.equal(one.images, two.images)


def test_settings_of_matching_are_kept(four):
    """Labels not granted, restarts, a box, pictures on the way; an odd number of steps, or one."""
    net, x, y = four
    sent = share(net, x, y, each=2, plan=Plan(eta=0.05, epochs=2, batch_size=1))
    how = {"optimizer": "adam", "box": True, "restarts": 2, "frames": 2, "labels": "joint"}
    found = Epochs(steps=7, show=False, **how).run(sent)
    assert found.images.shape == x.shape and found.images.min() >= 0 and len(found.history) == 2
    assert torch.equal(found.details["orders"].sum(1), torch.full((2, 2), 2.0))
    assert Epochs(steps=1, show=False).run(sent).cost.isfinite().all()


def test_batch_norm_in_train_mode_is_refused(refused):
    net, x = models.build("convnet", (1, 16, 16), 10, width=4), torch.rand(4, 1, 16, 16)
    sent = share(net, x, torch.arange(4), plan=Plan(epochs=2, batch_size=2))
    refused(lambda: Epochs(steps=2, show=False).run(sent), "batch norm in eval mode")
