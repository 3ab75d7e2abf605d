"""The linear system that opens FedKL's lock; ``fedkl_recursion`` says what its letters mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..analytic.equations import by_channel, kernel_equations

Secret = tuple[Tensor, Tensor]  # γ and β, (channels,) each


def lines(u: Tensor, s: Tensor, trust: Tensor, live: Tensor) -> Tensor:
    """γ before β: the line through (û, s) of each channel, weighed by trust; 0 if not ``live``."""
    u, t, w = (v.flatten(1) for v in (u, s, trust.square()))
    u0, t0 = ((w * v).sum(1, keepdim=True) / w.sum(1, keepdim=True) for v in (u, t))
    gamma = (w * (u - u0) * (t - t0)).sum(1) / (w * (u - u0).square()).sum(1)
    gamma = torch.where(live, gamma, 0.0)
    return torch.cat([gamma, t0[:, 0] - gamma * u0[:, 0]]).nan_to_num(0.0)


def projected(s: Tensor, ds: Tensor, secret: Secret | None = None) -> Tensor:
    """P(∂ℓ/∂s) of each channel (Eq. 26 times σ/γ): no mean, nothing along û.

    û is s with mean 0 and length 1 (so ε = 0); given γ and β, it is (s − β)/γ.
    """
    u = s.flatten(1) - s.flatten(1).mean(1, keepdim=True)
    u = u / u.norm(dim=1, keepdim=True).clamp(min=1e-300)
    if secret is not None:
        gamma, beta = (t[:, None] for t in secret)
        u = (s.flatten(1) - beta) / gamma / s[0].numel() ** 0.5
        u = torch.where(gamma == 0, 0.0, u)
    d = ds.flatten(1) - ds.flatten(1).mean(1, keepdim=True)
    return (d - u * (u * d).sum(1, keepdim=True)).view_as(ds)


def with_known_shift(
    full: Tensor, layer: nn.Conv2d, beta: Tensor, shape: tuple, live: Tensor
) -> Tensor:
    """The normal equations for (a, x) alone: given β, b = mean(Wx) − a β."""
    k, pixels = len(beta), torch.Size(shape).numel()
    mean = linear_part(layer, shape).mean((2, 3))[:, live].T  # (k, pixels)
    basis = torch.cat([torch.eye(k + pixels).to(full), torch.cat([-beta.diag(), mean], 1)])
    return basis.T @ full @ basis


def linear_part(layer: nn.Conv2d, shape: tuple) -> Tensor:
    """The layer's answer to each pixel alone, without its bias: (pixels, C, H, W)."""
    one = torch.eye(torch.Size(shape).numel()).to(layer.weight).view(-1, *shape)
    return layer(one) - layer(one[:1] * 0)


def normal_equations(
    layer: nn.Conv2d, s: Tensor, du: Tensor, trust: Tensor, g: Tensor, shape: tuple, live: Tensor
) -> Tensor:
    """AᵀA for A (a, x, b) = 0, the equations of the live channels.

    Rows: W x − a s − b = 0 at every position, weighed by trust (the slope of the activation, by
    which errors of s grow); M x − a ∇W = 0, weighed by the size of M, which is that of ∂ℓ/∂s.
    """
    pixels, k = torch.Size(shape).numel(), int(live.sum())
    columns = linear_part(layer, shape)[:, live].flatten(1).T  # (k·positions, pixels)
    weight = trust[live].flatten()[:, None] / trust.max()
    which = torch.eye(k).to(s).repeat_interleave(s[0].numel(), 0)
    rows = torch.cat([-which * s[live].reshape(-1, 1), columns, -which], 1) * weight
    full = rows.T @ rows
    m = kernel_equations(layer, du[live], shape[1:]).unflatten(0, (k, -1))  # (k, kernel, n)
    size = m.flatten(1).norm(dim=1).clamp(min=1e-300)
    right = by_channel(g[live]).unflatten(0, (k, -1))
    m, right = (t / size[:, None, None] for t in (m, right))
    square = torch.einsum("dkn,dkm->nm", m, m)
    cross = -torch.einsum("dkn,dkc->dcn", m, right).flatten(1)  # (k, C·n)
    full[:k, :k] += torch.diag(right.flatten(1).square().sum(1))
    full[:k, k : k + pixels] += cross
    full[k : k + pixels, :k] += cross.T
    full[k : k + pixels, k : k + pixels] += torch.block_diag(*[square] * shape[0])
    return full
