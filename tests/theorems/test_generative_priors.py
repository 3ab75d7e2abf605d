"""Chapter "A prior that dreams": each statement in numbers, and where it stops holding.

A test has the name of its label in the book. Theory in float64; attacks in float32.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from privfl_lite.attacks.solvers import adam
from privfl_lite.pictures import unpack
from privfl_lite.studies import STUDIES
from privfl_lite.studies.generative_priors import attack as study
from privfl_lite.teach.checks import generative_priors as checks

SEEDS = range(4)
close = torch.testing.assert_close


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fit(A: Tensor, b: Tensor) -> Tensor:
    """Least squares by torch, independent of the formulas of the chapter."""
    return torch.linalg.lstsq(A, b[:, None]).solution[:, 0]


# --- the range ---


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_range_floor(seed: int):
    """The range is a plane. Nobody is nearer; the minimizer is within M/m; with noise as well."""
    A, J, x = normal(12, 3, seed=seed), normal(40, 12, seed=seed + 10), normal(12, seed=seed + 20)
    floor = (x - A @ fit(A, x)).norm()
    tried = normal(500, 3, seed=seed + 30) @ A.T
    assert ((tried - x).norm(dim=1) >= floor - 1e-12).all()
    big, small = torch.linalg.svdvals(J)[[0, -1]]
    found = (A @ fit(J @ A, J @ x) - x).norm()
    assert floor - 1e-12 <= found <= big / small * floor + 1e-12
    assert found > floor + 1e-6  # matching gradients is not matching images
    noise = 0.3 * normal(40, seed=seed + 40)
    noisy = (A @ fit(J @ A, J @ x + noise) - x).norm()
    assert noisy <= (big * floor + 2 * noise.norm()) / small
    image = A @ torch.tensor([1.0, 2.0, 3.0], dtype=A.dtype)
    close(A @ fit(J @ A, J @ image), image)  # in the range: exact


def test_range_floor_needs_a_lower_constant():
    """With m = 0 the bound is empty: an image far away has the same gradient and is as good."""
    A = torch.eye(4, dtype=torch.float64)[:, :2]
    J = torch.diag(torch.tensor([1.0, 0, 1, 1], dtype=torch.float64))
    x = torch.tensor([1.0, 0, 0.1, 0], dtype=torch.float64)
    far = A @ torch.tensor([1.0, 50.0], dtype=torch.float64)
    close((J @ far - J @ x).norm(), (J @ (A @ fit(A, x)) - J @ x).norm())
    assert (far - x).norm() > 100 * (x - A @ fit(A, x)).norm()


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_latent_variance(seed: int):
    """Mean squared errors over 4,000 draws of noise; order of variances; break-even noise."""
    N, n, d, sigma = 40, 10, 3, 0.5
    J, x = normal(N, n, seed=seed), normal(n, seed=seed + 10)
    A = torch.linalg.qr(normal(n, d, seed=seed + 20)).Q
    e, M = x - A @ (A.T @ x), J.T @ J
    s = J @ x + sigma * normal(4000, N, seed=seed + 30)
    pixels = s @ torch.linalg.pinv(J).T
    latent = s @ torch.linalg.pinv(J @ A).T @ A.T
    variance = sigma**2 * torch.linalg.inv(M).trace()
    small = sigma**2 * torch.linalg.inv(A.T @ M @ A).trace()
    bias = e.square().sum() + fit(J @ A, J @ e).square().sum()
    close((pixels - x).square().sum(1).mean(), variance, rtol=0.06, atol=0)
    close((latent - x).square().sum(1).mean(), bias + small, rtol=0.06, atol=0)
    assert small < variance
    wide = torch.linalg.qr(normal(n, n, seed=seed)).Q
    close(sigma**2 * torch.linalg.inv(wide.T @ M @ wide).trace(), variance)  # d = n: no gain
    c = 1.7  # JᵀJ = c² I: break-even where (n − d) σ² = c² ‖e‖²
    J = c * torch.linalg.qr(J).Q
    even = c * e.norm() / math.sqrt(n - d)
    for factor in (0.5, 1.0, 2.0):
        full = (factor * even) ** 2 * torch.linalg.inv(J.T @ J).trace()
        low = (factor * even) ** 2 * torch.linalg.inv(A.T @ J.T @ J @ A).trace()
        low += e.square().sum() + fit(J @ A, J @ e).square().sum()
        assert math.isclose(full, low, rel_tol=1e-9) == (factor == 1)
        assert (low < full) == (factor > 1) or factor == 1


# --- GRNN's loss, and what a search sees of a loss ---


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_grnn_wasserstein(seed: int):
    a, b = normal(6, seed=seed), normal(6, seed=seed + 10)
    # 1: the only coupling of two point masses; scipy solves the transport in R^6
    point = stats.wasserstein_distance_nd(a[None].numpy(), b[None].numpy())
    assert point == pytest.approx((a - b).norm().item(), rel=1e-6)
    # 2: entries as samples: the best of all pairings is the sorted one, and it is smaller
    best = min((a - b[list(p)]).square().mean() for p in permutations(range(6)))
    close(best, (a.sort().values - b.sort().values).square().mean())
    assert best < (a - b).square().mean()
    assert (a.sort().values - a[torch.randperm(6)].sort().values).norm() == 0
    # 3: t² + t rises with t, and its gradient is that of t² with another length
    x = a.clone().requires_grad_()
    t = (x - b).norm()
    both, square = (torch.autograd.grad(f, x, retain_graph=True)[0] for f in (t**2 + t, t**2))
    close(both, (1 + 1 / (2 * t.detach())) * square)
    near = b + 1e-9 * a
    near.requires_grad_()
    t = (near - b).norm()
    (slope,) = torch.autograd.grad(t**2 + t, near)
    assert slope.norm() > 0.99  # does not fade at the minimum, unlike that of t²


def bowl(z: Tensor, rows: Tensor) -> Tensor:
    return (z - torch.arange(5.0)).square().sum(1) + (3 * z[:, 0]).sin()


def test_prop_search_invariance():
    """The same path for a cost f and for h(f), h rising: CMA-ES and signed Adam; not plain Adam."""
    cmaes = pytest.importorskip("cmaes")
    paths = []
    for h in (lambda f: f, lambda f: f**3 + f, lambda f: -f):
        search = cmaes.CMA(np.zeros(5), 1.0, seed=1)
        for _ in range(20):
            asked = [search.ask() for _ in range(search.population_size)]
            costs = bowl(torch.as_tensor(np.stack(asked)), None)
            search.tell([(z, float(h(f))) for z, f in zip(asked, costs, strict=True)])
        paths.append(search._mean.copy())
    assert np.array_equal(paths[0], paths[1]) and not np.allclose(paths[0], paths[2])
    start = torch.full((2, 5), 0.3)
    runs = [
        adam(lambda z, rows, h=h: h(bowl(z, rows)), start, range(1, 61), 60).z
        for h in (lambda f: f, lambda f: f + f.sqrt(), lambda f: (f / 50).exp())
    ]
    close(runs[0], runs[1], rtol=0, atol=0)
    close(runs[0], runs[2], rtol=0, atol=0)

    def plain(h) -> Tensor:
        z = start.clone().requires_grad_()
        optimizer = torch.optim.Adam([z], lr=0.1)
        for _ in range(60):
            optimizer.zero_grad()
            h(bowl(z, None)).sum().backward()
            optimizer.step()
        return z.detach()

    close(plain(lambda f: f), plain(lambda f: 100 * f), rtol=0, atol=1e-3)  # the scale only
    assert (plain(lambda f: f) - plain(lambda f: (f / 5).exp())).abs().max() > 1e-2


# --- evidence ---


def test_prop_cost_of_the_truth():
    """χ² of the truth, noncentral χ² of another image, and the cosine cost of the truth."""
    N, sigma, draws = 400, 0.3, 4000
    g = normal(N, seed=0)
    s = g + sigma * normal(draws, N, seed=1)
    gap = (s - g).square().sum(1) / sigma**2
    assert stats.kstest(gap.numpy(), stats.chi2(N).cdf).pvalue > 0.01
    other = g + 0.03 * normal(N, seed=2)
    lam = ((other - g).square().sum() / sigma**2).item()
    gap = (s - other).square().sum(1) / sigma**2
    assert stats.kstest(gap.numpy(), stats.ncx2(N, lam).cdf).pvalue > 0.01
    assert stats.kstest(gap.numpy(), stats.chi2(N + 20).cdf).pvalue < 1e-6  # the test can fail
    cosine = 1 - (s @ g) / (s.norm(dim=1) * g.norm())
    want = 1 - (1 + sigma**2 * N / g.square().sum()) ** -0.5
    close(cosine.mean(), want, rtol=0.02, atol=0)
    s = g[:1] + 3 * normal(draws, 1, seed=3)  # one number only: the last formula is far off
    cosine = (1 - (s @ g[:1]) / (s.norm(dim=1) * g[:1].norm())).mean()
    assert abs(cosine - (1 - (1 + 9 / g[:1].square().sum()) ** -0.5)) > 0.05


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_prop_candidate_list(ratio: float):
    N, sigma, draws, K = 50, 0.7, 20000, 8
    a, b = normal(N, seed=0), normal(N, seed=1)
    b = a + (b - a) / (b - a).norm() * 2 * ratio * sigma  # D / 2σ = ratio
    s = a + sigma * normal(draws, N, seed=2)
    wrong = ((s - b).norm(dim=1) < (s - a).norm(dim=1)).double().mean()
    close(wrong, torch.tensor(stats.norm.cdf(-ratio)).double(), rtol=0, atol=0.01)
    skewed = ((s - b).norm(dim=1) < (s - a).norm(dim=1) + 0.1).double().mean()
    other = a + (b - a) + sigma * normal(draws, N, seed=3)
    skewed_b = ((other - b).norm(dim=1) >= (other - a).norm(dim=1) + 0.1).double().mean()
    assert skewed + skewed_b > 2 * wrong - 0.02  # no other threshold has fewer errors in all
    many = torch.stack([a, *(a + normal(N, seed=9 + k) for k in range(K - 1))])
    exact = "donot_use_mm_for_euclid_dist"
    apart = torch.cdist(many[:1], many[1:], compute_mode=exact).min().item()
    for noise in (apart / 8, apart / 2):
        s = a + noise * normal(draws, N, seed=4)
        miss = (torch.cdist(s, many).argmin(1) != 0).double().mean().item()
        assert miss <= (K - 1) * stats.norm.cdf(-apart / (2 * noise)) + 0.01


# --- exercises ---


def right_ceiling(mean, A, x):
    rest = x - mean - A @ torch.linalg.lstsq(A, (x - mean)[:, None]).solution[:, 0]
    return 10 * math.log10(len(x) / rest.square().sum())


def right_surprise(s, g_hat, sigma):
    return (((s - g_hat) / sigma).square().sum() - len(s)) / math.sqrt(2 * len(s))


def right_latent_fit(J, A, s):
    return A @ torch.linalg.pinv(J @ A) @ s


def test_right_answers_are_accepted(expect):
    expect(checks.check_ceiling, right_ceiling, "Right")
    expect(checks.check_surprise, right_surprise, "Right")
    expect(checks.check_latent_fit, right_latent_fit, "Right")


def db(value: Tensor, n: int) -> float:
    return 10 * math.log10(n / value)


def rest(A: Tensor, x: Tensor) -> Tensor:
    return x - A @ torch.linalg.pinv(A) @ x


@pytest.mark.parametrize(
    ("check", "answer", "hint"),
    [
        ("ceiling", lambda m, A, x: ..., "replace the dots"),
        ("ceiling", lambda m, A, x: "12 dB", "one number, not a str"),
        (
            "ceiling",
            lambda m, A, x: db(((x - m) - A @ (A.T @ (x - m))).square().sum(), len(x)),
            "orthonormal",
        ),
        ("ceiling", lambda m, A, x: db(rest(A, x).square().sum(), len(x)), "go through 0"),
        ("ceiling", lambda m, A, x: db(rest(A, x - m).square().sum(), 1), "divide the squared"),
        ("ceiling", lambda m, A, x: db(rest(A, x - m).norm(), len(x)), "PSNR squared"),
        ("ceiling", lambda m, A, x: rest(A, x - m).norm(), "turn it into decibels"),
        ("ceiling", lambda m, A, x: 3.0, "nearest z"),
        (
            "surprise",
            lambda s, g, v: ((s - g).square().sum() / v - len(s)) / math.sqrt(2 * len(s)),
            "by its square",
        ),
        (
            "surprise",
            lambda s, g, v: ((s - g).square().sum() / v**2 - len(s)) / (2 * len(s)),
            "square root",
        ),
        ("surprise", lambda s, g, v: (s - g).square().sum() / v**2, "subtract what the truth"),
        (
            "surprise",
            lambda s, g, v: ((s - g).square().sum() / v**2 - len(s)) / math.sqrt(len(s)),
            "variance 2N",
        ),
        ("surprise", lambda s, g, v: 0.0, "the value is"),
        ("latent_fit", lambda J, A, s: torch.linalg.pinv(J @ A) @ s, "the image is A z"),
        ("latent_fit", lambda J, A, s: s, "has shape"),
        ("latent_fit", lambda J, A, s: torch.linalg.pinv(J) @ s, "all pixels"),
        (
            "latent_fit",
            lambda J, A, s: A @ torch.linalg.pinv(A) @ torch.linalg.pinv(J) @ s,
            "projected then",
        ),
        ("latent_fit", lambda J, A, s: torch.zeros(12), "least squares with J A"),
    ],
)
def test_wrong_answers_get_the_right_hint(check, answer, hint, expect):
    expect(getattr(checks, f"check_{check}"), answer, hint)


# --- the study ---


@pytest.fixture(scope="module")
def cells() -> dict:
    stored = STUDIES["generative-priors/attack"].show()["cells"]
    return {(c["attack"], c["sigma"], c["prune"]): c for c in stored}


def median(cell: dict) -> float:
    return float(np.median(cell["psnr"]))


def test_only_the_generator_stands_the_noise(cells):
    """At σ = 0.3 GGL is over pixels, published or informed; undefended it is far below."""
    assert median(cells["pixels", 0, 0]) > median(cells["ggl-adam", 0, 0]) + 5
    assert median(cells["ggl-adam", 0.3, 0]) > median(cells["pixels-informed", 0.3, 0]) + 2
    assert median(cells["pixels-informed", 0.3, 0]) > median(cells["pixels", 0.3, 0]) + 5
    assert sum(cells["ggl-adam", 0.3, 0]["identified"]) >= 5


def test_with_much_noise_the_clean_digit_is_a_wrong_one_but_labels_are_right(cells):
    cell = cells["ggl-adam", 1, 0]
    assert sum(cell["identified"]) <= 2
    assert sum(a == b for a, b in zip(cell["label_found"], cell["label_true"], strict=True)) >= 7


def test_an_informed_attacker_undoes_most_of_pruning(cells):
    assert median(cells["pixels-informed", 0, 0.9]) > median(cells["pixels", 0, 0.9]) + 5


def test_private_images_are_not_the_generators(cells):
    data, x, y = study.private(STUDIES["generative-priors/attack"].show()["settings"])
    public = data.x_train[study.PUBLIC_FROM :].flatten(1)
    assert torch.cdist(x.flatten(1), public).min() > 1
    assert y.tolist() == cells["ggl-adam", 0, 0]["label_true"] and len(set(y.tolist())) == 8


def test_pictures_are_the_scored_images(cells):
    """The stored PNGs of 16 grays give the stored PSNR back, to what 16 grays allow."""
    _, x, _ = study.private(STUDIES["generative-priors/attack"].show()["settings"])
    for cell in cells.values():
        shown = torch.stack([unpack(p) for p in cell["pictures"]])
        mse = (shown - x[: len(shown)]).square().mean((1, 2, 3))
        stored = 10 ** (-torch.tensor(cell["psnr"][: len(shown)]) / 10)
        assert ((mse - stored).abs() < 0.001 + 0.05 * stored).all()


def test_a_stored_cell_comes_out_again(cells):
    settings = STUDIES["generative-priors/attack"].show()["settings"]
    settings = {**settings, "images": {"grnn": 2, "others": 2}}
    cell = {"attack": "ggl-adam", "sigma": 0.1, "prune": 0}
    again = study._compute(settings, cell)
    assert again["psnr"] == pytest.approx(cells["ggl-adam", 0.1, 0]["psnr"][:2], abs=4)
    assert again["identified"] == cells["ggl-adam", 0.1, 0]["identified"][:2]


# --- the example by hand, and the generator that a reader makes ---


def test_ex_generative_by_hand():
    line, seen = torch.tensor([0.6, 0.8]), torch.tensor([1.0, 0.5])
    assert (seen - line).square().sum().item() == pytest.approx(0.25)
    assert (line @ seen).item() == pytest.approx(1.0)
    truth = torch.tensor([0.8, 0.6])
    near = (line @ truth) * line
    assert near.tolist() == pytest.approx([0.576, 0.768])
    assert (near - truth).square().sum().item() == pytest.approx(0.0784)


def components(public, d, center=True, first=0):
    mean = public.mean(0) if center else torch.zeros_like(public[0])
    axes = torch.linalg.svd(public - mean, full_matrices=False)[2]
    return public.mean(0), axes[first : first + d].T


def solve(J, s, mean, A, own=True):
    rest = s - J @ mean if own else s
    return mean + A @ torch.linalg.lstsq(J @ A, rest[:, None]).solution[:, 0]


def best_dimension(public, held, J, noise, gradients=False):
    errors = []
    for d in range(1, public.shape[1]):
        given = components(public, d)
        found = torch.stack([solve(J, J @ x + e, *given) for x, e in zip(held, noise, strict=True)])
        off = (found - held) @ J.T - noise if gradients else found - held
        errors.append(off.square().mean())
    return 1 + int(torch.stack(errors).argmin())


@pytest.mark.parametrize(
    ("make", "attack", "says"),
    [
        (components, solve, "Right"),
        (lambda p, d: components(p, d, center=False), solve, "center the images"),
        (lambda p, d: components(p, d, first=1), solve, "another plane is nearer"),
        (lambda p, d: (components(p, d)[0], 2 * components(p, d)[1]), solve, "orthonormal"),
        (lambda p, d: components(p, d)[0], solve, "two things"),
        (components, lambda J, s, m, A: solve(J, s, m, A, own=False), "a gradient of its own"),
        (
            components,
            lambda J, s, m, A: torch.linalg.lstsq(J, s[:, None]).solution[:, 0],
            "all pixels",
        ),
        (components, lambda *a: ..., "returns nothing yet"),
    ],
)
def test_check_own_generator(capsys, make, attack, says):
    checks.check_own_generator(make, attack, best_dimension)
    assert says in capsys.readouterr().out


@pytest.mark.parametrize(
    ("choose", "says"),
    [
        (lambda *a: torch.tensor(best_dimension(*a)), "Right"),
        (lambda *a: best_dimension(*a) - 1, "counting from 0"),
        (lambda *a: best_dimension(*a, gradients=True), "compare images with images"),
        (lambda p, h, J, e: best_dimension(p, p, J, e), "kept aside"),
        (lambda *a: 3, "has the least error here, not d = 3"),
        (lambda *a: ..., "returns nothing yet"),
        (lambda *a: [1, 2], "one number"),
    ],
)
def test_check_own_generator_choose(expect, choose, says):
    expect(lambda c: checks.check_own_generator(components, solve, c), choose, says)


def test_the_learned_network_names_no_more_than_searches_do():
    """The sentences under the table of the study ``generative-priors/learned``."""
    cells = {
        (c["upload"], c["attack"]): c for c in STUDIES["generative-priors/learned"].show()["cells"]
    }
    named = {k: sum(n["named_pixels"] for n in c["networks"]) for k, c in cells.items()}
    psnr = {k: np.median([v for n in c["networks"] for v in n["psnr"]]) for k, c in cells.items()}
    assert (named["signs", "learned"], named["signs", "search"]) == (21, 19)
    others = {how for how, _ in cells} - {"signs"}
    assert all(named[how, "learned"] < named[how, "search"] for how in others)
    assert round(psnr["signs", "learned"]) == 17 and psnr["signs", "search"] < 5
    assert all(named[how, "blind"] == 0 for how in others)
