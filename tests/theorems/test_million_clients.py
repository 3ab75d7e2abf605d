"""Chapter "At a million clients": its statements, where they fail to hold, and its checks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import hypergeom

import privfl_lite as pf
from privfl_lite.defenses import masking
from privfl_lite.planning import CORRUPT, LOST, SURE, Federation, Summing, neighbors
from privfl_lite.privacy import Training, account, epsilon
from privfl_lite.privacy.accountants import _opacus_rdp
from privfl_lite.rounds import Mean
from privfl_lite.runtime import generator
from privfl_lite.teach.checks import million_clients as checks

D = pf.defenses


def sums(sigma: float, cohort: int, clients: int, rounds: int, joined: int) -> float:
    """ε of the sums, of noise σ at each client, by the package's accounting."""
    run = Training(rounds, clients, cohort, joined=joined)
    made = account(D.ModelCloak(clip=1.0, sigma=sigma) + D.SecureSum(), run)
    (found,) = [e for e in made.also if e.against == "sums"]
    assert found.value is not None
    return found.value


def noise_on_the_mean(clients: int, sigma: float, where: str) -> float:
    """How far a round of FedAvg moves a model beyond what it does without noise, per number."""
    net = pf.models.build("mlp", (1, 28, 28), 10, hidden=(16,))
    data = [(torch.rand(2, 1, 28, 28, generator=generator(1)), torch.tensor([1, 2]))] * clients
    moved = []
    for s in (0.0, sigma):
        defense = D.ModelCloak(clip=1.0, sigma=s, where=where)
        run = pf.FedAvg(net, data, 1, defense=defense, weighting="uniform", show=False).finish()
        moved.append(torch.cat([p.flatten() for p in run.model.parameters()]).detach())
    return float((moved[1] - moved[0]).std())


def test_prop_million_noise():
    """1 and 2: measured in rounds of FedAvg. 3: the accounting does not see the cohort."""
    for k in (4, 25):
        assert noise_on_the_mean(k, 2.0, "server") == pytest.approx(2.0 / k, rel=0.03)
        assert noise_on_the_mean(k, 2.0 / k**0.5, "client") == pytest.approx(2.0 / k, rel=0.03)
        assert noise_on_the_mean(k, 2.0, "client") == pytest.approx(2.0 / k**0.5, rel=0.03)
    once = [sums(2.0 / k**0.5, k, k, 1, 1) for k in (4, 25, 100)]
    assert once == pytest.approx([once[0]] * 3)
    turns = [sums(1.0, k, 1000, 100, 100 * k // 1000) for k in (10, 100, 1000)]
    assert turns == pytest.approx([turns[0]] * 3)


def test_prop_million_noise_fails_where_turns_do_not_come_out_even():
    """Five rounds of ten among a thousand: those who were asked at all were asked a whole round."""
    assert sums(1.0, 10, 1000, 5, 1) > 1.5 * sums(1.0, 1000, 1000, 5, 5)


def second(s: float, cohort: int, population: int) -> float:
    """Rényi divergence of order 2 of a round, at noise s C on the mean."""
    q = cohort / population
    return math.log1p(q**2 * math.expm1(1 / (s * cohort) ** 2))


def test_prop_million_sampling():
    """The formula is the accountant's; it falls with the cohort, to its limit and not below."""
    s, population = 0.001, 10**6
    cohorts = [200, 500, 1000, 3000, 10**4, 10**5, 10**6]
    found = [second(s, k, population) for k in cohorts]
    for k, ours in zip(cohorts[:-1], found, strict=False):
        theirs = _opacus_rdp().compute_rdp(
            q=k / population, noise_multiplier=s * k, steps=1, orders=[2.0]
        )
        assert ours == pytest.approx(float(np.ravel(theirs)[0]), rel=1e-5)
    assert found == sorted(found, reverse=True) and found[0] > 1000 * found[-1]
    limit = math.log1p(1 / (s * population) ** 2)
    assert limit < found[-1] < found[3] < 1.06 * limit
    spent = [epsilon(s * k, k / population, 1000, 1e-7) for k in (500, 1000, 4000, 16000)]
    assert spent[0] > 2 * spent[1] > 2.2 * spent[2] and spent[3] > 0.85 * spent[2]


def test_prop_million_sampling_fails_for_fixed_noise():
    """With σ fixed in place of the noise on the mean, a larger cohort costs ε."""
    assert epsilon(1.0, 0.01, 1000, 1e-7) > 2 * epsilon(1.0, 0.001, 1000, 1e-7)


def running(values: np.ndarray, group: int) -> float:
    """Added in 32 bits by ``rounds.Mean``, group after group; the mean."""
    total = Mean(dict.fromkeys(range(len(values)), 1), "uniform", len(values), {})
    for i in range(0, len(values), group):
        part = torch.from_numpy(values[i : i + group])
        total.add(range(i, i + len(part)), {"w": part[:, None]})
    return float(total.done()[0]["w"])


def test_prop_million_rounding():
    """Within the bound, in any grouping; and a million equal numbers use up a good part of it."""
    u, rng = 2.0**-24, np.random.default_rng(0)
    values = rng.standard_normal(20_000).astype(np.float32)
    exact, size = float(values.astype(float).mean()), float(np.abs(values.astype(float)).mean())
    for group in (1, 141, 20_000):
        additions = min(group, 20_000) + -(-20_000 // group)
        assert abs(running(values, group) - exact) <= 1.01 * (additions + 1) * u * size
    same = np.full(10**6, 0.1, np.float32)
    one_by_one = float(np.cumsum(same, dtype=np.float32)[-1])
    assert one_by_one / 1e6 - 0.1 > 0.0009  # one percent, of a bound of six
    in_groups = np.cumsum(same.reshape(1000, 1000), 1, dtype=np.float32)[:, -1]
    in_groups = float(np.cumsum(in_groups, dtype=np.float32)[-1])
    assert abs(in_groups / 1e6 - 0.1) < 1e-5


def test_prop_million_rounding_has_no_part_in_whole_numbers():
    """Fixed point modulo 2^48 is exact, in any order."""
    rule = D.SecureSum()
    whole = rule.encode(torch.full((10**6,), 0.1), 24, 10**6)
    for order in (whole, whole[::-1]):
        total = np.array([order.sum(dtype=np.uint64)]) & np.uint64(2**48 - 1)
        assert float(rule.decode(total, 24)) / 1e6 == pytest.approx(0.1, abs=2.0**-25)


@pytest.mark.parametrize("clients", [3, 10, 17])
def test_prop_million_pairs(clients, monkeypatch):
    """Keys, masks, shares and bytes as they are counted in a run of the protocol."""
    made: dict[str, int] = {"streams": 0, "shares": 0}
    grown, cut = masking.stream, masking.Member.share

    def stream(*given):
        made["streams"] += 1
        return grown(*given)

    def share(self, what, threshold, at):
        made["shares"] += 1
        return cut(self, what, threshold, at)

    monkeypatch.setattr(masking, "stream", stream)
    monkeypatch.setattr(masking.Member, "share", share)
    numbers, rule = 40, D.SecureSum()
    plan = Summing(clients - 1, rule.needed(clients), numbers + 1)
    pool = rule.collect(range(clients), lambda c: generator(3, c))
    sent = pool.upload(0, {"w": torch.ones(numbers)})
    assert made["streams"] == plan.others + 1 and len(sent) == plan.numbers
    assert len(sent) * rule.bits // 8 == plan.bytes_masked and int(sent.max()) < 2**rule.bits
    key = max(pool.publics.values()).to_bytes(masking.BYTES, "big")
    assert plan.bytes_up == len(key) * (3 * plan.others + 2) + plan.bytes_masked
    assert plan.bytes_down == len(key) * 3 * plan.others
    pool.add(range(clients), {"w": torch.ones(clients, numbers)}, [1.0] * clients)
    before = made["streams"]
    total, weight = pool.done()
    assert made["streams"] - before == clients  # own masks
    assert made["shares"] == clients * plan.threshold
    assert weight == clients and torch.equal(total["w"], torch.full((numbers,), float(clients)))


def unlucky(n: int, k: int) -> float:
    """A bound on the failure of a graph of n clients with k neighbors: exact tails, added up."""
    others, least = n - 1, k / 2
    corrupt = hypergeom(others, int(CORRUPT * others), k).sf(math.ceil(least) - 1)
    few = hypergeom(others, int(LOST * others), k).sf(math.floor(k - least))
    return n * (corrupt + few) + n * (CORRUPT + LOST) ** (k / 2)


@pytest.mark.parametrize("n", [400, 1000, 10**4, 10**5, 10**6])
def test_prop_million_neighbors(n):
    """Enough by the exact tails; grows with log n; and a fifth of it is not enough."""
    k = neighbors(n)
    assert unlucky(n, k) <= 2.0**-SURE and k % 2 == 0
    assert unlucky(n, 2 * (k // 10)) > 2.0**-SURE
    grows = neighbors(n * 10) - k
    assert 10 <= grows <= 2 + 10 / math.log(10) * 10 / 2  # a term of ln n / (2 · 0.3²)
    assert neighbors(50) == 49, "few clients: everybody with everybody"


def connected(n: int, k: int, gone: set[int]) -> bool:
    """Whether those who are left on the ring hang together, each with k/2 on either side."""
    left = [i for i in range(n) if i not in gone]
    seen, todo = {left[0]}, [left[0]]
    while todo:
        here = todo.pop()
        for step in range(1, k // 2 + 1):
            for other in ((here + step) % n, (here - step) % n):
                if other not in gone and other not in seen:
                    seen.add(other)
                    todo.append(other)
    return len(seen) == len(left)


def test_prop_million_neighbors_hang_together_unless_a_run_is_gone():
    """Part 3: a run of k/2 gone in two places cuts the ring; anything less does not."""
    n, k, rng = 60, 8, np.random.default_rng(1)
    assert not connected(n, k, {*range(4), *range(30, 34)})
    for _ in range(200):
        gone = {int(i) for i in rng.permutation(n)[:24]}
        runs = any(all((i + j) % n in gone for j in range(k // 2)) for i in range(n))
        assert connected(n, k, gone) or runs


def test_ex_million_by_hand():
    """The example's numbers."""
    plan = Federation(10, 10, 100, 1000)
    assert (plan.bytes_up, plan.bytes_down) == (4000, 4000)
    assert plan.lines()[3].value == 8_000_000
    masked = Federation(10, 10, 100, 1000, summing="pairs")
    assert masked.masks == Summing(9, 7, 1001)
    assert (masked.bytes_up, masked.bytes_down) == (7920, 5782)


def everybody(values, k, lost, mask, modulus, rng):
    """A slip: masks with all others."""
    return checks.example(values, 2 * (len(values) // 2 - 1), lost, mask, modulus, rng)


def forgetful(values, k, lost, mask, modulus, rng):
    """A slip: the masks of the lost stay in."""
    sent, _ = checks.example(values, k, lost, mask, modulus, rng)
    return sent, sum(sent.values()) % modulus


RIGHT = {
    "round_bytes": lambda cohort, numbers, bits: cohort * numbers * bits // 8,
    "masked_bytes": lambda cohort, numbers: 66 * (3 * cohort - 1) + 6 * (numbers + 1),
    "least_cohort": checks.fewest,
    "graph_sum": checks.example,
}
SLIPS = [
    ("round_bytes", lambda cohort, numbers, bits: cohort * numbers * bits, "bits"),
    ("round_bytes", lambda cohort, numbers, bits: numbers * bits // 8, "one client"),
    ("masked_bytes", lambda cohort, numbers: 66 * (3 * cohort - 1) + 4 * (numbers + 1), "48 bits"),
    ("masked_bytes", lambda cohort, numbers: 66 * (3 * cohort - 1) + 6 * numbers, "weight"),
    ("masked_bytes", lambda cohort, numbers: 66 + 6 * (numbers + 1), "shares"),
    ("least_cohort", lambda *_: 10**5, "fewer"),
    ("least_cohort", lambda *_: 3, "over the target"),
    ("graph_sum", lambda values, *_: ({}, sum(values)), "left bare or not sent"),
    ("graph_sum", everybody, "neighbors"),
    ("graph_sum", forgetful, "lost"),
]


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_are_right(expect, name):
    expect(getattr(checks, f"check_{name}"), RIGHT[name], "Right")
    expect(getattr(checks, f"check_{name}"), lambda *_: ..., "")


@pytest.mark.parametrize(("name", "answer", "word"), SLIPS)
def test_typical_slips_are_named(expect, name, answer, word):
    expect(getattr(checks, f"check_{name}"), answer, word)
