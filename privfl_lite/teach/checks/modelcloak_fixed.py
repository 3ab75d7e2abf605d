"""Checks for the exercises of "ModelCloak I": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...defenses.modelcloak import select
from ...gradients import Tensors, clip
from ...runtime import generator
from ..check import TRIALS, Wrong, as_tensor, begun, close, exercise, number


@exercise("Each tensor has its own bound; the whole may have √m C.")
def check_clip_by_layer(clip_by_layer: Callable[[Tensors, float], Tensors]) -> None:
    """``clip_by_layer(tensors, C)`` -> the tensors (K, *shape), each client's each at most C."""
    for trial in range(TRIALS):
        rng = generator(trial)
        size = torch.tensor([0.02, 1.0, 8.0])[:, None]
        a = size[:, :, None] * torch.randn(3, 4, 5, generator=rng)
        tensors = {"weight": a, "bias": 0.3 * size * torch.randn(3, 4, generator=rng)}
        answer = begun(clip_by_layer({n: t.clone() for n, t in tensors.items()}, 1.5))
        shapes = {n: t.shape for n, t in tensors.items()}
        if isinstance(answer, Mapping):
            answer = {n: as_tensor(t) for n, t in answer.items()}
        if not isinstance(answer, Mapping) or shapes != {
            n: getattr(t, "shape", None) for n, t in answer.items()
        }:
            raise Wrong("return a dict with the names and shapes that came in")
        if close(answer, clip(tensors, 1.5, "layer")[0]):
            continue
        norms = {n: t.flatten(1).norm(dim=1) for n, t in tensors.items()}
        scaled = {n: t.flatten(1) * (1.5 / norms[n])[:, None] for n, t in tensors.items()}
        for hint, wrong in {
            "this clips all tensors as one vector; here each tensor has its own norm": clip(
                tensors, 1.5, "update"
            )[0],
            "a tensor shorter than C stays as it is: clip, do not normalize": {
                n: t.view(shapes[n]) for n, t in scaled.items()
            },
            "clip the norm of a tensor, not its single entries": {
                n: t.clamp(-1.5, 1.5) for n, t in tensors.items()
            },
            "the first axis counts clients; each client has a norm of its own": {
                n: t * min(1.0, 1.5 / t.norm().item()) for n, t in tensors.items()
            },
            "nothing is clipped": tensors,
        }.items():
            if close(answer, wrong):
                raise Wrong(hint)
        raise Wrong("multiply client k's tensor t by min(1, C / ‖t[k]‖)")


@exercise("Safe first, then accurate, then the smaller ε.")
def check_sweet_spot(sweet_spot: Callable[[Sequence[Mapping], float], Mapping[str, Any]]) -> None:
    """``sweet_spot(grid, leakage)`` -> the cell that ModelCloak selects, ties to the larger σ."""

    def cell(sigma: float, accuracy: float, success: float) -> dict:
        return {"sigma": sigma, "clip": 6 / sigma, "accuracy": accuracy, "success": success}

    plain = [cell(1, 0.9, 0.4), cell(6, 0.5, 0.0), cell(3, 0.7, 0.0), cell(2, 0.8, 0.1)]
    for grid, leakage in (
        (plain, 0.0),
        (plain, 0.1),
        ([cell(2, 0.7, 0.0), cell(3, 0.7, 0.0), cell(6, 0.2, 0.0), cell(1, 0.9, 0.3)], 0.0),
    ):
        answer, right = begun(sweet_spot(list(grid), leakage)), select(grid, leakage)
        if answer == right:
            continue
        if not isinstance(answer, Mapping) or answer not in grid:
            raise Wrong("return one of the cells of the grid, as it is")
        if answer["success"] > leakage:
            raise Wrong("this cell leaks: its success is over what is allowed")
        if answer["accuracy"] == right["accuracy"]:
            raise Wrong("of equal accuracies take the larger σ, which has the smaller ε")
        if right["success"] == leakage > 0:
            raise Wrong("a success equal to what is allowed is allowed")
        raise Wrong("among the cells that do not leak, take the best accuracy")


@exercise("The smallest singular values decide.")
def check_predicted_error(predicted_error: Callable[[Tensor, float], float]) -> None:
    """``predicted_error(J, std)`` -> std · sqrt(tr((JᵀJ)⁻¹)), the L2 error in pixel units."""
    for trial in range(TRIALS):
        J = torch.randn(12, 4, generator=generator(trial), dtype=torch.float64)
        J, std = J * torch.tensor([3.0, 1.0, 0.5, 0.1]), 0.3
        found = number(predicted_error(J.clone(), std), "the predicted error")
        s = torch.linalg.svdvals(J)
        total = s.pow(-2).sum().item()
        if math.isclose(found, std * total**0.5, rel_tol=1e-4):
            continue
        for hint, wrong in {
            "this is the mean squared error; take its root": std**2 * total,
            "the standard deviation is missing": total**0.5,
            "ς stands outside the root, not squared": std**2 * total**0.5,
            "this is the weakest direction alone; add up all of them": std / s[-1].item(),
            "invert JᵀJ before you take the trace": std / s.pow(2).sum().item() ** 0.5,
            "this is the trace of JᵀJ; take that of its inverse": std * s.norm().item(),
            "add the squares 1/s², not 1/s": std * (1 / s).sum().item(),
        }.items():
            if math.isclose(found, wrong, rel_tol=1e-4):
                raise Wrong(hint)
        raise Wrong("with singular values s of J it is ς times the root of Σ 1/s²")
