"""One Gaussian release: how much noise a given (ε, δ) takes, as papers state it and exactly.

Everywhere ``sigma`` is the noise multiplier: the noise's standard deviation divided by the L2
sensitivity of what is released (chapter: noise, clipping and DP). With contributions clipped to C
and noise sigma C on their sum, the sensitivity is C if neighbors differ by one *added or removed*
contribution, and 2C if one is *replaced*.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from ..checking import checked
from ..values import Inside, Number, Positive

Multiplier = Annotated[float, Number(1e-9, 1e15)]  # of noise; Fractions are numbers, too
Eps = Annotated[float, Number(0, 1e12)]


@checked
def gaussian_sigma(eps: Positive, delta_dp: Inside, sensitivity: Positive = 1.0) -> float:
    """Noise for one (eps, delta)-DP release: sqrt(2 log(1.25 / delta)) S / eps.

    ModelCloak Eq. 3 (standard deviation, with S = ``sensitivity``) and Eq. 4 (multiplier, S = 1),
    after Dwork and Roth 2014, Theorem A.1, which proves it for eps < 1 only; ModelCloak states no
    such limit. It still holds somewhat above 1 and is false for large eps: at delta = 1e-5 from
    8.42 on, and at eps = 100 the true delta is 0.9999999. ``analytic_gaussian_sigma`` is exact.
    """
    return math.sqrt(2 * math.log(1.25 / delta_dp)) * sensitivity / eps


@checked
def gaussian_eps(sigma: Multiplier, delta_dp: Inside) -> float:
    """The eps that ModelCloak Eq. 4 gives to a multiplier: the inverse of ``gaussian_sigma``.

    A guarantee only where it comes out at 1 or below, that is sigma >= sqrt(2 log(1.25 / delta)):
    4.845 at delta = 1e-5.
    """
    return gaussian_sigma(sigma, delta_dp)  # sigma and eps trade places in Eq. 4


@checked
def analytic_gaussian_delta(sigma: Multiplier, eps: Eps) -> float:
    """The smallest delta for which one Gaussian release is (eps, delta)-DP, at any eps >= 0.

    Phi(1 / (2 sigma) - eps sigma) - e^eps Phi(-1 / (2 sigma) - eps sigma), sensitivity 1
    (Balle and Wang 2018, Theorem 8).
    """
    return _delta(sigma, eps)


def _delta(sigma: float, eps: float) -> float:
    """The same, of any numbers that a search comes by."""
    from scipy.special import log_ndtr, ndtr  # slow to import

    half, shift = 1 / (2 * sigma), eps * sigma
    return max(0.0, float(ndtr(half - shift) - np.exp(eps + log_ndtr(-half - shift))))


@checked
def analytic_gaussian_sigma(eps: Eps, delta_dp: Inside) -> float:
    """The smallest multiplier for one (eps, delta)-DP Gaussian release: exact, for any eps >= 0."""
    low, high = 1e-9, 1.0  # delta falls as sigma grows; at 1e-9 there is no privacy
    while _delta(high, eps) > delta_dp:
        low, high = high, 2 * high
    while high > low * (1 + 1e-12):
        middle = math.sqrt(low * high)
        if _delta(middle, eps) > delta_dp:
            low = middle
        else:
            high = middle
    return high  # on the safe side


@checked
def analytic_gaussian_epsilon(sigma: Multiplier, delta_dp: Inside = 1e-5) -> float:
    """The exact eps of one Gaussian release at ``delta_dp``; for T of them pass sigma / sqrt(T)."""
    from scipy.optimize import brentq  # slow to import
    from scipy.special import ndtri

    if _delta(sigma, 0.0) <= delta_dp:
        return 0.0
    most = 1 / (2 * sigma**2) + max(0.0, -ndtri(delta_dp)) / sigma  # there Pr(loss > eps) <= delta
    return float(brentq(lambda e: _delta(sigma, e) - delta_dp, 0.0, most))
