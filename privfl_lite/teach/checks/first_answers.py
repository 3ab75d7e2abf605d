"""Checks for the exercise of "First answers in one table": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...metrics import wilson
from ...runtime import generator
from ..check import Wrong, begun, close, exercise

FOUND = 20.0  # dB
Scores = Sequence[float]


def _cases() -> list[tuple[list[float], list[float], list[float]]]:
    """Scores of the plain, the informed and the undefended attack, one case for each way to err."""
    rng = generator(3)

    def draw(center: float, n: int = 9) -> list[float]:
        return (center + 3 * torch.randn(n, generator=rng)).tolist()

    apart = [30.0, 5.0, 30.0, 5.0, 5.0, 5.0], [5.0, 30.0, 5.0, 30.0, 5.0, 5.0]
    return [
        (draw(6), draw(45), draw(60)),
        (draw(6), draw(7), draw(60)),
        (draw(6), draw(7), draw(9)),
        (draw(40), draw(6), draw(60)),  # the plain one is the better
        (*apart, [60.0] * 6),  # each alone finds a third, both together two thirds
        ([20.0, 5.0], [5.0, 5.0], [60.0, 60.0]),  # exactly 20 dB, exactly half
    ]


@exercise("The better attacker, image by image, and what it can do without a defense.")
def check_verdict(verdict: Callable[[Scores, Scores, Scores], tuple[str, float, float]]) -> None:
    """``verdict(plain, informed, undefended)`` -> (word, low, high)."""
    for plain, informed, undefended in _cases():
        answer: Any = begun(verdict(list(plain), list(informed), list(undefended)))
        if not isinstance(answer, tuple | list) or len(answer) != 3:
            raise Wrong("return three things: the word, and both ends of the interval")
        word, low, high = answer
        n = len(plain)
        hits = sum(max(a, b) >= FOUND for a, b in zip(plain, informed, strict=True))
        weak = 2 * sum(u >= FOUND for u in undefended) < n
        right = "found" if 2 * hits >= n else "no evidence" if weak else "not found"
        alone = sum(b >= FOUND for b in informed)
        if not close(torch.tensor([low, high]), torch.tensor(wilson(hits, n)), atol=1e-3):
            if close(torch.tensor([low, high]), torch.tensor(wilson(alone, n)), atol=1e-3):
                raise Wrong(
                    "take the better of both attackers for each image, not the informed one"
                )
            raise Wrong("the interval is pf.metrics.wilson(hits, n) of the better attacker's hits")
        if word == right:
            continue
        if right == "no evidence":
            raise Wrong("where the attack fails without a defense, its failure is no evidence")
        if right == "found" and 2 * hits == n:
            raise Wrong("20 dB counts as found, and half of the images is enough")
        raise Wrong(f"{hits} of {n} images are found here; the word is {right!r}, not {word!r}")
