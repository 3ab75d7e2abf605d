"""Chapter "Teaching with pictures no one can read: LODA": its statements, exercises and studies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from privfl_lite import models
from privfl_lite.attacks.adaptive.loda_inversion import stationarity, violation
from privfl_lite.defenses.loda import obscure
from privfl_lite.models.extractor import Extractor, load_extractor, squared_distance
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.teach import ledger
from privfl_lite.teach.checks import loda as checks
from privfl_lite.teach.drawings import two_terms

SEEDS = range(3)
SIDE = 4
D = 3 * SIDE**2


class Features:
    """Features as an extractor gives them, from any function of flat images (B, d) -> (B, p)."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        self.function = function

    def __call__(self, x: Tensor) -> list[Tensor]:
        return [self.function(x.flatten(1))]


def linear(seed: int, scale: float = 1.0, outputs: int = 2 * D) -> tuple[Features, Tensor]:
    G = scale * torch.randn(outputs, D, generator=generator(seed)).double() / outputs**0.5
    return Features(lambda x: x @ G.T), G


def smooth(seed: int) -> tuple[Features, nn.Module]:
    """Two layers with tanh."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(D, 30), nn.Tanh(), nn.Linear(30, 40)).double()
    return Features(net.requires_grad_(False)), net


def images(seed: int, n: int = 2) -> Tensor:
    return torch.rand(n, 3, SIDE, SIDE, generator=generator(seed, 1)).double()


def objective(g: Callable, z: Tensor, x: Tensor, c: float) -> Tensor:
    return squared_distance(g(z), g(x)) - c * (z - x).flatten(1).square().sum(1)


def flat_norm(t: Tensor) -> Tensor:
    return t.flatten(1).norm(dim=1)


def lipschitz(net: nn.Module) -> float:
    """An upper bound: the product of the layers' norms (tanh has slope 1 at most)."""
    return float(
        torch.linalg.matrix_norm(net[0].weight, 2) * torch.linalg.matrix_norm(net[2].weight, 2)
    )


# --- stationarity and the roots of Eq. 6 ---


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_loda_stationarity(seed: int) -> None:
    g, _ = smooth(seed)
    x, e = images(seed), images(seed + 9)
    z = e.clone().requires_grad_()
    (want,) = torch.autograd.grad(objective(g, z, x, 0.3).sum(), z)
    torch.testing.assert_close(2 * stationarity(g, e, 0.3)(x), want)  # 1
    # 3: a search that arrives, for a c at which pixels reach the walls
    made = obscure(g, x, e, 0.5, steps=3000, step_size=0.3, shrink=True, show=False).images
    r = stationarity(g, made, 0.5)(x)
    scale = 0.5 * flat_norm(made - x)
    walls = (made <= 0) | (made >= 1)
    assert walls.any()
    assert (flat_norm(violation(r, made)) < 0.02 * scale).all()
    assert (flat_norm(r) > 0.2 * scale).all()  # Eq. 5 itself fails there
    assert (r[made >= 1] <= 1e-6).all() and (r[made <= 0] >= -1e-6).all()
    # 2: inside the box Eq. 5 holds: g bends so strongly that one pixel step away is a minimum
    bent = Features(lambda x: torch.sin(6 * x) / 2)
    x = torch.full((1, 3, SIDE, SIDE), 0.2).double()
    made = obscure(bent, x, x + 0.25, 0.3, steps=4000, step_size=0.1, shrink=True, show=False)
    r = stationarity(bent, made.images, 0.3)(x)
    assert (made.images > 0).all() and (made.images < 1).all()
    assert flat_norm(made.images - x) > 0.5  # not x* itself
    assert flat_norm(r) < 1e-3 * 0.3 * flat_norm(made.images - x)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_loda_roots(seed: int) -> None:
    g, net = smooth(seed)
    x, e = images(seed), images(seed + 9)
    for c in (0.0, 0.3, 20.0):
        assert not stationarity(g, e, c)(e).any()  # 1
    own, other = stationarity(g, e, 0.3)(x), stationarity(g, e, 1.0)(x)
    torch.testing.assert_close(other, own + (0.3 - 1.0) * (e - x))  # 2
    # x* is a root where Eq. 5 holds, and with another c it is not
    bent = Features(lambda x: torch.sin(6 * x) / 2)
    inside = torch.full((1, 3, SIDE, SIDE), 0.2).double()
    made = obscure(bent, inside, inside + 0.25, 0.3, 4000, 0.1, shrink=True, show=False).images
    assert flat_norm(stationarity(bent, made, 0.3)(inside)) < 1e-3
    assert flat_norm(stationarity(bent, made, 0.1)(inside)) > 0.1
    # 3: the derivative at x' is cI − JᵀJ
    jac = torch.autograd.functional.jacobian(lambda v: net(v[None])[0], e[0].flatten())
    residual = stationarity(g, e[:1], 0.3)

    def flat(v: Tensor) -> Tensor:
        return residual(v.view(1, 3, SIDE, SIDE)).flatten()

    with torch.enable_grad():
        found = torch.autograd.functional.jacobian(flat, e[0].flatten())
    want = 0.3 * torch.eye(D).double() - jac.T @ jac
    torch.testing.assert_close(found, want)
    assert torch.linalg.matrix_rank(want) == D


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_loda_linear(seed: int) -> None:
    g, G = linear(seed)
    x, e = images(seed), images(seed + 9)
    values, vectors = torch.linalg.eigh(G.T @ G)
    A = G.T @ G - 0.7 * torch.eye(D).double()
    torch.testing.assert_close(
        stationarity(g, e, 0.7)(x).flatten(1), (e - x).flatten(1) @ A, rtol=1e-8, atol=1e-10
    )
    assert (values - 0.7).abs().min() > 1e-6  # no eigenvalue: one root
    r = stationarity(g, e, 0.7)(0 * e).flatten(1)
    root = torch.linalg.solve(A, r.T).T
    torch.testing.assert_close(root, e.flatten(1))  # 1: the encoding
    # an eigenvalue as c: further roots
    moved = e + 0.1 * vectors[:, 5].view(1, 3, SIDE, SIDE)
    assert flat_norm(stationarity(g, e, values[5].item())(moved)).max() < 1e-10
    # 3: an encoding that differs from x* lies on walls
    c = 2 * values[0].item()
    made = obscure(g, x, e, c, 3000, 0.3, shrink=True, show=False).images
    assert (flat_norm(made - x) > 0.5).all()
    assert ((made <= 0) | (made >= 1)).flatten(1).any(1).all()


# --- the box ---


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_loda_unbounded(seed: int) -> None:
    g, net = smooth(seed)
    x, far = images(seed), 50 * torch.randn(2, 3, SIDE, SIDE, generator=generator(seed)).double()
    c = 1.1 * lipschitz(net) ** 2
    slack = (c - lipschitz(net) ** 2) * (far - x).flatten(1).square().sum(1)
    assert (objective(g, far, x, c) <= -slack + 1e-9).all()  # 1
    lin, G = linear(seed)
    values, vectors = torch.linalg.eigh(G.T @ G)
    step = vectors[:, 0].view(1, 3, SIDE, SIDE)
    low = values[0].item()
    for c, sign in ((1.5 * low, -1), (low, 0), (0.5 * low, 1)):  # 2
        v = objective(lin, x + 1e3 * step, x, c) / 1e6
        assert (v.sign() == sign).all() if sign else (v.abs() < 1e-9).all()
    anywhere = torch.randn(200, 1, 3, SIDE, SIDE, generator=generator(seed, 2)).double()
    for step in anywhere:
        assert (objective(lin, x[:1] + step, x[:1], low) >= -1e-9).all()
        assert (objective(lin, x[:1] + step, x[:1], 0.5 * low) > 0).all()
    # 3: corners over λ_max, and not below it
    made = obscure(lin, x, images(seed + 9), 1.2 * values[-1].item(), 4000, 0.3, True, False)
    assert ((made.images <= 0) | (made.images >= 1)).all()
    made = obscure(lin, x, images(seed + 9), 2 * low, 4000, 0.3, True, False)
    assert not ((made.images <= 0) | (made.images >= 1)).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_lem_loda_invertible(seed: int) -> None:
    g, G = linear(seed)
    m = torch.linalg.svdvals(G)[-1].item()
    x, e = images(seed), images(seed + 9)
    made = obscure(g, x, e, 0.5 * m**2, 2500, 0.3, shrink=True, show=False).images
    assert flat_norm(made - x).max() < 0.05  # 1: nothing is obscured
    many = images(seed + 20, 100)
    bound = (m**2 - 0.5 * m**2) * (many - x[:1]).flatten(1).square().sum(1)
    assert (objective(g, many, x[:1].expand_as(many), 0.5 * m**2) >= bound - 1e-9).all()
    gaps = squared_distance(g(many), g(x[:1].expand_as(many))).sqrt()  # 2
    assert (flat_norm(many - x[:1]) <= gaps / m + 1e-9).all()
    made = obscure(g, x, e, 3 * m**2, 2500, 0.3, shrink=True, show=False)  # 3
    features, pixels = made.history[:, :, -1].T
    assert (features <= 3 * m**2 * pixels).all() and (pixels <= D).all()
    assert (flat_norm(made.images - x) > 0.5).all()  # over m² there is room
    short, _ = linear(seed, outputs=D // 2)  # not invertible: any c > 0 obscures
    made = obscure(short, x, e, 0.5 * m**2, 2500, 0.3, shrink=True, show=False).images
    assert (flat_norm(made - x) > 0.5).all()


def test_the_first_convolution_of_the_stored_extractor_is_invertible() -> None:
    """m² and L² as the chapter prints them, on 16 × 16 pixels."""
    g = load_extractor((0,))
    G = g(torch.eye(768).view(768, 3, 16, 16))[0].flatten(1).double()
    values = torch.linalg.eigvalsh(G @ G.T)
    assert 0.3 < values[0] < 0.4 and 30 < values[-1] < 40
    five = load_extractor("loda1")  # its features contain the first convolution's
    a, b = torch.rand(2, 3, 3, 16, 16, generator=generator(0))
    ratio = squared_distance(five(a), five(b)) / (a - b).flatten(1).square().sum(1)
    assert (ratio >= values[0]).all()


def brute(g: Callable, x: Tensor, c: float, levels: int) -> Tensor:
    """The minimizer of Eq. 4 over a grid of the box, for very few pixels."""
    axis = torch.linspace(0, 1, levels).double()
    grid = torch.tensor(list(product(axis.tolist(), repeat=x.numel()))).double()
    cost = (g(grid) - g(x[None])).square().sum(1) - c * (grid - x).square().sum(1)
    return grid[cost.argmin()]


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_loda_negative(seed: int) -> None:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6)).double().requires_grad_(False)
    lip, x = lipschitz(net), torch.tensor([0.1, 0.42, 0.85]).double()
    for c in (2.0, 6.0, 20.0, 200.0):
        found = brute(net, x, c * lip**2, 21)
        forced = (x - 0.5).abs() > 3**0.5 / c
        assert torch.equal(found[forced], (x < 0.5).double()[forced])
    assert forced.all()  # at last the whole negative
    # with little weight, another image: features of a fold keep x' near x*
    assert not torch.equal(brute(net, x, 1e-4 * lip**2, 21), (x < 0.5).double())
    # linear: the sharper threshold of the exercise, over all corners
    G = torch.randn(9, 6, generator=generator(seed)).double()
    x = torch.rand(6, generator=generator(seed, 1)).double()
    rows = (G.T @ G).abs().sum(1)
    top = torch.linalg.eigvalsh(G.T @ G)[-1].item()
    for c in (1.5 * top, 5 * top, 1e4 * top):
        found = brute(lambda v: v @ G.T, x, c, 2)  # c > λ_max: corners suffice
        forced = (x - 0.5).abs() > rows / c
        assert torch.equal(found[forced], (x < 0.5).double()[forced])
    assert forced.all()


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_loda_start(seed: int) -> None:
    nothing = Features(lambda x: 0 * x)
    x, s = images(seed), images(seed + 9)

    def ends(start: Tensor, steps: int) -> Tensor:
        return obscure(nothing, x, start, 1.0, steps, 0.1, show=False).images

    for steps in (3, 40):
        z = s.clone()
        kappa = torch.ones(2, 1, 1, 1).double()
        for _ in range(steps):
            v = z - x
            length = flat_norm(v)[:, None, None, None]
            z, kappa = (z + 0.1 * v / length).clamp(0, 1), kappa * (1 + 0.1 / length)
        made = ends(s, steps)
        torch.testing.assert_close(made, (x + kappa * (s - x)).clamp(0, 1))
        assert (kappa >= (1 + 0.1 / D**0.5) ** steps).all()
        assert ((made - x).sign() == (s - x).sign()).all()  # 1
        inside = (made > 0) & (made < 1)
        assert inside.any()
        back = (kappa * s - made) / (kappa - 1)  # 3
        torch.testing.assert_close(back[inside], x[inside])
        if steps == 40:
            assert (back - x)[~inside].abs().max() > 0.05  # not on the walls
    assert torch.equal(ends(s, 2000), (s > x).double())  # 1, many steps
    assert torch.equal(ends(torch.full_like(x, 0.5), 2000), (x < 0.5).double())  # 2
    starts = torch.rand(400, *x.shape, generator=generator(seed, 3)).double()
    mean = torch.stack([1 - (t > x).double() for t in starts]).mean(0)
    assert (mean - x).abs().max() < 0.12
    # features matter at a moderate c, and signs may change
    g, _ = linear(seed, scale=3.0)
    made = obscure(g, x, s, 0.5, 500, 0.1, show=False).images
    assert not ((made - x).sign() == (s - x).sign()).all()
    # and at a very large one they do not
    made = obscure(g, x, s, 1e9, 40, 0.1, show=False).images
    torch.testing.assert_close(made, ends(s, 40), atol=1e-5, rtol=0)


# --- features ---


def test_lem_loda_identify() -> None:
    torch.manual_seed(0)
    hits = {True: [], False: []}
    for _ in range(300):
        own, drift = torch.randn(12).double(), torch.randn(12).double()
        drift *= 0.3 + torch.rand(()).double()
        others = own + torch.randn(8, 12).double()
        near = (others - own).norm(dim=1).min() > 2 * drift.norm()
        first = (others - own - drift).norm(dim=1).min() > drift.norm()
        hits[bool(near)].append(bool(first))
    assert all(hits[True]) and len(hits[True]) > 20
    assert any(hits[False]) and not all(hits[False])  # sufficient, not necessary


def test_prop_loda_units() -> None:
    net = models.build("resnet18", (3, 8, 8), 10, width=2)
    rng = generator(3)
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean = 0.1 * torch.randn(m.running_mean.shape, generator=rng)
            m.running_var = 0.5 + torch.rand(m.running_var.shape, generator=rng)
    net = net.double().eval()
    x, s = torch.rand(2, 2, 3, 8, 8, generator=rng).double()
    large, a = copy.deepcopy(net), 3.0
    convs = [m for m in large.features.modules() if isinstance(m, nn.Conv2d)][:3]
    norms = [m for m in large.features.modules() if isinstance(m, nn.BatchNorm2d)][:3]
    with torch.no_grad():
        for conv, norm in zip(convs, norms, strict=True):
            conv.weight *= a
            norm.running_mean *= a
            norm.running_var.copy_(a**2 * (norm.running_var + norm.eps) - norm.eps)
    torch.testing.assert_close(large(x), net(x))
    layers = (0, 1, 2)
    gaps = [squared_distance(*(Extractor(n, layers)(t) for t in (x, s))) for n in (net, large)]
    torch.testing.assert_close(gaps[1], a**2 * gaps[0])
    made = {
        (n, c): obscure(Extractor(model, layers), x, s, c, 20, 0.1, show=False).images
        for n, model in (("small", net), ("large", large))
        for c in (0.05, 0.05 * a**2)
    }
    torch.testing.assert_close(made["large", 0.05 * a**2], made["small", 0.05])
    assert (made["large", 0.05] - made["small", 0.05]).abs().max() > 0.01  # the same c: another


# --- the paper's tables and the studies ---


def test_the_papers_two_scores_order_its_table_2_differently() -> None:
    instahide, loda1 = (ledger.paper("loda/table-2")[name] for name in ("InstaHide k=4", "LODA₁"))
    assert all(loda1[score][0] > instahide[score][0] for score in ("Avg. LPIPS", "Avg. PSNR"))
    clean, obscured = (ledger.paper("loda/table-7")[data] for data in ("CIFAR10", "LODA₁"))
    assert max(clean, key=clean.get) == "ResNet34" and max(obscured, key=obscured.get) == "ResNet18"


def found(cells: list[dict], **want: object) -> dict:
    (cell,) = [c for c in cells if want.items() <= c.items()]
    return cell


def test_attack_study_says_what_the_chapter_says() -> None:
    cells = STUDIES["loda/attack"].show()["cells"]
    blind = found(cells, part="blind")["found"]
    gray, other = blind["gray"], blind["another image"]
    assert gray["images"] >= 32
    for layers, c in (("loda1", 20), ("loda2", 30)):
        cell = found(cells, part="encoding", layers=layers, c=c)
        assert cell["eq5"] > 0.5 and cell["kkt"] > 0.2 and cell["on_the_box"] > 0.2
        assert cell["found"]["x′"]["psnr"]["mean"] < other["psnr"]["mean"] < gray["psnr"]["mean"]
        attack = found(cells, part="adaptive", layers=layers)["found"]
        low, high = gray["psnr"]["interval"]
        assert low < attack["tuned"]["psnr"]["mean"] < high  # about gray
        assert attack["released"]["psnr"]["mean"] < low  # worse than gray
        assert found(cells, part="identify", layers=layers)["by"]["features"]["first"] >= 25
        one = found(cells, part="inversion", layers=layers)["found"]["1"]
        assert one["lpips"]["interval"][1] < other["lpips"]["interval"][0]
    many = found(cells, part="inversion", layers="loda1")["found"]
    assert many["1"]["lpips"]["mean"] > many["2"]["lpips"]["mean"] > many["4"]["lpips"]["mean"]
    for cell in cells:
        if cell["part"] == "decoder":  # above both blind guesses, also for LODA₃
            score = cell["found"]["1"]
            assert score["psnr"]["interval"][0] > gray["psnr"]["interval"][1]
            assert score["lpips"]["interval"][1] < other["lpips"]["interval"][0]
    assert found(cells, part="identify", layers="loda3")["by"]["features"]["first"] == 32
    read = found(cells, part="gradient", defense="loda1")["found"]["recursion, seen"]
    assert read["psnr"]["min"] > 90
    ratio = found(cells, part="time")
    assert ratio["loda1"]["range"][0] > 1 and ratio["loda2"]["range"][0] > 1


def test_training_study_says_what_the_chapter_says() -> None:
    cells = STUDIES["loda/training"].show()["cells"]

    def mean(**want: object) -> float:
        return found(cells, **want)["spread"]["mean"]

    for scheme in ("central", "federated"):
        arms = [f"loda1, c = {c}" for c in (3, 10)]
        values = [mean(part="train", scheme=scheme, arm=a) for a in ("none", *arms, "LODA₁")]
        assert values == sorted(values, reverse=True)  # falls with c
        cell = found(cells, part="train", scheme=scheme, arm="LODA₁")
        assert cell["spread"]["interval"][1] < 0.1  # below chance
    for model in ("lenet", "mlp"):  # they learned the negative
        assert mean(part="negative", model=model, arm="LODA₁") > 0.12
        assert mean(part="negative", model=model, arm="none") < 0.1
    assert mean(part="architecture", model="cloak", arm="LODA₁") > 0.15
    assert mean(part="negative", model="cloak", arm="LODA₁") < 0.12


# --- exercises ---


def residual(J: Tensor, a: Tensor, b: Tensor, e: Tensor, x: Tensor, c: float) -> Tensor:
    return J.T @ (a - b) - c * (e - x)


def test_check_residual(expect) -> None:
    expect(checks.check_residual, residual, "Right")
    for wrong, hint in (
        (lambda J, a, b, e, x, c: J.T @ (a - b) + c * (e - x), "minus sign"),
        (lambda J, a, b, e, x, c: J.T @ (b - a) - c * (e - x), "features is turned"),
        (lambda J, a, b, e, x, c: J.T @ (b - a) - c * (x - e), "all signs"),
        (lambda J, a, b, e, x, c: J.T @ (a - b) - (e - x), "weight c is missing"),
        (lambda J, a, b, e, x, c: 2 * residual(J, a, b, e, x, c), "half of it"),
        (lambda J, a, b, e, x, c: x, "gap of features"),
        (lambda J, a, b, e, x, c: a, "has shape"),
        (lambda J, a, b, e, x, c: ..., "replace the dots"),
    ):
        expect(checks.check_residual, wrong, hint)


def test_check_forced(expect) -> None:
    def gap(x: Tensor) -> Tensor:
        return (x - 0.5).abs()

    expect(checks.check_forced, lambda x, lip, c: gap(x) > lip**2 * x.numel() ** 0.5 / c, "Right")
    for wrong, hint in (
        (lambda x, lip, c: gap(x) > lip * x.numel() ** 0.5 / c, "L squared"),
        (lambda x, lip, c: gap(x) > lip**2 * x.numel() / c, "root of d"),
        (lambda x, lip, c: gap(x) > lip**2 / c, "√d is missing"),
        (lambda x, lip, c: gap(x) > lip**2 * x[0].numel() ** 0.5 / c, "all channels"),
        (lambda x, lip, c: gap(x) <= lip**2 * x.numel() ** 0.5 / c, "far from ½"),
        (lambda x, lip, c: x - 0.5 > lip**2 * x.numel() ** 0.5 / c, "dark pixels"),
        (lambda x, lip, c: gap(x) > 2, "compare the distance"),
        (lambda x, lip, c: x, "True and False"),
        (lambda x, lip, c: None, "replace the dots"),
    ):
        expect(checks.check_forced, wrong, hint)


def test_check_place(expect) -> None:
    def far(f: list[Tensor], m: list[Tensor]) -> list[Tensor]:
        return [(b - a).flatten(1).square().sum(1) for a, b in zip(f, m, strict=True)]

    def place(f: list[Tensor], m: list[Tensor], own: int) -> int:
        d = sum(far(f, m))
        return 1 + int((d < d[own]).sum())

    expect(checks.check_place, place, "Right")
    for wrong, hint in (
        (lambda f, m, own: place(f, m, own) - 1, "place 1, not 0"),
        (lambda f, m, own: 11 - place(f, m, own) - 1, "not those farther"),
        (lambda f, m, own: place(f[:1], m[:1], own), "not the first alone"),
        (lambda f, m, own: place(f[1:], m[1:], own), "not the last alone"),
        (lambda f, m, own: 77, "add the squared distances"),
        (lambda f, m, own: f[0], "is one number"),
        (lambda f, m, own: None, "replace the dots"),
    ):
        expect(checks.check_place, wrong, hint)


def test_check_unpush(expect) -> None:
    def known(e: Tensor, value: Tensor) -> Tensor:
        return torch.where((e <= 0) | (e >= 1), torch.nan, value)

    expect(checks.check_unpush, lambda e, s, k: known(e, (k * s - e) / (k - 1)), "Right")
    for wrong, hint in (
        (lambda e, s, k: (k * s - e) / (k - 1), "put NaN there"),
        (lambda e, s, k: known(e, (k * s - e) / k), "not by κ"),
        (lambda e, s, k: known(e, k * s - e), "divide by κ − 1"),
        (lambda e, s, k: known(e, (k * e - s) / (k - 1)), "changed places"),
        (lambda e, s, k: known(e, (e - k * s) / (k - 1)), "sign is turned"),
        (lambda e, s, k: known(e, s), "solve x'"),
        (lambda e, s, k: e * torch.nan, "were clipped; the others"),
        (lambda e, s, k: e[0], "shape of x_prime"),
        (lambda e, s, k: None, "replace the dots"),
    ):
        expect(checks.check_unpush, wrong, hint)


def read_encodings(encodings: Tensor, kappas: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
    low, high, starts = torch.zeros_like(pool[0]), torch.ones_like(pool[0]), []
    for e, kappa in zip(encodings, kappas, strict=True):
        edge = (kappa * pool - e) / (kappa - 1)
        least, most = (edge.masked_fill(w, s * torch.inf) for w, s in ((e >= 1, -1), (e <= 0, 1)))
        wrong = (least - high).clamp(min=0) + (low - most).clamp(min=0)
        k = int(wrong.flatten(1).sum(1).argmin())
        low, high = torch.maximum(low, least[k]), torch.minimum(high, most[k])
        starts.append(k)
    return (low + high) / 2, torch.tensor(starts)


def test_check_read_encodings(expect) -> None:
    expect(checks.check_read_encodings, read_encodings, "Right")

    def on_walls(e: Tensor, kappas: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
        starts = read_encodings(e, kappas, pool)[1]
        k = kappas[:, None, None, None]
        return ((k * pool[starts] - e) / (k - 1)).mean(0), starts

    def first_alone(e: Tensor, k: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
        return read_encodings(e[:1], k[:1], pool)[0], read_encodings(e, k, pool)[1]

    for wrong, hint in (
        (first_alone, "first"),
        (on_walls, "a bound, not the pixel"),
        (lambda e, k, pool: (e.mean(0), read_encodings(e, k, pool)[1]), "between the bounds"),
        (lambda e, k, pool: (e[0], torch.arange(len(e))), "not the starts"),
        (lambda e, k, pool: read_encodings(e, k, pool)[0], "return two things"),
        (lambda e, k, pool: (e, read_encodings(e, k, pool)[1]), "has shape"),
        (lambda e, k, pool: ..., "replace the dots"),
    ):
        expect(checks.check_read_encodings, wrong, hint)


# --- the example by hand ---


@pytest.mark.parametrize("c", two_terms.WEIGHTS)
def test_the_example_by_hand_is_what_the_package_finds(c: float) -> None:
    """The drawing's encodings are those of the text, and Algorithm 1's over many starts."""
    root = torch.tensor(two_terms.HELD).double().sqrt()
    g = Features(lambda x: x * root)
    x = torch.tensor(two_terms.PRIVATE, dtype=torch.double).view(1, 2, 1, 1)
    starts = torch.tensor(list(product((0.05, 0.5, 0.95), repeat=2))).double().view(9, 2, 1, 1)
    made = obscure(g, x.expand_as(starts), starts, c, 2000, 0.05, shrink=True, show=False).images
    best = made[objective(g, made, x.expand_as(made), c).argmin()].flatten()
    want = torch.tensor(two_terms.encoding(c), dtype=torch.double)
    torch.testing.assert_close(best, want, atol=1e-3, rtol=0)
    assert two_terms.encoding(c) == {0.2: (0.35, 0.6), 1.0: (1.0, 0.6), 2.0: (1.0, 0.0)}[c]
    if c == 1.0:  # Eq. 5 fails at the wall; a start left of x* ends at the other one
        r = stationarity(g, want.view(1, 2, 1, 1), c)(x).flatten()
        torch.testing.assert_close(r, torch.tensor([-0.39, 0.0], dtype=torch.double))
        begin = torch.tensor([0.2, 0.9], dtype=torch.double).view(1, 2, 1, 1)
        end = obscure(g, x, begin, c, 2000, 0.05, shrink=True, show=False).images.flatten()
        torch.testing.assert_close(
            end, torch.tensor([0.0, 0.6], dtype=torch.double), atol=1e-3, rtol=0
        )
