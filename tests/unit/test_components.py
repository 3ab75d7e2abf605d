"""Independent components unmix a batch behind a dense layer, whatever the activation."""

from __future__ import annotations

import pytest
import torch

from privfl_lite import Plan, load, metrics, models, share
from privfl_lite.attacks import ClosedForm, Components
from privfl_lite.attacks.analytic.components import (
    differences,
    fast_ica,
    gaussianity,
    unmix,
    whiten,
)
from privfl_lite.defenses import DPGaussian
from privfl_lite.teach.plots import reach_failures

ICA = Components()


def close(found: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """PSNR of the found image nearest to each true one, (B,)."""
    apart = (
        torch.cdist(truth.double().flatten(1), found.double().clamp(0, 1).flatten(1)).min(1).values
    )
    return -20 * torch.log10(apart / truth[0].numel() ** 0.5)


@pytest.mark.parametrize("act", ["relu", "sigmoid", "tanh"])
def test_digits_come_back_behind_any_activation(act):
    digits = load("mnist")
    x, y = digits.sample(8, seed=1)
    upload = share(models.build("mlp", digits, act=act), x, y)
    assert close(ICA.run(upload).images, x).min() > 20
    # the closed form needs lone units, and a smooth activation has none
    if act != "relu":
        assert close(ClosedForm().run(upload).images, x).max() < 20


@pytest.mark.parametrize(("name", "batch", "least"), [("mnist", 32, 24), ("photos", 16, 8)])
def test_most_of_a_larger_batch_is_named_among_a_hundred(name, batch, least):
    data = load(name)
    x, y = data.sample(batch, seed=0)
    found = ICA.run(share(models.build("mlp", data, act="sigmoid"), x, y)).images.clamp(0, 1)
    named = metrics.identify(found, x, data.x_test, of=100, batch=batch)
    assert named.hits >= least and named.chance == 0.01


def test_the_images_themselves_are_not_independent_but_their_differences_nearly_are():
    """Unmixing pixels instead of differences loses most of a batch of sixteen digits."""
    digits = load("mnist")
    x, y = digits.sample(16, seed=0)
    g = share(models.build("mlp", digits), x, y).gradients()
    weight, bias = (t[0] for t in list(g.values())[:2])
    rng = torch.Generator().manual_seed(0)
    found, _ = unmix(weight, bias, 16, (1, 28, 28), 4, 200, rng)
    basis = torch.linalg.svd(torch.cat([weight, bias[:, None]], 1).double())[2][:16]
    pixels = basis[:, :-1] - basis[:, :-1].mean(1, keepdim=True)
    white = whiten(pixels)
    plain = fast_ica(white @ pixels, 200, rng) @ white @ basis
    plain = (plain[:, :-1] / plain[:, -1:]).reshape(16, 1, 28, 28)
    assert (close(found, x) > 20).sum() >= 14 and (close(plain, x) > 20).sum() <= 2


def test_independent_signals_are_unmixed_as_by_scikit_learn():
    decomposition = pytest.importorskip("sklearn.decomposition")
    rng = torch.Generator().manual_seed(0)
    sources = torch.rand(3, 5000, generator=rng, dtype=torch.float64).log().neg()  # exponential
    mixed = torch.randn(3, 3, generator=rng, dtype=torch.float64) @ sources
    mixed = mixed - mixed.mean(1, keepdim=True)
    white = whiten(mixed)
    ours = fast_ica(white @ mixed, 200, rng) @ white @ mixed
    theirs = decomposition.FastICA(whiten="unit-variance", random_state=0, tol=1e-10, max_iter=1000)
    other = torch.from_numpy(theirs.fit_transform(mixed.T.numpy())).T
    alike = torch.corrcoef(torch.cat([ours, other]))[:3, 3:].abs()
    assert alike.max(1).values.min() > 0.9999
    right = torch.corrcoef(torch.cat([ours, sources]))[:3, 3:].abs()
    assert right.max(1).values.min() > 0.99


def test_a_mixture_is_closer_to_a_gaussian_than_its_parts():
    x, _ = load("mnist").sample(2, seed=3)
    parts = differences(x.double())
    parts = parts / parts.std(1, keepdim=True)
    mixture = (parts[:1] + parts[1:]) / 2**0.5
    assert gaussianity(mixture / mixture.std()) > gaussianity(parts)


@pytest.mark.parametrize("plan", [Plan(eta=0.1, steps=1), Plan(epochs=5, batch_size=2)])
def test_updates_of_several_uploads_at_once(plan):
    digits = load("mnist")
    x, y = digits.sample(8, seed=4)
    model = models.build("mlp", digits)
    found = ICA.run(share(model, x, y, each=4, plan=plan))
    assert close(found.images[:4], x[:4]).min() > 20 and close(found.images[4:], x[4:]).min() > 20


def test_of_an_image_that_is_there_twice_one_is_found():
    digits = load("mnist")
    x, y = digits.sample(4, seed=1)
    upload = share(models.build("mlp", digits), torch.cat([x, x[:1]]), torch.cat([y, y[:1]]))
    assert close(ICA.run(upload).images, x).min() > 20


def test_noise_ends_it():
    digits = load("mnist")
    x, y = digits.sample(8, seed=1)
    model = models.build("mlp", digits)
    lost = ICA.run(share(model, x, y, defense=DPGaussian(0.01)))
    assert close(lost.images, x).max() < 20


def test_what_it_cannot_take_is_said(refused):
    digits = load("mnist")
    x, y = digits.sample(8)
    refused(lambda: ICA.run(share(models.build("lenet", digits), x, y)), "dense layer")
    narrow = models.build("mlp", digits, hidden=(4,))
    refused(lambda: ICA.run(share(narrow, x, y)), "at most 4 images")


def test_what_the_chapter_says_of_failed_algebra():
    """The gallery of the chapter reach: SPEAR is all or nothing, the components fade."""
    shares = reach_failures.said()
    assert list(shares["SPEAR"].values()) == [1.0, None, 0.0, 0.0, 0.0]
    whole, sigmoid, twice, noise, large = shares["components"].values()
    assert (whole, sigmoid, twice, noise) == (1.0, 1.0, 0.75, 1.0)
    assert large == pytest.approx(0.91, abs=0.04)
