"""Checks for the exercises of "Your own run": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...gradients import Tensors
from ...runtime import generator
from ...wire import Plan
from ..check import TRIALS, Wrong, close, exercise, number, tensor


@exercise("That is the factor between an update and a gradient.")
def check_factor(factor: Callable[[int, float], float]) -> None:
    """``factor(steps, momentum)``: W of the proposition."""
    for steps, m in ((1, 0.9), (5, 0.0), (2, 0.5), (5, 0.9), (20, 0.9)):
        found = number(factor(steps, m), "the factor")
        weights = Plan(steps=steps, momentum=m).step_weights(steps)
        if close(found, sum(weights), 1e-6):
            continue
        if close(found, steps, 1e-6):
            raise Wrong("that leaves the momentum out: later steps carry earlier gradients along")
        if close(found, steps / (1 - m), 1e-6):
            raise Wrong("1 / (1 − m) is the limit for many steps; here there are few")
        if close(found, weights[0], 1e-6):
            raise Wrong("that is how often the first gradient counts; add up all of them")
        raise Wrong(f"for {steps} steps with momentum {m} it is not {found:.4g}")


@exercise("Whoever sees both signs knows what it is.")
def check_taken_for(taken_for: Callable[[Tensor], str]) -> None:
    """``taken_for(bias)``: "gradient" or "update", from the last bias of one image's upload."""
    for trial in range(2 * TRIALS):
        rng = generator(trial)
        logits = 3 * torch.randn(10, generator=rng)
        label = int(torch.randint(10, (1,), generator=rng))
        g = logits.softmax(0)
        g[label] -= 1
        sent, right = (g, "gradient") if trial % 2 else (-0.1 * g, "update")
        answer = taken_for(sent.clone())
        if answer not in ("gradient", "update"):
            raise Wrong(f'it must return "gradient" or "update", not {answer!r}')
        if answer != right:
            raise Wrong(
                f"the entries {[round(v, 3) for v in sent.tolist()]} belong to one image's {right}"
            )


def _client(trial: int) -> tuple[Tensors, Tensors, Plan, Tensor]:
    """Weights before and after local steps at a constant gradient, the plan and that gradient."""
    rng = generator(trial)
    m = (0.0, 0.9, 0.5)[trial % 3]
    plan = Plan(eta=0.02 * (1 + trial), steps=1 + trial % 4, momentum=m)
    before = {"w": torch.randn(3, 4, generator=rng), "b": torch.randn(3, generator=rng)}
    g = {n: torch.randn(t.shape, generator=rng) for n, t in before.items()}
    speed = {n: torch.zeros_like(t) for n, t in before.items()}
    after = {n: t.clone() for n, t in before.items()}
    for _ in range(plan.steps or 1):
        for n in after:
            speed[n] = m * speed[n] + g[n]
            after[n] = after[n] - plan.eta * speed[n]
    return before, after, plan, torch.cat([t.flatten() for t in g.values()]).double()


@exercise("Now an update of anybody's loop is a gradient that attacks can read.")
def check_as_gradient(as_gradient: Callable[[Tensors, Tensors, Plan], Tensors]) -> None:
    """``as_gradient(before, after, plan)``: the mean gradient behind two state dicts, by name."""
    for trial in range(2 * TRIALS):
        before, after, plan, right = _client(trial)
        answer = as_gradient(dict(before), dict(after), plan)
        if not isinstance(answer, dict) or set(answer) != set(before):
            raise Wrong("return a dictionary with the names of the weights")
        found = torch.cat([
            tensor(answer[n], tuple(t.shape), f"the gradient of {n!r}").flatten()
            for n, t in before.items()
        ])  # fmt: skip
        if close(found, right, 1e-3, 1e-4):
            continue
        if close(found, -right, 1e-3, 1e-4):
            raise Wrong("the sign is wrong: training walks against the gradient")
        ratio = float((found @ right) / (right @ right))
        if close(found, ratio * right, 1e-3, 1e-4):
            raise Wrong(
                f"the direction is right, and the length off by a factor of {ratio:.3g}: with "
                f"{plan.steps} steps, rate {plan.eta:g} and momentum {plan.momentum:g}"
            )
        raise Wrong("that is not along the gradient; start from after − before")
