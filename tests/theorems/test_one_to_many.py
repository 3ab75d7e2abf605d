"""Statements, the example and the exercises of the chapter "From one machine to many"."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from privfl_lite.runtime import generator
from privfl_lite.teach.checks import one_to_many as checks

SEEDS = range(5)


def mean(deltas: Tensor, sizes: Tensor, who: list[int]) -> Tensor:
    """The mean of these clients' updates, weighted by their examples."""
    return (sizes[who] @ deltas[who]) / sizes[who].sum()


def federation(seed: int) -> tuple[Tensor, Tensor, list[int], list[int]]:
    """Updates (clients, 6) and sizes, who answered and who was lost."""
    rng = generator(seed)
    deltas = torch.randn(7, 6, generator=rng, dtype=torch.float64)
    sizes = torch.randint(1, 30, (7,), generator=rng).double()
    order = torch.randperm(7, generator=rng).tolist()
    cut = int(torch.randint(1, 7, (), generator=rng))
    return deltas, sizes, order[:cut], order[cut:]


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_machines_lost(seed):
    deltas, sizes, came, lost = federation(seed)
    every = [*came, *lost]
    whole, some, gone = (mean(deltas, sizes, who) for who in (every, came, lost))
    share = sizes[lost].sum() / sizes.sum()
    torch.testing.assert_close(some - whole, share * (some - gone))  # part 1
    told = sizes.sum() * whole - sizes[came].sum() * some
    torch.testing.assert_close(told, sizes[lost] @ deltas[lost])  # part 3
    if len(lost) == 1:
        torch.testing.assert_close(told / sizes[lost[0]], deltas[lost[0]])
    plain = torch.ones(7, dtype=torch.float64)  # part 1 fails with a share counted in clients
    if not torch.allclose(sizes[lost].sum() / sizes.sum(), plain[lost].sum() / 7, rtol=0.05):
        assert not torch.allclose(some - whole, len(lost) / 7 * (some - gone))


def test_prop_machines_lost_noise():
    """Part 2, by drawing; and part 3 fails where a client draws its noise anew for the second."""
    rng, clients, left = generator(3), 8, 6
    noise = torch.randn(20_000, clients, generator=rng, dtype=torch.float64)
    for sizes in (torch.ones(clients), torch.arange(1.0, clients + 1)):
        w = sizes[:left].double() / sizes[:left].sum()
        assert (noise[:, :left] @ w).var().item() == pytest.approx(float(w @ w), rel=0.05)
        assert float(w @ w) >= 1 / left - 1e-12
    shared = noise / clients**0.5  # so that the sum of all has variance 1
    assert shared.sum(1).var().item() == pytest.approx(1, rel=0.05)
    assert shared[:, :left].sum(1).var().item() == pytest.approx(left / clients, rel=0.05)
    fresh = torch.randn(20_000, clients, generator=rng, dtype=torch.float64)
    off = noise.sum(1) - fresh[:, 1:].sum(1) - noise[:, 0]
    assert off.var().item() == pytest.approx(2 * (clients - 1), rel=0.05)


def test_ex_machines_by_hand():
    deltas, sizes = torch.tensor([[4.0], [0.0], [-4.0]]), torch.tensor([2.0, 1.0, 1.0])
    whole, some = mean(deltas, sizes, [0, 1, 2]), mean(deltas, sizes, [0, 1])
    assert whole.item() == 1 and some.item() == pytest.approx(8 / 3)
    assert (some - whole).item() == pytest.approx(1 / 4 * (8 / 3 + 4)) == pytest.approx(5 / 3)
    assert (4 * whole - 3 * some).item() == pytest.approx(-4)


# --- exercises ---


def right_mean(deltas, sizes, answered):
    return sum(sizes[k] * deltas[k] for k in answered) / sum(sizes[k] for k in answered)


def right_lost(whole, some, n_all, n_some):
    return (n_all * whole - n_some * some) / (n_all - n_some)


def right_answer(before, train, defend, guard=True, check=True, words=False):
    refused = {"error": "refused"}
    try:
        after = train({n: t.clone() for n, t in before.items()})
        if set(after) != set(before):
            return refused
        sent = defend({n: after[n] - t for n, t in before.items()})
        new = {n: t + sent[n] for n, t in before.items()}
        if check and not all(t.isfinite().all() for t in new.values()):
            return refused
        return {"weights": new}
    except Exception as error:
        if not guard:
            raise
        return {"error": str(error)} if words else refused


def bare(before, train, defend):
    """Where the defense fails, it sends what training gave."""
    after = train({n: t.clone() for n, t in before.items()})
    try:
        sent = defend({n: after[n] - t for n, t in before.items()})
        return {"weights": {n: t + sent[n] for n, t in before.items()}}
    except Exception:
        return {"weights": after}


RIGHT = {"mean": right_mean, "lost": right_lost, "answer": right_answer}
WRONG = [
    ("mean", lambda d, n, who: d[list(who)].mean(0), "numbers of examples"),
    ("mean", lambda d, n, who: right_mean(d, n, range(len(n))), "did not answer"),
    ("mean", lambda d, n, who: sum(n[k] * d[k] for k in who) / sum(n), "those who answered"),
    ("mean", lambda d, n, who: torch.zeros(3), "is not the mean"),
    ("lost", lambda w, s, a, b: w - s, "by their examples"),
    ("lost", lambda w, s, a, b: a * w - b * s, "divide"),
    ("lost", lambda w, s, a, b: -right_lost(w, s, a, b), "sign"),
    ("lost", lambda w, s, a, b: torch.zeros(4), "is not what"),
    ("answer", lambda *a: right_answer(*a, guard=False), "RuntimeError"),
    ("answer", lambda *a: right_answer(*a, check=False), "NaN"),
    ("answer", lambda *a: right_answer(*a, words=True), "text"),
    ("answer", bare, "bare"),
    ("answer", lambda b, t, d: {"weights": t(b)}, "undefended"),
    ("answer", lambda b, t, d: {"error": "refused"}, "nothing was wrong"),
    ("answer", lambda b, t, d: [1], "dictionary"),
]


@pytest.mark.parametrize("name", RIGHT)
def test_check_accepts_the_right_answer(name: str, expect):
    check = getattr(checks, f"check_{name}")
    expect(check, RIGHT[name], "Right")
    expect(check, lambda *_: ..., "replace the dots")


@pytest.mark.parametrize(("name", "answer", "word"), WRONG, ids=[f"{w[0]}: {w[2]}" for w in WRONG])
def test_check_tells_what_is_wrong(name: str, answer, word: str, expect):
    expect(getattr(checks, f"check_{name}"), answer, word)
