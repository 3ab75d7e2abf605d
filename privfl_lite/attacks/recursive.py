"""Recursion over layers: from the last layer back to the image by linear algebra alone.

Model Entanglement's appendix (Eq. 11–12) describes it for fully connected layers; R-GAP (Zhu &
Blaschko 2021) carried it to convolutions. The chapter "Why gradients leak" proves each step. A step
uses only what the server has: a layer's gradient and weights, and what the layer above gave away.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import vjp
from torch.nn.functional import unfold

from ..gradients import Tensors
from ..runtime import PrivflError
from ..wire import Upload
from .base import Reconstruction

# activation -> slope and inverse as functions of its *output* a, and the outputs it can have.
# Slope 0 says "no way back here". A ReLU output under 1e-5 of the largest is taken for 0.
ACTIVATIONS: dict[type, tuple[Callable, Callable, tuple[float, float]]] = {
    nn.Sigmoid: (lambda a: a * (1 - a), torch.logit, (1e-9, 1 - 1e-9)),
    nn.Tanh: (lambda a: 1 - a * a, torch.atanh, (-1 + 1e-9, 1 - 1e-9)),
    nn.ReLU: (lambda a: (a > 1e-5 * a.max()).to(a), lambda a: a, (0.0, torch.inf)),
    nn.Identity: (torch.ones_like, lambda a: a, (-torch.inf, torch.inf)),
}


@dataclass(frozen=True)
class Step:
    """How much of one layer's input is fixed, counted in directions of the space it lives in."""

    layer: str
    unknowns: int  # numbers in the input
    by_gradient: int  # directions that the layer's own gradient fixes
    rank: int  # with its output as well; the input is known where this equals ``unknowns``


@dataclass
class Recursive:
    """Rebuild the one image behind each upload, layer by layer from the back, without a search.

    Goes back through fully connected layers, convolutions, ``Flatten`` and the activations above.
    Singular values under ``tol`` of the largest count as zero: in a 32-bit upload such directions
    hold rounding noise. Where the rank falls short, the answer has no part along the missing
    directions. After a run, ``steps[u]`` tells how it went for upload u, last layer first.
    """

    tol: float = 1e-4
    steps: list[list[Step]] = field(default_factory=list, repr=False)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """The image behind each upload; cost: relative squared error of its own gradient."""
        if upload.batch != 1 or upload.local_steps != 1:
            raise PrivflError(
                "the recursion reads one image from one gradient step; this upload has "
                f"{upload.batch} images and {upload.local_steps} steps behind it"
            )
        net = copy.deepcopy(upload.model).double().requires_grad_(False)
        for layer in net.features:
            if type(layer) not in (nn.Linear, nn.Conv2d, nn.Flatten, *ACTIVATIONS):
                raise PrivflError(
                    f"the recursion has no step for {type(layer).__name__}; it goes back through "
                    "Linear, Conv2d, Flatten, Sigmoid, Tanh, ReLU and Identity"
                )
        g, self.steps = {n: t.double() for n, t in upload.gradients().items()}, []
        found = [self._one({n: t[u] for n, t in g.items()}, net) for u in range(len(upload))]
        images, labels = (torch.stack(part) for part in zip(*found, strict=True))
        images = images.to(upload.tensors["head.weight"])
        again = upload.imitator()(images[:, None], labels[:, None])
        size, miss = images.new_zeros(2, len(images))
        for name, t in upload.tensors.items():
            size += t.flatten(1).square().sum(1)
            miss += (again[name] - t).flatten(1).square().sum(1)
        return Reconstruction(images, labels, (miss / size).nan_to_num(torch.inf))

    def _one(self, g: Tensors, net: nn.Module) -> tuple[Tensor, Tensor]:
        """Image (C, H, W) and label behind one gradient.

        On the way back a is the value at the current point of the network, back is ∂ℓ/∂a, and trust
        is the slope of the activation just passed: it weighs equations by how reliable they are.
        """
        a, delta = head_input(g["head.weight"], g.get("head.bias"), net.head)
        back, trust = net.head.weight.T @ delta, torch.ones_like(a)
        steps, shapes = [Step("head", len(a), len(a), len(a))], [net.shape]
        for layer in net.features:
            shapes.append(layer(torch.zeros(1, *shapes[-1]).to(a)).shape[1:])
        for i in reversed(range(len(net.features))):
            layer = net.features[i]
            if isinstance(layer, nn.Flatten):
                a, back, trust = (t.reshape(shapes[i]) for t in (a, back, trust))
            elif type(layer) in ACTIVATIONS:
                slope, inverse, span = ACTIVATIONS[type(layer)]
                trust = slope(a.clamp(*span))
                a, back = inverse(a.clamp(*span)), back * trust
            else:
                name, out = f"features.{i}", a
                a, free = input_from_gradient(
                    layer, g[f"{name}.weight"], g.get(f"{name}.bias"), back, shapes[i], self.tol
                )
                rank = a.numel() - len(free)
                a, more = add_output(layer, a, free, out, trust, self.tol)
                steps.append(Step(name, a.numel(), rank, rank + more))
                back, trust = vjp(layer, a[None])[1](back[None])[0][0], torch.ones_like(a)
        self.steps.append(steps)
        return a.reshape(net.shape), delta.argmin()


def head_input(g_weight: Tensor, g_bias: Tensor | None, head: nn.Linear) -> tuple[Tensor, Tensor]:
    """r (D,) and δ = ∂ℓ/∂z (classes,) from the last layer's gradient, with or without its bias.

    Without one, ∇W = δ rᵀ gives r = s·v up to its length s; δ has one negative entry, which settles
    the sign; two wrong classes settle s, since δ_c / δ_k = exp(z_c − z_k) and z = s W v + b.
    """
    if g_bias is not None:
        return g_weight.T @ g_bias / g_bias.square().sum(), g_bias
    if len(g_weight) < 3:
        raise PrivflError("without a bias gradient the recursion needs at least three classes")
    u, s, vt = torch.linalg.svd(g_weight, full_matrices=False)
    d, v = u[:, 0] * s[0], vt[0]  # d = s·δ
    d, v = (-d, -v) if (d < 0).sum() > 1 else (d, v)
    wrong = d.argsort()[1:]  # the label has the only negative entry
    b = 0 if head.bias is None else head.bias[wrong]
    rises, logs = (head.weight @ v)[wrong], d[wrong].log() - b
    rises, logs = rises - rises.mean(), logs - logs.mean()
    length = (rises @ logs) / rises.square().sum()  # least squares over all wrong classes
    return length * v, d / length


def input_from_gradient(
    layer: nn.Module,
    g_weight: Tensor,
    g_bias: Tensor | None,
    delta: Tensor,
    shape: tuple,
    tol: float,
) -> tuple[Tensor, Tensor]:
    """What ∇W alone tells of a layer's input (*shape), and a basis (k, *shape) of what it does not.

    Fully connected: ∇W = δ aᵀ tells all unless δ = 0. Convolution: ∇W is linear in the input, with
    the same equations for each of its channels.
    """
    if isinstance(layer, nn.Linear):
        delta = delta if g_bias is None else g_bias
        if delta.any():
            return g_weight.T @ delta / delta.square().sum(), delta.new_zeros(0, *shape)
        return delta.new_zeros(shape), torch.eye(*shape).to(delta)
    pixels = shape[1] * shape[2]
    one = torch.eye(pixels).to(delta).view(pixels, 1, *shape[1:])
    seen = unfold(one, layer.kernel_size, padding=layer.padding, stride=layer.stride)
    equations = torch.einsum("pkl,dl->dkp", seen, delta.flatten(1)).flatten(0, 1)
    a, free = solve(equations, g_weight.flatten(2).transpose(1, 2).flatten(0, 1), tol)
    basis = torch.block_diag(*[free.T] * shape[0]) if free.numel() else free.T
    return a.T.reshape(shape), basis.reshape(-1, *shape)


def add_output(
    layer: nn.Module, a: Tensor, free: Tensor, out: Tensor, trust: Tensor, tol: float
) -> tuple[Tensor, int]:
    """Fix the directions ``free`` by the layer's known output: W a + b = out where trust > 0."""
    if not len(free):
        return a, 0
    columns = (layer(free) - layer(torch.zeros_like(a)[None])) * trust
    t, left = solve(columns.flatten(1).T, ((out - layer(a[None])[0]) * trust).view(-1, 1), tol)
    return a + torch.einsum("ki,k...->...", t, free), len(free) - left.shape[1]


def solve(matrix: Tensor, right: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """Least squares of least norm, (n, m), and a basis (n, k) of the directions left open."""
    u, s, vt = torch.linalg.svd(matrix, full_matrices=len(matrix) < matrix.shape[1])
    rank = int((s > tol * s[0]).sum())
    return vt[:rank].T @ (u[:, :rank].T @ right / s[:rank, None]), vt[rank:].T
