"""Epsilon against ModelCloak's Table III, Opacus, dp-accounting, quadrature and closed forms."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from privfl_lite import privacy
from privfl_lite.runtime import PrivflError
from privfl_lite.teach import ledger

SIGMAS = (6, 5, 4, 3, 2, 1)
TABLE_III = ledger.paper("modelcloak/table-3")  # eps by sigma at delta = 1e-5, q = 0.1
ROUNDS = {"MNIST": 100, "CIFAR10": 100, "LFW": 60}


# --- many rounds, Poisson sampling ----------------------------------------------------------------


@pytest.mark.parametrize(("data", "rounds"), ROUNDS.items())
def test_epsilon_gives_all_of_modelcloaks_table_iii(data: str, rounds: int) -> None:
    ours = {sigma: round(privacy.epsilon(sigma, 0.1, rounds), 3) for sigma in SIGMAS}
    assert ours == TABLE_III[data] and len(ours) == 6


def test_epsilon_of_table_iv_for_lfw_is_the_one_of_100_rounds_not_of_60() -> None:
    """Tables IV and V print 2.581 for LFW (sigma = 2), where Table III says 2.01 at T = 60."""
    for number in (4, 5):
        lfw = ledger.paper(f"modelcloak/table-{number}")["LFW"]["ModelCloak-Fix"]
        assert round(privacy.epsilon(2, 0.1, 100), 3) == lfw["ε"] == 2.581
    assert round(privacy.epsilon(2, 0.1, 60), 3) == TABLE_III["LFW"][2] == 2.01


@pytest.mark.parametrize(
    ("sigma", "rate", "rounds", "delta_dp"),
    [(0.7, 0.01, 1000, 1e-5), (1.1, 0.25, 37, 1e-6), (20, 0.01, 1, 1e-5), (3, 1.0, 5, 1e-3)],
)
def test_epsilon_equals_opacus(sigma: float, rate: float, rounds: int, delta_dp: float) -> None:
    from opacus.accountants import PRVAccountant, RDPAccountant

    for name, accountant in (("rdp", RDPAccountant()), ("prv", PRVAccountant())):
        accountant.history = [(sigma, rate, rounds)]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = accountant.get_epsilon(delta_dp)
        assert privacy.epsilon(sigma, rate, rounds, delta_dp, name) == pytest.approx(expected)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_rdp_is_that_of_dp_accounting_and_above_its_tight_value(sigma: float) -> None:
    event = PoissonSampledDpEvent(0.1, GaussianDpEvent(sigma))
    theirs = RdpAccountant().compose(event, 100).get_epsilon(1e-5)
    tight = PLDAccountant(value_discretization_interval=1e-3).compose(event, 100).get_epsilon(1e-5)
    rdp, prv = (privacy.epsilon(sigma, 0.1, 100, accountant=name) for name in ("rdp", "prv"))
    assert rdp == pytest.approx(theirs, abs=6e-3)  # theirs adds terms of a series that alternates
    assert rdp <= theirs + 1e-9
    assert tight - 1e-3 <= prv <= tight + 0.02
    assert prv < rdp


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.1), (2.0, 0.5), (0.6, 0.01)])
def test_rdp_of_one_round_equals_quadrature(sigma: float, rate: float) -> None:
    """The Rényi divergence of (1 - q) N(0, s²) + q N(1, s²) from N(0, s²), integrated directly."""

    def divergence(order: float) -> float:
        def term(z: float) -> float:
            ratio = 1 - rate + rate * math.exp((2 * z - 1) / (2 * sigma**2))
            return norm.pdf(z, 0, sigma) * ratio**order

        points = [order * i / 8 for i in range(9)]
        total = quad(term, -12 * sigma, order + 12 * sigma, points=points, limit=500)[0]
        return math.log(total) / (order - 1)

    orders, rdp = privacy.accountants._rdp(sigma, rate, "poisson")
    for order in (1.5, 2, 3.7, 8, 10.9):
        at = int(np.argmin(abs(orders - order)))
        assert rdp[at] == pytest.approx(divergence(orders[at]), rel=1e-6)


@pytest.mark.parametrize(("sigma", "rounds"), [(5.0, 1), (1.0, 10), (10.0, 64)])
def test_epsilon_without_sampling_equals_one_gaussian_release(sigma: float, rounds: int) -> None:
    """At rate 1, T releases with sigma are one release with sigma / sqrt(T): the exact eps."""
    prv, rdp = (privacy.epsilon(sigma, 1, rounds, accountant=name) for name in ("prv", "rdp"))
    exact = privacy.analytic_gaussian_delta
    assert exact(sigma / rounds**0.5, prv) <= 1e-5 <= exact(sigma / rounds**0.5, prv - 0.02)
    assert rdp >= prv - 0.02


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_sigmas_round_by_round_compose_in_any_order(accountant: str) -> None:
    def spent(sigma: float | list[float], rounds: int | None = None) -> float:
        return privacy.epsilon(sigma, 0.1, rounds, accountant=accountant)

    assert spent([3.0] * 20) == spent(3, 20) == spent([3] * 20, 20)
    mixed = spent([2.0] * 10 + [4.0] * 10)
    assert spent(np.array([2.0, 4.0] * 10)) == pytest.approx(mixed, abs=1e-12)
    assert spent(4, 20) < mixed < spent(2, 20)


def test_heterogeneous_rounds_equal_dp_accounting() -> None:
    sigmas = [2.0, 2.5, 3.0, 6.0]
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for sigma in sigmas:
        accountant.compose(PoissonSampledDpEvent(0.1, GaussianDpEvent(sigma)))
    tight = accountant.get_epsilon(1e-5)
    prv = privacy.epsilon(sigmas, 0.1, accountant="prv")
    assert tight - 1e-3 <= prv <= tight + 0.02
    assert prv <= privacy.epsilon(sigmas, 0.1) + 0.02


def test_opacus_orders_make_small_eps_loose_but_safe() -> None:
    """No order above 63: eps cannot come out below 0.103 at delta = 1e-5, however large sigma."""
    floor = (math.log(1e5) - math.log(63)) / 62 + math.log(62 / 63)
    assert floor == pytest.approx(0.103, abs=5e-4)
    assert privacy.epsilon(1000, 0.001, 1) == pytest.approx(floor, abs=1e-6)
    assert privacy.epsilon(6, 0.01, 100) == pytest.approx(0.112, abs=5e-4)  # so this one is loose
    assert privacy.epsilon(6, 0.01, 100, accountant="prv") < 0.08


def test_epsilon_is_zero_where_delta_alone_suffices_and_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert privacy.epsilon(100, 0.01, 1, delta_dp=0.5) == 0
        privacy.epsilon(100, 1, 1, accountant="prv")


# --- many rounds, samples of fixed size -----------------------------------------------------------


def test_fixed_size_values_depend_on_what_sigma_is_relative_to() -> None:
    """10 of 100 at T = 100. Relative to the replace-one sensitivity 2C, eps is about twice Table
    III's; noise sigma C, as ModelCloak adds it, is half of that sigma and costs far more."""
    fixed = [privacy.epsilon(sigma, 0.1, 100, sampling="fixed") for sigma in SIGMAS]
    assert [round(eps, 3) for eps in fixed] == [1.451, 1.779, 2.294, 3.217, 5.379, 14.054]
    assert round(privacy.epsilon(5 / 2, 0.1, 100, sampling="fixed"), 3) == 4.025


def log_moment(order: int, sigma: float) -> float:
    """log E[(p / q - 1)^order] under q = N(0, s²) for p = N(1, s²), order even: a plain sum."""
    step = min(sigma, 1) / 100
    z = np.arange(-14 * sigma, order + 14 * sigma, step)
    log_ratio = (2 * z - 1) / (2 * sigma**2)
    with np.errstate(divide="ignore"):  # p = q somewhere
        log_gap = log_ratio + np.log(abs(np.expm1(-log_ratio)))
    return logsumexp(norm.logpdf(z, 0, sigma) + order * log_gap) + math.log(step)


def theorem_27(rate: float, sigma: float, order: int) -> float:
    """Wang, Balle and Kasiviswanathan's bound for integer orders, its moments by a sum over z."""
    moment = {j: log_moment(j, sigma) for j in range(2, order + 2, 2)}
    terms = [0.0]
    for j in range(2, order + 1):
        log_choose = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
        paired = math.log(4) + (moment[2 * (j // 2)] + moment[2 * ((j + 1) // 2)]) / 2
        crude = math.log(2) + j * (j - 1) / (2 * sigma**2)
        terms.append(j * math.log(rate) + log_choose + min(paired, crude))
    return logsumexp(terms) / (order - 1)


@pytest.mark.parametrize(("sigma", "rate"), [(0.5, 0.1), (3, 0.1), (6, 0.3), (50, 0.1)])
def test_fixed_size_rdp_equals_theorem_27_by_quadrature(sigma: float, rate: float) -> None:
    orders, rdp = privacy.accountants._rdp(float(sigma), rate, "fixed")
    for order in (2, 3, 5, 8, 16, 63):
        expected = min(theorem_27(rate, sigma, order), order / (2 * sigma**2))
        assert rdp[list(orders).index(order)] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("sigma", "rate"), [(0.8, 0.1), (2.0, 0.3)])
def test_fixed_size_rdp_bounds_two_concrete_neighbors(sigma: float, rate: float) -> None:
    """One contributor sends +1/2 in one world and -1/2 in the other, the rest send nothing."""
    z = np.linspace(-15 * sigma - 40, 15 * sigma + 40, 400_001)
    plain = norm.logpdf(z, 0, sigma) + math.log(1 - rate)
    p, q = (
        np.logaddexp(plain, norm.logpdf(z, mean, sigma) + math.log(rate)) for mean in (0.5, -0.5)
    )
    orders, rdp = privacy.accountants._rdp(sigma, rate, "fixed")
    for order in (1.5, 2, 4, 10, 30):
        log_sum = logsumexp(order * p + (1 - order) * q) + math.log(z[1] - z[0])
        assert log_sum / (order - 1) <= rdp[int(np.argmin(abs(orders - order)))]


def test_fixed_size_epsilon_equals_dp_accounting_and_never_exceeds_no_sampling() -> None:
    def theirs(size: int, sigma: float) -> float:
        accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        event = SampledWithoutReplacementDpEvent(100, size, GaussianDpEvent(sigma))
        return accountant.compose(event, 10).get_epsilon(1e-5)

    def ours(rate: float, sigma: float) -> float:
        return privacy.epsilon(sigma, rate, 10, sampling="fixed")

    assert ours(0.3, 2) == pytest.approx(theirs(30, 2))
    assert ours(1, 2) == pytest.approx(theirs(100, 2))
    assert theirs(90, 50) > 1.5 * theirs(100, 50)  # rounding in dp-accounting: less data, more eps
    assert ours(0.9, 50) <= ours(1, 50)


# --- one release ----------------------------------------------------------------------------------


def test_gaussian_sigma_is_modelcloaks_equations_3_and_4() -> None:
    sigma = privacy.gaussian_sigma(0.5, 1e-5)
    assert sigma**2 == pytest.approx(2 * math.log(1.25e5) / 0.5**2)
    assert privacy.gaussian_sigma(0.5, 1e-5, sensitivity=3) == pytest.approx(3 * sigma)
    assert privacy.gaussian_eps(sigma, 1e-5) == pytest.approx(0.5)
    assert privacy.gaussian_eps(4.845, 1e-5) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("delta_dp", [1e-10, 1e-5, 1e-2, 0.5, 0.99])
def test_gaussian_calibration_holds_up_to_eps_one(delta_dp: float) -> None:
    for eps in np.geomspace(1e-3, 1, 50):
        sigma = privacy.gaussian_sigma(eps, delta_dp)
        assert privacy.analytic_gaussian_delta(sigma, eps) <= delta_dp
        assert privacy.analytic_gaussian_sigma(eps, delta_dp) <= sigma


def test_gaussian_calibration_fails_for_large_eps() -> None:
    """ModelCloak's Eq. 3 and 4 at delta = 1e-5: true at eps = 8.41, false at 8.43, void at 100."""

    def true_delta(eps: float) -> float:
        return privacy.analytic_gaussian_delta(privacy.gaussian_sigma(eps, 1e-5), eps)

    assert true_delta(8.41) <= 1e-5 < true_delta(8.43)
    assert true_delta(20) > 100 * 1e-5
    assert true_delta(100) > 0.9999999


@pytest.mark.parametrize(("sigma", "eps"), [(1.0, 0.0), (0.5, 1.0), (2.0, 0.3), (0.05, 100.0)])
def test_analytic_gaussian_delta_equals_the_integral_of_its_definition(
    sigma: float, eps: float
) -> None:
    """delta(eps) is the integral of max(0, p - e^eps q) for p = N(1, s²) and q = N(0, s²)."""
    start = sigma**2 * eps + 0.5  # where p = e^eps q
    expected = quad(
        lambda z: norm.pdf(z, 1, sigma) - math.exp(eps + norm.logpdf(z, 0, sigma)),
        start,
        max(start, 1) + 12 * sigma,
        epsabs=1e-13,
    )[0]
    assert privacy.analytic_gaussian_delta(sigma, eps) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("eps", [0.0, 0.01, 1.0, 10.0, 1000.0])
@pytest.mark.parametrize("delta_dp", [1e-9, 1e-5, 0.1, 0.9])
def test_analytic_gaussian_sigma_inverts_delta_on_the_safe_side(
    eps: float, delta_dp: float
) -> None:
    sigma = privacy.analytic_gaussian_sigma(eps, delta_dp)
    found = privacy.analytic_gaussian_delta(sigma, eps)
    assert found <= delta_dp
    assert found == pytest.approx(delta_dp, rel=1e-5)


# --- errors and cost ------------------------------------------------------------------------------

NAN, INF = math.nan, math.inf
EPSILON_ERRORS = [
    ({"sigma": 0}, "sigma is 0; it must be a number from 0.0001"),
    ({"sigma": -1}, "sigma is -1; it must be a number from"),
    ({"sigma": NAN}, "sigma is nan"),
    ({"sigma": INF}, "sigma is inf"),
    ({"sigma": [1.0, NAN], "rounds": None}, "sigma is [1.0, nan]"),
    ({"sigma": [1.0, 2.0], "rounds": 3}, "there are 2 sigmas for 3 rounds; give one a round"),
    ({"sigma": [], "rounds": None}, "sigma is []; it must be a number from"),
    ({"rate": 0}, "rate is 0; it must be a number over 0"),
    ({"rate": 1.1}, "rate is 1.1"),
    ({"rate": NAN}, "rate is nan"),
    ({"rounds": 0}, "rounds is 0; it must be a whole number"),
    ({"rounds": 2.5}, "rounds is 2.5"),
    ({"rounds": NAN}, "rounds is nan"),
    ({"rounds": INF}, "rounds is inf"),
    ({"rounds": None}, "rounds is missing; give it, or a sigma for"),
    ({"delta_dp": 0}, "delta_dp is 0; it must be a number"),
    ({"delta_dp": 1}, "delta_dp is 1"),
    ({"delta_dp": NAN}, "delta_dp is nan"),
    ({"accountant": "gdp"}, "unknown accountant 'gdp'; choose one of: rdp, prv"),
    ({"sampling": "shuffle"}, "unknown sampling 'shuffle'; choose one of: poisson, fixed"),
    ({"accountant": "prv", "sampling": "fixed"}, "the prv accountant knows poisson sampling only"),
    ({"accountant": "prv", "sigma": 0.1, "rounds": 1000}, "too large for prv"),
    ({"accountant": "prv", "delta_dp": 1e-15}, "the prv accountant gave up"),
]


@pytest.mark.parametrize(("change", "sentence"), EPSILON_ERRORS)
def test_epsilon_refuses_bad_input_in_one_sentence(change: dict, sentence: str) -> None:
    with pytest.raises(PrivflError) as caught:
        privacy.epsilon(**{"sigma": 1.0, "rate": 0.1, "rounds": 10, **change})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (privacy.gaussian_sigma, [(0, 0.1), (NAN, 0.1), (1, 0), (1, 1), (1, NAN), (1, 0.1, 0)]),
        (privacy.gaussian_eps, [(0, 0.1), (NAN, 0.1), (1, 0), (1, 1)]),
        (privacy.analytic_gaussian_delta, [(0, 1), (NAN, 1), (1, -1), (1, NAN), (1, INF)]),
        (privacy.analytic_gaussian_sigma, [(-1, 0.1), (NAN, 0.1), (1, 0), (1, 1), (1, NAN)]),
    ],
)
def test_one_release_refuses_bad_input(function: Callable, values: list[tuple]) -> None:
    for arguments in values:
        with pytest.raises(PrivflError, match="it must"):
            function(*arguments)
