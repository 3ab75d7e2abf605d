"""The study all-against-all/table, as its two chapters read it: one ``Judged`` for each defense."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..metrics import clustered, spread
from ..studies import STUDIES
from .tables import Spread

NAME = "all-against-all/table"
Cell = dict[str, Any]
SOLVERS = ("closed form", "recursive", "before_draw", "unmix", "pair", "unlock")  # no search
GUESSED = 1e-3  # so rarely would guesses name as many
# Strength of the evidence, strongest first, and the rule by which a row has it.
EVIDENCE = {
    "proved": "a bound holds for every attacker, and it is below one half",
    "read": "an attack without any search names more than guesses do, by pixels or by features",
    "found": "a search names more than guesses do, by pixels or by features",
    "not found": "no attacker tried names more than guesses do, and no bound says why",
}


@lru_cache(maxsize=1)
def result() -> dict:
    return STUDIES[NAME].show()


def rows() -> list[str]:
    """The names of all rows that were attacked on some data, in the order of the study."""
    return [name for name in result()["settings"]["rows"] if any(on(name, d) for d in data())]


def data() -> list[str]:
    return list(result()["settings"]["data"])


def find(**wanted: Any) -> Cell | None:
    """The stored cell with these settings, if it was computed."""
    cells = (c for c in result()["cells"] if c)
    return next((c for c in cells if wanted.items() <= c.items()), None)


def on(row: str, data: str, attacker: str = "informed") -> Cell | None:
    """The attack cell, unless the defense does not take these images."""
    cell = find(part="attack", row=row, data=data, attacker=attacker)
    return cell if cell and "networks" in cell else None


def share(cell: Cell, by: str = "pixels", guess: bool = False) -> Spread:
    """Share of images named among the gallery, with an interval clustered by network."""
    networks = [n["blind"] if guess else n for n in cell["networks"]]
    hits, counts = [n[f"named_{by}"] for n in networks], [len(n["psnr"]) for n in networks]
    return Spread(sum(hits) / sum(counts), *clustered(hits, counts))


def psnr(cell: Cell) -> Spread:
    """The median over images, and the quarters below and above it."""
    low, middle, high = statistics.quantiles(
        (v for n in cell["networks"] for v in n["psnr"]), n=4, method="inclusive"
    )
    return Spread(middle, low, high)


@dataclass(frozen=True)
class Judged:
    """One row: what its attackers name on one data set, and what else the study has of it."""

    name: str
    data: str = "mnist"

    @property
    def text(self) -> str:
        return result()["settings"]["rows"][self.name]

    def cell(self, attacker: str) -> Cell | None:
        return on(self.name, self.data, attacker)

    def named(self, attacker: str = "best", by: str = "pixels") -> Spread | None:
        """By one attacker; "best": the larger share of the two."""
        kinds = ("plain", "informed") if attacker == "best" else (attacker,)
        found = [share(c, by) for kind in kinds if (c := self.cell(kind))]
        return max(found, key=lambda s: s.value, default=None)

    @property
    def blind(self) -> Spread | None:
        cell = self.cell("informed")
        return share(cell, guess=True) if cell else None

    @property
    def best(self) -> str:
        """The attacker who names more; of equals, the one who knows the defense."""
        plain, informed = (self.named(kind) for kind in ("plain", "informed"))
        return "plain" if plain and informed and plain.value > informed.value else "informed"

    @property
    def psnr(self) -> Spread | None:
        cell = self.cell(self.best)
        return psnr(cell) if cell else None

    @property
    def letter(self) -> str | None:
        cell = self.cell(self.best)
        return cell["letter"] if cell else None

    @property
    def accuracies(self) -> list[float]:
        """Of each seed; DCS²'s are those of its own study, in the same setting."""
        cell = find(part="train", row=self.name) or {}
        if "refused" in cell and self.name == "DCS²":
            where = {"data": "mnist", "split": "iid", "defended": "all", "defense": "DCS²"}
            own = STUDIES["dcs2/training"].show()["cells"]
            return next(c["test"] for c in own if where.items() <= c.items())
        return cell.get("accuracy", [])

    @property
    def accuracy(self) -> Spread | None:
        """On held-out digits, every client defended: mean and Student's interval over seeds."""
        found = self.accuracies
        if not found:
            return None
        told = spread(found)
        low, high = told["interval"] or (told["mean"],) * 2
        return Spread(told["mean"], low, high)

    @property
    def epsilon(self) -> Cell | None:
        """The record of the run; its "value" may be None, and then it has a "reason"."""
        cell = find(part="train", row=self.name)
        if not cell or "epsilon" not in cell:
            return None
        least, most = min(cell["rounds"]), max(cell["rounds"])
        if least < result()["settings"]["train"]["rounds"]:
            why = f"the training diverged after {least} to {most} rounds, so no run has an ε"
            return {"value": None, "reason": why}
        return cell["epsilon"]

    @property
    def bound(self) -> float | None:
        """The most that any attacker can name of one upload of one image."""
        cell = find(part="promise", row=self.name)
        return cell["bound"] if cell else None

    @property
    def reason(self) -> str:
        """Why there is no bound."""
        cell = find(part="promise", row=self.name)
        return cell.get("reason", "") if cell else ""

    def cost(self, of: str) -> float | None:
        """ "time" or "bytes" of a client, over those without a defense."""
        cell = find(part="cost", row=self.name)
        return cell[f"{of}_ratio"] if cell else None

    @property
    def solver(self) -> str:
        """What the best attacker is: the tool chosen most often, or the informed one's name."""
        if self.best == "informed":
            return result()["settings"]["informed"][self.name].partition(":")[0]
        count: dict[str, int] = {}
        for network in (self.cell("plain") or {"networks": []})["networks"]:
            for tool, n in network["chosen"].items():
                count[tool] = count.get(tool, 0) + n
        return max(count, key=lambda tool: count[tool])

    @property
    def leaks(self) -> bool:
        """Whether one judge names more than one in a thousand tables of guesses would show."""
        from scipy.stats import binom  # slow to import

        cell = self.cell(self.best)
        if not cell:
            return False
        count = sum(len(n["psnr"]) for n in cell["networks"])
        for by in ("pixels", "features"):
            hits = sum(n[f"named_{by}"] for n in cell["networks"])
            guess = max(share(cell, by, guess=True).value, 1 / self.gallery)
            if binom.sf(hits - 1, count, guess) < GUESSED:
                return True
        return False

    @property
    def gallery(self) -> int:
        return result()["settings"]["gallery"]

    @property
    def evidence(self) -> str:
        """Which of ``EVIDENCE`` this row has."""
        if self.bound is not None and self.bound < 0.5:
            return "proved"
        if not self.leaks:
            return "not found"
        return "read" if self.solver in SOLVERS else "found"


def judged(data: str = "mnist") -> list[Judged]:
    """All rows that take these images."""
    return [Judged(name, data) for name in rows() if on(name, data)]


def control() -> Judged:
    return Judged("none")


def command(**cell: Any) -> str:
    """How a cell is computed again."""
    said = " ".join(f'{key}="{value}"' for key, value in cell.items())
    return f"privfl study cell {NAME} {said}"


def line(row: Judged) -> dict[str, Any]:
    """The row in the book's table: one number in a cell."""
    epsilon = row.epsilon or {"value": None}
    return {
        "defense": row.name,
        "plain": row.named("plain"),
        "informed": row.named("informed"),
        "features": row.named("best", "features"),
        "PSNR": row.psnr,
        "accuracy": row.accuracy,
        "ε": epsilon["value"],
        "bound": row.bound,
        "time": row.cost("time"),
        "bytes": row.cost("bytes"),
        "letter": row.letter,
        "evidence": row.evidence,
    }


SUMS = "secure_sum"  # in the text of a row: it needs many clients in a round


def remaining(active: bool, proof: bool, lost: float, many: bool) -> list[Judged]:
    """Rows that a deployment may still choose: nothing that was read or found on digits.

    ``active``: the server may change the model; then only a proof holds, which does not ask what
    the weights were. ``proof``: "not found" is not enough. ``lost``: so much accuracy may go.
    ``many``: whether there are ten clients or more in a round.
    """
    base, kept = control().accuracy, []
    for row in judged():
        safe = row.evidence == "proved" or (row.evidence == "not found" and not (active or proof))
        learned = row.accuracy and base and row.accuracy.value >= base.value - lost
        if safe and learned and (many or SUMS not in row.text):
            kept.append(row)
    return kept
