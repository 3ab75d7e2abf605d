"""The malicious server: each statement against autograd or simulation, and where it stops holding.

A test has the name of its label in the book.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import privfl_lite as pf
from privfl_lite.attacks.malicious.imprint import Imprint, ImprintReadout, quantile_edges
from privfl_lite.studies import STUDIES
from privfl_lite.studies.malicious_server.bins import (
    alone,
    expected_alone,
    laplace_edges,
    public_alone,
)
from privfl_lite.teach.checks import malicious_server as checks
from privfl_lite.teach.drawings import secure_sum

SEEDS = range(5)
close = torch.testing.assert_close


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, gen: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=gen, dtype=torch.float64)


class Block:
    """An imprint block with any rows and columns, a random network behind it, in float64."""

    def __init__(self, W: Tensor, b: Tensor, V: Tensor, gen: torch.Generator):
        self.W, self.b, self.V = W, b, V
        self.A, self.H = normal(9, V.shape[0], gen=gen), normal(4, 9, gen=gen)

    def gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """∇W, ∇b by autograd, and ε (B, pixels): the gradient of what the block gives out."""
        W, b = self.W.clone().requires_grad_(), self.b.clone().requires_grad_()
        out = (x @ W.T + b).relu() @ self.V.T
        loss = cross_entropy((out @ self.A.T).tanh() @ self.H.T, y)
        return torch.autograd.grad(loss, (W, b, out))


def imprint_block(gen: torch.Generator, edges: Tensor, pixels: int = 6, V: Tensor | None = None):
    k = len(edges)
    W = torch.full((k, pixels), 1 / pixels, dtype=torch.float64)
    V = torch.ones(pixels, k, dtype=torch.float64) if V is None else V
    return Block(W, -edges, V, gen)


def at(*brightness: float, gen: torch.Generator, pixels: int = 6) -> Tensor:
    """Random images (n, pixels) with these mean pixels."""
    x = normal(len(brightness), pixels, gen=gen)
    return x - x.mean(1, keepdim=True) + torch.tensor(brightness, dtype=torch.float64)[:, None]


def below(rows: Tensor) -> Tensor:
    return rows - torch.cat([rows[1:], torch.zeros_like(rows[:1])])


EDGES = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)


def test_ex_imprint_hand():
    x = torch.tensor([[0.2, 0.4], [0.6, 0.4], [0.9, 0.9]], dtype=torch.float64)
    s, edges = torch.tensor([2.0, -1.0, 1.0]).double(), torch.tensor([0.1, 0.4, 0.6, 0.8]).double()
    on = (x.mean(1)[None] > edges[:, None]).double()
    close(
        on @ (s[:, None] * x),
        torch.tensor([[0.7, 1.3], [0.3, 0.5], [0.9, 0.9], [0.9, 0.9]]).double(),
    )
    close(on @ s, torch.tensor([2.0, 0.0, 1.0, 1.0]).double())
    D, d = below(on @ (s[:, None] * x)), below(on @ s)
    close(D[[0, 1, 3]] / d[[0, 1, 3], None], x)
    assert d[2] == 0 and D[2].abs().max() < 1e-15


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_bin_difference(seed: int):
    gen = rng(seed)
    x, y = at(0.5, 1.2, 1.7, 3.5, -1.0, gen=gen), torch.randint(4, (5,), generator=gen)
    V = normal(6, 4, gen=gen)
    for columns, exact in ((V[:, :1].expand(6, 4), True), (V, False)):
        block = imprint_block(gen, EDGES, V=columns)
        gW, gb, eps = block.gradients(x, y)
        D, d, s = below(gW), below(gb), eps @ columns  # s: (images, bins)
        h, top = x.mean(1), torch.cat([EDGES[1:], torch.tensor([math.inf]).double()])
        for i in range(4):
            inside, above = (h > EDGES[i]) & (h <= top[i]), h > top[i]
            after = s[:, i + 1] if i < 3 else torch.zeros(5).double()
            full = (inside * s[:, i] + above * (s[:, i] - after)) @ x
            close(D[i], full)  # holds for any columns
            close(d[i], (inside * s[:, i] + above * (s[:, i] - after)).sum())
            only = (inside * s[:, i]) @ x
            assert torch.allclose(D[i], only, atol=1e-12) == (exact or i == 3)
    # the converse: unequal columns and an error signal along their difference
    gap = V[:, 0] - V[:, 1]
    assert float(gap @ V[:, 0] - gap @ V[:, 1]) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_bin_quotient(seed: int):
    gen = rng(seed)
    x, y = at(0.5, 1.2, 1.7, 3.5, gen=gen), torch.tensor([0, 1, 2, 3])
    block = imprint_block(gen, EDGES)
    gW, gb, eps = block.gradients(x, y)
    D, d, s = below(gW), below(gb), eps.sum(1)
    close(D[0] / d[0], x[0])
    close(D[3] / d[3], x[3])
    w = s[1:3] / s[1:3].sum()
    close(D[1] / d[1], w @ x[1:3])
    close(w.sum(), torch.tensor(1.0).double())
    assert (D[1] / d[1] - x[1:3]).norm(dim=1).min() > 1e-3  # neither of the two
    close((D[1] / d[1]).mean(), w @ x[1:3].mean(1))  # h of a mixture
    inside = bool(1 < (D[1] / d[1]).mean() <= 2)
    assert inside or not (w > 0).all()  # weights of one sign keep h in the bin
    assert not D[2].any() and not d[2].any()  # empty
    twice = torch.cat([x[:1], x[:1]])  # the same image twice: still the image
    gW, gb, _ = block.gradients(twice, torch.tensor([0, 3]))
    close(below(gW)[0] / below(gb)[0], x[0])


def test_prop_bin_quotient_in_32_bits():
    digits = pf.load("mnist")
    edges = quantile_edges(digits.x_test.flatten(1).mean(1), 256)
    for gain in (1e-3, 1.0, 1e3):
        net = Imprint(pf.models.build("lenet5", digits), edges, gain)
        x, y = digits.sample(64, seed=3)
        found = ImprintReadout().run(pf.share(net, x, y)).images.flatten(1)
        lone = alone(x.flatten(1).mean(1), edges)
        error = torch.cdist(x.flatten(1), found, p=torch.inf).amin(1)
        assert lone.sum() > 40 and error[lone].max() < 1e-3
        assert error[~lone].max() > 0.05


def lone_moments(p: Tensor, B: int) -> tuple[float, float]:
    """Mean and variance of the number of lone images, by the formulas of the chapter."""
    mean = float((B * p * (1 - p) ** (B - 1)).sum())
    rest = 1 - p[:, None] - p
    pairs = p[:, None] * p * rest.clamp(min=0) ** (B - 2)
    pairs = B * (B - 1) * float(pairs.sum() - pairs.diagonal().sum())
    return mean, pairs + mean - mean**2


@pytest.mark.parametrize(("p", "B"), [((0.2, 0.3, 0.5), 4), ((0.25,) * 4, 3), ((0.6, 0.4), 5)])
def test_prop_lone_count(p: tuple[float, ...], B: int):
    """By enumeration of all k^B outcomes."""
    mean = square = 0.0
    for outcome in product(range(len(p)), repeat=B):
        chance = math.prod(p[i] for i in outcome)
        L = sum(count == 1 for count in Counter(outcome).values())
        mean, square = mean + chance * L, square + chance * L * L
    found = lone_moments(torch.tensor(p).double(), B)
    assert found == pytest.approx((mean, square - mean**2), abs=1e-6)


def test_prop_lone_count_does_not_depend_on_the_query():
    gen, B, k = rng(0), 16, 32
    formula = B * (1 - 1 / k) ** (B - 1)
    z = torch.randn(4000, B, generator=gen)
    spread = lone_moments(torch.full((k,), 1 / k).double(), B)[1] ** 0.5 / 4000**0.5
    for h in (lambda z: z, lambda z: z.exp(), lambda z: z**3):
        edges = h(torch.special.ndtri(torch.arange(1, k) / k))
        mean = sum(int(alone(row, edges).sum()) for row in h(z)) / 4000
        assert abs(mean - formula) < 4 * spread
    ties = (z * 2).round()  # not continuous: atoms cannot be split by any edges
    edges = ties.flatten().quantile(torch.arange(1, k) / k).unique()
    assert sum(int(alone(row, edges).sum()) for row in ties) / 4000 < 0.6 * formula


def share_alone(p: Tensor, B: int) -> float:
    return float((p * (1 - p) ** (B - 1)).sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_equal_bins(seed: int):
    gen = rng(seed)
    for B, k in ((2, 2), (4, 4), (5, 9), (16, 16), (16, 64), (2, 7)):  # k >= B: equal is best
        best = share_alone(torch.full((k,), 1 / k).double(), B)
        for _ in range(200):
            p = torch.rand(k, generator=gen, dtype=torch.float64) ** (1 + 4 * seed)
            assert share_alone(p / p.sum(), B) <= best + 1e-12
    f = lambda p, B: p * (1 - p) ** (B - 1)  # noqa: E731
    for B in (3, 10, 40):  # the second derivative, by differences
        for p in (0.5 / B, 1.9 / B, 2.1 / B, 0.9):
            e = 1e-4 / B
            numeric = (f(p + e, B) - 2 * f(p, B) + f(p - e, B)) / e**2
            exact = (B - 1) * (1 - p) ** (B - 3) * (B * p - 2)
            assert numeric == pytest.approx(exact, rel=1e-3, abs=1e-6)


def test_prop_equal_bins_fails_for_few_bins():
    def waste(k: int, B: int) -> Tensor:
        return torch.tensor([1 / B] * (k - 1) + [1 - (k - 1) / B]).double()

    for B, k in ((64, 16), (64, 32), (64, 48)):
        equal = share_alone(torch.full((k,), 1 / k).double(), B)
        assert share_alone(waste(k, B), B) > equal
        assert share_alone(waste(k, B), B) >= (k - 1) / B * (1 - 1 / B) ** (B - 1)
        assert share_alone(waste(k, B), B) <= k / B * (1 - 1 / B) ** (B - 1)
    # "fewer bins than images" alone is not enough for a counter-example
    for k in (63, 62):
        equal = share_alone(torch.full((k,), 1 / k).double(), 64)
        best = max(
            share_alone(torch.tensor([q] * (k - 1) + [1 - (k - 1) * q]).double(), 64)
            for q in torch.linspace(1e-4, 1 / (k - 1), 4000).tolist()
        )
        assert best <= equal + 1e-7
    # the maximum has the stated form: k − 1 equal bins and one other (search over three)
    B, steps = 12, 60
    grid = [(a, b) for a in range(steps + 1) for b in range(steps + 1 - a)]
    top = max(
        grid,
        key=lambda ab: share_alone(
            torch.tensor([ab[0], ab[1], steps - sum(ab)]).double() / steps, B
        ),
    )
    sizes = sorted([*top, steps - sum(top)])
    assert sizes[0] == sizes[1] and sizes[2] / steps > 2 / B


def public_formula(B: int, k: int, r: int) -> float:
    return k * r * math.comb(r * (k - 1) + B - 2, B - 1) / math.comb(r * k + B - 1, B)


@pytest.mark.parametrize(("B", "k", "r"), [(6, 5, 1), (12, 8, 3), (3, 4, 2)])
def test_prop_public_edges(B: int, k: int, r: int):
    gen, trials, total = rng(0), 4000, 0
    for _ in range(trials):
        public = torch.rand(r * k - 1, generator=gen).sort().values
        edges = public[r - 1 :: r]  # every r-th: k − 1 edges between the bins
        assert len(edges) == k - 1
        total += int(alone(torch.rand(B, generator=gen), edges).sum())
    assert abs(total / trials - public_formula(B, k, r)) < 4 * B / trials**0.5 * 0.4
    # r = 1: all occupancy patterns equally likely, counted one by one
    patterns = [c for c in product(range(B + 1), repeat=k) if sum(c) == B] if B + k < 12 else []
    if patterns:
        mean = sum(c.count(1) for c in patterns) / len(patterns)
        assert mean == pytest.approx(public_formula(B, k, 1))
        assert mean == pytest.approx(k * B * (k - 1) / ((B + k - 1) * (B + k - 2)))
    assert public_alone(B, k, r * k - 1) == pytest.approx(public_formula(B, k, r))
    equal = B * (1 - 1 / k) ** (B - 1)
    assert public_formula(B, k, 20_000) == pytest.approx(equal, rel=1e-3)


def test_stars_and_bars_is_below_equal_bins_and_then_above():
    for load, sign in ((0.5, -1), (2.4, -1), (2.6, 1), (5, 1)):
        k = 1000
        B = int(load * k)
        gap = public_formula(B, k, 1) - B * (1 - 1 / k) ** (B - 1)
        assert math.copysign(1, gap) == sign


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_separated_pair(seed: int):
    gen = rng(seed)
    k, pixels = 12, 6
    alpha = 0.3 + torch.rand(k, generator=gen, dtype=torch.float64)
    v = normal(pixels, 1, gen=gen)
    W, b = normal(k, pixels, gen=gen), normal(k, gen=gen) * 0.3  # rows that have nothing in common
    x, y = normal(4, pixels, gen=gen), torch.randint(4, (4,), generator=gen)
    block = Block(W, b, v * alpha, gen)
    gW, gb, eps = block.gradients(x, y)
    on, s = x @ W.T + b > 0, (eps @ v)[:, 0]
    pairs = 0
    for i, j in product(range(k), repeat=2):
        D, d = gW[i] / alpha[i] - gW[j] / alpha[j], gb[i] / alpha[i] - gb[j] / alpha[j]
        split = on[:, i].double() - on[:, j].double()
        close(D, (split * s) @ x)
        if split.abs().sum() == 1:
            close(D / d, x[split.abs().argmax()], rtol=1e-6, atol=1e-8)
            pairs += 1
    assert pairs > 4
    gW, gb, _ = Block(W, b, normal(pixels, k, gen=gen), gen).gradients(x, y)  # ordinary columns
    bad = [
        (gW[i] - gW[j]) / (gb[i] - gb[j])
        for i, j in product(range(k), repeat=2)
        if (on[:, i] ^ on[:, j]).sum() == 1 and (on[:, i] & on[:, j]).any()
    ]
    assert bad and all((q - x).norm(dim=1).min() > 1e-6 for q in bad)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_clipping(seed: int):
    gen = rng(seed)
    x, y = at(0.5, 1.2, 1.7, 3.5, gen=gen), torch.tensor([0, 1, 2, 3])
    block = imprint_block(gen, EDGES)
    gW, gb, _ = block.gradients(x, y)
    for c in (1e-6, 0.3):  # flat: one factor for everything
        for i in (0, 1, 3):
            close(below(c * gW)[i] / below(c * gb)[i], below(gW)[i] / below(gb)[i])
    cW, cb = 0.01, 0.4  # a factor for each tensor
    for i, n in ((0, 0), (3, 3)):
        close(below(cW * gW)[i] / below(cb * gb)[i], cW / cb * x[n])
    factor = (below(cW * gW)[3] / below(cb * gb)[3]).mean() / x[3].mean()
    close(factor, torch.tensor(cW / cb).double())  # from h alone
    each = [block.gradients(x[n : n + 1], y[n : n + 1]) for n in range(4)]
    norms = [float((g[0].square().sum() + g[1].square().sum()).sqrt()) for g in each]
    C = sorted(norms)[1]
    c = [min(1, C / norm) for norm in norms]
    assert len(set(c)) > 2
    gW, gb = (sum(cn * g[i] for cn, g in zip(c, each, strict=True)) for i in (0, 1))
    close(below(gW)[0] / below(gb)[0], x[0])
    close(below(gW)[3] / below(gb)[3], x[3])
    s = torch.stack([cn * g[2].sum() for cn, g in zip(c, each, strict=True)])
    close(below(gW)[1] / below(gb)[1], (s[1:3] / s[1:3].sum()) @ x[1:3])


def test_prop_noise_quotient():
    gen, d, pixels, trials = rng(0), 0.7, 400, 500
    x = torch.rand(pixels, generator=gen, dtype=torch.float64)
    for sigma in (1e-4, 1e-2):
        zeta = sigma * (normal(trials, pixels + 1, gen=gen) - normal(trials, pixels + 1, gen=gen))
        x_hat = (d * x + zeta[:, 1:]) / (d + zeta[:, :1])
        mse = (x_hat - x).square().mean()
        assert float(mse) == pytest.approx(
            2 * sigma**2 * (1 + float(x.square().mean())) / d**2, rel=0.1
        )
    zeta = d * (normal(trials, pixels + 1, gen=gen) - normal(trials, pixels + 1, gen=gen))
    x_hat = (d * x + zeta[:, 1:]) / (d + zeta[:, :1])  # σ = d: the expansion says nothing
    assert float((x_hat - x).square().mean()) > 10 * 2 * (1 + float(x.square().mean()))


def test_prop_noise_quotient_gain():
    """The gain leaves the network's outputs and divides the signal: 1e-3 makes d 1000 times it."""
    digits = pf.load("mnist")
    edges = quantile_edges(digits.x_test.flatten(1).mean(1), 32)
    x, y = digits.sample(8)
    nets = [Imprint(pf.models.build("lenet5", digits), edges, gain) for gain in (1.0, 1e-3)]
    close(nets[0](x), nets[1](x), rtol=1e-4, atol=1e-5)
    plain, loud = (pf.share(net, x, y).tensors for net in nets)
    close(loud["first.bias"], 1000 * plain["first.bias"], rtol=1e-3, atol=1e-7)
    close(loud["head.weight"], plain["head.weight"], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("gain", [1.0, 1e-2, 1e-4])
def test_prop_clip_and_noise(gain: float):
    gen, C = rng(0), 1.0
    x, y = at(0.5, 1.2, 2.5, 3.5, gen=gen), torch.tensor([0, 1, 2, 3])
    block = imprint_block(gen, EDGES)
    block.W, block.b, block.V = gain * block.W, gain * block.b, block.V / gain
    for n in range(4):
        gW, gb, _ = block.gradients(x[n : n + 1], y[n : n + 1])
        norm = float((gW.square().sum() + gb.square().sum()).sqrt())
        d = min(1, C / norm) * float(below(gb)[n])
        m = n + 1
        bound = C / math.sqrt(m * (1 + float(x[n].square().sum())))
        assert abs(d) <= bound * (1 + 1e-9)
        if gain == 1e-4:  # nothing but this layer is seen here, and it is clipped: equality
            assert abs(d) == pytest.approx(bound, rel=1e-6)
    assert gain != 1e-4 or norm > 100 * C  # without the clip the signal grows without bound


def test_cor_secure_aggregation():
    gen = rng(0)
    x, y = at(0.5, 1.2, 2.5, 3.5, gen=gen), torch.tensor([0, 1, 2, 3])
    block = imprint_block(gen, EDGES)
    clients = [block.gradients(x[i : i + 2], y[i : i + 2])[:2] for i in (0, 2)]
    together = block.gradients(x, y)[:2]
    for part in (0, 1):
        close(clients[0][part] + clients[1][part], 2 * together[part])
    for MB, r in ((64, 0.5), (1000, 0.9), (50, 0.99)):
        need = 1 / (1 - r ** (1 / (MB - 1)))
        k = math.ceil(need)
        assert (1 - 1 / k) ** (MB - 1) >= r > (1 - 1 / (k - 1)) ** (MB - 1)
        assert (MB - 1) / math.log(1 / r) <= need <= (MB - 1) / math.log(1 / r) + 1


# --- the study ---


def test_expected_alone_is_the_mean_of_draws_without_replacement():
    sizes, batch = torch.tensor([3, 1, 4]), 3
    h = torch.repeat_interleave(torch.arange(3.0), sizes)
    edges, total, count = torch.tensor([-0.5, 0.5, 1.5]), 0, 0
    for take in product(range(8), repeat=batch):
        if len(set(take)) == batch:
            total += int(alone(h[list(take)], edges).sum())
            count += 1
    assert expected_alone(sizes, batch) == pytest.approx(total / count)


def test_laplace_edges_are_quantiles():
    edges = laplace_edges(10)
    law = torch.distributions.Laplace(0.0, 1 / math.sqrt(2))
    close(law.cdf(1.32 * edges[1:]), torch.arange(1, 10) / 10)
    assert law.variance == pytest.approx(1)


def test_stored_study_says_what_the_chapter_says():
    cells = STUDIES["malicious-server/bins"].show()["cells"]
    bins = [c for c in cells if c["part"] == "bins"]
    for c in bins:
        assert c["attacked_read"] == c["attacked_lone"] and c["worst_error"] < 1e-3
        assert c["low"] - 0.3 <= c["expected"] <= c["high"] + 0.3
    mean = {(c["data"], c["edges"], c["batch"], c["bins"]): c["mean"] for c in bins}
    for data in ("mnist", "photos", "cifar10"):
        assert (
            mean[data, "measured", 64, 1024] > mean[data, "released", 64, 1024] or data == "photos"
        )
    wire = {(c["defense"], c["gain"], c["pixels"]): c for c in cells if c["part"] == "wire"}
    loud, plain = (wire["noise 0.5", gain, "normalized"]["ssim_mean"] for gain in (1e-4, 1e-3))
    assert wire["none", 1e-3, "normalized"]["ssim_mean"] == 1 and loud > 0.98 > plain
    for rate in ("prune 0.5", "prune 0.7"):
        assert (
            wire[rate, 1e-3, "normalized"]["ssim_mean"] > wire[rate, 1e-3, "in [0, 1]"]["ssim_mean"]
        )
    assert abs(wire["prune 0.5", 1e-3, "normalized"]["ssim_mean"] - 0.91) < 0.03
    (decoy,) = (c for c in cells if c["part"] == "decoy")
    assert decoy["matched_ssim_mean"] > 0.9 > 0.65 > decoy["last_ssim_mean"]


def test_a_stored_count_comes_out_again():
    study = STUDIES["malicious-server/bins"]
    stored = study.show()
    cell = next(c for c in stored["cells"] if c["data"] == "photos" and c["bins"] == 64)
    key = {name: cell[name] for name in ("part", "data", "edges", "batch", "bins")}
    again = study.compute({**stored["settings"], "attacked": 1}, key)
    for name in ("expected", "mean", "equal_bins"):
        assert again[name] == pytest.approx(cell[name], abs=0.3)


# --- the exercises ---


def read_bins(g_weight: Tensor, g_bias: Tensor) -> Tensor:
    D, d = below(g_weight), below(g_bias)
    hit = d.abs() > 1e-9 * d.abs().max()
    return D[hit] / d[hit, None]


READ = {
    lambda W, b: ...: "nothing yet",
    lambda W, b: W / b[:, None]: "8 rows",
    lambda W, b: below(W) / below(b)[:, None]: "empty bins",
    lambda W, b: read_bins(W, b)[:2]: "row of zeros",
    lambda W, b: read_bins(W, b).flip(0): "order of their bins",
    lambda W, b: torch.rand(3, 12): "none of the rows",
}
EXPECT = {
    lambda p, B: (p * (1 - p) ** (B - 1)).sum(): "share of the batch",
    lambda p, B: (B * p * (1 - p) ** B).sum(): "count the others",
    lambda p, B: B * (1 - 1 / len(p)) ** (B - 1): "equal bins only",
    lambda p, B: (1 - (1 - p) ** B).sum(): "occupied",
    lambda p, B: 0.0: "yours is",
}
MASKS = {
    lambda d: d != 0: "nearly every bin",
    lambda d: d.abs() > d.std(): "missed|pass on average",
    lambda d: d.abs() > 3 * d.std(): "missed",
    lambda d: d > 4 * d.abs().median() / 0.6745: "missed",
    lambda d: d.abs() > 1.5 * d.abs().median() / 0.6745: "pass on average",
    lambda d: d: "boolean",
}
SUSPECT = {
    lambda W, V: True: "ordinary random block",
    lambda W, V: False: "plain imprint block passes",
    lambda W, V: bool(torch.allclose(W[0], W[1])): "scaled by a factor",
    lambda W, V: bool(torch.linalg.matrix_rank(W) == 1): "random rows passes",
}


def candidates(W: Tensor, b: Tensor, g_weight: Tensor, g_bias: Tensor, every: bool = True):
    """(image, whether it lowers the rank of the gradient) for each pair of units."""
    rank = torch.linalg.matrix_rank
    for i, j in product(range(len(b)), repeat=2):
        d = g_bias[i] - g_bias[j]
        if d.abs() < 1e-9 or not (every or j == i + 1):
            continue
        x = (g_weight[i] - g_weight[j]) / d
        on = (W @ x + b > 0).to(x)
        rest = g_weight - (on[i] - on[j]) * d * torch.outer(on, x)
        yield x, bool(rank(rest, rtol=1e-9) < rank(g_weight, rtol=1e-9))


def read_pairs(*given: Tensor, **options: bool) -> Tensor:
    images: list[Tensor] = []
    for x, lowers in candidates(*given, **options):
        if lowers and all((x - y).norm() > 1e-6 for y in images):
            images.append(x)
    return torch.stack(images)


PAIRS = {
    lambda W, b, gW, gb: ...: "nothing yet",
    lambda W, b, gW, gb: gW / gb[:, None]: "none of the rows|zero difference",
    lambda *g: torch.stack([x for x, _ in candidates(*g)]): "are mixtures",
    lambda *g: torch.stack([x for x, lowers in candidates(*g) if lowers]): "several times",
    lambda *g: read_pairs(*g, every=False): "not neighbors alone",
    lambda W, b, gW, gb: gW: "none of the rows",
    lambda W, b, gW, gb: gb: "one row an image",
}


def stands_out(norms: Tensor) -> float:
    power = norms[norms.amax(1) > 0].square().sort(1).values
    return float((power[:, -1] / power[:, :-1].sum(1)).sqrt().max())


STANDS = {
    lambda n: ...: "nothing yet",
    lambda n: float(
        (n.square().amax(1) / (n.square().sum(1) - n.square().amax(1))).sqrt().max()
    ): "leave it out",
    lambda n: stands_out(n) ** 2: "take the root",
    lambda n: float((n.amax(1) / (n.sum(1) - n.amax(1))).nan_to_num().max()): "like squares",
    lambda n: float((n.square().amax(1) / n.square().sum(1)).nan_to_num().max().sqrt()): "*others*",
    lambda n: stands_out(n.square().sum(0, keepdim=True).sqrt()): "layer by layer",
    lambda n: float(
        (n.square().amax(1) / (n.square().sum(1) - n.square().amax(1))).nan_to_num().sqrt().mean()
        * 4
        / 3
    ): "not the mean",
    lambda n: min(stands_out(n), 1e9): "infinity",
    lambda n: 0.0: "yours is",
}


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (checks.check_read_bins, read_bins, READ),
        (
            checks.check_expected_alone,
            lambda p, B: float((B * p * (1 - p) ** (B - 1)).sum()),
            EXPECT,
        ),
        (
            checks.check_occupied,
            lambda d: d.abs() > 4 * d.abs().median() / 0.6745,
            MASKS,
        ),
        (
            checks.check_suspicious,
            lambda W, V: bool(torch.linalg.svdvals(V)[1] < 0.01 * torch.linalg.svdvals(V)[0]),
            SUSPECT,
        ),
        (checks.check_read_pairs, read_pairs, PAIRS),
        (checks.check_stands_out, stands_out, STANDS),
    ],
    ids=["read", "expected", "occupied", "suspicious", "pairs", "stands out"],
)
def test_checks(check, right, wrong, capsys):
    assert check(right)
    assert "Right" in capsys.readouterr().out
    assert not check(lambda *a: ...)
    assert "replace the dots" in capsys.readouterr().out
    for answer, hint in wrong.items():
        assert not check(answer)
        said = capsys.readouterr().out
        assert said.startswith("Not yet") and any(h in said for h in hint.split("|")), said


# --- sums ---


def sent(x: list[int], masks: dict[tuple[int, int], int], M: int) -> tuple[int, ...]:
    y = list(x)
    for (i, j), m in masks.items():
        y[i], y[j] = y[i] + m, y[j] - m
    return tuple(v % M for v in y)


def test_ex_sum_hand():
    masks = {(0, 1): 11, (0, 2): 4, (1, 2): 9}
    assert sent([5, 3, 6], masks, 16) == (4, 1, 9) == tuple(secure_sum.sent())
    assert ((5, 3, 6), masks) == (secure_sum.VALUES, secure_sum.MASKS)
    assert sent([6, 2, 6], masks | {(0, 1): 10}, 16) == (4, 1, 9)
    assert (4 + 1 - 4 - 9) % 16 == 5 + 3  # client 3 vanished
    assert (9 + 4 + 9) % 16 == 6  # client 3 was late


@pytest.mark.parametrize(("n", "M"), [(2, 5), (3, 4), (4, 3)])
def test_prop_masks_uniform(n, M):
    """By all masks there are: every n − 1 of the numbers sent come equally often in all values."""
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]

    def seen(x: list[int], uniform: int = M) -> Counter:
        draws = product(range(uniform), repeat=len(pairs))
        return Counter(sent(x, dict(zip(pairs, d, strict=True)), M) for d in draws)

    x = [(3 * i + 1) % M for i in range(n)]
    found = seen(x)
    assert all(sum(y) % M == sum(x) % M for y in found)  # part 1
    assert len(found) == M ** (n - 1) and len(set(found.values())) == 1  # part 2
    other = [x[1], x[0], *x[2:]]
    other[0], other[1] = (other[0] + 1) % M, (other[1] - 1) % M
    assert seen(other) == found  # other numbers with the same sum: not to be told apart
    # it fails for masks that are not uniform, and for a client whose masks are all known
    assert len(set(seen(x, M - 1).values())) > 1 or len(seen(x, M - 1)) < M ** (n - 1)
    if n > 2:  # part 3: the server is client n; what it knows is subtracted
        known = {p: 1 for p in pairs if n - 1 in p}
        rest = [p for p in pairs if n - 1 not in p]
        views = Counter(
            sent(x, known | dict(zip(rest, d, strict=True)), M)[: n - 1]
            for d in product(range(M), repeat=len(rest))
        )
        assert len(views) == M ** (n - 2) and len(set(views.values())) == 1
        if n == 3:  # a third colluder: only client 1 is left, and it is open
            assert len({sent(x, dict.fromkeys(pairs, 1), M)[0]}) == 1


@pytest.mark.parametrize("name", ["mlp", "lenet5", "convnet"])
def test_cor_silenced(name):
    digits = pf.load("mnist")
    net = pf.models.build(name, digits, **({"width": 4} if name == "convnet" else {}))
    x, y = digits.sample(12)
    quiet = pf.share(pf.attacks.silenced(net), x[3:], y[3:], each=3)
    front = [n for n in quiet.tensors if not n.startswith("head")]
    assert all((quiet.tensors[n] == 0).all() for n in front)
    assert quiet.tensors["head.bias"].abs().min() > 0  # the last layer itself still speaks
    own = pf.share(net, x[:3], y[:3])
    alone = pf.attacks.spoken(
        pf.defenses.sum_of([own, *quiet], pf.defenses.SecureSum(places=36)), 3
    )
    for n in front:
        close(alone.tensors[n], own.tensors[n], rtol=1e-4, atol=1e-7)
    ordinary = pf.share(net, x[3:], y[3:], each=3)  # it fails where the others were sent the model
    mixed = pf.attacks.spoken(pf.defenses.sum_of([own, *ordinary]), 3)
    assert any((mixed.tensors[n] - own.tensors[n]).abs().max() > 1e-3 for n in front)


def test_prop_fishing():
    gen = rng(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh()).double()
    last, u = torch.nn.Linear(7, 4).double(), normal(7, gen=gen)
    x, y, c, B = normal(9, 5, gen=gen), torch.tensor([2, 0, 1, 2, 3, 2, 0, 1, 3]), 2, 9
    r = net(x)

    def answer(bias: float, gain: float = 1.0, batch: Tensor = x) -> tuple[Tensor, ...]:
        with torch.no_grad():
            last.weight.zero_()
            last.bias.zero_()
            last.weight[c], last.bias[c] = gain * u, bias
        loss = cross_entropy(last(net(batch)), y)
        return torch.autograd.grad(loss, (*net.parameters(), last.bias))

    def through(rows: Tensor) -> tuple[Tensor, ...]:  # Σ J_nᵀ u over these images
        return torch.autograd.grad((net(x)[rows] @ u).sum(), tuple(net.parameters()))

    *g, bias = answer(-1e4)  # by class
    for a, b in zip(g, through(y == c), strict=True):
        close(a, -b / B)
    assert -B * bias[c] == pytest.approx(int((y == c).sum()))
    gain, order = 1e6, (r @ u).detach().sort().values
    for above in (1, 4):  # by feature, whatever the classes
        v = float(order[-above - 1] + order[-above]) / 2
        first, second = answer(-1e9, gain), answer(-gain * v, gain)
        parts = through((r @ u).detach() > v)
        for a, b, t in zip(first[:-1], second[:-1], parts, strict=True):
            close(a - b, -gain * t / B)
        assert -B * (first[-1] - second[-1])[c] == pytest.approx(above)
    v, gain = float(order[-2] + order[-1]) / 2, 0.1  # a cut that is not steep lets all bite a bit
    soft = answer(-1e9, gain)[-1] - answer(-gain * v, gain)[-1]
    assert abs(B * soft[c] + 1) > 0.1
    moved = answer(-gain * v, gain, x + 0.1)  # and another batch leaves what does not cancel
    assert (first[0] - moved[0] + gain * parts[0] / B).abs().max() > 1


def test_images_that_are_equally_loud_have_the_value_in_the_text():
    from privfl_lite.client_checks import d_snr

    net = pf.models.build("mlp", (1, 6, 6), 3)
    x = torch.rand(1, 1, 6, 6, generator=rng(0)).expand(10, -1, -1, -1)
    assert d_snr(net, x, torch.zeros(10).long()) == pytest.approx(1 / 3, rel=1e-5)  # 1/√(B − 1)


def test_the_stored_catches_are_as_the_chapter_says():
    """By feature one image bites in every batch; by class as many as the batch holds."""
    cells = STUDIES["malicious-server/fishing"].show()["cells"]
    caught = [c for c in cells if c["part"] == "caught"]
    feature = [c for c in caught if c["bait"] == "feature"]
    assert {(c["net"], c["batch"]) for c in feature} == set(
        product(("mlp", "lenet", "lenet5"), (4, 16, 64))
    )
    assert all(c["single"] == c["trials"] for c in feature)
    for c in caught:
        if (c["bait"], c["sum"]) == ("class", "off"):
            assert c["caught"] == c["of_class"]
        if c["sum"] == "all fished":
            assert c["single"] == 0 and all(
                n > 1 for n in c["caught"]
            )  # four times as many: hardly ever one alone
    honest = [c for c in cells if c["part"] == "check" and c["server"] == "honest"]
    over = [(c["net"], c["batch"], c["trained"]) for c in honest for r in c["ratios"] if r > 2]
    assert over == [("lenet5", 4, True)]  # the one false alarm
