"""From a LODA encoding x′ back to the private image x* (LODA §4.2, and what it leaves out).

How the attacker got x′ is another matter: it may be the encoding itself or what gradient matching
found. g is public, as the paper grants. Three sources of information are used here: stationarity
of x′ (``adaptive``, Eq. 5–6), its features, which are nearly those of x* by design (``invert``),
and several encodings of one image (``invert`` with a list). ``loda_decoder`` learns from public
images whatever there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from ...models.extractor import Extractor, squared_distance
from ...runtime import PrivflError, progress
from ..matching.terms import total_variation
from ..solvers import adam, value_and_gradient


def stationarity(g: Extractor, x_prime: Tensor, c: float) -> Callable[[Tensor], Tensor]:
    """r(x) = ∇g(x′)ᵀ(g(x′) − g(x)) − c(x′ − x), (B, C, H, W): what Eq. 5 sets to zero at x*.

    It is half the gradient of Eq. 4 at x′. The pass through g at x′ is made once.
    """
    z = x_prime.detach().clone().requires_grad_()
    with torch.enable_grad():
        out = g(z)
    here = [t.detach() for t in out]

    def residual(x: Tensor) -> Tensor:
        gaps = [a - b for a, b in zip(here, g(x), strict=True)]
        graph = torch.is_grad_enabled()
        (pulled,) = torch.autograd.grad(out, z, gaps, retain_graph=True, create_graph=graph)
        return pulled - c * (x_prime - x)

    return residual


def violation(residual: Tensor, x_prime: Tensor) -> Tensor:
    """The part of a residual that contradicts a minimum over the box [0, 1].

    Eq. 5 forgets the box. At a minimum over it the gradient vanishes only where 0 < x′ < 1; where
    x′ = 1 it is ≤ 0, where x′ = 0 it is ≥ 0, and no more is known (Karush–Kuhn–Tucker).
    """
    residual = torch.where(x_prime >= 1, residual.clamp(min=0), residual)
    return torch.where(x_prime <= 0, residual.clamp(max=0), residual)


def adaptive(
    g: Extractor,
    x_prime: Tensor,
    c: float = 1.0,
    steps: int = 100,
    rate: float = 0.01,
    squared: bool = False,
) -> Tensor:
    """The paper's adaptive attack: gradient descent on Eq. 6 from gray ½, clamped to [0, 1].

    As released the norm itself is descended, not its square (``squared``, the equation), with c = 5
    where the text has 1. Both c and rate are for the paper's network: the gradient of the norm is
    of the size of ∇gᵀ∇g, and a rate too large throws pixels from wall to wall. On the stored "cpu"
    network c = 7.5 and a rate of 1e-4 or less correspond; small rates leave the image gray, which
    by itself scores some 12 dB.
    """
    residual, x = stationarity(g, x_prime, c), torch.full_like(x_prime, 0.5)

    def cost(z: Tensor, rows: Tensor) -> Tensor:
        total = residual(z.view_as(x_prime)).flatten(1).square().sum(1)
        return total if squared else total.sqrt()

    rows = torch.arange(len(x), device=x.device)
    for _ in progress(range(steps), "Eq. 6"):
        _, grad = value_and_gradient(cost, x.flatten(1), rows)
        x = (x - rate * grad.view_as(x).nan_to_num(0.0)).clamp(0, 1)
    return x


def invert(
    g: Extractor,
    encodings: Tensor | Sequence[Tensor],
    tv: float = 3.0,
    c: float | None = None,
    weight: float = 1.0,
    steps: int = 400,
    start: Tensor | None = None,
    show: bool = True,
) -> Tensor:
    """Images with the features of the encodings that are smooth: signed Adam in the box [0, 1].

    Cost: ‖g(x) − t‖² / ‖t − t̄‖² + ``tv``·TV(x), where t are the features of x′, for several
    encodings of one image their mean (the least squares fit to all), and t̄ those of gray ½. The
    exact root is x′ itself, whose features are t: only the prior tells x* from it, so the search
    must not begin there (default: 1 − x′, since x′ was driven away from x*).

    With ``c`` the stationarity of each encoding is used, too: ``weight`` times the squared
    violation of Eq. 5 in the box, relative to that of gray ½.
    """
    many = [encodings] if isinstance(encodings, Tensor) else list(encodings)
    if not many or len({e.shape for e in many}) > 1:
        raise PrivflError("encodings must be at least one, all of the same shape (B, C, H, W)")
    shape, gray = many[0].shape, torch.full_like(many[0], 0.5)
    with torch.no_grad():
        seen = zip(*(g(e) for e in many), strict=True)
        target = [torch.stack(layer).mean(0) for layer in seen]
        scale = squared_distance(g(gray), target).clamp(min=1e-12)
    residuals = [] if c is None else [stationarity(g, e, c) for e in many]

    def wrong(x: Tensor) -> Tensor:
        parts = [violation(r(x), e) for r, e in zip(residuals, many, strict=True)]
        return cast(Tensor, sum(part.flatten(1).square().sum(1) for part in parts))

    with torch.no_grad():
        unit = wrong(gray) if residuals else None

    def cost(z: Tensor, rows: Tensor) -> Tensor:
        x = z.view(shape)
        total = squared_distance(g(x), target) / scale + tv * total_variation(x[:, None])
        return total if unit is None else total + weight * wrong(x) / unit

    begin = 1 - torch.stack(many).mean(0) if start is None else start
    ticks = progress(range(1, steps + 1), "inversion", show=show)
    found = adam(cost, begin.flatten(1), ticks, steps, project=lambda z: z.clamp_(0, 1))
    return found.z.view(shape)
