"""Chapter "The red team": each statement against numbers, and where it fails to hold."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from chapters import SOURCES
from layers import SEEDS, close, mlp, normal, rng
from torch import Tensor, nn

import privfl_lite as pf
from privfl_lite.defenses.base import Memory
from privfl_lite.defenses.dcs2 import crafted, project
from privfl_lite.studies.red_team.cells import COLOR
from privfl_lite.studies.red_team.targets import CLOAK, CLOAK_SERVER, DENSE, POOLED, UNDEFENDED
from privfl_lite.teach.checks import red_team as checks
from privfl_lite.teach.plots import red_team_cells as cells

pytestmark = pytest.mark.usefixtures("double")


def rank(a: Tensor) -> int:
    return int((torch.linalg.svdvals(a) > 1e-9 * torch.linalg.svdvals(a)[0]).sum())


def test_ex_red_again():
    """One pixel, two rounds: every number of the example."""
    x, a = 0.7, torch.tensor([2.0, 5.0])
    fixed, fresh = a * x + 0.4, a * x + torch.tensor([0.4, -1.0])
    close(fixed, torch.tensor([1.8, 3.9]))
    close(fresh, torch.tensor([1.8, 2.5]))
    assert (fixed[1] - fixed[0]) / (a[1] - a[0]) == pytest.approx(0.7)
    assert (fresh[1] - fresh[0]) / (a[1] - a[0]) == pytest.approx(0.7 / 3, abs=1e-6)
    assert (a @ fresh / (a @ a)).item() == pytest.approx(16.1 / 29)
    for other in (0.0, 0.3, 1.0):  # any picture, with secrets of its own
        close(a * other + (fresh - a * other), fresh)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_red_again(seed: int):
    """A secret that stays is subtracted, fresh noise averaged, a moving mask uncovers."""
    gen, (rounds, m, n) = rng(seed), (4, 5, 7)
    maps, x, s = normal(rounds, m, n, gen=gen), torch.rand(n, generator=gen), normal(m, gen=gen)
    y = maps @ x + 100 * s
    apart = (maps[1:] - maps[0]).flatten(0, 1)
    assert rank(apart) == n
    found = torch.linalg.lstsq(apart, (y[1:] - y[0]).flatten()[:, None]).solution[:, 0]
    close(found, x, atol=1e-9, rtol=0)
    # It takes maps that move: with equal ones every image fits, with a secret of its own.
    still, other = maps[:1].expand(rounds, m, n), torch.rand(n, generator=gen)
    close(still @ other + (still[0] @ (x - other) + 100 * s), still @ x + 100 * s)
    # Two rounds are too few here: rank 5 for 7 pixels leaves a line of images.
    assert rank(maps[1] - maps[0]) < n
    # Fresh and unrestricted: every image fits, for any number of rounds.
    secrets = normal(rounds, m, gen=gen)
    close(maps @ other + (maps @ (x - other) + secrets), maps @ x + secrets)
    # Fresh noise: covariance of least squares is σ² (Σ AᵀA)⁻¹, and for equal maps falls as 1/T.
    sigma, a = 0.3, normal(9, 3, gen=gen)
    x3 = torch.rand(3, generator=gen)
    for many in (1, 4, 16):
        noise = sigma * normal(4000, many, 9, gen=gen)
        seen = (a @ x3 + noise).mean(1)  # equal maps: least squares on the mean
        off = torch.linalg.lstsq(a, seen.T).solution.T - x3
        expected = sigma**2 / many * torch.linalg.inv(a.T @ a)
        assert (off.T @ off / 4000 - expected).norm() < 0.12 * expected.norm()
    # Masks: an entry is unseen after T rounds with (1 − r)^T; a mask that stays hides for good.
    sent = torch.rand(6, 20_000, generator=gen) < 0.3
    for t in range(1, 7):
        unseen = (~sent[:t].any(0)).double().mean().item()
        assert unseen == pytest.approx(0.7**t, abs=0.02)
    assert (~sent[:1].expand(6, -1).any(0)).double().mean().item() == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_red_concealed(seed: int):
    """Behind a dense first layer a concealed image is one more row of the batch."""
    gen, (b, m) = rng(seed), (3, 2)
    net = mlp([20, 40, 4], nn.ReLU, gen)
    x, hidden = torch.rand(b, 20, generator=gen), 6 * normal(m, 20, gen=gen)  # outside the box
    y = torch.arange(b) % 4
    soft = torch.softmax(normal(m, 4, gen=gen), 1)
    g, g_c = (
        torch.autograd.grad(nn.functional.cross_entropy(net(data), labels), net.parameters())
        for data, labels in ((x, y), (hidden, soft))
    )
    mixed = {str(i): (0.6 * s + 0.4 * t)[None] for i, (s, t) in enumerate(zip(g, g_c, strict=True))}
    plain = {str(i): s[None] for i, s in enumerate(g)}
    against = {n: -t for n, t in mixed.items()}  # so that the projection acts
    for sent in (mixed, project(plain, mixed)[0], project(plain, against)[0]):
        layer = torch.cat([sent["0"][0], sent["1"][0][:, None]], 1)  # (40, 21)
        ones = torch.cat([torch.cat([x, hidden]), torch.ones(b + m, 1)], 1)
        d = torch.linalg.lstsq(ones.T, layer.T).solution.T
        close(d @ ones, layer)
        assert rank(layer) == b + m
        on = torch.cat([net[0](x), net[0](hidden)]) > 0
        assert (d[~on.T].abs() < 1e-10).all()  # zeros where a unit is off: what SPEAR counts
        lone = (on.sum(0) == 1) & on[0]
        for i in lone.nonzero().flatten():
            close(layer[i, :-1] / layer[i, -1], x[0])
    # It is a statement on a dense first layer: a convolution's weights serve all positions.
    conv = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(160, 4))
    loss = nn.functional.cross_entropy(conv(x.view(b, 1, 4, 5)), y)
    first = torch.autograd.grad(loss, conv[0].weight)[0].flatten(1)
    assert rank(first) > b
    # And of a layer with enough units: three do not span a batch of five.
    small = mlp([20, 3, 4], nn.Tanh, gen)
    loss = nn.functional.cross_entropy(small(torch.cat([x, hidden])), torch.zeros(5).long())
    assert rank(torch.autograd.grad(loss, small[0].weight)[0]) == 3 < b + m


def test_a_concealed_digit_is_read_behind_a_dense_layer():
    """The package's DCS², and SPEAR told that the batch is twice as large."""
    torch.set_default_dtype(torch.float32)
    digits = pf.load("mnist")
    x, y = digits.sample(2, split="test", seed=1)
    net, memory = pf.models.build("mlp", digits, hidden=(256,)), Memory()
    sent = pf.share(net, x, y, pf.defenses.DCS2(steps=20), memory=memory)
    assert len(crafted(memory)[0].images) == 2
    found = pf.attacks.Spear(show=False).run(replace(sent, batch=4)).images
    far = torch.cdist(x.flatten(1), found.flatten(1)).min(1).values
    assert (far < 0.1).all()


def right_subtract(y: Tensor, maps: Tensor) -> Tensor:
    a, b = (maps[1:] - maps[0]).flatten(0, 1), (y[1:] - y[0]).flatten()
    return torch.linalg.lstsq(a, b[:, None]).solution[:, 0]


def no_secret(y: Tensor, maps: Tensor) -> Tensor:
    return torch.linalg.lstsq(maps.flatten(0, 1), y.flatten()[:, None]).solution[:, 0]


def right_rounds_until(sent: float, left: float) -> int:
    return math.ceil(math.log(left) / math.log(1 - sent) - 1e-9)


def right_read_through(weights: Tensor, biases: Tensor) -> Tensor:
    q = weights / biases[:, :, None]
    own = q.amax(1) - q.amin(1) < 1e-8  # (T, in)
    return (q.mean(1) * own).sum(0) / own.sum(0)


CHECKS = {
    "subtract": right_subtract,
    "rounds_until": right_rounds_until,
    "read_through": right_read_through,
}
WRONG = [
    ("subtract", no_secret, "as if there were no secret"),
    ("subtract", lambda y, maps: y.new_zeros(5), "no secret in them"),
    ("rounds_until", lambda s, left: math.floor(math.log(left) / math.log(1 - s)), "round up"),
    ("rounds_until", lambda s, left: math.ceil(math.log(left) / math.log(s)), "not with sent"),
    ("rounds_until", lambda s, left: 1000, "is not 1000"),
    ("read_through", lambda w, b: (w / b[:, :, None]).mean((0, 1)), "averages the guard's"),
    ("read_through", lambda w, b: (w / b[:, :, None])[0].mean(0), "pixels are right"),
]


@pytest.mark.parametrize("name", CHECKS)
def test_check_accepts_the_right_answer(name: str, expect):
    expect(getattr(checks, f"check_{name}"), CHECKS[name], "Right")


@pytest.mark.parametrize(("name", "answer", "says"), WRONG)
def test_check_tells_what_is_wrong(name: str, answer, says: str, expect):
    expect(getattr(checks, f"check_{name}"), answer, says)


BATCH = {b: {"batch": b} for b in (2, 4, 8)}
QUOTED = [  # defense, attacker, place, what the chapter says of its counts
    ("DCS²", "pair", {"data": COLOR}, "reads all nine to under one gray level"),
    ("DCS²", "search, both images", BATCH[2], "names {} of {} at a batch of two"),
    ("none", "search", BATCH[2], "where the undefended one names {} of {}"),
    ("DCS²", "search, both images", {"net": POOLED}, "the search names {} of {}"),
    ("none", "search", {"net": POOLED}, "the undefended one {}."),
    ("FedKL", "unlock", {"data": COLOR}, "by pixels {} of {} are named"),
    ("FedKL", "search, lock and image", BATCH[8], "names {} of {}, where the undefended"),
    ("none", "search", BATCH[8], "where the undefended search names {}"),
    (
        "FedKL",
        "search, lock and image",
        {"net": POOLED},
        "pooled network {} of {} against 4",
    ),
    ("LODA", "lone units", {"net": DENSE}, "single out {} of {} private photographs"),
    ("LODA", "search for the encoding", BATCH[2], "is enough for {} of {}"),
]


def cell(defense: str, attack: str, **where) -> dict:
    (found,) = [c for c in cells.ran(defense, **where) if c["attack"] == attack]
    return found


@pytest.mark.parametrize(("defense", "attack", "where", "says"), QUOTED)
def test_a_verdict_quotes_what_is_stored(defense, attack, where, says):
    found, counts = cells.hits(at := cell(defense, attack, **where), cells.judge(at))
    text = " ".join((SOURCES / "red-team.md").read_text(encoding="utf-8").split())
    assert says.format(sum(found), sum(counts)) in text


def test_what_the_verdicts_say_without_a_number():
    for where in (*BATCH.values(), {"net": POOLED}):  # Entanglement: exactly as without a defense
        undefended = cells.count(cell("none", "search", **where))
        assert cells.count(cell("Entanglement", "search, own entries", **where)) == undefended
    assert cells.exact(cell("DCS²", "pair", data=COLOR)) == 1
    assert cells.count(cell("DCS²", "pair", data=COLOR)) == "9 of 9"
    assert cells.count(cell("Entanglement", "search, own entries", data=COLOR)) == "12 of 12"
    assert sum(cells.hits(cell("FedKL", "unlock", data=COLOR), "features")[0]) == 12
    assert cells.exact(cell(CLOAK_SERVER, "recursion", data=COLOR)) == 1
    dense = {"net": DENSE, "batch": 4}
    for reader in ("lone units", "SPEAR", "components"):
        assert cells.count(cell(CLOAK_SERVER, reader, **dense)) == "12 of 12"
    assert cells.count(cell("DCS²", "components", **dense)) == "12 of 12"
    assert cells.hits(cell("DCS²", "SPEAR", **dense))[0].count(4) == 2  # networks of three
    for defense in ("DP-SGD", CLOAK):
        some = [cells.best(defense, **where) for where in cells.MOVES.values()]
        assert {cells.level(c) for c in some if c} == {"no better than chance"}
    for reader in ("lone units", "SPEAR", "components"):  # LODA by pixels: nobody
        assert not sum(cells.hits(cell("LODA", reader, net=DENSE), "pixels")[0])
    assert round(cells.median(cell("LODA", "search for the encoding", batch=2))) == 8


RUNS = [  # defense, attacker, names at rounds 0, 5, 20, 100, of images, what the chapter says
    ("none", "recursion", [12] * 4, 12, ""),
    ("Prune 0.9", "search, sent entries", [11, 12, 12, 12], 12, "names {}, {}, {} and {} of 12"),
    ("DP-SGD", "likelihood", [0] * 4, 12, ""),
    (CLOAK, "likelihood", [0, 0, 0, 1], 12, "upload {}, {}, {} and {} of 12 are named"),
    (CLOAK_SERVER, "recursion", [12, 11, 10, 6], 12, "at the server {}, {}, {} and {}."),
    ("DCS²", "pair", [9] * 4, 9, "the algebra reads all {} to under one gray level at each"),
    ("FedKL", "unlock", [12] * 4, 12, "at each of rounds 0, 5, 20 and 100: {} of 12 named"),
    ("Entanglement", "search, own entries", [12] * 4, 12, "it names {} of 12 at each of rounds"),
    ("LODA", "encoding", [11] * 4, 12, "Its features name {} of 12"),
    ("LODA", "decoder", [8] * 4, 12, "public encodings names {} of 12 by pixels"),
]


@pytest.mark.parametrize(("defense", "attack", "names", "images", "says"), RUNS)
def test_a_run_is_told_as_it_is_stored(defense, attack, names, images, says):
    found = [cells.hits(at := cell(defense, attack, age=a), cells.judge(at)) for a in cells.AGES]
    assert [sum(hits) for hits, _ in found] == names
    assert {sum(counts) for _, counts in found} == {images}
    text = " ".join((SOURCES / "red-team.md").read_text(encoding="utf-8").split())
    assert says.format(*names) in text


def test_what_the_verdicts_say_of_runs():
    last = {"age": 100}
    beside = last | {"training": UNDEFENDED}
    for defense in ("DP-SGD", CLOAK):
        assert cells.count(cell(defense, "likelihood", **beside)) == "0 of 12"
    bare = cell(CLOAK_SERVER, "recursion", **beside)
    assert cells.count(bare) == "12 of 12" and cells.exact(bare) == 1
    for defense, attack in (
        (CLOAK, "likelihood"),
        (CLOAK_SERVER, "recursion"),
        ("LODA", "encoding"),
    ):
        assert cells.accuracy(cell(defense, attack, **last)) < 0.12  # chance: 0.1
    for defense, attack in (("DCS²", "pair"), ("FedKL", "unlock"), ("none", "recursion")):
        assert cells.accuracy(cell(defense, attack, **last)) > 0.7
    assert all(cells.exact(cell("DCS²", "pair", age=a)) == 1 for a in cells.AGES)
    ends = [cells.count(cell("DCS²", "search, both images", age=a)) for a in (0, 100)]
    assert ends == ["9 of 9", "9 of 9"]
    first, late = (cell("FedKL", "search, lock and image", age=a) for a in (0, 100))
    assert (cells.count(first), cells.count(late)) == ("6 of 12", "3 of 12")
    assert cells.named(late).high > cells.named(first).low
    own = [cells.median(cell("Entanglement", "search, own entries", age=a)) for a in (0, 100)]
    assert [round(psnr) for psnr in own] == [69, 24]
    for defense, attack in (("DCS²", "search, both images"), ("FedKL", "search, lock and image")):
        assert cells.count(cell(defense, attack, data=COLOR)) == "1 of 12"
