"""Chapter "Borrowing someone else's update: Model Entanglement": its statements and exercises."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from privfl_lite import load, metrics, models, share
from privfl_lite.attacks import IDLG
from privfl_lite.attacks.adaptive.entanglement import estimated
from privfl_lite.defenses import Entangle, Memory
from privfl_lite.defenses.entangle import adaptive_term, relative_size, replaced
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.teach.checks import entanglement as checks
from privfl_lite.teach.drawings import guard_and_mask

DOUBLE = {"dtype": torch.float64}


def digits_and_guard(count: int = 4) -> tuple:
    data = load("mnist")
    net = models.build("lenet", data)
    x, y = data.sample(count, split="test", seed=0)
    return net, x, y, share(net, *data.sample(count, seed=1), each=1).tensors


# --- representations ---


def test_prop_ent_separable() -> None:
    rng, n = generator(0), 6
    w = torch.nn.functional.normalize(torch.randn(n, generator=rng, **DOUBLE), dim=0)
    x = torch.randn(200, n, generator=rng, **DOUBLE)
    side = x @ w > 0
    x = x + torch.where(side, 0.5, -0.5)[:, None] * w  # margin 0.5 around ⟨w, x⟩ = 0
    A, b = torch.randn(9, n, generator=rng, **DOUBLE), torch.randn(9, generator=rng, **DOUBLE)
    v = torch.linalg.pinv(A).T @ w  # the proof's cut
    cut, least = v / v.norm(), torch.linalg.svdvals(A)[-1]
    r = x @ A.T + b
    at = (r - b) @ cut
    assert at[side].min() >= 0.5 * least and at[~side].max() <= -0.5 * least
    # fewer features than pixels: two classes may become one
    flat = torch.linalg.svd(torch.stack([w, *torch.randn(n - 1, n, generator=rng, **DOUBLE)]))[2]
    B = flat[1:] - torch.outer(flat[1:] @ w, w)  # its kernel holds w
    one = x[0] - (x[0] @ w) * w
    torch.testing.assert_close(B @ (one + 0.5 * w), B @ (one - 0.5 * w))
    # silhouette: the same after an isometry and a scaling, not after any linear map
    Q = torch.linalg.qr(torch.randn(9, n, generator=rng, **DOUBLE))[0]
    labels = side.long().numpy()
    before = silhouette_score(x.numpy(), labels)
    assert silhouette_score((3 * x @ Q.T + b).numpy(), labels) == pytest.approx(before, abs=1e-9)
    assert abs(silhouette_score(r.numpy(), labels) - before) > 1e-3


# --- Theorem 1 ---


class Square:
    """f(x) = tanh(W x) with as many features as pixels: Theorem 1's assumptions hold."""

    def __init__(self, n: int = 5, seed: int = 0):
        rng = generator(seed)
        self.W = torch.eye(n, **DOUBLE) + 0.4 * torch.randn(n, n, generator=rng, **DOUBLE)
        self.x = 0.5 * torch.rand(n, generator=rng, **DOUBLE)
        self.r = self(self.x)
        self.J = torch.autograd.functional.jacobian(self, self.x)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.W @ x)

    def inverse(self, r: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(self.W, torch.atanh(r))


def test_thm_ent_first_order() -> None:
    f = Square()
    at = torch.autograd.functional.jacobian(f.inverse, f.r)
    torch.testing.assert_close(at, torch.linalg.inv(f.J))
    toward = torch.randn(5, generator=generator(1), **DOUBLE)
    errors = []
    for size in (1e-1, 1e-2, 1e-3):
        step = size * toward / toward.norm()
        move, first = (f.inverse(f.r + step) - f.x).norm(), (at @ step).norm()
        far = torch.autograd.functional.jacobian(f.inverse, f.r + step)
        lipschitz = 1.5 * torch.linalg.matrix_norm(far - at, 2) / size
        assert abs(move - first) <= lipschitz / 2 * size**2
        errors.append(abs(move - first).item())
    assert errors[0] / errors[1] > 50 and errors[1] / errors[2] > 50  # second order
    # one unit: the column's length, never less than one over the row's
    columns, rows = torch.linalg.inv(f.J).norm(dim=0), f.J.norm(dim=1)
    assert (columns > 1.01 / rows).all()
    turned = torch.tensor([3.0, 0.5, 1.0, 2.0, 0.1], **DOUBLE)[:, None] * torch.linalg.qr(f.J)[0]
    torch.testing.assert_close(torch.linalg.inv(turned).norm(dim=0), 1 / turned.norm(dim=1))
    # the best edit of length ε does not depend on r
    u, s, _ = torch.linalg.svd(f.J)
    some = torch.nn.functional.normalize(torch.randn(500, 5, generator=generator(2), **DOUBLE))
    moves = (some @ torch.linalg.inv(f.J).T).norm(dim=1)
    assert moves.max() <= 1 / s[-1] + 1e-9
    assert (at @ u[:, -1]).norm().item() == pytest.approx(1 / s[-1].item())


def test_prop_ent_triangle() -> None:
    rng = generator(0)
    a, b = (torch.randn(2000, 3, generator=rng, **DOUBLE) for _ in range(2))
    bound = a.norm(dim=1) - b.norm(dim=1)
    loss = (a - b).norm(dim=1) - bound
    assert (loss >= -1e-12).all() and (loss <= 2 * b.norm(dim=1) + 1e-12).all()
    assert (bound < 0).double().mean() > 0.3  # says nothing there
    for t, want in ((-2.0, 2.0), (2.0, 0.0), (0.0, 2.0)):  # opposite, beyond, Soteria's zero
        b1 = torch.tensor([3.0, 4.0], **DOUBLE)
        lost = (t * b1 - b1).norm() - ((t * b1).norm() - b1.norm())
        assert lost.item() == pytest.approx(want * b1.norm().item(), abs=1e-12)
    # the text's two examples, J = I: what Eq. 9 takes, and what moves the input
    edits = torch.tensor([0.0, 1.5], **DOUBLE)
    assert edits.abs().argmax() == 1 and (edits - 1).abs().argmax() == 0
    own, guard = torch.tensor([5.0, 1.0]), torch.tensor([5.0, 0.0])
    assert guard.abs().argmax() == 0 and (guard - own)[0] == 0 and (guard - own)[1] != 0


def test_prop_ent_no_inverse() -> None:
    rng = generator(0)

    def solve(W: torch.Tensor, r: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        def f(v: torch.Tensor) -> torch.Tensor:
            return torch.tanh(W @ v)

        for _ in range(60):
            J = torch.autograd.functional.jacobian(f, x)
            x = x + torch.linalg.pinv(J) @ (r - f(x))
        return x, (f(x) - r).norm().item()

    x = 0.3 * torch.rand(6, generator=rng, **DOUBLE)
    few = 0.5 * torch.randn(4, 6, generator=rng, **DOUBLE)  # 4 features of 6 pixels
    kernel = torch.linalg.svd(few)[2][-1]
    other, left = solve(few, torch.tanh(few @ x), x + 0.2 * kernel)
    assert left < 1e-12 and (other - x).norm() > 0.1
    many = 0.5 * torch.randn(9, 6, generator=rng, **DOUBLE)  # 9 features of 6 pixels
    shift = 0.01 * torch.randn(9, generator=rng, **DOUBLE)
    assert solve(many, torch.tanh(many @ x) + shift, x)[1] > 1e-3
    square = torch.eye(6, **DOUBLE) + 0.2 * torch.randn(6, 6, generator=rng, **DOUBLE)
    assert solve(square, torch.tanh(square @ x) + shift[:6], x)[1] < 1e-10  # there it exists
    # what is left, without an inverse or a derivative
    net = copy.deepcopy(models.build("mlp", (1, 3, 3), 4, hidden=(5, 7), act="sigmoid")).double()
    layers = [m.weight for m in net.features if isinstance(m, torch.nn.Linear)]
    bound = math.prod(torch.linalg.matrix_norm(w, 2).item() / 4 for w in layers)
    p, q = (torch.randn(3000, 1, 3, 3, generator=rng, **DOUBLE) for _ in range(2))
    moved = (net.features(p) - net.features(q)).norm(dim=1).detach()
    apart = (p - q).flatten(1).norm(dim=1)
    assert (apart >= moved / bound).all()
    top = torch.linalg.svd(layers[0])[2][0]  # one linear layer: equality, so no less will do
    gain = (layers[0] @ top).norm() / top.norm()
    torch.testing.assert_close(gain, torch.linalg.matrix_norm(layers[0], 2))


# --- Eq. 10 ---


def test_prop_ent_ratio() -> None:
    a = torch.linspace(0, 30, 3001, **DOUBLE)
    h = adaptive_term(a)
    e = torch.exp(-a)
    torch.testing.assert_close(h, (1 - 3 * e) / (10 * (1 + e)))
    assert h[0].item() == pytest.approx(-0.1) and (h[1:] > h[:-1]).all() and h[-1] < 0.1
    assert h[-1].item() == pytest.approx(0.1, abs=1e-9)
    assert adaptive_term(torch.tensor(math.log(3), **DOUBLE)).item() == pytest.approx(0, abs=1e-15)
    assert (h[a < math.log(3)] < 0).all()  # not in (0, 0.1), as the paper has it
    low, high = (
        adaptive_term(torch.tensor(v, **DOUBLE)).item() for v in (-40.0, 40.0)
    )  # for all real A, which a mean of absolute values does not reach
    assert (low, high) == pytest.approx((-0.3, 0.1))
    for beta, inside in ((0.1, True), (0.9, True), (0.05, False), (0.95, False)):
        shares = h[1:] + 1 - beta
        assert bool(((shares > 0) & (shares < 1)).all()) is inside


def test_prop_ent_relative_size() -> None:
    rng, a, floor = generator(0), 0.5, 1e-3
    means = []
    for n in (100, 10_000, 1_000_000):
        w = a * (2 * torch.rand(20 if n < 1e6 else 5, n, generator=rng, **DOUBLE) - 1)
        means.append((1 / w.abs()).mean(1).median().item())
    assert means[0] + 5 < means[1] and means[1] + 5 < means[2]  # about ln(100)/a a step
    floored = (1 / w.abs().clamp(min=floor)).mean().item()
    assert floored == pytest.approx((1 + math.log(a / floor)) / a, rel=0.01)
    away = torch.where(w.abs() < 0.1, 0.1, w.abs())  # no weight near 0: the mean is finite
    assert (1 / away).mean(1).max() < 10
    theta = {"w": w[:1]}
    one, ten = (relative_size({"w": c * torch.ones_like(w[:1])}, theta, floor) for c in (1, 10))
    assert ten.item() == pytest.approx(10 * one.item())


# --- what leaves ---


def test_prop_ent_guard_weight() -> None:
    net, x, y, _ = digits_and_guard(5)
    defense = Entangle(0.6)  # client 0 is the guard
    memory, plain = Memory(), share(net, x, y, each=1).tensors
    sent = share(net, x, y, defense, each=1, memory=memory).tensors
    w = torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15])
    mask = replaced(memory, range(5))["head.weight"]
    own, got = plain["head.weight"], sent["head.weight"]
    mean = torch.einsum("k,kij->ij", w, got)
    omega = torch.einsum("k,kij->ij", w, mask.float()) + w[0]
    rest = torch.einsum("k,kij->ij", w[1:], own[1:] * ~mask[1:])
    torch.testing.assert_close(mean, omega * own[0] + rest, rtol=1e-4, atol=1e-6)
    drift = torch.einsum("k,kij->ij", w, mask * (own[0] - own))
    fedavg = torch.einsum("k,kij->ij", w, own)
    torch.testing.assert_close(mean - fedavg, drift, rtol=1e-4, atol=1e-5)
    want = w[0] + sum(w[c] * memory[c]["ratio"] for c in range(1, 5))
    assert omega.mean().item() == pytest.approx(want.item(), abs=0.002)
    assert (mean - fedavg).norm() > 0.01 * fedavg.norm()  # it is not FedAvg


def test_prop_ent_untouched() -> None:
    net, x, y, guard = digits_and_guard(3)
    plain = share(net, x, y, each=1, knows=("labels",))
    attack = IDLG(steps=25, drop=("head",), show=False)
    base = attack.run(plain).images
    for options in ({"beta": 0.1}, {"beta": 0.9, "side": "both"}, {"beta": 0.3, "how": "add"}):
        sent = share(net, x, y, Entangle(guard=guard, **options), each=1, knows=("labels",))
        changed = {n for n, t in sent.tensors.items() if not torch.equal(t, plain.tensors[n])}
        assert changed == {"head.weight"} | ({"head.bias"} if "side" in options else set())
        assert torch.equal(attack.run(sent).images, base)
    whole = IDLG(steps=25, show=False)  # one that reads the last layer does change
    assert not torch.equal(whole.run(sent).images, whole.run(plain).images)
    # copies are told by equality, and the mask does not depend on the guard
    masks = []
    for other in (guard, {n: t.flip(0) for n, t in guard.items()}):
        defense = Entangle(0.6, guard=other)
        sent = share(net, x, y, defense, each=1, memory=(memory := Memory())).tensors
        equal = sent["head.weight"] == other["head.weight"]
        assert torch.equal(equal, replaced(memory, range(3))["head.weight"])
        masks.append(equal)
    assert torch.equal(*masks)
    # columns: label and kept features are there
    assert torch.equal(sent["head.bias"].argmin(1), y)
    r = sent["head.weight"] / sent["head.bias"][..., None]
    kept = ~masks[0][:, 0]
    true = net.features(x).detach()
    torch.testing.assert_close(r[:, 3][kept], true[kept], rtol=1e-4, atol=1e-6)
    assert ((r[:, 3] - true).abs()[~kept] > 1e-3).double().mean() > 0.9
    # added: subtraction gives the client's own
    defense = Entangle(0.6, how="add", guard=guard)
    sent = share(net, x, y, defense, each=1, memory=memory).tensors["head.weight"]
    own = sent - guard["head.weight"] * replaced(memory, range(3))["head.weight"]
    torch.testing.assert_close(own, plain.tensors["head.weight"], rtol=1e-4, atol=1e-6)
    assert not (sent == guard["head.weight"]).any()


def softmax_error(rng: torch.Generator, label: int, classes: int) -> torch.Tensor:
    p = torch.randn(classes, generator=rng, **DOUBLE).softmax(0)
    return p - torch.nn.functional.one_hot(torch.tensor(label), classes)


def test_prop_ent_mask() -> None:
    rng = generator(0)
    r, s = (torch.rand(12, generator=rng, **DOUBLE) for _ in range(2))
    s[4] = 0
    for add in (0.0, 1.0):
        d, c = softmax_error(rng, 1, 5), softmax_error(rng, 3, 5)
        foreign = (torch.outer(c, s) + add * torch.outer(d, r)) / d[:, None]
        spread = foreign.amax(0) - foreign.amin(0)
        assert (spread[s != 0] > 1e-6).all()
        assert spread[4] < 1e-12  # where the guard's unit is 0 it shows nothing
        own = torch.outer(d, r) / d[:, None]
        assert (own.amax(0) - own.amin(0)).max() < 1e-12
        parallel = (torch.outer(2.5 * d, s) + add * torch.outer(d, r)) / d[:, None]
        assert (parallel.amax(0) - parallel.amin(0)).max() < 1e-12  # there the test is blind
    # with different labels and three classes they are never parallel; with two they always are
    for classes, never in ((3, True), (7, True), (2, False)):
        for _ in range(200):
            d, c = softmax_error(rng, 0, classes), softmax_error(rng, 1, classes)
            cosine = torch.nn.functional.cosine_similarity(d, c, dim=0).abs().item()
            assert (cosine < 1 - 1e-6) is never
    # on uploads, rows as well, as long as the client keeps over half of them
    net, x, y, guard = digits_and_guard(4)
    for side, beta, works in (("columns", 0.2, True), ("rows", 0.7, True), ("rows", 0.2, False)):
        defense = Entangle(beta, side, guard=guard, ratio="fixed")
        mask = estimated(share(net, x, y, defense, each=1, memory=(memory := Memory())))
        exact = torch.equal(mask["head.weight"], replaced(memory, range(4))["head.weight"])
        assert exact is works


def test_prop_ent_rank() -> None:
    net, x, y, guard = digits_and_guard(3)

    def values(defense: Entangle | None) -> torch.Tensor:
        sent = share(net, x, y, defense, each=1).tensors["head.weight"]
        s = torch.linalg.svdvals(sent.double())
        return s / s[:, :1]

    assert (values(None)[:, 1] < 1e-6).all()
    for side, how in (("columns", "copy"), ("columns", "add"), ("rows", "copy"), ("rows", "add")):
        s = values(Entangle(0.7, side, how, guard=guard))
        assert (s[:, 1] > 1e-4).all() and (s[:, 2] < 1e-6).all()
    assert (values(Entangle(0.7, "both", guard=guard))[:, 2] > 1e-4).any()  # there it may be 3
    # added columns: a shear of r, with the guard's error signal changed to match, sends the same
    rng = generator(0)
    d, c = softmax_error(rng, 0, 6), softmax_error(rng, 2, 6)
    r, g = (torch.rand(8, generator=rng, **DOUBLE) for _ in range(2))
    one = torch.outer(d, r) + torch.outer(c, g)
    two = torch.outer(d, r - 0.3 * g) + torch.outer(c + 0.3 * d, g)
    torch.testing.assert_close(one, two)


# --- the exercises ---


def entangle(own, guard, scores, share):
    chosen = scores.topk(round(share * own.shape[1])).indices
    out = own.clone()
    out[:, chosen] = guard[:, chosen]
    return out


def ratio(delta, w, beta, floor):
    A = (delta.abs() / w.abs().clamp(min=floor)).mean()
    return 0.4 / (1 + (-A).exp()) - 0.3 + 1 - beta


def foreign_columns(weight, bias):
    q = weight / bias[:, None]
    return q.amax(0) - q.amin(0) > 1e-5 * q.abs().amax(0)


def fill_in(gW, gb, W, b, y, group=torch.argmax, rows=None, label=1, slack=1e-5):
    q = gW / gb[:, None]
    near = torch.cdist(q, q) <= slack * q.norm(dim=1).max()
    own = near[group(near.sum(1))]
    r = q[own if rows is None else rows].mean(0)
    delta = (W @ r + b).softmax(0)
    delta[y] -= label
    weight = torch.where(own[:, None], gW, torch.outer(delta, r))
    return own, weight, torch.where(own, gb, delta)


def test_right_answers_are_right() -> None:
    assert checks.check_fill_in(fill_in)
    assert checks.check_entangle(entangle)
    assert checks.check_ratio(ratio)
    assert checks.check_foreign_columns(foreign_columns)


def with_columns(change, worst=False, extra=0):
    def answer(own, guard, scores, share):
        count = math.ceil(share * own.shape[1]) + extra if extra else round(share * own.shape[1])
        chosen = scores.topk(count, largest=not worst).indices
        out = own.clone()
        out[:, chosen] = change(own, guard)[:, chosen]
        return out

    return answer


def swapped(own, guard, scores, share):
    return entangle(guard, own, scores, share)


def first_columns(own, guard, scores, share):
    out = own.clone()
    out[:, : round(share * own.shape[1])] = guard[:, : round(share * own.shape[1])]
    return out


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (with_columns(lambda o, g: g, worst=True), "lowest scores"),
        (swapped, "the other way round"),
        (with_columns(lambda o, g: o + g), "overwrites"),
        (with_columns(lambda o, g: 0 * o), "that is Soteria"),
        (with_columns(lambda o, g: g, extra=1), "missing or too many"),
        (lambda o, g, s, m: o, "nothing was replaced"),
        (first_columns, "whole columns"),
        (lambda o, g, s, m: ..., "replace the dots"),
    ],
)
def test_entangle_hints(answer, hint, capsys) -> None:
    assert not checks.check_entangle(answer)
    assert hint in capsys.readouterr().out


@pytest.mark.parametrize(
    ("A", "minus", "hint"),
    [
        (lambda d, w, f: (d / w).abs().mean(), 0, "floor is missing"),
        (lambda d, w, f: (d / w.abs().clamp(min=f)).mean(), 0, "signs cancel"),
        (lambda d, w, f: d.abs().sum() / w.abs().clamp(min=f).sum(), 0, "divides the norms"),
        (lambda d, w, f: (d / w.abs().clamp(min=f)).abs().sum(), 0, "A is a mean"),
        (lambda d, w, f: (d / w.abs().clamp(min=f)).abs().mean(), 1 - 2 * 0.7, "not β"),
        (lambda d, w, f: (d / w.abs().clamp(min=f)).abs().mean(), 0.3, "1 − β is missing"),
        (lambda d, w, f: (d / w.clamp(min=f)).abs().mean(), 0, "not a small one"),
        (lambda d, w, f: 1.0 + 0 * d.mean(), 0, "0.4 sigmoid"),
    ],
)
def test_ratio_hints(A, minus, hint, capsys) -> None:
    def answer(delta, w, beta, floor):
        return 0.4 * A(delta, w, floor).sigmoid() - 0.3 + 1 - beta - minus

    assert not checks.check_ratio(answer)
    assert hint in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda w, b: ~foreign_columns(w, b), "return the others"),
        (lambda w, b: foreign_columns(w, b) | (w == 0).all(0), "its unit is off"),
        (lambda w, b: foreign_columns(w, b) & (torch.arange(30) % 2 == 0), "all rows"),
        (lambda w, b: (w / b[:, None]).std(0) >= 0, "allow for rounding"),
        (lambda w, b: torch.arange(30) < 0, "if all rows agree"),
        (lambda w, b: w[0], "truth values"),
    ],
)
def test_foreign_columns_hints(answer, hint, capsys) -> None:
    assert not checks.check_foreign_columns(answer)
    assert hint in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda *a: fill_in(*a, group=torch.argmin), "more than half"),
        (lambda *a: fill_in(*a, rows=slice(None)), "own rows only"),
        (lambda *a: fill_in(*a, label=0), "the label is missing"),
        (lambda *a: fill_in(*a, slack=10), "no row was told apart"),
        (lambda *a: (torch.arange(9) == 0, *fill_in(*a)[1:]), "allow for rounding"),
        (lambda *a: (torch.arange(9) > 4, *fill_in(*a)[1:]), "the larger group"),
        (lambda *a: (fill_in(*a)[0], fill_in(*a)[1], a[1]), "still stand in the bias"),
        (lambda *a: (fill_in(*a)[0], a[0], fill_in(*a)[2]), "row c of the weights"),
        (lambda *a: fill_in(*a)[0], "three things"),
        (lambda *a: ..., "replace the dots"),
    ],
)
def test_fill_in_hints(answer, hint, capsys) -> None:
    assert not checks.check_fill_in(answer)
    assert hint in capsys.readouterr().out


# --- what the chapter says ---


def test_ex_ent_hand() -> None:
    """The drawing's numbers are the example's, and the example is what the package would read."""
    own, guard, sent, shown = (torch.tensor(m, **DOUBLE) for m in guard_and_mask.example())
    want = [[-0.6, 0.3, -0.3, 0.6], [0.4, -0.5, 0.2, -1], [0.2, 0.2, 0.1, 0.4]]
    torch.testing.assert_close(sent, torch.tensor(want, **DOUBLE))
    both = guard_and_mask.CLIENT, guard_and_mask.GUARD
    delta, gamma = (torch.tensor(v[0], **DOUBLE) for v in both)
    assert delta.sum().abs() < 1e-12 and gamma.sum().abs() < 1e-12  # softmax errors
    assert (delta < 0).tolist() == [True, False, False]
    torch.testing.assert_close(shown[:, 0], torch.ones(3, **DOUBLE))
    torch.testing.assert_close(shown[:, 1], torch.tensor([-0.5, -1.25, 1.0], **DOUBLE))
    torch.testing.assert_close(shown[:, 2], 0.5 * torch.ones(3, **DOUBLE))
    assert foreign_columns(sent, delta).tolist() == [False, True, False, True]
    assert torch.linalg.matrix_rank(own) == torch.linalg.matrix_rank(guard) == 1
    assert torch.linalg.matrix_rank(sent) == 2


def test_failed_attacks_still_name_the_digit() -> None:
    """Every search is below 20 dB and worse than a blind guess, and most results name the digit."""
    data, (net, x, y, guard) = load("mnist"), digits_and_guard(16)
    many, _ = data.sample(100, split="test", seed=0)
    assert torch.equal(many[:16], x)
    sent = share(net, x, y, Entangle(0.7, guard=guard), ("labels",), each=1)
    images = metrics.as_image(IDLG(steps=100, show=False).run(sent).images)
    score = metrics.psnr(images, x)
    assert score.max() < 20 and score.mean() < 10
    named = torch.cdist(images.flatten(1), many.flatten(1)).argmin(1) == torch.arange(16)
    assert named.sum() > 8  # chance: one in a hundred


def test_stored_results_carry_the_text() -> None:
    """What the chapter concludes from the studies."""
    attack, training = (
        STUDIES[f"entanglement/{n}"].show()["cells"] for n in ("attack", "training")
    )

    def variant(name: str, by: str) -> dict:
        want = {"part": "variant", "variant": name, "attack": by}
        return next(c for c in attack if want.items() <= c.items())

    (blind,) = (c for c in attack if c["part"] == "blind")
    for beta in (0.9, 0.7, 0.5, 0.3):
        assert variant(f"β {beta}", "guard's upload")["success"] == 16
        assert variant(f"β {beta}", "guard's upload")["psnr_mean"] > 70
        assert min(variant(f"β {beta}", "guard's upload")["psnr"]) > 40
        assert all(variant(f"β {beta}", a)["success"] <= 1 for a in ("GS", "iDLG"))
        assert variant(f"β {beta}", "GS")["psnr_mean"] < blind["psnr_interval"][0]
    assert variant("rows", "iDLG")["success"] == 7
    for by in ("GS", "iDLG"):  # the score matters little
        more = variant("random units", by)["psnr_mean"] - variant("β 0.7", by)["psnr_mean"]
        assert 0.5 < more < 2.5
        assert variant("random units", by)["psnr_mean"] < blind["psnr_interval"][0]
    assert all(variant(f"{v}added", "guard's upload")["psnr_mean"] > 100 for v in ("", "rows "))
    reads = [c for c in attack if c.get("attack") == "readout"]
    assert sum(c["mask_exact"] for c in reads) == sum(c["images"] for c in reads) == 160
    steps = {c["attack"]: c for c in attack if c["part"] == "update"}
    assert (steps["iDLG"]["success"], steps["guard's upload"]["success"]) == (0, 8)
    mse = {c["defense"]: c["mse_standardized"] for c in attack if c["part"] == "table"}
    assert mse["none"] < blind["mse_standardized"] < 0.9835 < mse["Entangle"]
    assert 2.5 < mse["Entangle"] / 0.9835 < 3.5 and min(mse["POGZ-FL"], mse["CA-FL"]) > 3.5
    (left_out,) = (c for c in attack if c["part"] == "left out")
    assert left_out["success"] == 16
    fresh = [c for c in attack if c["part"] == "fresh"]
    assert all(c["mask_exact"] == c["images"] == 16 for c in fresh) and len(fresh) == 8
    wire = {(c["format"], c["variant"]): c for c in attack if c["part"] == "wire"}
    copied = [f"β {b}" for b in (0.9, 0.7, 0.5, 0.3)] + ["random units", "rows"]
    for kind in ("float16", "bfloat16"):
        assert all(wire[kind, v]["mask_exact"] == 16 for v in copied)
        assert wire[kind, "β 0.7"]["success"] == 16
        assert wire[kind, "rows added"]["mask_exact"] == 13
        assert wire[kind, "rows added"]["false"] == 0
    exact = [wire["bfloat16", v]["mask_exact"] for v in ("both", "added", "both added")]
    assert exact == [15, 15, 12]
    assert [wire["float16", v]["mask_exact"] for v in ("both", "added")] == [16, 16]

    def run(method: str, seed: int = 0, split: str = "dirichlet") -> dict:
        want = {"part": "train", "method": method, "seed": seed, "split": split}
        return next(c for c in training if want.items() <= c.items())

    for seed in (0, 1):
        plain = run("FedAvg", seed)["accuracy"][-1]
        assert abs(plain - run("β 0.7", seed)["accuracy"][-1]) < 0.01
        assert run("β 0.1", seed)["accuracy"][-1] < plain - 0.025
        assert max(run("β 0.9", seed)["ratios"]) < 0.05
    assert (
        run("β 0.7", split="shards")["accuracy"][-1] < run("FedAvg", split="shards")["interval"][0]
    )
    for method in ("FedAvg", "β 0.7"):
        found = run(method)["membership"]
        assert np.mean([m["boundary"]["auc"] for m in found]) > 0.6
        assert abs(np.mean([m["boundary"]["auc_matched"] for m in found]) - 0.5) < 0.02
