"""ε and the bound on every point of the axis, by two other methods than ours.

"pld": dp-accounting's privacy-loss distribution of one round, composed with itself, from above; a
success is at most e^ε κ + δ(ε) for every ε. "played": simulated runs of the likelihood-ratio test,
which accuses where a share κ of the runs without the record is accused (chapter: proof, bound,
audit).
"""

from __future__ import annotations

import numpy as np

from ...privacy import analytic_gaussian_epsilon, epsilon, success_bound
from ..base import Study
from .axis import STUDY as AXIS


def _settings(profile: str) -> dict:
    axis = AXIS.settings(profile)
    return {
        "sigmas": axis["sigmas"],
        "rounds": axis["rounds"],
        "rates": [1.0, 0.1],
        "kappas": [0.01, 0.1],
        "delta_dp": axis["delta_dp"],
        "draws": 1_000_000 if profile == "gpu" else 50_000,
        "points": 20_000,  # of a grid of losses
        "least": 0.3,  # σ below is left to what is played: a bound of 1
    }


def _cells(settings: dict) -> list[dict]:
    return [
        {"sigma": s, "rounds": t, "rate": q}
        for q in settings["rates"]
        for t in settings["rounds"]
        for s in settings["sigmas"]
    ]


def pld(settings: dict, cell: dict) -> dict:
    """ε and bounds from dp-accounting."""
    from dp_accounting.pld import privacy_loss_distribution

    sigma, rounds = cell["sigma"], cell["rounds"]
    reach = 1 / (2 * sigma**2) + 8 / sigma  # of the losses of one round
    many = privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        sampling_prob=cell["rate"],
        value_discretization_interval=2 * reach / settings["points"],
        use_connect_dots=True,
    ).self_compose(rounds)
    eps = np.linspace(0, rounds / (2 * sigma**2) + 6 * rounds**0.5 / sigma, 3000)
    delta = np.array(many.get_delta_for_epsilon(eps))
    bounds = [float(np.min([np.exp(eps) * k + delta, 1 - np.exp(-eps) * (1 - k - delta)]))
              for k in settings["kappas"]]  # fmt: skip
    return {
        "epsilon": round(float(many.get_epsilon_for_delta(settings["delta_dp"])), 4),
        "bounds": [round(min(1.0, b), 5) for b in bounds],
    }


def played(settings: dict, cell: dict) -> list[float]:
    """How often the likelihood ratio is right where it is wrong in a share κ of the draws."""
    rng, n = np.random.default_rng(0), settings["draws"]
    sigma, rate, rounds = cell["sigma"], cell["rate"], cell["rounds"]

    def losses(here: bool) -> np.ndarray:
        x = sigma * rng.standard_normal((n, rounds))
        x += here * (rng.random(x.shape) < rate)
        with np.errstate(divide="ignore"):
            one = np.logaddexp(np.log1p(-rate), np.log(rate) + (2 * x - 1) / (2 * sigma**2))
        return one.sum(1) + 1e-9 * rng.random(n)  # ties by lot

    absent, present = losses(False), losses(True)
    cuts = np.quantile(absent, 1 - np.array(settings["kappas"]))
    return [round(float((present > cut).mean()), 4) for cut in cuts]


def _compute(settings: dict, cell: dict) -> dict:
    sigma, rate, rounds = cell["sigma"], cell["rate"], cell["rounds"]
    if rate == 1:
        eps = analytic_gaussian_epsilon(sigma / rounds**0.5, settings["delta_dp"])
    else:
        eps = epsilon(sigma, rate, rounds, settings["delta_dp"])
    ours = [success_bound(k, sigma, rate, rounds) for k in settings["kappas"]]
    return {
        "ours": {"epsilon": round(eps, 4), "bounds": [round(b, 5) for b in ours]},
        "pld": pld(settings, cell) if sigma >= settings["least"] else None,
        "played": played(settings, cell),
    }


STUDY = Study(
    name="proof-bound-audit/second",
    about="ε (add/remove) and the bound on every point of the axis, by a second and a third method",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
