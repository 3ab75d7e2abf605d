"""Statements of the chapter "Your own run"."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

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
