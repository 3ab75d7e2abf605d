"""Noise for deployments: the operating system's, and the discrete Gaussian without rounding."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest

from privfl_lite import privacy
from privfl_lite.defenses.noise import laplace, normal, uniform
from privfl_lite.privacy import discrete, randomness
from privfl_lite.runtime import generator

LAWS = {
    "norm": (randomness.system_normal, normal),
    "laplace": (randomness.system_laplace, laplace),
    "uniform": (randomness.system_uniform, uniform),
}


@pytest.mark.parametrize("law", LAWS)
def test_system_numbers_have_their_law_and_never_repeat(law):
    made, through = LAWS[law]
    a, b = made(50_000), made(50_000)
    assert kstest(a, law).pvalue > 1e-4 and kstest(b, law).pvalue > 1e-4
    assert not (a == b).any() and np.unique(a).size == a.size
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.03
    like = torch.empty(3, 40, 50).double()
    system = through(like, [None] * 3)
    assert system.shape == like.shape and system.dtype == torch.float64
    assert kstest(system.flatten().numpy(), law).pvalue > 1e-4
    one, two = (through(like, [generator(4, k) for k in range(3)]) for _ in "ab")
    assert torch.equal(one, two) and not torch.equal(one, system)


@pytest.mark.parametrize(("byte", "side"), [(b"\0", -1), (b"\xff", 1)])
def test_ends_of_the_range_are_finite(monkeypatch, byte, side):
    monkeypatch.setattr(randomness.secrets, "token_bytes", lambda n: byte * n)
    for made in (randomness.system_normal, randomness.system_laplace):
        value = made(3)
        assert np.isfinite(value).all() and (side * value > 8).all()
    assert 0 < randomness.system_uniform(1)[0] < 1


def test_floating_point_noise_gives_the_clean_value_away_and_a_grid_does_not():
    """Mironov 2012: outputs near 0 that are no multiple of 2⁻²⁴ cannot come from 1 + noise."""
    noise = normal(torch.empty(1, 100_000), [generator(0)])[0]
    fine = []
    for clean in (0.0, 1.0):
        out = (clean + noise).double()
        out = out[out.abs() < 0.5]
        fine.append((out * 2**24 != (out * 2**24).round()).double().mean().item())
    assert fine[0] > 0.5 and fine[1] == 0
    rng = random.Random(0)
    for clean in (0.0, 0.7, 1.0):
        rows = np.full((1, 400), clean / 20)
        out = privacy.discrete_release(rows, 1.0, 1.0, 2.0**-10, rng.randrange)
        assert (out * 2**10 == np.round(out * 2**10)).all()


# --- the discrete Gaussian ---


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.7, Fraction(5, 2)])
def test_the_sampler_has_exactly_its_law(sigma):
    """Chi-square against exp(−k² / 2σ²) over all k with 5 or more expected draws."""
    rng, n = random.Random(3), 20_000
    draws = [privacy.discrete_gaussian(sigma, rng.randrange) for _ in range(n)]
    k = np.arange(-60, 61)
    p = np.exp(-(k**2) / (2 * float(sigma) ** 2))
    expected = n * p / p.sum()
    often = expected >= 5
    seen = np.array([draws.count(v) for v in k[often]])
    rest = n - seen.sum(), n - expected[often].sum()
    seen, expected = np.append(seen, rest[0]), np.append(expected[often], rest[1])
    keep = expected > 1e-9
    assert chisquare(seen[keep], expected[keep] * seen.sum() / expected[keep].sum()).pvalue > 1e-4


def test_exponential_coins_are_exact_also_beyond_one():
    rng, n = random.Random(1), 40_000
    for gamma in (Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 2)):
        heads = sum(discrete._coin_exp(gamma, rng.randrange) for _ in range(n)) / n
        assert heads == pytest.approx(math.exp(-gamma), abs=0.012)


def test_large_noise_costs_no_more_and_the_system_draws_by_default():
    far = [privacy.discrete_gaussian(10**9) for _ in range(300)]
    assert np.std(far) == pytest.approx(1e9, rel=0.2) and len(set(far)) == 300


def test_delta_of_a_scalar_is_that_of_continuous_noise_for_large_sigma():
    for sigma, eps in ((30.0, 0.1), (50.0, 0.02)):
        near = privacy.analytic_gaussian_delta(sigma / 3, eps)
        assert privacy.discrete_delta(sigma, eps, 3) == pytest.approx(near, rel=1e-2)
    # by hand, σ = 1, ε = 0: half the total variation of two neighbors, P(0) + P(1)/… telescopes
    p0 = 1 / sum(math.exp(-(k**2) / 2) for k in range(-30, 31))
    assert privacy.discrete_delta(1.0, 0.0) == pytest.approx(p0)
    assert privacy.discrete_delta(1.0, 900.0) == 0.0


def test_delta_of_a_scalar_by_experiment():
    """P[out ≥ t] − e^ε P[out + 1 ≥ t]-style events never pass δ, and the best one meets it."""
    sigma, eps = 1.5, 0.5
    k = np.arange(-80, 81)
    p = np.exp(-(k**2) / (2 * sigma**2))
    p /= p.sum()
    best = max(p[i:].sum() - math.exp(eps) * p[i + 1 :].sum() for i in range(160))
    assert privacy.discrete_delta(sigma, eps) == pytest.approx(best, rel=1e-9)


def test_concentrated_epsilon_is_above_the_exact_one_and_near():
    for sigma in (0.5, 1.0, 5.0):
        bound, sharp = (
            privacy.concentrated_epsilon(1 / (2 * sigma**2)),
            privacy.analytic_gaussian_epsilon(sigma),
        )
        assert sharp < bound < 1.12 * sharp + 0.02


def test_the_vector_release_is_clipped_in_whole_numbers_and_centered():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 20)) * rng.uniform(0, 3, (30, 1))
    grid, clip = 2.0**-12, 1.0
    for row in rows:
        steps = discrete._whole(row, clip, grid, Fraction(clip) / Fraction(grid))
        assert sum(k * k for k in steps) <= (clip / grid) ** 2
        short = row * min(1, clip / np.linalg.norm(row))
        assert np.abs(np.array(steps) * grid - short).max() <= grid
    coins = random.Random(5)
    whole = rows * np.minimum(1, clip / np.linalg.norm(rows, axis=1, keepdims=True))
    out = [discrete.discrete_release(rows, clip, 2.0, grid, coins.randrange) for _ in range(60)]
    noise = np.array(out) - whole.sum(0)
    assert noise.std() == pytest.approx(2.0, rel=0.08)
    assert abs(noise.mean()) < 0.2


def test_a_rounding_error_above_the_clip_is_noticed():
    """In float32 units the norm of this row rounds to 1 from above; whole numbers see it."""
    row = np.array([0.6, 0.8]) * (1 + 2.0**-52)
    grid = 0.2
    steps = discrete._whole(row, 1.0, grid, Fraction(1.0) / Fraction(grid))
    assert sum(k * k for k in steps) <= (Fraction(1.0) / Fraction(grid)) ** 2


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: privacy.discrete_gaussian(0), "sigma is 0"),
        (lambda: privacy.discrete_release(np.zeros(3), 1, 1, 1), "a table (n, d)"),
        (lambda: privacy.discrete_release(np.full((1, 2), np.nan), 1, 1, 1), "finite numbers"),
        (lambda: privacy.discrete_release(np.zeros((1, 2)), 1, 1, 0), "grid is 0"),
        (lambda: privacy.concentrated_epsilon(-1), "rho is -1"),
    ],
)
def test_bad_input_gets_one_sentence(refused, call, says):
    refused(call, says)
