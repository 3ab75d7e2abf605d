"""The contract of attacks: ``run(upload, seed)`` returns a ``Reconstruction``, and sees no more.

An attack is a frozen dataclass of settings. What it needs and where it ends is declared, so that
tables, the command line and ``check_attack`` can read it; what it learned on the way goes into
``Reconstruction.details``, never onto the attack.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from ..runtime import PrivflError
from ..wire import Upload


@dataclass(frozen=True)
class Reconstruction:
    """What an attacker found behind U uploads of B images each.

    ``cost`` is the attacker's own score, the only thing by which a restart may be chosen: the truth
    is not in reach. ``history`` holds (evaluations so far, images) to watch an attack at work,
    ``details`` what else it found out, by name.
    """

    images: Tensor  # (U·B, C, H, W), upload by upload
    labels: Tensor  # (U·B,)
    cost: Tensor  # (U,), lower is better
    evaluations: int = 1  # of the gradient, per start
    failed: int = 0  # starts that ended without a finite cost
    history: list[tuple[int, Tensor]] = field(default_factory=list, repr=False)
    details: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Attack:
    """What every attack declares; subclasses override ``run``, and call ``check`` first.

    ``needs``: facts that must be granted. ``letter``: the least threat model of Carletti et al.
    (2025) under which it runs. ``answers``: the defenses that it was made against. ``most``: images
    and local steps behind an upload, None where there is no limit.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    letter: ClassVar[str] = "B"
    answers: ClassVar[tuple[str, ...]] = ()
    most: ClassVar[tuple[int | None, int | None]] = (None, None)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """Attack all uploads at once; the same seed gives the same images, up to rounding."""
        raise NotImplementedError(f"{type(self).__name__} has no run")

    def check(self, upload: Upload) -> None:
        """One sentence if this upload is none for this attack."""
        name, got = type(self).__name__, (upload.batch, upload.local_steps)
        if any(limit is not None and n > limit for n, limit in zip(got, self.most, strict=True)):
            want = [
                f"{'any number of' if limit is None else limit} {what}"
                for limit, what in zip(self.most, ("image", "step"), strict=True)
            ]
            raise PrivflError(f"{name} needs {', '.join(want)}; got {got[0]}, {got[1]}")
        for fact in self.needs:
            if fact not in upload.knows.names:
                raise PrivflError(f'{name} needs the fact: grant it with knows=("{fact}",)')
