"""Checks for the exercises of the chapter "Measuring leakage": right, or what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...metrics import wilson
from ...runtime import generator
from ..check import Wrong, begun, close, exercise, number, pair, tensor


@exercise("A norm is a different PSNR for every size of image.")
def check_psnr_from_l2(psnr_from_l2: Callable[[float, tuple[int, ...]], float]) -> None:
    """``psnr_from_l2(norm, shape)`` -> PSNR in dB of images (C, H, W) in [0, 1]."""
    for norm, shape in ((1.4, (1, 28, 28)), (2.69, (3, 32, 32)), (0.0014, (1, 28, 28))):
        found, size = number(psnr_from_l2(norm, shape), "the PSNR"), math.prod(shape)
        right = 10 * math.log10(size / norm**2)
        if close(found, right, atol=0.01):
            continue
        if close(found, -20 * math.log10(norm), atol=0.01) or close(
            found, -10 * math.log10(norm), atol=0.01
        ):
            raise Wrong(f"the size is missing: the MSE is the squared norm divided by {size}")
        if close(found, 10 * math.log10(size) - 10 * math.log10(norm), atol=0.01):
            raise Wrong("square the norm: MSE = L2² / N")
        if close(found, 20 * math.log10(size / norm), atol=0.01):
            raise Wrong("N stands under the square: MSE = L2² / N, not (L2 / N)²")
        if close(found, 10 * math.log10(size / shape[0]) - 20 * math.log10(norm), atol=0.01):
            raise Wrong("count the channels too: N = C · H · W")
        if close(found, -right, atol=0.01):
            raise Wrong("the sign is turned round: a smaller error is a higher PSNR")
        raise Wrong(f"a norm of {norm} at {shape} is {right:.2f} dB, not {found:.2f}")


@exercise("Twenty-eight of those decibels are eight of ours.")
def check_standard_psnr(standard_psnr: Callable[[float], float]) -> None:
    """``standard_psnr(printed)`` -> standard PSNR in dB from FedKL's 10 log10(255² / RMSE)."""
    shift = 10 * math.log10(255)
    for printed in (28.18, 52.78, 26.64):
        found, right = number(standard_psnr(printed), "the PSNR"), 2 * (printed - shift)
        if close(found, right, atol=0.01):
            continue
        if close(found, printed - shift, atol=0.01):
            raise Wrong("that is half of it: their scale counts 10 dB where ours counts 20")
        if close(found, 2 * printed, atol=0.01) or close(found, 2 * printed - shift, atol=0.01):
            raise Wrong("subtract 10 log10(255) before you double")
        if close(found, printed / 2 + shift, atol=0.01):
            raise Wrong("that is the other direction, from standard to printed")
        raise Wrong(f"{printed} is {right:.2f} dB in standard units, not {found:.2f}")


@exercise("It stays inside [0, 1] and says something at zero.")
def check_wilson(interval: Callable[[int, int], Sequence[float]]) -> None:
    """``interval(successes, n)`` -> Wilson's 95 % interval (low, high)."""
    for successes, n in ((3, 10), (0, 100), (10, 10), (123, 1000)):
        answer = begun(interval(successes, n))
        if not pair(answer):
            raise Wrong("return a pair (low, high)")
        low, high = (number(end, "an end of the interval") for end in answer)
        right = wilson(successes, n)
        if abs(low - right[0]) < 2e-4 and abs(high - right[1]) < 2e-4:
            continue
        p = successes / n
        half = 1.96 * math.sqrt(p * (1 - p) / n)
        if abs(low - (p - half)) < 1e-3 and abs(high - (p + half)) < 1e-3:
            raise Wrong(
                "that is Wald's interval, with the spread taken at the observed rate; at 0 of n it "
                "has no width"
            )
        if abs(high - right[0]) < 2e-4 and abs(low - right[1]) < 2e-4:
            raise Wrong("the ends are exchanged; return (low, high)")
        z2 = 1.6449**2
        a, b = 1 + z2 / n, 2 * p + z2 / n
        if abs(high - (b + math.sqrt(max(0.0, b * b - 4 * a * p * p))) / (2 * a)) < 1e-3:
            raise Wrong("your z is that of 90 %; for 95 % it is 1.96")
        raise Wrong(
            f"{successes} of {n} has the interval {right[0]:.3f} to {right[1]:.3f}, not "
            f"{low:.3f} to {high:.3f}"
        )


@exercise("Neither brightness nor a negative hides the image from this judge.")
def check_identify(identify: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``identify(x_hat, candidates)`` -> index (B,) of the candidate, blind to a x + b."""
    rng = generator(0)
    candidates = torch.rand(12, 1, 8, 8, generator=rng)
    candidates = candidates * torch.linspace(0.3, 1, 12).view(-1, 1, 1, 1)  # some dark, some bright
    true = torch.tensor([7, 2, 11, 0, 5])
    slight = 0.002 * torch.randn(5, 1, 8, 8, generator=rng)
    cases = {
        "as they are": candidates[true],
        "brighter": candidates[true] + 0.4,
        "with little contrast": 0.15 * candidates[true] + 0.4,
        "as negatives": 1 - candidates[true],
    }
    for case, x_hat in cases.items():
        answer = identify((x_hat + slight).clone(), candidates.clone())
        found = tensor(answer, (5,), "the list of indices").long()
        if not torch.equal(found, true):
            hint = {
                "as they are": "compare each reconstruction with every candidate",
                "brighter": "subtract each image's own mean first",
                "with little contrast": "divide by each image's own norm as well",
                "as negatives": "a negative correlates with -1: take the absolute value",
            }[case]
            hits = int((found == true).sum())
            raise Wrong(f"of images handed in {case}, {hits} of 5 are identified; {hint}")


@exercise("Neither contrast, nor sign, nor position hides the image from this judge.")
def check_find_moved(find_moved: Callable[[Tensor, Tensor], Sequence[Tensor]]) -> None:
    """``find_moved(x_hat, candidates)`` -> index (B,) and cyclic shift (B, 2), blind to a x + b."""
    rng = generator(1)
    candidates = torch.rand(9, 2, 6, 7, generator=rng)
    true = torch.tensor([4, 0, 8, 3])
    moves = torch.tensor([[0, 0], [1, 0], [0, 5], [4, 6]])
    moved = [
        torch.roll(candidates[c], tuple(s), (1, 2))
        for c, s in zip(true, moves.tolist(), strict=True)
    ]
    clean = torch.stack(moved) + 0.002 * torch.randn(4, 2, 6, 7, generator=rng)
    cases = {"as they are": clean, "darker": 0.3 * clean, "as negatives": 1 - 0.5 * clean}
    for case, x_hat in cases.items():
        answer = begun(find_moved(x_hat.clone(), candidates.clone()))
        if not pair(answer):
            raise Wrong("return a pair: the indices (B,) and the shifts (B, 2)")
        index = tensor(answer[0], (4,), "the list of indices").long()
        shift = tensor(answer[1], (4, 2), "the list of shifts").long()
        _compare_moved(case, index == true, shift, moves)


def _compare_moved(case: str, hits: Tensor, shift: Tensor, moves: Tensor) -> None:
    """Say what is wrong with the indices first, then with the shifts."""
    size = torch.tensor([6, 7])
    if not hits[0]:
        other = "center and scale each image, and take the absolute correlation"
        hint = other if case != "as they are" else "compare with every candidate"
        raise Wrong(f"an image that was not moved, handed in {case}, is not found; {hint}")
    if not hits.all():
        raise Wrong(
            f"handed in {case}, {int(hits.sum())} of 4 are found; those that were moved are not: "
            "try every shift of rows and of columns together"
        )
    if torch.equal(shift, moves):
        return
    if torch.equal((-shift) % size, moves):
        raise Wrong("these are the shifts back; give those by which the candidate was moved")
    if torch.equal(shift % size, moves):
        raise Wrong("right up to whole turns; give numbers from 0 to H − 1 and from 0 to W − 1")
    if torch.equal(shift.flip(1), moves):
        raise Wrong("rows and columns are exchanged; the first number is for rows")
    raise Wrong(f"the images are found, but the shifts are {moves.tolist()}")
