"""One Gaussian release: how much noise a given (ε, δ) takes, as papers state it and exactly.

Everywhere ``sigma`` is the noise multiplier: the noise's standard deviation divided by the L2
sensitivity of what is released (chapter: noise, clipping and DP). With contributions clipped to C
and noise sigma C on their sum, the sensitivity is C if neighbors differ by one *added or removed*
contribution, and 2C if one is *replaced*.
"""

from __future__ import annotations

import math

import numpy as np

from ..errors import PrivflError


def check_positive(name: str, value: float) -> None:
    """Refuse what is no finite number above 0."""
    if not 0 < value < math.inf:
        raise PrivflError(f"{name} is {value}; it must be a finite number above 0")


def check_fraction(name: str, value: float, one: bool = False) -> None:
    """Refuse what lies outside (0, 1), or (0, 1]."""
    if not (0 < value < 1 or (one and value == 1)):
        raise PrivflError(f"{name} is {value}; it must lie in (0, 1{']' if one else ')'}")


def gaussian_sigma(eps: float, delta_dp: float, sensitivity: float = 1.0) -> float:
    """Noise for one (eps, delta)-DP release: sqrt(2 log(1.25 / delta)) S / eps.

    ModelCloak Eq. 3 (standard deviation, with S = ``sensitivity``) and Eq. 4 (multiplier, S = 1),
    after Dwork and Roth 2014, Theorem A.1, which proves it for eps < 1 only; ModelCloak states no
    such limit. It still holds somewhat above 1 and is false for large eps: at delta = 1e-5 from
    8.42 on, and at eps = 100 the true delta is 0.9999999. ``analytic_gaussian_sigma`` is exact.
    """
    check_positive("eps", eps)
    check_positive("sensitivity", sensitivity)
    check_fraction("delta_dp", delta_dp)
    return math.sqrt(2 * math.log(1.25 / delta_dp)) * sensitivity / eps


def gaussian_eps(sigma: float, delta_dp: float) -> float:
    """The eps that ModelCloak Eq. 4 gives to a multiplier: the inverse of ``gaussian_sigma``.

    A guarantee only where it comes out at 1 or below, that is sigma >= sqrt(2 log(1.25 / delta)):
    4.845 at delta = 1e-5.
    """
    check_positive("sigma", sigma)
    return gaussian_sigma(sigma, delta_dp)  # sigma and eps trade places in Eq. 4


def analytic_gaussian_delta(sigma: float, eps: float) -> float:
    """The smallest delta for which one Gaussian release is (eps, delta)-DP, at any eps >= 0.

    Phi(1 / (2 sigma) - eps sigma) - e^eps Phi(-1 / (2 sigma) - eps sigma), sensitivity 1
    (Balle and Wang 2018, Theorem 8).
    """
    from scipy.special import log_ndtr, ndtr  # slow to import

    check_positive("sigma", sigma)
    if not 0 <= eps < math.inf:
        raise PrivflError(f"eps is {eps}; it must be a finite number, 0 or above")
    half, shift = 1 / (2 * sigma), eps * sigma
    return max(0.0, float(ndtr(half - shift) - np.exp(eps + log_ndtr(-half - shift))))


def analytic_gaussian_sigma(eps: float, delta_dp: float) -> float:
    """The smallest multiplier for one (eps, delta)-DP Gaussian release: exact, for any eps >= 0."""
    check_fraction("delta_dp", delta_dp)
    low, high = 1e-9, 1.0  # delta falls as sigma grows; at 1e-9 there is no privacy
    while analytic_gaussian_delta(high, eps) > delta_dp:
        low, high = high, 2 * high
    while high > low * (1 + 1e-12):
        middle = math.sqrt(low * high)
        if analytic_gaussian_delta(middle, eps) > delta_dp:
            low = middle
        else:
            high = middle
    return high  # on the safe side


def analytic_gaussian_epsilon(sigma: float, delta_dp: float = 1e-5) -> float:
    """The exact eps of one Gaussian release at ``delta_dp``; for T of them pass sigma / sqrt(T)."""
    from scipy.optimize import brentq  # slow to import
    from scipy.special import ndtri

    check_fraction("delta_dp", delta_dp)
    if analytic_gaussian_delta(sigma, 0.0) <= delta_dp:
        return 0.0
    most = 1 / (2 * sigma**2) + max(0.0, -ndtri(delta_dp)) / sigma  # there Pr(loss > eps) <= delta
    return float(brentq(lambda e: analytic_gaussian_delta(sigma, e) - delta_dp, 0.0, most))
