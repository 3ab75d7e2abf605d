"""Chapter "Measuring leakage": each statement on numbers, and where it fails; checks and study.

A test has the name of its label in the book.
"""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
import torch
from scipy import stats
from skimage.metrics import structural_similarity
from torch import Tensor

from privfl_lite import load, metrics
from privfl_lite.runtime import PrivflError
from privfl_lite.studies import STUDIES
from privfl_lite.studies.measuring_leakage import lpips as study
from privfl_lite.teach.checks import measuring_leakage as checks

SEEDS = range(4)
SHIFT = 10 * math.log10(255)
close = torch.testing.assert_close


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pair(seed: int, *shape: int) -> tuple[Tensor, Tensor]:
    """Two batches of random images in [0, 1], float64."""
    gen = rng(seed)
    return tuple(torch.rand(*shape, generator=gen, dtype=torch.float64) for _ in range(2))


# --- units ---


def test_ex_measure_hand():
    """The example of three pixels: every number of its table, the fit by least squares."""
    x = np.array([0.1, 0.5, 0.9])
    table = {
        (0.2, 0.6, 1.0): (0.01, 0.173, 20.0, 0.0),
        (0.2, 0.4, 0.8): (0.01, 0.173, 20.0, 0.0038),
        (0.5, 0.5, 0.5): (0.107, 0.566, 9.7, 0.107),
        (0.9, 0.5, 0.1): (0.427, 1.131, 3.7, 0.0),
    }
    for handed_in, (mse, l2, psnr, fitted) in table.items():
        a, b = (torch.tensor(np.array(v)).view(1, 1, 1, 3) for v in (handed_in, x))
        found = (f(a, b).item() for f in (metrics.mse, metrics.l2))
        assert tuple(round(v, 3) for v in found) == (mse, l2)
        assert metrics.psnr(a, b).item() == pytest.approx(psnr, abs=0.05)
        design = np.stack([handed_in, np.ones(3)], 1)
        left = design @ np.linalg.lstsq(design, x, rcond=None)[0] - x
        assert np.mean(left**2) == pytest.approx(fitted, abs=5e-4)


@pytest.mark.parametrize("shape", [(5, 1, 28, 28), (3, 3, 32, 32), (2, 1, 11, 17)])
def test_prop_psnr_from_l2(shape: tuple[int, ...]):
    """MSE = L2²/N; PSNR = 10 log10 N − 20 log10 L2; the bounds hold in [0, 1] and only there."""
    x_hat, x = pair(0, *shape)
    size, l2 = math.prod(shape[1:]), metrics.l2(x_hat, x)
    reference = np.array([np.linalg.norm((a - b).numpy()) for a, b in zip(x_hat, x, strict=True)])
    close(l2, torch.from_numpy(reference))
    close(metrics.mse(x_hat, x), l2**2 / size)
    close(metrics.psnr(x_hat, x), 10 * math.log10(size) - 20 * torch.log10(l2))
    farthest = torch.maximum(x, 1 - x).square().mean((1, 2, 3))
    assert (metrics.mse(x_hat, x) <= farthest).all() and (farthest <= 1).all()
    close(metrics.mse((x < 0.5).double(), x), farthest)  # reached by the farther end of each pixel
    assert (metrics.mse(x_hat + 3, x) > 1).all()  # fails outside [0, 1]


def test_modelcloaks_norms_in_decibels():
    """ModelCloak's threshold 1.4 and Table IV: 26 and 32 dB; 4.84 is no MSE in [0, 1]."""
    for norm, size, expected in ((1.4, 784, 26.02), (1.4, 3072, 31.95), (4.84, 784, 15.25)):
        error = torch.zeros(1, 1, 1, size)
        error[..., 0] = norm
        found = metrics.psnr(error, torch.zeros_like(error)).item()
        assert found == pytest.approx(expected, abs=0.005)
    assert 10 * math.log10(3072) - 20 * math.log10(2.69) == pytest.approx(26.28, abs=0.005)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_fedkl_psnr(seed: int):
    """F = PSNR + 10 log10 R = PSNR/2 + 24.07, also for means; over 24.07 dB only outside [0, 1]."""
    x_hat, x = pair(seed, 6, 3, 8, 8)
    x_hat = x + (x_hat - x) * torch.logspace(-4, 0, 6).view(-1, 1, 1, 1)
    root = np.sqrt(np.mean((255 * (x_hat - x).numpy()) ** 2, axis=(1, 2, 3)))  # the released code
    printed = torch.from_numpy(10 * np.log10(255**2 / root))
    psnr = metrics.psnr(x_hat, x)
    close(metrics.fedkl_psnr(x_hat, x), printed)
    close(printed, psnr + 10 * torch.log10(torch.from_numpy(root)))
    close(printed, psnr / 2 + SHIFT)
    close(psnr.mean(), 2 * (printed.mean() - SHIFT))
    assert (printed - psnr <= SHIFT).all()
    assert printed[0] < psnr[0] and root[0] < 1  # falls below where the error is under a gray level
    black, white = torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4)
    worst = metrics.fedkl_psnr(black, white) - metrics.psnr(black, white)
    assert worst.item() == pytest.approx(24.0654, abs=1e-4)
    assert (metrics.fedkl_psnr(3 * white, black) - metrics.psnr(3 * white, black)).item() > SHIFT


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_normalized_psnr(seed: int):
    """Normalizing by s_c moves PSNR by 20 log10 of something between the s_c; the mean cancels."""
    x_hat, x = pair(seed, 4, 3, 8, 8)
    x_hat[:, seed % 3] = x[:, seed % 3]  # errors in two channels only
    mean, std = torch.rand(3, 1, 1, generator=rng(9)), torch.tensor([0.2, 0.25, 0.4]).view(3, 1, 1)
    moved = metrics.psnr((x_hat - mean) / std, (x - mean) / std) - metrics.psnr(x_hat, x)
    low, high = 20 * math.log10(0.2), 20 * math.log10(0.4)
    assert (moved >= low - 1e-4).all() and (moved <= high + 1e-4).all()
    assert moved.std() > 1e-3  # so no one number converts, unless all s_c are equal:
    same = metrics.psnr(x_hat / 0.3081, x / 0.3081) - metrics.psnr(x_hat, x)
    close(same, torch.full_like(same, 20 * math.log10(0.3081)))
    assert 20 * math.log10(0.3081) == pytest.approx(-10.2, abs=0.05)
    cifar = [20 * math.log10(s) for s in study.CIFAR_STD]
    assert -12.5 < min(cifar) < max(cifar) < -11.5


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_clamping(seed: int):
    """Clamping lowers the MSE where x is in [0, 1]; fails where it is not, and for SSIM."""
    x_hat, x = pair(seed, 5, 1, 16, 16)
    x_hat = 3 * x_hat - 1
    before, after = metrics.mse(x_hat, x), metrics.mse(x_hat.clamp(0, 1), x)
    assert (after < before).all()
    inside = x_hat.clamp(0.1, 0.9)
    assert torch.equal(inside.clamp(0, 1), inside)
    assert (metrics.mse(x_hat.clamp(0, 1), x_hat) > 0).all()  # truth outside: worse than no clamp
    # SSIM: brighter by 0.3 has the structure of x exactly; clamped, it is plain white.
    x = 0.85 + 0.1 * x
    assert (metrics.ssim((x + 0.3).clamp(0, 1), x) < metrics.ssim(x + 0.3, x) - 0.1).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_mean_psnr(seed: int):
    """The mean of PSNR is at least the PSNR of the mean; equal only for equal errors."""
    x_hat, x = pair(seed, 8, 1, 8, 8)
    x_hat = x + (x_hat - x) * torch.rand(8, 1, 1, 1, generator=rng(seed), dtype=torch.float64)
    mse, l2, root = (f(x_hat, x) for f in (metrics.mse, metrics.l2, metrics.fedkl_mse))
    psnr, printed = metrics.psnr(x_hat, x).mean(), metrics.fedkl_psnr(x_hat, x).mean()
    assert psnr > -10 * torch.log10(mse.mean())
    assert psnr > 10 * math.log10(64) - 20 * torch.log10(l2.mean())
    assert printed > 10 * torch.log10(255**2 / root.mean())
    equal = study.at_psnr(x_hat, x, 20.0)
    mean = -10 * torch.log10(metrics.mse(equal, x).mean())
    close(metrics.psnr(equal, x).mean(), mean, atol=1e-6, rtol=0)
    assert np.mean([80] + 9 * [8]) == pytest.approx(15.2)


# --- structure ---


@pytest.mark.parametrize("alpha", [1.0, 0.5, -1.0])
def test_prop_affine_ssim(alpha: float):
    """q = (2 α σ² + c₂)/((1 + α²) σ² + c₂) in a window; 1 for brightness, near −1 for negatives."""
    x = 0.3 * torch.rand(1, 1, 11, 11, generator=rng(0), dtype=torch.float64)  # one window
    beta = 1.0 if alpha < 0 else 0.1
    found = metrics.ssim(alpha * x + beta, x).item()
    taps = torch.softmax(-torch.arange(-5.0, 6.0).double().square() / (2 * 1.5**2), 0)
    weight = torch.outer(taps, taps)
    mu = (weight * x).sum()
    var = (weight * x**2).sum() - mu**2
    l_ = (2 * mu * (alpha * mu + beta) + 1e-4) / (mu**2 + (alpha * mu + beta) ** 2 + 1e-4)
    q = (2 * alpha * var + 9e-4) / ((1 + alpha**2) * var + 9e-4)
    assert found == pytest.approx((l_ * q).item(), abs=1e-9)
    if alpha == 1:
        assert q == 1 and l_ < 1
    if alpha == -1:
        close(q, (9e-4 - 2 * var) / (9e-4 + 2 * var))
        assert q < -0.7
        flat = torch.full_like(x, 0.5)  # no structure: the negative of 0.5 is itself
        assert metrics.ssim(1 - flat, flat).item() == pytest.approx(1)
    reference = structural_similarity(
        (alpha * x + beta)[0, 0].numpy(),
        x[0, 0].numpy(),
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=1.0,
    )
    assert found == pytest.approx(reference, abs=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_affine_fit(seed: int):
    """min over a, b of MSE(a x̂ + b, x) = Var(x)(1 − r²), by numpy's least squares."""
    x_hat, x = (t.flatten().numpy() for t in pair(seed, 1, 1, 9, 7))
    x_hat = x_hat + 0.7 * x * (-1) ** seed
    design = np.stack([x_hat, np.ones_like(x_hat)], 1)
    left = np.linalg.lstsq(design, x, rcond=None)[1][0] / x.size
    r = np.corrcoef(x_hat, x)[0, 1]
    assert left == pytest.approx(x.var() * (1 - r**2), rel=1e-9)
    assert left < x.var() < np.mean((x_hat - x) ** 2) + x.var()  # its floor is Var(x), not 1
    blank = np.stack([np.full_like(x, 0.5), np.ones_like(x)], 1)
    fitted = blank @ np.linalg.lstsq(blank, x, rcond=None)[0]
    assert np.mean((fitted - x) ** 2) == pytest.approx(x.var())


# --- knowing nothing ---


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_posterior_mean(seed: int):
    """E MSE = V + E MSE(x̂, m), exact by summing over a finite world; a draw 2V, k draws (1+1/k)V.

    Fails for a guess that depends on x beyond what is known.
    """
    gen = rng(seed)
    images, known = torch.rand(6, 5, generator=gen), torch.tensor([0, 0, 0, 1, 1, 1])
    p = torch.rand(6, generator=gen)
    p = p / p.sum()

    def expected(error) -> float:  # of error(i), when image i is private
        return sum(p[i].item() * error(i) for i in range(6))

    def mse(a: Tensor, b: Tensor) -> float:
        return (a - b).square().mean().item()

    given = [p * (known == known[i]) / p[known == known[i]].sum() for i in range(6)]
    mean = [given[i] @ images for i in range(6)]
    V = expected(lambda i: mse(mean[i], images[i]))
    guess = torch.rand(2, 5, generator=gen)  # any function of what is known
    total = expected(lambda i: mse(guess[known[i]], images[i]))
    assert total == pytest.approx(V + expected(lambda i: mse(guess[known[i]], mean[i])), rel=1e-5)
    for k in (1, 2, 3):  # the mean of k draws given what is known
        total = expected(
            lambda i, k=k: sum(
                math.prod(given[i][j].item() for j in draw)
                * mse(images[list(draw)].mean(0), images[i])
                for draw in product(range(6), repeat=k)
            )
        )
        assert total == pytest.approx((1 + 1 / k) * V, rel=1e-5)
    assert expected(lambda i: mse(images[i], images[i])) < V  # x itself is no guess


def test_the_mean_image_wins_by_three_decibels_on_real_data():
    for data, n in (("mnist", 400), ("faces", 40), ("photos", 100)):
        x, guess = study.guesses(data, n)
        mse = {name: metrics.mse(g, x).mean().item() for name, g in guess.items()}
        for blurred, sharp in (("mean image", "another image"), ("class mean", "same class")):
            assert 10 * math.log10(mse[sharp] / mse[blurred]) == pytest.approx(3.01, abs=0.35)


def test_prop_chance_identification():
    """P(hit) = 1/n for any x̂ independent of the index, by counting; fails where x̂ depends on it."""
    candidates, guess = torch.rand(7, 5, generator=rng(0)), torch.rand(5, generator=rng(1))
    for similarity in (
        lambda c: -(c - guess).square().sum(1),
        lambda c: c @ guess,
        lambda c: torch.zeros(len(c)),  # all tie: by lot
        lambda c: torch.arange(float(len(c))),  # a judge who always names the last
    ):
        s = similarity(candidates)
        best = s == s.max()
        lot = best.double() / best.sum()  # probability that each candidate is named
        assert lot.mean().item() == pytest.approx(1 / 7)  # the private one is uniform
    nearest = torch.cdist(candidates + 0.01, candidates).argmin(1)  # x̂ made from the private one
    assert (nearest == torch.arange(7)).all()


# --- batches, attempts, counts ---


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_matching_gain(seed: int):
    """The matched mean MSE is the least of all orders; the mean PSNR may fall."""
    x_hat, x = pair(seed, 5, 1, 6, 6)
    matched = metrics.mse(x_hat[metrics.assign(x_hat, x)], x).mean()
    every = [metrics.mse(x_hat[list(order)], x).mean() for order in permutations(range(5))]
    close(matched, torch.stack(every).min())
    assert matched < metrics.mse(x_hat, x).mean()  # noise gains too
    base = torch.full((1, 1, 2, 8), 0.3, dtype=torch.float64)
    left, right = base.clone(), base.clone()
    left[..., :4] += 0.56
    right[..., 4:] += 0.56
    right[..., :4] -= 0.005
    x, x_hat = torch.cat([base, left]), torch.cat([base + 0.001, right])
    order = metrics.assign(x_hat, x)
    assert order.tolist() == [1, 0]
    given, matched = metrics.psnr(x_hat, x).mean(), metrics.psnr(x_hat[order], x).mean()
    assert given == pytest.approx(32.5, abs=0.1) and matched == pytest.approx(8.0, abs=0.1)


def test_prop_best_of_k():
    """By the truth: Φ^k. By an independent cost: Φ. By a cost that knows: in between."""
    k, runs = 8, 40_000
    score = torch.randn(runs, k, generator=rng(0))
    cost = torch.randn(runs, k, generator=rng(1))
    by_truth = score.max(1).values
    by_cost = score.gather(1, cost.argmin(1, keepdim=True))[:, 0]
    by_good_cost = score.gather(1, (cost - 2 * score).argmin(1, keepdim=True))[:, 0]
    for v in (-1.0, 0.0, 1.0, 2.0):
        phi = stats.norm.cdf(v)
        assert (by_truth <= v).double().mean().item() == pytest.approx(phi**k, abs=0.012)
        assert (by_cost <= v).double().mean().item() == pytest.approx(phi, abs=0.012)
    assert by_cost.mean() + 0.5 < by_good_cost.mean() < by_truth.mean() - 0.05


@pytest.mark.parametrize("n", [1, 5, 10, 13, 14, 64, 100, 1000])
def test_prop_rule_of_three(n: int):
    """1 − 0.05^(1/n) < 3/n is where (1−p)^n = 5 %; Wilson's end is z²/(n+z²), over 3/n from 14."""
    bound = 1 - 0.05 ** (1 / n)
    assert stats.binom.pmf(0, n, bound) == pytest.approx(0.05)
    assert stats.binom.pmf(0, n, bound + 1e-3 / n) < 0.05 < stats.binom.pmf(0, n, bound - 1e-3 / n)
    assert bound < math.log(20) / n < 3 / n
    z2 = stats.norm.ppf(0.975) ** 2
    low, high = metrics.wilson(0, n)
    assert low == 0 and high == pytest.approx(z2 / (n + z2))
    assert (high > 3 / n) == (n >= 14)
    reference = stats.binomtest(0, n).proportion_ci(method="wilson")
    assert high == pytest.approx(reference.high)


def wald(s: int, n: int) -> tuple[float, float]:
    half = stats.norm.ppf(0.975) * math.sqrt(s / n * (1 - s / n) / n)
    return s / n - half, s / n + half


def coverage(interval, n: int, p: float) -> float:
    inside = [s for s in range(n + 1) if interval(s, n)[0] <= p <= interval(s, n)[1]]
    return float(stats.binom.pmf(inside, n, p).sum())


@pytest.mark.parametrize("n", [10, 100])
def test_prop_wald_coverage(n: int):
    """Wald covers p with at most 1 − (1−p)^n; Wilson with at least (1−p)^n near 0."""
    z2 = stats.norm.ppf(0.975) ** 2
    for p in (1e-4, 1e-3, 0.01, 0.02, 0.1, 0.3):
        assert coverage(wald, n, p) <= 1 - (1 - p) ** n + 1e-12
        if p < z2 / (n + z2):
            assert coverage(metrics.wilson, n, p) >= (1 - p) ** n - 1e-12
    assert coverage(wald, n, 1e-4) < 0.02 and coverage(metrics.wilson, n, 1e-4) > 0.98
    assert coverage(metrics.wilson, n, 0.05) > 0.9  # its own weak spots are milder
    assert coverage(metrics.wilson, 100, 0.5) == pytest.approx(coverage(wald, 100, 0.5), abs=0.02)


# --- distortions and the stored study ---


@pytest.mark.parametrize("name", study.LEVELS)
def test_distortions_stay_in_range_and_hit_the_psnr(name: str):
    x = load("photos").sample(6)[0]
    for t in study.LEVELS[name]:
        x_hat = study.distort(name, x, t)
        assert x_hat.shape == x.shape and x_hat.min() >= 0 and x_hat.max() <= 1
        assert (metrics.mse(x_hat, x) > 0).all()
    for target in (15.0, 25.0):
        psnr = metrics.psnr(study.distort_to(name, x, target), x)
        close(psnr, torch.full_like(psnr, target), atol=1e-3, rtol=0)


def test_distortions_do_what_they_say():
    x = load("mnist").sample(3)[0]
    close(study.shift(x, 2.0)[..., 2:, 4:], x[..., 1:-1, 2:-2], atol=1e-5, rtol=0)
    assert torch.equal(study.invert(x, 1.0), 1 - x)
    close(study.invert(x, 0.475) - 0.475, 0.05 * x)  # what the chapter calls 5 %
    close(study.blocks(x, 1e-4), x, atol=1e-3, rtol=0)  # the transform is orthonormal
    close(study.blur(x, 1.0).mean(), x.mean(), atol=2e-3, rtol=0)
    with pytest.raises(PrivflError, match="unknown distortion 'melt'; choose one of: shift"):
        study.distort("melt", x, 1.0)


def test_the_four_is_the_best_nine():
    """The chapter's picture: one PSNR, and another digit has the highest SSIM."""
    digits = load("mnist")
    assert digits.y_test[749] == 9 and digits.y_train[2162] == 4
    nine, images = study.picture()
    psnr = torch.cat([metrics.psnr(image, nine) for image in images.values()])
    assert psnr.max() - psnr.min() < 1e-3
    ssim = {name: metrics.ssim(image, nine).item() for name, image in images.items()}
    assert max(ssim, key=ssim.get) == "another digit"


def test_stored_lpips_says_what_the_chapter_says():
    cells = STUDIES["measuring-leakage/lpips"].show()["cells"]

    def mean(kind: str, data: str, name: str, net: str = "alex") -> float:
        (cell,) = (c for c in cells if (c["kind"], c["data"], c["name"]) == (kind, data, name))
        return float(np.mean(cell[net]))

    four = mean("picture", "mnist", "another digit")
    assert all(mean("picture", "mnist", n) > four for n in ("blur", "noise", "blocks", "patch"))
    assert mean("guess", "mnist", "another image") < mean("distortion", "mnist", "blur")
    for data in ("mnist", "photos"):
        assert mean("guess", data, "another image") < mean("guess", data, "mean image")
    moved = {
        n: mean("distortion", "photos", n, "vgg_normalized")
        - mean("distortion", "photos", n, "vgg")
        for n in study.LEVELS
    }
    assert moved["noise"] < 0 < moved["brighten"] and moved["invert"] > 0.05


def test_stored_lpips_comes_out_again():
    try:
        metrics.perceptual._lpips_net("alex")
    except PrivflError as error:
        pytest.skip(f"no LPIPS weights here: {error}")
    done = STUDIES["measuring-leakage/lpips"].show()
    (cell,) = (c for c in done["cells"] if (c["kind"], c["name"]) == ("picture", "another digit"))
    nine, images = study.picture()
    found = metrics.lpips(images["another digit"], nine).tolist()
    assert found == pytest.approx(cell["alex"], abs=2e-3)


def test_lpips_of_normalized_images_is_that_of_the_network_fed_with_them(monkeypatch):
    """(z + 1) / 2 goes in, so that the network sees 2 x − 1 = z."""
    seen = []
    monkeypatch.setattr(metrics, "lpips", lambda a, b, net: seen.extend((2 * a - 1, 2 * b - 1)))
    x_hat, x = (t.float() for t in pair(0, 2, 3, 8, 8))
    study.lpips_normalized(x_hat, x, "vgg")
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (study.CIFAR_MEAN, study.CIFAR_STD))
    close(seen[0], (x_hat - mean) / std)
    close(seen[1], (x - mean) / std)


# --- exercises ---


def right_interval(s: int, n: int) -> tuple[float, float]:
    return metrics.wilson(s, n)


def right_identify(x_hat: Tensor, candidates: Tensor) -> Tensor:
    a, b = (t.flatten(1) - t.flatten(1).mean(1, keepdim=True) for t in (x_hat, candidates))
    a, b = (t / t.norm(dim=1, keepdim=True) for t in (a, b))
    return (a @ b.T).abs().argmax(1)


def cosine(x_hat: Tensor, candidates: Tensor, center: bool) -> Tensor:
    a, b = x_hat.flatten(1), candidates.flatten(1)
    if center:
        a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    return (a @ b.T) / (a.norm(dim=1, keepdim=True) * b.norm(dim=1))


def centered_distance(x_hat: Tensor, candidates: Tensor) -> Tensor:
    a, b = (t.flatten(1) - t.flatten(1).mean(1, keepdim=True) for t in (x_hat, candidates))
    return torch.cdist(a, b).argmin(1)


def find_moved(x_hat: Tensor, candidates: Tensor, absolute: bool = True, rows: bool = True):
    """Index and shift by the largest correlation over all shifts, in the Fourier domain."""
    a, b = (t - t.mean((1, 2, 3), keepdim=True) for t in (x_hat, candidates))
    a, b = (t / t.flatten(1).norm(dim=1).view(-1, 1, 1, 1) for t in (a, b))
    product_ = torch.fft.fft2(a)[:, None] * torch.fft.fft2(b).conj()
    match = torch.fft.ifft2(product_).real.sum(2)  # (B, n, H, W)
    match = match.abs() if absolute else match
    match = match if rows else match[:, :, :1]
    height, width = match.shape[2:]
    best = match.flatten(1).argmax(1)
    shift = torch.stack([best % (height * width) // width, best % width], 1)
    return best // (height * width), shift


def moved(x_hat: Tensor, candidates: Tensor, change) -> tuple[Tensor, Tensor]:
    index, shift = find_moved(x_hat, candidates)
    return index, change(shift)


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        ("psnr_from_l2", lambda v, s: 10 * math.log10(math.prod(s) / v**2)),
        ("standard_psnr", lambda f: 2 * (f - SHIFT)),
        ("wilson", right_interval),
        ("identify", right_identify),
        ("find_moved", find_moved),
    ],
)
def test_checks_accept_right_answers(check, answer, expect):
    expect(getattr(checks, f"check_{check}"), answer, "Right")


@pytest.mark.parametrize(
    ("check", "answer", "hint"),
    [
        ("psnr_from_l2", lambda v, s: ..., "replace the dots"),
        ("psnr_from_l2", lambda v, s: "26 dB", "is one number"),
        ("psnr_from_l2", lambda v, s: -20 * math.log10(v), "the size is missing"),
        ("psnr_from_l2", lambda v, s: 10 * math.log10(math.prod(s) / v), "square the norm"),
        ("psnr_from_l2", lambda v, s: 20 * math.log10(math.prod(s) / v), "under the square"),
        ("psnr_from_l2", lambda v, s: 10 * math.log10(s[1] * s[2] / v**2), "count the channels"),
        ("psnr_from_l2", lambda v, s: -10 * math.log10(math.prod(s) / v**2), "turned round"),
        ("psnr_from_l2", lambda v, s: 1 / 0, "ZeroDivisionError"),
        ("standard_psnr", lambda f: f - SHIFT, "half of it"),
        ("standard_psnr", lambda f: 2 * f - SHIFT, "before you double"),
        ("standard_psnr", lambda f: f / 2 + SHIFT, "other direction"),
        ("standard_psnr", lambda f: f - 20, "in standard units"),
        ("wilson", wald, "Wald's interval"),
        ("wilson", lambda s, n: metrics.wilson(s, n)[::-1], "exchanged"),
        ("wilson", lambda s, n: metrics.wilson(s, n, 0.9), "90 %"),
        ("wilson", lambda s, n: metrics.wilson(s, n)[0], "a pair"),
        ("wilson", lambda s, n: (0.0, 1.0), "has the interval"),
        ("identify", lambda a, c: torch.zeros(5), "as they are"),
        ("identify", lambda a, c: torch.zeros(5, 2), "list of indices"),
        ("identify", lambda a, c: torch.cdist(a.flatten(1), c.flatten(1)).argmin(1), "own mean"),
        ("identify", centered_distance, "own norm"),
        ("identify", lambda a, c: cosine(a, c, True).argmax(1), "absolute value"),
        ("find_moved", lambda a, c: ..., "replace the dots"),
        ("find_moved", lambda a, c: find_moved(a, c)[0], "a pair"),
        ("find_moved", lambda a, c: (torch.ones(4), torch.zeros(4, 2)), "every candidate"),
        ("find_moved", lambda a, c: (right_identify(a, c), torch.zeros(4, 2)), "every shift"),
        ("find_moved", lambda a, c: find_moved(a, c, rows=False), "every shift"),
        ("find_moved", lambda a, c: find_moved(a, c, absolute=False), "absolute correlation"),
        ("find_moved", lambda a, c: moved(a, c, lambda s: -s), "shifts back"),
        ("find_moved", lambda a, c: moved(a, c, lambda s: s - torch.tensor([6, 7])), "whole turns"),
        ("find_moved", lambda a, c: moved(a, c, lambda s: s.flip(1)), "exchanged"),
        ("find_moved", lambda a, c: moved(a, c, lambda s: 0 * s), "shifts are"),
    ],
)
def test_checks_say_what_is_wrong(check, answer, hint, expect):
    expect(getattr(checks, f"check_{check}"), answer, hint)
