"""Part II: train as well as one can within an ε that the run itself counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from ...defenses import DPSGD
from ...federated import FedAvg
from ...models import build
from ...runtime import PrivflError, generator, seeded
from ...wire import Plan
from .pictures import digits, warped
from .points import Goal, Score, share

EPSILON, ROUNDS, CLIENTS, EXAMPLES = 12.0, 40, 10, 400
LOW, HIGH = 0.1, 0.7  # accuracies without points, and with all of them
SETTINGS: dict[str, type] = {
    **dict.fromkeys(("clip", "sigma", "eta"), float),
    **dict.fromkeys(("rounds", "batch_size"), int),
}


def judge_plan(answer: Mapping[str, Any], seed: int) -> Score:
    """``{"clip": …, "sigma": …, "rounds": …, "eta": …, "batch_size": …}``, trained and counted."""
    run = _run(_checked(answer), seed)
    *_, last = iter(run)
    spent = last.epsilon.value if last.epsilon else None
    if spent is None or spent > EPSILON:
        told = "no ε holds" if spent is None else f"ε = {spent:.2f} is above {EPSILON:g}"
        return Score("part-2", (Goal("accuracy", 0.0, 100.0, told),), seed)
    learned = float(last.accuracy or 0.0)
    why = f"{learned:.1%} of held-out digits right at ε = {spent:.2f}"
    return Score("part-2", (Goal("accuracy", 100 * share(learned, LOW, HIGH), 100.0, why),), seed)


def _checked(answer: Any) -> dict[str, Any]:
    """The settings as numbers, or PrivflError."""
    if not isinstance(answer, Mapping) or set(answer) != set(SETTINGS):
        names = ", ".join(SETTINGS)
        raise PrivflError(f"part-2 asks for a dictionary with {names}")
    wrong = [name for name, value in answer.items() if not _positive(value, SETTINGS[name])]
    if wrong:
        kind = "whole number" if SETTINGS[wrong[0]] is int else "number"
        raise PrivflError(f"{wrong[0]} must be a {kind} above 0, not {answer[wrong[0]]!r}")
    if answer["rounds"] > ROUNDS or answer["batch_size"] > EXAMPLES:
        raise PrivflError(f"take at most {ROUNDS} rounds and batches of {EXAMPLES}")
    return dict(answer)


def _positive(value: Any, kind: type) -> bool:
    number = type(value) is int or (kind is float and isinstance(value, float))
    return number and 0 < value < math.inf


def _run(how: dict[str, Any], seed: int) -> FedAvg:
    ds = digits()
    clients = [
        (warped(x, generator(seed, k)), y)
        for k, (x, y) in enumerate(ds.clients(CLIENTS, "iid", EXAMPLES, seed=seed))
    ]
    test = warped(ds.x_test, generator(seed, CLIENTS)), ds.y_test
    with seeded(seed):
        net = build("mlp", ds)
    torch.manual_seed(seed)
    plan = Plan(eta=how["eta"], batch_size=how["batch_size"], epochs=1)
    defense = DPSGD(how["clip"], how["sigma"])
    return FedAvg(
        net, clients, how["rounds"], plan, test=test, defense=defense, seed=seed, show=False
    )
