"""Chapter "Proof, bound, audit": its statements, its examples, its exercises and its studies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from privfl_lite import privacy
from privfl_lite.privacy import Audit, audit, audit_p_value, success_bound, success_bound_of_curve
from privfl_lite.studies import STUDIES
from privfl_lite.teach.checks import proof_bound_audit as checks
from privfl_lite.teach.plots import proof_bound_audit as plots


def largest(right: int, guesses: int, delta: float = 1e-15, level: float = 0.05) -> float:
    """The largest ε that so many right guesses refute; 0 if there is none."""
    low, high = -1e-9, 20.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        small = audit_p_value(max(0.0, middle), right, guesses, guesses, delta) < level
        low, high = (middle, high) if small else (low, middle)
    return max(0.0, low)


# --- by hand ---


def test_ex_pba_hand() -> None:
    q = [1 / (1 + math.exp(-e)) for e in (0.4, 0.5)]
    assert q == pytest.approx([0.599, 0.622], abs=6e-4)
    p = [v**9 * (10 - 9 * v) for v in q]
    assert p == pytest.approx([0.046, 0.062], abs=6e-4)
    assert p == pytest.approx([audit_p_value(e, 9, 10, 10, 0.0) for e in (0.4, 0.5)])
    assert 1 / p[0] == pytest.approx(22, abs=0.5)
    assert largest(9, 10) == pytest.approx(0.43, abs=0.005)
    assert largest(10, 10) == pytest.approx(1.05, abs=0.005)
    assert audit_p_value(math.log(0.741 / 0.259), 10, 10, 10, 0.0) == pytest.approx(0.05, abs=5e-4)
    assert success_bound(0.1, 1.0) == pytest.approx(0.39, abs=0.002)


# --- what a bound adds ---


def test_prop_bounds_in_order() -> None:
    rng = np.random.default_rng(0)
    for sigma, kappa in ((1.0, 0.01), (2.0, 0.1), (0.5, 0.3), (5.0, 0.5)):
        eps = np.linspace(0, 12 / sigma + 1 / sigma**2, 4000)
        curve = [(e, privacy.analytic_gaussian_delta(sigma, e)) for e in eps]
        best, of_curve = success_bound(kappa, sigma), success_bound_of_curve(kappa, curve)
        assert best <= of_curve + 1e-12 and of_curve == pytest.approx(best, abs=1e-4)
        for pair in curve[::400]:  # one pair alone
            assert success_bound_of_curve(kappa, [pair]) >= of_curve
        one = success_bound_of_curve(kappa, [(privacy.analytic_gaussian_epsilon(sigma), 1e-5)])
        assert one > best + 0.01  # a single ε loses something
        # the worst record reaches it, by the likelihood ratio: success rate at Q(E) = κ
        seen = sigma * rng.normal(size=400_000) + 1
        assert (seen > sigma * ndtri(1 - kappa)).mean() == pytest.approx(best, abs=0.003)
    # randomized response with three answers: not Gaussian, every step of the order by enumeration
    e = 1.2
    p = np.array([math.exp(e), 1.0, 1.0]) / (math.exp(e) + 2)
    q = p[[1, 0, 2]]
    kappa = q[0]
    assert p[0] <= min(1.0, math.exp(e) * kappa) + 1e-12
    assert p[0] == pytest.approx(success_bound_of_curve(kappa, [(e, 0.0)]))
    # it fails for laws that are not (ε, δ)-close, and where κ was taken too low
    assert success_bound(0.1, 0.5) > success_bound_of_curve(0.1, [(0.5, 1e-5)]) + 0.1
    assert success_bound(0.1, 5.0) > success_bound(0.05, 5.0) + 0.02


# --- what an audit adds ---


def response(eps: float, rng: np.random.Generator):
    """The release that tells each coin with e^ε / (1 + e^ε), exactly ε-DP, as a score."""

    def release(coins: np.ndarray) -> list[float]:
        truth = rng.random(len(coins)) < 1 / (1 + math.exp(-eps))
        return (np.where(truth, coins, ~coins) + 1e-3 * rng.random(len(coins))).tolist()

    return release


def test_prop_audit_true_claim() -> None:
    rng = np.random.default_rng(0)
    found = [audit(response(1.0, rng), 200, 200, 1e-9, seed=s).epsilon for s in range(400)]
    assert np.mean(np.array(found) > 1.0) <= 0.05 + 0.02
    # Gaussian noise, δ > 0, guesses about a part of the canaries only
    sigma, delta = 2.0, 1e-3
    true = privacy.analytic_gaussian_epsilon(sigma, delta)

    def noisy(coins: np.ndarray) -> list[float]:
        return (coins + sigma * rng.normal(size=len(coins))).tolist()

    found = [audit(noisy, 400, 100, delta, seed=s).epsilon for s in range(200)]
    assert np.mean(np.array(found) > true) <= 0.05
    # the number of right guesses is below the binomial in every quantile
    right = np.sort([audit(noisy, 400, 100, delta, seed=s).right for s in range(200)])
    q = 1 / (1 + math.exp(-true))
    assert (right <= binom.ppf(np.linspace(0.01, 0.99, 200), 100, q) + 3).all()
    # it fails where the best of fifty audits is shown,
    right = rng.binomial(400, 1 / (1 + math.exp(-1.0)), (2000, 50)).max(1)
    assert np.mean([audit_p_value(1.0, int(v), 400, 400, 0.0) < 0.05 for v in right[:200]]) > 0.6
    # and where coins are not fair: nothing is released, and nine in ten coins show the same side
    unfair = np.random.default_rng(1).random(400) < 0.9
    assert largest(int(unfair.sum()), 400) > 1.5
    # a claim that is false is exceeded
    assert audit(response(3.0, rng), 400, 400, 1e-9, seed=0).epsilon > 2.0


def test_prop_audit_ceiling() -> None:
    for r in (2, 10, 100, 450):
        for beta in (0.05, 0.01):
            root = beta ** (1 / r)
            most = max(0.0, math.log(root / (1 - root)))
            assert largest(r, r, level=beta) == pytest.approx(most, abs=2e-3)
            assert most <= max(0.0, math.log(r / math.log(1 / beta)))
            assert largest(r - 1, r, level=beta) <= most
            assert largest(r, r, 1e-3, beta) <= most  # δ takes something off
    assert math.log(450 / math.log(20)) == pytest.approx(5.0, abs=0.02)
    assert 8900 < math.log(20) / math.log1p(math.exp(-8)) < 9000
    # all in the clear: the audit is mild; and two runs together say more than one
    bare = audit(lambda coins: coins.astype(float).tolist(), 300, 100, 1e-9, seed=0)
    assert bare.right == 100 and 3.4 < bare.epsilon < 3.52
    assert largest(200, 200) > bare.epsilon + 0.5


def test_prop_attack_is_audit() -> None:
    for sigma, kappa in ((1.0, 0.01), (2.0, 0.1), (0.7, 0.5)):
        s = success_bound(kappa, sigma)  # the best attack on this noise
        for delta in (1e-5, 1e-3):
            proved = max(math.log((s - delta) / kappa), math.log((1 - kappa - delta) / (1 - s)))
            assert 0 < proved <= privacy.analytic_gaussian_epsilon(sigma, delta)
            found = privacy.epsilon_of_attack(round(1e5 * s), 10**5, kappa, delta)
            assert proved - 0.05 < found <= proved + 1e-3
    assert privacy.epsilon_of_attack(90, 100, 0.01) == pytest.approx(4.4, abs=0.1)  # about 4
    assert privacy.epsilon_of_attack(80, 100, 0.01) == pytest.approx(math.log(72), abs=0.05)
    assert privacy.epsilon_of_attack(1, 100, 0.01) == 0.0  # who fails proves nothing
    # it fails if κ is too low: a guess that always says the commonest of unequal classes
    assert privacy.epsilon_of_attack(60, 100, 0.1) > 1.5  # and nothing was released


def test_ex_pba_canaries() -> None:
    for eps, r in ((1, 10), (4, 166), (8, 8932)):
        need = math.log(20) / math.log1p(math.exp(-eps))
        assert math.ceil(need) == r
        assert largest(r, r) >= eps - 1e-3 and largest(r - 1, r - 1) < eps + 1e-3
    assert math.log(20) / math.log1p(math.exp(-3)) == pytest.approx(62, abs=0.5)


# --- the studies ---


def test_the_axis_stays_under_its_bounds() -> None:
    assert max(plots.within(1) + plots.within(8)) <= 0
    for c in STUDIES["proof-bound-audit/axis"].show()["cells"]:
        if c["part"] == "audit":
            assert c["epsilon"] < plots.claimed(c["sigma"], c["rounds"])
            assert c["epsilon"] <= math.log(c["guesses"] / math.log(20))
        if c["part"] == "attack":
            proved = plots.proved_by_naming(c["sigma"], c["rounds"])
            assert proved < plots.claimed(c["sigma"], c["rounds"])


def test_the_axis_says_what_the_chapter_says() -> None:
    assert plots.rebuilt(0.01, 1)["psnr"] > 18 and plots.rebuilt(0.3, 1)["psnr"] < 14
    assert plots.named(0.3, 1).value > 0.5 > plots.rebuilt(0.3, 1)["named"].value + 0.2
    assert plots.named(0.3, 1).value == pytest.approx(0.66, abs=0.005)
    assert plots.rebuilt(0.3, 1)["named"].value == pytest.approx(1 / 24)  # one of 24
    assert plots.rebuilt(0.3, 1)["psnr"] == pytest.approx(7.8, abs=0.05)
    assert plots.blind()["psnr"] == pytest.approx(11.8, abs=0.05)
    assert plots.claimed(0.01, 1) > 1e4
    assert max(plots.five(s, 1)["ε audited"] for s in plots.settings()["sigmas"]) < 6
    assert plots.named(10.0, 1).low <= 0.013 + 0.01
    for s in (0.6, 1.0, 2.0):  # rounds help
        assert plots.named(s, 8).value > plots.named(s, 1).value


def test_every_true_claim_stands_and_every_wrong_one_falls() -> None:
    cells = STUDIES["proof-bound-audit/mechanisms"].show()["cells"]
    assert (sum(c["true"] for c in cells), sum(not c["true"] for c in cells)) == (13, 6)
    for c in cells:
        assert len(c["audits"]) == 5
        for one in c["audits"]:
            assert (one["p"] >= 0.05) is c["true"], c["case"]
            assert (one["epsilon"] <= c["claimed"]) is c["true"], c["case"]
    laplace = next(c for c in cells if c["case"].startswith("POGZ-FL, fixed"))
    assert np.median([a["epsilon"] for a in laplace["audits"]]) > 0.74 * laplace["claimed"]
    passes = next(c for c in cells if c["case"] == "DP-SGD, 8 passes")
    assert {a["right"] for a in passes["audits"]} == {100}  # the ceiling


def test_bounds_agree_with_two_other_methods() -> None:
    for c in STUDIES["proof-bound-audit/second"].show()["cells"]:
        ours, other = c["ours"], c["pld"]
        assert ours["bounds"] == pytest.approx(c["played"], abs=0.012)
        if other:
            assert all(a <= b + 1e-4 for a, b in zip(ours["bounds"], other["bounds"], strict=True))
            assert ours["bounds"] == pytest.approx(other["bounds"], abs=3e-3)
            assert ours["epsilon"] >= other["epsilon"] - 2e-3  # never below
            if c["rate"] == 1:
                assert ours["epsilon"] == pytest.approx(other["epsilon"], abs=2e-3)
    table = {(r["rate"], r["rounds"]): r for r in plots.agreement()}
    assert 3 < table[0.1, 1]["ε / PLD's"] < 3.5


# --- the exercises ---


def sf(v: int, r: int, eps: float) -> float:
    return float(binom.sf(v - 1, r, 1 / (1 + math.exp(-eps))))


def test_check_least_epsilon(expect) -> None:
    def right(s: float, kappa: float, delta: float) -> float:
        one = math.log((s - delta) / kappa) if s > delta else 0
        two = math.log((1 - kappa - delta) / (1 - s)) if kappa + delta < 1 else 0
        return max(0, one, two)

    expect(checks.check_least_epsilon, right, "Right")
    expect(checks.check_least_epsilon, lambda s, k, d: np.float32(right(s, k, d)), "Right")
    first = lambda s, k, d: max(0, math.log(max(s - d, 1e-300) / k))  # noqa: E731
    expect(checks.check_least_epsilon, first, "second term")
    expect(checks.check_least_epsilon, lambda s, k, d: math.log(s / k), "Not yet")
    expect(checks.check_least_epsilon, lambda s, k, d: -1.0, "never below 0")


def test_check_best_afterwards(expect) -> None:
    expect(checks.check_best_afterwards, checks._best, "Right")
    whole = lambda right: largest_of(int(sum(right)), len(right))  # noqa: E731
    expect(checks.check_best_afterwards, whole, "ε of all guesses")
    expect(checks.check_best_afterwards, lambda right: 9.0, "no number of first guesses")


def largest_of(v: int, r: int) -> float:
    from scipy.stats import beta

    q = beta.ppf(0.05, v, r - v + 1)
    return max(0.0, math.log(q / (1 - q)))


def test_check_audited(expect) -> None:
    def answer(leave: str = ""):
        def audited(scores, coins, guesses, delta):
            v = min(checks._right(scores, coins, guesses), guesses - (leave == "v"))
            m = {"δ": 1, "m": guesses}.get(leave, len(coins))
            return checks._largest(v + (leave == "v"), guesses, m, 0.0 if leave == "δ" else delta)

        return audited

    expect(checks.check_audited, answer(), "Right")
    expect(checks.check_audited, answer("δ"), "δ is left out")
    expect(checks.check_audited, answer("m"), "number of canaries")
    expect(checks.check_audited, answer("v"), "the tail has v")
    expect(checks.check_audited, lambda s, c, g, d: 40.0, "Not yet")


def test_the_checks_p_value_is_that_of_the_package() -> None:
    for right, guesses, canaries, delta in ((40, 50, 120, 1e-3), (70, 70, 200, 1e-5)):
        found = checks._largest(right, guesses, canaries, delta)
        made = Audit(found, right, guesses, canaries, delta, 0.95)
        assert made.p_value(found - 1e-6) < 0.05 <= made.p_value(found + 1e-6)
        assert sf(right, guesses, found) <= 0.05
    assert ndtr(0) == 0.5
