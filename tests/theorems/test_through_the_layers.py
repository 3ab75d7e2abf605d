"""Chapter "Through the layers": each statement against autograd, and where it fails to hold.

A test has the name of its label in the book. Equation numbers are those of the papers.
"""

from __future__ import annotations

import copy

import pytest
import torch
from layers import SEEDS, between, close, gradients, mlp, normal, onehot, relative, rng
from torch import Tensor, nn
from torch.func import functional_call, grad, jacfwd
from torch.nn.functional import conv2d, cross_entropy, unfold

from privfl_lite.attacks.analytic.equations import (
    from_gradient,
    from_gradient_alone,
    head_input,
    windows,
)
from privfl_lite.studies import STUDIES
from privfl_lite.teach.checks import through_the_layers as checks

pytestmark = pytest.mark.usefixtures("double")


def test_ex_layers_by_hand():
    """Two layers, ReLU, no bias: every number of the example, down and back up."""
    x, W1 = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    W2, delta2 = torch.tensor([[1.0, 2.0], [3.0, -1.0]]), torch.tensor([0.5, -0.5])
    loss = lambda W1, W2: delta2 @ (W2 @ (W1 @ x).relu())  # noqa: E731  its ∂/∂z is δ₂
    g1, g2 = grad(loss, argnums=(0, 1))(W1, W2)
    close((W1 @ x).relu(), torch.tensor([3.0, 0.0]))
    close(g2, torch.tensor([[1.5, 0.0], [-1.5, 0.0]]))
    close(g1, torch.tensor([[-1.0, -2.0], [0.0, 0.0]]))
    f1 = g2.T @ delta2 / delta2.square().sum()
    close(f1, torch.tensor([3.0, 0.0]))
    close(W2.T @ delta2, torch.tensor([-1.0, 1.5]))
    delta1 = (W2.T @ delta2) * (f1 > 0)
    close(delta1, torch.tensor([-1.0, 0.0]))
    close(g1.T @ delta1 / delta1.square().sum(), x)


def test_ex_layers_convolution():
    """Three pixels, a kernel of two: the gradient has two equations, the output two more."""
    x, w, delta = torch.tensor([0.2, 0.8, 0.4]), torch.tensor([1.0, -1.0]), torch.tensor([1.0, 2.0])
    slide = lambda w: torch.stack([w[0] * x[i] + w[1] * x[i + 1] for i in range(2)])  # noqa: E731
    g = grad(lambda w: delta @ slide(w))(w)
    close(g, torch.tensor([1.8, 1.6]))
    G = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 2.0]])  # δ₁ and δ₂, shifted
    F = torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])  # the kernel, shifted
    close(G @ x, g)
    close(F @ x, torch.tensor([-0.6, 0.4]))
    open_ = torch.tensor([4.0, -2.0, 1.0])
    close(G @ open_, torch.zeros(2))  # what the gradient leaves open
    close(x + 0.1 * open_, torch.tensor([0.6, 0.6, 0.5]))  # another image with the same gradient
    assert torch.linalg.matrix_rank(torch.cat([G, F])) == 3
    close(torch.linalg.lstsq(torch.cat([G, F]), torch.cat([g, F @ x])).solution, x)


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


# --- pooling, batch norm, shortcuts ---


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_norm_repeats(seed: int):
    """In eval mode the gradients of γ and β are functions of ∇W, ∇b; in train mode they are not."""
    gen = rng(seed)
    C, K, k, m = between(1, 3, gen), between(2, 5, gen), 3, 4
    x, y = normal(2, C, 7, 7, gen=gen), torch.randint(m, (2,), generator=gen)
    for mode in (False, True):
        torch.manual_seed(seed)
        conv, norm = nn.Conv2d(C, K, k), nn.BatchNorm2d(K)
        for t in (norm.weight.data, norm.bias.data, norm.running_mean):
            t.copy_(normal(K, gen=gen))
        norm.running_var.copy_(torch.rand(K, generator=gen) + 0.5)
        net = nn.Sequential(conv, norm, nn.ReLU(), nn.Flatten(), nn.Linear(25 * K, m)).train(mode)
        mean, scale = norm.running_mean.clone(), (norm.running_var + norm.eps).sqrt()
        g, W, b = gradients(net, x, y), conv.weight.detach(), conv.bias.detach()
        inner = (W * g["0.weight"]).flatten(1).sum(1) + (b - mean) * g["0.bias"]
        first = relative(norm.weight.detach() * g["1.weight"], inner)
        second = relative(norm.weight.detach() / scale * g["1.bias"], g["0.bias"])
        assert (max(first, second) < 1e-9) is not mode


def alone(conv: nn.Conv2d, a: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, int]:
    """What a convolution's own two gradients tell, for this input and this error signal."""
    slope = grad(
        lambda W, b: (conv2d(a[None], W, b, conv.stride, conv.padding)[0] * delta).sum(), (0, 1)
    )
    g_weight, g_bias = slope(conv.weight.detach(), conv.bias.detach())
    return from_gradient_alone(conv, g_weight, g_bias, tuple(a.shape[1:]), 1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_gradient_alone(seed: int):
    """Enough input channels: input and error signal from one gradient, also behind maxima."""
    gen = rng(seed)
    side, K = between(3, 5, gen), 40
    n = side * side
    conv = nn.Conv2d(n + 3, K, 3, padding=1)
    a, delta = torch.rand(n + 3, side, side, generator=gen), normal(K, side, side, gen=gen)
    sparse = delta * (torch.rand(delta.shape, generator=gen) < 0.4)  # a ReLU's zeros, or maxima
    for signal in (delta, sparse):
        found, error, rank = alone(conv, a, signal)
        assert rank == n
        close(found, a, rtol=1e-6, atol=1e-6)
        close(error, signal.flatten(1), rtol=1e-6, atol=1e-6)
    few = nn.Conv2d(n - 1, K, 3, padding=1)  # one channel too few: another input comes out
    found, _, rank = alone(few, a[: n - 1], delta)
    assert rank == n - 1 and relative(found, a[: n - 1]) > 1e-2
    flat = a[:1].expand(n + 3, -1, -1)  # enough channels, but all the same: rank 1
    assert alone(conv, flat, delta)[2] == 1
    silent = delta - delta.mean((1, 2), keepdim=True)  # ∇b = 0 leaves the scale open
    assert relative(alone(conv, a, silent)[0], a) > 1e-2


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_relu_loses_rank(seed: int):
    """Dead channels and units take equations away, and so does a maximum, known or not."""
    gen = rng(seed)
    C, K, side, k = between(2, 4, gen), between(2, 7, gen), 8, 3
    a = normal(C, side, side, gen=gen)
    conv = nn.Conv2d(C, K, k, padding=1)
    conv.weight.data = normal(*conv.weight.shape, gen=gen)
    conv.bias.data = normal(K, gen=gen) - 2
    conv.bias.data[0] = -1e3  # one channel is dead
    u = conv(a[None]).detach()
    for pool in (nn.Identity(), nn.MaxPool2d(2)):
        top = normal(*pool(u)[0].shape, gen=gen)
        delta = grad(lambda u, p=pool, t=top: (p(u.relu())[0] * t).sum())(u)[0]
        on = delta != 0
        live, units = int(on.flatten(1).any(1).sum()), int(on.sum())
        assert live < K and (isinstance(pool, nn.Identity) or units <= K * side * side // 4)
        seen = windows(conv, torch.eye(side * side).view(-1, 1, side, side))
        G = torch.einsum("pkl,dl->dkp", seen, delta.flatten(1)).flatten(0, 1)
        F = jacfwd(lambda a: conv(a[None])[0][on])(a).reshape(units, -1)  # noqa: B023
        rank = int(torch.linalg.matrix_rank(torch.cat([torch.block_diag(*[G] * C), F])))
        bound = C * min(side * side, live * k * k) + units
        assert rank <= min(bound, C * side * side)
        whole = C * min(side * side, K * k * k) + K * side * side
        assert bound < whole  # by the count with all units on, nothing would be missing


def test_what_the_chapter_counts_of_relu_failures():
    """Its numbers: of the stored failures, how many the count explains, how many the rank."""
    cells = STUDIES["through-the-layers/trained"].show()["cells"]
    failed = [f for c in cells for f in c.get("failures", [])]
    assert (len(failed), sum(any(f["too_few"]) for f in failed)) == (72, 62)
    assert all(any(f["open_at_truth"]) for f in failed)


# --- the exercises ---


def right_conv_gradient(x: Tensor, delta: Tensor, k: int) -> Tensor:
    g = torch.zeros(delta.shape[1], x.shape[1], k, k)
    for h in range(k):
        for w in range(k):
            seen = x[:, :, h : h + delta.shape[2], w : w + delta.shape[3]]
            g[:, :, h, w] = torch.einsum("ndij,ncij->dc", delta.to(g), seen.to(g))
    return g


def one_position(x: Tensor, delta: Tensor, k: int) -> Tensor:
    return torch.einsum("nd,ncij->dcij", delta[:, :, 0, 0], x[:, :, :k, :k])


def right_go_back(W: list[Tensor], g: list[Tensor], act: str, slope=None) -> Tensor:
    head = nn.Linear(W[-1].shape[1], W[-1].shape[0], bias=False)
    head.weight.data = W[-1]
    f, delta = head_input(g[-1], None, head)
    slope = slope or (lambda f: SLOPES[ACTS[act]](f.where(f.abs() > 1e-12, 0 * f)))
    for k in reversed(range(len(W) - 1)):
        delta = (W[k + 1].T @ delta) * slope(f)
        f = g[k].T @ delta / delta.square().sum()
    return f


ACTS = {"sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU}
CHECKS = {"conv_gradient": right_conv_gradient, "go_back": right_go_back}
WRONG = [
    ("conv_gradient", one_position, "every position"),
    ("conv_gradient", lambda x, d, k: right_conv_gradient(x, d, k).flip(2, 3), "turned"),
    ("conv_gradient", lambda x, d, k: right_conv_gradient(x, d, k) / d[0, 0].numel(), "positions"),
    ("conv_gradient", lambda x, d, k: right_conv_gradient(x[:1], d[:1], k), "every example"),
    ("go_back", lambda W, g, act: right_go_back(W, g, act, torch.ones_like), "slope is missing"),
    ("go_back", lambda W, g, act: right_go_back(W, g, act, lambda f: f), "not by the output"),
    ("go_back", lambda W, g, act: right_go_back(W, g, "sigmoid"), "the slope of sigmoid"),
    ("go_back", lambda W, g, act: 2 * right_go_back(W, g, act), "length is not"),
    ("go_back", lambda W, g, act: W[0][0], "one layer at a time"),
    ("go_back", lambda W, g, act: W[1][0], "shape"),
]


@pytest.mark.parametrize("name", CHECKS)
def test_check_accepts_the_right_answer(name: str, expect):
    torch.set_default_dtype(torch.float32)  # as in a notebook
    check = getattr(checks, f"check_{name}")
    expect(check, CHECKS[name], "Right")
    expect(check, lambda *_: ..., "replace the dots")


@pytest.mark.parametrize(("name", "answer", "word"), WRONG, ids=[f"{w[0]}: {w[2]}" for w in WRONG])
def test_check_tells_what_is_wrong(name: str, answer, word: str, expect):
    torch.set_default_dtype(torch.float32)
    expect(getattr(checks, f"check_{name}"), answer, word)
