"""Chapter 2, "Why gradients leak": each statement against autograd, and where it fails to hold.

A test has the name of its label in the book. Equation numbers are those of the papers. All in
float64, with random shapes and values, so that "equal" means equal to about twelve digits.
"""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacfwd
from torch.nn.functional import conv2d, cross_entropy, unfold

import privfl_lite as pf
from privfl_lite.attacks.analytic.recursive import from_gradient, head_input
from privfl_lite.teach.checks import why_gradients_leak as checks

SEEDS = range(5)
close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def double():
    """Every number of this file is a float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def between(low: int, high: int, gen: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (1,), generator=gen))


def normal(*shape: int, gen: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=gen)


def gradients(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Autograd's gradient of the mean cross-entropy, by name of the weight."""
    net.zero_grad()
    cross_entropy(net(x), y).backward()
    return {n: p.grad.clone() for n, p in net.named_parameters()}


def mlp(sizes: list[int], act: type, gen: torch.Generator, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (inp, out) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(inp, out, bias=bias)] + [act()] * (i < len(sizes) - 2)
    net = nn.Sequential(*layers)
    for p in net.parameters():
        p.data = normal(*p.shape, gen=gen) / math.sqrt(p.shape[-1])
    return net


def onehot(y: Tensor, classes: int) -> Tensor:
    return nn.functional.one_hot(y, classes).to(torch.get_default_dtype())


def relative(a: Tensor, b: Tensor) -> float:
    """Distance of a from b, relative to b."""
    return float((a - b).norm() / b.norm())


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


# --- FedKL, Claims 1 to 4 and Proposition 1 ---


@pytest.mark.parametrize("seed", SEEDS)
def test_claim_linear_regression(seed: int):
    """FedKL Eq. 3, Claim 1: one example is ±1 correlated with its gradient; a batch need not be."""
    gen = rng(seed)
    N, D = between(1, 8, gen), between(3, 20, gen)
    theta, x, y = normal(D, gen=gen), normal(N, D, gen=gen), normal(N, gen=gen)
    residual = x @ theta - y
    g = grad(lambda theta: (x @ theta - y).square().mean())(theta)
    close(g, 2 / N * residual @ x)  # Eq. 3
    for target in (-50.0, 50.0):  # one example: correlation is the sign of the residual
        one = grad(lambda theta, t=target: (x[0] @ theta - t).square())(theta)
        corr = torch.corrcoef(torch.stack([one, x[0]]))[0, 1]
        close(corr, (x[0] @ theta - target).sign())  # −1 as often as +1: not "positively related"
    # Not a function of the data: another input and label with the same gradient ...
    scale = 2.5
    y_other = scale * (x[0] @ theta) - residual[0] / scale
    a, b = (
        grad(lambda theta, x=x, y=y: (x @ theta - y).square())(theta)
        for x, y in ((x[0], y[0]), (scale * x[0], y_other))
    )
    close(a, b)
    # ... and nothing at all where the prediction is right, or where residuals cancel.
    zero = grad(lambda theta: (x[0] @ theta - x[0] @ theta.detach()).square())(theta)
    assert not zero.any()
    pair, off = torch.stack([x[0], x[0]]), torch.tensor([1.0, -1.0])
    g = grad(lambda theta: (pair @ theta - (pair @ theta).detach() - off).square().mean())(theta)
    close(g, torch.zeros(D))


@pytest.mark.parametrize("seed", SEEDS)
def test_claim_fully_connected(seed: int):
    """FedKL Eq. 6, 7, 9, 10 (and 4, 8), Claim 2: outer products; x needs one live unit, B = 1."""
    gen = rng(seed)
    Dx, Do, Nc = between(6, 12, gen), between(4, 5, gen), 3
    net = mlp([Dx, Do, Nc], nn.ReLU, gen)
    net[0].bias.data[0] = 5.0  # at least one unit is on
    x, y = normal(1, Dx, gen=gen), torch.tensor([seed % Nc])
    g = gradients(net, x, y)
    a = net[:2](x)[0].detach()
    error = net(x).softmax(1)[0].detach() - onehot(y, Nc)[0]
    lam = net[2].weight.detach()
    close(g["2.weight"], torch.outer(error, a))  # Eq. 6, with the outer product written out
    close(g["2.bias"], error)  # Eq. 7
    back = (error @ lam) * a.sign()  # Eq. 4: the slope of ReLU is sgn(a)
    close(g["0.weight"], torch.outer(back, x[0]))  # Eq. 9
    close(g["0.bias"], back)  # Eq. 10
    with pytest.raises(RuntimeError):
        error[None] @ a[:, None]  # Eq. 6 as printed: (1 × N_c)(D_o × 1) is no product
    with pytest.raises(RuntimeError):
        back[None] @ x.T  # Eq. 9 as printed: (1 × D_o)(D_x × 1) neither
    close(g["0.weight"][0] / g["0.bias"][0], x[0])  # "the input data x can be reconstructed"
    # Eq. 8 alone: only live units give equations, and here there are fewer than inputs.
    live = a > 0
    close(net[0].weight.detach()[live] @ x[0] + net[0].bias.detach()[live], a[live])
    assert torch.linalg.matrix_rank(net[0].weight[live]) <= Do < Dx
    # Batches: Eq. 9 holds with a sum over examples, and row quotients are mixtures.
    X, Y = normal(3, Dx, gen=gen), torch.randint(Nc, (3,), generator=gen)
    G, A = gradients(net, X, Y), net[:2](X).detach()
    E = (net(X).softmax(1).detach() - onehot(Y, Nc)) / 3
    close(G["0.weight"], ((E @ lam) * A.sign()).T @ X)
    assert min(relative(G["0.weight"][0] / G["0.bias"][0], row) for row in X) > 1e-3


def conv_net(gen: torch.Generator, side: int, channels: int, kernels: int, k: int, m: int):
    """Claim 3's network, and the derivative of the loss with respect to u by autograd."""
    conv = nn.Conv2d(channels, kernels, k)
    net = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(kernels * (side - k + 1) ** 2, m))
    for p in net.parameters():
        p.data = 0.5 * normal(*p.shape, gen=gen)
    return net


@pytest.mark.parametrize("seed", SEEDS)
def test_claim_convolution(seed: int):
    """FedKL Eq. 12–16, Claim 3: Eq. 14 needs the sum over positions that Eq. 16 has."""
    gen = rng(seed)
    B, side, C, K, k = between(1, 3, gen), between(5, 8, gen), between(1, 3, gen), 3, 3
    net, y = conv_net(gen, side, C, K, k, 4), torch.randint(4, (B,), generator=gen)
    x = normal(B, C, side, side, gen=gen)
    g = gradients(net, x, y)
    u = net[0](x).detach()
    L = side - k + 1
    theta, b1 = net[0].weight.detach(), net[0].bias.detach()
    i, j, d = between(0, L - 1, gen), between(0, L - 1, gen), between(0, K - 1, gen)
    patch = x[0, :, i : i + k, j : j + k]
    close(u[0, d, i, j], (theta[d] * patch).sum() + b1[d])  # Eq. 12
    error = (net(x).softmax(1).detach() - onehot(y, 4)) / B
    delta = (error @ net[3].weight.detach()).view_as(u) * (u > 0)  # ∂ℓ/∂u by Eqs. 9–10
    right = torch.zeros_like(theta)
    for i in range(L):
        for j in range(L):
            patches = x[:, :, i : i + k, j : j + k]
            right += torch.einsum("nd,nchw->dchw", delta[:, :, i, j], patches)
    close(g["0.weight"], right)  # Eq. 14 with its sum over positions (and examples)
    close(g["0.bias"], delta.sum((0, 2, 3)))  # Eq. 16
    for i in range(L):  # Eq. 14 as printed: for no single position (i, j) does it hold
        for j in range(L):
            one = torch.einsum("nd,nchw->dchw", delta[:, :, i, j], x[:, :, i : i + k, j : j + k])
            assert relative(one, g["0.weight"]) > 1e-3
    small = conv_net(gen, k, C, K, k, 4)  # one position only: then the printed form is right
    x, y = normal(1, C, k, k, gen=gen), torch.tensor([0])
    g = gradients(small, x, y)
    close(g["0.weight"], g["0.bias"].view(-1, 1, 1, 1) * x)


def batch_norm_parts(seed: int):
    """Claim 4's network on random data, with every intermediate derivative by autograd."""
    gen = rng(seed)
    B, side, C, K, k, m = between(2, 4, gen), between(5, 7, gen), 2, 3, 3, 4
    net = conv_net(gen, side, C, K, k, m)
    x, y = normal(B, C, side, side, gen=gen), torch.randint(m, (B,), generator=gen)
    gamma, beta, eps = normal(K, gen=gen) + 2, normal(K, gen=gen), 1e-5
    u = net[0](x).detach()
    count = u.numel() // K

    def loss(gamma, beta, u, mu=None, var=None, u_hat=None):
        mu = u.mean((0, 2, 3)) if mu is None else mu  # Eq. 17, over examples and positions
        if var is None:
            var = (u - mu.view(1, -1, 1, 1)).square().mean((0, 2, 3))  # Eq. 18
        if u_hat is None:
            u_hat = (u - mu.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + eps).sqrt()  # Eq. 19
        s = gamma.view(1, -1, 1, 1) * u_hat + beta.view(1, -1, 1, 1)  # Eq. 20
        return cross_entropy(net[3](s.relu().flatten(1)), y)

    mu, var = u.mean((0, 2, 3)), u.var((0, 2, 3), unbiased=False)
    wide = (1, K, 1, 1)
    u_hat = (u - mu.view(wide)) / (var.view(wide) + eps).sqrt()
    s = gamma.view(wide) * u_hat + beta.view(wide)
    error = (net[3](s.relu().flatten(1)).softmax(1).detach() - onehot(y, m)) / B
    ds = (error @ net[3].weight.detach()).view_as(s) * (s > 0)  # (ŷ − y)·λ ∘ sgn(a)
    return loss, gamma, beta, u, u_hat, mu, var, ds, eps, count, wide


@pytest.mark.parametrize("seed", SEEDS)
def test_claim_batch_norm(seed: int):
    """FedKL Eq. 17–26, Claim 4: right once Eqs. 21, 22, 24, 25 sum over examples and positions."""
    loss, gamma, beta, u, u_hat, mu, var, ds, eps, count, wide = batch_norm_parts(seed)
    over = (0, 2, 3)
    d_gamma, d_beta = (ds * u_hat).sum(over), ds.sum(over)
    close(grad(loss, 0)(gamma, beta, u), d_gamma)  # Eq. 21, summed
    close(grad(loss, 1)(gamma, beta, u), d_beta)  # Eq. 22, summed
    d_hat = ds * gamma.view(wide)
    close(grad(lambda h: loss(gamma, beta, u, u_hat=h))(u_hat), d_hat)  # Eq. 23, as printed
    centered, scale = u - mu.view(wide), (var + eps).view(wide)
    d_var_each = -0.5 * d_hat * centered * scale**-1.5
    d_var = d_var_each.sum(over)
    close(grad(lambda v: loss(gamma, beta, u, mu=mu, var=v))(var), d_var)  # Eq. 24, summed
    d_mu_each = -d_hat / scale.sqrt() - d_var.view(wide) * 2 * centered / count
    d_mu = d_mu_each.sum(over)
    close(grad(lambda m: loss(gamma, beta, u, mu=m))(mu), d_mu)  # Eq. 25, summed
    close((d_var.view(wide) * centered).sum(over), torch.zeros_like(mu))  # its last term is 0
    d_u = d_hat / scale.sqrt() + d_var.view(wide) * 2 * centered / count + d_mu.view(wide) / count
    close(grad(loss, 2)(gamma, beta, u), d_u)  # Eq. 26, as printed
    # As printed, without sums, Eqs. 21, 22, 24 and 25 have one value for each example and
    # position; no single one of them is the derivative, and Eq. 26 fed with them is wrong.
    for each, right in (
        (ds * u_hat, d_gamma),
        (ds, d_beta),
        (d_var_each, d_var),
        (d_mu_each, d_mu),
    ):
        single = each.transpose(0, 1).flatten(1)  # (channels, examples · positions)
        assert ((single - right[:, None]).abs() > 1e-6).all()
    mu_printed = -d_hat / scale.sqrt() - d_var_each * 2 * centered / count
    printed = d_hat / scale.sqrt() + d_var_each * 2 * centered / count + mu_printed / count
    assert relative(printed, d_u) > 1e-3
    # Definition 3: mean 0 and variance 1, but not "a standard normal distribution".
    skewed = torch.rand(10_000, generator=rng(seed)).pow(8)
    normed = (skewed - skewed.mean()) / skewed.std()
    assert normed.pow(3).mean() > 1  # a normal distribution has 0


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_batch_norm_hides(seed: int):
    """Behind batch norm in train mode, the batch's common brightness and contrast are in no
    gradient; ∇b is 0."""
    gen = rng(seed)
    x, y = normal(3, 2, 8, 8, gen=gen), torch.randint(4, (3,), generator=gen)

    def compare(padding: int, mode: bool, eps: float, contrast, brightness: float) -> float:
        torch.manual_seed(seed)
        conv = nn.Conv2d(2, 3, 3, padding=padding)
        net = nn.Sequential(
            *(conv, nn.BatchNorm2d(3, eps=eps), nn.ReLU(), nn.Flatten()),
            nn.Linear(3 * (6 + 2 * padding) ** 2, 4),
        ).train(mode)
        a, b = gradients(net, x, y), gradients(net, contrast * x + brightness, y)
        if mode:
            assert a["0.bias"].abs().max() < 1e-12  # the bias in front of it has no gradient
        return max(relative(b[n], a[n]) for n in a if n != "0.bias")

    assert compare(0, True, 1e-14, 0.4, 0.3) < 1e-9
    assert compare(0, True, 1e-14, 2.0, -1.0) < 1e-9
    assert compare(2, True, 1e-14, 0.4, 0.0) < 1e-9  # contrast also with zero padding ...
    assert compare(2, True, 1e-14, 1.0, 0.3) > 1e-3  # ... but then the border gives brightness away
    assert 1e-9 < compare(0, True, 1e-5, 0.4, 0.3) < 1e-2  # with ε: nearly
    assert compare(0, False, 1e-14, 0.4, 0.3) > 1e-2  # not in eval mode
    one = torch.tensor([0.4, 1.0, 1.0]).view(3, 1, 1, 1)
    assert compare(0, True, 1e-14, one, 0.0) > 1e-3  # nor if one image of the batch changes alone


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_sufficient_information(seed: int):
    """FedKL Proposition 1, made precise: when x follows, and five ways in which it does not."""
    gen = rng(seed)
    m = 4
    x, y = torch.rand(1, 36, generator=gen), torch.tensor([seed % m])
    net = mlp([36, 10, m], nn.ReLU, gen)
    g = gradients(net, x, y)
    best = g["0.bias"].abs().argmax()
    close(g["0.weight"][best] / g["0.bias"][best], x[0])
    assert int(g["2.bias"].argmin()) == int(y)

    def same(net: nn.Module, a: tuple, b: tuple) -> None:
        first, second = gradients(net, *a), gradients(net, *b)
        assert any(t.abs().max() > 1e-6 for t in first.values())
        assert (a[0] - b[0]).abs().max() > 0.05
        for n in first:
            close(first[n], second[n], rtol=1e-9, atol=1e-12)

    dead = copy.deepcopy(net)
    dead[0].bias.data[:] = -100
    same(dead, (x, y), (torch.rand(1, 36, generator=gen), y))  # 1. no unit is on
    flat = mlp([36, m], nn.ReLU, gen)
    flat[0].weight.data.zero_()
    pair, shift = torch.rand(2, 36, generator=gen), torch.rand(36, generator=gen)
    moved, twice = pair + torch.stack([shift, -shift]), y.expand(2)
    same(flat, (pair, twice), (moved, twice))  # 2. two images of one class: only their sum shows
    pooled = nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, m))
    )
    pooled[0].bias.data[:] = 10  # all units on
    image = torch.rand(1, 1, 9, 9, generator=gen)
    inner = image[..., 2:-2, 2:-2]
    scrambled = image.clone()
    order = torch.randperm(inner.numel(), generator=gen)
    scrambled[..., 2:-2, 2:-2] = inner.flatten()[order].view_as(inner)
    same(pooled, (image, y), (scrambled, y))  # 3. pooling: pixels may change places
    normed = nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, eps=1e-14), nn.ReLU(), nn.Flatten()),
        nn.Linear(3 * 49, m),
    )
    same(normed, (image, y), (0.5 * image + 0.2, y))  # 4. batch norm: brightness and contrast
    strided = nn.Sequential(nn.Conv2d(1, 3, 2, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(27, m))
    unseen = image.clone()
    unseen[..., 2::3, :] = torch.rand(unseen[..., 2::3, :].shape, generator=gen)
    same(strided, (image, y), (unseen, y))  # 5. pixels that no window covers


# --- the recursion ---

SLOPES = {
    nn.Sigmoid: lambda a: a * (1 - a),
    nn.Tanh: lambda a: 1 - a * a,
    nn.ReLU: lambda a: (a > 0).to(a),
}


@pytest.mark.parametrize("act", SLOPES, ids=lambda a: a.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_prop_recursion(seed: int, act: type):
    """Model Entanglement Eq. 11–12: gradients of a chain without bias, and the way back to x."""
    gen = rng(seed)
    depth = between(2, 4, gen)
    sizes = [between(6, 15, gen) for _ in range(depth)] + [between(3, 6, gen)]
    net = mlp(sizes, act, gen, bias=False)
    x, y = normal(1, sizes[0], gen=gen), torch.tensor([seed % 3])
    g = list(gradients(net, x, y).values())
    weights = [p.detach() for p in net.parameters()]
    f = [x[0]]
    for W in weights[:-1]:
        f.append(act()(W @ f[-1]))  # Eq. 11
    delta = (weights[-1] @ f[-1]).softmax(0) - onehot(y, sizes[-1])[0]
    for k in reversed(range(depth)):  # Eq. 12a, 12b, 12c, ...
        close(g[k], torch.outer(delta, f[k]))
        delta = (weights[k].T @ delta) * SLOPES[act](f[k])
    head = nn.Linear(sizes[-2], sizes[-1], bias=False)
    head.weight.data = weights[-1]
    r, delta = head_input(g[-1], None, head)  # the way back, from the gradient alone
    for k in reversed(range(depth - 1)):
        delta = (weights[k + 1].T @ delta) * SLOPES[act](r.where(r.abs() > 1e-12, 0 * r))
        r = g[k].T @ delta / delta.square().sum()
    close(r, x[0], rtol=1e-5, atol=1e-6)


def test_prop_recursion_needs_the_slope():
    """Eq. 12b needs σ′ at u, and the output gives it only if equal outputs have equal slopes."""
    silu = nn.functional.silu
    a, b = torch.tensor(-0.5), torch.tensor(-3.0)  # two points of the dip of x·sigmoid(x)
    for _ in range(200):
        b = b - (silu(b) - silu(a)) / grad(silu)(b)
    close(silu(a), silu(b))
    assert abs(grad(silu)(a) - grad(silu)(b)) > 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_convolution_equations(seed: int):
    """A convolution's input solves a linear system; counting by residue classes bounds its rank."""
    gen = rng(seed)
    C, K, k, t, side = between(1, 3, gen), between(2, 12, gen), 5, 2, 14
    conv = nn.Conv2d(C, K, k, stride=t, padding=2)
    conv.weight.data = normal(*conv.weight.shape, gen=gen)
    a, delta = normal(1, C, side, side, gen=gen), normal(1, K, 7, 7, gen=gen)
    g = grad(lambda W: (conv2d(a, W, stride=t, padding=2) * delta).sum())(conv.weight.detach())
    pixels = side * side
    one = torch.eye(pixels).view(pixels, 1, side, side)
    G = torch.einsum("pkl,dl->dkp", unfold(one, k, 1, 2, t), delta[0].flatten(1)).flatten(0, 1)
    for c in range(C):  # the same matrix for every channel
        close(G @ a[0, c].flatten(), g[:, c].flatten())
    classes = [49, 49, 49, 49]
    offsets = [9, 6, 6, 4]  # of the 25 kernel entries, how many touch pixels of each class
    bound = sum(min(n, K * o) for n, o in zip(classes, offsets, strict=True))
    rank = int(torch.linalg.matrix_rank(G))
    assert rank == bound < pixels  # generic error signals reach the bound; never all 196
    known, free = from_gradient(conv, g, delta[0], (C, side, side), 1e-9)
    assert len(free) == C * (pixels - rank)
    left = a[0] - known
    basis = free.flatten(1)
    close(left.flatten(), basis.T @ (basis @ left.flatten()))  # the rest lies in the free part


def test_prop_convolution_equations_by_channels():
    """LeNet's second layer with C channels: 7 are enough for a sigmoid, 6 are not."""
    for channels, enough in ((5, False), (6, False), (7, True), (12, True)):
        told = sum(min(49, channels * o) for o in (9, 6, 6, 4))
        assert (channels * told + 49 * channels >= 196 * channels) == enough


def test_prop_convolution_equations_are_not_all_equations():
    """With 6 channels the recursion has too few, but the whole gradient fixes the image locally."""
    gen = rng(0)
    layers, inp = [], 1
    for stride in (2, 2, 1):
        layers += [nn.Conv2d(inp, 6, 5, stride, 2), nn.Sigmoid()]
        inp = 6
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(6 * 49, 10))
    for p in net.parameters():
        p.data = torch.rand(p.shape, generator=gen) - 0.5
    x, y = torch.rand(1, 1, 28, 28, generator=gen), torch.tensor([3])
    weights = {n: p.detach() for n, p in net.named_parameters()}

    def whole(x: Tensor) -> Tensor:
        g = grad(lambda w: cross_entropy(functional_call(net, w, (x,)), y))(weights)
        return torch.cat([t.flatten() for t in g.values()])

    jacobian = jacfwd(whole)(x).reshape(-1, 784)
    assert int(torch.linalg.matrix_rank(jacobian, rtol=1e-8)) == 784


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


def right_conv_gradient(x: Tensor, delta: Tensor, k: int) -> Tensor:
    g = torch.zeros(delta.shape[1], x.shape[1], k, k)
    for h in range(k):
        for w in range(k):
            seen = x[:, :, h : h + delta.shape[2], w : w + delta.shape[3]]
            g[:, :, h, w] = torch.einsum("ndij,ncij->dc", delta.to(g), seen.to(g))
    return g


def right_read_head(g_weight: Tensor, W: Tensor) -> Tensor:
    v = g_weight[0] / g_weight[0].norm()
    d = g_weight @ v
    if (d < 0).sum() > 1:
        d, v = -d, -v
    c, k = d.argsort()[-2:]
    return v * (d[c] / d[k]).log() / ((W[c] - W[k]) @ v)


def one_position(x: Tensor, delta: Tensor, k: int) -> Tensor:
    return torch.einsum("nd,ncij->dcij", delta[:, :, 0, 0], x[:, :, :k, :k])


def direction(g_weight: Tensor, W: Tensor) -> Tensor:
    r = right_read_head(g_weight, W)
    return r / r.norm()


CHECKS = {
    "read_off": right_read_off,
    "label_counts": right_label_counts,
    "conv_gradient": right_conv_gradient,
    "head_without_bias": right_read_head,
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
    ("conv_gradient", one_position, "every position"),
    ("conv_gradient", lambda x, d, k: right_conv_gradient(x, d, k).flip(2, 3), "turned"),
    ("conv_gradient", lambda x, d, k: right_conv_gradient(x, d, k) / d[0, 0].numel(), "positions"),
    ("conv_gradient", lambda x, d, k: right_conv_gradient(x[:1], d[:1], k), "every example"),
    ("head_without_bias", direction, "length"),
    ("head_without_bias", lambda g, W: -right_read_head(g, W), "sign"),
    ("head_without_bias", lambda g, W: W[0], "direction"),
    ("head_without_bias", lambda g, W: W[0].log(), "NaN"),
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
