"""Model Entanglement: Eq. 8–10 against independent versions, the doors, and attackers who know."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from privfl_lite import Plan, PrivflError, defenses, fedavg, load, metrics, models, share
from privfl_lite.attacks import GS, IDLG, Recursive, Unguard, UnguardRows
from privfl_lite.attacks.adaptive import entanglement as guarding
from privfl_lite.attacks.adaptive.entanglement import (
    complete,
    estimated,
    own_part,
    read_features,
    rounding,
)
from privfl_lite.defenses import Context, Entangle, Memory
from privfl_lite.defenses.entangle import (
    adaptive_term,
    dense_layers,
    relative_size,
    replaced,
    unit_scores,
)
from privfl_lite.gradients import weights
from privfl_lite.runtime import generator
from privfl_lite.stored import SHIPPED
from privfl_lite.studies import STUDIES
from privfl_lite.wire import Upload

SHAPE = (1, 12, 12)


@pytest.fixture(scope="module")
def setting():
    """Four private images and four of the guard's, gradients of all of them."""
    net = models.build("lenet", SHAPE, 10)
    rng = torch.Generator().manual_seed(5)
    x, gx = (torch.rand(4, *SHAPE, generator=rng) for _ in range(2))
    y, gy = torch.tensor([3, 1, 3, 7]), torch.tensor([0, 2, 3, 8])
    return net, x, y, share(net, gx, gy, each=1).tensors


def context(net, x, y) -> Context:
    theta = {n: t.expand(len(x), *t.shape) for n, t in weights(net).items()}
    rngs = [generator(0, k) for k in range(len(x))]
    return Context(net, theta, x, y, rngs, 0, list(range(len(x))))


def quotient_by_hand(f, x) -> np.ndarray:
    """|r_i| / ‖∂r_i/∂x‖ of one image, one backward pass of plain autograd a unit."""
    out = []
    x = x[None].clone().requires_grad_()
    for r in f(x)[0]:
        (slope,) = torch.autograd.grad(r, x, retain_graph=True)
        out.append(r.abs().item() / slope.norm().item())
    return np.array(out)


# Scores (Eq. 8–9)


@pytest.mark.parametrize("name", ["lenet", "mlp", "lenet5"])
def test_scores_equal_a_backward_pass_for_each_unit(name):
    """For the inputs and the outputs of every fully connected layer."""
    options = {"hidden": (9, 6)} if name == "mlp" else {}
    shape = (1, 16, 16) if name == "lenet5" else (1, 8, 8)
    net = copy.deepcopy(models.build(name, shape, 5, act="tanh", **options)).double()
    x = torch.rand(2, 2, *shape, generator=generator(1)).double() + 0.1
    ctx = context(net, x, torch.zeros(2, 2).long())
    layers = list(dense_layers(net))
    want = [n for n, m in net.named_modules() if isinstance(m, torch.nn.Linear)]
    assert [layer[0] for layer in layers] == want
    for _, layer, before, through in layers:
        for part, units in ((before, layer.in_features), (through, layer.out_features)):
            got = unit_scores(part, ctx)
            assert got.shape == (2, units)
            for k in range(2):
                by_hand = np.mean([quotient_by_hand(part, image) for image in x[k]], 0)
                np.testing.assert_allclose(got[k].numpy(), by_hand, rtol=1e-8)


@pytest.mark.parametrize(("act", "shape"), [("relu", (1, 16, 16)), ("sigmoid", (3, 16, 12))])
def test_scores_equal_the_jacobian_of_the_plain_network(act, shape):
    """What is laid out for speed (patches, channels last, units that are off left out) is exact."""
    net = models.build("lenet", shape, 5, act=act, init=0.3).double()
    x = torch.rand(2, 2, *shape, generator=generator(1)).double()
    got = unit_scores(net.features, context(net, x, torch.zeros(2, 2).long()))
    for k in range(2):
        each = []
        for image in x[k]:
            rows = torch.autograd.functional.jacobian(net.features, image[None])[0].flatten(1)
            each.append((net.features(image[None])[0].abs() / rows.norm(dim=1)).nan_to_num(0.0))
        want = torch.stack(each).mean(0).detach()
        assert (want == 0).any() == (act == "relu")
        torch.testing.assert_close(got[k], want, rtol=1e-8, atol=1e-12)


def test_quotient_is_the_inverse_only_for_orthogonal_rows():
    """Theorem 1 asks for the columns of the inverse; Eq. 8 puts 1/‖row‖ in their place."""
    net = models.build("mlp", (1, 2, 2), 3, hidden=(4,), act="identity").double()
    x, rng = torch.rand(1, 1, 1, 2, 2, generator=generator(0)).double(), generator(3)
    turn = torch.linalg.qr(torch.randn(4, 4, generator=rng).double())[0]
    orthogonal = torch.tensor([3.0, 0.5, 1.0, 2.0]).double()[:, None] * turn
    for rows, holds in ((orthogonal, True), (orthogonal + 0.4 * orthogonal.roll(1, 0), False)):
        with torch.no_grad():
            net.features[1].weight.copy_(rows)
        r = net.features(x[0])[0].detach()
        exact = r.abs() * torch.linalg.inv(rows).norm(dim=0)  # a change of r_i alone moves X so far
        got = unit_scores(net.features, context(net, x, torch.zeros(1, 1).long()))[0]
        assert torch.allclose(got, exact, rtol=1e-10) is holds


def test_a_unit_that_is_off_is_chosen_last():
    net = models.build("mlp", (1, 4, 4), 3, hidden=(8,))
    with torch.no_grad():
        net.features[1].bias[:3] = -100.0
    x, y = torch.rand(2, 1, 4, 4, generator=generator(2)), torch.tensor([0, 1])
    scores = unit_scores(net.features, context(net, x[:, None], y[:, None]))
    assert (scores[:, :3] == 0).all()


# How much is replaced (Eq. 10)


def test_ratio_is_equation_10_and_its_range_is_not_the_papers():
    a = torch.linspace(0, 20, 101).double()
    e = torch.exp(-a)
    torch.testing.assert_close(adaptive_term(a), (1 - 3 * e) / (10 * (1 + e)))
    assert adaptive_term(a).min() == pytest.approx(-0.1) and adaptive_term(a).max() < 0.1
    assert adaptive_term(torch.tensor(math.log(3))).item() == pytest.approx(0, abs=1e-7)


def test_relative_size_by_hand_and_a_weight_near_zero_does_not_decide(setting):
    net, x, y, _ = setting
    ctx, g = context(net, x[:, None], y[:, None]), share(net, x, y, each=1).tensors
    got = relative_size(g, ctx.theta, 1e-3)
    for k in range(4):
        terms = [
            (g[n][k].double() / p.double().abs().clamp(min=1e-3)).abs().flatten()
            for n, p in net.named_parameters()
        ]
        assert got[k].item() == pytest.approx(torch.cat(terms).mean().item(), rel=1e-4)
    tiny = {n: t.clone() for n, t in ctx.theta.items()}
    tiny["head.weight"][:, 0, 0] = 1e-12
    loose, safe = (relative_size(g, tiny, floor) for floor in (1e-30, 1e-3))
    assert (loose > 1e3).all() and (safe - got).abs().max() < 0.1


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("ratio", ["adaptive", "fixed"])
def test_so_many_columns_are_the_guards(setting, beta, ratio):
    net, x, y, guard = setting
    defense = Entangle(beta, ratio=ratio, guard=guard)
    memory, plain = Memory(), share(net, x, y, each=1).tensors
    sent = share(net, x, y, defense, each=1, memory=memory).tensors
    size = relative_size(plain, context(net, x[:, None], y[:, None]).theta)
    for k in range(4):
        e = math.exp(-size[k].item())
        extra = (1 - 3 * e) / (10 * (1 + e)) if ratio == "adaptive" else 0.0
        share_k = min(max(extra + 1 - beta, 0), 1)
        columns = (sent["head.weight"][k] == guard["head.weight"][k]).all(0)
        assert columns.sum().item() == round(share_k * net.head.in_features)
        assert memory[k]["ratio"].item() == pytest.approx(share_k, abs=1e-6)


# Which entries


@pytest.mark.parametrize("side", ["columns", "rows", "both"])
@pytest.mark.parametrize("how", ["copy", "add"])
def test_exactly_the_entries_next_to_the_top_units_change(setting, side, how):
    net, x, y, guard = setting
    defense = Entangle(0.6, side, how, ratio="fixed", guard=guard)
    memory, plain = Memory(), share(net, x, y, each=1).tensors
    sent = share(net, x, y, defense, each=1, memory=memory).tensors
    masks = replaced(memory, range(4))
    for k in range(4):
        r = quotient_by_hand(net.features, x[k]).argsort()[::-1]
        z = quotient_by_hand(net, x[k]).argsort()[::-1]
        weight, bias = np.zeros((10, len(r)), bool), np.zeros(10, bool)
        if side != "rows":
            weight[:, r[: round(0.4 * len(r))]] = True
        if side != "columns":
            weight[z[:4]] = bias[z[:4]] = True
        for n, t in sent.items():
            mask = {"head.weight": weight, "head.bias": bias}.get(n, np.zeros(t[k].shape, bool))
            np.testing.assert_array_equal(masks[n][k].numpy(), mask)
            new = guard[n][k] + (plain[n][k] if how == "add" else 0)
            want = np.where(mask, new.numpy(), plain[n][k].numpy())
            np.testing.assert_allclose(t[k].numpy(), want, rtol=1e-6, atol=1e-9)


def test_every_fully_connected_layer_is_entangled():
    net = models.build("mlp", (1, 6, 6), 10, hidden=(20, 12))
    x, y = torch.rand(3, 1, 6, 6, generator=generator(1)), torch.tensor([1, 2, 3])
    defense = Entangle(0.5, "both", ratio="fixed", images=1)
    share(net, x, y, defense, each=1, memory=(memory := Memory()))
    assert replaced(memory, range(3)).keys() == dict(net.named_parameters()).keys()
    for n, mask in replaced(memory, range(3)).items():
        assert not mask[0].any()  # the guard itself
        want = 0.75 if n.endswith("weight") else 0.5
        assert mask[1:].double().mean().item() == pytest.approx(want, abs=0.01)


def test_random_units_are_others_for_every_client_and_the_seed_decides(setting):
    net, x, y, guard = setting
    masks = []
    for seed in (0, 0, 1):
        defense = Entangle(0.5, score="random", guard=guard)
        share(net, x, y, defense, each=1, seed=seed, memory=(memory := Memory()))
        masks.append(replaced(memory, range(4))["head.weight"][:, 0])
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0][0], masks[0][1])


# In a federation


def parts(sizes, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return [
        (torch.rand(n, *SHAPE, generator=rng), torch.randint(10, (n,), generator=rng))
        for n in sizes
    ]


@pytest.mark.parametrize("options", [{}, {"share": "gradient"}, {"fast": False}])
def test_the_guards_update_reaches_every_client_of_the_same_round(options):
    """Unequal numbers of examples, so that clients go in several groups."""
    net = models.build("lenet", SHAPE, 10, init=0.2)
    run = fedavg(
        net, parts([3, 5, 3, 4]), 2, Plan(eta=0.3, batch_size=2), defense=Entangle(0.6, images=2),
        keep_uploads=True, show=False, **options,
    )  # fmt: skip
    before = {n: p.detach().clone() for n, p in run.model.named_parameters()}
    for report in run:
        guard, *private = (u.tensors["head.weight"][0] for u in report.uploads)
        same = [(t == guard).all(0).double().mean().item() for t in private]
        assert all(0.25 < s < 0.55 for s in same)
        for name, p in run.model.named_parameters():  # §3.1: all four, weighted by |D_n|
            step = sum(
                w * u.tensors[name][0] for w, u in zip((3, 5, 3, 4), report.uploads, strict=True)
            )
            step = step / 15 * (1 if options.get("share") != "gradient" else -0.3)
            torch.testing.assert_close(p.detach(), before[name] + step, rtol=1e-4, atol=1e-6)
            before[name] = p.detach().clone()


def test_fast_path_equals_plain_path():
    net = models.build("lenet", SHAPE, 10, init=0.2)
    ends = []
    for fast in (True, False):
        run = fedavg(net, parts([4, 4, 6]), 2, defense=Entangle(), fast=fast, show=False)
        list(run)
        ends.append(run.model.state_dict())
    for n, t in ends[0].items():
        torch.testing.assert_close(t, ends[1][n], rtol=1e-4, atol=1e-6)


def test_without_its_guard_a_round_is_refused(setting):
    net, x, y, guard = setting
    with pytest.raises(PrivflError, match="no guard here: client 0 of several"):
        share(net, x[:1], y[:1], Entangle())
    run = fedavg(net, parts([2] * 6), 9, per_round=2, defense=Entangle(), show=False)
    with pytest.raises(PrivflError, match="must take part in every round"):
        list(run)
    one = {n: t[:2] for n, t in guard.items()}
    with pytest.raises(PrivflError, match="guard has 2 rows; give 1, or one for every client"):
        share(net, x, y, Entangle(guard=one), each=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"beta": 1.2}, "beta is 1.2; it must be a number from 0 to 1"),
        ({"side": "diagonal"}, "choose one of: columns, rows, both"),
        ({"how": "xor"}, "choose one of: copy, add"),
        ({"floor": 0.0}, "floor is 0.0; it must be a number over 0"),
        ({"images": 0}, "images is 0; it must be a whole number at"),
    ],
)
def test_bad_settings_get_one_sentence(options, says):
    with pytest.raises(PrivflError) as error:
        Entangle(**options)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_it_has_a_name_and_composes():
    made = defenses.build("entangle:beta=0.5,side=rows+prune:rate=0.1")
    assert "Entangle(beta=0.5, side='rows'" in repr(made) and len(made.parts) == 2


# Attackers who know


@pytest.fixture(scope="module")
def digits():
    data = load("mnist")
    net = models.build("lenet", data)
    x, y = data.sample(3, split="test", seed=2)
    return net, x, y, share(net, *data.sample(3, seed=3), each=1).tensors


@pytest.mark.parametrize("side", ["columns", "rows", "both"])
@pytest.mark.parametrize("how", ["copy", "add"])
def test_the_upload_itself_tells_which_entries_are_the_guards(digits, side, how):
    net, x, y, guard = digits
    defense = Entangle(0.7, side, how, guard=guard)
    upload = share(net, x, y, defense, each=1, memory=(memory := Memory()))
    truth = replaced(memory, range(3))
    for n, mask in estimated(upload).items():
        assert torch.equal(mask, truth[n])
    assert not any(m.any() for m in estimated(share(net, x, y, each=1)).values())


@pytest.mark.parametrize("wire", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("side", ["columns", "rows", "both"])
def test_uploads_of_16_bits_tell_it_too(digits, wire, side, monkeypatch):
    """Held in 16 bits or in 32; a tolerance for 32 bits would take everything for the guard's."""
    net, x, y, guard = digits
    defense = Entangle(0.7, side, guard=guard)
    sent = share(net, x, y, defense, each=1, memory=(memory := Memory()))
    truth = replaced(memory, range(3))
    for back in (wire, torch.float32):
        upload = replace(sent, tensors={n: t.to(wire).to(back) for n, t in sent.tensors.items()})
        for n, mask in estimated(upload).items():
            assert torch.equal(mask, truth[n])
    monkeypatch.setattr(guarding, "WIRES", ())
    false = estimated(upload)["head.weight"] & ~truth["head.weight"]
    assert false.sum() > 0.5 * (~truth["head.weight"]).sum()


@pytest.mark.parametrize("wire", [torch.float16, torch.bfloat16, torch.float32])
def test_rounding_bounds_what_the_wire_did(wire):
    """Over all sizes of numbers, subnormal ones included."""
    rng = generator(8)
    true = torch.randn(4000, generator=rng) * 10 ** (-9 * torch.rand(4000, generator=rng))
    sent = true.to(wire).float()
    bound, off = rounding(sent), (sent.double() - true.double()).abs()
    assert bound.shape == true.shape and bound.dtype == torch.float64
    assert (off <= bound).all()
    if wire != torch.float32:
        assert (off > 0.9 * bound).any()  # and it is no looser than need be


def agreeing_at_once(q: torch.Tensor, slack: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows by all pairs at once, (out, out, in), as the estimate did before it had a bound."""
    same = (q[:, None] - q).abs() <= torch.maximum(slack[:, None], slack)
    agree = same.double().mean(2).fill_diagonal_(0)
    like = agree > 0.9 * agree.amax(1, keepdim=True)
    like = like & like.T
    center = int(like.sum(1).argmax())
    rows = like[center].clone()
    rows[center] = True
    return rows, same[center][rows].all(0) & (rows.sum() > 1)


@pytest.mark.parametrize("side", ["columns", "rows", "both"])
def test_small_layers_have_the_same_rows_and_columns_as_all_pairs_at_once(digits, side):
    net, x, y, guard = digits
    upload = share(net, x, y, Entangle(0.7, side, guard=guard), each=1)
    w, b = (upload.tensors[f"head.{n}"].double() for n in ("weight", "bias"))
    for q in w / b[..., None]:
        slack = 1e-5 * q.abs()
        for a, c in zip(guarding._agreeing(q, slack), agreeing_at_once(q, slack), strict=True):
            assert torch.equal(a, c)


class Largest(TorchDispatchMode):
    """The most numbers that any result of an operation has."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            self.size = max(self.size, t.numel() if isinstance(t, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize("side", ["columns", "rows"])
def test_a_wide_layer_needs_no_more_memory_than_itself(side):
    """No tensor is larger than the layer's gradient, so 4096 × 4096 takes some times 128 MB."""
    n, m = 700, 600
    rng = generator(3)
    delta, r, gamma, s = (torch.randn(k, generator=rng).abs() + 0.1 for k in (n, m, n, m))
    delta[0], gamma[1], delta[5:40] = -delta[0], -gamma[1], 0.0  # 35 units are off
    weight, bias = torch.outer(delta, r), delta.clone()
    want = torch.zeros(n, m, dtype=torch.bool)
    want[5:40] = True
    if side == "columns":
        want[:, 50:250] = True
        weight[:, 50:250] = torch.outer(gamma, s)[:, 50:250]
    else:
        want[100:300] = True
        weight[100:300], bias[100:300] = torch.outer(gamma, s)[100:300], gamma[100:300]
    net = models.build("mlp", (1, 20, 30), n, hidden=())
    upload = Upload({"head.weight": weight[None], "head.bias": bias[None]}, "gradient", net, 1)
    with Largest() as seen:
        mask = estimated(upload)
    assert torch.equal(mask["head.weight"][0], want)
    assert seen.size <= n * m


def test_with_the_guards_upload_copies_are_seen_and_sums_undone(digits):
    net, x, y, guard = digits
    plain = share(net, x, y, each=1).tensors
    for how in ("copy", "add"):
        defense = Entangle(0.4, "both", how, guard=guard)
        memory = Memory()
        sent = share(net, x, y, defense, each=1, knows=("guard",), memory=memory)
        own, truth = own_part(sent).tensors, replaced(memory, range(3))
        for n, t in plain.items():
            want = t if how == "add" else t * ~truth[n]
            torch.testing.assert_close(own[n], want, rtol=1e-5, atol=1e-6)


def test_the_entries_that_remain_give_label_and_features(digits):
    net, x, y, guard = digits
    defense = Entangle(0.7, guard=guard)
    upload = own_part(share(net, x, y, defense, each=1, memory=(memory := Memory())))
    r, true = read_features(upload), net.features(x).detach()
    gone = replaced(memory, range(3))["head.weight"][:, 0]
    assert torch.equal(r.isnan(), gone)
    torch.testing.assert_close(r[~gone], true[~gone], rtol=1e-4, atol=1e-6)
    assert torch.equal(upload.tensors["head.bias"].argmin(1), y)


def test_masked_matching_rebuilds_what_the_plain_one_cannot(digits):
    net, x, y, guard = digits
    upload = share(net, x[:2], y[:2], Entangle(0.7, guard=guard), each=1)
    plain = IDLG(steps=120, show=False).run(upload)
    attack = Unguard(IDLG(steps=300, nonzero=True, show=False))
    found = attack.run(upload)
    assert metrics.psnr(plain.images.clamp(0, 1), x[:2]).max() < 15
    assert metrics.psnr(found.images.clamp(0, 1), x[:2]).min() > 25
    assert torch.equal(found.labels, y[:2])
    with pytest.raises(PrivflError, match="needs nonzero=True"):
        Unguard(GS())


def test_rows_are_filled_in_and_the_recursion_goes_through(digits):
    net, x, y, guard = digits
    sent = share(net, x, y, Entangle(0.7, "rows", guard=guard), each=1)
    found = UnguardRows().run(sent)
    assert metrics.psnr(found.images, x).min() > 60 and torch.equal(found.labels, y)
    assert metrics.psnr(Recursive().run(sent).images.clamp(0, 1), x).max() < 15
    plain, own = share(net, x, y, each=1)[0], own_part(sent)[0]
    for n, t in complete(own, int(y[0])).tensors.items():
        torch.testing.assert_close(t, plain.tensors[n], rtol=1e-3, atol=1e-6)


def test_a_label_whose_row_is_gone_is_tried(digits):
    """The guard's row in place of the label's: no entry of the bias that is left is below 0."""
    net, x, y, guard = digits
    plain = share(net, x[:1], y[:1], each=1)
    tensors = {n: t.clone() for n, t in plain.tensors.items()}
    for row in (int(y[0]), (int(y[0]) + 1) % 10):
        for n in ("head.weight", "head.bias"):
            tensors[n][0, row] = guard[n][0, row]
    found = UnguardRows().run(type(plain)(tensors, "gradient", net, 1))
    assert found.labels.tolist() == y[:1].tolist() and metrics.psnr(found.images, x[:1]) > 60


def test_the_estimate_needs_one_image_and_one_step(digits):
    net, x, y, _ = digits
    with pytest.raises(PrivflError, match="needs 1 image, 1 step; got 3, 1"):
        estimated(share(net, x, y))


# The studies


def test_a_stored_cell_comes_out_again():
    """What the entries that remain tell, for the first four images of the stored sixteen."""
    stored = STUDIES["entanglement/attack"].show()
    cell = {"part": "variant", "variant": "β 0.7", "attack": "readout"}
    (kept,) = (c for c in stored["cells"] if cell.items() <= c.items())
    again = STUDIES["entanglement/attack"].compute({**stored["settings"], "images": 4}, cell)
    assert again["ratio"] == pytest.approx(kept["ratio"][:4], abs=2e-4)
    assert again["mask_exact"] == again["label_right"] == 4
    wire = {"part": "wire", "format": "bfloat16", "variant": "both"}
    (kept,) = (c for c in stored["cells"] if wire.items() <= c.items())
    again = STUDIES["entanglement/attack"].compute(stored["settings"], wire)
    assert {**wire, **again, "solvers": []} == kept  # no search was run
    for name in ("entanglement/attack", "entanglement/training"):
        assert (SHIPPED / f"{name}.json").stat().st_size < 300_000
