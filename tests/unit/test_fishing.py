"""Fishing restores one image's gradient; what D-SNR sees of it; sums of which some is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import privfl_lite as pf
from privfl_lite import PrivflError, models, share
from privfl_lite.attacks import (
    IDLG,
    ClosedForm,
    FishingReadout,
    Imprint,
    feature_of,
    fish,
    fished,
    remainder,
    restored,
    silenced,
    spoken,
)
from privfl_lite.client_checks import d_snr, d_snr_by_layer, example_norms
from privfl_lite.defenses import SecureSum, sum_of

NETS = ["mlp", "lenet", "lenet5"]


@pytest.fixture(scope="module")
def digits():
    return pf.load("mnist")


@pytest.fixture(scope="module")
def batch(digits):
    """Sixteen digits, of which just one is a 7."""
    x, y = digits.sample(40, seed=3)
    seven, rest = (y == 7).nonzero().flatten(), (y != 7).nonzero().flatten()
    rows = torch.cat([rest[:9], seven[:1], rest[9:15]])
    return x[rows], y[rows]


def flat(tensors):
    return torch.cat([t.flatten(1) for t in tensors.values()], 1)


def cosine(a, b):
    return nn.functional.cosine_similarity(flat(a), flat(b)).min().item()


@pytest.mark.parametrize("name", NETS)
def test_the_target_outweighs_the_batch(digits, batch, name):
    x, y = batch
    net = fished(models.build(name, digits), 7)
    upload = share(net, x, y)
    own = share(net, x[9:10], y[9:10]).tensors
    front = [n for n in own if not n.startswith("head")]
    sent = {n: upload.tensors[n] for n in front}
    assert cosine(sent, {n: own[n] for n in front}) > 0.9999  # on the wire, of 16 images
    single, caught = restored(upload)
    assert caught.item() == pytest.approx(1, abs=1e-4)
    assert cosine(single.tensors, own) > 0.9999
    scale = flat(single.tensors).norm() / flat(own).norm()
    assert scale.item() == pytest.approx(1, rel=1e-3)
    honest = share(models.build(name, digits), x, y).tensors  # of an honest network it is not
    alone = share(models.build(name, digits), x[9:10], y[9:10]).tensors
    assert cosine({n: honest[n] for n in front}, {n: alone[n] for n in front}) < 0.9


def test_an_attack_on_one_image_reads_the_catch(digits, batch):
    x, y = batch
    upload = share(fished(models.build("mlp", digits), 7), x, y)
    found = FishingReadout(ClosedForm()).run(upload)
    assert found.images.shape == x.shape and found.labels[0] == 7
    assert (found.images[0] - x[9]).abs().max() < 1e-3 and found.cost.item() < 1e-3
    assert (found.images[1:] == 0.5).all()
    sigmoid = share(fished(models.build("lenet", digits), 7), x, y)
    searched = FishingReadout(IDLG(steps=120, show=False)).run(sigmoid)
    assert pf.metrics.compare(searched.images[:1], x[9:10])["psnr"].item() > 18


@pytest.mark.parametrize("name", NETS)
def test_two_answers_give_the_image_with_the_highest_feature(digits, name):
    net = models.build(name, digits)
    u, ends = feature_of(net, digits.x_test, seed=1)
    x, y = digits.sample(16, seed=6)
    asked = []

    def ask(model):
        asked.append(model)
        return share(model, x, y)

    found = fish(ask, net, 3, u, ends)
    single, caught = restored(found)
    assert round(caught.item()) == 1 and len(asked) <= 17
    with torch.no_grad():
        top = int((net.representation(x) @ u).argmax())
    label = torch.tensor([3])  # as if it had the target's label, whatever its own
    own = share(found.model, x[top : top + 1], label).tensors
    assert cosine(single.tensors, own) > 0.99
    if name == "mlp":
        image = FishingReadout(ClosedForm()).run(found).images[0]
        assert (image - x[top]).abs().max() < 1e-3


def test_updates_of_one_step_are_fished_like_gradients(digits, batch):
    x, y = batch
    net = fished(models.build("mlp", digits), 7)
    plan = pf.Plan(eta=0.1, steps=1, batch_size=16)
    found = FishingReadout(ClosedForm()).run(share(net, x, y, plan=plan))
    assert (found.images[0] - x[9]).abs().max() < 0.05


# --- D-SNR ---


def test_it_is_the_formula_by_autograd(digits, batch):
    x, y = batch
    net = models.build("lenet5", digits)
    by_layer = d_snr_by_layer(net, x, y)
    norms = []
    for k in range(len(x)):
        net.zero_grad()
        nn.functional.cross_entropy(net(x[k : k + 1]), y[k : k + 1]).backward()
        norms.append([net.get_parameter(n).grad.norm().item() for n in by_layer])
    norms = torch.tensor(norms)
    power = norms.square()
    ratios = norms.amax(0) / (power.sum(0) - power.amax(0)).sqrt()
    for found, true in zip(by_layer.values(), ratios.tolist(), strict=True):
        assert found == pytest.approx(true, rel=1e-3)
    assert set(by_layer) == {
        f"{n}.weight" for n, m in net.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)
    }
    assert d_snr(net, x, y) == max(by_layer.values())


@pytest.mark.parametrize("name", NETS)
def test_honest_networks_pass_and_fishing_by_class_does_not(digits, batch, name):
    x, y = batch
    net = models.build(name, digits)
    assert d_snr(net, x, y) < 1
    assert d_snr(fished(net, 7), x, y) == float("inf")


def test_what_it_does_not_see(digits, batch, refused):
    x, y = batch
    net = models.build("mlp", digits)
    several = x[y != 7], y[y != 7]  # two images of the class or more: they stand beside each other
    common = int(several[1].bincount().argmax())
    assert several[1].bincount()[common] >= 2
    assert d_snr(fished(net, common), *several) < 2
    block = Imprint(net, torch.linspace(0, 0.4, 400), gain=1e-3)
    assert d_snr(block, x, y) < 3  # and yet nearly all come back
    refused(lambda: d_snr(net, x[:1], y[:1]), "one stands alone whatever the model")


def test_chunks_and_bare_modules_give_the_same(digits, monkeypatch):
    net = models.build("mlp", digits)
    x, y = digits.sample(100)
    whole = example_norms(net, x, y)
    assert all(len(t) == 100 for t in whole.values())
    bare = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    assert d_snr(bare, x, y) > 0
    parts = [example_norms(net, x[i : i + 7], y[i : i + 7]) for i in range(0, 100, 7)]
    for n, t in whole.items():
        torch.testing.assert_close(torch.cat([p[n] for p in parts]), t, rtol=1e-4, atol=1e-8)
    dead = models.build("mlp", digits)
    dead.head.weight.data.zero_()
    assert d_snr_by_layer(dead, x, y)["features.1.weight"] == 0  # no image moves it


# --- sums ---


def test_what_is_known_of_a_sum_is_taken_away(digits):
    net = models.build("mlp", digits)
    x, y = digits.sample(9)
    every = [*share(net, x, y, each=3)]
    total = sum_of(every, SecureSum(places=32))
    for known in (every[1:], [sum_of(every[1:], SecureSum(places=32))]):
        left = remainder(total, known)
        assert left.batch == 3
        for n, t in left.tensors.items():
            torch.testing.assert_close(t, every[0].tensors[n], rtol=1e-3, atol=1e-6)
    with pytest.raises(PrivflError, match="none are left"):
        remainder(total, every)


def test_silenced_neighbors_leave_the_target_alone(digits, batch):
    x, y = batch
    net = models.build("mlp", digits)
    own = share(net, x[:1], y[:1])
    others = share(silenced(net), x[1:], y[1:], each=1)
    seen = spoken(sum_of([own, *others], SecureSum(places=32)), 1)
    assert "head.weight" not in seen.tensors and seen.batch == 1
    image = pf.attacks.row_quotients(
        seen.tensors["features.1.weight"], seen.tensors["features.1.bias"]
    )[0]
    best = seen.tensors["features.1.bias"][0].abs().argmax()
    assert (image[best].view(1, 28, 28) - x[0]).abs().max() < 1e-3


def test_bad_requests_get_one_sentence(digits, refused):
    net = models.build("mlp", digits)
    x, y = digits.sample(2)
    refused(lambda: FishingReadout().run(share(net, x, y)), "does not fish")
    refused(lambda: fished(net, 10), "the model has 10 classes")
    refused(lambda: fished(net, 1, torch.ones(3)), "one for each feature")
    refused(lambda: fished(models.build("cloak", digits), 1), "a last layer with a bias")
