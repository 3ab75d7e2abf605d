"""Generative attacks: GRNN searches a network's weights, GGL a generator's latents."""

from __future__ import annotations

import sys

import pytest
import torch

import privfl_lite as pf
from privfl_lite import PrivflError, metrics, models, share
from privfl_lite.attacks.generative.generator import Generator, load_generator
from privfl_lite.attacks.generative.ggl import GGL, latent_penalty
from privfl_lite.attacks.generative.grnn import GRNN, GRNNNet, squared_variation
from privfl_lite.stored import digest, save


@pytest.fixture(autouse=True)
def own_randomness():
    """Leave torch's own stream to other tests as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="module")
def draw():
    return load_generator()


@pytest.fixture(scope="module")
def own(draw):
    """Images that are in the generator's range, their latents and labels, and a small LeNet."""
    z = torch.randn(3, draw.latent, generator=torch.Generator().manual_seed(5))
    return models.build("lenet", (1, 28, 28), 10), draw(z), torch.tensor([3, 1, 4]), z


@pytest.fixture(scope="module")
def small():
    """Two digits of 16×16 pixels that no generator saw, and a small LeNet."""
    digits = pf.load("mnist", size=16)
    return models.build("lenet", digits), *digits.sample(2, split="test")


QUICK = GRNN(steps=250, rate=1e-3, width=8, latent=32, frames=2, show=False)


# --- GRNN ---


def test_grnn_rebuilds_images_and_labels(small):
    net, x, y = small
    upload = share(net, x, y, each=1)
    start, found = GRNN(steps=1, rate=1e-3, width=8, latent=32).run(upload), QUICK.run(upload)
    assert (found.cost < start.cost / 50).all() and torch.equal(found.labels, y)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0))
    assert (metrics.psnr(found.images, x) > metrics.psnr(noise, x) + 6).all()
    assert [tick for tick, _ in found.history] == [125, 250] and found.failed == 0
    assert torch.equal(found.history[-1][1], found.images)
    again = upload.imitator()(found.images[:, None], y[:, None])  # labels are nearly one-hot
    gap = sum((again[n] - t).flatten(1).square().sum(1) for n, t in upload.tensors.items())
    assert (gap < start.cost / 10).all()


def test_grnn_equals_a_plain_loop_over_one_generator(small):
    """Three steps of torch's own RMSprop on one ordinary module, without vmap."""
    net, x, y = small
    upload = share(net, x[:1], y[:1])
    attack = GRNN(steps=3, rate=1e-3, width=8, latent=32)
    module, theta, z = attack._start(upload, seed=4)
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.copy_(theta[name][0])
    optimizer = torch.optim.RMSprop(module.parameters(), lr=1e-3, momentum=0.99)
    for _ in range(3):
        image, label = module(z[0])
        loss = torch.nn.functional.cross_entropy(net(image), label)
        g = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
        pairs = zip(g, upload.tensors.values(), strict=True)
        gap = sum((a - b[0]).square().sum() for a, b in pairs)
        optimizer.zero_grad()
        (gap + gap.sqrt() + 1e-3 * squared_variation(image[None])[0]).backward()
        optimizer.step()
    found = attack.run(upload, seed=4)
    torch.testing.assert_close(found.cost[0], gap.detach(), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found.images, image.detach(), rtol=1e-3, atol=1e-3)


def test_grnn_draws_many_generators_as_one_by_one(small):
    net, x, y = small
    upload = share(net, x, y, each=1)
    attack = GRNN(steps=8, rate=1e-3, width=8, latent=32)
    together, again, other = (attack.run(upload, seed=s) for s in (0, 0, 1))
    assert torch.equal(together.images, again.images)
    assert not torch.equal(together.images, other.images)
    torch.testing.assert_close(attack.run(upload[0]).images, together.images[:1], atol=1e-3, rtol=0)


def test_grnn_batches_granted_labels_and_updates(small):
    net, x, y = small
    attack = GRNN(steps=5, width=8, latent=32)
    found = attack.run(share(net, x, y, knows=("labels",)))
    assert found.images.shape == x.shape and torch.equal(found.labels, y)
    plan = pf.Plan(eta=0.05, steps=2, batch_size=1, shuffle=False, mode="eval")
    assert attack.run(share(net, x[:1], y[:1], plan=plan)).cost.isfinite().all()


def test_grnn_network_has_the_papers_shapes():
    net = GRNNNet(3, 32, 10)
    convs = [tuple(m.weight.shape) for m in net.image if hasattr(m, "kernel_size")]
    assert convs == [(128, 256, 4, 4), (128, 128, 3, 3), (64, 64, 3, 3), (6, 32, 3, 3)]
    image, label = net(torch.randn(1, 128))
    assert image.shape == (1, 3, 32, 32) and label.sum().item() == pytest.approx(1)
    assert image.min() >= 0 and image.max() <= 1


def test_squared_variation_by_hand():
    x = torch.tensor([[0.0, 3.0], [1.0, 1.0]]).view(1, 1, 1, 2, 2)
    assert squared_variation(x).item() == pytest.approx(2 * ((1 + 4) / 2 + (9 + 0) / 2))


# --- GGL ---


def test_ggl_finds_an_image_that_the_generator_can_draw(own, draw):
    net, x, y, _ = own
    upload = share(net, x, y, each=1)
    attack = GGL(draw, steps=400, restarts=3, frames=4, show=False)
    found, start = attack.run(upload), GGL(draw, steps=1).run(upload)
    scores = metrics.psnr(found.images, x)
    assert scores.median() > 25 and (found.cost < start.cost / 2).all()
    assert (scores > metrics.psnr(start.images, x)).all()
    right = found.cost < 1e-5  # a search that ends in a false valley shows it by its cost
    assert right.sum() >= 2 and scores[right].min() > 25
    assert torch.equal(found.labels, y) and found.evaluations == 400 and found.failed == 0
    assert [tick for tick, _ in found.history] == [100, 200, 300, 400]


@pytest.mark.parametrize("optimizer", ["adam", "cma"])
def test_every_answer_of_ggl_is_in_the_generators_range(own, draw, optimizer):
    """Its images are G(z) of latents that it visited, pixel for pixel."""
    seen = []

    class Spy(torch.nn.Module):
        latent = draw.latent

        def forward(self, z):
            seen.append(z.detach().clone())
            return draw(z)

    net, x, y, _ = own
    attack = GGL(Spy(), optimizer, steps=60, show=False)
    found = attack.run(share(net, x, y, each=1))
    latents = torch.cat(seen)
    images = draw(latents).flatten(1)
    exact = "donot_use_mm_for_euclid_dist"
    away = torch.cdist(found.images.flatten(1), images, compute_mode=exact).min(1)
    assert away.values.max() < 1e-4
    torch.testing.assert_close(draw(latents[away.indices]), found.images, atol=1e-5, rtol=0)


def test_cma_beats_random_search_with_as_many_evaluations(own, draw):
    pytest.importorskip("cmaes")
    net, x, y, _ = own
    upload, budget = share(net, x, y, each=1), 1400
    found = GGL(draw, "cma", steps=budget, show=False).run(upload)
    assert found.evaluations == budget  # 100 generations of 4 + ⌊3 ln 32⌋ = 14
    z = torch.randn(budget, draw.latent, generator=torch.Generator().manual_seed(0))
    imitate = upload.imitator()
    gains = []
    for k in range(3):
        sent = imitate(draw(z)[:, None], y[k].expand(budget, 1))
        a, b = (torch.cat([d[n].flatten(1) for n in sent], 1) for d in (sent, upload[k].tensors))
        gains.append((1 - torch.cosine_similarity(a, b)).min() / found.cost[k])
    assert min(gains) > 1 and sorted(gains)[1] > 3


@pytest.mark.parametrize("optimizer", ["adam", "cma"])
def test_ggl_uploads_do_not_disturb_each_other_and_seeds_repeat(own, draw, optimizer):
    net, x, y, _ = own
    upload = share(net, x, y, each=1)
    attack = GGL(draw, optimizer, steps=28, show=False)
    a, b, c = (attack.run(upload, seed=s).images for s in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)
    torch.testing.assert_close(attack.run(upload[0], seed=1).images, a[:1], atol=1e-3, rtol=0)


def test_ggl_takes_batches_and_l2_and_a_smoothness_prior(own, draw):
    net, x, y, _ = own
    upload = share(net, x[:2], y[:2], knows=("labels",))
    found = GGL(draw, distance="l2", steps=150, restarts=2, tv=1e-4, show=False).run(upload)
    order = metrics.assign(found.images, x[:2])
    assert found.cost.shape == (1,) and metrics.psnr(found.images[order], x[:2]).min() > 18


def test_latent_penalty_is_zero_for_standard_moments():
    z = torch.randn(2, 3, 50)
    z = (z - z.mean(2, keepdim=True)) / z.std(2, unbiased=False, keepdim=True)
    torch.testing.assert_close(latent_penalty(z), torch.zeros(2), atol=1e-6, rtol=0)
    want = torch.distributions.kl_divergence(
        torch.distributions.Normal(1.0, 2.0), torch.distributions.Normal(0.0, 1.0)
    )
    torch.testing.assert_close(latent_penalty(2 * z + 1), want.expand(2))


# --- both ---


@pytest.mark.parametrize(
    "attack", [GRNN(steps=3, width=8), GGL(steps=28), GGL(optimizer="cma", steps=28)]
)
def test_a_search_without_a_finite_cost_is_counted_not_hidden(attack):
    net = models.build("lenet", (1, 32, 32), 10)
    upload = share(net, torch.rand(2, 1, 32, 32), torch.tensor([1, 2]), each=1)
    with torch.no_grad():
        upload.model.features[0].weight.mul_(torch.inf)  # every gradient there is NaN
    found = attack.run(upload)
    assert found.failed == 2 and found.cost.isinf().all() and found.images.isfinite().all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda u: GRNN().run(u), "not 28×28; the nearest is 32: load the data with size=32"),
        (lambda u: GRNN(steps=0), "steps is 0; it must be a whole number at"),
        (lambda u: GGL(optimizer="sgd"), "choose one of: adam, cma"),
        (lambda u: GGL(distance="l3"), "choose one of: l2, cosine"),
        (lambda u: GGL(restarts=0), "restarts is 0; it must be a whole number"),
        (lambda u: GGL(optimizer="cma", steps=5).run(u), "at least 14 steps here; got 5"),
        (lambda u: GGL(Generator(size=32)).run(u), "draws images (1, 32, 32), but the model"),
    ],
)
def test_bad_settings_get_one_sentence(refused, own, call, says):
    net, x, y, _ = own
    refused(lambda: call(share(net, x, y, each=1)), says)


def test_a_missing_library_is_named(own, monkeypatch):
    net, x, y, _ = own
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(PrivflError, match="pip install cmaes"):
        GGL(optimizer="cma").run(share(net, x, y, each=1))


# --- the stored generator ---


def test_the_stored_generator_draws_digits_that_look_unlike_noise(draw):
    z = torch.randn(64, draw.latent, generator=torch.Generator().manual_seed(1))
    images, real = draw(z), pf.load("mnist").x_test
    assert images.shape == (64, 1, 28, 28) and images.min() >= 0 and images.max() <= 1
    assert abs(images.mean() - real.mean()) < 0.05
    nearest = torch.cdist(images.flatten(1), real.flatten(1)).min(1).values
    apart = torch.cdist(real[:64].flatten(1), real.flatten(1)).topk(2, largest=False).values[:, 1]
    assert nearest.median() < 1.3 * apart.median()  # about as near to a digit as digits are
    assert load_generator(32)(z).shape == (64, 1, 32, 32)


def test_damaged_or_foreign_weights_are_refused(tmp_path):
    path = tmp_path / "digits.safetensors"
    with pytest.raises(PrivflError, match="missing; make it again with: privfl study run"):
        load_generator(path=path)
    net = Generator()
    sha = save(net, path, {"seed": "0"})
    assert digest({n: t.half() for n, t in net.state_dict().items()}) == sha
    load_generator(path=path)
    good = path.read_bytes()
    path.write_bytes(good[:-2] + b"\x11\x22")
    with pytest.raises(PrivflError, match="does not match its own SHA-256"):
        load_generator(path=path)
    path.write_bytes(good[:100])
    with pytest.raises(PrivflError, match="damaged"):
        load_generator(path=path)
    save(Generator(latent=8), path, {})
    with pytest.raises(PrivflError, match="another network"):
        load_generator(path=path)
