"""Chapter "Which would you deploy?": its statement, where it fails to hold, and its checks."""

from __future__ import annotations

import pytest
import torch

from privfl_lite.privacy.bounds import success_bound
from privfl_lite.runtime import generator
from privfl_lite.teach.checks import which_would_you_deploy as checks

TRIALS = 200_000


def best_guess(sigma: float, h: int, shared: bool = False) -> float:
    """How often the likeliest of two directions is right, of a sum with h unknown noises."""
    rng = generator(3)
    own = torch.randint(2, (TRIALS,), generator=rng) * 2 - 1  # the update is +1 or −1, clip C = 1
    noise = sigma * torch.randn(TRIALS, h, generator=rng, dtype=torch.float64)
    if shared:  # one seed, which the attacker has from a colluding client
        noise = noise[:, :1].expand(-1, h)
        return float((torch.sign(own + noise.sum(1) - h * noise[:, 0]) == own).double().mean())
    return float((torch.sign(own + noise.sum(1)) == own).double().mean())


@pytest.mark.parametrize(("sigma", "h"), [(2.0, 1), (2.0, 9), (1.0, 4), (0.5, 16)])
def test_prop_deploy_honest(sigma, h):
    """Two candidates at distance C on either side of nothing: the best test meets the bound."""
    assert best_guess(sigma, h) == pytest.approx(success_bound(0.5, sigma * h**0.5), abs=0.005)
    assert success_bound(0.01, sigma * h**0.5) <= success_bound(0.01, sigma)


def test_prop_deploy_honest_fails_for_shared_noise():
    """Noise from one seed is no honest noise: whoever has the seed subtracts it all."""
    assert best_guess(2.0, 9, shared=True) == 1.0 > success_bound(0.5, 6.0)


def test_ex_deploy_by_hand():
    """The example's numbers."""
    said = {2: 0.034, 2 * 20**0.5: 0.013, 2 * 5**0.5: 0.018}
    assert all(success_bound(0.01, s) == pytest.approx(v, abs=5e-4) for s, v in said.items())


RIGHT = {
    "honest": lambda kappa, sigma, h: success_bound(kappa, sigma * h**0.5),
    "least_sigma": checks.least,
}
SLIPS = [
    ("honest", lambda kappa, sigma, h: success_bound(kappa, sigma * h), "variances add"),
    ("honest", lambda kappa, sigma, h: success_bound(kappa, sigma), "own noise"),
    ("least_sigma", lambda *_: 0.4, "over the target"),
    ("least_sigma", lambda *_: 50.0, "more noise than needed"),
]


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_are_right(expect, name):
    expect(getattr(checks, f"check_{name}"), RIGHT[name], "Right")
    expect(getattr(checks, f"check_{name}"), lambda *_: ..., "")


@pytest.mark.parametrize(("name", "answer", "word"), SLIPS)
def test_typical_slips_are_named(expect, name, answer, word):
    expect(getattr(checks, f"check_{name}"), answer, word)
