"""Chapter "Why gradients leak": each statement against autograd, and where it fails to hold.

A test has the name of its label in the book. Equation numbers are those of the papers. All in
float64, with random shapes and values, so that "equal" means equal to about twelve digits.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from layers import SEEDS, between, close, gradients, mlp, normal, onehot, rng
from torch import Tensor, nn
from torch.func import grad
from torch.nn.functional import cross_entropy

import privfl_lite as pf
from privfl_lite.attacks.analytic.equations import head_input
from privfl_lite.teach.checks import why_gradients_leak as checks

pytestmark = pytest.mark.usefixtures("double")


def test_ex_leak_by_hand():
    """The example's table: two pictures, two units, as the chapter has it."""
    a = torch.tensor([[0.9, 0.1], [0.2, 0.6]])
    delta = torch.tensor([[0.6, 0.0], [-0.2, 0.5]])  # (pictures, units)
    g_weight, g_bias = delta.T @ a, delta.sum(0)
    close(g_weight, torch.tensor([[0.5, -0.06], [0.1, 0.3]]))
    close(g_bias, torch.tensor([0.4, 0.5]))
    rows = g_weight / g_bias[:, None]
    close(rows, torch.tensor([[1.25, -0.15], [0.2, 0.6]]))
    close(rows[0], 1.5 * a[0] - 0.5 * a[1])  # the mixture, with weights that sum to one
    close(rows[1], a[1])


# --- one fully connected layer ---


@pytest.mark.parametrize("seed", SEEDS)
def test_lem_layer_gradient(seed: int):
    """DCS² Eq. 3 (batch of one) and Eq. 4 (mean over a batch): ∇W = Σ δ_n a_nᵀ, ∇b = Σ δ_n."""
    gen = rng(seed)
    B, inp, out = between(1, 6, gen), between(2, 9, gen), between(2, 9, gen)
    W, b, a = normal(out, inp, gen=gen), normal(out, gen=gen), normal(B, inp, gen=gen)
    V = normal(out, gen=gen)

    def loss(W, b, shift):  # any differentiable loss of the outputs; shift is a probe of u
        return ((a @ W.T + b + shift).tanh() @ V).square().mean()

    zero = torch.zeros(B, out)
    gW, gb, delta = (grad(loss, argnums=i)(W, b, zero) for i in range(3))
    close(gW, torch.einsum("no,ni->oi", delta, a))
    close(gb, delta.sum(0))
    each = [grad(lambda W, n=n: ((a[n] @ W.T + b).tanh() @ V).square())(W) for n in range(B)]
    close(gW, torch.stack(each).mean(0))  # Eq. 4 as printed: the mean of single gradients


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_linear_layer_leaks(seed: int):
    """DCS², below Eq. 3: x = ∇W_i / ∇b_i for every row with ∂ℓ/∂u_i ≠ 0. Where all are 0, every
    input with a zero error signal has the same gradient, and an input without one has another."""
    gen = rng(seed)
    inp, hidden, m = between(2, 20, gen), between(3, 20, gen), between(2, 10, gen)
    x, y = normal(1, inp, gen=gen), torch.tensor([seed % m])
    net = mlp([inp, hidden, m], nn.ReLU, gen)
    net[0].bias.data[0] = net[0].weight[0].abs().sum().item() * x.abs().max().item()  # unit 0 is on
    net[0].bias.data[1] = -net[0].bias.data[0] * 10  # unit 1 is off
    g = gradients(net, x, y)
    rows = pf.attacks.row_quotients(g["0.weight"][None], g["0.bias"][None])[0]
    on = g["0.bias"] != 0
    assert on[0] and not on[1]
    close(rows[on], x.expand(int(on.sum()), -1))
    assert rows[~on].isnan().all()
    close(g["0.weight"].T @ g["0.bias"] / g["0.bias"].square().sum(), x[0])  # all rows at once
    dead = copy.deepcopy(net)
    dead[0].bias.data[:] = -1e3
    g = gradients(dead, x, y)
    assert not g["0.weight"].any() and not g["0.bias"].any()  # nothing of x is left
    other = gradients(dead, x + normal(1, inp, gen=gen), y)
    assert all(torch.equal(g[n], other[n]) for n in g)
    row = dead[0].weight[:1].detach()
    on = 2e3 * row / row.square().sum()  # this input switches unit 0 on again
    assert gradients(dead, on, y)["0.bias"].any()


def test_prop_linear_layer_leaks_on_a_32_bit_wire():
    """In 32-bit floats: exact to 100 dB and more; nothing once softmax has rounded to 0 and 1."""
    torch.set_default_dtype(torch.float32)
    digits = pf.load("mnist")
    x, y = digits.sample(8)
    upload = pf.share(pf.models.build("mlp", digits), x, y, each=1)
    found = pf.attacks.ClosedForm().run(upload)
    assert pf.metrics.psnr(found.images, x).min() > 100
    sure = torch.tensor([[200.0, 0.0, 0.0]], dtype=torch.float32, requires_grad=True)
    cross_entropy(sure, torch.tensor([0])).backward()
    assert not sure.grad.any()  # p = (1, 0, 0) in floating point: ∂ℓ/∂z is exactly 0


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_direction_only(seed: int):
    """Without a bias gradient, ∇W = δ aᵀ fixes a up to a factor, and no better."""
    gen = rng(seed)
    inp, out = between(2, 12, gen), between(2, 12, gen)
    a, delta = normal(inp, gen=gen), normal(out, gen=gen)
    g = torch.outer(delta, a)
    v = torch.linalg.svd(g).Vh[0]
    close((v @ a).abs(), a.norm())  # v is ± a / ‖a‖
    for scale in (-3.0, 0.2, 7.0):  # another input and another loss, the same gradient
        close(torch.outer(delta / scale, scale * a), g)


# --- labels ---


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_label_sign(seed: int):
    """FedKL Eq. 7 and the text below: ∂ℓ/∂z = p − e_y, negative for the label only."""
    gen = rng(seed)
    m = between(2, 12, gen)
    z, y = 3 * normal(m, gen=gen), between(0, m - 1, gen)
    delta = grad(lambda z: cross_entropy(z, torch.tensor(y)))(z)
    close(delta, z.softmax(0) - onehot(torch.tensor(y), m))
    assert (delta < 0).nonzero().flatten().tolist() == [y]
    assert (delta != 0).all()
    close(delta.sum(), torch.tensor(0.0))
    # Fails in a batch: classes 0 and 1 are in it, but p_1 is large and entry 1 is positive.
    z = torch.tensor([[0.0, 9.0, 0.0], [0.0, 9.0, 0.0]])
    g = grad(lambda z: cross_entropy(z, torch.tensor([0, 1])))(z).sum(0)
    assert g[1] > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_idlg_rule(seed: int):
    """iDLG: row sums need r ≥ 0; inner products of rows do not, but three classes. Fails: tanh."""
    gen = rng(seed)
    m, D = between(3, 10, gen), between(2, 20, gen)
    W, b, y = normal(m, D, gen=gen), normal(m, gen=gen), between(0, m - 1, gen)

    def rows(r: Tensor) -> Tensor:
        return grad(lambda W: cross_entropy(W @ r + b, torch.tensor(y)))(W)

    g = rows(normal(D, gen=gen).abs())
    assert (g.sum(1) < 0).nonzero().flatten().tolist() == [y]
    r = normal(D, gen=gen).tanh()
    r = -r if r.sum() > 0 else r  # after tanh the sum may be negative
    g = rows(r)
    assert int(g.sum(1).argmin()) != y
    assert (g.sum(1) > 0).nonzero().flatten().tolist() == [y]  # every sign is turned round
    inner = g @ g.T
    alone = [(inner[c].sign().sum() == 2 - m).item() for c in range(m)]  # + with itself, else −
    assert [c for c in range(m) if alone[c]] == [y]
    g = torch.outer(torch.tensor([0.3, -0.3]), r)  # two classes: both rows qualify
    assert ((g @ g.T).fill_diagonal_(0).sum(1) < 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_head_without_bias(seed: int):
    """A softmax head without bias gives its input away too, from three classes; not with two."""
    gen = rng(seed)
    m, D = between(3, 10, gen), between(2, 20, gen)
    head = nn.Linear(D, m, bias=bool(seed % 2))
    head.weight.data = normal(m, D, gen=gen)
    r, y = normal(D, gen=gen), between(0, m - 1, gen)
    b = torch.zeros(m) if head.bias is None else head.bias.detach()
    g = grad(lambda W: cross_entropy(W @ r + b, torch.tensor(y)))(head.weight.detach())
    found, delta = head_input(g, None, head)
    close(found, r, rtol=1e-6, atol=1e-8)
    close(
        delta, (head.weight @ r + b).softmax(0) - onehot(torch.tensor(y), m), rtol=1e-6, atol=1e-8
    )
    # Two classes: inputs of two lengths along one direction with the same gradient.
    rise = 1 + torch.rand((), generator=gen)  # logit of the label minus the other, per unit length

    def strength(length: Tensor) -> Tensor:  # ‖∇W_y‖ = length · (1 − p_y)
        return length * torch.sigmoid(-rise * length)

    low, high = torch.tensor(0.5) / rise, None
    ends = torch.tensor([1.2785 / rise, 50.0 / rise])  # strength falls from its maximum on
    for _ in range(200):
        high = ends.mean()
        ends = torch.stack([high, ends[1]] if strength(high) > strength(low) else [ends[0], high])
    W = torch.stack([rise * torch.eye(2)[0], torch.zeros(2)])
    twins = [
        grad(lambda W, r=r: cross_entropy(W @ r, torch.tensor(0)))(W)
        for r in (low * torch.eye(2)[0], high * torch.eye(2)[0])
    ]
    close(*twins)
    assert high > 3 * low


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_label_counts(seed: int):
    """Counts in a batch are B (p̄ − ∇b), exact if the mean prediction p̄ is known, wrong if not."""
    gen = rng(seed)
    B, m, D = between(2, 40, gen), between(2, 10, gen), between(2, 20, gen)
    net = mlp([D, m], nn.ReLU, gen)
    x, y = normal(B, D, gen=gen), torch.randint(m, (B,), generator=gen)
    g = gradients(net, x, y)["0.bias"]
    p = net(x).softmax(1).mean(0)
    close(B * (p - g), torch.bincount(y, minlength=m).to(p))
    off = p + 0.6 / B * torch.tensor([1.0, -1.0] + [0.0] * (m - 2))  # an error of 0.6 / B is enough
    assert not torch.equal((B * (off - g)).round(), torch.bincount(y, minlength=m).to(p))


# --- a batch behind one layer ---


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_batch_quotient(seed: int):
    """DCS² Eq. 4–5: an affine mean whose weights have both signs; error by ρ; 0/0 at worst."""
    gen = rng(seed)
    B, m, D = between(2, 6, gen), between(7, 10, gen), between(4, 20, gen)
    net = mlp([D, m], nn.ReLU, gen)
    x, y = normal(B, D, gen=gen), torch.randperm(m, generator=gen)[:B]  # no class twice
    g, p = gradients(net, x, y), net(x).softmax(1)
    for n in range(B):
        c = y[n]
        delta = (p[:, c] - (y == c).to(p)) / B
        weights = delta / delta.sum()
        found = g["0.weight"][c] / g["0.bias"][c]
        close(found, weights @ x)
        close(weights.sum(), torch.tensor(1.0))
        assert weights.min() < 0 < weights.max()  # never a convex mixture
        others = [k for k in range(B) if k != n]
        rho = p[others, c].sum() / (1 - p[n, c])
        farthest = (x[others] - x[n]).norm(dim=1).max()
        assert (found - x[n]).norm() <= rho / (1 - rho).abs() * farthest + 1e-9
    # The worst case: equal predictions and each class once; every bias gradient vanishes.
    net[0].weight.data.zero_()
    net[0].bias.data.zero_()
    x, y = normal(m, D, gen=gen), torch.randperm(m, generator=gen)
    g = gradients(net, x, y)
    close(g["0.bias"], torch.zeros(m))
    close(m * g["0.weight"][y], x.mean(0) - x)  # though the weight gradient still shows each image


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_row_difference(seed: int):
    """B(∇W_k − ∇W_c) = sum of class c − sum of class k + Σ (p_nk − p_nc) x_n, always."""
    gen = rng(seed)
    B, m, D = between(1, 12, gen), between(2, 10, gen), between(2, 20, gen)
    net = mlp([D, m], nn.ReLU, gen)
    x, y = normal(B, D, gen=gen), torch.randint(m, (B,), generator=gen)
    g, p = gradients(net, x, y)["0.weight"], net(x).softmax(1)
    for c in range(m):
        for k in range(m):
            left = x[y == c].sum(0) - x[y == k].sum(0) + (p[:, k] - p[:, c]) @ x
            close(B * (g[k] - g[c]), left)
    net[0].weight.data[1], net[0].bias.data[1] = net[0].weight.data[0], net[0].bias.data[0]
    y = torch.where(y <= 1, 0, y)  # classes 0 and 1 are predicted alike; 1 is absent, 0 occurs
    y[0] = 0
    g = gradients(net, x, y)["0.weight"]
    close(B * (g[1] - g[0]), x[y == 0].sum(0))  # exact, without any division


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_lone_active_unit(seed: int):
    """A ReLU unit that is on for one example alone gives that example; a sigmoid unit none."""
    gen = rng(seed)
    B, D, width, m = between(2, 6, gen), between(5, 20, gen), between(20, 60, gen), 4
    x, y = normal(B, D, gen=gen), torch.randint(m, (B,), generator=gen)
    for act in (nn.ReLU, nn.Sigmoid):
        net = mlp([D, width, m], act, gen)
        g = gradients(net, x, y)
        rows = pf.attacks.row_quotients(g["0.weight"][None], g["0.bias"][None])[0]
        on = net[0](x) > 0
        lone = on.sum(0) == 1
        whose = on.to(torch.long).argmax(0)
        hits = (rows - x[whose]).abs().amax(1) < 1e-9 * (1 + x.abs().max())
        if act is nn.ReLU:
            assert lone.any() and hits[lone].all()
            assert not hits[~lone].any()
        else:
            nearest = (rows[:, None] - x).abs().amax(2).amin(1)
            assert nearest.min() > 1e-6  # every row mixes all examples


@pytest.mark.parametrize("B", [2, 4, 8])
def test_prop_lone_units_expected(B: int):
    """E[lone units of an example] = Σ q_i (1 − q_i)^(B−1), though units depend on each other."""
    gen = rng(B)
    draws, width = 40_000, 12
    mix = normal(width, 3, gen=gen)  # 12 units driven by 3 hidden causes: far from independent
    bias = normal(width, gen=gen)
    on = torch.randn(draws, B, 3, generator=gen) @ mix.T + bias > 0
    lone = on[:, 0] & (on.sum(1) == 1)
    q = torch.distributions.Normal(0.0, 1.0).cdf(bias / mix.norm(dim=1))
    expected = (q * (1 - q) ** (B - 1)).sum()
    count = lone.sum(1).double()
    assert abs(count.mean() - expected) < 4 * count.std() / draws**0.5
    assert lone.any(1).double().mean() <= expected + 0.01  # the share that has one is bounded
    assert (q * (1 - q) ** (B - 1)).max() <= (1 - 1 / B) ** (B - 1) / B + 1e-12  # best at q = 1/B
    together = on[:, :, :1].expand(-1, -1, width)  # all units alike: same mean, smaller share
    lone = together[:, 0] & (together.sum(1) == 1)
    assert lone.any(1).double().mean() < 0.5 * lone.sum(1).double().mean()


@pytest.mark.parametrize(("width", "size"), [(256, 16), (1024, 32)])
def test_a_lone_row_that_nothing_repeats_is_mostly_missed(width: int, size: int):
    """What the chapter says of the reader: two lone units are enough, one mostly is not."""
    torch.set_default_dtype(torch.float32)
    digits, found = pf.load("mnist"), {1: [], 2: []}
    for seed in range(8):
        x, y = digits.sample(size, seed=seed)
        net = pf.models.build("mlp", digits, hidden=(width,), act="relu", seed=seed)
        images = pf.attacks.ClosedForm().run(pf.share(net, x, y)).images
        read = pf.metrics.compare(images, x, match=True)["psnr"] > 60
        on = net.features[1](x.flatten(1)) > 0
        lone = (on & (on.sum(0) == 1)).sum(1)
        for k, hit in zip(lone.tolist(), read.tolist(), strict=True):
            if k:
                found[min(k, 2)].append(hit)
    assert all(found[2]) and len(found[2]) > 20
    assert sum(found[1]) < 0.3 * len(found[1]) and len(found[1]) > 30
    both = found[1] + found[2]
    assert 0.3 * len(both) < sum(both) < 0.55 * len(both)  # "a half or a third of what is there"


# --- the exercises ---


def right_read_off(g_weight: Tensor, g_bias: Tensor) -> Tensor:
    i = g_bias.abs().argmax()
    return g_weight[i] / g_bias[i]


def right_label_counts(g_bias: Tensor, p_mean: Tensor, B: int) -> Tensor:
    return (B * (p_mean - g_bias)).round().long()


def right_read_head(g_weight: Tensor, W: Tensor) -> Tensor:
    v = g_weight[0] / g_weight[0].norm()
    d = g_weight @ v
    if (d < 0).sum() > 1:
        d, v = -d, -v
    c, k = d.argsort()[-2:]
    return v * (d[c] / d[k]).log() / ((W[c] - W[k]) @ v)


def right_read_batch(g_weight: Tensor, g_bias: Tensor, most: float = 1e-4) -> Tensor:
    rows = g_weight[g_bias != 0] / g_bias[g_bias != 0, None]
    found: list[Tensor] = []
    for row in rows:
        repeats = ((rows - row).abs().amax(1) < most).sum() > 1
        if repeats and not any((row - f).abs().max() < most for f in found):
            found.append(row)
    return torch.stack(found) if found else rows[:0]


def in_range(g_weight: Tensor, g_bias: Tensor) -> Tensor:
    rows = g_weight[g_bias != 0] / g_bias[g_bias != 0, None]
    return rows[((rows > -0.01) & (rows < 1.01)).all(1)]


def every_repeat(g_weight: Tensor, g_bias: Tensor) -> Tensor:
    rows = g_weight[g_bias != 0] / g_bias[g_bias != 0, None]
    return rows[(torch.cdist(rows, rows, p=torch.inf) < 1e-4).sum(1) > 1]


def direction(g_weight: Tensor, W: Tensor) -> Tensor:
    r = right_read_head(g_weight, W)
    return r / r.norm()


CHECKS = {
    "read_off": right_read_off,
    "label_counts": right_label_counts,
    "head_without_bias": right_read_head,
    "read_batch": right_read_batch,
}
WRONG = [
    ("read_off", lambda gW, gb: gW[0] / gb[0], "zero"),
    ("read_off", lambda gW, gb: (gW / gb[:, None]).mean(0), "zero"),
    ("read_off", lambda gW, gb: gW[gb.abs().argmax()], "divide"),
    ("read_off", lambda gW, gb: gW[1] / gb[1], "rounding"),
    ("read_off", lambda gW, gb: gW.sum(1) / gb.sum(), "shape"),
    ("label_counts", lambda g, p, B: (B * (g - p)).round(), "sign"),
    ("label_counts", lambda g, p, B: p - g, "shares"),
    ("label_counts", lambda g, p, B: B * (p - g), "round it"),
    ("label_counts", lambda g, p, B: (B * (p - g)).long(), "round it"),
    ("label_counts", lambda g, p, B: (B * (p - g)).double().int(), "round it"),
    ("label_counts", lambda g, p, B: (B * (p.numpy() - g.numpy())).astype(int), "round it"),
    ("label_counts", lambda g, p, B: [int(v) for v in B * (p - g)], "round it"),
    ("label_counts", lambda g, p, B: (B * (p - g)).ceil(), "round it"),
    ("label_counts", lambda g, p, B: (B * p).round(), "not the counts"),
    ("label_counts", lambda g, p, B: "many", "not a str"),
    ("label_counts", lambda g, p, B: (-B * g).round().clamp(min=0), "missing"),
    ("head_without_bias", direction, "length"),
    ("head_without_bias", lambda g, W: -right_read_head(g, W), "sign"),
    ("head_without_bias", lambda g, W: W[0], "direction"),
    ("head_without_bias", lambda g, W: W[0].log(), "NaN"),
    ("read_batch", lambda gW, gb: gW / gb[:, None], "drop these rows"),
    ("read_batch", in_range, "no other row agrees"),
    ("read_batch", every_repeat, "more than once"),
    ("read_batch", lambda gW, gb: right_read_batch(gW, gb, 1e-9), "tolerance"),
    ("read_batch", lambda gW, gb: right_read_batch(gW, gb)[:1], "missing"),
    ("read_batch", lambda gW, gb: right_read_batch(gW, gb)[0], "one row for each"),
]


@pytest.mark.parametrize("name", CHECKS)
def test_check_accepts_the_right_answer(name: str, expect):
    torch.set_default_dtype(torch.float32)  # as in a notebook
    check = getattr(checks, f"check_{name}")
    expect(check, CHECKS[name], "Right")
    expect(check, lambda *_: ..., "replace the dots")


COUNTS = {  # other types of the right counts
    "whole floats": lambda g, p, B: (B * (p - g)).round(),
    "small integers": lambda g, p, B: (B * (p - g)).round().to(torch.int8),
    "array": lambda g, p, B: (B * (p.numpy() - g.numpy())).round(),
    "array of integers": lambda g, p, B: np.rint(B * (p - g).numpy()).astype(int),
    "list": lambda g, p, B: [round(v) for v in (B * (p - g)).tolist()],
    "tuple": lambda g, p, B: tuple((B * (p - g)).round().int().tolist()),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_label_counts_may_be_of_any_type(kind: str, expect):
    expect(checks.check_label_counts, COUNTS[kind], "Right")


@pytest.mark.parametrize(("name", "answer", "word"), WRONG, ids=[f"{w[0]}: {w[2]}" for w in WRONG])
def test_check_tells_what_is_wrong(name: str, answer, word: str, expect):
    torch.set_default_dtype(torch.float32)
    expect(getattr(checks, f"check_{name}"), answer, word)
