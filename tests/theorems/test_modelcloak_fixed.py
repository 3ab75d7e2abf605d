"""Chapter "ModelCloak I: how much noise is enough?": its statements, exercises and studies."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy.special import ndtr
from torch import nn

from privfl_lite import load, metrics, models, privacy
from privfl_lite.attacks import IDLG
from privfl_lite.client import share
from privfl_lite.defenses import DPGaussian, ModelCloak
from privfl_lite.defenses.modelcloak import select
from privfl_lite.gradients import clip, flat, gradient_function, norm, stateless, weights
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.studies.modelcloak_fixed.attack import CLIPS, SIGMAS
from privfl_lite.teach import ledger
from privfl_lite.teach.checks import modelcloak_fixed as checks


def digit_uploads(count: int = 3, **cloak: float) -> torch.Tensor:
    digits = load("mnist")
    x, y = digits.sample(count, split="test", seed=0)
    defense = ModelCloak(**cloak) if cloak else None
    return flat(share(models.build("lenet4", digits), x, y, defense, each=1, seed=0).tensors)


# --- the mechanism ---


def test_ex_cloak_hand() -> None:
    """The two halves of the table by hand: (σ, C) -> clipped gradient, noise, their ratio."""
    for sigma, C, kept, noise, ratio in (
        (0.5, 20, (6, 8), 10, 1),
        (0.5, 10, (6, 8), 5, 2),
        (0.5, 5, (3, 4), 2.5, 2),
        (0.5, 1, (0.6, 0.8), 0.5, 2),
        (0.25, 20, (6, 8), 5, 2),
        (1, 5, (3, 4), 5, 1),
        (5, 1, (0.6, 0.8), 5, 0.2),
    ):
        cut, length = clip({"w": torch.tensor([[6.0, 8.0]])}, C)
        assert cut["w"][0].tolist() == pytest.approx(kept)
        assert sigma * C == noise
        assert length.item() / noise == pytest.approx(ratio)


def test_prop_cloak_regimes() -> None:
    """The same draw of noise shows it: uploads are equal up to the factor C, or equal."""
    g = digit_uploads()
    norms = g.norm(dim=1)
    bites = [digit_uploads(clip=c, sigma=0.5) / c for c in (0.5, 2.0)]
    torch.testing.assert_close(*bites, rtol=1e-3, atol=1e-5)
    loose = [digit_uploads(clip=c, sigma=2.0 / c) for c in (40.0, 80.0)]
    assert norms.max() < 40
    torch.testing.assert_close(*loose, rtol=1e-3, atol=1e-5)
    # each regime's rule fails in the other
    other = [digit_uploads(clip=c, sigma=2.0 / c) for c in (0.5, 2.0)]
    assert (other[0] - other[1]).norm() > 1
    other = [digit_uploads(clip=c, sigma=0.5) / c for c in (40.0, 80.0)]
    assert (other[0] - other[1]).norm() > 0.1
    # equal noise, falling clip: the ratio stays, then falls with C
    parts = {"w": g}
    ratio = [norm(clip(parts, c)[0])[1].item() for c in (80, 40, 20, 10, 5)]
    assert ratio[0] == pytest.approx(ratio[1]) == pytest.approx(norms[1].item(), rel=1e-4)
    assert ratio[2:] == pytest.approx([20, 10, 5], rel=1e-4)


def test_prop_cloak_layers() -> None:
    rng = generator(0)
    long = {f"t{k}": 9 * torch.randn(4, 6, generator=rng) for k in range(3)}
    short = long | {"t0": 1e-3 * long["t0"]}
    assert norm(clip(long, 1.5, "layer")[0]).tolist() == pytest.approx([1.5 * 3**0.5] * 4)
    assert (norm(clip(short, 1.5, "layer")[0]) < 1.5 * 3**0.5 - 0.3).all()  # not attained
    assert norm(clip(long, 1.5, "update")[0]).tolist() == pytest.approx([1.5] * 4)
    cloak = ModelCloak(2, 5, where="server", per="layer")
    digits = load("mnist")
    x, y = digits.sample(2)
    plan = privacy.Training(100, 10, 1, sampling="poisson", weighting="fixed")
    assert privacy.account(cloak, plan).value is None  # it is not known how many tensors there are
    sent = share(models.build("cloak", digits), x, y, cloak, each=1).tensors  # 3 of them
    shapes = {n: tuple(t.shape[1:]) for n, t in sent.items()}
    found = privacy.account(cloak, replace(plan, tensors=shapes)).value
    assert found == pytest.approx(privacy.epsilon(5 / 3**0.5, 0.1, 100))
    assert found > 1.5 * privacy.epsilon(5, 0.1, 100)


# --- Eq. 6, the virtual input, Proposition 1 ---


class Unit(nn.Module):
    """The same network for images that are stored as a · x."""

    def __init__(self, inner: nn.Module, a: float):
        super().__init__()
        self.inner, self.a = inner, a

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.inner(z / self.a)


def sides_of_eq6(net: nn.Module, z: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    g = flat(gradient_function(stateless(net, "eval"))(weights(net), z[:, None], y[:, None]))
    return (z[0] - z[1]).norm().item(), ((g[0] - g[1]).norm() / g[0].norm()).item()


def kink_gradient(x: float, b: float = -0.4, v: float = 2.0) -> torch.Tensor:
    """Gradient of the proof's ReLU network at w = 1, c = 0, true class 2."""
    theta = torch.tensor([1.0, b, v, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    w, b_, v_, c1, c2 = theta
    logits = torch.stack([v_ * torch.relu(w * x + b_) + c1, c2])
    (g,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, torch.tensor(1)), theta)
    return g


def test_prop_cloak_eq6() -> None:
    digits = load("mnist")
    x, y = digits.sample(2, seed=3)
    net, y = models.build("lenet4", digits), y[:1].expand(2)
    left, right = sides_of_eq6(net, x, y)
    assert left > right > 0  # here, in [0, 1], it holds
    for a in (10.0, 0.5 * right / left):
        moved = sides_of_eq6(Unit(net, a), a * x, y)
        assert moved == pytest.approx((a * left, right), rel=1e-3)
    assert moved[0] < moved[1]  # and in the small unit it does not
    for gap in (1e-2, 1e-4, 1e-6):  # across the kink at 0.4
        on, off = kink_gradient(0.4 + gap), kink_gradient(0.4 - gap)
        assert 2 * gap < (on - off).norm() / on.norm()
    assert (on - off).norm().item() == pytest.approx((0.4**2 + 1) ** 0.5, rel=1e-4)
    assert on.norm().item() == pytest.approx(0.5 * (4 * (0.4**2 + 1) + 2) ** 0.5, rel=1e-4)
    # what follows: with the largest slope on the segment, and not with a smaller constant
    x_of = torch.linspace(0.5, 1.0, 400, dtype=torch.float64)
    g = torch.stack([kink_gradient(v.item()) for v in x_of])
    slopes = (g[1:] - g[:-1]).norm(dim=1) / (x_of[1] - x_of[0])
    gaps = torch.cdist(g, g) / (x_of[:, None] - x_of[None]).abs().fill_diagonal_(torch.inf)
    assert gaps.max() <= slopes.max() * (1 + 1e-6)
    assert gaps.max() > 0.99 * slopes.max()


def test_prop_cloak_no_virtual_input() -> None:
    rng, n, d, std = generator(0), 5, 40, 0.3
    A = torch.randn(d, n, generator=rng, dtype=torch.float64)
    x = torch.rand(n, generator=rng, dtype=torch.float64)
    noise = std * torch.randn(4000, d, generator=rng, dtype=torch.float64)
    seen = A @ x + noise
    answer = seen @ torch.linalg.pinv(A).T
    torch.testing.assert_close(answer, x + noise @ torch.linalg.pinv(A).T)
    chi = ((answer @ A.T - seen) ** 2).sum(1) / std**2
    assert chi.min() > 1  # never reached
    assert chi.mean().item() == pytest.approx(d - n, rel=0.02)
    assert chi.var().item() == pytest.approx(2 * (d - n), rel=0.1)
    square = A[:n]  # as many equations as pixels: there it exists
    assert (square @ torch.linalg.solve(square, seen[0, :n]) - seen[0, :n]).norm() < 1e-9


def test_prop_cloak_no_virtual_input_on_digits() -> None:
    """The search's residual is ς² (d − n), from the private image on."""
    digits, std = load("mnist"), 0.003
    x, y = digits.sample(3, split="test", seed=0)
    net = models.build("lenet4", digits)
    upload = share(net, x[1:], y[1:], DPGaussian(std), each=1, knows=("labels",))
    found = IDLG(steps=60, start=x[1:, None], show=False).run(upload)
    free = (net.num_parameters - 784) * std**2
    assert (found.cost / free).tolist() == pytest.approx([1, 1], abs=0.05)


def test_prop_cloak_prop1() -> None:
    digits = load("mnist")
    x, _ = digits.sample(200, seed=0)
    n, d = 784, models.build("lenet4", digits).num_parameters
    gray = metrics.l2(torch.full_like(x, 0.5), x)
    assert gray.max() <= n**0.5 / 2 + 1e-4
    assert metrics.l2(torch.ones(1, 1, 28, 28), torch.zeros(1, 1, 28, 28)).item() == n**0.5
    border = (n / (4 * d)) ** 0.5
    assert min(SIGMAS) > 2 * border  # all 30 settings, also for any clamped answer
    assert (gray < 1.01 * border * d**0.5).all()
    assert (gray > 0.9 * border * d**0.5).all()  # below the border gray is no counterexample
    assert metrics.l2(x[:1], x[:1]).item() == 0  # a lucky constant answer is, for every σ
    norm = digit_uploads(24).norm(dim=1)
    assert (norm > 3).all()  # C ≥ ‖g‖ fails for C ≤ 3 on every digit …
    assert 0 < (norm < 4).sum() < 6  # … and for C = 4 on most
    measured = ledger.paper("modelcloak/table-4")
    for data, chosen in ledger.paper("modelcloak/table-2")["chosen"].items():
        assert measured[data]["ModelCloak-Fix"]["MSE"] < chosen["σ"] * 2**0.5


# --- what holds ---


def misses(attacker, h0, h1, x0, x1, std: float, draws: int = 40_000) -> tuple[float, float]:
    """How often the attacker is r/2 or more away, if x0 and if x1 is true."""
    rng, r = generator(7), (x0 - x1).norm()
    out = []
    for h, x in ((h0, x0), (h1, x1)):
        seen = h + std * torch.randn(draws, len(h), generator=rng)
        away = (attacker(seen) - x).norm(dim=1)
        out.append((away >= r / 2 - 1e-6).float().mean().item())
    return tuple(out)


def test_prop_cloak_two_point() -> None:
    rng = generator(1)
    A = torch.randn(6, 3, generator=rng)
    x0, x1 = torch.rand(3, generator=rng), torch.rand(3, generator=rng)
    h0, h1, std = A @ x0, A @ x1, 0.9
    floor = ndtr(-(h0 - h1).norm().item() / (2 * std))

    def nearest(seen: torch.Tensor) -> torch.Tensor:
        first = (seen - h0).norm(dim=1) < (seen - h1).norm(dim=1)
        return torch.where(first[:, None], x0, x1)

    attackers = {
        "least squares": lambda seen: seen @ torch.linalg.pinv(A).T,
        "clamped": lambda seen: (seen @ torch.linalg.pinv(A).T).clamp(0, 1),
        "between": lambda seen: ((x0 + x1) / 2).expand(len(seen), 3),
        "always x0": lambda seen: x0.expand(len(seen), 3),
        "nearest": nearest,
    }
    found = {k: misses(a, h0, h1, x0, x1, std) for k, a in attackers.items()}
    assert all(max(pair) >= floor - 0.01 for pair in found.values())
    assert found["nearest"] == pytest.approx((floor, floor), abs=0.01)  # it cannot be raised
    assert found["always x0"] == (0.0, 1.0)  # one of the two: not each of them
    # with a clip: Φ(−1/σ), attained by opposite gradients; not without the clip
    u = torch.tensor([3.0, 4.0]) / 5
    ends = torch.zeros(2), torch.ones(2)

    def side(seen: torch.Tensor) -> torch.Tensor:
        return torch.where((seen @ u > 0)[:, None], ends[0], ends[1])

    for sigma in (1.0, 5.0):
        clipped = misses(side, 2 * u, -2 * u, *ends, 2 * sigma)
        assert clipped == pytest.approx((ndtr(-1 / sigma),) * 2, abs=0.01)
    assert max(misses(side, 20 * u, -20 * u, *ends, 2.0)) < 0.01 < ndtr(-1)
    four = misses(side, 2 * u, -2 * u, *ends, 2 * 5 / 4**0.5)  # the mean of four rounds
    assert four == pytest.approx((ndtr(-(4**0.5) / 5),) * 2, abs=0.01)


def test_prop_cloak_cramer_rao() -> None:
    rng, std = generator(2), 0.2
    J = torch.randn(30, 4, generator=rng) * torch.tensor([2.0, 1.0, 0.5, 0.2])
    noise = std * torch.randn(50_000, 30, generator=rng)
    bound = std**2 * torch.linalg.inv(J.T @ J).trace().item()
    x = torch.full((4,), 0.1)
    seen = J @ x + noise
    plain = (seen @ torch.linalg.pinv(J).T - x).square().sum(1).mean().item()
    assert plain == pytest.approx(bound, rel=0.03)  # attained
    half = seen[:, :15] @ torch.linalg.pinv(J[:15]).T  # unbiased on half of the data: worse
    assert (half - x).square().sum(1).mean().item() > 1.3 * bound
    ridge = seen @ torch.linalg.solve(J.T @ J + torch.eye(4), J.T).T
    assert (ridge - x).square().sum(1).mean().item() < 0.5 * bound  # biased: better near 0 …
    far = 50 * x
    ridge = (J @ far + noise) @ torch.linalg.solve(J.T @ J + torch.eye(4), J.T).T
    assert (ridge - far).square().sum(1).mean().item() > bound  # … and worse far away


def test_cramer_rao_predicts_the_attack_on_a_digit() -> None:
    digits, std = load("mnist"), 0.002
    x, y = digits.sample(3, split="test", seed=0)
    net = models.build("lenet4", digits)
    g, theta = gradient_function(stateless(net, "eval")), weights(net)

    def one(z: torch.Tensor) -> torch.Tensor:
        return flat(g(theta, z[None, None], y[2:][None]))[0]

    J = torch.func.jacfwd(one)(x[2]).flatten(1).double()
    factor = torch.linalg.eigvalsh(J.T @ J).reciprocal().sum().sqrt().item()
    assert factor == pytest.approx(228.5, rel=0.02)
    upload = share(net, x[2:], y[2:], DPGaussian(std), each=1, knows=("labels",))
    found = IDLG(steps=250, start=x[2:, None], show=False).run(upload).images
    away = (found - x[2:]).norm().item()
    assert away == pytest.approx(std * factor, rel=0.2)
    cut = metrics.l2(metrics.as_image(found), x[2:]).item() / away
    assert 0.6 < cut < 0.9  # clamping: between the roots of 1/2 and 1


# --- the tables ---


def test_selector_returns_the_papers_choices() -> None:
    for data, want in ledger.paper("modelcloak/table-2")["chosen"].items():
        best = select(ledger.grid("modelcloak/table-2", data, sigma="σ", clip="C"))
        assert (best["sigma"], best["clip"]) == (want["σ"], want["C"])


@pytest.mark.parametrize("data", ["MNIST", "CIFAR10", "LFW"])
def test_printed_success_follows_the_product(data: str) -> None:
    """Within equal σC the paper's successes lie close, within equal σ they do not."""
    cells = ledger.grid("modelcloak/table-2", data, sigma="σ", clip="C")
    assert len(cells) == len(SIGMAS) * len(CLIPS) == 30

    def spread(key) -> float:
        groups: dict = {}
        for c in cells:
            groups.setdefault(key(c), []).append(c["success"])
        means = {k: sum(v) / len(v) for k, v in groups.items()}
        return math.sqrt(sum((c["success"] - means[key(c)]) ** 2 for c in cells) / len(cells))

    assert 5 * spread(lambda c: c["sigma"] * c["clip"]) < spread(lambda c: c["sigma"])


def test_attack_study_says_what_the_chapter_says() -> None:
    cells = STUDIES["modelcloak-fixed/attack"].show()["cells"]

    def pick(**want: object) -> list[dict]:
        return [c for c in cells if all(c.get(k) == v for k, v in want.items())]

    assert all(c["success"] == 1 for c in pick(part="raw"))
    assert all(c["success"] == 0 for c in pick(part="grid", reading="text"))
    over = {"part": "grid", "reading": "over N", "data": "mnist", "start": "patterned"}
    assert pick(**over, sigma=1, clip=0.5)[0]["success"] > 0.8
    assert pick(**over, sigma=5, clip=2)[0]["success"] == 0
    assert all(c["success"] > 0.9 for c in pick(part="clip only"))
    plain, prior = (
        pick(part="informed", noise=0.01, attack=a)[0]["success"] for a in ("plain", "prior")
    )
    assert plain == 0 and prior > 0.4
    for std in (0.0005, 0.002):
        row = {c["clip"]: sorted(c["l2"])[12] for c in pick(part="equal", noise=std)}
        assert row[64] < row[16] < row[8]
        assert row[4] / row[8] == pytest.approx(2, rel=0.1)  # the clip bites: half of C, twice
        assert row[2] / row[4] == pytest.approx(2, rel=0.1)
    for std in (0.005, 0.01, 0.02, 0.05, 0.1, 0.5):  # more knowledge never does worse
        steps = ("plain", "prior", "prior, 16 rounds")
        middle = [sorted(pick(part="informed", noise=std, attack=a)[0]["l2"])[12] for a in steps]
        assert middle == sorted(middle, reverse=True)


# --- exercises ---


def layered(tensors: dict, C: float) -> dict:
    return clip(tensors, C, "layer")[0]


def test_check_clip_by_layer(expect) -> None:
    expect(checks.check_clip_by_layer, layered, "Right")
    for wrong, hint in (
        (lambda t, C: clip(t, C)[0], "as one vector"),
        (
            lambda t, C: {
                n: v * (C / v.flatten(1).norm(dim=1)).view(-1, *[1] * (v.dim() - 1))
                for n, v in t.items()
            },
            "do not normalize",
        ),
        (lambda t, C: {n: v.clamp(-C, C) for n, v in t.items()}, "single entries"),
        (lambda t, C: {n: v * min(1, C / v.norm()) for n, v in t.items()}, "norm of its own"),
        (lambda t, C: t, "nothing is clipped"),
        (lambda t, C: {n: 0 * v for n, v in t.items()}, "multiply client k's"),
        (lambda t, C: t["bias"], "return a dict"),
        (lambda t, C: ..., "replace the dots"),
    ):
        expect(checks.check_clip_by_layer, wrong, hint)


def best_of(grid: list, allowed, key) -> dict:
    return max((c for c in grid if allowed(c)), key=key)


def test_check_sweet_spot(expect) -> None:
    expect(checks.check_sweet_spot, select, "Right")
    for wrong, hint in (
        (lambda g, a: max(g, key=lambda c: c["accuracy"]), "this cell leaks"),
        (
            lambda g, a: best_of(
                g, lambda c: c["success"] <= a, lambda c: (c["accuracy"], -c["sigma"])
            ),
            "larger σ",
        ),
        (
            lambda g, a: best_of(
                g, lambda c: c["success"] < a or c["success"] == 0, lambda c: c["accuracy"]
            ),
            "is allowed",
        ),
        (lambda g, a: max(g, key=lambda c: c["sigma"]), "best accuracy"),
        (lambda g, a: 5, "one of the cells"),
        (lambda g, a: None, "replace the dots"),
    ):
        expect(checks.check_sweet_spot, wrong, hint)


def test_check_predicted_error(expect) -> None:
    def s(J):
        return torch.linalg.svdvals(J)

    expect(checks.check_predicted_error, lambda J, v: v * s(J).pow(-2).sum().sqrt(), "Right")
    for wrong, hint in (
        (lambda J, v: v**2 * s(J).pow(-2).sum(), "take its root"),
        (lambda J, v: s(J).pow(-2).sum().sqrt(), "deviation is missing"),
        (lambda J, v: v**2 * s(J).pow(-2).sum().sqrt(), "not squared"),
        (lambda J, v: v / s(J)[-1], "weakest direction"),
        (lambda J, v: v / (J.T @ J).trace().sqrt(), "before you take the trace"),
        (lambda J, v: v * (J.T @ J).trace().sqrt(), "that of its inverse"),
        (lambda J, v: v * (1 / s(J)).sum(), "not 1/s"),
        (lambda J, v: J, "is one number"),
        (lambda J, v: 0.0, "root of Σ"),
        (lambda J, v: None, "replace the dots"),
    ):
        expect(checks.check_predicted_error, wrong, hint)


def curve(clamp=True, power=1, cut=None, back=torch.linalg.pinv, last=False, border=True):
    def success_curve(J, images, noise, levels, threshold):
        unit, truth, rates = noise @ back(J).mT, images[:, None], []
        for std in levels:
            x_hat = truth + std * unit
            away = (x_hat.clamp(0, 1) if clamp else x_hat) - truth
            away = cut(away) if cut else away.norm(dim=2) ** power
            rates.append((away <= threshold).double().mean())
        hit = [v for v, rate in zip(levels, rates, strict=True) if (rate > 0) == last]
        return torch.stack(rates), (hit[-1 if last else 0] if hit and border else None)

    return success_curve


def test_check_success_curve(expect) -> None:
    expect(checks.check_success_curve, curve(), "Right")

    def as_lists(*given):
        rates, border = curve()(*given)
        return rates.tolist(), border

    expect(checks.check_success_curve, as_lists, "Right")
    for wrong, hint in (
        (curve(clamp=False), "clamp the answers"),
        (curve(power=2), "not for its square"),
        (curve(cut=lambda e: e.square().mean(2)), "mean squared error"),
        (curve(cut=lambda e: e.abs().amax(2)), "norm over the pixels"),
        (curve(clamp=False, back=lambda J: J.mT), "not by Jᵀ"),
        (curve(last=True), "the border is"),
        (curve(border=False), "you say there is none"),
        (lambda *given: (1 - curve()(*given)[0], None), "rates of failure"),
        (lambda *given: (0 * curve()(*given)[0] + 0.5, None), "near enough"),
        (lambda *given: curve()(*given)[0], "return two things"),
        (lambda *given: (curve()(*given)[0], 0.123), "border"),
        (lambda *given: None, "replace the dots"),
    ):
        expect(checks.check_success_curve, wrong, hint)
