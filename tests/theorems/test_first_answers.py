"""First answers: the example by hand, and the check of its exercise."""

from __future__ import annotations

import numpy as np
import pytest

from privfl_lite.metrics import wilson
from privfl_lite.teach.checks.first_answers import check_verdict


def test_ex_floor_by_hand():
    truth = np.array([0.8, 0.2])
    for answer, mse, dB in (([0.5, 0.5], 0.09, 10.5), ([1.0, 0.9], 0.265, 5.8)):
        error = np.mean((np.array(answer) - truth) ** 2)
        assert error == pytest.approx(mse) and -10 * np.log10(error) == pytest.approx(dB, abs=0.05)


def answer(plain, informed, undefended, best=max, floor=20, half=lambda h, n: 2 * h >= n):
    hits = sum(best(a, b) >= floor for a, b in zip(plain, informed, strict=True))
    n = len(plain)
    weak = 2 * sum(u >= floor for u in undefended) < n
    word = "found" if half(hits, n) else "no evidence" if weak else "not found"
    return word, *wilson(hits, n)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (answer, "Right"),
        (lambda *a: answer(*a, best=lambda p, i: i), "for each image"),
        (lambda *a: answer(*a[:2], [60.0] * len(a[0])), "no evidence"),
        (lambda *a: answer(*a, half=lambda h, n: 2 * h > n), "half of the images is enough"),
        (lambda *a: ("found", 0.0, 1.0), "wilson"),
        (lambda *a: "found", "three things"),
        (lambda *a: ("not found", *answer(*a)[1:]), "is 'found'"),
        (lambda *a: ..., "returns nothing yet"),
    ],
)
def test_check_verdict(expect, given, says):
    expect(check_verdict, given, says)
