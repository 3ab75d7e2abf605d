"""How often each class stands in a batch: exact where theory says so, better where it should be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from privfl_lite import FedAvg, Upload, load, models, share
from privfl_lite.attacks import infer_labels
from privfl_lite.attacks.labels import _signs, _solved
from privfl_lite.wire import Plan


@pytest.fixture(scope="module")
def digits():
    return load("mnist")


def hits(guess, y):
    """How many labels of the multiset y (B,) are also in the guess (1, B)."""
    counts = (torch.bincount(t.flatten(), minlength=10) for t in (guess, y))
    return int(torch.minimum(*counts).sum())


def as_gradient(upload: Upload) -> Upload:
    """What an update is to one who takes it for a gradient."""
    return replace(upload, tensors=upload.gradients(), kind="gradient", plan=None)


def test_equation_1_is_exact(digits):
    """With the classes' own mean predictions it gives their counts, at any age of the network."""
    net = models.build("mlp", digits, hidden=(32,))
    with torch.no_grad():
        net.head.weight *= 8
    x, y = digits.sample(24)
    logits = net(x).double().detach().requires_grad_()
    torch.nn.functional.cross_entropy(logits, y).backward()
    g, p = logits.grad.sum(0), logits.detach().softmax(1)
    rows = torch.stack([p[y == c].mean(0) if (y == c).any() else p.mean(0) for c in range(10)])
    counts = torch.bincount(y, minlength=10).double()
    torch.testing.assert_close(_solved(24, g[None], rows[None])[0], counts, atol=1e-9, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_quotients_are_exact_for_one_representation(digits, seed):
    """One image under several labels, and a network that is sure of itself: noise tells nothing."""
    net = models.build("mlp", digits, hidden=(64,), seed=seed)
    with torch.no_grad():
        net.head.weight *= 20
    x = digits.sample(1, seed=seed)[0].repeat(8, 1, 1, 1)
    y = torch.randint(10, (8,), generator=torch.Generator().manual_seed(seed))
    upload = share(net, x, y)
    assert torch.equal(infer_labels(upload, method="quotients")[0], y.sort().values)
    assert hits(infer_labels(upload), y) < 8


def test_signs_name_distinct_labels_without_a_probe_or_a_bias(digits):
    net = models.build("cloak", digits)
    x, y = digits.sample(4, distinct=True)
    assert torch.equal(infer_labels(share(net, x, y), method="signs")[0], y.sort().values)


def test_signs_by_hand():
    """Sums −3, −1, and 2 of a batch of 4: impact (1 + 1/3)·(−4)/4, so three of the first class."""
    assert _signs(torch.tensor([-3.0, -1.0, 2.0]), 4).tolist() == [0, 0, 0, 1]


def test_an_update_is_read_better_along_its_way_than_at_its_start(digits):
    plan, start, way = Plan(eta=0.05, epochs=5, batch_size=2), 0, 0
    for seed in range(6):
        x, y = digits.sample(8, seed=seed)
        sent = share(models.build("mlp", digits, seed=seed), x, y, plan=plan, seed=seed)
        start += hits(infer_labels(as_gradient(sent)), y)
        way += hits(infer_labels(sent), y)
    assert way >= 45 and way > start + 2  # of 48


def test_public_images_read_a_trained_network(digits):
    clients = digits.clients(5, "iid", 100)
    plan = Plan(eta=0.1, batch_size=20)
    run = FedAvg(models.build("mlp", digits), clients, 15, plan, show=False)
    for _ in run:
        pass
    probed, read = 0, 0
    for seed in range(5):
        x, y = digits.sample(32, split="test", seed=seed)
        sent = share(run.model, x, y)
        probed += hits(infer_labels(sent), y)
        read += hits(infer_labels(sent, public=digits.sample(400, seed=99)), y)
    assert read > probed + 10  # of 160


def test_bad_input_is_refused(digits, refused):
    x, y = digits.sample(4)
    net = models.build("cloak", digits)
    sent = share(net, x, y)
    refused(lambda: infer_labels(sent, method="guess"), "unknown method 'guess'")
    refused(lambda: infer_labels(sent, method="quotients"), "'head.bias' is not in the upload")
    refused(lambda: infer_labels(sent, public=(x[:, :, :9], y)), "the model takes images")
    refused(lambda: infer_labels(sent, public=(x, y + 9)), "labels must lie in 0…9")
