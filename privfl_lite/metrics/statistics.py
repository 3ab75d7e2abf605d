"""Rates, areas under curves, and how sure of them a few images make us."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from statistics import NormalDist
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from ..arrays import Array
from ..checking import checked
from ..runtime import PrivflError, generator
from ..values import Finite, Function, Inside, Number, Part, Row, Seed, Whole

_row = Array("a list of one or more numbers", (1,), "all", finite=False, loose=True)
Values = Annotated[Tensor | np.ndarray | Sequence[float], _row]
Numbers = Annotated[list[float], Row((Number(),), least=1)]
Counts = Annotated[Sequence[int], Row((Number(0, 10**9, whole=True),), least=1)]


def _values(values: Values, what: str) -> np.ndarray:
    array = torch.as_tensor(values, dtype=torch.float64).detach().cpu().numpy()
    if np.isnan(array).any():
        raise PrivflError(f"{what} must be a list of at least one number, none of them NaN")
    return array


def _tails(level: Inside) -> tuple[float, float]:
    return 0.5 - level / 2, 0.5 + level / 2


@checked
def wilson(successes: Whole, n: Whole, level: Inside = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a success rate (1927): stays in [0, 1], also at 0 of n."""
    if not (n >= 1 and 0 <= successes <= n):
        raise PrivflError(f"{successes} successes of {n} is impossible; want 0 <= successes <= n")
    return _wilson(successes, n, level)


def _wilson(successes: float, n: float, level: float) -> tuple[float, float]:
    z2 = NormalDist().inv_cdf(_tails(level)[1]) ** 2
    center = (successes + z2 / 2) / (n + z2)
    half = math.sqrt(z2 * (successes * (n - successes) / n + z2 / 4)) / (n + z2)
    return max(0.0, center - half), min(1.0, center + half)


@checked
def clustered(hits: Counts, counts: Counts, level: Inside = 0.95) -> tuple[float, float]:
    """Wilson's interval of a rate over clusters, ``hits[k]`` of ``counts[k]`` in cluster k.

    Images behind one network share it, so n of them tell less than n independent ones. The number
    of images is divided by the design effect: how much more the clusters' rates vary than those of
    independent images would (Pearson's X² over its degrees of freedom), and 1 where it is less.
    From few clusters that is a rough number; with one cluster it is taken to be 1.
    """
    if len(hits) != len(counts) or any(h > n for h, n in zip(hits, counts, strict=False)):
        raise PrivflError(f"hits and counts go together, 0 <= hits <= counts; got {hits}, {counts}")
    total, n = sum(hits), sum(counts)
    if min(counts) < 1:
        raise PrivflError("a cluster without images says nothing; leave it out")
    rate, free = total / n, len(hits) - 1
    apart = sum((h - m * rate) ** 2 / m for h, m in zip(hits, counts, strict=True))
    inflation = apart / (free * rate * (1 - rate)) if free and 0 < rate < 1 else 1.0
    effect = max(1.0, inflation)
    return _wilson(total / effect, n / effect, level)


@checked
def success_rate(scores: Values, threshold: Finite, higher_is_better: bool) -> tuple[float, ...]:
    """Share of images at or beyond ``threshold``, with its 95 % Wilson interval: (rate, low, high).

    NaN counts as a failure. ModelCloak's Table II is ``success_rate(l2(x_hat, x), 1.4, False)``.
    """
    scores = torch.as_tensor(scores)
    hits = int((scores >= threshold if higher_is_better else scores <= threshold).sum())
    interval = wilson(hits, len(scores))  # refuses an empty list
    return hits / len(scores), *interval


@checked
def auc(members: Values, nonmembers: Values) -> float:
    """Area under the ROC curve: P(member > nonmember) + P(equal) / 2, scores high for members."""
    members, others = _values(members, "members"), np.sort(_values(nonmembers, "nonmembers"))
    below, upto = (np.searchsorted(others, members, side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(others)))


@checked
def tpr_at_fpr(members: Values, nonmembers: Values, fpr: Part = 0.01) -> float:
    """Most members found by a threshold that accuses no more than a share ``fpr`` of nonmembers."""
    members, others = _values(members, "members"), np.sort(_values(nonmembers, "nonmembers"))
    allowed = math.floor(fpr * len(others) + 1e-9)  # none where there are fewer than 1 / fpr
    return float((members > others[-1 - allowed]).mean())


@checked
def bootstrap_interval(
    values: Values, statistic: Function = np.mean, level: Inside = 0.95, seed: Seed = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic that takes ``axis`` (2,000 resamples)."""
    array = _values(values, "values")
    draws = torch.randint(len(array), (2000, len(array)), generator=generator(seed)).numpy()
    found = statistic(array[draws], axis=1)
    return tuple(np.quantile(found, _tails(level), method="inverted_cdf").tolist())


@checked
def auc_interval(
    members: Values, nonmembers: Values, level: Inside = 0.95, seed: Seed = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of ``auc``; members and nonmembers are resampled apart."""
    return _two_sample(auc, members, nonmembers, level, seed)


@checked
def tpr_interval(
    members: Values, nonmembers: Values, fpr: Part = 0.01, level: Inside = 0.95, seed: Seed = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of ``tpr_at_fpr``; rough where fpr·nonmembers is under ten."""
    return _two_sample(partial(tpr_at_fpr, fpr=fpr), members, nonmembers, level, seed)


def _two_sample(
    statistic: Callable, members: Values, nonmembers: Values, level: Inside, seed: Seed
) -> tuple[float, float]:
    a, b = _values(members, "members"), _values(nonmembers, "nonmembers")
    rng = np.random.default_rng(int(seed) % 2**63)
    found = [statistic(rng.choice(a, len(a)), rng.choice(b, len(b))) for _ in range(2000)]
    return tuple(np.quantile(found, _tails(level), method="inverted_cdf").tolist())


@checked
def spread(values: Numbers) -> dict:
    """Mean, standard deviation (n − 1) and Student's 95 % interval; the last two need 2 values."""
    from scipy.stats import t as student  # slow to import

    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return {"mean": mean, "std": None, "interval": None}
    std = statistics.stdev(values)
    half = float(student.ppf(0.975, n - 1)) * std / n**0.5
    return {"mean": mean, "std": std, "interval": [mean - half, mean + half]}
