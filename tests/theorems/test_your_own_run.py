"""Statements of the chapter "Your own run"."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from privfl_lite.teach.checks import your_own_run as checks
from privfl_lite.wire import Plan

SOURCE = (Path(__file__).parents[2] / "book" / "src" / "your-own-run.md").read_text(
    encoding="utf-8"
)
MOMENTA = (0.0, 0.5, 0.9)


def trained(theta: Tensor, gradient, eta: float, m: float, steps: int) -> tuple[Tensor, list]:
    """Weights after PyTorch's SGD with momentum, and the gradient of each step."""
    at = theta.clone().requires_grad_()
    optimizer = torch.optim.SGD([at], eta, momentum=m)
    seen = []
    for _ in range(steps):
        at.grad = gradient(at.detach())
        seen.append(at.grad.clone())
        optimizer.step()
    return at.detach(), seen


def logistic(seed: int):
    """The gradient of a softmax regression on six examples, and a start; 64 bits."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 4, generator=rng, dtype=torch.float64)
    y = torch.randint(3, (6,), generator=rng)

    def gradient(w: Tensor) -> Tensor:
        w = w.clone().requires_grad_()
        return torch.autograd.grad(cross_entropy(x @ w.T, y), w)[0]

    # ‖∇²ℓ‖ ≤ max ‖x‖² / 2 for cross-entropy, and ‖∇ℓ‖ ≤ √2 max ‖x‖
    longest = float(x.norm(dim=1).max())
    start = torch.randn(3, 4, generator=rng, dtype=torch.float64)
    return gradient, start, longest**2 / 2, 2**0.5 * longest


@pytest.mark.parametrize("m", MOMENTA)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_prop_own_factor(m, steps):
    eta = 0.05
    for seed in range(5):
        gradient, start, lipschitz, bound = logistic(seed)
        after, seen = trained(start, gradient, eta, m, steps)
        weights = Plan(eta=eta, steps=steps, momentum=m).step_weights(steps)
        mixed = sum(w * g for w, g in zip(weights, seen, strict=True))
        torch.testing.assert_close((start - after) / eta, mixed)  # part 1
        moved = [sum((1 - m ** (j - i)) / (1 - m) for i in range(j)) for j in range(steps)]
        room = eta * lipschitz * bound * sum(w * v for w, v in zip(weights, moved, strict=True))
        off = ((start - after) / eta - sum(weights) * seen[0]).norm()
        assert off <= room + 1e-12  # part 2
    assert sum(Plan(steps=5, momentum=0.0).step_weights(5)) == 5
    if m and steps > 1:  # it fails with the weights of plain steps
        plain = sum(seen)
        assert ((start - after) / eta - plain).norm() > 0.1 * plain.norm()


def test_prop_own_factor_needs_a_small_rate():
    """At a high rate the gradients of later steps are others, and the first is no guide."""
    gradient, start, *_ = logistic(0)
    off = []
    for eta in (0.01, 5.0):
        after, seen = trained(start, gradient, eta, 0.0, 5)
        off.append(float(((start - after) / (5 * eta) - seen[0]).norm() / seen[0].norm()))
    assert off[0] < 0.05 and off[1] > 0.5


def test_what_the_chapter_says_of_eight_photographs():
    from privfl_lite.teach.plots import your_own_run as plots

    rows = plots.searched()
    found = [row for row in rows if row["the last report says"] == "found"]
    assert (len(found), len(rows)) == (3, 8) and "Three of eight are found" in SOURCE
    assert all(row["after 60"] < 20 for row in rows)
    assert all(row["after 300"] > row["after 60"] for row in rows), "all come closer"
    assert all(row["the last report says"] == "not found" for row in plots.searched("idlg"))
    poor = [row["photograph"] for row in found if row["one color"] > row["after 300"]]
    assert poor == ["4"] and "photograph 4 is so even" in SOURCE
    shown = rows[plots.SHOWN]
    assert shown in found and shown["after 300"] > shown["one color"] + 2
    assert f"After 60 evaluations, {shown['after 60']:.1f} dB" in SOURCE
    assert f"After 300, {shown['after 300']:.1f} dB" in SOURCE


# --- exercises ---


def weight(steps: int, m: float) -> float:
    return sum(Plan(steps=steps, momentum=m).step_weights(steps))


def as_gradient(before, after, plan, steps=None, m=None, sign=1.0):
    steps, m = plan.steps if steps is None else steps, plan.momentum if m is None else m
    divisor = sign * plan.eta * weight(steps, m)
    return {n: (before[n] - after[n]) / divisor for n in before}


def by_signs(bias):
    return "gradient" if int((bias < 0).sum()) == 1 else "update"


@pytest.mark.parametrize(
    ("check", "answer", "says"),
    [
        ("factor", weight, "Right"),
        ("factor", lambda steps, m: torch.tensor(weight(steps, m)), "Right"),
        ("factor", lambda steps, m: steps, "leaves the momentum out"),
        ("factor", lambda steps, m: steps / (1 - m), "the limit for many steps"),
        ("factor", lambda steps, m: sum(m**k for k in range(steps)), "add up all of them"),
        ("factor", lambda steps, m: 7.0, "it is not 7"),
        ("factor", lambda steps, m: ..., "replace the dots"),
        ("taken_for", by_signs, "Right"),
        ("taken_for", lambda bias: "gradient", "belong to one image's update"),
        ("taken_for", lambda bias: "update", "belong to one image's gradient"),
        ("taken_for", lambda bias: bool(bias[0] < 0), 'must return "gradient" or "update"'),
        ("as_gradient", as_gradient, "Right"),
        ("as_gradient", lambda *a: as_gradient(*a, sign=-1.0), "the sign is wrong"),
        ("as_gradient", lambda *a: as_gradient(*a, steps=1), "off by a factor of"),
        ("as_gradient", lambda *a: as_gradient(*a, m=0.0), "momentum 0.9"),
        ("as_gradient", lambda before, after, plan: after, "not along the gradient"),
        ("as_gradient", lambda before, after, plan: after["w"], "a dictionary with the names"),
        ("as_gradient", lambda *a: {"w": torch.ones(2), "b": torch.ones(3)}, "has shape (3, 4)"),
    ],
)
def test_checks(expect, check, answer, says):
    expect(getattr(checks, f"check_{check}"), answer, says)
