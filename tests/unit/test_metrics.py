"""Scores against scikit-image, lpips, scipy, scikit-learn and brute force; every error sentence."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import binomtest
from skimage import data
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from sklearn.metrics import roc_auc_score, roc_curve
from torch import Tensor

from privfl_lite import assets, metrics
from privfl_lite.runtime import PrivflError, torchvision


def photo(channels: int, size: int = 48) -> Tensor:
    """Three natural crops (3, C, size, size), one of them nearly flat and bright."""
    whole = torch.tensor(data.astronaut() / 255.0).permute(2, 0, 1).float()  # (3, 512, 512)
    corners = ((0, 0), (60, 200), (300, 120))
    crops = torch.stack([whole[:, i : i + size, j : j + size] for i, j in corners])
    crops[0] = 0.9 + 0.1 * crops[0]
    return crops if channels == 3 else crops.mean(1, keepdim=True)


def noisy(x: Tensor, scale: float, seed: int = 0) -> Tensor:
    draw = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    return (x + scale * draw).clamp(0, 1)


def random_pair(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    both = torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed))
    return both[0], both[1]


def reference_ssim(x_hat: Tensor, x: Tensor) -> list[float]:
    return [
        structural_similarity(
            a,
            b,
            channel_axis=0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1.0,
        )
        for a, b in zip(x_hat.double().numpy(), x.double().numpy(), strict=True)
    ]


# --- pixel scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("scale", [0.003, 0.1, 1.0])
def test_ssim_equals_scikit_image_on_photographs(channels: int, scale: float) -> None:
    x = photo(channels)
    x_hat = noisy(x, scale)
    assert metrics.ssim(x_hat, x).tolist() == pytest.approx(reference_ssim(x_hat, x), abs=1e-5)


@pytest.mark.parametrize("shape", [(4, 1, 28, 28), (2, 3, 32, 32), (2, 2, 11, 11), (1, 3, 17, 40)])
def test_ssim_equals_scikit_image_on_random_images(shape: tuple[int, ...]) -> None:
    x_hat, x = random_pair(*shape)
    assert metrics.ssim(x_hat, x).tolist() == pytest.approx(reference_ssim(x_hat, x), abs=1e-5)


def test_ssim_is_one_for_equal_images() -> None:
    assert metrics.ssim(photo(3), photo(3)).tolist() == pytest.approx([1, 1, 1], abs=1e-6)


@pytest.mark.parametrize("peak", [1.0, 255.0])
def test_psnr_equals_scikit_image(peak: float) -> None:
    x_hat, x = random_pair(3, 3, 16, 16)
    expected = [
        peak_signal_noise_ratio(b, a, data_range=peak)
        for a, b in zip(x_hat.double().numpy(), x.double().numpy(), strict=True)
    ]
    assert metrics.psnr(x_hat, x, peak).tolist() == pytest.approx(expected, abs=1e-4)


def test_pixel_scores_have_the_stated_range() -> None:
    black, white = torch.zeros(2, 1, 28, 28), torch.ones(2, 1, 28, 28)
    assert metrics.mse(black, white).tolist() == [1, 1]
    assert metrics.l2(black, white).tolist() == [28, 28]
    assert metrics.psnr(black, white).tolist() == [0, 0]
    assert metrics.psnr(white, white).tolist() == [math.inf, math.inf]
    assert metrics.mse(white, white).tolist() == metrics.l2(white, white).tolist() == [0, 0]


def test_l2_is_the_root_of_pixels_times_mse() -> None:
    x_hat, x = random_pair(3, 3, 8, 8)
    assert torch.allclose(metrics.l2(x_hat, x), (3 * 8 * 8 * metrics.mse(x_hat, x)).sqrt())


def test_fedkl_units_inflate_psnr_by_the_log_of_rmse() -> None:
    """An RMSE of 100.8 on 0-255 is 8.1 dB; FedKL's formula prints 28.1 dB."""
    x = torch.zeros(1, 1, 8, 8)
    x_hat = torch.full_like(x, 100.8 / 255)
    rmse, printed, standard = (
        f(x_hat, x).item() for f in (metrics.fedkl_mse, metrics.fedkl_psnr, metrics.psnr)
    )
    assert rmse == pytest.approx(100.8, abs=1e-3)
    assert printed == pytest.approx(28.1, abs=0.05)
    assert standard == pytest.approx(8.1, abs=0.07)
    assert printed - standard == pytest.approx(10 * math.log10(rmse), abs=1e-4)


# --- LPIPS ----------------------------------------------------------------------------------------


@pytest.fixture
def fresh_net() -> Iterator[None]:
    """No net of another test, and none left behind."""
    metrics.perceptual._lpips_net.cache_clear()
    yield
    metrics.perceptual._lpips_net.cache_clear()


@pytest.fixture
def weights() -> None:
    try:
        metrics.perceptual._lpips_net("alex"), metrics.perceptual._lpips_net("vgg")
    except PrivflError as error:
        pytest.skip(f"no LPIPS weights on this machine: {error}")


def random_lpips(net: str, seed: int = 0) -> torch.nn.Module:
    torchvision()
    from lpips import LPIPS

    torch.manual_seed(seed)
    return LPIPS(net=net, pnet_rand=True, verbose=False)


@pytest.mark.filterwarnings("ignore")
def test_lpips_fills_the_backbone_from_the_asset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_net: None
) -> None:
    """With a random backbone stored as the asset, our score is that backbone's own."""
    reference = random_lpips("alex")
    values = list(reference.net.parameters())
    stored = {f"conv{i // 2}.{('weight', 'bias')[i % 2]}": v.data for i, v in enumerate(values)}
    save_file(stored, tmp_path / "alexnet.safetensors")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(assets, "fetch", lambda name: {"lpips": tmp_path}[name])
    x = photo(3)
    x_hat = noisy(x, 0.2)
    with torch.no_grad():
        expected = reference(2 * x_hat - 1, 2 * x - 1).flatten()
    before = torch.get_rng_state()
    assert torch.allclose(metrics.lpips(x_hat, x), expected, atol=1e-6)
    assert torch.equal(torch.get_rng_state(), before)  # nobody's random numbers change


def test_lpips_takes_vggs_thirteen_layers_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [f"conv{i}.{part}" for i in range(13) for part in ("weight", "bias")]
    tensors = {name: torch.tensor([float(i)]) for i, name in enumerate(parts)}
    save_file(tensors, tmp_path / "vgg16.safetensors")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(assets, "fetch", lambda name: {"lpips": tmp_path}[name])
    assert [value.item() for value in metrics.perceptual._backbone("vgg")] == list(range(26))


@pytest.mark.filterwarnings("ignore")
def test_lpips_prefers_torchs_hub_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_net: None
) -> None:
    state = {f"features.{k}": v for k, v in random_lpips("alex").net.state_dict().items()}
    name = Path(torchvision().models.AlexNet_Weights.IMAGENET1K_V1.url).name
    (tmp_path / "checkpoints").mkdir()
    torch.save({**state, "classifier.6.bias": torch.zeros(1000)}, tmp_path / "checkpoints" / name)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))

    def no_asset(name: str) -> Path:
        raise PrivflError("asked for the asset")

    monkeypatch.setattr(assets, "fetch", no_asset)
    with pytest.raises(PrivflError, match="asked for the asset"):
        metrics.perceptual._lpips_net("alex")  # the file's SHA-256 is not that of its name
    monkeypatch.setattr(assets, "sha256", lambda path: path.stem.split("-")[-1] + "0" * 56)
    ours = list(metrics.perceptual._lpips_net("alex").net.parameters())
    assert len(ours) == 10
    assert all(torch.equal(a, b) for a, b in zip(ours, state.values(), strict=True))


def test_lpips_passes_on_why_the_weights_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_net: None
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setenv("PRIVFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PRIVFL_OFFLINE", "1")
    with pytest.raises(PrivflError, match="lpips"):
        metrics.lpips(*random_pair(1, 3, 32, 32))


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_lpips_is_zero_for_equal_images_symmetric_and_grows_with_noise(
    net: str, weights: None
) -> None:
    x = photo(3)
    assert metrics.lpips(x, x, net).tolist() == [0, 0, 0]
    mild, strong = noisy(x, 0.05), noisy(x, 0.4)
    assert torch.allclose(metrics.lpips(x, mild, net), metrics.lpips(mild, x, net), atol=1e-6)
    assert (metrics.lpips(strong, x, net) > metrics.lpips(mild, x, net)).all()
    assert (metrics.lpips(mild, x, net) > 0).all()


def test_lpips_gives_the_value_that_torchmetrics_published(weights: None) -> None:
    """torchmetrics 0.11's docstring: 0.3493 for VGG on uniform noise of seed 123.

    There the net was built between the seed and the noise, so its initialization is drawn here too.
    """
    torch.manual_seed(123)
    torchvision().models.vgg16(init_weights=False)
    for channels in (64, 128, 256, 512, 512):
        torch.nn.Conv2d(channels, 1, 1, bias=False)
    x_hat, x = torch.rand(10, 3, 100, 100), torch.rand(10, 3, 100, 100)
    assert metrics.lpips(x_hat, x, "vgg").mean().item() == pytest.approx(0.3493, abs=5e-5)


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_lpips_repeats_gray_and_enlarges_small_images_to_32_pixels(net: str, weights: None) -> None:
    x_hat, x = random_pair(2, 1, 28, 28)
    large = [torch.nn.functional.interpolate(i, (32, 32), mode="bilinear") for i in (x_hat, x)]
    color = [i.repeat(1, 3, 1, 1) for i in large]
    score = metrics.lpips(x_hat, x, net)
    assert score.shape == (2,)
    assert torch.allclose(score, metrics.lpips(*color, net), atol=1e-6)


def test_lpips_takes_any_number_of_images_and_oblong_ones(weights: None) -> None:
    x_hat, x = random_pair(33, 3, 12, 20)
    together = metrics.lpips(x_hat, x)
    assert torch.allclose(together[32:], metrics.lpips(x_hat[32:], x[32:]), atol=1e-6)


# --- matching and the table of scores -------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_assign_equals_brute_force_over_permutations(seed: int) -> None:
    x_hat, x = random_pair(5, 1, 4, 4, seed=seed)
    best = min(
        itertools.permutations(range(5)),
        key=lambda order: metrics.mse(x_hat[list(order)], x).sum().item(),
    )
    assert metrics.assign(x_hat, x).tolist() == list(best)


def test_assign_undoes_a_shuffle_even_with_a_lost_image() -> None:
    x = random_pair(6, 3, 8, 8)[0]
    shuffle = torch.tensor([3, 0, 5, 1, 4, 2])
    x_hat = noisy(x[shuffle], 0.02)
    x_hat[0] = math.nan
    order = metrics.assign(x_hat, x)
    assert torch.equal(shuffle[order], torch.arange(6))


def test_compare_clamps_and_scores_nan_as_gray() -> None:
    x = photo(1)
    x_hat = x + 0.3
    x_hat[0], x_hat[1, 0, 0, 0], x_hat[1, 0, 0, 1] = math.nan, math.inf, -math.inf
    expected = (x + 0.3).clamp(0, 1)
    expected[0], expected[1, 0, 0, 0], expected[1, 0, 0, 1] = 0.5, 1, 0
    scores = metrics.compare(x_hat, x)
    assert list(scores) == ["mse", "psnr", "ssim"]
    for name, score in scores.items():
        assert torch.equal(score, getattr(metrics, name)(expected, x))
        assert score.isfinite().all()


def test_compare_with_match_puts_images_in_order() -> None:
    x = photo(3)
    assert metrics.compare(x[[2, 0, 1]], x, match=True)["mse"].tolist() == [0, 0, 0]
    assert metrics.compare(x[[2, 0, 1]], x)["mse"].min() > 0


def test_compare_adds_lpips_on_request(weights: None) -> None:
    x = photo(3)
    x_hat = noisy(x, 0.2)
    scores = metrics.compare(x_hat, x, lpips="alex")
    assert list(scores) == ["mse", "psnr", "ssim", "lpips"]
    assert torch.equal(scores["lpips"], metrics.lpips(x_hat, x, "alex"))


def test_scores_carry_no_gradient() -> None:
    x = photo(1)
    x_hat = noisy(x, 0.1).requires_grad_()
    assert not any(score.requires_grad for score in metrics.compare(x_hat, x).values())


def test_summary_is_plain_floats_per_image_and_mean() -> None:
    x = photo(1)
    scores = metrics.compare(noisy(x, 0.1), x)
    summary = json.loads(json.dumps(metrics.summary(scores)))
    assert [row["ssim"] for row in summary["per_image"]] == scores["ssim"].tolist()
    assert list(summary["per_image"][0]) == ["mse", "psnr", "ssim"]
    for name, value in summary["mean"].items():
        assert value == pytest.approx(scores[name].double().mean().item())


# --- rates, membership, spread --------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (0, 20), (3, 8), (100, 100), (47, 100)])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_wilson_equals_scipy(hits: int, n: int, level: float) -> None:
    interval = binomtest(hits, n).proportion_ci(level, method="wilson")
    assert metrics.wilson(hits, n, level) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_success_rate_counts_the_threshold_itself_and_nan_as_failure() -> None:
    scores = torch.tensor([0.5, 1.4, 1.41, math.nan])
    assert metrics.success_rate(scores, 1.4, False) == (0.5, *metrics.wilson(2, 4))
    assert metrics.success_rate([10.0, 20.0, 30.0], 20, True) == (2 / 3, *metrics.wilson(2, 3))


def test_clusters_that_agree_count_as_independent_images_and_others_as_fewer() -> None:
    assert metrics.clustered([5, 5, 5], [10, 10, 10]) == metrics.wilson(15, 30)
    assert metrics.clustered([10, 10], [10, 10]) == metrics.wilson(20, 20)  # never of width 0
    low, high = metrics.clustered([10, 0, 5], [10, 10, 10])  # X² / 2 = 10, so 30 images tell as 3
    assert (low, high) == pytest.approx(metrics.statistics._wilson(1.5, 3, 0.95))
    assert metrics.clustered([3], [4]) == metrics.wilson(3, 4)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_clustered_intervals_cover_where_plain_ones_do_not(level: float) -> None:
    """Eight clusters whose own rates are spread: the mean rate lies inside about as promised."""
    rng = np.random.default_rng(0)
    rates = rng.beta(1, 1, (400, 8))
    hits = rng.binomial(16, rates)
    plain = [metrics.wilson(int(h.sum()), 128, level) for h in hits]
    ours = [metrics.clustered(h.tolist(), [16] * 8, level) for h in hits]
    covered = [np.mean([low <= 0.5 <= high for low, high in some]) for some in (plain, ours)]
    assert covered[0] < level - 0.15 and covered[1] > level - 0.07


def scores_with_ties(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(0.5, 1, 150).round(1), rng.normal(0, 1, 230).round(1)


@pytest.mark.parametrize("seed", range(5))
def test_auc_equals_scikit_learn_with_ties(seed: int) -> None:
    members, others = scores_with_ties(seed)
    truth = [1] * len(members) + [0] * len(others)
    expected = roc_auc_score(truth, np.concatenate([members, others]))
    assert metrics.auc(members, others) == pytest.approx(expected, abs=1e-12)
    assert metrics.auc(torch.tensor(members), others.tolist()) == metrics.auc(members, others)


def test_auc_is_one_half_when_nothing_tells_members_apart() -> None:
    assert metrics.auc([1.0, 1.0], [1.0, 1.0, 1.0]) == 0.5
    assert metrics.auc([math.inf], [0.0]) == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fpr", [0.0, 0.01, 0.1, 0.5])
def test_tpr_at_fpr_equals_the_best_point_of_the_roc_curve(seed: int, fpr: float) -> None:
    members, others = scores_with_ties(seed)
    truth = [1] * len(members) + [0] * len(others)
    rates, hits, _ = roc_curve(truth, np.concatenate([members, others]), drop_intermediate=False)
    expected = hits[rates <= fpr + 1e-12].max()
    assert metrics.tpr_at_fpr(members, others, fpr) == pytest.approx(expected, abs=1e-12)


def test_auc_interval_has_the_width_of_delongs_standard_error() -> None:
    rng = np.random.default_rng(5)
    members, others = rng.normal(0.4, 1, 300), rng.normal(0, 1, 200)
    wins = (members[:, None] > others).astype(float)  # no ties here
    error = math.sqrt(wins.mean(1).var(ddof=1) / 300 + wins.mean(0).var(ddof=1) / 200)
    low, high = metrics.auc_interval(members, others)
    assert (high - low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.08)
    assert low < metrics.auc(members, others) < high
    assert metrics.auc_interval(members, others) == (low, high)


def test_tpr_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    truth = 1 - NormalDist().cdf(NormalDist().inv_cdf(0.9) - 1)  # members shifted by 1, FPR 10 %
    hits = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        low, high = metrics.tpr_interval(rng.normal(1, 1, 300), rng.normal(0, 1, 300), fpr=0.1)
        hits += low <= truth <= high
    assert hits >= 34


def test_tpr_at_fpr_allows_exactly_the_stated_share() -> None:
    others = [float(i) for i in range(100)]  # 0.29 * 100 is 28.999999999999996
    assert metrics.tpr_at_fpr([69.5, 70.5], others, 0.29) == 0.5


def test_bootstrap_interval_is_close_to_the_normal_one_and_repeats() -> None:
    values = np.random.default_rng(0).normal(3, 2, 400)
    low, high = metrics.bootstrap_interval(values)
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)
    assert metrics.bootstrap_interval(values) == (low, high)
    assert metrics.bootstrap_interval(values, seed=1) != (low, high)
    inner = metrics.bootstrap_interval(values, np.median, level=0.5)
    assert inner[0] < np.median(values) < inner[1]
    assert metrics.bootstrap_interval([math.inf, math.inf]) == (math.inf, math.inf)


# --- errors ---------------------------------------------------------------------------------------

IMAGE_SCORES = [
    metrics.mse,
    metrics.l2,
    metrics.psnr,
    metrics.ssim,
    metrics.lpips,
    metrics.fedkl_mse,
    metrics.fedkl_psnr,
    metrics.assign,
    metrics.compare,
]


@pytest.mark.parametrize("score", IMAGE_SCORES)
def test_images_of_wrong_shape_or_type_are_refused(score: Callable) -> None:
    x = torch.rand(2, 1, 16, 16)
    for x_hat, true in (
        (x[:1], x),
        (x[:, 0], x[:, 0]),
        (x[:0], x[:0]),
        (x.expand(2, 3, 16, 16), x),
    ):
        with pytest.raises(PrivflError, match=r"(must have one shape|it must be images) \(B, C, H"):
            score(x_hat, true)
    for x_hat, true in ((x.to(torch.uint8), x), (x, x.to(torch.uint8)), (x.numpy(), x.numpy())):
        with pytest.raises(PrivflError, match="a tensor of floating-point numbers"):
            score(x_hat, true)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: metrics.ssim(*random_pair(1, 1, 10, 28)), "at least 11 x 11 pixels, not (10, 28)"),
        (lambda: metrics.lpips(*random_pair(1, 2, 32, 32)), "1 or 3 channels, not 2"),
        (lambda: metrics.lpips(*random_pair(1, 3, 32, 32), "resnet"), "one of: alex, vgg"),
        (lambda: metrics.compare(photo(1), 2 * photo(1) - 1), "must lie in [0, 1], not [-0.9"),
        (lambda: metrics.compare(photo(1), photo(1) * math.nan), "not [nan, nan]"),
        (lambda: metrics.wilson(3, 2), "3 successes of 2"),
        (lambda: metrics.wilson(0, 0), "0 successes of 0"),
        (lambda: metrics.clustered([2], [1]), "0 <= hits <= counts"),
        (lambda: metrics.clustered([0, 0], [1, 0]), "without images"),
        (lambda: metrics.wilson(1, 2, 95), "level is 95"),
        (lambda: metrics.success_rate([], 1, True), "scores is []"),
        (lambda: metrics.auc([], [1.0]), "members is []; it must be a list"),
        (lambda: metrics.auc([1.0], [math.nan]), "nonmembers must be a list"),
        (lambda: metrics.tpr_at_fpr([1.0], [1.0], 1.0), "fpr is 1.0; it must be a number"),
        (lambda: metrics.bootstrap_interval([math.nan]), "values must be a list"),
        (lambda: metrics.bootstrap_interval([1.0], level=0), "level is 0"),
    ],
)
def test_bad_input_gets_one_sentence(call: Callable, sentence: str) -> None:
    with pytest.raises(PrivflError) as caught:
        call()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
