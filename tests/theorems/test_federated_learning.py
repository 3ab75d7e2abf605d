"""Chapter "Federated learning": each statement by numbers, each exercise check put to the test.

A statement's test draws random shapes and values, and also goes where its conditions do not hold.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

import privfl_lite as pf
from privfl_lite.defenses.base import Defense
from privfl_lite.gradients import Tensors, weights
from privfl_lite.runtime import generator
from privfl_lite.teach.checks import federated_learning as checks
from privfl_lite.training import train_one

SEEDS = range(5)


def vector(tensors: Tensors) -> Tensor:
    return torch.cat([t.flatten() for t in tensors.values()])


def federation(seed: int, sizes: list[int]) -> tuple[nn.Module, list]:
    """A small network in double precision, of random shape, and clients with random data."""
    rng = generator(seed)
    side, classes, width = (int(torch.randint(4, 8, (), generator=rng)) for _ in range(3))
    shape = (1, side, side)
    net = pf.models.build("mlp", shape, classes, seed=seed, hidden=(width,), act="tanh").double()
    images = [torch.rand(n, *shape, generator=rng, dtype=torch.float64) for n in sizes]
    labels = [torch.randint(classes, (n,), generator=rng) for n in sizes]
    return net, list(zip(images, labels, strict=True))


def gradient(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    g = torch.autograd.grad(cross_entropy(net(x), y), list(net.parameters()))
    return torch.cat([t.flatten() for t in g])


def one_round(net: nn.Module, clients: list, weighting: str = "examples") -> Tensor:
    """The server's step θ_{t+1} − θ_t after one full-batch step of every client."""
    biggest = max(len(x) for x, _ in clients)
    plan = pf.Plan(eta=0.3, epochs=1, batch_size=biggest)
    run = pf.FedAvg(net, clients, 1, plan, weighting=weighting, fast=False, show=False)
    list(run)
    return vector(weights(run.model)) - vector(weights(net))


def test_ex_fedavg_by_hand():
    """Two clients, one weight: every number of the example."""
    wants, sizes, theta, eta = torch.tensor([4.0, 0.0]), torch.tensor([1.0, 3.0]), 2.0, 0.5
    share = sizes / sizes.sum()

    def updates(steps: int) -> Tensor:
        walk = [descend(lambda t, c=c: t - c, torch.tensor(theta), eta, steps) for c in wants]
        return torch.stack([delta for delta, _ in walk])

    assert updates(1).tolist() == [1.0, -1.0]
    step = float(share @ updates(1))
    assert step == -0.5
    pooled = float(share @ (theta - wants))
    assert pooled == 1.0 and -eta * pooled == step  # as if all examples lay in one place
    assert updates(2).tolist() == [1.5, -1.5]
    assert -eta * 2 * (theta - wants[0]) - updates(2)[0] == 0.5  # the drift of two steps ...
    assert eta**2 * 1 * 2 * (2 * 1 / 2) == 0.5  # ... is the bound: L = 1, G = 2
    assert (4 * step - 1 * 1.0) / 3 == updates(1)[1]  # what client 1 computes of client 2


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_one_step_is_gradient(seed):
    sizes = [*torch.randint(1, 9, (4,), generator=generator(seed, 1)).tolist(), 10]
    net, clients = federation(seed, sizes)
    for x, y in clients:  # one client: Δ = −η·g
        plan = pf.Plan(eta=0.3, steps=1, batch_size=len(x))
        delta, _ = train_one(net, (x, y), plan, Defense(), generator(seed))
        assert torch.allclose(vector(delta), -0.3 * gradient(net, x, y), atol=1e-12)
    pooled = gradient(net, torch.cat([x for x, _ in clients]), torch.cat([y for _, y in clients]))
    assert torch.allclose(one_round(net, clients), -0.3 * pooled, atol=1e-7)

    # Uniform weights and unequal sizes: a step on the mean of the clients' losses, not the pool's.
    uniform, each = one_round(net, clients, "uniform"), [gradient(net, *c) for c in clients]
    assert torch.allclose(uniform, -0.3 * torch.stack(each).mean(0), atol=1e-7)
    assert (uniform + 0.3 * pooled).norm() > 0.01 * (0.3 * pooled).norm()
    # Uniform weights and equal sizes: the same again.
    net, clients = federation(seed, [6, 6, 6])
    pooled = gradient(net, torch.cat([x for x, _ in clients]), torch.cat([y for _, y in clients]))
    assert torch.allclose(one_round(net, clients, "uniform"), -0.3 * pooled, atol=1e-7)


def test_one_step_is_not_the_pooled_gradient_under_batch_norm():
    """The proof needs a loss that is a mean over examples; batch norm in training is not."""
    rng = generator(0)
    net = pf.models.build("convnet", (1, 12, 12), 3, width=2).double()
    clients = [
        (torch.rand(n, 1, 12, 12, generator=rng, dtype=torch.float64), torch.arange(n) % 3)
        for n in (4, 8)
    ]
    step = one_round(net, clients)
    pool = torch.cat([x for x, _ in clients]), torch.cat([y for _, y in clients])
    pooled = gradient(copy.deepcopy(net).train(), *pool)
    assert (step + 0.3 * pooled).norm() > 0.01 * (0.3 * pooled).norm()


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_update_is_sum_of_gradients(seed):
    net, [(x, y)] = federation(seed, [13])
    eta, plan = 0.2, pf.Plan(eta=0.2, epochs=2, batch_size=4)
    walk, total = copy.deepcopy(net), 0
    for batch in plan.batches(len(x), generator(seed, 7)):  # 4, 4, 4, 1, and again
        g = gradient(walk, x[batch], y[batch])
        total = total + g
        with torch.no_grad():
            moved = nn.utils.parameters_to_vector(walk.parameters()) - eta * g
            nn.utils.vector_to_parameters(moved, walk.parameters())
    delta, _ = train_one(net, (x, y), plan, Defense(), generator(seed, 7))
    assert torch.allclose(vector(delta), -eta * total, atol=1e-12)

    # With momentum the steps are no longer −η times the gradients of the path.
    heavy = pf.Plan(eta=0.2, epochs=2, batch_size=4, momentum=0.9)
    delta, _ = train_one(net, (x, y), heavy, Defense(), generator(seed, 7))
    assert not torch.allclose(vector(delta), -eta * total, rtol=0.1)


def descend(slope: Callable[[Tensor], Tensor], theta: Tensor, eta: float, steps: int):
    """(Δ, gradients along the path) of full-batch descent on a function with this gradient."""
    start, path = theta, []
    for _ in range(steps):
        path.append(slope(theta))
        theta = theta - eta * path[-1]
    return theta - start, path


def quadratic(seed: int) -> tuple[Callable[[Tensor], Tensor], Tensor, float]:
    """Gradient, random start and smoothness L of ½ θᵀAθ − bᵀθ with a random symmetric A."""
    rng = generator(seed)
    d = int(torch.randint(2, 9, (), generator=rng))
    A = torch.randn(d, d, generator=rng, dtype=torch.float64)
    A, b = A + A.T, torch.randn(d, generator=rng, dtype=torch.float64)
    start = torch.randn(d, generator=rng, dtype=torch.float64)
    return lambda theta: A @ theta - b, start, torch.linalg.eigvalsh(A).abs().max().item()


CASES = list(itertools.product(range(8), (0.001, 0.02, 0.1), (1, 2, 5, 12)))


def test_prop_drift_bound():
    for seed, eta, steps in CASES:
        slope, theta, L = quadratic(seed)
        delta, path = descend(slope, theta, eta, steps)
        G = max(g.norm().item() for g in path)
        bound = eta**2 * L * G * steps * (steps - 1) / 2
        assert (delta + eta * steps * path[0]).norm() <= bound + 1e-12

    # The constant is right: in one dimension the two sides agree as the rate goes to zero.
    delta, path = descend(lambda theta: 3 * theta, torch.ones(1, dtype=torch.float64), 1e-6, 10)
    assert abs((delta + 1e-5 * path[0]).item()) == pytest.approx(1e-12 * 3 * 3 * 45, rel=1e-3)

    # |θ| has slope ±1 and no L: on each side the gradient is constant, as if L were 0, but a path
    # that jumps over the kink drifts all the same.
    delta, path = descend(torch.sign, torch.tensor([0.5]), 0.4, 5)
    assert (delta + 0.4 * 5 * path[0]).abs() > 0.5
    # Steps on different minibatches: the difference is of order η, so η² L G s(s−1)/2 cannot hold.
    slopes = iter([lambda theta: theta, lambda theta: theta - 4.0])  # losses with L = 1
    delta, path = descend(lambda theta: next(slopes)(theta), torch.ones(1), 0.01, 2)
    G = max(g.norm().item() for g in path)
    assert (delta + 0.02 * path[0]).norm() > 10 * 0.01**2 * 1.0 * G


def test_cor_direction_survives():
    covered = 0
    for seed, eta, steps in CASES:
        slope, theta, L = quadratic(seed)
        delta, path = descend(slope, theta, eta, steps)
        g, G = path[0], max(p.norm().item() for p in path)
        rho = eta * L * G * (steps - 1) / (2 * g.norm().item())
        if rho >= 1:
            continue
        covered += 1
        assert (-delta / (eta * steps) - g).norm() <= rho * g.norm() + 1e-12
        assert cosine_similarity(delta, -g, dim=0) >= (1 - rho**2) ** 0.5 - 1e-9
    assert 40 < covered < len(CASES)  # both sides of ρ = 1 occur

    # Any ρ < 1 can be attained: the error at a right angle to Δ. From ρ = 1 on nothing is left.
    for rho in (0.1, 0.6, 0.99):
        angle = torch.asin(torch.tensor(rho, dtype=torch.float64))
        u = torch.tensor([1.0, 0.0], dtype=torch.float64)
        delta = torch.cos(angle) * torch.stack([torch.cos(angle), torch.sin(angle)])
        assert (delta - u).norm() == pytest.approx(rho)
        assert cosine_similarity(delta, u, dim=0) == pytest.approx((1 - rho**2) ** 0.5)
    # Overshooting: on ½θ² with η = 3 (ρ > 1) two steps bring Δ to point the wrong way.
    delta, path = descend(lambda theta: theta, torch.ones(1, dtype=torch.float64), 3.0, 2)
    assert cosine_similarity(delta, -path[0], dim=0) == -1


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_disagreement_shortens_the_step(seed):
    rng = generator(seed)
    K, d = (int(torch.randint(2, 30, (), generator=rng)) for _ in range(2))
    deltas = torch.randn(K, d, generator=rng, dtype=torch.float64) + 0.5
    w = torch.rand(K, generator=rng, dtype=torch.float64)
    w = w / w.sum()
    mean = w @ deltas
    spread = w @ (deltas - mean).pow(2).sum(1)
    assert mean.pow(2).sum() == pytest.approx((w @ deltas.pow(2).sum(1) - spread).item())
    assert mean.pow(2).sum() < w @ deltas.pow(2).sum(1)  # strict, as the updates differ

    units = 2.5 * deltas / deltas.norm(dim=1, keepdim=True)  # all of length 2.5
    cosines = cosine_similarity(units[:, None], units[None], dim=2)
    c = (cosines.sum() - K) / (K * (K - 1))
    assert units.mean(0).pow(2).sum() / 2.5**2 == pytest.approx((1 / K + (1 - 1 / K) * c).item())

    # Both parts need their conditions: weights that add up to one, and equal lengths.
    v = 2 * w
    mean = v @ deltas
    spread = v @ (deltas - mean).pow(2).sum(1)
    assert mean.pow(2).sum() != pytest.approx((v @ deltas.pow(2).sum(1) - spread).item())
    longer = units * torch.arange(1, K + 1, dtype=torch.float64)[:, None]
    ratio = longer.mean(0).pow(2).sum() / longer.pow(2).sum(1).mean()
    assert ratio != pytest.approx((1 / K + (1 - 1 / K) * c).item(), rel=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_locality_is_not_dp(seed):
    net, [(x, y)] = federation(seed, [6])
    twin = x.clone()
    twin[seed % 6] = torch.rand(x.shape[1:], generator=generator(seed, 1), dtype=torch.float64)
    sent, again, other = (vector(pf.share(net, images, y).tensors) for images in (x, x, twin))
    assert torch.equal(sent, again)  # no randomness: the same data, the same upload
    assert not torch.equal(sent, other)  # one image exchanged: another upload
    # So the test "is this the upload of D?" is right about D and about D′ with certainty,
    # and 1 ≤ e^ε · 0 + δ leaves only δ ≥ 1.

    # The argument ends where the upload does not depend on the exchanged example ...
    order = torch.tensor([1, 0, 2, 3, 4, 5])
    swapped = vector(pf.share(net, x[order], y[order]).tensors)
    assert torch.allclose(sent, swapped, atol=1e-12)
    # ... and where noise is added: then no single output has a positive probability.
    noisy = [sent + torch.randn(sent.shape, generator=generator(s)) for s in range(2)]
    assert not torch.equal(*noisy)


# --- the two Prove exercises, by numbers ---


@pytest.mark.parametrize("K", [1, 2, 3])
def test_sampling_is_fair_only_for_clients_of_equal_size(K):
    deltas = torch.randn(4, 5, generator=generator(0), dtype=torch.float64)

    def expected(n: Tensor) -> Tensor:
        steps = []
        for chosen in itertools.combinations(range(4), K):
            chosen = list(chosen)
            steps.append((n[chosen] / n[chosen].sum()) @ deltas[chosen])
        return torch.stack(steps).mean(0)

    equal, unequal = torch.full((4,), 3.0).double(), torch.tensor([1.0, 2, 3, 10]).double()
    assert torch.allclose(expected(equal), deltas.mean(0))
    assert not torch.allclose(expected(unequal), unequal / unequal.sum() @ deltas, rtol=0.05)


@pytest.mark.parametrize("steps", [1, 3, 400])
def test_more_local_steps_move_the_fixed_point(steps):
    a, c, eta = torch.tensor([1.0, 4.0]), torch.tensor([0.0, 1.0]), 0.1
    theta = torch.tensor(0.3)
    for _ in range(500):
        moved = c + (1 - eta * a) ** steps * (theta - c)
        theta = moved.mean()
    p = 1 - (1 - eta * a) ** steps
    assert theta.item() == pytest.approx((p @ c / p.sum()).item(), abs=1e-5)
    best = (a @ c / a.sum()).item()
    assert (theta.item() == pytest.approx(best, abs=1e-5)) == (steps == 1)
    if steps == 400:
        assert theta.item() == pytest.approx(c.mean().item(), abs=1e-5)


# --- what the chapter says of its measurements ---

PLAN = pf.Plan(eta=0.1, epochs=1, batch_size=10)


def unit_updates(split: str, seed: int, plan: pf.Plan = PLAN) -> tuple[Tensor, list[set[int]]]:
    """Directions (100, d) of the updates of 100 clients with 40 digits each, and what they hold."""
    digits = pf.load("mnist")
    parts = digits.clients(100, split, per_client=40, seed=seed)
    x, y = (torch.cat(part) for part in zip(*parts, strict=True))
    sent = pf.share(pf.models.build("mlp", digits, seed=seed), x, y, each=40, plan=plan)
    flat = torch.cat([t.flatten(1) for t in sent.tensors.values()], dim=1)
    return nn.functional.normalize(flat), [set(labels.tolist()) for _, labels in parts]


def test_a_large_crowd_looks_alike_to_those_who_took_no_part():
    updates, _ = unit_updates("iid", 0)
    gaps = {}
    for crowd in (1, 10, 50):
        means = nn.functional.normalize(updates.view(100 // crowd, crowd, -1).mean(1))
        c = updates @ means.T
        part = torch.arange(100)[:, None] // crowd == torch.arange(100 // crowd)
        gaps[crowd] = float(c[part].mean() - c[~part].mean())
        assert crowd < 50 or c[~part].mean() > 0.45  # though nothing of them is in it
    assert gaps[1] > 0.6 and 0.05 < gaps[10] < 0.2 and 0 < gaps[50] < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_cosines_tell_who_holds_the_same_digits(seed):
    """The full ranges, not the middle: equal sets of digits stand apart from all other pairs."""
    updates, held = unit_updates("shards", seed)
    cosine, others = updates @ updates.T, ~torch.eye(100, dtype=torch.bool)
    same = torch.tensor([[a == b for b in held] for a in held]) & others
    assert cosine[same].min() > cosine[others & ~same].max()
    # Counted by common digits the ranges do overlap: some clients hold a single digit.
    common = torch.tensor([[len(a & b) for b in held] for a in held])
    if any(len(a) == 1 and held.count(a) > 1 for a in held):
        assert cosine[others & (common == 1)].max() > cosine[others & (common == 2)].min()


@pytest.mark.parametrize("seed", range(3))
def test_ten_shard_clients_cover_all_digits_in_one_round_of_four(seed):
    parts = pf.load("mnist").clients(100, "shards", per_client=40, seed=seed)
    holds = torch.stack([y.bincount(minlength=10) > 0 for _, y in parts])
    rng = generator(seed)
    drawn = [torch.randperm(100, generator=rng)[:10] for _ in range(2000)]
    assert sum(bool(holds[ten].any(0).all()) for ten in drawn) / 2000 == pytest.approx(
        0.26, abs=0.04
    )


def test_four_minibatches_point_nearly_where_four_full_steps_do():
    full, small = (
        unit_updates("iid", 0, pf.Plan(eta=0.1, steps=4, batch_size=size))[0] for size in (40, 10)
    )
    assert (full * small).sum(1).mean() == pytest.approx(0.92, abs=0.02)


# --- the checks of the Code exercises: right answers pass, usual slips get a helpful word ---


def average(updates, sizes):
    total = sum(sizes)
    return {
        n: sum(s / total * u[n] for s, u in zip(sizes, updates, strict=True)) for n in updates[0]
    }


def plain_average(updates, sizes):
    return {n: sum(u[n] for u in updates) / len(updates) for n in updates[0]}


def weighted_sum(updates, sizes):
    return {n: sum(s * u[n] for s, u in zip(sizes, updates, strict=True)) for n in updates[0]}


def careless_average(updates, sizes):
    result = updates[0]
    for n in result:
        result[n] *= sizes[0] / sum(sizes)
        for s, u in zip(sizes[1:], updates[1:], strict=True):
            result[n] += s / sum(sizes) * u[n]
    return result


def update(model, x, y, eta, steps, copy_it=True, zero=True, sign=1):
    net = copy.deepcopy(model) if copy_it else model
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    for _ in range(steps):
        if zero:
            net.zero_grad()
        cross_entropy(net(x), y).backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= eta * p.grad
    return {n: sign * (p.detach() - start[n]) for n, p in net.named_parameters()}


def scaled_gradient(model, x, y, eta, steps):
    g = torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters()))
    return {n: -eta * steps * t for (n, _), t in zip(model.named_parameters(), g, strict=True)}


def new_weights(model, x, y, eta, steps):
    delta = update(model, x, y, eta, steps)
    return {n: p.detach() + delta[n] for n, p in model.named_parameters()}


def cosines(updates):
    vectors = torch.stack([vector(u) for u in updates])
    vectors = vectors / vectors.norm(dim=1, keepdim=True)
    return vectors @ vectors.T


def inner_products(updates):
    vectors = torch.stack([vector(u) for u in updates])
    return vectors @ vectors.T


def cosines_by_tensor(updates):
    return sum(cosines([{n: u[n]} for u in updates]) for n in updates[0]) / len(updates[0])


def spy(before, after, mine, n_mine, n_other):
    total = n_mine + n_other
    return {n: (total * (after[n] - before[n]) - n_mine * mine[n]) / n_other for n in before}


def spy_uniform(before, after, mine, n_mine, n_other):
    return {n: 2 * (after[n] - before[n]) - mine[n] for n in before}


def spy_step(before, after, mine, n_mine, n_other):
    return {n: after[n] - before[n] for n in before}


def spy_unscaled(before, after, mine, n_mine, n_other):
    total = n_mine + n_other
    return {n: after[n] - before[n] - n_mine / total * mine[n] for n in before}


def spy_backwards(before, after, mine, n_mine, n_other):
    return {n: -t for n, t in spy(before, after, mine, n_mine, n_other).items()}


def who_sent(model, delta, candidates, eta, steps, follow=True):
    gaps = []
    for x, y in candidates:
        guess = (update if follow else scaled_gradient)(model, x, y, eta, steps)
        gaps.append((vector(guess) - vector(delta)).norm())
    return torch.stack(gaps).argmin()


def careless_who_sent(model, delta, candidates, eta, steps):
    for x, y in candidates:
        update(model, x, y, eta, steps, copy_it=False)
    return 0


def nothing(*_):
    return None


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.check_average, average),
        (checks.check_update, update),
        (checks.check_cosines, cosines),
        (checks.check_spy, spy),
        (checks.check_who_sent, who_sent),
        (checks.check_who_sent, lambda *a: int(who_sent(*a))),
    ],
)
def test_right_answer_is_accepted(check, answer, expect):
    expect(check, answer, "Right")


@pytest.mark.parametrize(
    ("check", "answer", "word"),
    [
        (checks.check_average, plain_average, "share of the examples"),
        (checks.check_average, weighted_sum, "add up to one"),
        (checks.check_average, careless_average, "changed its inputs"),
        (checks.check_average, lambda u, s: average(u, s)["w"], "dictionary"),
        (checks.check_update, lambda *a: update(*a, sign=-1), "sign is turned"),
        (checks.check_update, lambda *a: update(*a, copy_it=False), "copy.deepcopy"),
        (checks.check_update, lambda *a: update(*a, zero=False), "pile up"),
        (checks.check_update, scaled_gradient, "again at the new"),
        (checks.check_update, new_weights, "subtract the server's weights"),
        (checks.check_update, lambda m, x, y, eta, steps: update(m, x, y, 1.0, 1), "rate"),
        (checks.check_cosines, inner_products, "divide by both lengths"),
        (checks.check_cosines, cosines_by_tensor, "into one vector"),
        (checks.check_cosines, lambda u: cosines(u)[0], "every client with every"),
        (checks.check_spy, spy_uniform, "weights by examples"),
        (checks.check_spy, spy_step, "still in it"),
        (checks.check_spy, spy_unscaled, "one step is left"),
        (checks.check_spy, spy_backwards, "sign is turned"),
        (checks.check_spy, lambda *a: 1 / 0, "ZeroDivisionError"),
        (checks.check_who_sent, lambda *a: who_sent(*a, follow=False), "gradient at the start"),
        (checks.check_who_sent, careless_who_sent, "copy.deepcopy"),
        (checks.check_who_sent, lambda *a: 7, "from 0 to 4"),
        (checks.check_who_sent, lambda *a: a[1], "from 0 to 4"),
        (checks.check_who_sent, lambda *a: (who_sent(*a) + 3) % 5, "nearest"),
    ],
)
def test_slip_gets_a_helpful_word(check, answer, word, expect):
    expect(check, answer, word)


@pytest.mark.parametrize(
    "check",
    [
        *(checks.check_average, checks.check_update, checks.check_cosines, checks.check_spy),
        checks.check_who_sent,
    ],
)
def test_empty_answer_is_not_an_error(check, expect):
    for empty in (nothing, None, ...):
        expect(check, empty, "Not yet: ")
