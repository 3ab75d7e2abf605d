"""What other studies say of the rows of "All against all": audits of each ε, accuracy in color."""

from __future__ import annotations

import statistics
from typing import Any

from ..studies import STUDIES
from . import judgment
from .tables import Spread


def stated() -> list[dict[str, Any]]:
    """Rows that state an ε of one release: the claim, and what five one-run audits prove of it."""
    lines = []
    for name in judgment.rows():
        cell = judgment.find(part="audit", row=name)
        if cell and "audits" in cell:
            claim, found = cell["claimed"], sorted(cell["audits"])
            line = {"defense": name, "unit": claim["unit"], "ε claimed": claim["value"]}
            line |= {"ε audited": Spread(statistics.median(found), found[0], found[-1])}
            lines.append(line | {"least p": min(cell["p"])})
    return lines


PAPERS = {  # row -> an ε that its paper prints, as the study of audits holds it against what runs
    "POGZ-FL": "POGZ-FL as released, one number a tensor",
    "CA-FL": "CA-FL, the ε of one measurement",
}


def refuted() -> list[dict[str, Any]]:
    """Claims of papers on rows of the table, refuted by audits of a setting of their own."""
    lines: list[dict[str, Any]] = []
    own = STUDIES["proof-bound-audit/mechanisms"].show()["cells"]
    for name, case in PAPERS.items():
        cell = next(c for c in own if c["case"] == case)
        found = sorted(a["epsilon"] for a in cell["audits"])
        line = {"defense": name, "what is claimed": case, "ε claimed": cell["claimed"]}
        line |= {"ε audited": Spread(statistics.median(found), found[0], found[-1])}
        lines.append(line | {"most p": max(a["p"] for a in cell["audits"])})
    return lines


def color_accuracy(name: str) -> Spread | None:
    """Of the study loda/training: CIFAR-10, LeNet, ten clients with 500 pictures between them."""
    arm = {"part": "train", "scheme": "federated", "arm": name}
    own = STUDIES["loda/training"].show()["cells"]
    found = next((c["spread"] for c in own if c and arm.items() <= c.items()), None)
    return Spread(found["mean"], *found["interval"]) if found else None
