"""Undoing Mixup and InstaHide: from blended images back to the private ones (LODA §3.2, Eq. 3).

Encodings are e (E, C, H, W), E ≥ 1 blends of n private images x by a matrix M (E, n): e = M x for
Mixup, |e| = |M x| for InstaHide, where pixels count from the center of the flips: pass
``2 * e − 1`` for images in [0, 1] flipped about ½, and read the result as ``(x + 1) / 2``. How the
attacker got the encodings is another matter: they may be what gradient matching found.

Every pixel is a problem of its own with the same M: n unknowns, E equations. ``mixup_regression``
and the two decoders for signs take M as granted, the upper bound of LODA and GradAttack;
``instahide_matrix`` is for an attacker who must find it.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from ...arrays import Array, Found
from ...checking import checked
from ...runtime import PrivflError, generator, progress
from ...values import Count, Finite, NotNegative, Positive, Seed

Mixing = Annotated[Tensor, Array("a matrix (encodings, images)", (2,))]
Encodings = Annotated[Tensor, Array("encodings (E, C, H, W)", (4,))]
Box = tuple[Finite, Finite]


@checked
def conditioning(coefficients: Mixing) -> tuple[int, float]:
    """Rank of M (E, n) and its condition number σ₁/σ_n (infinite below rank n).

    Mixup is undone exactly when the rank is n, which needs E ≥ n encodings; an error in the
    encodings grows by at most 1/σ_n.
    """
    s = torch.linalg.svdvals(coefficients.double())
    rank = int((s > s[0] * max(coefficients.shape) * 1e-7).sum())  # M is known to single precision
    return rank, (s[0] / s[-1]).item() if rank == coefficients.shape[1] else torch.inf


@checked
def mixup_regression(
    encodings: Encodings,
    coefficients: Mixing,
    box: Box | None = None,
    steps: Count = 1000,
) -> Tensor:
    """The images x (n, C, H, W) with the least ‖M x − e‖², the shortest where several have it.

    ``box``: the least among images with pixels in that range, by projected gradient with momentum
    (FISTA). It changes the answer only where errors or a rank below n leave it open.
    """
    m, e = _check(encodings, coefficients)
    x = torch.linalg.pinv(m, rtol=max(m.shape) * 1e-7) @ e  # (n, P)
    if box is not None:
        gram, target = m.T @ m, m.T @ e
        rate = 1 / torch.linalg.matrix_norm(gram, 2)
        x = ahead = x.clamp(*box)
        for t in range(steps):
            new = (ahead - rate * (gram @ ahead - target)).clamp(*box)
            ahead, x = new + t / (t + 3) * (new - x), new
    return _images(x, encodings)


@checked
def misfit(encodings: Encodings, coefficients: Mixing, images: Found) -> Tensor:
    """|e| − |M x| (E, C, H, W), 0 for the true images: all that unknown signs let an attacker see.

    The public decoder takes the smaller in size of |e| − m and −|e| − m, where m = M x. That is the
    same but for its sign: the sign that brings s·|e| nearest to m is that of m.
    """
    m, e = _check(encodings, coefficients)
    if len(images) != m.shape[1] or images.shape[1:] != encodings.shape[1:]:
        want = f"({m.shape[1]}, {', '.join(map(str, encodings.shape[1:]))})"
        raise PrivflError(f"images must be {want}; got {tuple(images.shape)}")
    return (e.abs() - (m @ images.flatten(1).to(m)).abs()).view(encodings.shape).to(encodings)


@checked
def instahide_decode(
    encodings: Encodings,
    coefficients: Mixing,
    steps: Count = 1000,
    rate: Positive = 0.01,
    push: NotNegative = 0.05,
    show: bool = True,
) -> Tensor:
    """Images (n, C, H, W) with |M x| near |e|, as Carlini et al. (2021) search for them.

    Adam from zeros on mean(misfit²) + ``push`` · mean(1 − |x|); the second term drives pixels to
    ±1. From zeros every blend goes up first, so all x begin positive: what comes out is near |x|
    where the private pixels differ in sign. Of a pixel at one place, the signs of all n images can
    change together without a trace; see ``align_signs``.
    """
    m, e = _check(encodings, coefficients, encodings.dtype)
    e = e.abs()
    x = torch.zeros(m.shape[1], e.shape[1]).to(e).requires_grad_()
    adam = torch.optim.Adam([x], lr=rate)
    for _ in progress(range(steps), "decoding", show=show):
        blend = m @ x
        up = blend.detach() >= 0  # sign(0) is 0 in torch, and nothing would ever move
        loss = torch.where(up, e - blend, e + blend).square().mean() + push * (1 - x.abs()).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return _images(x.detach(), encodings)


@checked
def sign_search(
    encodings: Encodings,
    coefficients: Mixing,
    steps: Count = 100,
    restarts: Count = 100,
    box: Box = (-1.0, 1.0),
    seed: Seed = 0,
    show: bool = True,
) -> Tensor:
    """Images (n, C, H, W) with |M x| near |e|, by alternating between signs and regression.

    Guess the blends' signs s = sign(M x), solve M x = s·|e| by least squares, clamp to the box,
    repeat: the error-reduction method of phase retrieval (Gerchberg & Saxton 1972), for real
    numbers. Each pixel starts from zeros (all blends positive) and from ``restarts`` − 1 random
    points, and keeps the end with the least misfit, a score that the attacker has. For generic M,
    E ≥ 2n − 1 encodings determine a pixel's n values up to one common sign (Balan, Casazza & Edidin
    2006; our rows have only k entries, so this is no proof here). The search itself wants about 5n
    for ten images, and more restarts for more images. Pass the result to ``align_signs``.
    """
    m, e = _check(encodings, coefficients, encodings.dtype)
    e, (n, pixels) = e.abs(), (m.shape[1], e.shape[1])
    inverse = torch.linalg.pinv(m.double(), rtol=max(m.shape) * 1e-7).to(m)
    best, least = torch.zeros(n, pixels).to(e), torch.full((pixels,), torch.inf).to(e)
    for r in progress(range(restarts), "signs", show=show):
        x = torch.empty(n, pixels).uniform_(*box, generator=generator(seed, r)).to(e)
        x = x if r else torch.zeros_like(x)
        for _ in range(steps):
            x = (inverse @ torch.copysign(e, m @ x)).clamp(*box)
        cost = (e - (m @ x).abs()).square().sum(0)
        better = cost < least
        best[:, better], least[better] = x[:, better], cost[better]
    return _images(best, encodings)


@checked
def align_signs(images: Encodings, dark: bool = True) -> Tensor:
    """Give every pixel place the sign that agrees with its neighbors: (n, C, H, W), same shape.

    A decoder finds the n values at a place up to one common sign. In pictures, neighbors (above,
    below, left, right, and the other channels) mostly have equal signs. So: weigh each pair of
    neighbors by the size of the cosine between their n values, take the heaviest spanning tree, and
    make all cosines along it positive. One sign for everything is left, and no data tell it; the
    attacker's prior does: ``dark`` says that the mean pixel lies below the center.

    Where the images fall into groups that share no encoding, each group has signs of its own: align
    them group by group.
    """
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    c, h, w = images.shape[1:]
    place = np.arange(c * h * w).reshape(c, h, w)
    pairs = [(place[1:], place[:-1])]
    pairs += [(place[:, 1:], place[:, :-1]), (place[:, :, 1:], place[:, :, :-1])]
    i, j = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    v = images.flatten(1).T.double().cpu()  # (P, n)
    v = (v / v.norm(dim=1, keepdim=True).clamp(min=1e-12)).numpy()
    cosine = (v[i] * v[j]).sum(1)
    cost = coo_array((2 - np.abs(cosine), (i, j)), shape=(c * h * w, c * h * w))  # 0 is no edge
    order, parent = breadth_first_order(minimum_spanning_tree(cost), 0, directed=False)
    sign = np.ones(c * h * w)
    for p in order[1:]:
        sign[p] = sign[parent[p]] * (-1 if (v[p] * v[parent[p]]).sum() < 0 else 1)
    out = images * torch.from_numpy(sign).to(images).view(c, h, w)
    return -out if (out.mean() > 0) == dark else out


def _check(
    encodings: Tensor, coefficients: Tensor, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """M (E, n) and the encodings as (E, P), in one type, or one sentence on what does not fit."""
    if len(encodings) != len(coefficients):
        raise PrivflError(
            "encodings must be (E, C, H, W) and coefficients (E, n), one row an encoding; "
            f"got {tuple(encodings.shape)} and {tuple(coefficients.shape)}"
        )
    return coefficients.to(encodings.device, dtype), encodings.flatten(1).to(dtype)


def _images(x: Tensor, like: Tensor) -> Tensor:
    return x.view(-1, *like.shape[1:]).to(like)
