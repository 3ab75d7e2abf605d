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
from ..check import TRIALS, Wrong, as_tensor, begun, close, exercise, number, pair, tensor


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


Curve = Callable[[Tensor, Tensor, Tensor, Sequence[float], float], tuple[Tensor, float | None]]


@exercise("The success half of a table can be predicted from Jacobians alone.")
def check_success_curve(success_curve: Curve) -> None:
    """``success_curve(jacobians, images, noise, levels, threshold)`` -> (rates, border).

    jacobians (N, d, n), images (N, n), noise (N, R, d); rates has one number for each level.
    """
    levels, threshold = [0.02, 0.1, 0.3, 0.7, 2.0, 6.0], 0.5
    for trial in range(TRIALS):
        rng = generator(trial)
        J = torch.randn(3, 12, 4, generator=rng, dtype=torch.float64)
        J = J * torch.tensor([3.0, 1.0, 0.5, 0.3])
        images = torch.tensor([0.0, 0.3, 0.5, 1.0]).double().expand(3, 4)
        noise = torch.randn(3, 40, 12, generator=rng, dtype=torch.float64)
        given = J.clone(), images.clone(), noise.clone(), list(levels)
        answer = begun(success_curve(*given, threshold))
        if not pair(answer):
            raise Wrong("return two things: the rates, and the border")
        _check_rates(answer[0], _errors(J, images, noise, levels), J, noise, levels, threshold)
        _check_border(success_curve, trial)


def _errors(J: Tensor, images: Tensor, noise: Tensor, levels: Sequence[float]) -> Tensor:
    """What is added to the images before they are clamped, (levels, N, R, n), and after it."""
    free = torch.stack([std * (noise @ torch.linalg.pinv(J).mT) for std in levels])
    truth = images[:, None]
    return torch.stack([free, (truth + free).clamp(0, 1) - truth])


def _check_rates(
    answer: Any, errors: Tensor, J: Tensor, noise: Tensor, levels: Sequence[float], threshold: float
) -> None:
    free, cut = errors
    found = tensor(answer, (len(levels),), "the rates")

    def rate(away: Tensor) -> Tensor:
        return (away <= threshold).double().flatten(1).mean(1)

    if close(found, rate(cut.norm(dim=3))):
        return
    for hint, wrong in {
        "clamp the answers to [0, 1] before you measure them": free.norm(dim=3),
        "the threshold is for the L2 norm, not for its square": cut.square().sum(3),
        "the threshold is for the L2 norm, not for the mean squared error": cut.square().mean(3),
        "take the norm over the pixels of each answer": cut.abs().amax(3),
        "lead the noise back by the pseudo-inverse of J, not by Jᵀ": torch.stack(
            [(std * noise @ J).norm(dim=2) for std in levels]
        ),
    }.items():
        if close(found, rate(wrong)):
            raise Wrong(hint)
    if close(found, 1 - rate(cut.norm(dim=3))):
        raise Wrong("these are the rates of failure")
    raise Wrong("for each level: share of (image, draw) whose clamped answer is near enough")


def _check_border(success_curve: Curve, trial: int) -> None:
    """One image whose error is known: noise 1 in one pixel, so the error is the level."""
    one, images = torch.ones(1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    limit = 0.3 + 0.1 * trial
    for levels, right in (([0.1, limit, 0.8, 0.9], 0.8), ([0.1, 0.2], None), ([0.9, 1.0], 0.9)):
        answer = success_curve(one.clone(), images.clone(), one.clone(), list(levels), limit)
        border = answer[1]
        if right is None and border is not None:
            raise Wrong("where every level has a success the border is None")
        if right is not None and border is None:
            raise Wrong("the border is the first level with rate 0; you say there is none")
        if right is None or close(number(border, "the border"), right):
            continue
        if close(border, max((v for v in levels if v <= limit), default=math.nan)):
            raise Wrong("this is the last level with a success; the border is the next one")
        raise Wrong("the border is the first of the levels whose rate is 0, as a level")
