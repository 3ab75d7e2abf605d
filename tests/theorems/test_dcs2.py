"""Chapter "Hiding in a crowd of one: DCS²": its statements, exercises and studies."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize
from torch.func import jacfwd
from torch.nn.functional import cosine_similarity, cross_entropy, one_hot

from privfl_lite import models
from privfl_lite.attacks.adaptive import dcs2_algebra as pair
from privfl_lite.attacks.adaptive.dcs2_matching import candidate_labels
from privfl_lite.attacks.adaptive.dcs2_split import lone_weight
from privfl_lite.client import share
from privfl_lite.defenses import DCS2, Memory
from privfl_lite.defenses.dcs2 import crafted, project
from privfl_lite.gradients import flat, gradient_function, stateless, weights
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.teach.checks import dcs2 as checks
from privfl_lite.teach.drawings import two_behind_one

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def exact():
    """A small net in double precision, three images, labels."""
    net = models.build("lenet", SHAPE, 10).double()
    x = torch.rand(3, *SHAPE, generator=generator(5), dtype=torch.float64)
    return net, x, torch.tensor([3, 1, 7])


def loss_gradient(net, loss) -> torch.Tensor:
    return torch.cat([t.flatten() for t in torch.autograd.grad(loss, list(net.parameters()))])


def vector(n: int, rng: torch.Generator) -> torch.Tensor:
    return torch.randn(n, generator=rng, dtype=torch.float64)


# --- Eq. 10 ---


def test_prop_dcs2_batch_of_two(exact) -> None:
    net, x, _ = exact
    y_s, y_c, lam = torch.tensor([3]), torch.tensor([5]), 0.7
    soft = lam * one_hot(y_c, 10) + (1 - lam) * one_hot(y_s, 10)

    def sides(loss) -> tuple[torch.Tensor, torch.Tensor]:
        """Eq. 10 for a loss of logits and a distribution, and the sum over a batch of two."""
        out, own, other = net(x[:2]), one_hot(y_s, 10), one_hot(y_c, 10)
        printed = loss(out[:1], own) + lam * loss(out[1:], other) + (1 - lam) * loss(out[1:], own)
        return loss_gradient(net, printed), loss_gradient(
            net, loss(net(x[:1]), own) + loss(net(x[1:2]), soft)
        )

    def entropy(z, q):
        return cross_entropy(z, q.double())

    torch.testing.assert_close(*sides(entropy))
    torch.testing.assert_close(*sides(lambda z, q: (z.softmax(1) - q).pow(2).sum()))
    # not for an absolute error: its slope depends on the sign alone
    a, b = sides(lambda z, q: (z.softmax(1) - q).abs().sum())
    assert not torch.allclose(a, b, rtol=1e-3)
    # and the package sends half of it
    defense = DCS2(steps=2, lambda_g=lam)
    sent = flat(share(net, x[:1], y_s, defense, memory=(memory := Memory())).tensors)[0]
    made = crafted(memory)[0]
    batch = torch.cat([x[:1], made.images]), torch.cat([one_hot(y_s, 10).double(), made.soft])
    torch.testing.assert_close(sent, loss_gradient(net, cross_entropy(net(batch[0]), batch[1])))


# --- Eq. 9 ---


def test_prop_dcs2_epsilon(exact) -> None:
    net, x, y = exact

    def images(eps: float, hinge: bool) -> torch.Tensor:
        defense = DCS2(steps=12, lambda_z=1.0, eps=eps, hinge=hinge)
        return defense.craft(net, weights(net), x, y, generator(0)).images

    assert torch.equal(images(0.0, False), images(0.7, False))
    assert not torch.allclose(images(0.0, True), images(0.7, True))
    torch.testing.assert_close(images(0.0, True), images(0.0, False))  # never below 0: the same


def test_prop_dcs2_distance(exact) -> None:
    d = torch.linspace(0.1, 400, 4000, dtype=torch.float64)
    for lam in (0.001, 0.01, 0.1):
        h = DCS2(lambda_x=lam, lambda_z=0).objective(torch.ones(1), d, torch.zeros(1))
        assert (h.diff() < 0).all() and h[-1] > 0  # falls and never arrives
        pull = lam * torch.exp(-lam * d)
        torch.testing.assert_close(
            -(h[2:] - h[:-2]) / (d[2:] - d[:-2]), pull[1:-1], rtol=1e-3, atol=0
        )
        assert (pull <= 1 / (math.e * d) + 1e-15).all()
        best = (pull * math.e * d).argmax()
        if 1 / lam < 400:
            assert d[best].item() == pytest.approx(1 / lam, rel=0.01)
            assert (pull * math.e * d)[best].item() == pytest.approx(1, abs=1e-5)
        tau = lam / 7
        assert (pull < tau).eq(d > math.log(7) / lam).all()
    # no optimum: twice the steps, about twice the way; and the box ends it
    net, x, y = exact
    way = {}
    for steps in (40, 80):
        defense = DCS2(steps=steps)
        task = defense.task(x, one_hot(y, 10).double(), generator(1))
        theta = {n: t[None] for n, t in weights(net).items()}
        (made,) = defense.search(net, theta, {0: task})
        rates = sum(
            0.1 * 0.1 ** sum(t >= math.ceil(steps * p / 8) for p in (3, 5, 7)) for t in range(steps)
        )
        moved = (made.images - task[2]).abs()
        assert moved.max() < 1.15 * rates  # Adam's steps are about as long as its rate
        assert moved.max() > 0.6 * rates
        n = x[0].numel()
        d_0, d_1 = made.history[:, 2, 0], made.history[:, 2, -1]
        assert (d_1 <= d_0 + n**0.5 * moved.flatten(1).amax(1)).all()
        way[steps] = d_1.mean().item()
    assert way[80] > 1.3 * way[40]
    boxed = DCS2(steps=80, box=True).craft(net, weights(net), x, y, generator(1))
    assert (boxed.history[:, 2, -1] <= n**0.5).all()
    assert way[80] > n**0.5


def test_prop_dcs2_other_label(exact) -> None:
    rng = generator(2)
    p = (2 * torch.randn(300, 6, generator=rng, dtype=torch.float64)).softmax(1)
    q = (4 * torch.randn(300, 200, 6, generator=rng, dtype=torch.float64)).softmax(2)
    corners = torch.eye(6, dtype=torch.float64).expand(300, 6, 6)
    q = torch.cat([q, 0.999999 * corners + 1e-6 / 6], 1)  # predictions of x̃, corners nearly
    y, other = 2, 4
    unit = torch.eye(6, dtype=torch.float64)
    inner = ((q - unit[other]) * (p - unit[y])[:, None]).sum(2)
    rest = p[:, [c for c in range(6) if c not in (y, other)]].amax(1)
    bound = (rest - p[:, other]).clamp(min=0)
    assert (inner.amax(1) <= bound + 1e-12).all()
    torch.testing.assert_close(inner.amax(1), bound, atol=1e-5, rtol=0)  # sharp
    assert (bound == 0).any() and (bound > 0).any()
    own = ((q - unit[y]) * (p - unit[y])[:, None]).sum(2)
    assert (own >= (1 - q[:, :, y]) * (1 - p[:, y])[:, None] - 1e-12).all() and (own > 0).all()
    # on a network: inner product of the last layers' gradients, and its sign
    net, x, _ = exact
    g = gradient_function(stateless(net, "eval"))
    prediction, r = net(x).softmax(1), net.features(x)
    two = g(weights(net), x[:2, None], torch.tensor([[3], [1]]))
    last = sum((two[n][0] * two[n][1]).sum() for n in ("head.weight", "head.bias"))
    delta = prediction[:2] - one_hot(torch.tensor([3, 1]), 10)
    torch.testing.assert_close(last, (delta[0] @ delta[1]) * (r[0] @ r[1] + 1))
    even = copy.deepcopy(net)
    with torch.no_grad():  # even predictions: no image of another label can align
        even.head.weight.zero_()
        even.head.bias.zero_()
    for label in range(10):
        pair_of = g_even(even, x[:2], (3, label))
        assert (pair_of > 0) == (label == 3)


def g_even(net, x: torch.Tensor, labels: tuple[int, int]) -> float:
    g = gradient_function(stateless(net, "eval"))
    two = g(weights(net), x[:, None], torch.tensor(labels)[:, None])
    return sum((two[n][0] * two[n][1]).sum() for n in ("head.weight", "head.bias")).item()


# --- the attacker of one image ---


def test_prop_dcs2_parallel() -> None:
    rng = generator(3)
    for _ in range(50):
        g, h = vector(9, rng), vector(9, rng)
        a, b = torch.rand(2, generator=rng, dtype=torch.float64)
        c, k = cosine_similarity(g, h, dim=0), b * h.norm() / (a * g.norm())
        cost = 1 - cosine_similarity(a * g + b * h, g, dim=0)
        want = 1 - (1 + k * c) / (1 + 2 * k * c + k**2).sqrt()
        torch.testing.assert_close(cost, want)
    c = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    for k in (0.5, 1.0, 3.0):
        cost = 1 - (1 + k * c) / (1 + 2 * k * c + k**2).clamp(min=1e-12).sqrt()
        assert cost[-1].abs() < 1e-9
        above = c[:-1] > -k + 1e-3
        assert (cost.diff()[above] < 0).all()
        if k < 1:  # below −κ it falls again: an opposed, shorter gradient is parallel too
            assert (cost.diff()[c[1:] < -k - 1e-3] > 0).all() and cost[0].abs() < 1e-9


# --- the projection ---


def test_lem_dcs2_projection() -> None:
    rng, acted = np.random.default_rng(1), 0
    for _ in range(12):
        g, g_c = rng.normal(size=8), rng.normal(size=8)
        found, v = project({"w": torch.tensor(g)[None]}, {"w": torch.tensor(g_c)[None]})
        solved = minimize(
            lambda p, c=g_c: 0.5 * ((p - c) ** 2).sum(),
            g_c,
            jac=lambda p, c=g_c: p - c,
            constraints={"type": "ineq", "fun": lambda p, g=g: g @ p, "jac": lambda p, g=g: g},
            method="SLSQP",
            options={"ftol": 1e-14},
        ).x
        np.testing.assert_allclose(found["w"][0].numpy(), solved, atol=1e-5)
        dual = minimize(
            lambda v, a=g, c=g_c: 0.5 * v[0] ** 2 * (a @ a) + v[0] * (a @ c),
            [1.0],
            bounds=[(0, None)],
        ).x
        assert v.item() == pytest.approx(dual[0], abs=1e-4)
        acted += int(v > 0)
        # Eq. 12 as printed: 0, or unbounded
        printed = linprog([0.5 * g @ g + g @ g_c], bounds=[(0, None)])
        assert printed.status == (3 if g @ g_c < -0.5 * g @ g else 0)
    assert 0 < acted < 12
    # it needs g ≠ 0: then the constraint is empty, and the package changes nothing
    same, v = project({"w": torch.zeros(1, 3)}, {"w": torch.ones(1, 3)})
    assert v.item() == 0 and same["w"].tolist() == [[1, 1, 1]]


def test_prop_dcs2_projection_acts() -> None:
    rng = generator(0)
    g, h = (torch.randn(3000, 3, generator=rng, dtype=torch.float64) for _ in range(2))
    h = 4 * torch.rand(3000, 1, generator=rng) * h
    for a, b in ((0.5, 0.5), (0.9, 0.1)):
        sent, v = project({"w": g}, {"w": a * g + b * h})
        cosine, ratio = cosine_similarity(g, h), a * g.norm(dim=1) / (b * h.norm(dim=1))
        assert torch.equal(v > 0, cosine < -ratio)
        assert not (v > 0)[cosine >= 0].any() and not (v > 0)[ratio >= 1].any() and (v > 0).any()
        inner = (sent["w"] * g).sum(1)
        assert inner[v > 0].abs().max() < 1e-12 and (inner[v == 0] >= 0).all()


def test_prop_dcs2_effective_rate() -> None:
    """Steps on a quadratic loss, by torch's own optimizers."""

    def path(scale: float, rate: float, kind, **options: float) -> torch.Tensor:
        w = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
        optimizer = kind([w], lr=rate, **options)
        for _ in range(6):
            first, second = w**2 / 2, (w - 1) ** 2  # the losses of x_s and x̃
            optimizer.zero_grad()
            (scale * (first + second).sum()).backward()
            optimizer.step()
        return w.detach()

    sgd, adam = torch.optim.SGD, torch.optim.Adam
    for options in ({}, {"momentum": 0.9}):
        for scale, factor in ((1.0, 2.0), (1 / 3, 2 / 3)):  # printed, released; ½ is the mean
            torch.testing.assert_close(
                path(scale, 0.1, sgd, **options), path(0.5, 0.1 * factor, sgd, **options)
            )
    decayed = [path(s, r, sgd, weight_decay=0.5) for s, r in ((1 / 3, 0.1), (0.5, 0.1 * 2 / 3))]
    assert not torch.allclose(*decayed, rtol=1e-3)
    assert not torch.allclose(path(1 / 3, 0.1, adam), path(0.5, 0.1 * 2 / 3, adam), rtol=1e-3)
    for lam, want in ((0.7, (1 / 3, 1 / 3)), (1.0, (1 / 2, 1 / 2)), (0.0, (1 / 2, 1 / 2))):
        assert DCS2(lambda_g=lam, scale="code").weights(1, 1) == want
    assert DCS2(scale="sum").weights(1, 1) == (1, 1) and DCS2().weights(1, 1) == (0.5, 0.5)


# --- two images behind one last layer ---


class Head:
    """A last layer with two images before it: r (2, n), errors δ (2, K), and their gradients."""

    def __init__(self, classes: int, seed: int = 0, n: int = 12):
        rng = generator(seed)
        self.w = torch.randn(classes, n, generator=rng, dtype=torch.float64)
        self.b = torch.randn(classes, generator=rng, dtype=torch.float64)
        self.r = torch.rand(2, n, generator=rng, dtype=torch.float64)
        first, second = torch.eye(classes, dtype=torch.float64)[:2]
        self.labels = torch.stack([first, 0.3 * first + 0.7 * second])
        self.delta = (self.r @ self.w.T + self.b).softmax(1) - self.labels
        self.grad_w, self.grad_b = self.delta.T @ self.r / 2, self.delta.mean(0)
        left, size, right = torch.linalg.svd(self.grad_w, full_matrices=False)
        self.rank = int((size > 1e-10 * size[0]).sum())
        self.v, self.d = right[:2].T, left[:, :2]

    def error(self, a: torch.Tensor) -> torch.Tensor:
        return (self.w @ self.v @ a + self.b).softmax(0) - self.labels[0]

    def plane(self, a: torch.Tensor) -> torch.Tensor:
        """How far δ₁(a) is from the plane of the columns."""
        e = self.error(a)
        return e - self.d @ (self.d.T @ e)

    def bias(self, a: torch.Tensor) -> torch.Tensor:
        """How far the columns of 2∇W − δ₁r₁ᵀ are from the line of 2∇b − δ₁."""
        e = self.error(a)
        line = 2 * self.grad_b - e
        rest = (2 * self.grad_w - torch.outer(e, self.v @ a)) @ self.v
        return (rest - torch.outer(line, line @ rest) / (line @ line)).flatten()


def rank(j: torch.Tensor) -> int:
    return int((torch.linalg.svdvals(j) > 1e-9).sum())


@pytest.mark.parametrize("classes", [3, 4, 5, 10])
@pytest.mark.parametrize("seed", [0, 1])
def test_prop_dcs2_rank_two(classes: int, seed: int) -> None:
    head = Head(classes, seed)
    assert head.rank == 2
    a = head.v.T @ head.r[0]
    torch.testing.assert_close(head.v @ a, head.r[0])  # r₁ lies in the plane of the rows
    torch.testing.assert_close(head.d @ (head.d.T @ head.delta.T), head.delta.T)
    assert head.plane(a).norm() < 1e-10 and head.bias(a).norm() < 1e-10
    # K − 3 equations, and two more
    slopes = jacfwd(head.plane)(a), jacfwd(head.bias)(a)
    many = torch.randn(40, 2, generator=generator(9), dtype=torch.float64)
    values = torch.stack([head.plane(a + m) for m in many])
    assert rank(values) == min(classes - 3, 40)  # as many directions as equations
    assert rank(slopes[0]) == min(classes - 3, 2)
    assert rank(torch.cat(slopes)) == 2  # isolated, from three classes on
    # r₁ gives the rest
    second = 2 * head.grad_b - head.error(a)
    rest = 2 * head.grad_w - torch.outer(head.error(a), head.r[0])
    r_2 = rest.T @ second / (second @ second)
    torch.testing.assert_close(second, head.delta[1])
    torch.testing.assert_close(r_2, head.r[1])
    torch.testing.assert_close((head.w @ r_2 + head.b).softmax(0) - second, head.labels[1])


def test_prop_dcs2_rank_two_stops_holding() -> None:
    assert Head(2).rank == 1  # two classes: errors are multiples of (1, −1)
    assert torch.linalg.matrix_rank(Head(2).delta) == 1
    head = Head(6)
    h = torch.linalg.svd(head.w)[2][-1]  # W h = 0
    assert (head.w @ h).norm() < 1e-10
    # parallel errors, as for the same label and the same outputs: only r₁ + κ r₂ is told
    r = torch.stack([head.r[0], head.r[0] + 0.2 * torch.linalg.svd(head.w)[2][-2]])
    grads = []
    for move in (0.0, 0.5):
        moved = r + move * torch.stack([h, -h])
        delta = (moved @ head.w.T + head.b).softmax(1) - head.labels[0]
        grads.append((delta.T @ moved / 2, delta.mean(0)))
        assert torch.linalg.matrix_rank(grads[-1][0], rtol=1e-9) == 1
    for before, after in zip(*grads, strict=True):
        torch.testing.assert_close(before, after)
    one = head.delta[:1].T @ head.r[:1]
    assert torch.linalg.matrix_rank(one) == 1  # one image


@pytest.mark.parametrize("classes", [3, 5, 10])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1 / 3, 1 / 3), (0.9, 0.2), (3.0, 7.0)])
def test_prop_dcs2_scale(classes: int, weights: tuple[float, float]) -> None:
    head, (a, c) = Head(classes), weights
    scales = torch.tensor(weights, dtype=torch.float64)
    grad_w, grad_b = (head.delta.T * scales) @ head.r, head.delta.T @ scales
    left, _, right = torch.linalg.svd(grad_w, full_matrices=False)
    for mine, theirs in ((left[:, :2], head.d), (right[:2].T, head.v)):  # 1: the same planes
        torch.testing.assert_close(mine @ mine.T, theirs @ theirs.T)
    g = torch.cat([grad_w, grad_b[:, None]], 1)
    row = torch.cat([head.r[0], torch.ones(1).double()])
    found = 1 / (row @ torch.linalg.pinv(g, rtol=1e-10) @ head.delta[0])  # 2
    assert found.item() == pytest.approx(a, rel=1e-9)
    for t in (a, 0.9 * a, 1.1 * a, 0.0):
        rest = torch.linalg.matrix_rank(g - t * torch.outer(head.delta[0], row), rtol=1e-9)
        assert rest == (1 if t == a else 2)
    rest = g - a * torch.outer(head.delta[0], row)
    theirs = rest[:, -1]
    torch.testing.assert_close(theirs, c * head.delta[1])
    r_2 = rest[:, :-1].T @ theirs / (theirs @ theirs)
    torch.testing.assert_close(r_2, head.r[1])
    quotients = theirs / (head.w @ r_2 + head.b).softmax(0)  # 3
    none = head.labels[1] == 0
    torch.testing.assert_close(quotients[none], torch.full_like(quotients[none], c))
    assert (quotients[~none] < c).all()
    mine = lone_weight(grad_w, grad_b, head.r[:1], head.delta[:1])
    assert mine.item() == pytest.approx(a, rel=1e-9)


def test_prop_dcs2_scale_stops_holding() -> None:
    """Part 4: the same label and the same logits tell only the sum; and a label of all classes."""
    head = Head(6)
    h = torch.linalg.svd(head.w)[2][-1]  # W h = 0
    r_1, r_2, (a, c), (a_2, c_2) = head.r[0], head.r[0] + 0.3 * h, (0.5, 0.5), (0.8, 0.2)

    def sent(one, other, first, second) -> tuple[torch.Tensor, torch.Tensor]:
        r = torch.stack([one, other])
        delta = (r @ head.w.T + head.b).softmax(1) - head.labels[0]
        scales = torch.tensor([first, second]).double()
        return (delta.T * scales) @ r, delta.T @ scales

    before = sent(r_1, r_2, a, c)
    for got, want in zip(
        sent(r_1, (a * r_1 + c * r_2 - a_2 * r_1) / c_2, a_2, c_2), before, strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-8)
    other = sent(r_1, (a * r_1 + c * r_2 - a_2 * r_1) / c_2, a_2, 0.5)  # another sum is seen
    assert not torch.allclose(other[1], before[1], rtol=1e-3)
    p = (head.r[1] @ head.w.T + head.b).softmax(0)
    q = torch.full((6,), 1 / 6).double()
    assert ((p - q) / p).median() != pytest.approx(1.0, abs=0.05)  # no class without a part


def test_prop_dcs2_rank_two_on_a_network() -> None:
    """The search in the plane finds the pair without a label, or with only the wrong ones fails."""
    net = models.build("lenet", (1, 16, 16), 10).double().requires_grad_(False)
    rng = generator(4)
    x = torch.stack(
        [torch.rand(1, 16, 16, generator=rng), 5 * torch.randn(1, 16, 16, generator=rng)]
    )
    labels = candidate_labels(torch.tensor([3]), 10, 0.7)[0, 8].double()
    r = net.features(x.double())
    delta = net.head(r).softmax(1) - labels
    grad = delta.T @ r / 2, delta.mean(0)
    split = pair.separate(net, *grad, range(10))
    assert split.label == 3 and split.score < 1e-6
    torch.testing.assert_close(split.soft, labels[1], atol=1e-5, rtol=0)
    wrong = pair.separate(net, *grad, [c for c in range(10) if c != 3])
    assert wrong.score > 100 * split.score


# --- the stored study says what the chapter says ---


def test_attack_study_says_what_the_chapter_says() -> None:
    cells = STUDIES["dcs2/attack"].show()["cells"]

    def pick(**want: object) -> dict:
        (cell,) = (c for c in cells if all(c.get(k) == v for k, v in want.items()))
        return cell

    for name in ("GS", "GS, class average", "iDLG"):
        assert pick(part="table", defense="DCS²", attack=name)["success"] == 0
    assert pick(part="table", defense="none", attack="iDLG")["success"] == 16
    closed = pick(part="separate", variant="sample")
    assert closed["success"] == closed["label_right"] == 16
    assert all(c["success"] == 16 for c in cells if c["part"] == "fresh")
    scaled = [c for c in cells if c["part"] == "scale"]
    assert sorted(c["weights_true"][0] for c in scaled) == [0.3333, 1.0]
    for c in scaled:
        assert c["success"] == c["label_right"] == c["images"] == 8
        assert all(w == c["weights_true"] for w in c["weights"])
    joint = {"part": "joint", "attack": "labels granted"}
    assert pick(**joint, variant="sample")["success"] >= 12
    for repaired in ("+ Prune 0.7", "5:1", "10:1", "same label"):
        assert pick(**joint, variant=repaired)["success"] == 0
    other = pick(part="variant", variant="sample")
    apart = [
        c
        for c, a, b in zip(other["cosine"], other["labels"], other["concealed_labels"], strict=True)
        if a != b
    ]
    assert max(apart) < 0.7 < 0.95 < min(pick(part="variant", variant="same label")["cosine"])
    low, high = other["range"]
    assert low < -10 and high > 10 and pick(part="variant", variant="box")["range"] == [0, 1]


def test_training_study_says_what_the_chapter_says() -> None:
    cells = STUDIES["dcs2/training"].show()["cells"]

    def test_accuracy(defense: str, how: str, defended: str = "one", split: str = "iid") -> float:
        want = {
            "data": "mnist",
            "defense": defense,
            "how": how,
            "defended": defended,
            "split": split,
        }
        (cell,) = (c for c in cells if want.items() <= c.items())
        return cell["test_mean"]

    plain = test_accuracy("none", "real")
    for name in ("DP-Gaussian", "Prune", "Soteria"):
        assert test_accuracy(name, "real") == pytest.approx(plain, abs=0.01)
        assert test_accuracy(name, "real", "all") == pytest.approx(plain, abs=0.015)
    assert test_accuracy("none", "absent") > plain - 0.01
    scales = [test_accuracy("DCS²", how) for how in ("sum", "mean", "code")]
    assert scales == sorted(scales) and scales[-1] < plain and scales[0] < plain - 0.1
    assert test_accuracy("DCS²", "mean", "all") < plain - 0.08
    # "eight of the eleven points appear for no defense at two thirds of the step"
    lost = [plain - test_accuracy(*at, "all") for at in (("DCS²", "mean"), ("none", "step × 2/3"))]
    assert [round(100 * v) for v in lost] == [11, 8]
    frozen = [c for c in cells if c["how"] == "frozen" and "Prune" in c["defense"]]
    assert frozen and all(v == 0 for c in frozen for v in c["update"])
    hidden = [c for c in cells if c["defense"] == "DCS²"]
    assert all(0 < v < 0.5 for c in hidden for v in c["cosine"])
    assert 0 < max(v for c in hidden for v in c["projected"]) < 0.15


# --- exercises ---


def test_check_nearest(expect) -> None:
    def v(g, c):
        return -(g @ c) / (g @ g)

    expect(checks.check_nearest, lambda g, c: c + v(g, c).clamp(min=0) * g, "Right")
    for wrong, hint in (
        (lambda g, c: c + v(g, c) * g, "at least 0"),
        (lambda g, c: v(g, c).clamp(min=0), "this is v*"),
        (lambda g, c: c + (-(g @ c) / g.norm()).clamp(min=0) * g, "not by its length"),
        (lambda g, c: c + (-(g @ c)).clamp(min=0) * g, "divide by the squared length"),
        (lambda g, c: c + (-v(g, c)).clamp(min=0) * g, "mind the sign"),
        (lambda g, c: c + v(g, c).clamp(min=0.5) * g, "margin"),
        (lambda g, c: c + v(g, c).clamp(min=0) * c, "not along g_c"),
        (lambda g, c: c, "unchanged"),
        (lambda g, c: g, "add max"),
        (lambda g, c: ..., "replace the dots"),
    ):
        expect(checks.check_nearest, wrong, hint)


def test_check_mixture(expect) -> None:
    def labels(y_s, y_c, share, k, first=1.0, last=1.0):
        own, other = one_hot(y_s, k).float(), one_hot(y_c, k).float()
        return torch.stack([first * own, share * other + last * (1 - share) * own], 1)

    expect(checks.check_mixture, labels, "Right")
    for wrong, hint in (
        (lambda s, c, v, k: labels(s, c, 1 - v, k), "is the share of the concealed label"),
        (lambda s, c, v, k: labels(s, c, v, k).flip(1), "comes first"),
        (lambda s, c, v, k: labels(s, c, v, k)[:, 1:].expand(-1, 2, -1), "keeps its own label"),
        (lambda s, c, v, k: labels(s, c, 1.0, k), "is mixed: λg"),
        (lambda s, c, v, k: labels(s, c, v, k, last=0.0), "must sum to 1"),
        (lambda s, c, v, k: labels(s, c, v, k)[:, 1], "one label an upload"),
        (lambda s, c, v, k: labels(s, c, v, k, first=0.5), "first row one-hot"),
        (lambda s, c, v, k: None, "replace the dots"),
    ):
        expect(checks.check_mixture, wrong, hint)


def test_check_other_image(expect) -> None:
    def answer(w, b, r, d, rest=lambda w, r, d: 2 * w - torch.outer(d, r), over=2):
        e = 2 * b - d
        return rest(w, r, d).T @ e / e.norm() ** over, e

    expect(checks.check_other_image, answer, "Right")
    for wrong, hint in (
        (lambda w, b, r, d: answer(w, b, r, d, over=0), "divide by ‖δ₂‖²"),
        (lambda w, b, r, d: answer(w, b, r, d, over=1), "the squared length"),
        (
            lambda w, b, r, d: answer(w, b, r, d, lambda w, r, d: w - torch.outer(d, r)),
            "is a mean too",
        ),
        (lambda w, b, r, d: answer(w, b, r, d, lambda w, r, d: 2 * w), "still in it"),
        (lambda w, b, r, d: answer(w, b, r, d, lambda w, r, d: 0 * w), "multiply its transpose"),
        (lambda w, b, r, d: (r, b - d), "double it first"),
        (lambda w, b, r, d: (r, b), "has δ₁ in it"),
        (lambda w, b, r, d: (r, d - 2 * b), "this is −δ₂"),
        (lambda w, b, r, d: (r, d), "besides δ₁"),
        (lambda w, b, r, d: r, "return two tensors"),
        (lambda w, b, r, d: None, "replace the dots"),
    ):
        expect(checks.check_other_image, wrong, hint)


def test_check_weigh(expect) -> None:
    def answer(gw, gb, W, b, r, y, turn=False, many=torch.max, over=2, sign=1):
        delta = (W @ r + b).softmax(0)
        delta[y] -= 1
        G, hat = torch.cat([gw, gb[:, None]], 1), torch.cat([r, torch.ones_like(r[:1])])
        a = 1 / (hat @ torch.linalg.pinv(G, rtol=1e-8) @ delta)
        rest = G - a * torch.outer(delta, hat)
        e = rest[:, -1]
        r_2 = rest[:, :-1].T @ e / (e @ e)
        p = (W @ r_2 + b).softmax(0)
        c = many(e / p)
        return 1 / a if turn else a, c, r_2 * c ** (2 - over), sign * (p - e / c)

    def bent(**options):
        return lambda *given: answer(*given, **options)

    expect(checks.check_weigh, answer, "Right")
    expect(checks.check_weigh, bent(many=torch.median), "Right")
    for wrong, hint in (
        (bent(turn=True), "this is 1/a"),
        (lambda *given: (2.0, *answer(*given)[1:]), "with G = "),
        (bent(many=torch.mean), "is too low"),
        (lambda *given: (answer(*given)[0], 9.0, *answer(*given)[2:]), "is the largest"),
        (bent(over=1), "still in r₂"),
        (lambda *given: (*answer(*given)[:2], given[4], answer(*given)[3]), "is (∇W"),
        (bent(sign=-1), "this is −q"),
        (lambda *given: (*answer(*given)[:3], given[1]), "prediction for r₂ minus"),
        (lambda *given: (given[4], *answer(*given)[1:]), "a is one number"),
        (lambda *given: answer(*given)[:2], "return four things"),
        (lambda *given: None, "replace the dots"),
    ):
        expect(checks.check_weigh, wrong, hint)


# --- the example by hand ---


def test_ex_dcs2_hand() -> None:
    """The drawing's numbers are the example's, and the package's steps give them."""
    sent = torch.tensor(two_behind_one.sent(), dtype=torch.float64)
    want = [[-0.6, 0.2, -1.0], [0.4, -0.5, 0.3], [0.2, 0.3, 0.7]]
    torch.testing.assert_close(sent, torch.tensor(want, dtype=torch.float64))
    both = two_behind_one.PRIVATE, two_behind_one.CONCEALED
    (d_1, r_1), (d_2, r_2) = ((torch.tensor(v).double() for v in pair) for pair in both)
    bias = d_1 + d_2
    torch.testing.assert_close(bias, torch.tensor([-0.4, -0.1, 0.5]).double(), atol=1e-6, rtol=0)
    quotients = sent / bias[:, None]
    torch.testing.assert_close(
        quotients[[0, 2]], torch.tensor([[1.5, -0.5, 2.5], [0.4, 0.6, 1.4]]).double(),
        atol=1e-5, rtol=0,
    )  # fmt: skip
    probabilities = torch.tensor([[0.4, 0.4, 0.2], [0.5, 0.2, 0.3]]).double()
    labels = torch.tensor([[1.0, 0, 0], [0.3, 0.7, 0]]).double()
    torch.testing.assert_close(probabilities - labels, torch.stack([d_1, d_2]), atol=1e-6, rtol=0)
    assert torch.linalg.matrix_rank(sent, rtol=1e-6) == 2
    right = torch.tensor(two_behind_one.left_over(two_behind_one.PRIVATE[1])).double()
    torch.testing.assert_close(right, r_2.expand(3, 3), atol=1e-6, rtol=0)
    wrong = torch.tensor(two_behind_one.left_over(two_behind_one.WRONG)).double()
    want = torch.tensor([[0, 4, 4], [0, 1.8, 1.8], [0, 1 / 3, 1 / 3]]).double()
    torch.testing.assert_close(wrong, want, atol=1e-5, rtol=0)
    plane = torch.stack([r_1, r_2, torch.tensor(two_behind_one.WRONG).double()])
    assert torch.linalg.matrix_rank(plane) == 2  # the wrong guess lies in the plane, too
