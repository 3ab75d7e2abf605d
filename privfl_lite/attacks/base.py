"""The contract of attacks: ``run(upload, seed)`` returns a ``Reconstruction``, and sees no more.

An attack is a frozen dataclass of settings. What it needs and where it ends is declared, so that
tables, the command line and ``check_attack`` can read it; what it learned on the way goes into
``Reconstruction.details``, never onto the attack.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from ..arrays import Array, Found
from ..budget import refused_if_full
from ..checking import Checked, check
from ..runtime import PrivflError
from ..values import Either, Kind, Number, Row, Whole
from ..wire import Upload

ONE = Kind(Upload)
SEVERAL = Either((ONE, Row((ONE,), least=1)))
SEED = Number(-(2**63), 2**63 - 1, whole=True)
Costs = Annotated[Tensor, Array("a cost for each upload, (U,)", (1,), finite=False)]
Named = Annotated[Tensor, Array("labels (N,)", (1,), "any", finite=False)]


@dataclass(frozen=True)
class Reconstruction(Checked):
    """What an attacker found behind U uploads of B images each.

    ``cost`` is the attacker's own score, the only thing by which a restart may be chosen: the truth
    is not in reach. ``history`` holds (evaluations so far, images) to watch an attack at work,
    ``details`` what else it found out, by name.
    """

    images: Found  # (U·B, C, H, W), upload by upload
    labels: Named  # (U·B,)
    cost: Costs  # (U,), lower is better
    evaluations: Whole = 1  # of the gradient, per start
    failed: Whole = 0  # starts that ended without a finite cost
    history: list[tuple[Whole, Found]] = field(default_factory=list, repr=False)
    details: Annotated[dict[str, Any], Kind(dict)] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Attack(Checked):
    """What every attack declares; subclasses override ``run``, and call ``check`` first.

    ``needs``: facts that must be granted. ``letter``: the least threat model of Carletti et al.
    (2025) under which it runs. ``rounds``: whether it also takes a list of uploads, rounds of one
    training. ``answers``: the defenses that it was made against. ``most``: images
    and local steps behind an upload, None where there is no limit.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    letter: ClassVar[str] = "B"
    answers: ClassVar[tuple[str, ...]] = ()
    most: ClassVar[tuple[int | None, int | None]] = (None, None)
    rounds: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "run" in vars(cls):
            type.__setattr__(cls, "run", guarded(cls.run))

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """Attack all uploads at once; the same seed gives the same images, up to rounding."""
        raise NotImplementedError(f"{type(self).__name__} has no run")

    def threat(self, upload: Upload) -> str:
        """The threat model: what the attack needs at least, and what the upload grants besides."""
        return max(self.letter, upload.letter[0]) + upload.letter[1:]

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


def together(parts: list[Reconstruction]) -> Reconstruction:
    """What was found behind some uploads after what was behind others, as one."""
    if len(parts) == 1:
        return parts[0]
    films = zip(*(part.history for part in parts), strict=True)
    whole = (torch.cat([getattr(p, n) for p in parts]) for n in ("images", "labels", "cost"))
    images, labels, cost = whole
    return Reconstruction(
        images,
        labels,
        cost,
        evaluations=max(part.evaluations for part in parts),
        failed=sum(part.failed for part in parts),
        history=[(film[0][0], torch.cat([images for _, images in film])) for film in films],
    )


def guarded(run: Callable[..., Reconstruction]) -> Callable[..., Reconstruction]:
    """``run`` of any attack, whose arguments are checked, and whose ends are told in a sentence.

    A tensor that it needs and the upload lacks, equations without a solution, memory that is full.
    """

    @functools.wraps(run)
    def call(self: Attack, upload: Any, seed: int = 0) -> Reconstruction:
        check("upload", upload, SEVERAL if self.rounds else ONE)
        check("seed", seed, SEED)
        name, one = type(self).__name__, upload if isinstance(upload, Upload) else upload[0]
        try:
            with refused_if_full(name):
                return run(self, upload, seed)
        except KeyError as error:
            missing = error.args[0] if error.args else ""
            if missing in one.tensors or missing not in dict(one.model.named_parameters()):
                raise
            raise PrivflError(f"{name} needs {missing!r}, which is not in the upload") from None
        except torch.linalg.LinAlgError as error:
            why = str(error).partition("(")[0].strip()
            raise PrivflError(f"{name} finds no solution for this upload: {why}") from None

    return call
