"""Checks for the exercises of "Teaching with pictures no one can read: LODA"."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...runtime import generator
from ..check import (
    TRIALS,
    Wrong,
    as_tensor,
    begun,
    close,
    exercise,
    hint,
    mask,
    number,
    pair,
    tensor,
)
from ..plots.loda import bounds


@exercise("Zero at an encoding inside the box; on the walls it need not be.")
def check_residual(residual: Callable[..., Tensor]) -> None:
    """``residual(J, g_prime, g_x, x_prime, x, c)`` -> the left side of Eq. 5, (d,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        jac, c = torch.randn(6, 4, generator=rng).double(), 0.7 + trial
        g_prime, g_x = torch.randn(2, 6, generator=rng).double()
        x_prime, x = torch.rand(2, 4, generator=rng).double()
        answer = residual(jac, g_prime, g_x, x_prime, x, c)
        found = tensor(answer, (4,), "the residual")
        pulled, pushed = jac.T @ (g_prime - g_x), c * (x_prime - x)
        if not close(found, pulled - pushed):
            wrongs = {
                "Eq. 5 has a minus sign: the pixels push away": pulled + pushed,
                "the sign of the features is turned: it is g(x') − g(x)": -pulled - pushed,
                "all signs are turned: Eq. 5 begins with g(x') − g(x)": pushed - pulled,
                "the weight c is missing": pulled - (x_prime - x),
                "this is the whole gradient; Eq. 5 is half of it": 2 * (pulled - pushed),
            }
            raise hint(found, wrongs, "it is Jᵀ times the gap of features, less c times that of x")


@exercise("Those pixels are sure to be inverted, whatever the features.")
def check_forced(forced: Callable[[Tensor, float, float], Tensor]) -> None:
    """``forced(x, L, c)`` -> which pixels of x (C, H, W) every encoding puts on the far wall."""
    for trial in range(TRIALS):
        x = torch.rand(3, 12, 12, generator=generator(trial)).double()
        d, lip, c = x.numel(), 0.12 + 0.003 * trial, 20.0
        threshold = lip**2 * d**0.5 / c
        says = "return a tensor of True and False of the shape of x, such as a comparison gives"
        found = mask(forced(x.clone(), lip, c), (3, 12, 12), says).double()
        gap = (x - 0.5).abs()
        if not close(found, (gap > threshold).double()):
            wrongs = {
                "it is L squared": (gap > lip * d**0.5 / c).double(),
                "it is the root of d, the number of pixels": (gap > lip**2 * d / c).double(),
                "the factor √d is missing: two images of the box may be √d apart": (
                    gap > lip**2 / c
                ).double(),
                "d counts the pixels of all channels": (gap > lip**2 * 12 / c).double(),
                "the other way: pixels far from ½ are forced": (gap <= threshold).double(),
                "dark pixels are forced as well: take the distance to ½": (
                    x - 0.5 > threshold
                ).double(),
            }
            raise hint(found, wrongs, "compare the distance of a pixel to ½ with L² √d / c")


@exercise("Nothing was reconstructed, and yet it is known who it was.")
def check_place(place: Callable[[Sequence[Tensor], Sequence[Tensor], int], int]) -> None:
    """``place(f, candidates, own)`` -> rank of candidate ``own`` by features, 1 the nearest.

    f: one tensor (…) a layer, of the encoding; candidates: one (N, …) a layer.
    """
    for trial in range(TRIALS):
        rng = generator(trial)
        f = [torch.randn(*s, generator=rng).double() for s in ((2, 3, 3), (4,))]
        many = [t + 0.4 * torch.randn(9, *t.shape, generator=rng).double() for t in f]
        each = [(m - t).flatten(1).square().sum(1) for m, t in zip(many, f, strict=True)]
        far, own = each[0] + each[1], 4
        right = 1 + int((far < far[own]).sum())
        found = number(place([t.clone() for t in f], [m.clone() for m in many], own), "the place")
        if found == right:
            continue
        wrongs = {
            "the nearest has place 1, not 0": right - 1,
            "count those that are nearer, not those farther": 1 + int((far > far[own]).sum()),
            "use all layers, not the first alone": 1 + int((each[0] < each[0][own]).sum()),
            "use all layers, not the last alone": 1 + int((each[1] < each[1][own]).sum()),
        }
        raise Wrong(
            next(
                (hint for hint, w in wrongs.items() if found == w),
                "add the squared distances of all layers and count the candidates that are nearer",
            )
        )


@exercise("For large c it hides little from those who know the start.")
def check_unpush(unpush: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """``unpush(x_prime, s, kappa)`` -> x* (C, H, W), NaN for pixels on the walls."""
    for trial in range(TRIALS):
        rng = generator(trial)
        x, s = torch.rand(2, 3, 4, 4, generator=rng).double()
        kappa = 3.0 + trial
        s = x + 0.3 * (s - x)
        x_prime = (x + kappa * (s - x)).clamp(0, 1)
        walls = (x_prime <= 0) | (x_prime >= 1)
        found = as_tensor(begun(unpush(x_prime.clone(), s.clone(), kappa)))
        if not torch.is_tensor(found) or found.shape != x.shape:
            raise Wrong("return an image of the shape of x_prime")
        found = found.detach().double()
        if not found[walls].isnan().all():
            raise Wrong("a pixel on a wall was clipped and is not known; put NaN there")
        if found[~walls].isnan().any():
            raise Wrong("only pixels at exactly 0 or 1 were clipped; the others have a value")
        if not close(found[~walls], x[~walls]):
            e, t = x_prime[~walls], s[~walls]
            wrongs = {
                "divide by κ − 1, not by κ": (kappa * t - e) / kappa,
                "divide by κ − 1": kappa * t - e,
                "start and encoding have changed places": (kappa * e - t) / (kappa - 1),
                "the sign is turned: x' = x* + κ(s − x*)": (e - kappa * t) / (kappa - 1),
            }
            raise hint(found[~walls], wrongs, "solve x' = x* + κ(s − x*) for x*")


@exercise("Eight encodings are enough for a picture, and nobody told you where they began.")
def check_read_encodings(
    read_encodings: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> None:
    """``read_encodings(encodings, kappas, pool)`` -> x* (C, H, W), places of the starts (E,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        pool = torch.rand(12, 3, 6, 6, generator=rng).double()
        x = torch.rand(3, 6, 6, generator=rng).double()
        own = torch.randperm(12, generator=rng)[:4]
        kappas = 1.5 + 3 * torch.rand(4, generator=rng).double()
        k = kappas[:, None, None, None]
        e = (x + k * (pool[own] - x)).clamp(0, 1)
        answer = begun(read_encodings(e.clone(), kappas.clone(), pool.clone()))
        if not pair(answer):
            raise Wrong("return two things: the private image and the places of the starts")
        if not close(tensor(answer[1], (4,), "the places of the starts"), own):
            says = "a wrong start asks for private pixels below 0 or above 1"
            raise Wrong(f"these are not the starts; {says}, and walls are bounds")
        found = tensor(answer[0], (3, 6, 6), "the private image")
        low, high = bounds(e, pool[own], k)
        if not close(found, (low.amax(0) + high.amin(0)) / 2):
            edge = (k * pool[own] - e) / (k - 1)
            wrongs = {
                "use all encodings, not the first alone": (low + high)[0] / 2,
                "take the largest lower and the smallest upper bound, not means": (
                    (low + high).mean(0) / 2
                ),
                "on a wall the solution is a bound, not the pixel": edge.mean(0),
                "return the middle, not the lower bound": low.amax(0),
                "return the middle, not the upper bound": high.amin(0),
            }
            raise hint(found, wrongs, "it is the middle between the bounds")
