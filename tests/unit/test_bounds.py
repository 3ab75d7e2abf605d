"""``privacy.success_bound``: no attacker succeeds more often, and some succeed as often."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from privfl_lite.privacy import (
    analytic_gaussian_delta,
    epsilon_of_attack,
    prior_bound,
    success_bound,
    success_bound_of_curve,
)

SETTINGS = [
    (0.01, 1.0, 0.01, 1000),
    (0.1, 0.8, 0.1, 100),
    (1e-4, 0.5, 0.2, 30),
    (0.5, 5, 0.05, 500),
]


def test_the_closed_form_is_the_limit_of_sampling():
    for kappa, sigma, rounds in ((0.01, 1.0, 1), (0.1, 2.0, 10), (1e-4, 0.5, 3), (0.5, 5.0, 100)):
        exact = float(ndtr(ndtri(kappa) + rounds**0.5 / sigma))
        assert success_bound(kappa, sigma, rounds=rounds) == pytest.approx(exact, rel=1e-12)
        nearly = success_bound(kappa, sigma, 1 - 1e-12, rounds)  # goes by privacy losses
        assert exact - 1e-9 <= nearly <= exact + 2e-6


@pytest.mark.parametrize(("kappa", "sigma", "rate", "rounds"), SETTINGS)
def test_it_agrees_with_dp_accounting(kappa, sigma, rate, rounds):
    """B_κ = inf over ε in ℝ of e^ε κ + δ(ε), with dp-accounting's own (coarser) δ from above."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=2e-4, use_connect_dots=True
    )
    many = one.self_compose(rounds)
    eps = np.linspace(0, 12, 1500)
    theirs = min(1.0, float(np.min(np.exp(eps) * kappa + many.get_delta_for_epsilon(eps))))
    ours = success_bound(kappa, sigma, rate, rounds)
    assert ours <= theirs + 1e-5  # theirs rounds up, and takes the worse of add and remove
    assert ours >= 0.98 * theirs


@pytest.mark.parametrize(("sigma", "rate", "rounds"), [(1.0, 0.2, 20), (0.6, 0.05, 50)])
def test_the_likelihood_ratio_meets_it(sigma, rate, rounds):
    """An attacker who knows the record, and accuses where κ of the others would be accused."""
    rng = np.random.default_rng(0)

    def losses(here: bool) -> np.ndarray:
        x = sigma * rng.standard_normal((40_000, rounds))
        x += here * (rng.random(x.shape) < rate)
        return np.log1p(rate * np.expm1((2 * x - 1) / (2 * sigma**2))).sum(1)

    absent, present = losses(False), losses(True)
    for kappa in (0.02, 0.1, 0.5):
        found = (present > np.quantile(absent, 1 - kappa)).mean()
        assert found == pytest.approx(success_bound(kappa, sigma, rate, rounds), abs=0.015)


def test_it_grows_with_what_helps_an_attacker():
    base = {"kappa": 0.05, "sigma": 1.0, "rate": 0.1, "rounds": 20}
    here = success_bound(**base)
    assert base["kappa"] < here < 1
    for more in ({"kappa": 0.1}, {"sigma": 0.5}, {"rate": 0.3}, {"rate": 1.0}, {"rounds": 80}):
        assert success_bound(**{**base, **more}) > here + 0.01
    for sigma, rate in ((1e-4, 0.5), (1e-4, 1e-6), (1e4, 0.9), (0.05, 0.999)):
        assert 0.05 <= success_bound(0.05, sigma, rate, 3) <= 1  # where numbers over- and underflow
    assert success_bound(0.05, 1e-4, 0.5) == pytest.approx(0.5 + 0.5 * 0.05, abs=1e-3)  # or a guess


def test_a_curve_bounds_it_too():
    for kappa, sigma in ((0.01, 1.0), (0.3, 3.0)):
        curve = [(e, analytic_gaussian_delta(sigma, e)) for e in np.linspace(0, 8, 4000)]
        bound = success_bound_of_curve(kappa, curve)
        assert success_bound(kappa, sigma) - 1e-12 <= bound <= success_bound(kappa, sigma) + 1e-4
    assert success_bound_of_curve(0.1, [(1.0, 0.0)]) == pytest.approx(0.1 * math.e)
    # from the other side: of two candidates, 1 − e^−ε / 2 is less than e^ε / 2
    assert success_bound_of_curve(0.5, [(1.0, 0.0)]) == pytest.approx(1 - 0.5 / math.e)
    assert success_bound_of_curve(0.5, [(1e12, 0.0)]) == 1.0


def test_a_measured_prior_is_too_low_one_time_in_twenty():
    for hits, tries in ((0, 50), (3, 50), (40, 50)):
        bound = prior_bound(hits, tries)
        assert hits / tries < bound and binom.cdf(hits, tries, bound) == pytest.approx(0.05)
    assert prior_bound(50, 50) == 1.0


def test_an_attack_proves_an_epsilon():
    """By its definition; its own lines and those of ``success_bound_of_curve`` are the same."""
    least = 1 - prior_bound(12, 100)  # of 88 hits
    assert binom.sf(87, 100, least) == pytest.approx(0.05)
    for kappa, delta in ((0.01, 0.0), (0.5, 1e-3)):
        found = epsilon_of_attack(88, 100, kappa, delta)
        assert success_bound_of_curve(kappa, [(found, delta)]) == pytest.approx(least)
    assert epsilon_of_attack(1, 100, 0.01) == 0.0  # chance proves nothing
    assert epsilon_of_attack(0, 100, 0.5, 0.3) == 0.0
    assert epsilon_of_attack(100, 100, 0.01) == pytest.approx(math.log(0.05**0.01 / 0.01))
    # at most 5 % of attacks that do as well as ε allows prove more than ε
    rng, eps = np.random.default_rng(0), 1.0
    hits = rng.binomial(200, 1 - 0.5 / math.e, 2000)  # the most that ε = 1 allows
    assert 0.01 < np.mean([epsilon_of_attack(h, 200, 0.5) > eps for h in hits]) <= 0.06


def test_impossible_counts_are_refused(refused):
    refused(lambda: epsilon_of_attack(11, 10, 0.5), "11 hits in 10 tries is impossible")
