"""Chapter "Changing the model": each statement against autograd, and where it stops holding.

A test has the name of its label in the book. Theorem tests are in float64, so that "equal" means
equal to about twelve digits.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, softplus

import privfl_lite as pf
from privfl_lite.attacks import Recursive
from privfl_lite.attacks.adaptive import precode
from privfl_lite.attacks.analytic.equations import head_input
from privfl_lite.defenses import PRECODE
from privfl_lite.studies import STUDIES
from privfl_lite.studies.changing_the_model import precode as study
from privfl_lite.teach.checks import changing_the_model as checks

SEEDS = range(4)
close = torch.testing.assert_close


@pytest.fixture()
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def network(seed: int, k: int = 5, beta: float = 0.1, **linear: bool) -> nn.ModuleDict:
    """A small network with a bottleneck whose noise is a buffer; ``linear``: bias or not."""
    torch.manual_seed(seed)
    has = {"encode": True, "decode": True, "head": True, **linear}
    layer = precode.Chosen(pf.defenses.precode.Bottleneck(6, k, beta))
    layer.encode = nn.Linear(6, 2 * k, bias=has["encode"])
    layer.decode = nn.Linear(k, 6, bias=has["decode"])
    if has["encode"]:
        layer.encode.bias.data[k:] += 4.0
    net = nn.Sequential(
        nn.Linear(7, 8), nn.Tanh(), nn.Linear(8, 6), nn.Sigmoid(), layer,
        nn.Linear(6, 4, bias=has["head"]),
    )  # fmt: skip
    return net


def gradients(net: nn.Module, x: Tensor, y: Tensor, noise: Tensor) -> dict[str, Tensor]:
    """Autograd's gradient of cross-entropy plus penalty for one draw."""
    net[4].given = noise
    net.zero_grad()
    loss = cross_entropy(net(x), y)
    (loss + net[4].penalty).backward()
    return {n: p.grad.clone() for n, p in net.named_parameters()}


def read(g: dict[str, Tensor], layer: str) -> Tensor:
    w, b = g[f"{layer}.weight"], g[f"{layer}.bias"]
    return w.T @ b / b.square().sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_lem_kl_gradient(double, seed: int):
    torch.manual_seed(seed)
    mean, s = torch.randn(6, requires_grad=True), (3 + 3 * torch.randn(6)).requires_grad_()
    std = softplus(s - 5)
    ours = (mean.square() + std.square() - 1).sum() / 2 - std.log().sum()
    kl = kl_divergence(Normal(mean, std), Normal(0.0, 1.0)).sum()
    close(ours, kl)
    kl.backward()
    close(mean.grad, mean.detach())
    close(s.grad, ((std - 1 / std) * torch.sigmoid(s - 5)).detach())
    assert kl > 0
    assert kl_divergence(Normal(0.0, 1.0), Normal(0.0, 1.0)) == 0
    low = torch.tensor(-9.0)  # far down: slope tends to −1
    std = softplus(low - 5)
    assert abs((std - 1 / std) * torch.sigmoid(low - 5) + 1) < 1e-5


def test_lem_fresh_draw_floor(double):
    """E‖mean of m fresh g(x̂) − g‖² = ‖ḡ(x̂) − g‖² + V(x̂)/m, over 2,000 draws."""
    net, x, y = network(0), torch.rand(1, 7), torch.tensor([1])
    torch.manual_seed(1)

    theta = {n: p.detach() for n, p in net.named_parameters()}

    def loss(theta: dict, at: Tensor, noise: Tensor) -> Tensor:
        return cross_entropy(functional_call(net, {**theta, "4.given": noise}, (at,)), y) + (
            net[4].penalty
        )

    def flat(at: Tensor, draws: int = 2000) -> Tensor:  # (draws, numbers)
        g = vmap(grad(loss), (None, None, 0))(theta, at, torch.randn(draws, 5))
        return torch.cat([t.flatten(1) for t in g.values()], 1)

    seen = flat(x, 1)[0]
    for at, m in ((x, 1), (x, 4), (torch.rand(1, 7), 1)):
        many = flat(at)
        mean, var = many.mean(0), many.var(0).sum()
        groups = many.view(-1, m, many.shape[1]).mean(1)
        got = (groups - seen).square().sum(1).mean()
        assert got.item() == pytest.approx(((mean - seen).square().sum() + var / m).item(), rel=0.1)
        assert var > 1e-6
    # both sides draw at the truth: 2 V
    many = flat(x)
    gap = (many[::2] - many[1::2]).square().sum(1).mean()
    assert gap.item() == pytest.approx(2 * many.var(0).sum().item(), rel=0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_error_signals_of_the_draw(double, seed: int):
    net, x, y = network(seed), torch.rand(1, 7), torch.tensor([seed % 4])
    for draw in range(3):
        torch.manual_seed(draw)
        noise = torch.randn(5)
        g = gradients(net, x, y, noise)
        with torch.no_grad():
            r = net[:4](x)
            mean, s = net[4].encode(r)[0].chunk(2)
            std, d = softplus(s - 5), net[4].decode.weight.T @ g["4.decode.bias"]
            for_s = (d * noise + 0.1 * (std - 1 / std)) * torch.sigmoid(s - 5)
        close(g["4.encode.bias"], torch.cat([d + 0.1 * mean, for_s]))
        close(g["4.encode.weight"], torch.outer(g["4.encode.bias"], r[0]))
    # a saturated head: nothing leaks without the penalty, r does with it
    loud = copy.deepcopy(net)
    with torch.no_grad():
        loud[5].bias.fill_(-1e6)
        loud[5].bias[int(y)] = 1e6
    g = gradients(loud, x, y, torch.randn(5))
    assert not g["5.bias"].any() and not g["4.decode.bias"].any()
    close(read(g, "4.encode"), r[0])
    loud[4].beta = 0.0
    assert not any(t.any() for t in gradients(loud, x, y, torch.randn(5)).values())


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_read_before_the_draw(double, seed: int):
    net, x, y = network(seed), torch.rand(1, 7), torch.tensor([seed % 4])
    inputs = {"0": x, "2": net[:2](x), "4.encode": net[:4](x)}
    behind = []
    for draw in range(5):
        torch.manual_seed(draw)
        g = gradients(net, x, y, torch.randn(5))
        for layer, a in inputs.items():
            close(read(g, layer), a[0].detach())
        behind.append(read(g, "4.decode"))
    assert all((a - b).norm() > 1e-2 for a, b in pairwise(behind))
    # without the bias gradient: same gradient for (κ a, δ / κ), so the length stays open
    w = g["4.encode.weight"]
    close(torch.outer(g["4.encode.bias"] / 3, 3 * inputs["4.encode"][0].detach()), w)
    # two examples: a weighted mean that moves with the draw, near neither
    x2, y2 = torch.rand(2, 7), torch.tensor([0, 1])
    mixed = []
    for draw in range(2):
        torch.manual_seed(draw)
        mixed.append(read(gradients(net, x2, y2, torch.randn(2, 5)), "0"))
    assert all((m - a).norm() > 1e-3 for m in mixed for a in x2)
    assert (mixed[0] - mixed[1]).norm() > 1e-4


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_noise_is_read(double, seed: int):
    net, x, y = network(seed), torch.rand(1, 7), torch.tensor([seed % 4])
    noise = torch.randn(5)
    g = gradients(net, x, y, noise)
    mean, s = net[4].encode(read(g, "4.encode")).detach().chunk(2)
    close((read(g, "4.decode") - mean) / softplus(s - 5), noise)
    with torch.no_grad():  # saturated: the decoder's error signal is zero, z is lost
        net[5].bias.fill_(-1e6)
        net[5].bias[int(y)] = 1e6
    g = gradients(net, x, y, noise)
    assert not g["4.decode.weight"].any()


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_cut_at_the_door(double, seed: int):
    net, x, y = network(seed), torch.rand(1, 7), torch.tensor([seed % 4])
    g = gradients(net, x, y, torch.randn(5))
    back = net[4].encode.weight.detach().T @ g["4.encode.bias"]
    front = net[:4]
    front.zero_grad()
    (front(x)[0] @ back).backward()
    for n, p in front.named_parameters():
        close(p.grad, g[n])
    # for two examples one vector does not replace their two error signals
    x2, y2 = torch.rand(2, 7), torch.tensor([0, 1])
    g = gradients(net, x2, y2, torch.randn(2, 5))
    back = net[4].encode.weight.detach().T @ g["4.encode.bias"]
    front.zero_grad()
    (front(x2) @ back).mean().backward()
    assert (front[0].weight.grad - g["0.weight"]).norm() > 1e-4 * g["0.weight"].norm()


def solve_length(g: Tensor, d: Tensor, W: Tensor, beta: float) -> Tensor:
    """r from gW = (d + β W r) rᵀ."""
    v = torch.linalg.svd(g)[2][0]
    if beta == 0:
        return g.T @ d / d.square().sum()
    a = torch.linalg.lstsq(torch.stack([d, beta * W @ v], 1), (g @ v)[:, None]).solution
    return a[0] * v  # unknowns κ and κ²


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("without", ["encode", "encode decode", "encode decode head"])
def test_prop_no_bias_no_help(double, beta: float, without: str):
    net = network(3, beta=beta, **dict.fromkeys(without.split(), False))
    x, y = torch.rand(1, 7), torch.tensor([2])
    g, r = gradients(net, x, y, torch.randn(5)), net[:4](x)[0].detach()
    if "4.decode.bias" in g:
        d = g["4.decode.bias"]
    else:
        d = net[5].weight.detach().T @ head_input(g["5.weight"], g.get("5.bias"), net[5])[1]
    d = net[4].decode.weight.detach().T @ d
    k = 5
    g_mean, W_mean = g["4.encode.weight"][:k], net[4].encode.weight.detach()[:k]
    close(solve_length(g_mean, d, W_mean, beta), r, rtol=1e-5, atol=1e-7)
    # where d and W v are parallel, κ is open: two lengths, one gradient
    v = r / r.norm()
    parallel, c = W_mean @ v, 0.3
    if beta:  # κ c + β κ² is the same for κ and −c/β − κ
        twin = -c / beta - r.norm()
        one, two = (
            torch.outer(c * parallel + beta * kappa * parallel, kappa * v)
            for kappa in (r.norm(), twin)
        )
        close(one, two)


# --- the package's layer, and the study ---


@pytest.fixture(scope="module")
def sent():
    digits = pf.load("mnist")
    x, y = digits.sample(2, split="test", seed=0)
    net = pf.models.build("lenet", digits)
    return x, y, pf.share(net, x, y, study.Draw(16, shift=5.0), knows=("labels",), each=1)


def test_imitator_with_the_noise_read_repeats_the_upload(sent):
    x, y, upload = sent
    noise = precode.read_noise(upload)
    again = precode.imitator(upload)(x[:, None], y[:, None], noise)
    for n, t in upload.tensors.items():
        close(again[n], t, rtol=1e-3, atol=1e-4 * float(t.abs().max()))
    off = precode.imitator(upload)(x[:, None], y[:, None], torch.zeros_like(noise))
    assert (off["head.weight"] - upload.tensors["head.weight"]).norm() > 1


def test_joint_search_has_the_noise_as_further_unknowns(sent):
    """Its cost and its start, computed from outside; the noise begins at zero."""
    x, y, upload = sent
    noise, rows, attack = precode.read_noise(upload), torch.arange(2), precode.DrawMatching
    cost = attack().cost(upload)
    at_truth, without = (cost(x[:, None], y[:, None], rows, e) for e in (noise, 0 * noise))
    assert (at_truth < 1e-4 * without).all() and attack().unknowns(upload) == 16
    found = attack(steps=30, frames=1, restarts=2).run(upload, seed=5)
    assert found.details["others"].shape == (2, 16) and found.details["others"].any()
    again = cost(found.images[:, None], y[:, None], rows, found.details["others"])
    close(found.cost, again, rtol=1e-3, atol=0)
    first = torch.randn(1, 1, 28, 28, generator=pf.runtime.generator(5, 0))
    z = torch.cat([first.flatten(), torch.zeros(16)])
    close(attack()._start(1, (1, 1, 28, 28), 16, 5)[0], z, rtol=0, atol=0)


def test_ways_that_are_no_search_are_refused(sent, refused):
    upload = sent[2]
    refused(lambda: precode.DrawMatching(way="recursion"), "way")
    bare = replace(upload, knows=pf.wire.Facts())
    refused(lambda: precode.DrawMatching().run(bare), 'grant it with knows=("labels",)')


def test_cut_cost_is_zero_at_the_truth_only(sent):
    x, _, upload = sent
    cost, rows = precode.cut_cost(upload), torch.arange(2)
    assert (cost(x, rows) < 1e-8).all() and (cost(x.flip(0), rows) > 1e-2).all()


@pytest.mark.parametrize("network", [n for n, v in study.ELSEWHERE.items() if v[0] == "mnist"])
def test_truth_costs_nothing_on_every_network(network: str):
    name, kind, options = study.ELSEWHERE[network]
    digits = pf.load(name)
    x, y = digits.sample(2, split="test", seed=0)
    upload = pf.share(
        pf.models.build(kind, digits, **options), x, y, study.Draw(16, shift=5.0), each=1
    )
    cost, rows = precode.cut_cost(upload), torch.arange(2)
    with torch.no_grad():
        assert (cost(x, rows) < 1e-6).all() and (cost(x.flip(0), rows) > 1e-2).all()


def test_balunovic_break_is_exact_for_every_draw():
    digits = pf.load("mnist")
    x, y = digits.sample(3, split="test", seed=1)
    net = pf.models.build("mlp", digits, hidden=(500,) * 6, init=0.05)
    for seed in range(2):
        t = pf.share(net, x, y, study.Draw(64, shift=5.0), each=1, seed=seed).tensors
        g, b = t["features.1.weight"], t["features.1.bias"]
        top = b.abs().argmax(1)
        rows = g[torch.arange(3), top] / b[torch.arange(3), top, None]
        assert pf.metrics.psnr(rows.view_as(x), x).min() > 80
    two = pf.share(net, x[:2], y[:2], study.Draw(64, shift=5.0))
    row = two.tensors["features.1.weight"][0] / two.tensors["features.1.bias"][0, :, None]
    top = two.tensors["features.1.bias"][0].abs().argmax()
    assert pf.metrics.psnr(row[top].view(1, 1, 28, 28).expand_as(x[:2]), x[:2]).max() < 60


def test_strong_draw_starts_at_softplus_of_s():
    net = study.Draw(16, shift=5.0).model(pf.models.build("mlp", (1, 4, 4), 3))
    plain = PRECODE(16).model(pf.models.build("mlp", (1, 4, 4), 3))
    r = torch.rand(2, 64)
    s, s_plain = (n.features[-1].encode(r).chunk(2, 1)[1] for n in (net, plain))
    close(softplus(s - 5), softplus(s_plain))


def median(**where: object) -> float:
    cells = STUDIES["changing-the-model/precode"].show()["cells"]
    (cell,) = [c for c in cells if all(c.get(k) == v for k, v in where.items())]
    return float(np.median(cell["psnr"]))


@pytest.mark.parametrize("size", [16, 256])
def test_stored_result_bears_out_what_the_chapter_says(size: int):
    weak, strong = ({"draw": d, "size": size} for d in ("weak", "strong"))
    for where in (weak, strong):
        assert median(**where, attack="GS") < 12 and median(**where, attack="L-BFGS") < 12
        assert median(**where, attack="recursion") > 90
        assert median(**where, attack="cut") > 25
    assert median(**weak, attack="no noise") > median(**weak, attack="L-BFGS") + 4
    assert median(**strong, attack="no noise") < 10


def test_a_stored_cell_comes_out_again():
    result = STUDIES["changing-the-model/precode"].show()
    (cell,) = [
        c for c in result["cells"]
        if (c.get("attack"), c.get("size"), c.get("draw")) == ("recursion", 16, "strong")
    ]  # fmt: skip
    key = {k: cell[k] for k in ("part", "draw", "size", "attack")}
    again = study.STUDY.compute(result["settings"], key)
    assert again["psnr"] == pytest.approx(cell["psnr"], abs=15) and min(again["psnr"]) > 80


def test_recursion_says_what_it_cannot_pass(sent):
    digits = pf.load("mnist")
    upload = pf.share(pf.models.build("lenet5", digits), *digits.sample(1), PRECODE(8))
    with pytest.raises(pf.PrivflError, match=r"ends at 'features\.3': ReLU and MaxPool2d"):
        Recursive(entry=f"{precode.door(upload)}.encode").run(upload)


# --- the exercises ---


def right_kl(mean, s):
    std = softplus(s - 5)
    return mean, (std - 1 / std) * torch.sigmoid(s - 5)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (right_kl, None),
        (lambda m, s: ..., "replace the dots"),
        (lambda m, s: m, "return two tensors"),
        (lambda m, s: (2 * m, right_kl(m, s)[1]), "derivative by the mean is off"),
        (lambda m, s: (m, softplus(s - 5) - 1 / softplus(s - 5)), "slope of its own"),
        (lambda m, s: (m, softplus(s - 5) * torch.sigmoid(s - 5)), "−log std is missing"),
        (lambda m, s: (m, -right_kl(m, s)[1]), "turned round"),
        (lambda m, s: (m, s), "is off; chain"),
    ],
)
def test_check_kl_gradient(expect, answer, hint):
    expect(checks.check_kl_gradient, answer, hint or "Right")


def right_noise(gW_e, gb_e, gW_d, gb_d, W_e, b_e):
    r = gW_e.T @ gb_e / gb_e.square().sum()
    z = gW_d.T @ gb_d / gb_d.square().sum()
    mean, s = (W_e @ r + b_e).chunk(2)
    return (z - mean) / softplus(s - 5)


def noise_with(change):
    def answer(gW_e, gb_e, gW_d, gb_d, W_e, b_e):
        r = gW_e.T @ gb_e / gb_e.square().sum()
        z = gW_d.T @ gb_d / gb_d.square().sum()
        return change(z, *(W_e @ r + b_e).chunk(2))

    return answer


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (right_noise, None),
        (noise_with(lambda z, m, s: z), "that is z, the draw"),
        (noise_with(lambda z, m, s: z - m), "that is z − μ"),
        (noise_with(lambda z, m, s: (z - m) / softplus(s)), "not softplus(s)"),
        (noise_with(lambda z, m, s: (z - m) / s), "s is not the standard deviation"),
        (lambda a, b, c, d, e, f: (c[0] / d[0])[:4], "NaN or infinity"),
        (lambda a, b, c, d, e, f: torch.ones(4), "read r off the encoder"),
    ],
)
def test_check_read_noise(expect, answer, hint):
    expect(checks.check_read_noise, answer, hint or "Right")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (solve_length, None),
        (lambda g, d, W, beta: g.T @ d / d.square().sum(), "right for β = 0 only"),
        (lambda g, d, W, beta: -solve_length(g, d, W, beta), "turned round"),
        (lambda g, d, W, beta: 2 * solve_length(g, d, W, beta), "the length is"),
        (lambda g, d, W, beta: torch.ones(8), "direction is not that of r"),
    ],
)
def test_check_read_without_bias(expect, answer, hint):
    expect(lambda a: checks.check_read_without_bias(a, explained), answer, hint or "Right")


def explained(gW, d, W, beta, within=1e-6, relative=True):
    found = {}
    for i in range(len(gW)):
        r = solve_length(gW[i], d[i], W, beta)
        off = (torch.outer(d[i] + beta * W @ r, r) - gW[i]).norm()
        if off < within * (gW[i].norm() if relative else 1):
            found[i] = r
    return found


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (explained, "Right"),
        (lambda *a: explained(*a, within=1e9), "keep an r that explains"),
        (lambda *a: explained(*a, relative=False), "compare the misfit with the size"),
        (lambda *a: dict(list(explained(*a).items())[:1]), "and you left it out"),
        (lambda *a: {i: 2 * r for i, r in explained(*a).items()}, "is not its input"),
        (lambda *a: list(explained(*a).values()), "returns a dictionary"),
        (lambda *a: ..., "returns nothing yet"),
    ],
)
def test_check_read_alone(expect, answer, says):
    expect(lambda a: checks.check_read_without_bias(solve_length, a), answer, says)


def test_ex_precode_by_hand():
    r, mean, std = 2.0, 0.5 * 2.0 + 0.1, 0.5
    for delta, weight in ((0.3, 0.6), (-1.7, -3.4)):
        assert delta * r == pytest.approx(weight) and weight / delta == pytest.approx(r)
    assert mean == pytest.approx(1.1) and (1.25 - mean) / std == pytest.approx(0.3)
