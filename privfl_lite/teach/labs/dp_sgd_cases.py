"""What a class gets in lab 4, random gradients for its checks, and the training of its last part.

Chapters "Noise and ε" and "What ε buys": the Gaussian mechanism on sums of clipped gradients.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import torch
from scipy.stats import beta
from torch import Tensor
from torch.nn.functional import avg_pool2d

from ...data import load
from .kit import draws

NORMAL = NormalDist()
DELTA = 1e-5
CLAIM = 1.0  # the ε that each of three mechanisms claims
TRIES = 2000  # draws of each, without and with one example
PEOPLE, ROUNDS, BUDGET = 2000, 30, 3.0  # of the last part
WRONG_WAYS = ("too little noise", "noise that follows the data", "as it claims")


def gradients(rng: torch.Generator, count: int, size: int) -> Tensor:
    """Rows of very different lengths; the second is zero."""
    lengths = torch.logspace(-1, 2, count)[torch.randperm(count, generator=rng)]
    rows = torch.randn(count, size, generator=rng)
    rows = rows / rows.norm(dim=1, keepdim=True) * lengths[:, None]
    rows[1] = 0
    return rows


def clipped(rows: Tensor, clip: float) -> Tensor:
    """Each row at most as long as ``clip``."""
    return rows * (clip / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)


def delta(eps: float, mu: float) -> float:
    """δ of a Gaussian shifted by μ at ε: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    second = NORMAL.cdf(-mu / 2 - eps / mu)
    return NORMAL.cdf(mu / 2 - eps / mu) - (math.exp(eps) * second if second else 0.0)


def epsilon(mu: float, delta_dp: float = DELTA) -> float:
    """The ε of a shift μ, by bisection."""
    low, high = 0.0, 1.0
    while delta(high, mu) > delta_dp:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if delta(middle, mu) <= delta_dp else (middle, high)
    return high


def interval(hits: int, tries: int) -> tuple[float, float]:
    """Clopper and Pearson's ends, each missed with probability 2.5 %."""
    low = float(beta.ppf(0.025, hits, tries - hits + 1)) if hits else 0.0
    high = float(beta.isf(0.025, hits + 1, tries - hits)) if hits < tries else 1.0
    return low, high


def least(hits: int, alarms: int, tries: int, delta_dp: float = DELTA) -> float:
    """ε at least, from ``hits`` and ``alarms`` of so many tries each; never below zero."""
    low, high = interval(hits, tries)[0] - delta_dp, interval(alarms, tries)[1]
    return max(0.0, math.log(low / high)) if low > 0 else 0.0


@lru_cache(maxsize=4)
def mechanisms(key: str) -> dict[str, str]:
    """Which of "A", "B", "C" does what; each class has an order of its own."""
    order = torch.randperm(3, generator=draws(key, "mechanisms")).tolist()
    return {"ABC"[i]: WRONG_WAYS[k] for i, k in enumerate(order)}


def played(way: str, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Outputs of a mechanism for one number, without and with an example of length 1: (TRIES,).

    As it claims, noise has the size that ε = ``CLAIM`` needs. Noise that follows the data grows
    with the answer, and so tells it.
    """
    size = 1.0
    while epsilon(1 / size) > CLAIM:
        size *= 1.01
    noise = torch.randn(2, TRIES, generator=rng)
    if way == "too little noise":
        return size / 6 * noise[0], 1 + size / 6 * noise[1]
    if way == "noise that follows the data":
        return size / 4 * noise[0], 1 + 2 * size * noise[1]
    return size * noise[0], 1 + size * noise[1]


@lru_cache(maxsize=4)
def captured(key: str) -> tuple[dict[str, Tensor], float]:
    """What a class gets, and the clip behind its published mean."""
    rng = draws(key, "captured")
    rows = gradients(rng, 12, 20)
    clip = float(0.5 + 8 * torch.rand(1, generator=rng))
    handout = {"gradients": rows, "published": clipped(rows, clip).mean(0)}
    for name, way in mechanisms(key).items():
        without, with_it = played(way, draws(key, "mechanism", name))
        handout[f"{name}_without"], handout[f"{name}_with"] = without, with_it
    return handout, clip


def handout(key: str) -> dict[str, Tensor]:
    """Gradients with their published mean, and outputs of three mechanisms."""
    return captured(key)[0]


@lru_cache(maxsize=2)
def people(key: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One digit of 14 x 14 pixels for each of ``PEOPLE``, and 1,000 more for the test."""
    data = load("mnist")
    x = torch.cat([data.x_train, data.x_test])
    y = torch.cat([data.y_train, data.y_test])
    rows = torch.randperm(len(y), generator=draws(key, "people"))[: PEOPLE + 1000]
    x, y = avg_pool2d(x[rows], 2).flatten(1), y[rows]
    return x[:PEOPLE], y[:PEOPLE], x[PEOPLE:], y[PEOPLE:]


def train(clip: float, sigma: float, rate: float, key: str, rounds: int = ROUNDS) -> float:
    """Accuracy of softmax regression after full-batch DP-SGD, one digit a person."""
    x, y, x_test, y_test = people(key)
    rng, weight = draws(key, "noise"), torch.zeros(10, x.shape[1] + 1)
    ones = torch.ones(len(x), 1)
    inputs = torch.cat([x, ones], 1)
    for _ in range(rounds):
        error = (inputs @ weight.T).softmax(1)
        error[torch.arange(len(y)), y] -= 1  # (people, 10): rows of the gradient are outer products
        length = error.norm(dim=1) * inputs.norm(dim=1)
        factor = (clip / length.clamp(min=1e-12)).clamp(max=1)
        total = (error * factor[:, None]).T @ inputs
        noise = torch.randn(weight.shape, generator=rng)
        weight = weight - rate * (total + sigma * clip * noise) / len(x)
    seen = torch.cat([x_test, torch.ones(len(x_test), 1)], 1) @ weight.T
    return float((seen.argmax(1) == y_test).double().mean())
