"""The imprint module: every image that is alone in its bin comes out; mixtures do not."""

from __future__ import annotations

import pytest
import torch

import privfl_lite as pf
from privfl_lite import PrivflError, metrics, models, share
from privfl_lite.attacks.malicious.imprint import (
    Imprint,
    ImprintReadout,
    normal_edges,
    quantile_edges,
)
from privfl_lite.defenses import DPGaussian


@pytest.fixture(scope="module")
def digits():
    return pf.load("mnist")


def alone(x, edges):
    """By brute force: which images share their bin with no other."""
    h = x.flatten(1).mean(1)
    bins = [sum(edge < value for edge in edges.tolist()) for value in h.tolist()]
    return torch.tensor([bins.count(b) == 1 for b in bins])


@pytest.mark.parametrize("name", ["lenet5", "mlp", "lenet", "convnet"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_image_alone_in_its_bin_comes_out(digits, name, seed):
    x, y = digits.sample(16, seed=seed)
    options = {"width": 8} if name == "convnet" else {}
    size = (1, 28, 28)
    edges = quantile_edges(digits.x_test.flatten(1).mean(1), 64)
    net = Imprint(models.build(name, size, 10, seed=seed, **options), edges)
    found = ImprintReadout().run(share(net, x, y))
    lone = alone(x, edges)
    assert lone.sum() >= 8
    error = torch.cdist(x[lone].flatten(1), found.images.flatten(1), p=torch.inf).amin(1)
    assert error.max() < 1e-3


def test_rows_between_edges_hold_the_sum_of_their_images(digits):
    x, y = digits.sample(8)
    edges = quantile_edges(digits.x_test.flatten(1).mean(1), 4)
    net = Imprint(models.build("mlp", digits), edges)
    g = share(net, x, y).tensors["first.bias"][0]
    signals = [share(net, x[i : i + 1], y[i : i + 1]).tensors["first.bias"][0] for i in range(8)]
    torch.testing.assert_close(g, torch.stack(signals).mean(0), rtol=1e-4, atol=1e-8)
    for i, s in enumerate(signals):  # the same signal in every bin below the image, none above
        on = (edges < x[i].mean()).nonzero().flatten()
        torch.testing.assert_close(s[on], s[on[0]].expand(len(on)), rtol=1e-4, atol=1e-8)
        assert s[edges >= x[i].mean()].abs().sum() == 0


def test_measured_edges_beat_assumed_ones(digits):
    h = digits.x_test.flatten(1).mean(1)
    x, _ = digits.sample(32)
    assumed = normal_edges(0.5, 0.2, 64)  # a server that knows nothing of digits
    assert alone(x, quantile_edges(h, 64)).sum() > alone(x, assumed).sum()
    fair = normal_edges(h.mean().item(), h.std().item(), 64)
    share_in_bins = torch.histogram(torch.randn(100_000) * h.std() + h.mean(), fair).hist / 1e5
    assert share_in_bins[1:].sub(1 / 64).abs().max() < 0.005


def test_fewer_bins_than_images_leave_gray_and_noise_fills_empty_bins(digits):
    x, y = digits.sample(6)
    edges = quantile_edges(digits.x_test.flatten(1).mean(1), 3)
    net = Imprint(models.build("mlp", digits), edges)
    found = ImprintReadout().run(share(net, x, y))
    assert (found.images == 0.5).flatten(1).all(1).sum() >= 3
    noisy = ImprintReadout().run(share(net, x, y, DPGaussian(1.0)))
    assert metrics.psnr(metrics.as_image(noisy.images[:1]), x[:1]).item() < 15


def test_bad_requests_get_one_sentence(digits):
    with pytest.raises(PrivflError, match="rising numbers"):
        Imprint(models.build("mlp", digits), torch.tensor([0.3, 0.1]))
    x, y = digits.sample(2)
    with pytest.raises(PrivflError, match="no imprint block"):
        ImprintReadout().run(share(models.build("mlp", digits), x, y))
