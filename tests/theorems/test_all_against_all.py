"""Chapter "All against all": each statement, and where it fails to hold; what the prose says.

A test has the name of its label in the book.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from privfl_lite.privacy.bounds import success_bound
from privfl_lite.runtime import generator
from privfl_lite.teach.checks import all_against_all as checks


def tables(count: int = 20) -> list[torch.Tensor]:
    """Shares named, defenses by attackers."""
    return [torch.rand(5, 4, generator=generator(i), dtype=torch.float64) for i in range(count)]


def test_prop_judgment_more_attackers():
    """More attackers never lower the best; a failed one reverses nothing; one answer can."""
    for s in tables():
        best = [s[:, : k + 1].amax(1) for k in range(s.shape[1])]
        assert all((b >= a).all() for a, b in itertools.pairwise(best))
        # 2: whoever looked better may look worse after one more attacker, the others untouched
        order = best[-1].argsort()
        low, high = int(order[0]), int(order[-1])
        answer = torch.zeros(len(s), 1, dtype=s.dtype)
        answer[low] = 1.0
        after = torch.cat([s, answer], 1).amax(1)
        assert best[-1][low] < best[-1][high] and after[low] > after[high]
        # 3: not beyond a bound that holds for every attacker
        beta = float(best[-1][low])
        capped = torch.cat([s, answer.clamp(max=beta)], 1).amax(1)
        assert capped[low] < capped[high]


def test_prop_judgment_more_attackers_fails_for_means():
    """A mean over attackers falls with every attacker who fails: such a score rewards weak ones."""
    s = tables(1)[0]
    weak = torch.cat([s, torch.zeros(len(s), 1, dtype=s.dtype)], 1)
    assert (weak.mean(1) < s.mean(1)).all() and (weak.amax(1) == s.amax(1)).all()


def test_prop_judgment_front():
    """A utility that likes accuracy and dislikes leaks chooses on the front; a linear one cannot
    choose every point of it."""
    for trial in range(20):
        rng = generator(trial)
        values = torch.rand(8, 2, generator=rng, dtype=torch.float64).tolist()
        points = {str(i): (a, b) for i, (a, b) in enumerate(values)}
        front = checks.front_of(points)
        assert front
        for weight in (0.1, 1.0, 10.0):
            for utility in (
                lambda p, w=weight: p[1] - w * p[0],
                lambda p, w=weight: p[1] ** 3 - w * p[0] ** 0.5,
            ):
                assert max(points, key=lambda n, u=utility: u(points[n])) in front
    dent = {"a": (0.0, 0.0), "b": (0.6, 0.4), "c": (1.0, 1.0)}  # b on the front, below the chord
    assert checks.front_of(dent) == {"a", "b", "c"}
    for weight in torch.linspace(0, 20, 400).tolist():
        assert max(dent, key=lambda n, w=weight: dent[n][1] - w * dent[n][0]) != "b"


def test_ex_judgment_by_hand():
    """The numbers of the example: Φ(Φ⁻¹(0.01) + 1), and Wilson's interval for 0 of 18."""
    assert success_bound(0.01, 1.0) == pytest.approx(0.0924, abs=5e-5)
    low, high = checks.wilson(0, 18)
    assert (low, high) == (0.0, pytest.approx(1.96**2 / (18 + 1.96**2), abs=1e-3))
    assert high == pytest.approx(0.176, abs=5e-4)


RIGHT = {
    "bound": success_bound,
    "front": checks.front_of,
    "certain": checks.certainly_beaten,
}
SLIPS = [
    ("bound", lambda kappa, sigma: kappa, "chance of a guess"),
    ("front", lambda points: set(points), "dominated"),
    (
        "certain",
        lambda rows: (
            rows.keys() - checks.front_of({n: (h / m, sum(a) / 3) for n, (h, m, a) in rows.items()})
        ),
        "intervals are apart",
    ),
]


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_are_right(expect, name):
    expect(getattr(checks, f"check_{name}"), RIGHT[name], "Right")
    expect(getattr(checks, f"check_{name}"), lambda *_: ..., "replace the dots")


@pytest.mark.parametrize(("name", "answer", "word"), SLIPS)
def test_typical_slips_are_named(expect, name, answer, word):
    expect(getattr(checks, f"check_{name}"), answer, word)
