"""The chapter "Cutting gradients": each statement checked, and where it stops holding."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import privfl_lite as pf
from privfl_lite import metrics
from privfl_lite.attacks import IDLG, ClosedForm, gauss_newton
from privfl_lite.attacks.analytic import gauss_newton as newton
from privfl_lite.defenses import Context, Prune, Soteria
from privfl_lite.defenses.prune import largest
from privfl_lite.defenses.soteria import representation_slopes
from privfl_lite.gradients import flat
from privfl_lite.studies import STUDIES
from privfl_lite.studies.cutting_gradients import attack as cutting
from privfl_lite.teach.checks import cutting_gradients as checks
from privfl_lite.teach.drawings import zero_is_not_zero
from privfl_lite.wire import Plan

SHAPE = (1, 12, 12)
close = torch.testing.assert_close


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    return torch.rand(4, *SHAPE, generator=rng(0)), torch.tensor([3, 1, 4, 1])


def net(act: str = "sigmoid", shape: tuple = SHAPE):
    return pf.models.build("lenet", shape, 10, act=act, init=0.5 if act == "sigmoid" else 0.1)


# --- by hand ---


def test_ex_cutting_by_hand():
    """Every number of the example, and the drawing of it."""
    w, b = np.outer([0.5, -0.2], [0.8, 0.2]), np.array([0.5, -0.2])
    assert np.allclose(w, [[0.4, 0.1], [-0.16, -0.04]])
    assert np.allclose(zero_is_not_zero.gradient(), np.column_stack([w, b]))
    cut = [torch.tensor(t) * largest(torch.tensor(t)[None], 0.5)[0] for t in (w, b)]
    assert np.allclose(cut[0], [[0.4, 0], [-0.16, 0]]) and np.allclose(cut[1], [0.5, 0])
    assert np.allclose(zero_is_not_zero.pruned(), np.column_stack([t.numpy() for t in cut]))
    assert np.allclose(cut[0][0] / cut[1][0], [0.8, 0])
    assert np.isclose(0.16 / 0.5, 0.32) and 0.2 < 0.32 and np.isclose(-0.16 / 0.8, -0.2)


# --- pruning ---


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.77, 0.9, 0.999])
def test_lem_prune_energy(rate):
    for seed, n in enumerate((1, 2, 17, 400)):
        t = torch.randn(1, n, generator=rng(seed), dtype=torch.float64)
        kept = t * largest(t, rate)
        k = n - math.ceil(rate * (n - 1))
        want = t.numpy()[0] * (abs(t.numpy()[0]) >= np.sort(abs(t.numpy()[0]))[n - k])
        np.testing.assert_array_equal(kept[0].numpy(), want)
        assert int((kept != 0).sum()) == k >= 1
        share = kept.square().sum() / t.square().sum()
        assert share >= k / n - 1e-12
        cosine = torch.nn.functional.cosine_similarity(kept, t)
        close(cosine.square()[0], share)
    ties = torch.ones(1, 10)  # equality in 2 would need equal entries; then ties keep all of them
    assert int(largest(ties, rate).sum()) == 10


def test_prop_feedback_telescopes():
    defense, ctx = Prune(0.9, feedback=True), Context(None, {}, [], [], [], who=[0])
    total_g = total_s = torch.zeros(1, 50, dtype=torch.float64)
    n, most = 50, 0.0
    kappa = (n - math.ceil(0.9 * (n - 1))) / n
    for t in range(60):
        g = torch.randn(1, n, generator=rng(t), dtype=torch.float64)
        most = max(most, g.norm().item())
        total_g = total_g + g
        total_s = total_s + defense.gradient({"a": g}, ctx)["a"]
        held = ctx.memory[0]["a"]
        close(total_s[0] + held, total_g[0])
        q = math.sqrt(1 - kappa)
        assert held.norm() <= q / (1 - q) * most
    plain = Prune(0.9).gradient({"a": g}, ctx)["a"]
    assert not torch.allclose(60 * plain, 60 * g)  # without feedback the rest is lost


def test_feedback_sends_every_entry_of_a_constant_gradient():
    g = torch.linspace(0.1, 1, 40)[None]
    defense, ctx = Prune(0.95, feedback=True), Context(None, {}, [], [], [], who=[0])
    met = torch.zeros(1, 40, dtype=torch.bool)
    for _ in range(400):
        met |= defense.gradient({"a": g}, ctx)["a"] != 0
    assert met.all()
    assert int((Prune(0.95).gradient({"a": g}, ctx)["a"] != 0).sum()) < 4


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.999])
def test_prop_label_survives_pruning(batch, rate):
    x, y = batch
    for act in ("sigmoid", "relu"):
        sent = pf.share(net(act), x, y, Prune(rate), each=1).tensors
        bias, mask = sent["head.bias"], sent["head.weight"] != 0
        assert torch.equal(bias.argmin(1), y) and ((bias < 0).sum(1) == 1).all()
        rows = torch.arange(len(y))
        assert not (mask & ~mask[rows, y][:, None]).any()  # the label's row contains the others
        inside = (mask & mask[rows, y][:, None]).sum(2) == mask[rows, y].sum(1, keepdim=True)
        if rate >= 0.9:  # the mask alone names it
            assert torch.equal(mask.sum(2).argmax(1), y) and (inside.sum(1) == 1).all()
        elif act == "relu":  # half of the tensor was zero before: all rows look alike
            assert inside.all()
    two = pf.models.build("lenet", SHAPE, 2)  # two classes: |δ| ties, both stay, the sign decides
    sent = pf.share(two, x, y % 2, Prune(rate), each=1).tensors["head.bias"]
    assert torch.equal(sent.argmin(1), y % 2)


def test_a_batch_can_lose_a_label(batch):
    """Where it stops: with several images the largest bias entry belongs to the commonest class."""
    x, _ = batch
    y = torch.tensor([1, 1, 1, 4])
    bias = pf.share(net(), x, y, Prune(0.95)).tensors["head.bias"][0]
    assert bias[4] == 0


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99])
def test_prop_pruned_layer_thresholds(rate):
    x = torch.rand(3, *SHAPE, generator=rng(1))
    model = pf.models.build("mlp", SHAPE, 10, hidden=(30,))
    plain = pf.share(model, x, torch.tensor([1, 2, 3]), each=1)
    upload = pf.share(model, x, torch.tensor([1, 2, 3]), Prune(rate), each=1)
    found = read_row(upload)
    for u in range(3):
        w = plain.tensors["features.1.weight"][u].abs().flatten()
        tau = w.sort().values[math.ceil(rate * (len(w) - 1))]
        limit = tau / upload.tensors["features.1.bias"][u].abs().max()
        pixels = x[u].flatten()
        close(found[u], pixels * (pixels >= limit), rtol=1e-4, atol=1e-5)
        assert (found[u] - pixels).abs().max() <= limit * (1 + 1e-4)
    if rate == 0.5:  # where it stops: behind two images the row is a mixture of both
        both = read_row(pf.share(model, x[:2], torch.tensor([1, 2]), Prune(rate)))[0]
        assert min((both - x[u].flatten()).abs().max() for u in range(2)) > 1.5 * limit


def read_row(upload: pf.Upload) -> Tensor:
    """The row with the largest bias gradient, divided by it, (U, in)."""
    w, b = (upload.tensors[f"features.1.{part}"] for part in ("weight", "bias"))
    rows, i = torch.arange(len(w)), b.abs().argmax(1)
    return w[rows, i] / b[rows, i, None]


def test_prop_count_equations():
    """Full rank: the solver comes back to x. Short rank: another image, the very same upload."""
    torch.manual_seed(0)
    model, label = net(shape=(1, 8, 8)).double(), torch.tensor([3])
    x = torch.rand(1, 1, 8, 8, generator=rng(5)).double()
    n = 64
    total = sum(p.numel() for p in model.parameters())
    upload = pf.share(model, x, label, Prune(0.95))
    kept, rank = cutting.rank(upload, x[0])
    assert kept > n and rank == n
    found = gauss_newton(upload).images.double()
    assert (found - x).abs().max() < 1e-3

    rate = 1 - 40 / total  # fewer entries than pixels
    upload = pf.share(model, x, label, Prune(rate))
    kept, rank = cutting.rank(upload, x[0])
    assert rank <= kept < n
    g = newton.gradient_of_pixels(upload, label, torch.float64)
    seen = flat(upload.tensors)[0]
    keep, v = seen != 0, x.flatten().clone()
    null = torch.linalg.svd(newton.jacobian(g, v, keep))[2][rank:]  # directions left open
    assert len(null) == n - rank
    v = v + 1e-3 * null[0]
    for _ in range(4):  # back onto the surface of equal kept entries
        j = newton.jacobian(g, v, keep)
        v = v - torch.linalg.lstsq(j, (g(v) - seen)[keep], driver="gelsd").solution
    assert (v - x.flatten()).norm() > 5e-4
    again = flat(pf.share(model, v.view_as(x), label, Prune(rate)).tensors)[0]
    assert torch.equal(again != 0, keep)  # mask included
    close(again, seen, rtol=0, atol=1e-10)


# --- Soteria ---


def test_lem_row_pseudo_inverse():
    for seed in range(5):
        row = torch.randn(1, 9, generator=rng(seed), dtype=torch.float64)
        close(torch.linalg.pinv(row), row.T / row.square().sum())
        close(torch.linalg.pinv(row).norm(), 1 / row.norm())
        j = torch.randn(4, 9, generator=rng(seed), dtype=torch.float64)
        columns, rows = torch.linalg.pinv(j).norm(dim=0), j.norm(dim=1)
        assert (columns > 1 / rows).all()  # strictly: random rows are not orthogonal
        j[0] = torch.linalg.svd(j[1:])[2][-1] * 3  # now row 0 is orthogonal to the others
        columns = torch.linalg.pinv(j).norm(dim=0)
        close(columns[0], 1 / j[0].norm())


def dead_and_removed(model, x: Tensor, y: Tensor, rate: float, score: str) -> tuple[int, int, int]:
    before, after = (
        pf.share(model, x, y, d).tensors["head.weight"][0] != 0
        for d in (None, Soteria(rate, score=score))
    )
    dead = ~before.any(0)
    return len(dead), int(dead.sum()), int((before.any(0) & ~after.any(0)).sum())


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.6, 0.9])
def test_prop_free_pruning(batch, rate):
    x, y = batch
    for act in ("relu", "sigmoid"):
        for i in range(2):
            size, dead, gone = dead_and_removed(net(act), x[i : i + 1], y[i : i + 1], rate, "code")
            assert (dead > 0) == (act == "relu")
            assert gone == max(0, math.ceil(rate * (size - 1)) - dead)


def test_soteria_scores_where_the_free_lunch_ends(batch):
    x, y = batch
    _, dead, gone = dead_and_removed(net("relu"), x[:1], y[:1], 0.2, "paper")
    assert dead > 0 and gone > 0  # the paper's form takes live features first
    model = net("tanh")  # signed features: the code's score is negative below −0.1
    theta = {n: p.detach()[None] for n, p in model.named_parameters()}
    ctx = Context(model, theta, x[None, :1], y[None, :1], [])
    slopes, r = representation_slopes(ctx)
    low = r[0, 0] < -0.1
    assert low.any() and (Soteria().scores(ctx)[0][low] < 0).all() and (slopes[0, 0][low] > 0).all()


def test_prop_soteria_untouched(batch):
    x, y = batch
    model = net()
    plain = pf.share(model, x, y, each=1)
    for rate in (0.2, 0.9):
        sent = pf.share(model, x, y, Soteria(rate), each=1)
        assert all(torch.equal(sent.tensors[n], t) for n, t in plain.tensors.items()
                   if n != "head.weight")  # fmt: skip
        keep = (sent.tensors["head.weight"] != 0).any(1)
        r = model.representation(x)
        c = sent.tensors["head.bias"].abs().argmax(1)
        rows = torch.arange(len(x))
        quotient = (
            sent.tensors["head.weight"][rows, c] / sent.tensors["head.bias"][rows, c][:, None]
        )
        close(quotient[keep], r[keep], rtol=1e-4, atol=1e-5)
        assert (~keep).sum() > 0
    a, b = (
        IDLG(steps=15, drop=("head.weight",), show=False).run(u, seed=1).images
        for u in (plain, pf.share(model, x, y, Soteria(0.9), each=1))
    )
    assert torch.equal(a, b)
    mlp = pf.models.build("mlp", SHAPE, 10)
    found = ClosedForm().run(pf.share(mlp, x, y, Soteria(0.95), each=1)).images
    assert (found - x).abs().max() < 1e-4
    regression = pf.models.build(
        "mlp", SHAPE, 10, hidden=()
    )  # the first layer is the last: it is cut
    assert not torch.equal(
        pf.share(regression, x[:1], y[:1], Soteria(0.5)).tensors["head.weight"],
        pf.share(regression, x[:1], y[:1]).tensors["head.weight"],
    )


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_prop_frozen_columns(batch, momentum):
    class Watch(Soteria):
        kept: ClassVar[list[Tensor]] = []

        def gradient(self, g, ctx):
            out = super().gradient(g, ctx)
            Watch.kept.append(out["head.weight"][0])
            return out

    x, y = batch
    Watch.kept = []
    plan = Plan(eta=0.1, steps=4, batch_size=2, momentum=momentum)
    delta = pf.share(net(), x, y, Watch(0.7), plan=plan).tensors["head.weight"][0]
    steps = torch.stack(Watch.kept)  # (T, classes, R)
    never = (steps == 0).all(0).all(0)
    assert len(steps) == 4 and 0 < never.float().mean() < 1
    assert (delta[:, never] == 0).all() and delta[:, ~never].any(0).all()
    if not momentum:
        close(delta, -0.1 * steps.sum(0), rtol=1e-3, atol=1e-5)


# --- the study ---


@pytest.fixture(scope="module")
def stored() -> dict:
    return {(c["part"], c["defense"], c["side"], c["attacker"], c["rate"]): c
            for c in STUDIES["cutting-gradients/attack"].show()["cells"]}  # fmt: skip


def test_what_the_chapter_says_about_the_study(stored):
    images = STUDIES["cutting-gradients/attack"].show()["settings"]["images"]
    assert all(c["labels_right"] == images for c in stored.values())
    for (part, defense, side, attacker, _), c in stored.items():
        if part == "newton" and attacker == "mask":
            full = min(c["rank"]) == side**2
            assert (np.median(c["psnr"]) > 60) == full
            assert full <= (min(c["kept"]) >= side**2)  # the count is necessary
        if attacker == "naive" and (defense == "soteria" or c["rate"] >= 0.7):
            assert np.mean(c["psnr"]) < 15
    short = stored["newton", "prune", 28, "mask", 0.94]
    assert min(short["kept"]) > 784 > min(short["rank"])  # and not sufficient
    assert np.mean(stored["search", "prune", 28, "mask", 0.7]["psnr"]) > 40
    assert np.mean(stored["search", "soteria", 28, "drop", 0.99]["psnr"]) > 40


def test_a_stored_cell_comes_out_again(stored):
    settings = {**STUDIES["cutting-gradients/attack"].settings("cpu"), "images": 1, "ranks": 1}
    key = ("newton", "prune", 14, "mask", 0.98)
    cell = dict(zip(("part", "defense", "side", "attacker", "rate"), key, strict=True))
    again = cutting.STUDY.compute(settings, cell)
    assert again["kept"][0] == stored[key]["kept"][0]
    assert again["rank"][0] == stored[key]["rank"][0]
    assert abs(again["psnr"][0] - stored[key]["psnr"][0]) < 3


def test_naive_newton_is_misled_where_the_masked_one_is_exact():
    x = torch.rand(1, *SHAPE, generator=rng(2))
    upload = pf.share(net(), x, torch.tensor([2]), Prune(0.9))
    good, bad = (metrics.compare(gauss_newton(upload, m).images, x)["psnr"] for m in (True, False))
    assert good > 60 > 20 > bad


# --- the exercises ---


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda t, rate: t * (t.abs() >= t.abs().flatten().quantile(rate)), "Right"),
        (lambda t, rate: t * (t.abs() > t.abs().flatten().quantile(rate)), "strictly"),
        (lambda t, rate: t * (t >= t.flatten().quantile(rate)), "magnitudes"),
        (lambda t, rate: t * (t.abs() < t.abs().flatten().quantile(rate)), "small entries"),
        (lambda t, rate: t.abs() * (t.abs() >= t.abs().flatten().quantile(rate)), "sign"),
        (lambda t, rate: t, "should stay"),
        (lambda t, rate: t.flatten(), "shape"),
        (lambda t, rate: ..., "replace the dots"),
    ],
)
def test_check_prune(answer, says, expect):
    expect(checks.check_prune, answer, says)


def masked(mine: dict, sent: dict) -> Tensor:
    return sum((mine[n] - t)[t != 0].square().sum() for n, t in sent.items())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (masked, "Right"),
        (lambda a, b: sum((a[n] - t).square().sum() for n, t in b.items()), "not said"),
        (lambda a, b: masked(a, b).sqrt(), "root"),
        (
            lambda a, b: sum(((a[n] - t) * (t != 0)).square().mean() for n, t in b.items()),
            "means",
        ),
        (lambda a, b: masked({"a": a["a"]}, {"a": b["a"]}), "both tensors"),
        (lambda a, b: 3, "return a tensor"),
    ],
)
def test_check_masked_distance(answer, says, expect):
    expect(checks.check_masked_distance, answer, says)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda mask: int(mask.sum(1).argmax()), "Right"),
        (lambda mask: mask.sum(1).argmax(), "Right"),
        (lambda mask: int(mask.sum(1).argmin()), "fewest"),
        (lambda mask: 39, "no class"),
        (lambda mask: mask.sum(1), "one number"),
        (lambda mask: None, "replace the dots"),
    ],
)
def test_check_label_from_mask(answer, says, expect):
    expect(checks.check_label_from_mask, answer, says)


def masked_newton(h, sent, v):
    return checks.damped(h, sent, v, sent != 0)


def undamped(h, sent, v, sign: float = 1.0, steps: int = 3):
    keep = sent != 0
    for _ in range(steps):
        j = torch.func.jacfwd(h)(v)[keep]
        v = v - sign * 0.1 * torch.linalg.lstsq(j, (h(v) - sent)[keep, None]).solution[:, 0]
    return v


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (masked_newton, "Right"),
        (lambda *a: masked_newton(*a).numpy(), "Right"),
        (lambda h, s, v: checks.damped(h, s, v, torch.ones_like(s) > 0), "still count"),
        (lambda h, s, v: v, "still the start"),
        (lambda *a: undamped(*a, sign=-1.0), "sign of the step"),
        (undamped, "more often"),
        (lambda h, s, v: v / 0 * 0, "diverge"),
        (lambda h, s, v: s, "shape (6,)"),
        (lambda h, s, v: ..., "replace the dots"),
    ],
)
def test_check_solve(answer, says, expect):
    expect(checks.check_solve, answer, says)
