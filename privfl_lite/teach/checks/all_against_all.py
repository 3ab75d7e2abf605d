"""Checks for the exercises of "All against all": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...metrics import spread, wilson
from ...privacy.bounds import success_bound
from ...runtime import generator
from ..check import TRIALS, Wrong, begun, close, exercise, number

Point = tuple[float, float]  # share named, accuracy
Measured = tuple[int, int, Sequence[float]]  # images named, of how many, accuracy of each seed


@exercise("That is the most that any attacker can name, whatever it tries.")
def check_bound(bound: Callable[[float, float], float]) -> None:
    """``bound(kappa, sigma)``: Φ(Φ⁻¹(κ) + 1/σ)."""
    for kappa, sigma in ((0.01, 1.0), (0.1, 2.0), (0.5, 0.7), (0.01, 5.0)):
        found, right = number(bound(kappa, sigma), "the bound"), success_bound(kappa, sigma)
        if close(found, right, 1e-6):
            continue
        if close(found, kappa, 1e-9):
            raise Wrong("that is the chance of a guess; the upload adds 1/σ to its quantile")
        if found < kappa:
            raise Wrong("an attacker who ignores the upload has κ, so the bound is not below it")
        raise Wrong(f"for κ = {kappa:g} and σ = {sigma:g} it is not {found:.4g}")


def _points(trial: int) -> dict[str, Point]:
    values = torch.randint(6, (7, 2), generator=generator(trial)).tolist()  # with ties
    return {chr(97 + i): (leak / 5, accuracy / 5) for i, (leak, accuracy) in enumerate(values)}


def front_of(points: Mapping[str, Point]) -> set[str]:
    """Names of the points that no other one dominates."""

    def beaten(a: Point) -> bool:
        return any(b != a and b[0] <= a[0] and b[1] >= a[1] for b in points.values())

    return {name for name, point in points.items() if not beaten(point)}


@exercise("Whatever privacy and accuracy are worth to you, you choose one of these.")
def check_front(front: Callable[[dict[str, Point]], Any]) -> None:
    """``front(points)``: name -> (share named, accuracy); the names that nothing dominates."""
    for trial in range(TRIALS):
        points = _points(trial)
        found, right = _names(front(dict(points))), front_of(points)
        if found == right:
            continue
        if found < right and any(points[n] == points[m] for n in right - found for m in points):
            raise Wrong("two equal points do not dominate each other: one of two must be better")
        if right < found:
            extra = min(found - right)
            raise Wrong(f"{extra!r} is dominated: another one leaks no more and knows no less")
        raise Wrong(f"of {points} it is {sorted(right)}, not {sorted(found)}")


def _names(answer: Any) -> set[str]:
    try:
        return set(begun(answer))
    except TypeError:
        raise Wrong(f"give the names, as a list or a set; got {answer!r}") from None


def _measured(trial: int) -> dict[str, Measured]:
    rng = generator(100 + trial)
    rows: dict[str, Measured] = {}
    for name in "abcdef":
        of = int(torch.randint(12, 60, (), generator=rng))
        hits = int(torch.randint(of + 1, (), generator=rng))
        middle = 0.3 + 0.6 * torch.rand((), generator=rng).item()
        noise = 0.02 * torch.randn(3, generator=rng)
        rows[name] = (hits, of, [round(middle + v, 4) for v in noise.tolist()])
    return rows


def certainly_beaten(rows: Mapping[str, Measured]) -> set[str]:
    """Names of rows that another one beats on both axes with intervals apart."""
    boxes = {
        name: (*wilson(hits, of), *spread(list(accuracy))["interval"])
        for name, (hits, of, accuracy) in rows.items()
    }
    return {
        name
        for name, (least, _, _, best) in boxes.items()
        if any(leak < least and low > best for _, leak, low, _ in boxes.values())
    }


@exercise("These you may strike from the list; of all others the table cannot say.")
def check_certain(certain: Callable[[dict[str, Measured]], Any]) -> None:
    """``certain(rows)``: name -> (hits, of, accuracies); names beaten with intervals apart."""
    for trial in range(TRIALS):
        rows = _measured(trial)
        found, right = _names(certain(dict(rows))), certainly_beaten(rows)
        if found == right:
            continue
        points = {n: (h / of, sum(a) / len(a)) for n, (h, of, a) in rows.items()}
        if found == points.keys() - front_of(points):
            raise Wrong("those are dominated in the middle; ask whether the intervals are apart")
        if right < found:
            raise Wrong(f"{min(found - right)!r} may still be as good: its intervals touch others'")
        raise Wrong(f"{min(right ^ found)!r} is wrong: compare the far ends of both intervals")
