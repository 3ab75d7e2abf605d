"""Chapter "What ε buys": its statements, its examples, its exercises and its study."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri

from privfl_lite import load, models, privacy
from privfl_lite.client import share
from privfl_lite.defenses import DPSGD
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.studies.what_epsilon_buys.attack import averaged
from privfl_lite.teach import naming
from privfl_lite.teach.checks import what_epsilon_buys as checks

exact = privacy.analytic_gaussian_delta


def best(t: float, mu: float) -> float:
    return float(ndtr(ndtri(t) + mu))


# --- by hand ---


def test_ex_buys_by_hand() -> None:
    """Every number of the example."""
    m, seen = np.array([[0.6, 0.8], [-0.6, -0.8]]), np.array([0.5, -0.1])
    assert np.linalg.norm(m, axis=1) == pytest.approx([1, 1])  # clipped to C = 1
    near, far = ((m - seen) ** 2).sum(1)
    assert (near, far) == pytest.approx((0.82, 1.70))
    factor = math.exp((far - near) / 2)
    assert factor == pytest.approx(1.55, abs=0.01)
    assert factor / (1 + factor) == pytest.approx(0.61, abs=0.005)
    half = np.linalg.norm(m[0] - m[1]) / 2
    assert half == pytest.approx(1)
    assert ndtr(half) == pytest.approx(0.84, abs=0.005) == best(0.5, 1)  # it meets the bound
    assert ndtr(half / 0.5) == pytest.approx(0.98, abs=0.005)  # four rounds halve the noise


def test_ex_buys_noise() -> None:
    sigma = 1 / (ndtri(2 / 200) - ndtri(1 / 200))
    assert sigma == pytest.approx(4.0, abs=0.05)
    assert best(1 / 200, 1 / sigma) == pytest.approx(2 / 200)
    assert best(1 / 200, 16**0.5 / (4 * sigma)) == pytest.approx(2 / 200)


# --- what any attacker can rebuild ---


def hits(rows: torch.Tensor, s: float, draws: int, rounds: int = 1) -> float:
    """How often the nearest row is the true one, after averaging noise s over the rounds."""
    rng, many = generator(5), rows.repeat(draws, 1)
    noise = sum(torch.randn(many.shape, generator=rng) for _ in range(rounds)) / rounds
    nearest = torch.cdist(many + s * noise, rows).argmin(1)
    return (nearest == torch.arange(len(rows)).repeat(draws)).float().mean().item()


def test_thm_reconstruction_bound() -> None:
    pair = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]])
    for s in (0.5, 1.0, 3.0):  # two opposite candidates meet the bound
        assert hits(pair, s, 20_000) == pytest.approx(best(0.5, 1 / s), abs=0.008)
        assert hits(pair / 2, s, 20_000) == pytest.approx(ndtr(0.5 / s), abs=0.008)
    rows = torch.randn(50, 40, generator=generator(1))
    rows = rows / rows.norm(dim=1, keepdim=True)  # all at the full norm
    for s in (0.2, 0.4, 1.0):
        found = hits(rows, s, 300)
        assert found <= best(1 / 50, 1 / s) + 0.01
        assert found >= 0.6 * best(1 / 50, 1 / s)  # and it is no empty bound
    nine = hits(rows, 1.2, 300, rounds=9)
    assert best(1 / 50, 1 / 1.2) + 0.1 < nine <= best(1 / 50, 3 / 1.2) + 0.01
    assert hits(3 * rows, 1.0, 300) > best(1 / 50, 1.0) + 0.3  # without the clip it does not hold
    # the (ε, δ) form is never below, and for the best ε equal
    for kappa, sigma in ((0.01, 1.0), (0.02, 3.0)):
        lines = [math.exp(e) * kappa + exact(sigma, e) for e in np.linspace(0, 6, 4000)]
        assert min(lines) == pytest.approx(best(kappa, 1 / sigma), rel=1e-4)
        assert min(lines) >= best(kappa, 1 / sigma) - 1e-12


def test_lem_kappa_balls() -> None:
    rng = generator(2)
    images = torch.rand(30, 2, generator=rng)  # two pixels: the best guess can be searched
    r = math.sqrt(2) * 10 ** (-15 / 20)
    apart = torch.cdist(images, images)
    low, high = ((apart <= k * r).float().mean(1).max().item() for k in (1, 2))
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 200)] * 2)
    kappa = (torch.cdist(grid, images) <= r).float().mean(1).max().item()
    assert low <= kappa + 1e-6 and kappa <= high
    assert kappa > low and kappa < high  # here both are strict


# --- noise here or noise there ---


def test_prop_local_central() -> None:
    rng, clients, sigma, clip = generator(0), 25, 2.0, 0.5
    local = sigma * clip * torch.randn(4000, clients, generator=rng)
    assert local.mean(1).std().item() == pytest.approx(sigma * clip / 5, rel=0.05)
    shares = local / clients**0.5  # what part 3 says
    assert shares.mean(1).std().item() == pytest.approx(sigma * clip / clients, rel=0.05)
    # multipliers: noise on what is seen, over how far one client moves it
    seen = {"sum, local": local.sum(1).std(), "sum, shares": shares.sum(1).std()}
    assert seen["sum, local"].item() / clip == pytest.approx(sigma * clients**0.5, rel=0.05)
    assert seen["sum, shares"].item() / clip == pytest.approx(sigma, rel=0.05)
    assert shares.std().item() / clip == pytest.approx(sigma / clients**0.5, rel=0.05)


# --- the study ---


def test_averaged_rounds_are_clipped_gradients_with_less_noise() -> None:
    digits = load("mnist")
    x, y = digits.sample(2)
    net = models.build("mlp", digits)
    clean = share(net, x, y, DPSGD(1.0, 0.0), each=1).tensors
    upload = averaged(net, x, y, sigma=0.4, clip=1.0, rounds=16)
    assert upload.knows.noise.std == pytest.approx(0.1)
    noise = torch.cat([(upload.tensors[n] - t).flatten() for n, t in clean.items()])
    assert noise.std().item() == pytest.approx(0.1, rel=0.02)
    again = upload.imitator()(x[:, None], y[:, None])
    for n, t in clean.items():
        torch.testing.assert_close(again[n], t, rtol=1e-4, atol=1e-6)


def cells(**want: object) -> list[dict]:
    stored = STUDIES["what-epsilon-buys/attack"].show()["cells"]
    return [c for c in stored if all(c[k] == v for k, v in want.items())]


def test_study_says_what_the_chapter_says() -> None:
    def mean(sigma: float, clip: float = 1.0, rounds: int = 1, attack: str = "likelihood") -> float:
        return cells(net="mlp", sigma=sigma, clip=clip, rounds=rounds, attack=attack)[0]["mean"]

    assert mean(0.001) > 30 and mean(0.1) < 10  # rebuilt, and lost
    assert cells(net="mlp", sigma=0.1, clip=1.0, rounds=1)[0]["epsilon"] > 90
    assert mean(0.1, rounds=64) > mean(0.1) + 6  # rounds bring it back
    assert mean(0.01, clip=16.0) < mean(0.01) - 3  # a clip that does not bite costs quality
    assert abs(mean(0.01, clip=0.25) - mean(0.01)) < 1  # one that bites: only σ counts
    assert abs(mean(0.01, attack="cosine") - mean(0.01)) < 4


def test_a_stored_cell_comes_out_again() -> None:
    study = STUDIES["what-epsilon-buys/attack"]
    (cell,) = cells(net="mlp", attack="likelihood", sigma=0.01, clip=1.0, rounds=1)
    keys = ("net", "attack", "sigma", "clip", "rounds")
    again = study.compute(study.show()["settings"], {k: cell[k] for k in keys})
    assert again["mean"] == pytest.approx(cell["mean"], abs=0.5)
    assert again["epsilon"] == cell["epsilon"]


# --- exercises ---


def test_check_identify(capsys) -> None:
    assert checks.check_identify(lambda s, c: torch.cdist(s, c).argmin(1))
    assert checks.check_identify(lambda s, c: (s @ c.T - c.pow(2).sum(1) / 2).argmax(1))
    for wrong, hint in (
        (lambda s, c: (s @ c.T).argmax(1), "favors long candidates"),
        (lambda s, c: (s @ c.T / c.norm(dim=1)).argmax(1), "ignores the length"),
        (lambda s, c: torch.cdist(s, c).argmax(1), "least likely"),
        (lambda s, c: None, "replace the dots"),
        (lambda s, c: torch.zeros(60).long(), "log-likelihood"),
    ):
        capsys.readouterr()
        assert not checks.check_identify(wrong)
        assert hint in capsys.readouterr().out


def after(seen, candidates, stds, prior, safe: bool = True, whole: bool = True):
    """A posterior by hand; not ``safe``: it underflows; not ``whole``: it sums to anything."""
    log = prior.log() - (
        (candidates - seen[:, None]).square().sum(2) / (2 * stds[:, None] ** 2)
    ).sum(0)
    weights = (log - log.max() if safe else log).exp()
    return weights / weights.sum() if whole else weights


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (after, "Right"),
        (lambda *a: after(*a).numpy(), "Right"),
        (lambda s, c, d, p: after(s, c, d, torch.ones(6) / 6), "prior is missing"),
        (lambda s, c, d, p: after(s, c, torch.ones(5), p), "round's variance"),
        (lambda s, c, d, p: after(s, c, d**0.5, p), "not by 2s"),
        (lambda s, c, d, p: after(s, c, d / 2**0.5, p), "the 2 is missing"),
        (lambda s, c, d, p: after(s[-1:], c[-1:], d[-1:], p), "only the last"),
        (
            lambda s, c, d, p: after(
                s.mean(0)[None], c.mean(0)[None], d.square().mean().sqrt()[None] / 5**0.5, p
            ),
            "cannot be averaged",
        ),
        (lambda *a: after(*a, whole=False), "sum to 1"),
        (lambda *a: after(*a, safe=False), "subtract the largest"),
        (lambda s, c, d, p: p, "logarithm of the prior"),
        (lambda *a: ..., "replace the dots"),
        (lambda s, c, d, p: c, "shape (6,)"),
    ],
)
def test_check_posterior(answer, says, capsys) -> None:
    right = checks.check_posterior(answer, first_sure)
    assert right == (says == "Right") and says in capsys.readouterr().out


def first_sure(seen, candidates, stds, prior, sure, low=lambda t: 0, never=0, off=0):
    for t in range(1, len(seen) + 1):
        part = slice(low(t), t)
        if after(seen[part], candidates[part], stds[part], prior).max() >= sure:
            return t + off
    return never


def last_unsure(*given):
    return len(given[0]) if first_sure(*given) else 0


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda *a: torch.tensor(first_sure(*a)), "Right"),
        (lambda *a: first_sure(*a, off=-1), "one round too few"),
        (lambda *a: first_sure(*a, low=lambda t: t - 1), "rounds add up"),
        (lambda *a: first_sure(*a, never=5), "nobody is that sure"),
        (last_unsure, "stop at the first"),
        (lambda *a: 2 * first_sure(*a), "rounds suffice for probability"),
        (lambda *a: ..., "replace the dots"),
    ],
)
def test_check_sure_after(expect, answer, says) -> None:
    expect(lambda a: checks.check_posterior(after, a), answer, says)


def test_naming_counts_as_by_hand() -> None:
    """The helper of the chapter's figures against a loop, and on clipped gradients."""
    rows = naming.coordinates(torch.randn(7, 30, generator=generator(0)))
    right, tries = naming.named(rows, 1.5, draws=40)
    rng, count = generator(0), 0
    noise = torch.randn(280, 7, generator=rng, dtype=rows.dtype)
    for i in range(280):
        seen = rows[i % 7] + 1.5 * noise[i]
        count += int((rows - seen).norm(dim=1).argmin()) == i % 7
    assert (right, tries) == (count, 280)
    digits = load("mnist")
    x, y = digits.sample(3)
    net = models.build("mlp", digits)
    clipped = naming.clipped_gradients(net, x, y, clip=0.5)
    assert torch.allclose(clipped.norm(dim=1), torch.full((3,), 0.5))
    apart = torch.cdist(naming.coordinates(clipped), naming.coordinates(clipped))
    assert torch.allclose(apart.float(), torch.cdist(clipped, clipped), atol=1e-4)
