"""Reference solutions of the challenges that have one: with the package, from what is handed out.

They are here and not in the package, so that ``pip install`` brings none.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import privfl_lite as pf
from privfl_lite.challenges import Handed


def line_up(given: Handed) -> Tensor:
    """The candidate whose own clean gradient is nearest to each upload."""
    assert given.pool is not None and given.pool_labels is not None
    clean = pf.share(given.upload.model, given.pool, given.pool_labels, each=1).tensors
    seen, made = (
        torch.cat([t[n].flatten(1) for n in clean], 1) for t in (given.upload.tensors, clean)
    )
    return torch.cdist(seen, made).argmin(1)


def images(attack: pf.attacks.Attack) -> Callable[[Handed], Tensor]:
    return lambda given: attack.run(given.upload).images


SOLUTIONS: dict[str, Callable[[Handed], Tensor]] = {
    "first-word": lambda given: pf.attacks.infer_label(given.upload).flatten(),
    "one-division": images(pf.attacks.ClosedForm()),
    "head-count": lambda given: pf.attacks.infer_labels(given.upload).flatten(),
    "in-a-crowd": images(pf.attacks.Spear()),
    "no-formula": images(pf.attacks.IDLG(steps=400)),
    "nine-tenths": images(pf.attacks.Unprune(steps=300)),
    "line-up": line_up,
    "four-steps": images(pf.attacks.IDLG(steps=300)),
    "a-gift": images(pf.attacks.ImprintReadout()),
    "lock-without-key": images(pf.attacks.Unlock()),
}
