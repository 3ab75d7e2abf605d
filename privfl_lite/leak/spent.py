"""ε and the bound on any attacker, where a mechanism is named; else the sentence that none was."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..defenses import Defense
from ..privacy import Training, account, success_bound_of_curve
from ..wire import Upload

DELTA = 1e-5
DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8)  # pairs (ε, δ) that the bound is made of
CANDIDATES = 10
NONE = "no mechanism was named, so no ε and no bound on attackers is claimed"


def privacy(upload: Upload, defense: Defense | None) -> dict[str, Any]:
    """The record of one round with this defense, and the most that any attacker can succeed."""
    if defense is None or type(defense) is Defense:
        return {"defense": None, "epsilon": None, "bound": None, "says": NONE}
    run = Training(
        rounds=1,
        plan=upload.plan,
        examples=upload.batch,
        tensors={n: tuple(t.shape[1:]) for n, t in upload.tensors.items()},
    )
    spent = account(defense, run, DELTA)
    told = {"defense": repr(defense), "epsilon": asdict(spent), "bound": None}
    if spent.value is None:
        return told | {"says": str(spent)}
    pairs = [(account(defense, run, d).value, d) for d in DELTAS]
    curve = [(eps, d) for eps, d in pairs if eps is not None]
    bound = success_bound_of_curve(1 / CANDIDATES, curve)
    says = (
        f"{spent}, for one round, if {defense!r} made this upload; then whoever has to tell one of "
        f"{CANDIDATES} candidates for one {spent.unit} succeeds with probability {bound:.2f} at "
        f"most, and with {1 / CANDIDATES:.2f} by guessing"
    )
    return told | {"bound": {"kappa": 1 / CANDIDATES, "success": bound}, "says": says}
