"""Chapter "The red team", repairs: the statement against autograd, and where it fails to hold."""

from __future__ import annotations

import pytest
import torch
from chapters import SOURCES
from layers import SEEDS, close, rng
from torch import Tensor
from torch.nn.functional import cross_entropy

from privfl_lite.teach.plots import red_team_repairs as plots

pytestmark = pytest.mark.usefixtures("double")


def gradient(f: Tensor, y: Tensor, shares: Tensor, gen: torch.Generator) -> Tensor:
    """[∇W, ∇b] (classes, n + 1) of a softmax layer with two features f (2, n), labels y (2, c)."""
    w = torch.randn(y.shape[1], f.shape[1], generator=gen, requires_grad=True)
    b = torch.zeros(y.shape[1], requires_grad=True)
    loss = (shares * cross_entropy(f @ w.T + b, y, reduction="none")).sum()
    g_w, g_b = torch.autograd.grad(loss, (w, b))
    return torch.cat([g_w, g_b[:, None]], 1)


def line(g: Tensor) -> tuple[Tensor, Tensor]:
    """p and m (n,) of the statement, from two rows (2, n + 1), the last column the bias."""
    b = g[:, -1]
    across = torch.stack([-b[1], b[0]])
    return b @ g[:, :-1] / (b @ b), across @ g[:, :-1] / (b @ b)


def off_line(f: Tensor, p: Tensor, m: Tensor) -> float:
    s = (f - p) @ m / (m @ m)
    return (f - p - s * m).abs().max().item()


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_repair_rank(seed: int):
    gen = rng(seed)
    f = torch.rand(2, 40, generator=gen)
    y = torch.tensor([[0, 0, 1.0, 0, 0], [0.7, 0, 0.3, 0, 0]])
    g = gradient(f, y, torch.tensor([0.5, 0.3]), gen)
    # 1: two rows, all columns kept: features but for one number each, whatever the weights.
    rows = g[[0, 2]]
    p, m = line(rows)
    assert all(off_line(f_i, p, m) < 1e-9 for f_i in f)
    # 2: another row is known by any two of its entries, a column by any two in known rows.
    t = torch.linalg.solve(rows[:, [3, 7]].T, g[4, [3, 7]])
    close(t @ rows, g[4])
    holes = rows.clone()
    holes[1, 5] = 0  # pruned: column 5 has row 0, and row 4, of which t is known
    column = torch.linalg.solve(torch.stack([torch.tensor([1.0, 0.0]), t]), g[[0, 4], 5])
    close(column, rows[:, 5])
    # Without the bias entries no line is left: any two of the row space do.
    wrong_p, wrong_m = line(torch.cat([rows[:, :-1], torch.tensor([[1.0], [2.0]])], 1))
    assert max(off_line(f_i, wrong_p, wrong_m) for f_i in f) > 1e-3
    # Parallel errors (one image twice, in effect): the two rows are multiples of each other.
    same = gradient(f[[0, 0]], y[[0, 0]], torch.tensor([0.5, 0.3]), gen)[[0, 2]]
    assert torch.linalg.svdvals(same)[1] < 1e-9
    # And three images do not lie in a plane.
    three = torch.rand(3, 40, generator=gen)
    labels = torch.eye(5)[[0, 2, 4]]
    p, m = line(gradient(three, labels, torch.ones(3) / 3, gen)[[0, 2]])
    assert max(off_line(f_i, p, m) for f_i in three) > 1e-3


WORDS = "zero one two three four five six seven eight nine".split()


def hits(family: str, name: str, who: str = "knows") -> int:
    return round(9 * plots.named(plots.find("attack", family, name, who)).value)


def test_the_chapter_says_of_repairs_what_is_stored():
    text = " ".join((SOURCES / "red-team.md").read_text(encoding="utf-8").split())
    chained, pruned = ("fedkl", "chained, 16 bits"), ("dcs2", "pruned")
    first = [
        hits(*pruned, "knew"),
        hits("entangle", "noise", "knew"),
        hits("fedkl", "16 bits", "knew"),
    ]
    informed = [hits(*pruned), hits("entangle", "noise"), hits("fedkl", "16 bits")]
    rows = plots.find("attack", *pruned)["networks"]
    arrived = sum(cost < 1e-6 for row in rows for cost in row["cost"])
    every = [plots.named(plots.informed(f, name)).value for f, _, name in plots.repairs()]
    price = {n: 100 * plots.lost(f, n) for f, n in (pruned, ("dcs2", "boxed, rescaled"), chained)}
    assert hits(*chained) == hits(*chained, "searches")
    assert hits("cloak", "private norm, sigma 5") == 0 and len(set(informed)) == 1
    for says in (
        "Pruned DCS² ({} of 9 named), entanglement with noise ({}) and 16-bit uploads ({})".format(
            *first
        ),
        f"To one who knows, all three lose {informed[0]} of 9",
        f"the features of {WORDS[arrived]} of nine digits",
        f"come back at some {plots.median(plots.find('attack', *pruned)):.0f} dB",
        f"shows a digit; each names {WORDS[hits(*chained)]} of nine",
        f"**Fresh starts**: {WORDS[hits('loda', 'fresh starts', 'knew')]}, from one round",
        f"Of eleven repairs, {WORDS[every.count(1)]} leave all nine images named",
        f"chained locks {price[chained[1]]:.0f} points",
        f"rescaled DCS² {price['boxed, rescaled']:.0f}, pruned DCS² {price['pruned']:.0f}",
    ):
        assert says in text, says
    assert len(every) == 11
