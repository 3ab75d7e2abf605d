"""Identification: the truth is first, a guess is first once in ``of``, and ties are no gift."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from privfl_lite import load, metrics
from privfl_lite.runtime import generator


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load("mnist")
    return *data.sample(1200, seed=1), *data.sample(30, seed=2, split="test")


def test_exact_copies_come_first_and_negatives_nearly_last(digits):
    pool, _, x, _ = digits
    for by in ("pixels", "features"):
        for of in (100, 1000):
            right = metrics.identify(x, x, pool, of, by)
            assert right.hits == len(x) and right.rate == 1 and right.of == of
            assert right.interval == metrics.wilson(len(x), len(x)) and right.chance == 1 / of
    assert metrics.identify(1 - x, x, pool, 100).median > 50


def test_a_guess_has_the_chance_that_is_stated(digits):
    """Also behind uploads of four: no order is chosen by the truth, unlike ``assign``."""
    pool = digits[0]
    for batch in (1, 4):
        hits = 0
        for seed in range(20):
            order = torch.randperm(len(pool), generator=generator(seed))
            truth, guess = pool[order[:100]], pool[order[100:200]]
            hits += metrics.identify(guess, truth, pool[order[200:]], 10, "pixels", batch).hits
        low, high = metrics.wilson(hits, 2000, 0.999)
        assert low < 0.1 < high


def test_ties_are_broken_by_lot(digits):
    pool, _, x, _ = digits
    blind = [metrics.identify(x, x, pool, 5, lambda x: x[:, 0, :1, 0] * 0, seed=s) for s in
             range(40)]  # fmt: skip
    ranks = torch.cat([b.ranks for b in blind])
    assert all(0.15 < (ranks == r).float().mean() < 0.25 for r in range(1, 6))


def test_the_pool_may_hold_the_truth_and_classes_may_be_asked_for(digits):
    pool, labels, x, y = digits
    inside = metrics.identify(x, x, torch.cat([x, pool, x]), 1201)
    assert inside.hits == len(x) and torch.equal(inside.ranks, torch.ones(30))
    means = torch.stack([pool[labels == c].mean(0) for c in y])  # of whoever has the label only
    free = metrics.identify(means, x, pool, 50)
    same = metrics.identify(means, x, pool, 50, "pixels", 1, y, labels)
    assert free.median < 10 and 18 < same.median < 33  # 25.5: the class alone says no more


def test_features_see_through_half_a_blend_of_noise_and_pixels_do_not():
    faces = load("photos")
    x, pool = faces.x_test[:40], faces.x_train
    flat = 0.5 * x + 0.5 * torch.rand(x.shape, generator=generator(0))
    hits = {by: metrics.identify(flat, x, pool, 100, by).hits for by in ("pixels", "features")}
    assert hits["features"] > hits["pixels"] + 10


def test_behind_a_batch_any_of_the_found_may_be_the_one(digits):
    pool, _, x, _ = digits
    turned = x.unflatten(0, (-1, 3)).flip(1).flatten(0, 1)
    assert metrics.identify(turned, x, pool, 100, batch=3).hits == len(x)
    assert metrics.identify(turned, x, pool, 100, batch=1).hits < len(x) / 2


def test_one_sentence_for_what_does_not_fit(digits, refused):
    pool, _, x, y = digits
    refused(lambda: metrics.identify(x, x, pool, 5000), "at most 1201")
    refused(lambda: metrics.identify(x, x, pool[:, :, 1:]), "pool must hold")
    refused(lambda: metrics.identify(x, x, pool, batch=7), "batch divide 30")
    refused(lambda: metrics.identify(x, x, pool, labels=y), "go together")
    refused(lambda: metrics.identify(x, x, pool, by="eyes"), "unknown judge")
    two = x.expand(-1, 2, -1, -1)
    refused(lambda: metrics.identify(two, two, 0.5 * two, by="features"), "1 or 3 channels")
    assert "chance 0.01" in repr(metrics.identify(x, x, pool, 100))
