"""What a private mechanism is, what a training run does to it, and the ε that comes out.

Only what is sure is given credit. Local batches are shuffled, not drawn by coins, so sampling of
examples counts for nothing: an example is in as many batches as the plan says. The server sees who
takes part, so sampling of clients counts only against those who see nothing but models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from ..checking import Checked
from ..errors import PrivflError
from ..values import Count, Holds, NotNegative, Positive, Text, Whole, Wholes, Word
from .accountants import LEAST, MOST, epsilon
from .gaussian import analytic_gaussian_epsilon
from .record import Epsilon


@dataclass(frozen=True)
class Gaussian(Checked):
    """Clip to a length of C, add N(0, (``multiplier`` C)²) to every number.

    ``place``: "step", each example clipped, noise on the sum of a batch, at every local step;
    "upload", each client's upload clipped and noised; "mean", uploads clipped at the client, and
    one draw on their sum at the server. ``std``: the noise in units of what leaves, if it is known.
    """

    multiplier: NotNegative
    place: Annotated[str, Word("place of the noise", "step", "upload", "mean")]
    std: NotNegative | None = None


@dataclass(frozen=True)
class Pure(Checked):
    """An upload that is ``eps``-DP by itself for any two data sets of a client (δ = 0)."""

    eps: Positive
    place: Annotated[str, Word("place of the noise", "upload")] = "upload"


Mechanism = Gaussian | Pure


class LocalPlan(Protocol):
    """What of a ``wire.Plan`` decides how often an example is used."""

    @property
    def epochs(self) -> int: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def batch_size(self) -> int: ...


PLAN = Holds(
    "a Plan", lambda v: all(hasattr(v, name) for name in ("epochs", "steps", "batch_size"))
)
Sampling = Annotated[str, Word("sampling", "fixed", "poisson")]
Weighting = Annotated[str, Word("weighting", "examples", "uniform", "fixed")]


@dataclass(frozen=True)
class Training(Checked):
    """What a run did, or is planned to do, as far as ε depends on it; ``FedAvg`` fills it in.

    ``clients`` in all, of which ``per_round`` (None: all) take part, drawn by ``sampling``, "fixed"
    or "poisson"; ``weighting`` in the mean as in ``FedAvg``. ``plan``: local training (None: one
    gradient over all data). ``examples``: how many each client holds, and ``joined``: in how many
    rounds it took part; a single number is that of every client, None is every round.
    ``tensors``: name -> shape of all that leaves. ``statistics``: buffers that leave as they are.
    """

    rounds: Count
    clients: Count = 1
    per_round: Count | None = None
    sampling: Sampling = "fixed"
    weighting: Weighting = "uniform"
    plan: Annotated[LocalPlan, PLAN] | None = None
    examples: Whole | Wholes = 1
    joined: Whole | Wholes | None = None
    tensors: Mapping[str, tuple[Whole, ...]] = field(default_factory=dict)
    statistics: tuple[Text, ...] = ()
    secure: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.per_round or 1) > self.clients:
            got = f"got {self.per_round}"
            raise PrivflError(
                f"per_round must lie in 1…{self.clients}, the number of clients; {got}"
            )

    @property
    def rate(self) -> float:
        """The share of clients that is expected in a round."""
        return (self.per_round or self.clients) / self.clients

    @property
    def busiest(self) -> int:
        """Rounds of the client that took part most often."""
        joined = self.rounds if self.joined is None else self.joined
        return joined if isinstance(joined, int) else max(joined, default=0)

    def uses(self, rows: int = 1) -> int:
        """Σ over all steps of m², m the most rows of a batch that one example can reach.

        ``rows``: in how many rows of the training data it stands. The largest such sum of a client.
        """
        joined = self.rounds if self.joined is None else self.joined
        sizes = (self.examples,) if isinstance(self.examples, int) else self.examples
        times = (joined,) * len(sizes) if isinstance(joined, int) else joined
        pairs = zip(sizes, times, strict=len(sizes) > 1 and len(times) > 1)
        return max(rows**2 * squares(self.plan, n) * t for n, t in pairs)


def squares(plan: LocalPlan | None, n: int) -> int:
    """Σ over the steps of one round of m², m how often one of n examples can be in that batch.

    With epochs each example is in one batch of a pass: Σ m² = epochs. With ``steps`` batches of B
    are read from p = ⌈steps·B/n⌉ passes in a row. A batch touches at most m = 1 + ⌈(B − 1)/n⌉ of
    them (fewer where B divides n, or n divides B), so Σ m² ≤ m p.
    """
    if plan is None or plan.steps is None:
        return 1 if plan is None else plan.epochs
    b = plan.batch_size
    aligned = n % b == 0 or b % n == 0
    most = max(1, b // n) if aligned else 1 + math.ceil((b - 1) / n)
    return most * math.ceil(plan.steps * b / n)


def spent(made: Mechanism, run: Training, rows: int = 1, delta_dp: float = 1e-5) -> Epsilon:
    """The ε of this mechanism in this run. ``rows``: as in ``Training.uses``.

    Replaced data move a clipped sum by up to 2C, added or removed ones by C.
    """
    if isinstance(made, Pure):
        return Epsilon(run.busiest * made.eps, accountant="sum", secure=run.secure)
    if not made.multiplier > 0:
        return Epsilon(None, reason="no noise is added (sigma is 0)")
    if made.multiplier < LEAST:
        return Epsilon(None, reason=f"the noise is hardly any (a multiplier below {LEAST:g})")
    if made.place == "mean":
        return _on_the_mean(made, run, delta_dp)
    times, unit = (run.uses(rows), "example") if made.place == "step" else (run.busiest, "client")
    value = _exact(made.multiplier / 2, times, delta_dp)
    return Epsilon(value, delta_dp, unit, accountant="exact Gaussian", secure=run.secure)


def of_the_sum(made: Mechanism, run: Training, step: float, delta_dp: float = 1e-5) -> Epsilon:
    """ε of each client's noise, against a server that sees a round's sum of K uploads only.

    The sum has noise of variance K (multiplier · C)², and one client's other data move it by 2C: a
    Gaussian of multiplier · √K / 2, once for each round of a client. Uploads are rounded to
    multiples of ``step`` before they are added: a rounded Gaussian is one with a uniform number
    added, looked at on the grid, so that of K of them nothing more can be told, up to e^(−2π² s²)
    with s = std/step. For s ≥ 8 that is below 10^−500.
    """
    if not isinstance(made, Gaussian) or made.place != "upload":
        why = "noise adds up in a sum only where it is Gaussian and lies on the upload"
    elif made.std is None or made.std < 8 * step:
        why = "the noise is not known to be 8 times as large as a step of rounding"
    elif run.weighting == "examples":
        why = "clients weigh by their numbers of examples, which are private; weighting='uniform'"
    elif run.sampling == "poisson":
        why = "how many noises are in a sum is left to coins; sampling='fixed'"
    else:
        clients = run.per_round or run.clients
        value = _exact(made.multiplier * math.sqrt(clients) / 2, run.busiest, delta_dp)
        how = "exact Gaussian"
        return Epsilon(value, delta_dp, against="sums", accountant=how, secure=run.secure)
    return Epsilon(None, reason=f"of the sum: {why}", against="sums", secure=run.secure)


def _on_the_mean(made: Gaussian, run: Training, delta_dp: float) -> Epsilon:
    """Noise σC/K on Σ clip(Δ)/K, against those who see models only.

    Fixed size: K clients of equal weight in every round, one replaced. Poisson: K is the expected
    number whoever comes, and noise is added in every round, also where nobody came.
    """
    poisson = run.sampling == "poisson"
    if run.weighting == "examples":
        why = "clients weigh by their numbers of examples, which are private; weighting='uniform'"
        return Epsilon(None, reason=why.replace("'uniform'", "'fixed'") if poisson else why)
    if poisson and run.weighting == "uniform":
        why = (
            "the mean is over those who came, so its noise tells how many, and a round without "
            "clients sends nothing; weighting='fixed' divides by the expected number"
        )
        return Epsilon(None, reason=why)
    sigma, neighbors = made.multiplier / (1 if poisson else 2), "replace"
    if poisson:
        neighbors = "add/remove"
    if run.rate == 1:
        value, how, sampling = _exact(sigma, run.rounds, delta_dp), "exact Gaussian", "none"
    else:
        value = epsilon(min(sigma, MOST), run.rate, run.rounds, delta_dp, sampling=run.sampling)
        how, sampling = "RDP", f"{run.sampling} {run.rate:.4g}"
    return Epsilon(value, delta_dp, "client", neighbors, "outsiders", how, sampling, run.secure)


def _exact(sigma: float, times: int, delta_dp: float) -> float:
    """Of so many Gaussian releases: one with σ/√times; none tell nothing."""
    return analytic_gaussian_epsilon(sigma / math.sqrt(times), delta_dp) if times else 0.0
