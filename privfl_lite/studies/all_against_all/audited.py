"""Audit cells: of each row that states an ε, what five one-run audits of one release prove.

The release is that of the row's own noise multiplier, on the canaries of the chapter "Proof,
bound, audit", clipped to their length: there an ε of clipped noise depends on σ alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any

from ...defenses import Defense
from ...privacy import Training, account
from ...privacy import audit as one_run
from ..proof_bound_audit.canaries import CLIP, M, examples, uploads
from ..proof_bound_audit.mechanisms import TENSORS
from .rows import ROWS, SUMMED, build


def audit(settings: dict, cell: dict) -> dict:
    """The ε that the row's defense states of one release, and what the audits find of it."""
    name, how = cell["row"], settings["audit"]
    if name in SUMMED:
        return {"refused": "its noise is that of the row without the sum"}
    defense = clipped(build(settings, name, ROWS[name].data[0], 1.0, 0, 1))
    claim = account(defense, Training(1, tensors=TENSORS), how["delta"])
    if claim.value is None:
        return {"refused": claim.reason}
    release: Callable[..., Any] = examples if claim.unit == "example" else uploads
    found = [
        one_run(
            release(defense, seed=seed), M, how["guesses"], how["delta"], how["confidence"], seed
        )
        for seed in how["seeds"]
    ]
    return {
        "claimed": asdict(claim),
        "audits": [round(made.epsilon, 4) for made in found],
        "p": [float(f"{made.p_value(claim.value):.3g}") for made in found],
    }


def clipped(defense: Defense) -> Defense:
    """The same with each clip at the length of a canary's gradient, or below it."""
    parts = getattr(defense, "parts", (defense,))
    with_clip = [
        replace(part, clip=CLIP) if "clip" in {f.name for f in fields(part)} else part
        for part in parts
    ]
    first, *rest = with_clip
    for part in rest:
        first = first + part
    return first
