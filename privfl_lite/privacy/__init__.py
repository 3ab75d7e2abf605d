"""Differential privacy: ε of one release and of a whole run, bounds, an audit, and exact noise.

``epsilon`` and the ``gaussian_…`` functions turn noise multipliers into ε. ``account`` says what
holds for a defense in a training run, as a record (``Epsilon``) or with the reason why nothing
does. ``success_bound`` says how often any attacker can succeed at most, ``audit`` bounds ε from
below by experiment. ``discrete_gaussian`` is noise without the gaps of floating-point numbers.
"""

from .accountants import epsilon
from .bounds import epsilon_of_attack, prior_bound, success_bound, success_bound_of_curve
from .discrete import (
    concentrated_epsilon,
    discrete_delta,
    discrete_gaussian,
    discrete_release,
)
from .gaussian import (
    analytic_gaussian_delta,
    analytic_gaussian_epsilon,
    analytic_gaussian_sigma,
    gaussian_eps,
    gaussian_sigma,
)
from .mechanisms import Gaussian, Pure, Training
from .one_run import Audit, audit, audit_p_value
from .record import Epsilon
from .rules import account

__all__ = [
    "Audit",
    "Epsilon",
    "Gaussian",
    "Pure",
    "Training",
    "account",
    "analytic_gaussian_delta",
    "analytic_gaussian_epsilon",
    "analytic_gaussian_sigma",
    "audit",
    "audit_p_value",
    "concentrated_epsilon",
    "discrete_delta",
    "discrete_gaussian",
    "discrete_release",
    "epsilon",
    "epsilon_of_attack",
    "gaussian_eps",
    "gaussian_sigma",
    "prior_bound",
    "success_bound",
    "success_bound_of_curve",
]
