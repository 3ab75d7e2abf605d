"""Recursion over layers: from the last layer back to the image by linear algebra alone.

Model Entanglement's appendix (Eq. 11–12) describes it for fully connected layers; R-GAP (Zhu &
Blaschko 2021) carried it to convolutions. The chapter "Why gradients leak" proves each step. A step
uses only what the server has: a layer's gradient and weights, and what the layer above gave away.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..gradients import Tensors
from ..runtime import PrivflError
from ..wire import Upload
from .base import Reconstruction

# activation -> slope and inverse, both of its *output* a, and its range. Slope 0: no way back.
ACTIVATIONS = {
    nn.Sigmoid: (lambda a: a * (1 - a), torch.logit, (1e-9, 1 - 1e-9)),
    nn.Tanh: (lambda a: 1 - a * a, torch.atanh, (-1 + 1e-9, 1 - 1e-9)),
    nn.ReLU: (lambda a: (a > 1e-5 * a.max()).to(a), lambda a: a, (0.0, torch.inf)),  # or noise
    nn.Identity: (torch.ones_like, lambda a: a, (-torch.inf, torch.inf)),
}


class Step(NamedTuple):
    """How much of one layer's input is fixed, counted in directions of the space it lives in."""

    layer: str
    unknowns: int  # numbers in the input; all known if the other two add up to it
    by_gradient: int  # directions that the layer's own gradient fixes
    by_output: int  # further directions that its output fixes


@dataclass
class Recursive:
    """Rebuild the one image behind each upload, layer by layer from the back, without a search.

    Knows Linear, Conv2d, Flatten and the activations above. Singular values under ``tol`` of the
    largest count as zero: such directions hold rounding noise. ``steps[u]`` tells how it went for
    upload u, last layer first.
    """

    tol: float = 1e-4
    steps: list[list[Step]] = field(default_factory=list, repr=False)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """The image behind each upload; the cost is DLG's, the squared error of its gradient."""
        if upload.batch != 1 or upload.local_steps != 1:
            behind = f"{upload.batch} images and {upload.local_steps} steps"
            raise PrivflError(f"the recursion needs 1 image and 1 step an upload, not {behind}")
        net = copy.deepcopy(upload.model).double().requires_grad_(False)
        g, self.steps = {n: t.double() for n, t in upload.gradients().items()}, []
        found = [self._one({n: t[u] for n, t in g.items()}, net) for u in range(len(upload))]
        images, labels = (torch.stack(part) for part in zip(*found, strict=True))
        images = images.to(upload.tensors["head.weight"])
        again = upload.imitator()(images[:, None], labels[:, None])
        miss = sum((again[n] - t).flatten(1).square().sum(1) for n, t in upload.tensors.items())
        return Reconstruction(images, labels, miss.nan_to_num(torch.inf))

    def _one(self, g: Tensors, net: nn.Module) -> tuple[Tensor, Tensor]:
        """Image (C, H, W) and label behind one gradient: a is the value at the current point of the
        network, back is ∂ℓ/∂a, trust the slope of the activation just passed (weighs equations)."""
        a, delta = head_input(g["head.weight"], g.get("head.bias"), net.head)
        back, trust, steps = net.head.weight.T @ delta, torch.ones_like(a), []
        inputs = [a.new_zeros(1, *net.shape)]
        for layer in net.features:
            inputs.append(layer(inputs[-1]))
        for i in reversed(range(len(net.features))):
            layer, shape, name = net.features[i], inputs[i].shape[1:], f"features.{i}"
            if isinstance(layer, nn.Flatten):
                a, back, trust = (t.reshape(shape) for t in (a, back, trust))
            elif type(layer) in ACTIVATIONS:
                slope, inverse, span = ACTIVATIONS[type(layer)]
                trust, a = slope(a.clamp(*span)), inverse(a.clamp(*span))
                back = back * trust
            elif isinstance(layer, (nn.Linear, nn.Conv2d)):
                if isinstance(layer, nn.Linear):
                    back = g.get(f"{name}.bias", back)  # its bias gradient is δ itself
                known, free = from_gradient(layer, g[f"{name}.weight"], back, shape, self.tol)
                a, more = from_output(layer, known, free, a, trust, self.tol)
                steps.append(Step(name, a.numel(), a.numel() - len(free), more))
                (back,) = torch.func.vjp(layer, a[None])[1](back[None])
                back, trust = back[0], torch.ones_like(a)
            else:
                raise PrivflError(f"the recursion knows no way back through {layer}")
        self.steps.append(steps)
        return a.reshape(net.shape), delta.argmin()


def head_input(g_weight: Tensor, g_bias: Tensor | None, head: nn.Linear) -> tuple[Tensor, Tensor]:
    """r (D,) and δ = ∂ℓ/∂z (classes,) from the last layer's gradient, with or without its bias.

    Without, ∇W = δ rᵀ gives the direction v of r; δ has one negative entry, which settles its sign;
    two wrong classes settle the length s: δ_c / δ_k = exp(z_c − z_k) with z = s W v + b.
    """
    if g_bias is not None:
        return g_weight.T @ g_bias / g_bias.square().sum(), g_bias
    if len(g_weight) < 3:
        raise PrivflError("without a bias gradient the recursion needs at least three classes")
    u, s, vt = torch.linalg.svd(g_weight, full_matrices=False)
    sign = 1 if (u[:, 0] < 0).sum() == 1 else -1
    d, v = sign * u[:, 0] * s[0], sign * vt[0]  # d = s·δ
    wrong = d.argsort()[1:]  # the label has the only negative entry
    logs = d[wrong].log() - (0 if head.bias is None else head.bias[wrong])
    rises = (head.weight @ v)[wrong] - (head.weight @ v)[wrong].mean()
    length = (rises @ logs) / (rises @ rises)  # least squares over all wrong classes
    return length * v, d / length


def from_gradient(
    layer: nn.Module, g_weight: Tensor, delta: Tensor, shape: tuple, tol: float
) -> tuple[Tensor, Tensor]:
    """What ∇W alone tells of a layer's input (*shape), and a basis (k, *shape) of the rest.

    Linear: ∇W = δ aᵀ. Convolution: ∇W is linear in a, the same equations for each channel.
    """
    if isinstance(layer, nn.Linear):
        free = torch.eye(*shape).to(delta)[: 0 if delta.any() else None]
        return g_weight.T @ delta / delta.square().sum().clamp(min=1e-300), free
    one = torch.eye(shape[1] * shape[2]).to(delta).view(-1, 1, *shape[1:])  # each pixel alone
    window = (layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    seen = nn.functional.unfold(one, *window)  # (pixels, k², positions)
    equations = torch.einsum("pkl,dl->dkp", seen, delta.flatten(1)).flatten(0, 1)
    a, free = solve(equations, g_weight.flatten(2).transpose(1, 2).flatten(0, 1), tol)
    return a.T.reshape(shape), torch.block_diag(*[free.T] * shape[0]).reshape(-1, *shape)


def from_output(
    layer: nn.Module, a: Tensor, free: Tensor, out: Tensor, trust: Tensor, tol: float
) -> tuple[Tensor, int]:
    """Fix the directions ``free`` by the layer's known output: W a + b = out where trust > 0."""
    if not len(free):
        return a, 0
    columns = ((layer(free) - layer(torch.zeros_like(a)[None])) * trust).flatten(1).T
    t, left = solve(columns, ((out - layer(a[None])[0]) * trust).reshape(-1, 1), tol)
    return a + torch.einsum("ki,k...->...", t, free), len(free) - left.shape[1]


def solve(matrix: Tensor, right: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """Least squares of least norm (n, m), and a basis (n, k) of the directions left open."""
    u, s, vt = torch.linalg.svd(matrix, full_matrices=len(matrix) < matrix.shape[1])
    rank = int((s > tol * s[0]).sum())
    return vt[:rank].T @ (u[:, :rank].T @ right / s[:rank, None]), vt[rank:].T
