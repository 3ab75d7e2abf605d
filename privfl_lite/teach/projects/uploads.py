"""Part I: 20 dB from four kinds of uploads, which the attack has to tell apart by itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...client import share as send
from ...defenses import Prune
from ...defenses.base import Defense
from ...metrics import compare, psnr
from ...models import build
from ...runtime import PrivflError, seeded
from ...wire import Plan, Upload
from ..check import Wrong, tensor
from .pictures import digits, fresh
from .points import Goal, Score, raised, share

GOAL, EACH, OF = 20.0, 2, 25.0  # dB; uploads and points of each kind


@dataclass(frozen=True)
class Kind:
    """One kind of upload."""

    name: str
    model: str
    images: int = 1
    defense: Defense | None = None
    plan: Plan | None = None


KINDS = (
    Kind("one digit, LeNet", "lenet"),
    Kind("four digits, dense", "mlp", images=4),
    Kind("one digit, pruned", "lenet", defense=Prune(0.8)),
    Kind("one digit, three steps", "lenet", plan=Plan(eta=0.1, steps=3)),
)


def made(kind: Kind, seed: int) -> tuple[Upload, Tensor]:
    """A client's upload at a network drawn afresh, and the truth behind it."""
    ds = digits()
    x, y = fresh(ds, kind.images, seed)
    with seeded(seed):
        net = build(kind.model, ds)
    return send(net, x, y, kind.defense, plan=kind.plan, seed=seed), x


def judge_attack(attack: Callable[[Upload], Tensor], seed: int) -> Score:
    """``attack(upload)`` -> images (B, 1, 28, 28) in any order; 25 points a kind, in decibels."""
    if not callable(attack):
        got = type(attack).__name__
        raise PrivflError(f"part-1 asks for a function of an upload that returns images, not {got}")
    return Score("part-1", tuple(_kind(attack, kind, seed) for kind in KINDS), seed)


def _kind(attack: Callable[[Upload], Any], kind: Kind, seed: int) -> Goal:
    floor, found = [], []
    mean = digits().x_train.mean(0, keepdim=True)
    for trial in range(EACH):
        upload, x = made(kind, seed + 1000 * trial)
        try:
            answer = tensor(attack(upload), tuple(x.shape), "the images").to(x)
        except Wrong as wrong:
            return Goal(kind.name, 0.0, OF, str(wrong))
        except (Exception, SystemExit) as error:
            return raised(kind.name, OF, error)
        matched = compare(answer.clamp(0, 1), x, match=True)["psnr"]
        found.append(float(torch.as_tensor(matched).clamp(max=99).mean()))
        floor.append(float(psnr(mean.expand_as(x), x).mean()))
    decibels, blind = statistics.mean(found), statistics.mean(floor)
    points = OF * share(decibels, blind, GOAL)
    return Goal(kind.name, points, OF, f"{decibels:.1f} dB; the mean digit has {blind:.1f}")
