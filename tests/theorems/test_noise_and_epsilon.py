"""Chapter "Noise and ε": its statements, its examples and its exercises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from privfl_lite import privacy
from privfl_lite.defenses import DPSGD, DPGaussian
from privfl_lite.runtime import generator
from privfl_lite.teach.checks import noise_and_epsilon as checks
from privfl_lite.teach.drawings import clip_then_noise

exact = privacy.analytic_gaussian_delta
analytic_gaussian_epsilon = privacy.analytic_gaussian_epsilon


def hockey(p: np.ndarray, q: np.ndarray, eps: float) -> float:
    """Smallest δ at ε between two discrete laws, one direction."""
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


def laws(n: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n))


# --- by hand ---


def test_ex_noise_by_hand() -> None:
    """Every number of the example, the picture that draws it included."""
    assert clip_then_noise.GRADIENTS == ((3, 4), (0.6, 0), (0, -2))
    g = np.array(clip_then_noise.GRADIENTS)
    assert np.linalg.norm(g, axis=1) == pytest.approx([5, 0.6, 2])
    assert g.sum(0) == pytest.approx([3.6, 2]) and g[1:].sum(0) == pytest.approx([0.6, -2])
    assert np.linalg.norm(g.sum(0) - g[1:].sum(0)) == pytest.approx(5)
    cut = np.array([clip_then_noise.clipped(row) for row in clip_then_noise.GRADIENTS])
    assert cut == pytest.approx(np.array([[0.6, 0.8], [0.6, 0], [0, -1]]))
    with_it, without = cut.sum(0), cut[1:].sum(0)
    assert with_it == pytest.approx([1.2, -0.2]) and without == pytest.approx([0.6, -1])
    seen = np.array([1.3, -0.1])
    near, far = ((seen - m) @ (seen - m) for m in (with_it, without))
    assert (near, far) == pytest.approx((0.02, 1.30))
    loss = norm.logpdf(seen, with_it).sum() - norm.logpdf(seen, without).sum()
    assert loss == pytest.approx(0.64) and math.exp(loss) == pytest.approx(1.9, abs=0.01)
    assert math.exp(loss) / (1 + math.exp(loss)) == pytest.approx(0.65, abs=0.01)


# --- the definition and one release ---


@pytest.mark.parametrize("eps", [0.0, 0.5, 1.5])
def test_lem_privacy_loss(eps: float) -> None:
    """The supremum over all 2^12 events is what the lemma says, in both of its forms."""
    p, q = laws()
    events = (np.arange(2**12)[:, None] >> np.arange(12)) & 1
    best = (events @ p - math.exp(eps) * (events @ q)).max()
    loss = np.log(p / q)
    assert best == pytest.approx(p[loss > eps].sum() - math.exp(eps) * q[loss > eps].sum())
    assert best == pytest.approx((p * np.maximum(1 - np.exp(eps - loss), 0)).sum())
    assert p[loss > eps].sum() > best  # "ε holds with probability 1 − δ" asks for more


@pytest.mark.parametrize("dimension", [1, 7])
def test_thm_gaussian_exact(dimension: int) -> None:
    """Against counting: the loss is normal in any dimension, and δ(ε) is the formula."""
    rng, n, sigma = np.random.default_rng(dimension), 400_000, 0.8
    a = rng.normal(size=dimension)
    a /= np.linalg.norm(a)  # sensitivity 1
    y = a + sigma * rng.normal(size=(n, dimension))
    loss = ((y**2).sum(1) - ((y - a) ** 2).sum(1)) / (2 * sigma**2)
    mu = 1 / sigma
    assert loss.mean() == pytest.approx(mu**2 / 2, abs=0.01)
    assert loss.std() == pytest.approx(mu, abs=0.01)
    for eps in (0.0, 0.5, 2.0):
        seen = np.maximum(1 - np.exp(eps - loss), 0).mean()
        assert seen == pytest.approx(exact(sigma, eps), abs=4e-3)
        assert exact(sigma / 0.6, eps) < exact(sigma, eps)  # nearer neighbors are no worse
    # a release with half the noise does not keep it
    assert exact(sigma / 2, 0.5) > exact(sigma, 0.5) + 0.1


def test_prop_gaussian_classical() -> None:
    for delta_dp in (1e-10, 1e-5, 0.3, 0.9, 0.97, 0.99, 0.999):
        for eps in np.linspace(0.02, 1, 30):
            sigma = privacy.gaussian_sigma(eps, delta_dp)
            t = eps * sigma - 1 / (2 * sigma)
            assert norm.sf(t) <= delta_dp  # what the proof shows
            assert exact(sigma, eps) <= delta_dp
    true = [exact(privacy.gaussian_sigma(eps, 1e-5), eps) for eps in (8.4, 8.5, 50, 200)]
    assert true[0] <= 1e-5 < true[1] < true[2] < true[3] and true[3] > 0.999


def test_prop_clip() -> None:
    rng = generator(0)
    g = torch.randn(200, 5, generator=rng) * torch.logspace(-2, 3, 200)[:, None]
    clip = 1.3
    cut = g * (clip / g.norm(dim=1, keepdim=True)).clamp(max=1)
    assert cut.norm(dim=1).max() <= clip * 1.0001
    assert torch.cdist(cut, cut).max() <= 2 * clip * 1.0001
    far = torch.tensor([[9.0, 0], [-7.0, 0]])
    far = far * (clip / far.norm(dim=1, keepdim=True)).clamp(max=1)
    assert (far[0] - far[1]).norm().item() == pytest.approx(2 * clip)
    # 2: a record of growing norm under fixed noise
    assert [exact(1 / n, 10.0) > 1 - 1e-6 for n in (3, 1000)] == [False, True]
    raw, clipped = (
        privacy.account(d, privacy.Training(1)).value for d in (DPGaussian(0.01), DPSGD(1.0, 1.0))
    )
    assert raw is None and clipped == pytest.approx(analytic_gaussian_epsilon(1 / 2))
    # 3: replaced from added or removed, against the exact values at half the multiplier
    for sigma, eps in ((1.0, 1.0), (3.0, 0.5), (0.7, 2.0)):
        assert exact(sigma / 2, 2 * eps) <= (1 + math.exp(eps)) * exact(sigma, eps)
        assert exact(sigma / 2, eps) > exact(sigma, eps)  # the factor 2 is needed


# --- arithmetic ---


def test_prop_post_processing() -> None:
    rng = np.random.default_rng(1)
    for trial in range(20):
        p, q = laws(seed=trial)
        channel = rng.dirichlet(np.full(5, 0.3), size=12)  # a random function of the output
        for eps in (0.0, 0.3, 1.0):
            assert hockey(p @ channel, q @ channel, eps) <= hockey(p, q, eps) + 1e-12
    # a function that looks at the data again is not post-processing
    assert hockey(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 1.0) == 1


def test_prop_basic_composition() -> None:
    """A second release that depends on the first output; and δ alone would not do."""
    for trial in range(30):
        rng = np.random.default_rng(trial)
        p, q = laws(4, trial)
        second = [(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3))) for _ in range(4)]
        joint = [
            np.concatenate([w[y] * second[y][k] for y in range(4)]) for k, w in ((0, p), (1, q))
        ]
        for one in (0.2, 0.7):
            d1, d2 = hockey(p, q, one), max(hockey(a, b, one) for a, b in second)
            assert hockey(*joint, 2 * one) <= d1 + d2 + 1e-12
    # Gaussian rounds: sums of ε are safe and wasteful
    single = analytic_gaussian_epsilon(2.0, 1e-6)
    assert analytic_gaussian_epsilon(2.0 / 10**0.5, 1e-5) < 10 * single / 2


def test_prop_gaussian_rounds() -> None:
    sigmas = [1.0, 2.0, 3.0]
    sigma = sum(s**-2 for s in sigmas) ** -0.5
    rng, n = np.random.default_rng(0), 400_000
    y = 1 + np.array(sigmas) * rng.normal(size=(n, 3))
    loss = ((2 * y - 1) / (2 * np.array(sigmas) ** 2)).sum(1)
    for eps in (0.0, 1.0, 2.0):
        seen = np.maximum(1 - np.exp(eps - loss), 0).mean()
        assert seen == pytest.approx(exact(sigma, eps), abs=4e-3)
    # against Opacus' numerical accountant, over 64 rounds
    prv = privacy.epsilon(8.0, 1, 64, accountant="prv")
    assert analytic_gaussian_epsilon(1.0) <= prv <= analytic_gaussian_epsilon(1.0) + 0.02
    same_noise = exact(1.0, 1.0)  # noise that is repeated adds nothing: independence is needed
    assert exact(1.0 / 2**0.5, 1.0) > same_noise + 0.1
    # Two counts, of record a and of record b: each has sensitivity 1, but no pair of neighbors
    # moves both, so the true δ is that of one release and the stated one is not the smallest.
    sets = [np.array([a, b], float) for a in (0, 1) for b in (0, 1)]  # who is in the data
    moves = [np.abs(u - v) for u in sets for v in sets if np.abs(u - v).sum() == 1]
    assert np.max(moves, 0).tolist() == [1, 1]
    farthest = max(np.linalg.norm(move) for move in moves)
    assert exact(1 / farthest, 1.0) == exact(1.0, 1.0) < exact(2**-0.5, 1.0)


@pytest.mark.parametrize("rounds", [100, 60])
def test_table_iii_for_a_fixed_number_of_clients(rounds: int) -> None:
    """One client replaced: about 2 times Table III's ε with noise 2σC, about 5 times with σC."""
    for sigma in (6, 5, 4, 3, 2, 1):
        table = privacy.epsilon(sigma, 0.1, rounds)
        matched = privacy.epsilon(sigma, 0.1, rounds, sampling="fixed") / table
        as_is = privacy.epsilon(sigma / 2, 0.1, rounds, sampling="fixed") / table
        assert 1.6 < matched < 2.2
        assert 4.6 < as_is < 5.5 if sigma > 1 else 8 < as_is < 11


@pytest.mark.filterwarnings("ignore:Optimal order")
def test_prop_rdp() -> None:
    z = np.linspace(-60, 60, 400_001)
    step = z[1] - z[0]
    for sigma, alpha in ((1.0, 2.0), (2.0, 5.0), (0.8, 1.5)):
        p, q = norm.logpdf(z, 1, sigma), norm.logpdf(z, 0, sigma)
        found = math.log((np.exp(alpha * p + (1 - alpha) * q)).sum() * step) / (alpha - 1)
        assert found == pytest.approx(alpha / (2 * sigma**2), rel=1e-6)

    def renyi(p: np.ndarray, q: np.ndarray, alpha: float) -> float:
        return math.log((q * (p / q) ** alpha).sum()) / (alpha - 1)

    for trial in range(20):  # an adaptive second release
        rng = np.random.default_rng(trial)
        p, q = laws(4, trial)
        second = [(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3))) for _ in range(4)]
        joint = [
            np.concatenate([w[y] * second[y][k] for y in range(4)]) for k, w in ((0, p), (1, q))
        ]
        most = max(renyi(a, b, 3.0) for a, b in second)
        assert renyi(*joint, 3.0) <= renyi(p, q, 3.0) + most + 1e-12
    # the conversion: safe against the exact δ, and Opacus' own
    from opacus.accountants.analysis.rdp import get_privacy_spent

    for sigma, delta_dp in ((1.0, 1e-5), (3.0, 1e-3)):
        found = []
        for alpha in (2.0, 6.0, 20.0):
            rho = alpha / (2 * sigma**2)
            first = rho + math.log(1 / delta_dp) / (alpha - 1)
            better = first - math.log(alpha) / (alpha - 1) + math.log(1 - 1 / alpha)
            assert analytic_gaussian_epsilon(sigma, delta_dp) <= better < first
            found.append(better)
            theirs = get_privacy_spent(orders=[alpha], rdp=[rho], delta=delta_dp)[0]
            assert theirs == pytest.approx(better)
        assert (
            min(found) > analytic_gaussian_epsilon(sigma, delta_dp) * 1.01
        )  # not exact for any order


@pytest.mark.parametrize(("q", "eps"), [(0.1, 1.0), (0.5, 0.3), (0.9, 2.0), (1.0, 1.0)])
def test_prop_subsampling(q: float, eps: float) -> None:
    """One record among Poisson samples of a sum with Gaussian noise, both directions."""
    sigma = 1.2
    z = np.linspace(-25, 25, 200_001)
    step = z[1] - z[0]
    p0, p1 = norm.pdf(z, 0, sigma) * step, norm.pdf(z, 1, sigma) * step
    mixed, delta_dp = (1 - q) * p0 + q * p1, exact(sigma, eps)
    smaller = math.log1p(q * math.expm1(eps))
    for pair in ((mixed, p0), (p0, mixed)):
        assert hockey(*pair, smaller) <= q * delta_dp + 1e-9
    if q < 1:
        assert hockey(mixed, p0, 0.5 * smaller) > q * delta_dp  # it cannot be halved
    # the accountant does better over many rounds than this bound with basic composition
    simple = 100 * math.log1p(0.1 * math.expm1(analytic_gaussian_epsilon(2.0, 1e-6)))
    assert privacy.epsilon(2.0, 0.1, 100) < simple / 10


def best(t: float, mu: float) -> float:
    return float(ndtr(ndtri(t) + mu))


def test_lem_gaussian_test() -> None:
    """No union of intervals beats the threshold; the curve is concave and grows with μ."""
    rng, mu = np.random.default_rng(0), 1.3
    for _ in range(300):
        cuts = np.sort(rng.normal(scale=2, size=6)).reshape(3, 2)
        q = (ndtr(cuts[:, 1]) - ndtr(cuts[:, 0])).sum()
        p = (ndtr(cuts[:, 1] - mu) - ndtr(cuts[:, 0] - mu)).sum()
        assert p <= best(q, mu) + 1e-12
    t = np.linspace(0.001, 0.999, 500)
    curve = ndtr(ndtri(t) + mu)
    assert (np.diff(curve) > 0).all() and (np.diff(curve, 2) < 1e-12).all()
    assert (curve <= ndtr(ndtri(t) + 1.4)).all()
    assert best(0.2, mu) == pytest.approx(norm.sf(norm.isf(0.2) - mu))  # attained


def test_gaussian_epsilon_inverts_delta() -> None:
    for sigma in (1e-3, 0.1, 1.0, 20.0):
        assert exact(sigma, analytic_gaussian_epsilon(sigma)) == pytest.approx(1e-5, rel=1e-4)
    assert analytic_gaussian_epsilon(1e6) == 0.0


# --- exercises ---


def mean_of(clip: str = "each", noise: str = "right"):
    def private_mean(g, C, sigma, z):
        size = g.norm(dim=1, keepdim=True)
        centers = {
            "each": (g * (C / size).clamp(max=1)).mean(0),
            "mean": g.mean(0) * min(1.0, C / g.mean(0).norm().item()),
            "normalize": (g * C / size).mean(0),
            "entries": g.clamp(-C, C).mean(0),
            "none": g.mean(0),
        }
        B = len(g)
        scales = {"right": sigma * C / B, "no C": sigma / B, "no B": sigma * C}
        scales |= {"square": (sigma * C) ** 2 / B, "none": 0.0}
        return centers[clip] + scales[noise] * z

    return private_mean


WRONG_MEANS = [
    (mean_of("mean"), "not the mean"),
    (mean_of("normalize"), "do not normalize"),
    (mean_of("entries"), "not its single entries"),
    (mean_of("none"), "there is no clip"),
    (mean_of(noise="no C"), "C is missing"),
    (mean_of(noise="no B"), "divide it by B"),
    (mean_of(noise="square"), "its square"),
    (mean_of(noise="none"), "there is no noise"),
    (lambda g, C, sigma, z: len(g) * mean_of()(g, C, sigma, z), "this is the sum"),
    (lambda *_: None, "replace the dots"),
    (lambda g, *_: g, "shape (5,)"),
]


def test_check_private_mean(capsys) -> None:
    assert checks.check_private_mean(mean_of())
    for wrong, hint in WRONG_MEANS:
        capsys.readouterr()
        assert not checks.check_private_mean(wrong)
        assert hint in capsys.readouterr().out


def test_check_exact_delta(capsys) -> None:
    def parts(s, e):
        return ndtr(1 / (2 * s) - e * s), ndtr(-1 / (2 * s) - e * s)

    assert checks.check_exact_delta(lambda s, e: parts(s, e)[0] - math.exp(e) * parts(s, e)[1])
    for wrong, hint in (
        (lambda s, e: parts(s, e)[0], "safe but too large"),
        (lambda s, e: parts(s, e)[0] - parts(s, e)[1], "multiplied by e^ε"),
        (lambda s, e: exact(1 / s, e) if s != 1 else exact(s, e), "exchanged"),
        (lambda s, e: ..., "replace the dots"),
        (lambda s, e: "no", "one number"),
    ):
        capsys.readouterr()
        assert not checks.check_exact_delta(wrong)
        assert hint in capsys.readouterr().out


def renyi(conversion: str = "second", take=min, square: float = 2, times: bool = True):
    """An accountant, right or wrong in one way."""

    def accountant(releases, delta_dp, orders):
        found = []
        for a in orders:
            rho = sum((r if times else 1) * a / (2 * s**square) for s, r in releases)
            eps = rho + math.log(1 / delta_dp) / (a - 1)
            if conversion == "second":
                eps += math.log(1 - 1 / a) - math.log(a) / (a - 1)
            found.append(eps)
        return take(found)

    return accountant


def noise_for(eps, rounds, delta_dp, orders, side: int = 1):
    ends = [1e-3, 1e5]
    while ends[1] / ends[0] > 1.0005:
        middle = (ends[0] * ends[1]) ** 0.5
        ends[renyi()([(middle, rounds)], delta_dp, orders) <= eps] = middle
    return ends[side]


def adding(releases, delta_dp, orders):
    return sum(r * renyi()([(s, 1)], delta_dp, orders) for s, r in releases)


@pytest.mark.parametrize(
    ("accountant", "noise", "says"),
    [
        (renyi(), noise_for, "Right"),
        (lambda *a: np.float64(renyi()(*a)), noise_for, "Right"),
        (renyi("first"), noise_for, "first conversion"),
        (renyi(take=max), noise_for, "not the largest"),
        (renyi(square=1), noise_for, "by its square"),
        (renyi(times=False), noise_for, "multiply ρ by T"),
        (adding, noise_for, "added ε's"),
        (lambda *a: 1.0, noise_for, "for each α"),
        (lambda *a: ..., noise_for, "replace the dots"),
        (renyi(), lambda *a: noise_for(*a, side=0) / 1.01, "keeps the promise"),
        (renyi(), lambda *a: 2 * noise_for(*a), "will do"),
        (renyi(), lambda *a: ..., "replace the dots"),
    ],
)
def test_check_accountant(accountant, noise, says, capsys) -> None:
    right = checks.check_accountant(accountant, noise)
    assert right == (says == "Right") and says in capsys.readouterr().out


def test_the_exercise_counts_as_opacus_does() -> None:
    alphas = list(checks.ORDERS)
    from opacus.accountants.analysis import rdp

    spent = rdp.compute_rdp(q=1.0, noise_multiplier=2.0, steps=100, orders=alphas)
    eps, _ = rdp.get_privacy_spent(orders=alphas, rdp=spent, delta=1e-5)
    assert checks.renyi_epsilon([(2.0, 100)]) == pytest.approx(eps)
