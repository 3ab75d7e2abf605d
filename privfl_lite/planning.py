"""What a federation will cost, before it runs: bytes, seconds, memory, ε, for any crowd.

    plan = Federation(cohort=1000, population=10**6, rounds=1000)
    print(plan.bytes_up, plan.epsilon)
    for line in plan.lines():  # privfl plan
        print(line.what, line.value, line.unit, line.how)

Every number is counted from what the package sends, or was measured here (``laws``: the studies
million-clients/measured and all-against-all/table), or is a formula with its source; ``Line.how``
says which, and up to where it was measured. Chapter: at a million clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

from . import defenses
from .checking import Checked, checked
from .defenses.masking import BYTES
from .defenses.secure_sum import SecureSum
from .laws import ratios, seconds
from .privacy import Epsilon, Training, account
from .runtime import PrivflError
from .values import Count, Inside, Number, Text, Word
from .wire import Plan

FLOAT = 4  # bytes of a number in an upload, and in the model that goes down
LENET, TENSORS = 13_426, 8  # numbers and tensors in an upload of the study's clients
SURE = 40  # bits: a graph of masks fails with probability 2^-40 at most
CORRUPT, LOST = 0.2, 0.2  # shares of a client's neighbors that a graph of masks is laid out for
Share = Annotated[float, Number(0, 0.45)]
Rate = Annotated[float, Number(0, 1e9, open="low")]  # Mbit/s, or seconds
EACH = "bytes per client and round"
SUMS = ("none", "pairs", "graph")


@checked
def neighbors(clients: Count, corrupt: Share = CORRUPT, lost: Share = LOST) -> int:
    """With how many others each client agrees on masks in a random graph, so that all goes well.

    Bell et al. (2020): a regular graph of logarithmic degree does for the complete one of Bonawitz
    et al. This number suffices by prop-million-neighbors, up to 2^−40, while a share ``corrupt`` of
    the others works with the server and a share ``lost`` drops out; it is even, or everybody else.
    """
    gap, unlucky = (1 - corrupt - lost) / 2, corrupt + lost
    shares = (math.log(4 * clients) + SURE * math.log(2)) / (2 * gap**2)
    apart = (math.log(2 * clients) + SURE * math.log(2)) / -math.log(unlucky) if unlucky else 1.0
    return min(clients - 1, 2 * math.ceil(max(shares / 2, apart)))


class Summing(NamedTuple):
    """One client's part in one round of a secure sum, counted as ``SecureSum`` does it.

    Bonawitz et al. (2017): each client agrees with ``others`` on masks. Encryption of shares,
    signatures and lists of names come on top in a real protocol, and are not counted.
    """

    others: int
    threshold: int  # shares that bring a secret back
    numbers: int  # that are masked: an upload's and its weight

    @property
    def bytes_up(self) -> int:
        """A public key, two shares for each other one, masked numbers, a share of each secret."""
        return BYTES * (1 + 2 * self.others + 1 + self.others) + self.bytes_masked

    @property
    def bytes_down(self) -> int:
        """Public keys of the others, and two shares from each."""
        return BYTES * 3 * self.others

    @property
    def bytes_masked(self) -> int:
        """Whole numbers of ``SecureSum.bits``, however many zeros the upload had."""
        return self.numbers * SecureSum().bits // 8

    @property
    def seconds_client(self) -> float:
        """Agreements and masks, and the cutting of two secrets; by the laws fitted to one core."""
        law, terms = seconds(), 2 * (self.others + 1) * (self.threshold - 1)
        masks = (self.others + 1) * self.numbers * law["mask_number"]
        return self.others * law["agreement"] + masks + terms * law["share_term"]

    def seconds_server(self, clients: int) -> float:
        """Shares put together and own masks taken off, for so many clients, nobody lost."""
        law = seconds()
        each = self.threshold * law["recover_share"] + self.numbers * law["recover_number"]
        return clients * each


class Line(NamedTuple):
    """One number of a plan, with its unit and where it comes from."""

    what: str
    value: float | None
    unit: str
    how: str


@dataclass(frozen=True)
class Federation(Checked):
    """FedAvg as it is planned: ``cohort`` of ``population`` clients in each of ``rounds``.

    ``numbers``: of an upload, 32 bits each. ``mbit``: of a client's link, Mbit/s each way.
    ``train``: seconds one undefended client trains (None: the study's LeNet on one of our cores).
    ``defense``: as the command line writes it, without a secure sum; that is ``summing``: "none",
    "pairs" (everybody with everybody, as ``SecureSum``) or "graph" (Bell et al.). ``sampling``
    "fixed": clients take turns, so that none is asked more than ⌈rounds · cohort / population⌉
    times; "poisson": each is drawn by coins, the sum is divided by the expected number. ``plan``
    and ``examples``: local training. ``delta``: a tenth of one over the population by default.
    """

    cohort: Count
    population: Count
    rounds: Count = 1
    numbers: Count = LENET
    mbit: Rate = 10.0
    train: Rate | None = None
    defense: Text = "none"
    summing: Annotated[str, Word("secure sum", *SUMS)] = "none"
    sampling: Annotated[str, Word("sampling", "fixed", "poisson")] = "fixed"
    plan: Plan = field(default_factory=Plan)
    examples: Count = 20
    delta: Inside | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cohort > self.population:
            raise PrivflError(
                f"a cohort of {self.cohort:,} is more than the population of {self.population:,}"
            )
        if self.summing != "none" and self.cohort < 3:
            raise PrivflError("a secure sum of fewer than three clients hides nobody; take more")
        if "secure_sum" in self.defense:
            raise PrivflError("leave secure_sum out of the defense; say summing='pairs' or 'graph'")
        defenses.build(self.defense)

    @property
    def turns(self) -> int:
        """In how many rounds a client is at most, where they take turns."""
        return -(-self.rounds * self.cohort // self.population)

    @property
    def masks(self) -> Summing | None:
        """What the secure sum asks of one client; None without one."""
        size, n = 1 + self.numbers, self.cohort
        if self.summing == "none":
            return None
        if self.summing == "graph" and (k := neighbors(n)) < n - 1:
            return Summing(k, k // 2, size)  # half: as far from 0.2 as from 1 − 0.2
        return Summing(n - 1, SecureSum().needed(n), size)

    @property
    def bytes_down(self) -> int:
        """To one client in one round."""
        return FLOAT * self.numbers + (self.masks.bytes_down if self.masks else 0)

    @property
    def bytes_up(self) -> int:
        """From one client in one round: with masks every number leaves, zeros included."""
        dense = FLOAT * self.numbers
        return self.masks.bytes_up if self.masks else round(dense * ratios(self.defense).bytes)

    @property
    def bytes_all(self) -> int:
        """Both ways, of all clients in all rounds."""
        return self.rounds * self.cohort * (self.bytes_up + self.bytes_down)

    @property
    def seconds_link(self) -> float:
        return 8e-6 * (self.bytes_down + self.bytes_up) / self.mbit

    @property
    def seconds_client(self) -> float:
        """Training, defending and masking of one client in one round."""
        bare = seconds()["client"] if self.train is None else self.train
        return bare * ratios(self.defense).time + (self.masks.seconds_client if self.masks else 0.0)

    @property
    def seconds_server(self) -> float:
        """One core adds a round's uploads up; with masks it also takes them off."""
        law = seconds()
        adding = self.cohort * (self.numbers * law["add_number"] + TENSORS * law["add_tensor"])
        taken_off = self.masks.seconds_server(self.cohort) if self.masks else 0.0
        return law["round"] + adding + taken_off

    @property
    def memory(self) -> int:
        """Bytes of the model, the running sum and one upload: all that ``rounds.Mean`` needs."""
        return 3 * FLOAT * self.numbers

    @property
    def memory_kept(self) -> int:
        """Bytes of model and sum and all uploads, where a server waits for the last one."""
        return (2 + self.cohort) * FLOAT * self.numbers

    @property
    def training(self) -> Training:
        """These rounds, as far as ε depends on them."""
        poisson = self.sampling == "poisson"
        return Training(
            *(self.rounds, self.population, self.cohort, self.sampling),
            "fixed" if poisson else "uniform",
            self.plan,
            self.examples,
            self.rounds if poisson else self.turns,
        )

    @property
    def epsilon(self) -> Epsilon:
        """What ``privacy.account`` says of this defense in these rounds."""
        made = defenses.build(self.defense)
        made = made if self.masks is None else made + SecureSum()
        return account(made, self.training, self.delta or 0.1 / self.population)

    def lines(self) -> list[Line]:
        """The plan, line by line."""
        found, law, masks = ratios(self.defense), seconds(), self.masks is not None
        far = ", extrapolated" if self.cohort > law["largest"] else ""
        sums = f"; masks: a law fitted up to {law['sums']:,.0f} clients" if masks else ""
        sums += ", extrapolated" if masks and self.cohort > law["sums"] else ""
        dense = f"counted × {found.bytes:g} ({found.source})"
        bare = "one core of ours" if self.train is None else "yours"
        spent = self.epsilon
        return [
            Line("down", self.bytes_down, EACH, "counted"),
            Line("up", self.bytes_up, EACH, "counted, keys and shares too" if masks else dense),
            Line("into the server", self.cohort * self.bytes_up, "bytes per round", "up × cohort"),
            Line("both ways, in all", self.bytes_all, "bytes", "× cohort × rounds"),
            Line("on a link", self.seconds_link, "s per client and round",
                 f"bytes at {self.mbit:g} Mbit/s"),
            Line("a client computes", self.seconds_client, "s per client and round",
                 f"{bare} × {found.time:g} ({found.source}){sums}"),
            Line("the server computes", self.seconds_server, "s of one core per round",
                 f"a law fitted up to {law['largest']:,.0f} clients{far}{sums}"),
            Line("server's memory", self.memory, "bytes", "counted: model, sum, one upload"),
            Line("if it keeps uploads", self.memory_kept, "bytes", "counted"),
            *(Line("ε", e.value, f"per {e.unit}, δ = {e.delta:.2g}", str(replace(e, also=())))
              for e in (spent, *spent.also)),
        ]  # fmt: skip
