"""ε over many rounds, on the accountants of Opacus and dp-accounting."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated, cast

import numpy as np

from ..checking import checked
from ..errors import PrivflError, needs
from ..values import Count, Either, Inside, Number, Row, Word

LEAST, MOST = 1e-4, 1e4  # multipliers that accountants can work with
_multiplier = Number(LEAST, MOST)
Sigmas = Annotated[float | Sequence[float], Either((_multiplier, Row((_multiplier,), least=1)))]
GRID = 2**24  # points of the prv accountant's grid: 20 s and 2 GB

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64))  # those of Opacus' RDPAccountant


@lru_cache
def _opacus_rdp() -> ModuleType:
    """Opacus' one file of Rényi formulas: the whole package imports PyTorch, and takes 3 s."""
    with needs("dp"):
        if not (opacus := find_spec("opacus")) or not opacus.origin:
            raise ModuleNotFoundError(name="opacus")
    path = Path(opacus.origin).parent / "accountants" / "analysis" / "rdp.py"
    spec = spec_from_file_location(f"{__name__}.opacus_rdp", path)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=4096)
def _rdp(sigma: float, rate: float, sampling: str) -> tuple[np.ndarray, np.ndarray]:
    """Orders, and the Rényi DP of one round at each of them."""
    if sampling == "poisson":
        orders, compute_rdp = np.array(ORDERS), _opacus_rdp().compute_rdp
        return orders, compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=orders)
    with needs("dp"):
        import dp_accounting as dp
        from dp_accounting.rdp import RdpAccountant

    size, total = rate.as_integer_ratio()  # only their ratio matters
    accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    release = dp.GaussianDpEvent(sigma)
    accountant.compose(dp.SampledWithoutReplacementDpEvent(total, size, release))
    orders = accountant.orders
    # A sample never tells more than the whole (Rényi divergence is jointly quasi-convex). The bound
    # can: at large sigma and rate its differences of nearly equal numbers are mostly rounding.
    return orders, np.minimum(accountant.rdp, orders / (2 * sigma**2))


def _steps(sigma: float | Sequence[float], rounds: int | None) -> Counter[float]:
    """How many rounds have each sigma; their order does not matter for what they spend."""
    each = None if np.ndim(sigma) == 0 else cast(Sequence[float], sigma)
    count = len(each) if each is not None and rounds is None else rounds
    if count is None:
        raise PrivflError("rounds is missing; give it, or a sigma for each round")
    if each is None:
        steps = Counter({float(cast(float, sigma)): int(count)})
    elif count != len(each):
        raise PrivflError(f"there are {len(each)} sigmas for {count} rounds; give one a round")
    else:
        steps = Counter(map(float, each))
    return steps


def _rdp_epsilon(steps: Counter[float], rate: float, sampling: str, delta_dp: float) -> float:
    total: float | np.ndarray = 0.0
    for sigma, count in steps.items():
        orders, rdp = _rdp(sigma, rate, sampling)
        total = total + count * rdp
    with warnings.catch_warnings():  # "optimal order is the largest alpha": see epsilon's docstring
        warnings.simplefilter("ignore")
        spent = _opacus_rdp().get_privacy_spent(orders=orders, rdp=total, delta=delta_dp)
    return max(0.0, float(spent[0]))


def _prv_epsilon(steps: Counter[float], rate: float, delta_dp: float) -> float:
    with needs("dp"):
        from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, count) for sigma, count in steps.items()]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):  # log(1 - rate) at rate 1
            warnings.simplefilter("ignore")
            return max(0.0, float(accountant.get_epsilon(delta_dp)))
    except (RuntimeError, ValueError) as error:
        raise PrivflError(f"the prv accountant gave up ({error}); use accountant='rdp'") from error


@checked
def epsilon(
    sigma: Sigmas,
    rate: Annotated[float, Number(0, 1, open="low")],
    rounds: Count | None = None,
    delta_dp: Inside = 1e-5,
    accountant: Annotated[str, Word("accountant", "rdp", "prv")] = "rdp",
    sampling: Annotated[str, Word("sampling", "poisson", "fixed")] = "poisson",
) -> float:
    """An upper bound on eps at ``delta_dp`` after ``rounds`` Gaussian releases on random samples.

    ``sigma``: the multiplier, or one a round (then ``rounds`` may be left out). ``rate``: the share
    q of contributors in a round, (0, 1]; at 1 nobody is left out.

    ``sampling="poisson"``: each contributor takes part with probability q; neighbors differ by one
    added or removed contributor, so sigma is relative to C. This is ModelCloak's Table III.
    ``sampling="fixed"``: exactly a share q, drawn without replacement; neighbors differ by one
    replaced contributor, so sigma is relative to 2C: for noise sigma C pass sigma / 2. Bound of
    Wang, Balle and Kasiviswanathan 2019, Theorem 27 (Theorem 9 tightened for Gaussian noise).

    ``accountant="rdp"``: Rényi DP, converted with Theorem 21 of Balle et al. 2020. Poisson uses
    Opacus' orders, 1.1 to 63, which can return no eps below (log(1 / delta) - log 63) / 62 - 0.016,
    0.103 at delta = 1e-5: values near that are safe but loose. ``"prv"``: Opacus' numerical
    composition (Gopi et al. 2021), at most 0.02 above the exact eps; Poisson only, eps up to 100.
    A distinct sigma costs about 0.02 s (rdp), 0.1 s (prv) or 0.3 s (fixed).
    """
    steps = _steps(sigma, rounds)
    bound = _rdp_epsilon(steps, float(rate), sampling, delta_dp)
    if accountant == "rdp":
        return bound
    if sampling == "fixed":
        raise PrivflError("the prv accountant knows poisson sampling only; use accountant='rdp'")
    if bound > 100:  # its grid would fill the memory
        raise PrivflError(f"eps is near {bound:.0f}, too large for prv; use accountant='rdp'")
    mesh = 0.01 / np.sqrt(sum(steps.values()) * np.log(12e3 / delta_dp) / 2)  # Gopi et al.
    if (points := 3 * max(bound, 1.0) / mesh) > GRID:
        raise PrivflError(
            f"prv would need about {points:.0e} points for so many rounds, and takes "
            f"{GRID:.0e} at most; use accountant='rdp'"
        )
    return _prv_epsilon(steps, float(rate), delta_dp)
