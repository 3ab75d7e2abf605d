"""Chapter "How far does it reach?": each statement against autograd, and where it fails to hold.

A test has the name of its label in the book.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from layers import SEEDS, close, mlp, normal, rng
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from privfl_lite.studies import STUDIES
from privfl_lite.studies.reach.map import NARROW
from privfl_lite.studies.reach.spear import chance_of_a_hit, expected_proposals
from privfl_lite.teach.checks import reach as checks

pytestmark = pytest.mark.usefixtures("double")


def ones(x: Tensor) -> Tensor:
    """x̂: images (B, n) with a last coordinate of 1."""
    return torch.cat([x, torch.ones(len(x), 1)], 1)


def train(
    net: nn.Sequential, x: Tensor, y: Tensor, steps: Sequence[Sequence[int]], eta: float,
    momentum: float = 0.0, decay: float = 0.0,
) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """Train in place on the images of each step; units of the first layer that are on (B, m),
    and whether an image was in the step (B,), step by step."""
    rule = torch.optim.SGD(net.parameters(), eta, momentum=momentum, weight_decay=decay)
    seen = []
    for step in steps:
        inside = torch.zeros(len(x), dtype=torch.bool)
        inside[list(step)] = True
        seen.append((net[0](x) > 0, inside))
        rule.zero_grad()
        cross_entropy(net(x[list(step)]), y[list(step)]).backward()
        rule.step()
    return seen


def change(net: nn.Sequential, before: list[Tensor], layer: int = 0) -> Tensor:
    """Δ of a layer's weight and bias, (m, n + 1)."""
    weight, bias = (net[layer].weight - before[0], net[layer].bias - before[1])
    return torch.cat([weight, bias[:, None]], 1).detach()


def copies(net: nn.Sequential, layer: int = 0) -> list[Tensor]:
    return [net[layer].weight.detach().clone(), net[layer].bias.detach().clone()]


def rank(a: Tensor) -> int:
    return int((torch.linalg.svdvals(a) > 1e-9 * torch.linalg.svdvals(a)[0]).sum())


DRAWN = [[0, 1], [2, 3], [1, 3], [0, 2], [3, 0], [2, 1]]  # three passes in halves


@pytest.mark.parametrize("seed", SEEDS)
def test_lem_reach_mixture(seed: int):
    """Δ = D̄ X̂ for any steps, order, momentum; zeros where a unit was off at every visit."""
    gen = rng(seed)
    x, y = torch.rand(4, 12, generator=gen), torch.tensor([0, 1, 2, 1])
    for steps, momentum in itertools.product([[range(4)] * 5, DRAWN], [0.0, 0.9]):
        net = mlp([12, 30, 3], nn.ReLU, rng(seed))
        before = copies(net)
        seen = train(net, x, y, steps, 0.2, momentum)
        delta = change(net, before)
        mixed = torch.linalg.lstsq(ones(x).T, delta.T).solution.T  # D̄ (m, 4)
        close(mixed @ ones(x), delta)
        assert rank(delta) <= 4
        visited = torch.stack([on & inside[:, None] for on, inside in seen]).any(0).T  # (m, 4)
        assert (mixed[~visited].abs() < 1e-12).all() and (~visited).any()
    # One image, any number of steps: every row that moved is the image.
    net = mlp([12, 30, 3], nn.ReLU, rng(seed))
    before = copies(net)
    train(net, x[:1], y[:1], [[0]] * 20, 0.2)
    delta = change(net, before)
    moved = delta[:, -1] != 0
    close(delta[moved, :-1] / delta[moved, -1:], x[:1].expand(int(moved.sum()), -1))
    # It is a statement on the first layer: the input of the next one moves.
    net = mlp([12, 30, 20, 3], nn.ReLU, rng(seed))
    before = copies(net, 2)
    train(net, x[:2], y[:2], [[0, 1]] * 5, 0.2)
    assert rank(change(net, before, 2)) > 2
    # And weight decay adds the weights themselves.
    net = mlp([12, 30, 3], nn.ReLU, rng(seed))
    before = copies(net)
    train(net, x[:2], y[:2], [[0, 1]] * 5, 0.2, decay=0.1)
    assert rank(change(net, before)) > 2


def test_ex_reach_by_hand():
    """Three images of two pixels, ten units: every number of the example, and its three lines."""
    d = torch.tensor([
        *([0, 3, -1], [0, 3, 1], [0, 5, -1]), *([1, 0, 2], [2, 0, 1], [1, 0, 5]),
        *([1, 5, 0], [1, 3, 0], [2, 1, 0]), [1, 1, 1],
    ]) / 10  # fmt: skip
    x = torch.tensor([[0.2, 0.2], [0.8, 0.2], [0.2, 0.8]])
    g = d @ ones(x)
    points = g[:, :-1] / g[:, -1:]
    close(points, torch.tensor([
        *([1.1, -0.1], [0.65, 0.35], [0.95, 0.05]), *([0.2, 0.6], [0.2, 0.4], [0.2, 0.7]),
        *([0.7, 0.2], [0.65, 0.2], [0.4, 0.2]), [0.4, 0.4],
    ]))  # fmt: skip
    lone = (d != 0).sum(1) == 1
    assert not lone.any()  # no row is a picture
    lines = {
        tuple(i for i in range(10) if abs(float(torch.linalg.det(ones(points[[a, b, i]])))) < 1e-9)
        for a, b in itertools.combinations(range(10), 2)
    }
    found = [line for line in lines if len(line) > 2]  # of 45 pairs, those with a third point
    assert sorted(found) == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    assert sum(len(line) == 2 for line in lines) == 45 - 3 * 3
    sides = {(0, 1, 2): [1.0, 1.0, -1.0], (3, 4, 5): [1.0, 0.0, -0.2], (6, 7, 8): [0.0, 1.0, -0.2]}
    for line, equation in sides.items():  # u + v = 1, u = 0.2, v = 0.2
        close(ones(points[list(line)]) @ torch.tensor(equation), torch.zeros(3))
    corners = [
        torch.linalg.solve(torch.tensor([a[:2], b[:2]]), -torch.tensor([a[2], b[2]]))
        for a, b in itertools.combinations(sides.values(), 2)
    ]
    close(torch.stack(corners), x[[2, 1, 0]])


def pattern(gen: torch.Generator, units: int, batch: int, on: float) -> Tensor:
    """D (m, B): normal entries where a unit is on."""
    return normal(units, batch, gen=gen) * (torch.rand(units, batch, generator=gen) < on)


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_reach_determined(seed: int):
    """M 1 = 1 is all the freedom; a separated column is the only one with its zeros."""
    gen = rng(seed)
    batch, x = 4, ones(torch.rand(4, 15, generator=gen))
    d = pattern(gen, 60, batch, 0.5)
    g = d @ x
    # 1: every invertible M with M 1 = 1 gives another batch with the same gradient
    m = normal(batch, batch, gen=gen)
    m = m / m.sum(1, keepdim=True)
    other = torch.linalg.solve(m, x)
    close(d @ m @ other, g)
    close(other[:, -1], torch.ones(batch))
    assert (other - x).abs().max() > 0.01
    # 2 and 3: where the zeros of a column leave rank B − 1, they fix it; all of them, the batch
    basis = torch.linalg.svd(g, full_matrices=False)[2][:batch]
    left = g @ basis.T  # L, with D = L Q
    q = []
    for j in range(batch):
        zero = d[:, j] == 0
        assert rank(d[zero]) == batch - 1
        null = torch.linalg.svd(left[zero])[2][-1]
        assert torch.corrcoef(torch.stack([left @ null, d[:, j]]))[0, 1].abs() > 1 - 1e-9
        q.append(null)
    found = torch.linalg.solve(torch.stack(q, 1), basis)
    close(found / found[:, -1:], x)
    # Where it fails: the zeros of image 0 are among those of image 1. Then a mixture of their
    # columns has the zeros of the first, image 0 is still right, and image 1 is not.
    d[:, 1] *= d[:, 0] != 0
    zero = d[:, 0] == 0
    assert rank(d[zero]) == batch - 2
    m = torch.eye(batch)
    m[1, 0] = 0.3
    m = m / m.sum(1, keepdim=True)
    assert ((d @ m)[:, 0][zero] == 0).all()
    wrong = torch.linalg.solve(m, x)
    close(d @ m @ wrong, d @ x)
    close(wrong[0], x[0])
    assert (wrong[1] - x[1]).abs().max() > 0.01
    # And without zeros, as behind a sigmoid, 1 is all that can be said.
    assert (normal(60, batch, gen=gen) != 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_reach_zeros(seed: int):
    """A mixture of |S| images has at most |Z_S| + |S| − 1 zeros, and some mixture has as many."""
    gen = rng(seed)
    d = pattern(gen, 14, 4, 0.6)
    on = (d != 0).any(1)
    d = d[on]
    for size in (2, 3, 4):
        for images in itertools.combinations(range(4), size):
            part = d[:, list(images)]
            common = int((part == 0).all(1).sum())
            most = 0
            for rows in itertools.combinations(range(len(part)), size - 1):
                if rank(part[list(rows)]) < size - 1:
                    continue
                v = torch.linalg.svd(part[list(rows)])[2][-1]
                if v.abs().min() > 1e-9:  # a mixture of all of these images
                    most = max(most, int(((part @ v).abs() < 1e-9).sum()))
            assert most <= common + size - 1
            if size == 2:
                assert most == common + 1
    # Where it fails: entries that are not generic. Two images with proportional error signals.
    twin = torch.stack([d[:, 0], -2 * d[:, 0]], 1)
    zeros = int((twin @ torch.tensor([2.0, 1.0]) == 0).sum())
    assert zeros == len(d) > int((twin == 0).all(1).sum()) + 1


def draws_until_all(zero: Tensor, batch: int, gen: torch.Generator) -> int:
    """Proposals until every image was hit, by drawing: zero (B, m) says which units are off."""
    missing, count = set(range(batch)), 0
    while missing:
        count += 1
        rows = torch.randperm(zero.shape[1], generator=gen)[: batch - 1]
        missing -= {j for j in missing if zero[j, rows].all()}
    return count


def test_prop_reach_proposals():
    """The hypergeometric chance, three forms of the mean, its bounds, and the stored counts."""
    gen = rng(0)
    live, batch = 14, 3
    zero = torch.zeros(batch, live, dtype=torch.bool)
    for j, many in enumerate((4, 5, 5)):  # disjoint, so that no draw hits two images
        zero[j, 4 * (j > 0) + 5 * (j > 1) :][:many] = True
    chances = [chance_of_a_hit(live, int(z.sum()), batch) for z in zero]
    every = list(itertools.combinations(range(live), batch - 1))
    for p, z in zip(chances, zero, strict=True):
        assert p == pytest.approx(sum(bool(z[list(rows)].all()) for rows in every) / len(every))
    exact = sum(
        (-1) ** (size + 1) / sum(some)
        for size in range(1, batch + 1)
        for some in itertools.combinations(chances, size)
    )
    assert expected_proposals(chances) == pytest.approx(exact, rel=1e-3)
    drawn = torch.tensor([float(draws_until_all(zero, batch, gen)) for _ in range(2000)])
    assert abs(drawn.mean() - exact) < 4 * drawn.std() / 2000**0.5
    harmonic = sum(1 / k for k in range(1, batch + 1))
    assert 1 / min(chances) <= exact <= harmonic / min(chances)
    same = [0.01] * 5
    assert expected_proposals(same) == pytest.approx(100 * sum(1 / k for k in range(1, 6)), 1e-3)
    # An image whose units are hardly ever off is never hit: the mean is infinite.
    assert math.isinf(expected_proposals([0.5, chance_of_a_hit(20, 1, 3)]))
    # What SPEAR used agrees, once it needs several of its chunks of 4,096 proposals.
    for cell in STUDIES["reach/spear"].show()["cells"]:
        if cell["batch"] == 12 and cell["data"] == "mnist" and not cell["sigma"]:
            used = sum(run["proposals"] - 2048 for run in cell["runs"])
            said = sum(run["theory"] for run in cell["runs"])
            assert 0.6 < used / said < 1.5


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_reach_count(seed: int):
    """B (B − 1) numbers are open, each zero gives one back; a whole gradient may be too short."""
    gen = rng(seed)
    units, pixels, batch = 9, 7, 3
    d, x = normal(units, batch, gen=gen), normal(batch, pixels, gen=gen)

    def sent(z: Tensor) -> Tensor:  # G as a function of all entries of D and X
        d, x = z[: units * batch].view(units, batch), z[units * batch :].view(batch, pixels)
        return (d @ ones(x)).flatten()

    z = torch.cat([d.flatten(), x.flatten()])
    jacobian = torch.func.jacrev(sent)(z)
    assert rank(jacobian) == units * batch + pixels * batch - batch * (batch - 1)
    keep = torch.ones(len(z), dtype=torch.bool)  # known zeros are no unknowns
    for j in range(batch):
        for i in range(batch - 1):
            keep[((batch - 1) * j + i) * batch + j] = False
    z = z * keep
    reduced = torch.func.jacrev(sent)(z)[:, keep]
    assert rank(reduced) == int(keep.sum())  # nothing is open any more, near this batch
    fewer = keep.clone()
    fewer[0] = True
    assert rank(torch.func.jacrev(sent)(z)[:, fewer]) < int(fewer.sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_reach_order(seed: int):
    """After whole passes the order of the images counts in second order only."""
    gen = rng(seed)
    x = normal(4, 5, gen=gen)
    y = torch.tensor([0, 1, 2, 1])
    smooth = 0.5 * ones(x).square().sum(1).max()  # of softmax regression: at most ‖x̂‖² / 2
    orders = [DRAWN, [[0, 1], [2, 3]] * 3, [[3, 1], [2, 0]] * 3]
    gaps = []
    for eta in (0.02, 0.01):
        ends = []
        for order in orders:
            net = nn.Sequential(nn.Linear(5, 3))
            with torch.no_grad():
                net[0].weight.copy_(normal(3, 5, gen=rng(seed)))
                net[0].bias.zero_()
            before, steep = copies(net), 0.0
            cross_entropy(net(x), y).backward()
            full = torch.cat([net[0].weight.grad, net[0].bias.grad[:, None]], 1).clone()
            for step in order:
                net.zero_grad()
                cross_entropy(net(x[step]), y[step]).backward()
                norm = torch.cat([p.grad.flatten() for p in net.parameters()]).norm()
                steep = max(steep, float(norm))
                train(net, x, y, [step], eta)
            s, delta = len(order), change(net, before)
            bound = eta**2 * smooth * steep * s * (s - 1) / 2
            assert (delta + eta * s * full).norm() <= bound
            ends.append((delta, bound))
        apart = (ends[0][0] - ends[1][0]).norm()
        assert 0 < apart <= ends[0][1] + ends[1][1]
        gaps.append(float(apart))
    assert 3.2 < gaps[0] / gaps[1] < 4.8  # half the rate, a quarter of the difference
    # Without whole passes the order, or rather who was read, counts in first order.
    part = []
    for eta in (0.02, 0.01):
        ends = []
        for step in ([0, 1], [2, 3]):
            net = nn.Sequential(nn.Linear(5, 3))
            with torch.no_grad():
                net[0].weight.copy_(normal(3, 5, gen=rng(seed)))
                net[0].bias.zero_()
            before = copies(net)
            train(net, x, y, [step], eta)
            ends.append(change(net, before))
        part.append(float((ends[0] - ends[1]).norm()))
    assert part[0] / part[1] == pytest.approx(2, rel=1e-6)


# --- exercises ---


def right_chance(off: int, live: int, batch: int) -> float:
    found = 1.0
    for i in range(batch - 1):
        found *= max(0, off - i) / (live - i)
    return found


def right_expected(chances: list[float]) -> float:
    return expected_proposals(chances)


def right_read_batch(sent: Tensor, batch: int, more: int = 1, tries: int = 3000) -> Tensor:
    basis = torch.linalg.svd(sent, full_matrices=False)[2][:batch]
    rows = sent @ basis.T
    rows = rows[rows.norm(dim=1) > 1e-9]
    rows = rows / rows.norm(dim=1, keepdim=True)
    gen, found = rng(0), []
    for _ in range(tries):
        some = torch.randperm(len(rows), generator=gen)[: batch - 1]
        q = torch.linalg.svd(rows[some])[2][-1]
        found.append((int(((rows @ q).abs() < 1e-8).sum()), q))
    chosen: list[Tensor] = []
    for _, q in sorted(found, key=lambda pair: -more * pair[0]):
        if torch.linalg.svdvals(torch.stack([*chosen, q]))[-1] > 1e-4:
            chosen.append(q)
        if len(chosen) == batch:
            break
    images = torch.linalg.solve(torch.stack(chosen, 1), basis)
    return images[:, :-1] / images[:, -1:]


def without_scale(sent: Tensor, batch: int) -> Tensor:
    return 2 * right_read_batch(sent, batch)


CHECKS = {
    "chance": right_chance, "expected": right_expected, "read_batch": right_read_batch,
}  # fmt: skip
WRONG = [
    ("chance", lambda off, live, batch: (off / live) ** (batch - 1), "with repetition"),
    ("chance", lambda off, live, batch: math.comb(off, batch) / math.comb(live, batch), "too many"),
    ("chance", lambda off, live, batch: 1.0, "is not 1"),
    ("expected", lambda p: 1 / min(p), "rarest"),
    ("expected", lambda p: sum(1 / v for v in p), "do not add"),
    ("expected", lambda p: 3.0, "is not 3"),
    ("read_batch", lambda g, b: right_read_batch(g, b, more=-1), "mixtures of the batch"),
    ("read_batch", lambda g, b: torch.rand(b, g.shape[1] - 1), "no mixtures"),
    ("read_batch", without_scale, "last coordinate"),
    ("read_batch", lambda g, b: g[:b, :-1] / g[:b, -1:], "more zeros"),
    ("read_batch", lambda g, b: right_read_batch(g, b)[:, 1:], "shape"),
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


def test_what_the_chapter_says_of_batch_norm():
    """Named by GS, of six digits behind three narrow networks: in eval mode, train mode, ResNet."""
    stored = {(c["net"], c["attack"]): c for c in STUDIES["reach/map"].show()["cells"]}
    named = [sum(r["named_pixels"] for r in stored[n, "GS"]["networks"]) for n in NARROW]
    counts = [sum(len(r["psnr"]) for r in stored[n, "GS"]["networks"]) for n in NARROW]
    assert (named, counts) == ([5, 0, 1], [6, 6, 6])
    assert all("refused" in stored[n, "recursive"] for n in NARROW)


def test_what_the_chapter_says_of_noise():
    """Exact batches of four under noise: 16 of 20 at 1e-7, 2 at 1e-6, none from 1e-5 on."""
    runs = [c["runs"] for c in STUDIES["reach/spear"].show()["cells"] if c["sigma"]]
    assert [sum(r["exact"] == 4 for r in some) for some in runs] == [16, 2, 0, 0, 0]
    assert not any(r["sure"] and r["exact"] < 4 for some in runs for r in some)


def test_what_the_chapter_says_of_color():
    from privfl_lite.teach.plots import reach_cells as cells

    def shares(kind: str) -> dict[tuple[str, str], dict[int, float]]:
        return {
            (r["network"], r["attack"]): {
                b: float(getattr(r[head], "value", r[head]))
                for b in (1, 2, 4, 8)
                if (head := cells.head(b)) in r
            }
            for r in cells.color_rows((1, 2, 4, 8), kind)
        }

    named, exact = shares("named"), shares("exact")
    for reader in ("SPEAR", "components"):
        assert all(named["MLP ReLU", reader][b] == 1 for b in (2, 4, 8))
    assert exact["LeNet sigmoid", "recursive"] == {1: 1}  # of 24
    found = [named["LeNet sigmoid", a] for a in ("L-BFGS", "GS")]
    assert max(f[1] for f in found) == pytest.approx(7 / 12)
    assert all(exact["LeNet sigmoid", a][1] == 0 for a in ("L-BFGS", "GS"))
    assert max(f[b] for f in found for b in (2, 4, 8)) == pytest.approx(2 / 12)
    assert named["LeNet ReLU", "recursive"][1] == 6 / 24
    assert named["LeNet ReLU", "GS"][1] == pytest.approx(8 / 12)
