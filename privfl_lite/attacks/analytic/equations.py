"""The equations that one layer's gradient and its output give for its input, and their solution.

Model Entanglement Eq. 11–12, and R-GAP (Zhu & Blaschko 2021). Proofs: "Through the layers"."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from ...budget import budget
from ...runtime import PrivflError


def head_input(g_weight: Tensor, g_bias: Tensor | None, head: nn.Linear) -> tuple[Tensor, Tensor]:
    """r (D,) and δ = ∂ℓ/∂z (classes,) from the last layer's gradient, with or without its bias."""
    if g_bias is not None:
        return g_weight.T @ g_bias / g_bias.square().sum().clamp(min=1e-300), g_bias
    if len(g_weight) < 3:
        raise PrivflError("without a bias gradient the recursion needs at least three classes")
    u, s, vt = torch.linalg.svd(g_weight, full_matrices=False)
    sign = 1 if (u[:, 0] < 0).sum() == 1 else -1  # only the label's entry of δ is negative
    d, v = sign * u[:, 0] * s[0], sign * vt[0]  # ‖r‖ δ, and the direction of r
    wrong = d.argsort()[1:]  # for these δ_c / δ_k = exp(z_c − z_k), with z = ‖r‖ W v + b
    logs = d[wrong].log() - (0 if head.bias is None else head.bias[wrong])
    rises = (head.weight @ v)[wrong] - (head.weight @ v)[wrong].mean()
    length = (rises @ logs) / (rises @ rises)  # least squares over all wrong classes
    length = length.nan_to_num(1.0, 1.0, 1.0)  # noise has made some d negative: direction only
    return length * v, d / length


def from_gradient(
    layer: nn.Module, g_weight: Tensor, delta: Tensor, shape: tuple, tol: float
) -> tuple[Tensor, Tensor]:
    """What ∇W alone tells of a layer's input (*shape), and a basis (k, *shape) of the rest."""
    if isinstance(layer, nn.Linear):  # ∇W = δ aᵀ
        free = torch.eye(*shape).to(delta)[: 0 if delta.any() else None]
        return g_weight.T @ delta / delta.square().sum().clamp(min=1e-300), free
    equations = kernel_equations(cast(nn.Conv2d, layer), delta, shape[1:])
    a, free = solve(equations, by_channel(g_weight), tol)
    if 24 * free.numel() * shape[0] ** 2 > budget():
        raise PrivflError(
            f"the recursion ends at a convolution of {shape[0]} channels whose gradient leaves "
            f"{free.shape[1]} of {len(free)} directions open in each: too many for the memory"
        )
    return a.T.reshape(shape), torch.block_diag(*[free.T] * shape[0]).reshape(-1, *shape)


def kernel_equations(layer: nn.Conv2d, delta: Tensor, size: tuple) -> Tensor:
    """M (outputs·k², pixels): an input channel a of this size has the weight gradient M a.

    ``delta`` (outputs, *size of the output) is ∂ℓ/∂output; the rows are those of ``by_channel``.
    """
    one = torch.eye(size[0] * size[1]).to(delta).view(-1, 1, *size)  # each pixel alone
    return torch.einsum("pkl,dl->dkp", windows(layer, one), delta.flatten(1)).flatten(0, 1)


def windows(layer: nn.Conv2d, a: Tensor) -> Tensor:
    """What each window of a convolution sees of a (N, C, H, W): (N, C·k², positions)."""
    padding = cast(tuple[int, int], layer.padding)
    return nn.functional.unfold(a, layer.kernel_size, layer.dilation, padding, layer.stride)


def by_channel(g_weight: Tensor) -> Tensor:
    """A weight gradient (outputs, inputs, k, k) as (outputs·k², inputs)."""
    return g_weight.flatten(2).transpose(1, 2).flatten(0, 1)


def from_output(
    layer: nn.Module, a: Tensor, free: Tensor, out: Tensor, trust: Tensor, tol: float
) -> tuple[Tensor, int]:
    """Fix the directions ``free`` by the known output: W a + b = out where trust > 0.

    ``layer`` may be any affine map: a convolution, or one with batch norm and an average behind.
    If no trusted output sees a direction, such as a black corner behind a ReLU, its column holds
    rounding, by the measure of all outputs; then the directions stay open."""
    if not len(free):
        return a, 0
    every = layer(free) - layer(torch.zeros_like(a)[None])
    columns, least = (every * trust).flatten(1).T, (1e-12 * every.flatten(1).norm(dim=1).max()) ** 2
    missing = ((out - layer(a[None])[0]) * trust).reshape(-1, 1)
    normal, right = columns.T @ columns, columns.T @ missing  # tall: normal equations
    lower = definite(normal, tol**2, float(least))
    if lower is None:
        t, left = solve(normal, right, tol**2, float(least))
    else:
        t, left = torch.cholesky_solve(right, lower), normal[:, :0]
    return a + torch.einsum("ki,k...->...", t, free), len(free) - left.shape[1]


def definite(normal: Tensor, tol: float, least: float) -> Tensor | None:
    """The Cholesky factor of a symmetric matrix (n, n) where ``solve`` would leave no direction
    open, else None: all eigenvalues exceed a shift that it survives. Some 40 times faster."""
    most = normal.abs().sum(1).max()  # no eigenvalue is larger
    shift = torch.eye(len(normal)).to(normal) * max(tol * float(most), least)
    if torch.linalg.cholesky_ex(normal - shift).info:
        return None
    return torch.linalg.cholesky(normal)


def solve(matrix: Tensor, right: Tensor, tol: float, least: float = 0) -> tuple[Tensor, Tensor]:
    """Least squares of least norm (n, m), and a basis (n, k) of the directions left open.

    Singular values up to ``tol`` of the largest, and up to ``least``, count as 0."""
    u, s, vt = torch.linalg.svd(matrix, full_matrices=len(matrix) < matrix.shape[1])
    rank = int((s > max(tol * float(s[0]), least)).sum())
    return vt[:rank].T @ (u[:, :rank].T @ right / s[:rank, None]), vt[rank:].T


def from_gradient_alone(
    layer: nn.Conv2d, g_weight: Tensor, g_bias: Tensor, size: tuple, tol: float
) -> tuple[Tensor, Tensor, int]:
    """Input (inputs, *size), error signal (outputs, positions) and rank, with nothing from above.

    If ∇W = M(δ) a has rank n, the number of pixels, its columns span those of M(δ): a condition
    linear in δ, which leaves δ one scale, and ∇b = Σ δ tells that (prop-gradient-alone). It is
    asked of as many outputs as it takes, those with the largest gradients.
    """
    pixels, entries = size[0] * size[1], layer.weight[0, 0].numel()
    most = g_weight.flatten(1).norm(dim=1).argsort(descending=True)
    most = most[: max(32, 3 * pixels // (2 * max(1, entries - 1)))]
    known = by_channel(g_weight[most])
    left, sizes, _ = torch.linalg.svd(known, full_matrices=False)
    rank = int((sizes[:pixels] > tol**2 * sizes[0]).sum())
    outside = torch.eye(len(known)).to(known) - left[:, :rank] @ left[:, :rank].T
    outside = outside.view(len(most), entries, len(most), entries)
    seen = windows(layer, torch.eye(pixels).to(known).view(-1, 1, *size))  # (pixels, k², positions)
    pairs = torch.einsum("pkl,pqr->kqlr", seen, seen)
    square = torch.einsum("dkeq,kqlr->dler", outside, pairs).flatten(2).flatten(0, 1)
    square.diagonal().add_(1e-12 * square.diagonal().mean())
    lower, delta = torch.linalg.cholesky(square), torch.ones(len(square), 1).to(known)
    for _ in range(5):  # to the eigenvector of the least eigenvalue: the least part outside
        delta = torch.cholesky_solve(nn.functional.normalize(delta, dim=0), lower)
    delta = nn.functional.normalize(delta, dim=0).view(len(most), -1)
    sums = delta.sum(1)
    delta = delta * (sums @ g_bias[most]) / sums.square().sum().clamp(min=1e-300)
    a, _ = solve(torch.einsum("pkl,dl->dkp", seen, delta).flatten(0, 1), known, tol)
    a = a.T.reshape(-1, *size)
    delta, _ = solve(windows(layer, a[None])[0], g_weight.flatten(1).T, tol)  # of all outputs
    return a, delta.T, rank
