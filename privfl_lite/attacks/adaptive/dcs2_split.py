"""The last layer's gradient of two images, one of them concealed, split into its two parts.

``dcs2_algebra`` says why that can be done, and goes on from here to the image. Chapter: DCS².
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...models import Net

SCALES = (1 / 2, 1 / 3, 1.0)  # a = b in Eq. 10: mean of two, released code, as printed


class Split(NamedTuple):
    """Features f (2, n) and errors δ (2, classes) of the sensitive image and the concealed one."""

    f: Tensor
    delta: Tensor
    label: int
    soft: Tensor  # label distribution of the concealed image
    weights: Tensor  # (2,), a and b of Eq. 10 as found
    score: float  # how far all this is from fitting, and from its range


def separate(model: Net, weight: Tensor, bias: Tensor, labels: Sequence[int]) -> Split:
    """Split the last layer's gradient (classes, n), (classes,); of the labels the one that fits."""
    return min((_split(model, weight, bias, c) for c in labels), key=lambda split: split.score)


def _split(model: Net, g: Tensor, g_b: Tensor, label: int) -> Split:
    """Levenberg–Marquardt for f₁ = V a on P(softmax(W V a + b) − y) = 0, from a fan of starts."""
    w, b = (p.detach().to(g) for p in (model.head.weight, model.head.bias))
    y = _corner(label, g_b)
    left, sizes, right = torch.linalg.svd(g, full_matrices=False)
    v, off = right[:2].T, torch.eye(len(b)).to(g) - left[:, :2] @ left[:, :2].T
    angle = torch.linspace(0, 2 * torch.pi, 73)[:-1].to(g)
    radius = torch.linspace(0.08, 1, 12).to(g)[:, None] * len(v) ** 0.5  # features lie in (0, 1)
    a = torch.stack([radius * angle.cos(), radius * angle.sin()], -1).view(-1, 2)
    a = a[(a @ v.T > -0.01).to(g).mean(1) > 0.9]
    if not len(a):
        none = g.new_zeros(2, len(v)), g.new_zeros(2, len(b))
        return Split(*none, label, y, g.new_ones(2), torch.inf)

    def residual(a: Tensor) -> tuple[Tensor, Tensor]:
        p = (a @ (w @ v).T + b).softmax(1)
        slope = torch.diag_embed(p) - p[:, :, None] * p[:, None]
        return (p - y) @ off, off @ slope @ w @ v

    damp, (r, slope) = torch.full((len(a), 1, 1), 1e-3).to(g), residual(a)
    for _ in range(60):
        h = slope.mT @ slope
        ridge = damp * h.diagonal(dim1=1, dim2=2).sum(1)[:, None, None] + 1e-14
        h = h + ridge * torch.eye(2).to(g)
        new = a - torch.linalg.solve(h, slope.mT @ r[..., None])[..., 0]
        r_new, slope_new = residual(new)
        ok = (r_new.norm(dim=1) < r.norm(dim=1))[:, None]
        a, r = torch.where(ok, new, a), torch.where(ok, r_new, r)
        slope = torch.where(ok[..., None], slope_new, slope)
        damp = torch.where(ok[..., None], damp / 5, damp * 5).clamp(1e-9, 1e6)
    f_1, ends = a @ v.T, []
    tried = [g.new_full((2,), scale) for scale in SCALES]
    for weights in tried if parallel(sizes) else [*tried, None]:
        f, delta, soft, used, off_by = completed(model, g, g_b, label, f_1, weights)
        out = sum((t - t.clamp(0, 1)).abs().amax(1) for t in (*f.unbind(1), soft))
        score = (r.norm(dim=1) + out + off_by).nan_to_num(torch.inf)
        k = score.argmin()
        ends.append(Split(f[k], delta[k], label, soft[k], used[k], score[k].item()))
    known, best = (min(part, key=lambda split: split.score) for part in (ends[: len(tried)], ends))
    return best if best.score < known.score / 10 else known


def completed(
    model: Net, g: Tensor, g_b: Tensor, label: int, f_1: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All that follows from features f₁ (N, n) of x_s, and from a, b (2,) or, if None, without.

    Features (N, 2, n), errors (N, 2, classes), x̃'s label (N, classes), weights (N, 2); and how far
    (N,) the rest is from rank 1, and from a label that over half of the classes have no part in.
    """
    w, b = (p.detach().to(g) for p in (model.head.weight, model.head.bias))
    d_1 = (f_1 @ w.T + b).softmax(1) - _corner(label, g_b)
    ours = lone_weight(g, g_b, f_1, d_1) if weights is None else weights[0].expand(len(f_1))
    theirs = g_b - ours[:, None] * d_1  # b δ₂
    rest = g - (ours[:, None] * d_1)[:, :, None] * f_1[:, None]  # b δ₂ f₂ᵀ
    f_2 = (rest * theirs[..., None]).sum(1) / theirs.pow(2).sum(1, keepdim=True)
    p_2 = (f_2 @ w.T + b).softmax(1)
    scale = (theirs / p_2).median(1).values if weights is None else weights[1].expand(len(f_1))
    d_2 = theirs / scale[:, None]  # = p₂ in every class that x̃'s label has no part in
    soft = p_2 - d_2
    off_by = (rest - theirs[..., None] * f_2[:, None]).flatten(1).norm(dim=1) / g.norm()
    off_by = off_by + soft.abs().median(1).values
    both = torch.stack([ours, scale], 1)
    return torch.stack([f_1, f_2], 1), torch.stack([d_1, d_2], 1), soft, both, off_by


def lone_weight(g: Tensor, g_b: Tensor, f_1: Tensor, d_1: Tensor) -> Tensor:
    """a (N,) for which G − a δ₁[f₁, 1]ᵀ has one rank less than G = [∇W, ∇b], which has 2.

    a = 1 / (δ₁ᵀ G⁺ᵀ [f₁, 1]) for f₁ and δ₁ in its row and column space (Wedderburn).
    """
    left, sizes, right = torch.linalg.svd(torch.cat([g, g_b[:, None]], 1), full_matrices=False)
    row = torch.cat([f_1, torch.ones_like(f_1[:, :1])], 1) @ right[:2].T
    return 1 / (d_1 @ left[:, :2] / sizes[:2] * row).sum(1)


def swapped(split: Split) -> Split:
    """The other order: where both labels are one-hot, nothing tells x̃ from x_s but its range."""
    turned = {n: getattr(split, n).flip(0) for n in ("f", "delta", "weights")}
    return split._replace(**turned)


def parallel(sizes: Tensor) -> bool:
    """Are both errors nearly parallel, by the singular values of the last layer's gradient?"""
    return bool(sizes[1] < 1e-2 * sizes[0])


def _corner(label: int, like: Tensor) -> Tensor:
    return one_hot(torch.tensor(label), len(like)).to(like)
