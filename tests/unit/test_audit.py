"""The one-run audit: below every ε that the package claims, above claims that are wrong.

Canaries have gradients that are orthogonal, one pixel each, so that a single run tells of each one
by itself: the strongest canaries there are against noise on clipped vectors.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom

from privfl_lite import FedAvg, Plan, privacy, share
from privfl_lite.defenses import CAFL, DPSGD, POGZFL, ModelCloak, Prune, SecureSum
from privfl_lite.privacy import Training, account, audit, audit_p_value
from privfl_lite.studies.proof_bound_audit.canaries import (
    CLIP,
    GlobalModel,
    M,
    canaries,
    examples,
    linear,
    uploads,
)


def test_p_value_equals_simulation_at_delta_zero():
    """The worst ε-DP mechanism there is tells each coin rightly with e^ε / (1 + e^ε)."""
    rng, eps, r, v = np.random.default_rng(0), 1.0, 60, 50
    wins = rng.binomial(r, 1 / (1 + np.exp(-eps)), 200_000)
    assert audit_p_value(eps, v, r, 100, 0.0) == pytest.approx((wins >= v).mean(), abs=3e-3)
    assert audit_p_value(eps, v, r, 100, 0.0) == pytest.approx(binom.sf(v - 1, r, 0.7310586))


def test_p_value_with_delta_by_its_definition():
    eps, r, v, m, delta = 0.7, 40, 33, 50, 1e-3
    q = np.exp(eps) / (1 + np.exp(eps))
    worst = max(sum(binom.pmf(w, r, q) for w in range(v - i, v)) / i for i in range(1, v + 1))
    want = binom.sf(v - 1, r, q) + 2 * m * delta * worst
    assert audit_p_value(eps, v, r, m, delta) == pytest.approx(want)


def test_randomized_response_is_bounded_below_its_own_epsilon():
    """Over 200 audits of exact ε = 1 at most about 5 % exceed it, and most come near."""
    rng, found = np.random.default_rng(1), []

    def response(coins):
        truth = rng.random(len(coins)) < 1 / (1 + np.exp(-1))
        return np.where(truth, coins, ~coins).astype(float) + 1e-3 * rng.random(len(coins))

    for seed in range(200):
        found.append(audit(response, 500, 500, delta_dp=1e-9, seed=seed).epsilon)
    assert np.mean(np.array(found) > 1) <= 0.09 and np.median(found) > 0.7


CLAIMS = {
    "DP-SGD, one step": (examples(DPSGD(CLIP, 1.0)), DPSGD(CLIP, 1.0), Training(1)),
    "DP-SGD, 8 passes": (
        examples(DPSGD(CLIP, 2.0), Plan(eta=1e-3, epochs=8, batch_size=M)),
        DPSGD(CLIP, 2.0),
        Training(1, plan=Plan(epochs=8, batch_size=M), examples=M),
    ),
    "DP-SGD + pruning": (
        examples(DPSGD(CLIP, 1.0) + Prune(0.5)),
        DPSGD(CLIP, 1.0) + Prune(0.5),
        Training(1),
    ),
    "ModelCloak": (uploads(ModelCloak(CLIP, 2.0)), ModelCloak(CLIP, 2.0), Training(1)),
    "pruning + ModelCloak + CA-FL": (
        uploads(Prune(0.5) + ModelCloak(CLIP, 2.0) + CAFL(ratio=1.0)),
        Prune(0.5) + ModelCloak(CLIP, 2.0) + CAFL(ratio=1.0),
        Training(1),
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_audits_stay_below_what_is_claimed(name):
    release, defense, run = CLAIMS[name]
    claim = account(defense, run)
    found = audit(release, M, guesses=100, seed=0)
    print(f"{name}: claimed {claim}; audited {found}")
    assert found.epsilon < claim.value and found.p_value(claim.value) > 0.05
    if "CA-FL" not in name:  # what is left of a canary behind it is little
        assert found.epsilon > 0.15 * claim.value


def test_noise_at_the_server_stays_below_what_the_run_claims():
    release = GlobalModel(ModelCloak(CLIP, 2.0, where="server"), 3)
    found = audit(release, M, guesses=100, seed=0)
    print(f"ModelCloak at the server: claimed {release.claimed}; audited {found}")
    assert release.claimed.against == "outsiders"
    assert 0.3 < found.epsilon < release.claimed.value


# --- claims that are wrong by construction ---

FIFTY = Plan(eta=1e-3, epochs=50, batch_size=M)


def follows(coins):
    """keep="scale": a client with an update of zeros sends zeros, whatever σ."""
    x, y = canaries(np.zeros(M, dtype=bool))
    x = x * torch.from_numpy(coins).view(M, 1, 1, 1)  # out: a black image instead
    cloak = ModelCloak(CLIP, 5.0, mode="dynamic", keep="scale")
    return share(linear(), x, y, cloak, each=1).tensors["1.weight"].flatten(1).norm(dim=1)


def unclipped(coins):
    """The noise of DPSGD(CLIP, 3), on gradients that are not clipped, of images ten times as
    bright."""
    clean = examples(None)(coins)
    noise = torch.randn(M, generator=torch.Generator().manual_seed(0)) * 2**0.5 * 3 * CLIP / M
    return (10 * torch.tensor(clean) + noise).tolist()


# what is done, what is claimed for it, how many guesses (None: half of the canaries)
WRONG = {
    "steps that are not counted (E1): 50 passes, the ε of one": (
        examples(DPSGD(CLIP, 3.0), FIFTY), DPSGD(CLIP, 3.0), None,
    ),
    "noise that follows the data": (follows, ModelCloak(CLIP, 5.0), None),
    "a clip that is left out": (unclipped, DPSGD(CLIP, 3.0), 100),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_claims_that_are_wrong_are_found(name):
    release, defense, guesses = WRONG[name]
    wrong = account(defense, Training(1)).value
    found = audit(release, M, guesses, seed=0)
    print(f"{name}: claimed {wrong:.3g}; audited {found}")
    assert found.epsilon > wrong and found.p_value(wrong) < 0.05
    if "E1" in name:  # the ε that the package states for what was done
        right = account(defense, Training(1, plan=FIFTY, examples=M)).value
        assert found.p_value(wrong) < 1e-3 and found.epsilon < right
    if "follows" in name:
        assert found.right == M // 2 and found.epsilon > 2 * wrong


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: audit(lambda c: c, 1), "4 canaries or more"),
        (lambda: audit(lambda c: c, 10, guesses=11), "2 to as many guesses"),
        (lambda: audit(lambda c: [0.0], 10), "one score for each of 10"),
        (lambda: audit(lambda c: c * np.nan, 10), "one score for each"),
        (lambda: audit(lambda c: c, 10, delta_dp=2), "delta_dp is 2"),
        (lambda: audit(lambda c: c, 10, confidence=1), "confidence is 1"),
    ],
)
def test_bad_audits_get_one_sentence(refused, call, says):
    refused(call, says)


def test_an_audit_is_told_in_words():
    found = audit(lambda coins: coins.astype(float), 20, seed=0)
    assert str(found).startswith("ε ≥ 1.05 (δ = 1e-05, 95% confidence; 10 of 10 guesses right")
    assert privacy.audit(lambda coins: np.zeros(20), 20, seed=3).epsilon == 0.0


# --- mechanisms that benchmarks/faults.md has no row for, and a secure sum ---

ONE = {"1.weight": (2, M)}  # what leaves the linear network
OTHERS = {
    "ModelCloak, tensor by tensor": ModelCloak(CLIP, 2.0, per="layer"),
    "ModelCloak, dynamic with the same variance": ModelCloak(CLIP, 2.0, mode="dynamic"),
    "CA-FL with a public range": CAFL(eps=0.01, ratio=1.0, radius=CLIP),
    "POGZ-FL with public shares": POGZFL(alpha=CLIP, eps=2.0, eta=1.0, importance={"1": 1.0}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_audits_of_the_others_stay_below_what_is_claimed(name):
    claim = account(OTHERS[name], Training(1, tensors=ONE))
    found = audit(uploads(OTHERS[name]), M, guesses=100, seed=0)
    print(f"{name}: claimed {claim}; audited {found}")
    assert claim.value is not None, claim.reason
    assert found.epsilon < claim.value and found.p_value(claim.value) > 0.05


@pytest.mark.parametrize(
    "how", [{"per_round": M // 2}, {"per_round": M // 2, "sampling": "poisson"}], ids=str
)
def test_sampled_clients_stay_below_what_the_run_claims(how):
    """Against outsiders, who do not see who took part; 4 rounds, half of the clients each."""
    cloak = ModelCloak(CLIP, 1.0, where="server")

    def release(coins):
        x, y = canaries(coins)
        clients = [(x[i : i + 1], y[i : i + 1]) for i in range(M)]
        weighting = "fixed" if "sampling" in how else "uniform"
        run = FedAvg(linear(), clients, 4, Plan(eta=1.0, batch_size=1), defense=cloak,
                     weighting=weighting, show=False, **how)  # fmt: skip
        release.claimed = list(run)[-1].epsilon
        w = run.model.get_parameter("1.weight").detach()
        return (w[1] - w[0]).tolist()

    found = audit(release, M, guesses=100, seed=0)
    print(f"{how}: claimed {release.claimed}; audited {found}")
    assert release.claimed.sampling != "none"
    assert 0.1 < found.epsilon < release.claimed.value


# --- a secure sum ---

SIGMA = 2.0 / np.sqrt(M)  # of one client; of all together 2


def of_the_sum(rule: SecureSum):
    """Each canary a client; scores from what the server sees: one row for all."""

    def release(coins):
        sent = share(linear(), *canaries(coins), ModelCloak(CLIP, SIGMA) + rule, each=1)
        (row,) = sent.tensors["1.weight"]
        return (row[0] - row[1]).tolist()

    return release


def test_noises_that_add_up_stay_below_the_claim_of_the_sum():
    run = Training(1, clients=M)
    (claim,) = account(ModelCloak(CLIP, SIGMA) + SecureSum(), run).also
    found = audit(of_the_sum(SecureSum()), M, guesses=100, seed=0)
    print(f"ModelCloak + secure sum: claimed {claim}; audited {found}")
    assert claim.against == "sums"
    assert 0.15 * claim.value < found.epsilon < claim.value and found.p_value(claim.value) > 0.05


def test_the_claim_of_the_sum_is_refuted_for_single_uploads():
    """What the sum hides, one upload does not: the claim is for a server that sees sums only."""
    cloak = ModelCloak(CLIP, 2 * SIGMA)
    (claim,) = account(cloak + SecureSum(), Training(1, clients=M)).also
    found = audit(uploads(cloak), M, guesses=None, seed=0)
    assert found.epsilon > claim.value and found.p_value(claim.value) < 0.05


def test_global_model_of_a_sum_is_that_of_the_mean():
    """And its update, of which outsiders see the global model, has the same bits up to rounding."""
    coins = np.arange(M) % 2 == 0
    plain, summed = (
        torch.tensor(GlobalModel(d, 1)(coins))
        for d in (ModelCloak(CLIP, 0.1), ModelCloak(CLIP, 0.1) + SecureSum())
    )
    torch.testing.assert_close(summed, plain, rtol=1e-4, atol=2.0**-24)
