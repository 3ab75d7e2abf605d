"""Laws fitted to what was measured: seconds of a number added, masked, shared; ratios of a defense.

From the studies million-clients/measured and all-against-all/table, for ``planning``. A law is a
sum of terms with positive factors, fitted so that relative errors are least; ``misfit`` says how
far it is off at worst where it was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .defenses import SecureSum
from .errors import PrivflError
from .studies import STUDIES

MEASURED, TABLE = "million-clients/measured", "all-against-all/table"


def cells(part: str, **wanted: Any) -> list[dict[str, Any]]:
    """The measured cells of one part, by number of clients."""
    wanted = {"part": part, **wanted}
    found = [c for c in STUDIES[MEASURED].show()["cells"] if c and wanted.items() <= c.items()]
    return sorted(found, key=lambda c: c["clients"])


def fitted(terms: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[list[float], float]:
    """Factors ≥ 0 of the terms, least relative squares; and the largest relative error."""
    from scipy.optimize import nnls  # slow to import

    rows = np.array(terms, dtype=float) / np.array(values, dtype=float)[:, None]
    scale = np.abs(rows).max(0)
    factors, _ = nnls(rows / scale, np.ones(len(rows)))
    factors = factors / scale
    return factors.tolist(), float(np.abs(rows @ factors - 1).max())


@lru_cache(maxsize=1)
def _fits() -> tuple[dict[str, float], dict[str, float]]:
    rule = STUDIES[MEASURED].show()["settings"]
    law: dict[str, float] = {}
    misfit: dict[str, float] = {}

    def fit(part: str, value: str, *names: str) -> None:
        parts = cells(part)
        found, misfit[part] = fitted([TERMS[part](c) for c in parts], [c[value] for c in parts])
        law.update(zip(names, found, strict=True))

    fit("mean", "seconds_server", "add_number", "add_tensor", "round")
    fit("masks", "seconds_client", "agreement", "mask_number")
    fit("shares", "seconds_client", "share_term")
    fit("unmask", "seconds_server", "recover_share", "recover_number")
    law["client"] = cells("run", net="lenet")[-1]["seconds_client"]
    law |= {"largest": max(rule["clients"]["mlp"]), "sums": max(rule["unmask"])}
    return law, misfit


def least(clients: int) -> int:
    """Shares that bring a secret back, of so many."""
    return SecureSum().needed(clients)


TERMS: dict[str, Callable[[dict], tuple[float, ...]]] = {  # a cell -> what its seconds are a sum of
    "mean": lambda c: (c["clients"] * c["numbers"], c["clients"] * c["tensors"], 1),
    "masks": lambda c: (c["clients"] - 1, c["clients"] * (c["numbers"] + 1)),
    "shares": lambda c: (2 * c["clients"] * (least(c["clients"]) - 1),),
    "unmask": lambda c: (c["clients"] * least(c["clients"]), c["clients"] * (c["numbers"] + 1)),
}


def seconds() -> dict[str, float]:
    """Seconds of one core: of a "client" that trains, of a number, key or share by its name."""
    return _fits()[0]


def misfit() -> dict[str, float]:
    """How far each law is off at worst, as a share, where it was measured."""
    return _fits()[1]


class Ratios(NamedTuple):
    """Time and bytes of a client with a defense over those without, and where they are from."""

    time: float
    bytes: float
    source: str


@lru_cache(maxsize=64)
def ratios(defense: str) -> Ratios:
    """As measured for this defense at one setting; one sentence where it never was."""
    if defense == "none":
        return Ratios(1.0, 1.0, "no defense")
    stored = STUDIES[TABLE].show()
    rows: dict[str, str] = stored["settings"]["rows"]
    cost = {c["row"]: c for c in stored["cells"] if c and c["part"] == "cost"}
    same = [r for r, text in rows.items() if r in cost and text == defense]
    kind = [r for r, text in rows.items() if r in cost and _names(text) == _names(defense)]
    if not (found := same or kind):
        raise PrivflError(
            f"time and bytes of {defense} were not measured; those of {', '.join(cost)} were"
        )
    row = cost[found[0]]
    source = f"measured: {found[0]}" + ("" if same else ", at its own settings")
    return Ratios(row["time_ratio"], row["bytes_ratio"], source)


def _names(text: str) -> list[str]:
    return [part.partition(":")[0] for part in text.split("+")]
