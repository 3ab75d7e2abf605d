"""Which attackers are tried, in which order, and how the seconds are divided among them.

Algebra comes first, for it ends by itself; then what unmixes a batch; then searches, which share
the seconds that are left. How many evaluations fit is measured on a short run, so by a clock the
number differs from machine to machine; ``evaluations=`` fixes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import nn

from ..attacks import ATTACKS, INFORMED, Attack, Reconstruction, build
from ..attacks.matching.epochs import is_open
from ..batches import Data
from ..runtime import PrivflError
from ..wire import Upload
from .record import Attempt
from .recursion import too_long
from .scores import SHARP, consistency, is_found, paired, percent, truth_scores

ALGEBRA = ("closed_form", "recursive")
UNMIXING = ("spear", "components")
LONGER = 5  # so many evaluations more has the longer of two short runs
FEWEST = 10  # evaluations with which a search is worth a name
RESTARTS = 8
PROPOSALS = 4096  # of SPEAR, at a time


class TooSlow(PrivflError):
    """Too few evaluations fit into the seconds."""


@dataclass(frozen=True)
class Budget:
    """Seconds for all attackers together, or evaluations for each search."""

    seconds: float
    evaluations: int | None = None


def chosen(upload: Upload, defense: str | None, asked: Sequence[str] | None) -> list[str]:
    """Names of the attackers to try, in order."""
    if asked is not None:
        return list(asked)
    names = [*ALGEBRA, *(UNMIXING if upload.batch > 1 else ())]
    if defense in INFORMED and defense != "none":
        names += [n for n, kind in ATTACKS.items() if kind is INFORMED[defense]]
    names += ["epochs"] if is_open(upload) else []
    return list(dict.fromkeys([*names, "idlg", "gs"]))


def left_out(names: Sequence[str]) -> list[str]:
    """Attackers of the registry that were not tried."""
    tried = {name.partition(":")[0] for name in names}
    return [name for name in ATTACKS if name not in tried]


@dataclass
class Trials:
    """One attacker after the other; what is done by an interruption is kept in ``done``."""

    upload: Upload
    budget: Budget
    seed: int
    data: Data | None
    gallery: Any
    show: bool
    guess: float = 1.0  # the misfit of a blind guess

    def run(self, names: Sequence[str]) -> Iterator[Attempt]:
        """The attempts, as they end."""
        began, left = time.perf_counter(), list(names)
        while left:
            name = left.pop(0)
            rest = self.budget.seconds - (time.perf_counter() - began)
            weights = [self.weight(n) for n in (name, *left)]
            share = weights[0] / sum(weights) if weights[0] else 1.0
            yield self.attempt(name, rest * share)

    def weight(self, name: str) -> int:
        """A search's part of the seconds; L-BFGS, made for smooth networks, gets less at a ReLU."""
        tool = build(name)
        if not _is_search(tool):
            return 0
        relu = any(isinstance(m, nn.ReLU) for m in self.upload.model.modules())
        return 1 if relu and getattr(tool, "optimizer", "") == "lbfgs" else 3

    def attempt(self, name: str, seconds: float) -> Attempt:
        """One attacker within so many seconds, or the sentence that says why not."""
        tool = build(name)
        letter = tool.threat(self.upload)
        short = name.partition(":")[0]
        try:
            if self.budget.evaluations is None and seconds <= 0:
                return Attempt(short, "not tried", "not tried: the budget was spent", letter)
            if short == "recursive" and (why := too_long(self.upload, seconds)):
                return Attempt(short, "not tried", f"not tried: {why}", letter)
            tool = self.fitted(tool, seconds)
            began = time.perf_counter()
            found = tool.run(self.upload, seed=self.seed)
            spent = time.perf_counter() - began
        except TooSlow as error:
            return Attempt(short, "not tried", f"not tried: {error}", letter)
        except PrivflError as error:
            return Attempt(short, "does not apply", f"does not apply: {error}", letter)
        return self.judged(short, tool, found, letter, spent)

    def fitted(self, tool: Attack, seconds: float) -> Attack:
        """The attacker with as many evaluations as fit into its seconds."""
        has = {f.name for f in fields(tool)}
        tool = _with(tool, show=self.show, compile=False)
        size = "steps" if _is_search(tool) else "proposals"
        if size not in has:
            return tool
        most = getattr(tool, size)
        if (fixed := self.budget.evaluations) is not None:
            return _with(tool, steps=min(most, fixed))
        least = 1 if size == "steps" else PROPOSALS
        each, spent = self.pace(_with(tool, show=False), size, least, seconds)
        fit = int((seconds - spent) / each)
        if size == "proposals":
            return _with(tool, proposals=max(PROPOSALS, min(most, fit)))
        if fit < FEWEST:
            raise TooSlow(
                f"one evaluation takes {each:.2g} s here, so {max(fit, 0)} fit into its part of "
                "the budget; give more seconds"
            )
        return _with(tool, steps=min(most, fit), restarts=max(1, min(RESTARTS, fit // most)))

    def pace(self, tool: Attack, size: str, least: int, seconds: float) -> tuple[float, float]:
        """Seconds for one evaluation, from a shortest run and a longer one, and what both took."""
        times = []
        for n in (least, (1 + LONGER) * least):
            began = time.perf_counter()
            _with(tool, **{size: n}).run(self.upload, seed=self.seed)
            times.append(time.perf_counter() - began)
            if times[0] > seconds / 20:
                return times[0] / least, times[0]
        each = max(times[1] - times[0], times[1] / 10) / (LONGER * least)
        return each, sum(times)

    def judged(
        self, name: str, tool: Attack, found: Reconstruction, letter: str, spent: float
    ) -> Attempt:
        found = paired(self.upload, found)
        misfit, cosine = consistency(self.upload, found)
        told: dict[str, Any] = {}
        if self.data is not None:
            found, told = truth_scores(found, self.data, self.upload.batch, self.gallery, self.seed)
        hit = is_found(misfit, self.guess, told.get("psnr", ()))
        return Attempt(
            name,
            "found" if hit else "not found",
            sentence(hit, misfit, told.get("psnr", []), spent),
            letter,
            settings=repr(tool),
            seconds=round(spent, 2),
            evaluations=found.evaluations,
            cost=tuple(float(f"{c:.4g}") for c in found.cost.tolist()),
            misfit=tuple(misfit),
            cosine=tuple(cosine),
            labels=tuple(found.labels.tolist()),
            images=found.images.detach().cpu(),
            **{k: tuple(v) for k, v in told.items()},
        )


def sentence(hit: bool, misfit: list[float], psnr: list[float], spent: float) -> str:
    """What came out, in a line."""
    off = f"reproduces the upload to {percent(min(misfit))} of its length, {taken(spent)}"
    if not psnr:
        return f"{'found: ' if hit else 'not found: what it has '}{off}"
    sharp = sum(p >= SHARP for p in psnr)
    best = f"best PSNR {max(psnr):.1f} dB, {off}"
    if hit:
        return f"found {sharp} of {len(psnr)} at {SHARP:g} dB or more: {best}"
    return f"not found: {best}"


def taken(seconds: float) -> str:
    """Seconds, for people."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else "under 0.1 s"


def _with(tool: Attack, **settings: Any) -> Attack:
    """The attacker with those of the settings that it has."""
    has = {f.name for f in fields(tool)}
    kept: dict[str, Any] = {k: v for k, v in settings.items() if k in has}
    return replace(tool, **kept)


def _is_search(tool: Attack) -> bool:
    return any(f.name == "steps" for f in fields(tool)) and any(
        f.name == "show" for f in fields(tool)
    )
