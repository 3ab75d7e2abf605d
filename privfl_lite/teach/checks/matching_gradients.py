"""Checks for the exercises of chapter "Matching gradients": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...models import build
from ...runtime import generator
from ..check import TRIALS, Wrong, close, exercise, number, tensor


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a.norm() * b.norm())


@exercise("One angle between two long vectors: GS's cost, whatever the scale of either side.")
def check_cosine_cost(cosine_cost: Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]) -> None:
    """``cosine_cost(a, b)`` -> 1 − cosine of two lists of tensors, each taken as one vector, ()."""
    for trial in range(TRIALS):
        rng = generator(trial)
        shapes = [(3, 4), (4,), (2, 2, 3)]
        a, b = (
            [10.0**i * torch.randn(s, generator=rng) for i, s in enumerate(shapes)]
            for _ in range(2)
        )
        found = tensor(cosine_cost(a, b), (), "the cost")
        flat_a, flat_b = (torch.cat([t.flatten() for t in side]) for side in (a, b))
        cosine = _cosine(flat_a, flat_b)
        if close(found, 1 - cosine):
            continue
        if close(found, cosine):
            raise Wrong("this is the cosine itself; a cost must be 0 where the gradients agree")
        each = torch.stack([_cosine(s.flatten(), t.flatten()) for s, t in zip(a, b, strict=True)])
        if any(close(found, v) for v in (1 - each.mean(), (1 - each).sum())):
            raise Wrong(
                "you take one cosine for each tensor; here all tensors together are one vector, so "
                "sum the products and the squares over all tensors before you divide"
            )
        if close(found, (flat_a - flat_b).square().sum()):
            raise Wrong("this is DLG's squared distance, which depends on the scale; divide it out")
        if close(found, 1 - (flat_a * flat_b).sum()):
            raise Wrong("the norms are missing: divide the inner product by both of them")
        raise Wrong("this is not 1 − ⟨a, b⟩ / (‖a‖ ‖b‖) over all entries of all tensors")


@exercise("Every pixel moves by the same length, and none leaves the box.")
def check_sign_step(sign_step: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """``sign_step(x, g, rate)`` -> x after one signed step down the gradient g, inside [0, 1]."""
    for trial in range(TRIALS):
        rng, rate = generator(trial), 0.05 * (trial + 1)
        x = torch.rand(1, 6, 6, generator=rng)
        g = torch.randn(1, 6, 6, generator=rng) * 10.0 ** (-2 * trial)
        g[0, 0, 0] = 0.0
        found = tensor(sign_step(x.clone(), g.clone(), rate), (1, 6, 6), "the image")
        free = x - rate * g.sign()
        if close(found, free.clamp(0, 1)):
            continue
        if close(found, (x + rate * g.sign()).clamp(0, 1)) or close(found, x + rate * g.sign()):
            raise Wrong("you go up the slope; a cost is lowered by going against its gradient")
        if close(found, free):
            raise Wrong("some pixels left [0, 1]; put them back at the end of the step")
        if any(close(found, step) for step in (x - rate * g, (x - rate * g).clamp(0, 1))):
            raise Wrong("you use the gradient itself; of each entry only the sign counts here")
        if close(found, (x.clamp(0, 1) - rate * g / g.norm()).clamp(0, 1)):
            raise Wrong(
                "a gradient of length one is not its sign: each pixel has a sign of its own"
            )
        raise Wrong("this is not x − rate · sign(g), cut off at 0 and 1")


@exercise("It holds for tanh as well, where row sums point at a wrong class.")
def check_read_label(read_label: Callable[[Tensor], int]) -> None:
    """``read_label(g)`` -> the label behind the last weight gradient g (m, D) of one example."""
    for trial in range(2 * TRIALS):
        rng, m = generator(trial), 4 + trial
        p, y = torch.randn(m, generator=rng).softmax(0), trial % m
        r = torch.randn(7, generator=rng)  # as after tanh: both signs
        r = (r - r.mean()) + (0.5 if trial % 2 else -0.5)  # a sum of either sign
        error = p.clone()
        error[y] -= 1
        g = torch.outer(error, r)
        found = int(number(read_label(g.clone()), "the label"))
        if found == y:
            continue
        if found == int(g.sum(1).argmin()):
            raise Wrong(
                "the smallest row sum is iDLG's rule, and it needs Σ r_j > 0; after tanh the sum "
                "can be negative, and then a wrong class has the smallest one"
            )
        if found == int(g.norm(dim=1).argmin()):
            raise Wrong("that is the row with the smallest norm; the label's error is the largest")
        raise Wrong(f"the label is {y}, you say {found}; which row points against all others?")


@exercise("Chosen by the attacker's own cost, the only score that an attacker has.")
def check_pick_restart(pick_restart: Callable[[Tensor], int]) -> None:
    """``pick_restart(cost)`` -> index of the restart to keep, from final costs (R,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        cost = torch.rand(6, generator=rng) + 0.1
        if trial:
            cost[trial] = math.nan  # a start that diverged
        right = int(cost.nan_to_num(math.inf).argmin())
        found = int(number(pick_restart(cost.clone()), "the index"))
        if found == right:
            continue
        if math.isnan(cost[found]):
            raise Wrong(
                "you chose a start that diverged: torch's argmin takes NaN for the smallest number"
            )
        if found == int(cost.nan_to_num(-math.inf).argmax()):
            raise Wrong("that is the worst one: a lower cost means a better match")
        raise Wrong(f"costs {[round(v, 2) for v in cost.tolist()]}: keep start {right}")


@exercise("A start, a cost, a search: that is DLG, and it was yours.")
def check_rebuild(rebuild: Callable[..., Tensor]) -> None:
    """``rebuild(net, g_seen, y, shape, steps)`` -> the image behind the gradients, over 20 dB."""
    shape = (1, 1, 12, 12)
    for trial in range(3):
        rng = generator(trial, 7)
        net = build("lenet", shape[1:], 4, seed=trial)
        x, y = torch.rand(shape, generator=rng), torch.tensor([trial])
        weights = list(net.parameters())
        seen = torch.autograd.grad(cross_entropy(net(x), y), weights)
        answer = rebuild(net, [t.clone() for t in seen], y.clone(), shape, 300)
        found = tensor(answer, shape, "the image")
        error = (found - x).square().mean().item()
        if error <= 0.01:
            continue
        again = torch.autograd.grad(cross_entropy(net(found.float()), y), weights)
        far = [(a - b).square().sum() for a, b in zip(again, seen, strict=True)]
        part = float(sum(far) / sum(t.square().sum() for t in seen))
        score = -10 * math.log10(error)
        if part > 1e-3:
            raise Wrong(
                f"image {trial + 1} has {score:.0f} dB, and its gradient is still {part:.1%} off "
                "(squared): the search has not arrived; does it use its whole budget?"
            )
        raise Wrong(
            f"image {trial + 1} has {score:.0f} dB, though its gradient fits: try another start, "
            "and keep pixels in [0, 1]"
        )
