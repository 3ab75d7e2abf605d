"""An audit of every mechanism that claims an ε, and of claims that are wrong by construction.

One-run audits (Steinke, Nasr and Jagielski 2023) with the orthogonal canaries of ``canaries``. A
claim is the record that ``privacy.account`` or the run itself states; a wrong claim is stated of
something else than what ran (chapter: proof, bound, audit).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...client import share
from ...defenses import CAFL, DPSGD, POGZFL, Mixup, ModelCloak, Prune
from ...defenses.base import Defense
from ...privacy import (
    Epsilon,
    Training,
    account,
    audit,
    concentrated_epsilon,
    discrete_release,
)
from ...wire import Plan
from ..base import Study
from .canaries import CLIP, GlobalModel, M, Release, canaries, examples, linear, present, uploads

TENSORS = {"1.weight": (2, M)}  # what leaves of the linear network
PASSES, FIFTY = (Plan(eta=1e-3, epochs=n, batch_size=M) for n in (8, 50))
EIGHT = Training(1, plan=Plan(epochs=8, batch_size=M), examples=M)


@dataclass(frozen=True)
class Case:
    """A claim, what ran, and how many guesses were planned. ``claim`` None: the run states it."""

    made: Callable[[int], Release]  # from a seed
    settings: str
    claim: Epsilon | None = None
    guesses: int = 100
    true: bool = True


def _case(defense: Defense, made: Callable, run: Training | None = None, **more: Any) -> Case:
    run = run or Training(1, tensors=TENSORS)
    return Case(lambda seed: made(defense, seed=seed), str(defense), account(defense, run), **more)


def measured(defense: CAFL, seed: int = 0) -> Release:
    """CA-FL: each randomized measurement votes with the sign that the canary gives it."""

    def release(coins: np.ndarray) -> list[float]:
        up = share(linear(), *canaries(np.ones(M, dtype=bool)), each=1).tensors
        sent = share(linear(), *canaries(coins), defense, each=1, seed=seed).tensors
        votes = defense.measure(sent)["1"] * defense.measure(up)["1"].sign()
        return votes.flatten(1).sum(1).tolist()

    return release


def laplace(defense: POGZFL, seed: int = 0) -> Release:
    """POGZ-FL: the logarithm of the ratio of two Laplace densities, at the two entries."""

    def release(coins: np.ndarray) -> list[float]:
        sent = share(linear(), *canaries(coins), defense, each=1, seed=seed).tensors["1.weight"]
        u = sent.diagonal(dim1=0, dim2=2)  # (2, M), each client's own pixel
        at = u.new_tensor([1.0, -1.0])[:, None] * defense.alpha * defense.eta / 2
        return ((u + at).abs() - (u - at).abs()).sum(0).tolist()

    return release


def whole_numbers(sigma: float) -> Callable[[int], Release]:
    """The sum of ±C e_i with discrete Gaussian noise; scores are its entries."""

    def made(seed: int) -> Release:
        rng = random.Random(seed)

        def release(coins: np.ndarray) -> list[float]:
            rows = np.diag(np.where(coins, CLIP, -CLIP))
            return discrete_release(rows, CLIP, sigma, CLIP / 64, rng.randrange).tolist()

        return release

    return made


def follows(cloak: ModelCloak, seed: int = 0) -> Release:
    """Noise that follows: who has no data sends zeros; scores are lengths."""

    def release(coins: np.ndarray) -> list[float]:
        sent = share(linear(), *present(coins), cloak, each=1, seed=seed).tensors["1.weight"]
        return sent.flatten(1).norm(dim=1).tolist()

    return release


def unclipped(seed: int) -> Release:
    """The noise of DPSGD(CLIP, 3), on gradients that nobody clips, of images ten times as bright"""

    def release(coins: np.ndarray) -> list[float]:
        noise = np.random.default_rng(seed).normal(size=M) * 2**0.5 * 3 * CLIP / M
        return (10 * np.array(examples(None)(coins)) + noise).tolist()

    return release


def _right() -> dict[str, Case]:
    """Every mechanism that the package gives an ε."""
    server, chain = ModelCloak(CLIP, 2.0, where="server"), Prune(0.5) + ModelCloak(CLIP, 2.0)
    rho = 2 / 2.0**2  # one row replaced, σ = 2
    whole = Epsilon(concentrated_epsilon(rho), 1e-5, "example", accountant="zCDP")
    layers = ModelCloak(CLIP, 3.0, per="layer")
    both = Training(1, tensors={**TENSORS, "1.bias": (2,)})
    half: dict[str, Any] = {
        "weighting": "fixed",
        "given": present,
        "per_round": M // 2,
        "sampling": "poisson",
    }
    return {
        "DP-SGD, one step": _case(DPSGD(CLIP, 1.0), examples),
        "DP-SGD, 8 passes": _case(
            DPSGD(CLIP, 2.0), lambda d, seed: examples(d, PASSES, seed), EIGHT
        ),
        "DP-SGD, then pruning": _case(DPSGD(CLIP, 1.0) + Prune(0.5), examples),
        "mixup, then DP-SGD": _case(Mixup(2, 0.65, 2) + DPSGD(CLIP, 4.0), examples),
        "ModelCloak": _case(ModelCloak(CLIP, 2.0), uploads),
        "ModelCloak by layer": _case(
            layers, lambda d, seed: uploads(d, bias=True, seed=seed), both
        ),
        "ModelCloak, dynamic, same variance": _case(
            ModelCloak(CLIP, 2.0, mode="dynamic", keep="variance"), uploads
        ),
        "pruning, ModelCloak, CA-FL": _case(chain + CAFL(ratio=1.0), uploads),
        "ModelCloak at the server, 3 rounds": Case(
            lambda seed: GlobalModel(server, 3, seed=seed), str(server)
        ),
        "the same, half of the clients by coins": Case(
            lambda seed: GlobalModel(server, 3, seed=seed, per_round=M // 2, **half), str(server)
        ),
        "CA-FL, public radius": _case(CAFL(eps=0.1, radius=1e-3), measured),
        "POGZ-FL, fixed shares": _case(POGZFL(eps=4.0, eta=0.5, importance={"1": 1.0}), laplace),
        "discrete Gaussian sum": Case(
            whole_numbers(2.0), f"discrete_release(clip={CLIP}, sigma=2.0)", whole
        ),
    }


def _wrong() -> dict[str, Case]:
    """What is claimed of something else than what ran."""
    once, dynamic = (
        account(DPSGD(CLIP, 3.0), Training(1)),
        ModelCloak(CLIP, 5.0, "dynamic", "scale"),
    )
    paper = Epsilon(dynamic.paper_epsilon(1, 1.0), 1e-5, neighbors="add/remove", accountant="RDP")
    server = ModelCloak(CLIP, 5.0, where="server")
    one = CAFL(eps=0.1, radius=1e-3)
    released = POGZFL(eps=1.0, eta=0.5, importance={"1": 1.0}, released=True)
    wrong: dict[str, Any] = {"true": False}
    return {
        "50 passes, the ε of one": Case(
            lambda seed: examples(DPSGD(CLIP, 3.0), FIFTY, seed),
            str(DPSGD(CLIP, 3.0)), once, M // 2, **wrong,
        ),
        "noise that follows the data, the paper's ε": Case(
            lambda seed: follows(dynamic, seed), str(dynamic), paper, M // 2, **wrong
        ),
        "no clip": Case(unclipped, str(DPSGD(CLIP, 3.0)), once, **wrong),
        "an ε against outsiders, asked of the server": Case(
            lambda seed: uploads(server, seed=seed), str(server),
            account(server, Training(1)), **wrong,
        ),
        "CA-FL, the ε of one measurement": Case(
            lambda seed: measured(one, seed), str(one), Epsilon(one.eps), M // 2, **wrong
        ),
        "POGZ-FL as released, one number a tensor": Case(
            lambda seed: uploads(released, seed=seed), str(released),
            Epsilon(released.eps), **wrong,
        ),
    }  # fmt: skip


def cases() -> dict[str, Case]:
    return _right() | _wrong()


def _settings(profile: str) -> dict:
    return {
        "canaries": M,
        "clip": CLIP,
        "delta_dp": 1e-5,
        "confidence": 0.95,
        "seeds": [0, 1, 2, 3, 4],
    }


def _cells(settings: dict) -> list[dict]:
    return [{"case": name} for name in cases()]


def _compute(settings: dict, cell: dict) -> dict:
    case, rows = cases()[cell["case"]], []
    claim = case.claim or Epsilon(None, reason="the run states it")
    for seed in settings["seeds"]:
        release = case.made(seed)
        made = audit(
            release, M, case.guesses, settings["delta_dp"], settings["confidence"], 10 + seed
        )
        claim = case.claim or getattr(release, "claimed", None) or claim
        p = made.p_value(claim.value or 0.0)
        rows.append(
            {"epsilon": round(made.epsilon, 4), "right": made.right, "p": float(f"{p:.3g}")}
        )
    return {
        "settings": case.settings,
        "true": case.true,
        "claimed": round(claim.value or 0.0, 4),
        "unit": claim.unit,
        "neighbors": claim.neighbors,
        "against": claim.against,
        "sampling": claim.sampling,
        "accountant": claim.accountant,
        "guesses": case.guesses,
        "audits": rows,
    }


STUDY = Study(
    name="proof-bound-audit/mechanisms",
    about="one-run audits of every mechanism that claims an ε, and of wrong claims; 400 canaries",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
