"""LODA: Eq. 4–6 and Algorithm 1 against independent versions, and the attackers who know it."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import conv2d

import privfl_lite as pf
from privfl_lite import Plan, defenses, models, share, stored
from privfl_lite.attacks.adaptive import loda_decoder as decoder
from privfl_lite.attacks.adaptive import loda_inversion as obscured
from privfl_lite.defenses import LODA, Prune
from privfl_lite.defenses.loda import obscure, obscured_set
from privfl_lite.models.extractor import LAYERS, Extractor, load_extractor, squared_distance
from privfl_lite.runtime import generator
from privfl_lite.stored import SHIPPED

SHAPE = (3, 8, 8)


@pytest.fixture(scope="module")
def net():
    """A ResNet-18 of width 2 whose batch norm is not the identity."""
    net = models.build("resnet18", SHAPE, 10, width=2)
    rng = torch.Generator().manual_seed(3)
    for m in net.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.running_mean = 0.1 * torch.randn(m.running_mean.shape, generator=rng)
            m.running_var = 0.5 + torch.rand(m.running_var.shape, generator=rng)
    return net.double()


@pytest.fixture(scope="module")
def images():
    rng = torch.Generator().manual_seed(5)
    return torch.rand(3, *SHAPE, generator=rng).double(), torch.rand(
        3, *SHAPE, generator=rng
    ).double()


@pytest.fixture(scope="module")
def linear(net):
    """g = the first convolution, and the matrix W (features, pixels) of that linear map."""
    w = net.features[0].weight
    basis = torch.eye(192).double().view(192, *SHAPE)
    return Extractor(net, (0,)), conv2d(basis, w, padding=1).flatten(1).T


@pytest.fixture(scope="module")
def half():
    """g(x) = x/2."""
    net = models.build("resnet18", SHAPE, 10, width=3)
    with torch.no_grad():
        net.features[0].weight.zero_()
        net.features[0].weight[range(3), range(3), 1, 1] = 0.5
    return Extractor(net, (0,))


def quick(net, **more) -> LODA:
    rng = torch.Generator().manual_seed(9)
    pool = torch.rand(5, *SHAPE, generator=rng)
    return LODA(net, **{"c": 1.0, "steps": 4, "start": pool, **more})


@pytest.fixture
def single(net):
    """The same network in single precision, on its own."""
    return copy.deepcopy(net).float()


# The extractor


def test_layers_are_the_papers_and_the_released_codes(net, images):
    x = images[0]
    convs = [m for m in net.features.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convs) == 20  # as the released hooks number them, 1×1 shortcuts included
    stages = [0] + [1] * 4 + [2] * 5 + [3] * 5 + [4] * 5  # stem, then four stages
    want = {
        "loda1": {0, 1},
        "loda2": {0, 1, 2, 3, 4},
        "loda2-code": {0, 1, 2, 3},
        "loda3": {4},
        "loda3-code": {2},
    }
    assert want.keys() == LAYERS.keys()
    for name, which in want.items():
        g = Extractor(net, name)
        assert {stages[l] for l in g.chosen} == which
        assert [l for l in range(20) if stages[l] in which] == g.chosen
    maps = Extractor(net, ("map", "pooled", "logits"))(x)
    torch.testing.assert_close(maps[0].mean((2, 3)), net.representation(x))
    torch.testing.assert_close(maps[1], net.representation(x))
    torch.testing.assert_close(maps[2], net(x))


def test_features_are_raw_convolutions_before_batch_norm(net, images):
    x = images[0]
    stem, norm, act, block = list(net.features)[:4]
    first = conv2d(x, stem.weight, padding=1)
    second = conv2d(act(norm(first)), block.body[0].weight, padding=1)
    third = conv2d(act(block.body[1](second)), block.body[3].weight, padding=1)
    for got, want in zip(Extractor(net, "loda1")(x), (first, second, third), strict=False):
        torch.testing.assert_close(got, want)
    down = list(net.features)[5]  # the first block of the second stage: its shortcut comes last
    inside = torch.nn.Sequential(*list(net.features)[:5])(x)
    want = conv2d(inside, down.skip[0].weight, stride=2)
    torch.testing.assert_close(Extractor(net, (7,))(x)[0], want)


def test_the_extractor_runs_no_layer_in_vain_and_leaves_the_network_alone(net, images):
    g, ran = Extractor(net, "loda1"), []
    for i, part in enumerate(g.net.features):
        part.register_forward_hook(lambda *_, i=i: ran.append(i))
    g(images[0])
    assert ran == [0, 1, 2, 3, 4]  # stem, norm, activation, two blocks
    assert all(p.requires_grad for p in net.parameters())


def test_rescaling_before_batch_norm_changes_c_but_not_the_network(net, images):
    """A convolution s times as large, with its norm to match: equal logits, s² times the gap."""
    x = images[0]
    large = copy.deepcopy(net)
    stem, norm = large.features[0], large.features[1]
    with torch.no_grad():
        stem.weight *= 3
        norm.running_mean *= 3
        norm.running_var.copy_(9 * (norm.running_var + norm.eps) - norm.eps)
    torch.testing.assert_close(large(x), net(x))
    gaps = [squared_distance(*(Extractor(n, (0,))(t) for t in images)) for n in (net, large)]
    torch.testing.assert_close(gaps[1], 9 * gaps[0])


def test_stored_weights_make_the_round_trip_or_are_refused(net, images, tmp_path, refused):
    path, again = tmp_path / "w.safetensors", models.build("resnet18", SHAPE, 10, seed=1, width=2)
    sha = stored.save(net, path, {"public": "none"})
    assert stored.fill(again, path, "extractor") == {"public": "none", "sha256": sha}
    torch.testing.assert_close(
        again(images[0].float()), net(images[0]).float(), rtol=0.02, atol=0.02
    )
    state = load_file(path)
    state["head.bias"] += 1
    save_file(state, path, {"sha256": sha})
    refused(lambda: stored.fill(again, path, "extractor"), "does not match its own SHA-256")
    other = models.build("resnet18", SHAPE, 10, width=4)
    stored.save(other, path, {})
    refused(lambda: stored.fill(again, path, "extractor"), "another network; make it again with")
    path.write_bytes(b"cut short")
    refused(lambda: stored.fill(again, path, "extractor"), "w.safetensors is damaged")
    refused(lambda: stored.fill(again, tmp_path / "no", "extractor"), "no are missing")


def test_the_shipped_extractor_is_that_of_its_study():
    found = json.loads((SHIPPED / "loda/extractor.json").read_text())["cells"][0]
    path = stored.SHIPPED / "weights" / found["file"]
    assert path.stat().st_size == found["bytes"] < 2_000_000
    about = stored.fill(load_extractor().net, path, "extractor")
    assert about["sha256"] == found["sha256"] and "index 25000 on" in about["public"]
    assert found["accuracy"] > 0.6


# Encoding: Eq. 4, Algorithm 1


def test_algorithm_1_on_a_linear_extractor_is_its_closed_form(linear, images):
    """For g = W the gradient of Eq. 4 is 2(WᵀW − cI)(x′ − x*): no autograd, one image at a time."""
    (g, w), (x, start) = linear, images
    made = obscure(g, x, start, c=0.7, steps=5, step_size=0.2)
    a = w.T @ w - 0.7 * torch.eye(192).double()
    for i in range(3):
        z, truth = start[i].flatten(), x[i].flatten()
        for t in range(6):
            d = z - truth
            terms = torch.stack([(w @ d).square().sum(), d.square().sum()])
            torch.testing.assert_close(made.history[i, :, t], terms)
            if t < 5:
                grad = 2 * a @ d
                z = (z - 0.2 * grad / grad.norm()).clamp(0, 1)
        torch.testing.assert_close(made.images[i].flatten(), z)


@pytest.mark.parametrize("layers", ["loda1", "loda3", "loda3-code"])
def test_the_objective_falls_and_pixels_stay_in_the_box(net, images, layers):
    x, start = images
    made = obscure(Extractor(net, layers), x, start, c=0.05, steps=40, step_size=0.05, shrink=True)
    cost = made.history[:, 0] - 0.05 * made.history[:, 1]
    assert (cost[:, -1] < cost[:, 0]).all()
    assert made.images.min() >= 0 and made.images.max() <= 1
    direct = squared_distance(*(Extractor(net, layers)(t) for t in (made.images, x)))
    torch.testing.assert_close(made.history[:, 0, -1], direct)


def test_an_image_that_is_its_own_start_stays(net, images):
    """Both terms of Eq. 4 are flat at x′ = x*: the gradient is 0, and 0/0 must not be a step."""
    made = obscure(Extractor(net), images[0], images[0], c=1.0, steps=3)
    assert torch.equal(made.images, images[0])


def test_steps_of_one_length_do_not_settle_and_shrinking_ones_do(half, images):
    """g(x) = x/2, c = 0.05: Eq. 4 is ⅕‖x′ − x*‖², least at x*, which steps of 0.1 jump over."""
    x, start = (t.float() for t in images)
    left = {}
    for shrink in (False, True):
        made = obscure(half, x, start, 0.05, steps=400, step_size=0.1, shrink=shrink)
        last = made.history[:, 1, -2:].sqrt()  # ‖x′ − x*‖ around the last step
        left[shrink] = last.amax(1)
    assert (left[False] > 0.0499).all() and (left[True] < 0.001).all()


def test_an_encoding_depends_on_the_image_and_the_seed_alone(single, images):
    x = images[0].float()
    y = torch.tensor([1, 2, 3])
    together, labels = quick(single).data(x, y, generator(0))
    assert torch.equal(labels, y)
    turned, _ = quick(single).data(x.flip(0), y, generator(7))
    torch.testing.assert_close(turned.flip(0), together, atol=1e-5, rtol=0)
    with torch.no_grad():  # as a caller who needs no gradient of its own may have it
        alone, _ = quick(single).data(x[:1], y[:1], generator(0))
    torch.testing.assert_close(alone, together[:1], atol=1e-5, rtol=0)
    starts = torch.stack([quick(single, seed=s).starts(x) for s in range(6)])
    assert len(starts.flatten(2).unique(dim=0)) > 1


def test_an_image_is_obscured_once(single, images, monkeypatch):
    x, y, loda, calls = images[0].float(), torch.tensor([1, 2, 3]), quick(single), []
    work, kept = LODA.obscure, {}
    monkeypatch.setattr(LODA, "obscure", lambda self, x: calls.append(len(x)) or work(self, x))
    first, _ = loda.data(x[:2], y[:2], generator(0), kept)
    again, _ = loda.data(x[[0, 1, 2, 2]], y[[0, 1, 2, 2]], generator(1), kept)
    assert calls == [2, 1] and torch.equal(again[:2], first) and torch.equal(again[2], again[3])
    assert len(kept) == 3


def test_a_client_remembers_its_encodings_from_round_to_round(single, images, monkeypatch):
    x, y, calls = images[0].float(), torch.tensor([1, 2, 3]), []
    work = LODA.obscure
    monkeypatch.setattr(LODA, "obscure", lambda self, x: calls.append(len(x)) or work(self, x))
    model, clients = models.build("lenet", SHAPE, 10), [(x[:2], y[:2]), (x[2:], y[2:])]
    run = pf.FedAvg(model, clients, 3, defense=quick(single) + Prune(0.5), show=False)
    list(run)
    assert calls == [2, 1]
    kept = [t for c in (0, 1) for t in run.memory.part(0)[c].values()]
    torch.testing.assert_close(torch.stack(kept), work(quick(single), x).images, atol=1e-5, rtol=0)


def test_starts_are_public_images(single):
    photos = pf.load("photos")
    x = photos.x_test[:4]
    begin = LODA(single, c=1.0).starts(x)
    assert all((photos.x_train == image).flatten(1).all(1).any() for image in begin)
    noise = LODA(single, c=1.0, start="noise").starts(x)
    assert noise.std() > 0.25 and noise.min() >= 0 and noise.max() <= 1


# At work


def test_with_prune_and_in_fedavg(single, images):
    x, y, loda = images[0].float(), torch.tensor([1, 2, 3]), quick(single)
    model = models.build("lenet", SHAPE, 10)
    sent = share(model, x, y, loda + Prune(0.5), each=1, knows=("c", "labels"))
    want = share(model, loda.obscure(x).images, y, Prune(0.5), each=1)
    for name, t in want.tensors.items():
        torch.testing.assert_close(sent.tensors[name], t, atol=1e-6, rtol=1e-4)
    assert sent.knows.c == 1.0 and torch.equal(sent.knows.labels.flatten(), y)
    plan = Plan(eta=0.1, batch_size=1, shuffle=False)
    run = pf.FedAvg(model, [(x, y)], 2, plan, defense=loda, show=False)
    plain = pf.FedAvg(model, [(loda.obscure(x).images, y)], 2, plan, show=False)
    list(run), list(plain)
    for a, b in zip(run.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_a_set_is_written_once_and_resumed(single, images, tmp_path, monkeypatch, refused):
    x, path = images[0].float(), tmp_path / "set.safetensors"
    monkeypatch.setattr(defenses.loda, "A_WRITE", 2)
    monkeypatch.setattr(
        LODA, "obscure", lambda self, x, show: calls.append(len(x)) or stop(self, x)
    )
    calls, real = [], obscure

    def stop(loda, x):
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(loda.g, x, loda.starts(x), loda.weight, loda.steps)

    with pytest.raises(KeyboardInterrupt):
        obscured_set(quick(single), x, path)
    first = obscured_set(quick(single), x, path)
    assert calls == [2, 1, 1] and first.shape == x.shape  # the first two were not made again
    assert torch.equal(obscured_set(quick(single), x, path), first) and len(calls) == 3
    loda = quick(single)
    exact = torch.cat([stop(loda, part).images for part in x.split(2)])
    assert (first - exact).abs().max() <= 0.5 / 255 + 1e-5 and (first * 255 % 1).max() < 1e-3
    refused(lambda: obscured_set(quick(single, c=2.0), x, path), "other images or settings")
    refused(lambda: obscured_set(quick(single), x[:2], path), "other images or settings")


# Attacks


@pytest.mark.parametrize("layers", ["loda1", "loda3"])
def test_stationarity_is_half_the_gradient_of_equation_4(net, images, layers):
    x, e = images
    g, c = Extractor(net, layers), 0.3
    z = e.clone().requires_grad_()
    cost = squared_distance(g(z), g(x)) - c * (z - x).flatten(1).square().sum(1)
    (want,) = torch.autograd.grad(cost.sum(), z)
    torch.testing.assert_close(2 * obscured.stationarity(g, e, c)(x), want)


def test_the_encoding_itself_is_always_a_root_of_equation_6(net, images):
    """Whatever c and g: at x = x′ both terms vanish, so Eq. 6's minimum need not be x*."""
    e = images[1]
    for c in (0.0, 1.0, 20.0):
        assert (obscured.stationarity(Extractor(net), e, c)(e) == 0).all()


def test_for_a_linear_extractor_the_encoding_is_the_only_root(linear, images):
    (g, w), (x, e) = linear, images
    a = w.T @ w - 0.7 * torch.eye(192).double()
    r = obscured.stationarity(g, e, 0.7)(x)
    torch.testing.assert_close(r.flatten(1), (e - x).flatten(1) @ a)
    assert torch.linalg.matrix_rank(a) == 192


def test_at_a_minimum_in_the_box_equation_5_fails_but_nothing_is_violated(half):
    """g(x) = x/2, c = 1: Eq. 4 is −¾‖x′ − x*‖², least in the corner that is farthest from x*."""
    x = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(1))
    x = torch.where(x < 0.5, 0.6 * x, 1 - 0.6 * (1 - x))  # at least 0.2 from the middle
    best = (x < 0.5).float()
    made = obscure(half, x, torch.full_like(x, 0.5), c=1.0, steps=400, step_size=0.1)
    assert torch.equal(made.images, best)
    r = obscured.stationarity(half, best, 1.0)(x)
    torch.testing.assert_close(r, -0.75 * (best - x))
    assert r.abs().min() > 0.3 and (obscured.violation(r, best) == 0).all()
    assert (obscured.violation(-r, best) == -r).all()  # the other way would be one
    inside = torch.full_like(x, 0.4)
    assert torch.equal(obscured.violation(r, inside), r)


@pytest.mark.parametrize("squared", [False, True])
def test_the_adaptive_attack_descends_equation_6(linear, images, squared):
    """For g = W: r = A(x′ − x), and ‖r‖² and ‖r‖ have the gradients −2Ar and −Ar/‖r‖."""
    (g, w), (_, e) = linear, images
    a = w.T @ w - 0.7 * torch.eye(192).double()
    found = obscured.adaptive(g, e, c=0.7, steps=4, rate=0.05, squared=squared)
    for i in range(3):
        x = torch.full((192,), 0.5).double()
        for _ in range(4):
            r = a @ (e[i].flatten() - x)
            step = -2 * a @ r if squared else -a @ r / r.norm()
            x = (x - 0.05 * step).clamp(0, 1)
        torch.testing.assert_close(found[i].flatten(), x)


def test_inversion_finds_an_image_by_its_features():
    """Features that are exactly those of an image lead toward it, from its negative."""
    photos = pf.load("photos", size=16)
    x = photos.x_test[:3]
    g = load_extractor("loda1")
    found = obscured.invert(g, x, tv=0.0, steps=150)
    target, gray = g(x), g(torch.full_like(x, 0.5))
    assert (squared_distance(g(found), target) < 0.5 * squared_distance(gray, target)).all()
    assert (pf.metrics.psnr(found, x) > pf.metrics.psnr(1 - x, x) + 3).all()
    both = obscured.invert(g, [x, x], tv=0.0, steps=150)
    assert torch.equal(both, found)  # the mean of equal features


def test_inversion_averages_features_and_uses_stationarity(linear, images):
    (g, _), (x, e) = linear, images
    pair = obscured.invert(g, [e, x], tv=0.0, steps=300)
    mean, gray = g((e + x) / 2), g(torch.full_like(x, 0.5))  # for a linear g, the mean of features
    assert (squared_distance(g(pair), mean) < 1e-3 * squared_distance(gray, mean)).all()
    left = []
    for c in (None, 0.7):
        found = obscured.invert(g, e, tv=0.3, c=c, weight=10.0, steps=200)
        r = obscured.stationarity(g, e, 0.7)(found)
        left.append(obscured.violation(r, e).flatten(1).norm(dim=1))
    assert (left[1] < left[0]).all()


def test_a_decoder_learns_what_an_encoding_leaves():
    """Encodings that are negatives: learned from 60 pairs, it gives other images back."""
    photos = pf.load("photos", size=8)
    x, new = photos.x_train[:60], photos.x_test[:10]
    g = load_extractor((0, "pooled"))
    made = [
        decoder.train_decoder(g, x, 1 - x, steps=100, batch=16, width=8, blocks=1) for _ in range(2)
    ]
    found = made[0](1 - new)
    assert pf.metrics.psnr(found, new).mean() > pf.metrics.psnr(1 - new, new).mean() + 6
    assert torch.equal(found, made[1](1 - new)) and found.shape == new.shape


# Names and bad input


def test_names_on_the_command_line():
    made = defenses.build("loda:layers=loda3-code,steps=3+prune:rate=0.9")
    assert made.parts[0].weight == 7.5 and made.parts[0].layers == "loda3-code"
    assert "steps=3" in repr(made) and "tensor" not in repr(made)


def test_bad_input_gets_one_sentence(single, refused):
    gray = torch.rand(1, 1, 8, 8)
    bad = [
        (lambda: LODA(single), "c has a default only for stored networks and layers loda1"),
        (lambda: LODA(layers=(0, 1)), "c has a default only for stored networks"),
        (lambda: LODA(single, layers="loda4", c=1), "unknown choice of layers 'loda4'"),
        (lambda: LODA(single, layers=(0, 20), c=1), "convolutions 0…19 and map, pooled, logits"),
        (lambda: LODA(single, layers=(), c=1), "layers is (); it must be one of: loda1,"),
        (lambda: LODA(single, c=-1), "c is -1; it must be a number at least 0"),
        (lambda: LODA(single, c=1, steps=0), "steps is 0; it must be"),
        (lambda: LODA("large"), "unknown extractor 'large'; choose one of: cpu, gpu"),
        (lambda: quick(single).data(gray, None, None), "takes images (B, 3, H, W)"),
        (lambda: quick(single).starts(torch.rand(1, 3, 9, 9)), "as large as the private; they are"),
        (lambda: Extractor(single)(gray), "takes images (B, 3, H, W); got (1, 1, 8, 8)"),
        (lambda: obscured.invert(Extractor(single), []), "encodings must be at least one"),
        (
            lambda: decoder.train_decoder(Extractor(single), gray, gray[:, :, 1:]),
            "must be pairs of one shape",
        ),
    ]
    for call, says in bad:
        refused(call, says)
