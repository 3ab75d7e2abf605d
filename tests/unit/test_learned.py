"""Learning to invert: a network trained on public uploads reads those of held-out digits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import privfl_lite as pf
from privfl_lite.attacks.generative.learned import LearnedInversion, is_signed, sent
from privfl_lite.runtime import generator

DIGITS = pf.load("mnist", size=14)
NET = pf.models.build("lenet", DIGITS)
X, Y = DIGITS.sample(24, split="test")
LEARN = LearnedInversion(DIGITS.x_train[:1000], DIGITS.y_train[:1000], steps=300, show=False)


def upload(how: str, x: torch.Tensor = X, y: torch.Tensor = Y) -> pf.wire.Upload:
    """What is sent of held-out digits, each alone."""
    defense = {"noisy": pf.defenses.DPGaussian(0.05), "pruned": pf.defenses.Prune(0.9)}.get(how)
    made = pf.share(NET, x, y, defense, ("noise",) if how == "noisy" else (), each=1)
    if how == "signed":
        return replace(made, tensors={n: t.sign() for n, t in made.tensors.items()})
    return made


@pytest.mark.parametrize(
    ("how", "more"), [("whole", 3), ("pruned", 2), ("signed", 2), ("noisy", 0.7)]
)
def test_it_beats_the_mean_image_on_spoiled_uploads(how: str, more: float):
    """By decibels, and as often named among 100 as no blind image can be."""
    found = LEARN.run(upload(how))
    blind = DIGITS.x_train.mean(0, keepdim=True).expand_as(X)
    gain = pf.metrics.psnr(found.images, X) - pf.metrics.psnr(blind, X)
    assert gain.median() > more and (gain > 0).float().mean() > 0.8
    others = DIGITS.x_train[3000:3099]  # nobody trained on them
    assert pf.metrics.identify(found.images, X, others).hits >= (5 if how == "noisy" else 10)
    assert pf.metrics.identify(blind, X, others).hits <= 2
    assert torch.equal(found.labels, Y)


def test_a_network_for_another_spoiling_reads_less():
    """It is the imitation that counts: trained on whole uploads, it does not read signed ones."""
    whole = upload("whole")
    disguised = replace(whole, tensors={n: t.sign() for n, t in whole.tensors.items()})
    one = next(iter(disguised.tensors))
    bent = {
        n: t * (1 + 1e-6 * (n == one) * torch.rand(t.shape)) for n, t in disguised.tensors.items()
    }
    right, wrong = (LEARN.run(replace(whole, tensors=t)) for t in (disguised.tensors, bent))
    best, worse = (pf.metrics.psnr(f.images, X).median() for f in (right, wrong))
    assert best > worse + 1


def test_what_is_seen_on_an_upload_is_imitated():
    rng = generator(0)
    for how, share in (("whole", 1.0), ("pruned", 0.1), ("signed", 1.0)):
        seen = upload(how)
        made = sent(seen)(X[:2], Y[:2], rng)
        kept = {n: (t != 0).float().mean().item() for n, t in made.items()}
        assert kept["features.2.weight"] == pytest.approx(share, abs=0.01)
        assert is_signed(made) is is_signed(seen.tensors) is (how == "signed")
        if how != "signed":  # these are the uploads themselves
            own = upload(how, X[:2], Y[:2])
            assert all(torch.allclose(t, own.tensors[n], atol=1e-6) for n, t in made.items())
    noisy = sent(upload("noisy"))(X[:2], Y[:2], rng)
    plain = upload("whole", X[:2], Y[:2]).tensors
    spread = torch.cat([(noisy[n] - t).flatten() for n, t in plain.items()]).std()
    assert spread.item() == pytest.approx(0.05, rel=0.05)


def test_an_update_of_several_steps_serves_as_well():
    plan = pf.Plan(eta=0.1, steps=3, batch_size=1)
    found = LEARN.run(pf.share(NET, X, Y, each=1, plan=plan))
    blind = DIGITS.x_train.mean(0, keepdim=True).expand_as(X)
    assert (pf.metrics.psnr(found.images, X) - pf.metrics.psnr(blind, X)).median() > 2


def test_one_upload_among_others_and_our_generator_where_no_images_are_given():
    quick = LearnedInversion(draws=100, steps=20, inputs=64, width=32, show=False)
    many, few = (quick.run(u, seed=3) for u in (upload("whole"), upload("whole")[:2]))
    torch.testing.assert_close(many.images[:2], few.images)
    assert many.evaluations == 100 and many.images.min() >= 0 and many.images.max() <= 1
    noisy = quick.run(upload("noisy"), seed=3)
    assert noisy.evaluations == 400


def test_clear_words_where_it_cannot_work(refused):
    two = pf.share(NET, X[:2], Y[:2])
    refused(lambda: LEARN.run(two), "LearnedInversion needs 1 image, any number of step; got 2, 1")
    photos = pf.load("photos", size=16)
    color = pf.share(pf.models.build("lenet", photos), *photos.sample(1))
    refused(lambda: LearnedInversion(draws=4).run(color), "give others with images=")
    bad = replace(LEARN, labels=DIGITS.y_train[:3])
    refused(lambda: bad.run(upload("whole")), "a class of the model for each of 1000 images")
