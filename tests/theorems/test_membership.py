"""Chapter "Was I in the training set?": each statement against a count, an integral or a draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import gammaln, ndtr, ndtri
from scipy.stats import binomtest

from privfl_lite import metrics, models
from privfl_lite.attacks.membership import LabelOracle, boundary_scores, gap_scores
from privfl_lite.privacy import analytic_gaussian_delta
from privfl_lite.studies import STUDIES
from privfl_lite.studies.membership.attack import GRID, matched, roc
from privfl_lite.teach.checks import membership as checks


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def area(a: np.ndarray, b: np.ndarray) -> float:
    """The area under the ROC, point by point: one threshold after the other, trapezoids."""
    cuts = [np.inf, *np.unique(np.concatenate([a, b]))[::-1]]
    fpr, tpr = [np.mean(b >= c) for c in cuts], [np.mean(a >= c) for c in cuts]
    return float(np.trapezoid(tpr, fpr))


def test_ex_membership_hand():
    """The example by hand: scores, five pairs of six, and two thirds for right answers."""
    g = torch.tensor([[2.0, 0], [0, 1], [-1, 1], [0, -1], [1, 1]])
    upload = g[:2].mean(0)
    assert upload.tolist() == [1, 0.5]
    score = g @ upload
    assert score.tolist() == [2, 0.5, -0.5, -0.5, 1.5]
    assert (score >= 0.5).tolist() == [True, True, False, False, True]
    assert metrics.auc(score[:2], score[2:]) == pytest.approx(5 / 6)
    right = np.array([1, 1, 1, 1, 0])
    assert metrics.auc(right[:2], right[2:]) == pytest.approx(2 / 3)
    accuracy = right[:2].mean(), right[2:].mean()
    assert 0.5 + (accuracy[0] - accuracy[1]) / 2 == pytest.approx(2 / 3)  # prop-gap-auc


@pytest.mark.parametrize("seed", range(5))
def test_prop_auc_is_a_probability(seed: int):
    """Trapezoids under the ROC = pairs won + half of the ties; with steps instead it is not."""
    r = rng(seed)
    a, b = r.integers(0, 6, 40) + r.integers(0, 2), r.integers(0, 6, 30)
    won, tied = np.mean(a[:, None] > b), np.mean(a[:, None] == b)
    assert area(a, b) == pytest.approx(won + tied / 2, abs=1e-12)
    assert metrics.auc(a, b) == pytest.approx(won + tied / 2, abs=1e-12)
    assert tied > 0.05 and metrics.auc(a, b) > won + 0.02  # without the ties it is another number
    assert roc(a, b)[0] == pytest.approx(metrics.tpr_at_fpr(a, b, 0)) and roc(a, b)[-1] == 1
    assert np.trapezoid(roc(a, b, np.linspace(0, 1, 4001)), dx=1 / 4000) == pytest.approx(
        won + tied / 2, abs=2e-3
    )


@pytest.mark.parametrize("seed", range(5))
def test_prop_gap_auc(seed: int):
    """AUC = 1/2 + (a − b)/2 exactly, from an oracle's labels; best advantage a − b."""
    net = models.build("mlp", (1, 4, 4), 3, seed=seed)
    x, y = torch.rand(90, 1, 4, 4), torch.arange(90) % 3
    score = gap_scores(LabelOracle(net), x, y)
    y = torch.where(torch.arange(90) < 20, net(x).argmax(1), y)  # the first ones are known
    score = gap_scores(LabelOracle(net), x, y)
    a, b = score[:40].mean().item(), score[40:].mean().item()
    assert a > b + 0.1
    assert metrics.auc(score[:40], score[40:]) == pytest.approx(0.5 + (a - b) / 2, abs=1e-6)
    assert metrics.auc(score[40:], score[:40]) == pytest.approx(0.5 - (a - b) / 2, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_prop_boundary_contains_gap(seed: int):
    """AUC = AUC_gap + a b (AUC among right ones − 1/2), for scores that are 0 where wrong."""
    r = rng(seed)
    a, b = r.gamma(2, 1, 60) + 0.1, r.gamma(1.5, 1, 50) + 0.1
    a[r.random(60) < 0.1], b[r.random(50) < 0.3] = 0, 0
    gap = metrics.auc(a > 0, b > 0)
    right_a, right_b = a[a > 0], b[b > 0]
    share = len(right_a) * len(right_b) / (len(a) * len(b))
    rest = share * (metrics.auc(right_a, right_b) - 0.5)
    assert metrics.auc(a, b) == pytest.approx(gap + rest, abs=1e-12)
    a[:6] = -1  # wrong ones that do not score lowest and alike: the identity is gone
    broken = metrics.auc(a >= 0, b >= 0) + rest
    assert abs(metrics.auc(a, b) - broken) > 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_prop_total_variation(seed: int):
    """No event beats TV; the likelihood ratio reaches it; AUC at most 1/2 + t − t²/2."""
    r = rng(seed)
    p, q = r.dirichlet(np.ones(8)), r.dirichlet(np.ones(8))
    t = np.abs(p - q).sum() / 2
    events = np.array([[(e >> i) & 1 for i in range(8)] for e in range(256)])
    gain = events @ (p - q)
    assert gain.max() == pytest.approx(t, abs=1e-12)
    assert (p - q)[p > q].sum() == pytest.approx(t, abs=1e-12)
    order = np.argsort(-p / q)
    tpr, fpr = (np.concatenate([[0], np.cumsum(v[order])]) for v in (p, q))
    best = np.trapezoid(tpr, fpr)  # Neyman and Pearson: the highest ROC
    assert best <= 0.5 + t - t * t / 2 + 1e-12
    # reached where p and q overlap in one point alone
    tpr, fpr = np.array([0, t, 1, 1]), np.array([0, 0, 1 - t, 1])
    assert np.trapezoid(tpr, fpr) == pytest.approx(0.5 + t - t * t / 2, abs=1e-12)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_prop_dp_bounds_roc(sigma: float):
    """Gaussian mechanism: ROC Φ(Φ⁻¹(F) + 1/σ) under every line, touching it; not with less δ."""
    f = np.concatenate([np.logspace(-9, -1, 4000), np.linspace(0.1, 1, 4000)])
    t = ndtr(ndtri(f) + 1 / sigma)
    for eps in (0.0, 0.3, 1.0, 2.0):
        delta = analytic_gaussian_delta(sigma, eps)
        room = math.exp(eps) * f + delta - t
        other = 1 - math.exp(-eps) * (1 - delta - f) - t
        assert room.min() > -1e-9 and other.min() > -1e-9
        assert room.min() < 1e-4  # the line touches the curve
        if delta > 1e-6:  # where the grid is fine enough
            assert (
                math.exp(eps) * f + 0.9 * delta - t
            ).min() < -0.01 * delta  # with less δ it fails
        bound = (math.exp(eps) - 1 + 2 * delta) / (math.exp(eps) + 1)
        assert (t - f).max() <= bound + 1e-9
    assert (t - f).max() == pytest.approx(analytic_gaussian_delta(sigma, 0.0), abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_prop_loss_is_enough(seed: int):
    """Bayes on a grid of models = sigmoid((τ − loss)/κ + log odds); not for other training."""
    r = rng(seed)
    models_, points, kappa, prior = 30, 6, 0.7, 0.3
    loss = r.gamma(1, 1, (models_, points))  # ℓ(θ, z) of 30 models on 6 examples
    members = np.array([0, 1, 0, 1, 1, 0], bool)
    without = np.exp(-loss[:, 1:] @ members[1:] / kappa)
    with_it = without * np.exp(-loss[:, 0] / kappa)
    p0, p1 = without / without.sum(), with_it / with_it.sum()
    bayes = prior * p1 / (prior * p1 + (1 - prior) * p0)
    tau = -kappa * np.log(p0 @ np.exp(-loss[:, 0] / kappa))
    logit = (tau - loss[:, 0]) / kappa + math.log(prior / (1 - prior))
    np.testing.assert_allclose(bayes, 1 / (1 + np.exp(-logit)), rtol=1e-10)
    # τ differs between examples, so that one threshold for all is not the best test
    other = -kappa * np.log(p0 @ np.exp(-loss[:, 5] / kappa))
    assert abs(tau - other) > 1e-3
    # trained with another weight on z_1, the formula is no longer the posterior
    p1 = without * np.exp(-3 * loss[:, 0] / kappa)
    p1 /= p1.sum()
    bayes = prior * p1 / (prior * p1 + (1 - prior) * p0)
    assert np.abs(bayes - 1 / (1 + np.exp(-logit))).max() > 0.01


def linear(seed: int) -> tuple[models.Net, torch.Tensor]:
    """Two classes, boundary through mid-gray, weights (1, 8, 8)."""
    gen = torch.Generator().manual_seed(seed)
    net = models.build("mlp", (1, 8, 8), 2, hidden=())
    w = torch.randn(2, 64, generator=gen)
    net.head.weight.data, net.head.bias.data = w, -0.5 * w.sum(1)
    return net, w[1] - w[0]


def test_prop_distance_linear():
    """|f|/‖w‖ against the attack, which only sees labels; in the box it can only be farther."""
    net, w = linear(0)
    x = 0.45 + 0.1 * torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    z = net(x).detach()
    true = (z[:, 1] - z[:, 0]).abs() / w.norm()
    nearest = x.flatten(1) - ((z[:, 1] - z[:, 0]) / w.norm() ** 2)[:, None] * w
    assert nearest.min() > 0 and nearest.max() < 1
    after = net(nearest.view_as(x)).detach()
    assert (after[:, 1] - after[:, 0]).abs().max() < 1e-4  # on the boundary
    torch.testing.assert_close((nearest - x.flatten(1)).norm(dim=1), true, rtol=1e-4, atol=1e-6)
    found = boundary_scores(LabelOracle(net), x, z.argmax(1), 6000, show=False).scores
    assert (found >= true - 1e-5).all() and (found <= 1.05 * true).all()
    # at the corner of the box the nearest point is cut off
    corner = (w.view(1, 1, 8, 8) > 0).float()
    z = net(corner).detach()
    true = float((z[0, 1] - z[0, 0]).abs() / w.norm())
    found = boundary_scores(LabelOracle(net), corner, z.argmax(1), 6000, show=False).scores
    assert found.item() >= true - 1e-5
    step = (z[0, 1] - z[0, 0]) / w.norm() ** 2 * w
    assert (corner.flatten() - step).min() >= -1e-6  # towards gray: still inside
    outside = corner.flatten() + step
    assert outside.max() > 1  # away from it: not


@pytest.mark.parametrize("k", [5, 50, 200])
def test_prop_boundary_direction(k: int):
    """E⟨v, ν⟩ = Q c_k, E‖v_⊥‖² = Q(1 − 1/k), and the cosine that follows, for unit directions."""
    r, queries = rng(k), 60
    c = math.exp(gammaln(k / 2) - gammaln((k + 1) / 2)) / math.sqrt(math.pi)
    u = r.normal(size=(400, queries, k))
    u /= np.linalg.norm(u, axis=2, keepdims=True)
    v = (np.sign(u[..., :1]) * u).sum(1)  # ν is the first axis
    assert v[:, 0].mean() == pytest.approx(queries * c, rel=0.02)
    assert (v[:, 1:] ** 2).sum(1).mean() == pytest.approx(queries * (1 - 1 / k), rel=0.06)
    cos = v[:, 0] / np.linalg.norm(v, axis=1)
    want = (1 + (k - 1) / (k * c * c * queries)) ** -0.5
    assert cos.mean() == pytest.approx(want, rel=0.05)
    assert want == pytest.approx((1 + math.pi * k / (2 * queries)) ** -0.5, rel=0.15)
    # directions from a subspace without the normal: at most the length of its projection
    tilted = np.zeros(k)
    tilted[:2] = math.cos(1.0), math.sin(1.0)
    u[..., 1] = 0  # the subspace lacks the second axis
    v = (np.sign(u @ tilted)[..., None] * u).sum(1)
    cos = v @ tilted / np.linalg.norm(v, axis=1)
    assert cos.max() <= math.cos(1.0) + 1e-9


@pytest.mark.parametrize(("m", "n"), [(500, 500), (40, 160)])
def test_prop_auc_noise(m: int, n: int):
    """Var = (m + n + 1)/(12 m n) without ties, Hanley and McNeil's at 1/2; ties make it smaller."""
    r = rng(m)
    want = (m + n + 1) / (12 * m * n)
    found = [metrics.auc(r.random(m), r.random(n)) for _ in range(3000)]
    assert np.mean(found) == pytest.approx(0.5, abs=4 * math.sqrt(want / 3000))
    assert np.var(found) == pytest.approx(want, rel=0.12)
    a = 0.5
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    hanley = (a * (1 - a) + (m - 1) * (q1 - a * a) + (n - 1) * (q2 - a * a)) / (m * n)
    assert hanley == pytest.approx(want, rel=1e-12)
    tied = [metrics.auc(r.random(m) < 0.9, r.random(n) < 0.9) for _ in range(1500)]
    assert np.var(tied) < 0.5 * want
    if m == n == 500:
        assert 1.96 * math.sqrt(want) == pytest.approx(0.0358, abs=1e-4)


@pytest.mark.parametrize("batch", [1, 4, 25])
def test_prop_gradient_test(batch: int):
    """Mean shift tr Σ/B and variance tr Σ²/B, for skewed gradients; with a mean it is not so."""
    r, d, draws = rng(batch), 12, 40000
    scale = np.linspace(0.2, 2, d)

    def gradients(*shape: int) -> np.ndarray:  # mean 0, covariance diag(scale²), not normal
        return scale * (r.exponential(size=(*shape, d)) - 1)

    g, other = gradients(draws, batch), gradients(draws)
    mean = g.mean(1)
    member, stranger = (g[:, 0] * mean).sum(1), (other * mean).sum(1)
    trace, square = (scale**2).sum(), (scale**4).sum()
    assert member.mean() - stranger.mean() == pytest.approx(trace / batch, rel=0.05, abs=0.05)
    assert stranger.var() == pytest.approx(square / batch, rel=0.15)
    effective = trace**2 / square
    assert 1 <= effective <= d
    shifted = ((other + 3) * (mean + 3)).sum(1)
    assert shifted.var() > 5 * square / batch  # a common mean hides the signal: subtract it


# --- exercises ---


def test_checks_accept_and_say_what_is_wrong(expect):
    def pairs(a, b):
        return (a[:, None] > b).double().mean() + (a[:, None] == b).double().mean() / 2

    def among(a, b):
        return metrics.auc(a[a > 0], b[b > 0]) - 0.5

    def centered(g, up, ref):
        return (g - ref.mean(0)) @ (up - ref.mean(0))

    trials = [
        (checks.check_auc, pairs, "Right"),
        (checks.check_auc, lambda a, b: (a[:, None] > b).double().mean(), "ties are missing"),
        (checks.check_auc, lambda a, b: (a[:, None] >= b).double().mean(), "one half, not one"),
        (checks.check_auc, lambda a, b: pairs(b, a), "exchanged"),
        (checks.check_auc, lambda a, b: ..., "nothing yet"),
        (checks.check_auc, lambda a, b: "x", "one number"),
        (
            checks.check_beyond_gap,
            lambda a, b: metrics.auc(a, b) - metrics.auc(a > 0, b > 0),
            "Right",
        ),
        (checks.check_beyond_gap, among, "weigh it"),
        (checks.check_beyond_gap, lambda a, b: metrics.auc(a > 0, b > 0), "gap attack itself"),
        (checks.check_gradient_scores, centered, "Right"),
        (checks.check_gradient_scores, lambda g, u, r: g @ u, "not taken away"),
        (checks.check_gradient_scores, lambda g, u, r: (g - r.mean(0)) @ u, "from both"),
        (checks.check_gradient_scores, lambda g, u, r: -centered(g, u, r), "turned round"),
        (checks.check_gradient_scores, lambda g, u, r: centered(g, u, r)[:3], "list of scores"),
    ]
    for check, answer, says in trials:
        expect(check, answer, says)


def audit(members, others, tau, delta_dp, level=0.025, lines=(0, 1), least=0.0):
    """ε at least, from Clopper and Pearson's bounds by scipy's own binomial test."""

    def rate(scores, side: str) -> float:
        found = binomtest(int((scores >= tau).sum()), len(scores))
        ends = found.proportion_ci(1 - 2 * level, method="exact")
        return getattr(ends, side)

    tpr, fpr = rate(members, "low"), rate(others, "high")
    with np.errstate(all="ignore"):
        first, second = (tpr - delta_dp) / fpr, (1 - fpr - delta_dp) / (1 - tpr)
        bounds = np.nan_to_num(np.log([first, second]), nan=-1.0)
    return max(least, *(float(bounds[i]) for i in lines))


def observed(members, others, tau, delta_dp):
    tpr, fpr = ((s >= tau).double().mean().item() for s in (members, others))
    return max(0.0, math.log((tpr - delta_dp) / fpr) if fpr else 0.0)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (audit, "Right"),
        (lambda *a: ..., "nothing yet"),
        (lambda *a: "x", "one number"),
        (observed, "observed rates"),
        (lambda m, o, t, d: audit(m, o, t, 0.0), "δ is missing"),
        (lambda *a: audit(*a, level=0.05), "2.5 % on each side"),
        (lambda *a: audit(*a, lines=(0, 0)), "first line alone"),
        (lambda *a: audit(*a, lines=(1, 1)), "second line alone"),
        (lambda *a: audit(*a, least=-9.0), "never negative"),
        (lambda *a: 1.0, "the bound is"),
    ],
)
def test_check_epsilon_at_least(answer, hint, expect):
    expect(checks.check_epsilon_at_least, answer, hint)


# --- the stored study ---


def test_matched_candidates_have_equal_counts():
    m, o = matched(torch.tensor([0, 0, 0, 1, 2]), torch.tensor([0, 1, 1, 0, 3]))
    assert m.tolist() == [0, 1, 3] and o.tolist() == [0, 3, 1]


def test_stored_study_says_what_the_chapter_says():
    cells = STUDIES["membership/attack"].show()["cells"]
    for cell in cells:
        a, b = cell["accuracy_members"], cell["accuracy_others"]
        gap = cell["attacks"]["gap"]
        assert gap["auc"] == pytest.approx(0.5 + (a - b) / 2, abs=2e-4)
        for name, attack in cell["attacks"].items():
            low, high = attack["auc_interval"]
            assert low <= attack["auc"] <= high
            assert len(attack["roc"]["tpr"].split()) == len(GRID)
            if name.startswith("boundary"):  # the identity, on what was stored
                rest = a * b * (attack["auc_right"] - 0.5)
                assert attack["auc"] == pytest.approx(gap["auc"] + rest, abs=3e-4)
                assert attack["queries"] <= int(name.split()[-1])

    def mean(how: str, target: str, attack: str, key: str = "auc") -> float:
        some = [c for c in cells if c["how"] == how and c["target"] == target]
        return float(np.mean([c["attacks"][attack][key] for c in some]))

    boundary = f"boundary resize {STUDIES['membership/attack'].show()['settings']['budget']}"
    assert abs(mean("iid", "global", boundary) - 0.5) < 0.04  # near chance
    assert mean("iid", "local", boundary) > mean("iid", "global", boundary)
    # uneven clients: most of the local model's AUC is the label shift
    assert mean("dirichlet", "local", boundary) > mean("iid", "local", boundary) + 0.05
    assert mean("dirichlet", "local", boundary) > mean(
        "dirichlet", "local", boundary, "auc_matched"
    )
    cifar = next(c for c in cells if c["data"] == "cifar10")
    assert cifar["attacks"]["gap"]["auc"] > 0.8
