"""Recursion over layers: from the last layer back to the image by linear algebra alone.

Model Entanglement Eq. 11–12, and R-GAP (Zhu & Blaschko 2021). Proofs: "Through the layers"."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ...gradients import Tensors
from ...models import Net
from ...runtime import PrivflError, choose
from ...values import Part, Text
from ...wire import Upload
from ..base import Attack, Reconstruction

# activation -> slope and inverse of its *output* a, and its range; slope 0 means no way back
ACTIVATIONS = {
    nn.Sigmoid: (lambda a, off: a * (1 - a), torch.logit, (1e-9, 1 - 1e-9)),
    nn.Tanh: (lambda a, off: 1 - a * a, torch.atanh, (-1 + 1e-9, 1 - 1e-9)),
    nn.ReLU: (lambda a, off: (a > off * a.max()).to(a), lambda a: a, (0.0, torch.inf)),
}
OFF = (1e-5, 3e-6, 1e-6, 1e-4)  # what counts as 0 behind a ReLU; tried until the upload fits


class Step(NamedTuple):
    """How much of one layer's input is fixed, counted in directions of the space it lives in."""

    layer: str
    unknowns: int  # numbers in the input; all known if the other two add up to it
    by_gradient: int  # directions that the layer's own gradient fixes
    by_output: int  # further directions that its output fixes


@dataclass(frozen=True)
class Recursive(Attack):
    """Rebuild the one image behind each upload, layer by layer from the back, without a search.

    Knows Linear, Conv2d, Flatten and the activations above, in a plain chain. It enters at the last
    layer ("head", whatever its name), or at any fully connected layer with a bias:
    ``entry="features.7.encode"`` bypasses the layers after it (PRECODE). Singular values under
    ``tol`` of the largest count as 0: these directions hold rounding noise. ``details["steps"][u]``
    tells how it went, last layer first.
    """

    tol: Part = 1e-4
    entry: Text = "head"
    letter, most = "A", (1, 1)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """The image behind each upload; the cost is DLG's, the squared error of its gradient."""
        self.check(upload)
        net = copy.deepcopy(upload.model).double().requires_grad_(False)
        for name, _ in net.named_parameters():
            if name.endswith("weight") and name not in upload.tensors:
                raise PrivflError(f"the recursion needs {name!r}, which is not in the upload")
        best = [self._best(upload[u], net) for u in range(len(upload))]
        cost, images, labels, steps = map(list, zip(*best, strict=True))
        found = torch.cat(images).to(upload.model.last.weight)
        told = {"steps": steps}
        return Reconstruction(found, torch.cat(labels), torch.cat(cost), details=told)

    def _best(self, upload: Upload, net: Net) -> tuple[Tensor, Tensor, Tensor, list[Step]]:
        """Cost, image and label (1, …) for one upload: of the ways in OFF, the cheapest."""
        imitate, g = upload.imitator(), {n: t[0].double() for n, t in upload.gradients().items()}
        best, size = None, sum(t.square().sum() for t in upload.tensors.values())
        relu = any(isinstance(layer, nn.ReLU) for _, layer in net.chain())
        for off in OFF if relu else OFF[:1]:
            image, label, steps = self._one(g, net, off)
            again = imitate(image[None].to(upload.model.last.weight), label.view(1, 1))
            parts = ((again[n] - t).square().sum() for n, t in upload.tensors.items())
            cost = cast(Tensor, sum(parts))
            if best is None or cost < best[0]:
                best = cost.nan_to_num(torch.inf)[None], image, label[None], steps
            if best[0] < 1e-6 * size or any(k.unknowns > sum(k[2:]) for k in steps):
                break
        assert best is not None  # OFF has one at least
        return best

    def _one(self, g: Tensors, net: Net, off: float) -> tuple[Tensor, Tensor, list[Step]]:
        """Image and label behind one gradient. On the way back a is the value at the current point,
        back = ∂ℓ/∂a, and trust, the slope of the activation just passed, weighs equations."""
        entry = net.head_name if self.entry == "head" else self.entry
        dense = [n for n, m in net.named_modules() if isinstance(m, nn.Linear)]
        choose("fully connected layer for entry=", entry, dense)
        door, behind = cast(nn.Linear, net.get_submodule(entry)), f"{entry}.".startswith
        layers = list(takewhile(lambda part: not behind(f"{part[0]}."), net.chain()))
        a, delta = head_input(g[f"{entry}.weight"], g.get(f"{entry}.bias"), door)
        back, trust, steps, quiet = door.weight.T @ delta, torch.ones_like(a), [], 1e-12
        inputs = [a.new_zeros(1, *net.shape)]
        for _, layer in layers[:-1]:
            inputs.append(layer(inputs[-1]))
        for (name, layer), given in zip(reversed(layers), reversed(inputs), strict=False):
            shape = given.shape[1:]
            if isinstance(layer, (nn.Flatten, nn.Identity)):
                a, back, trust = (t.reshape(shape) for t in (a, back, trust))
            elif type(layer) in ACTIVATIONS:
                slope, inverse, span = ACTIVATIONS[type(layer)]
                trust = slope(a.clamp(*span), quiet)
                a, back = inverse(a.clamp(*span)), back * trust
            elif isinstance(layer, (nn.Linear, nn.Conv2d)):
                if isinstance(layer, nn.Linear):
                    back = g.get(f"{name}.bias", back)  # its bias gradient is δ itself
                known, free = from_gradient(layer, g[f"{name}.weight"], back, shape, self.tol)
                a, more = from_output(layer, known, free, a, trust, self.tol)
                steps.append(Step(name, a.numel(), a.numel() - len(free), more))
                (back,) = torch.func.vjp(layer, a[None])[1](back[None])
                back, trust, quiet = back[0], torch.ones_like(a), off  # from here on with noise
            else:
                raise PrivflError(f"the recursion knows no way back through {type(layer).__name__}")
        if entry != net.head_name:
            delta = g.get(f"{net.head_name}.bias", g[f"{net.head_name}.weight"].sum(1))
        return a.reshape(1, *net.shape), delta.argmin(), steps


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
    return a.T.reshape(shape), torch.block_diag(*[free.T] * shape[0]).reshape(-1, *shape)


def kernel_equations(layer: nn.Conv2d, delta: Tensor, size: tuple) -> Tensor:
    """M (outputs·k², pixels): an input channel a of this size has the weight gradient M a.

    ``delta`` (outputs, *size of the output) is ∂ℓ/∂output; the rows are those of ``by_channel``.
    """
    one = torch.eye(size[0] * size[1]).to(delta).view(-1, 1, *size)  # each pixel alone
    padding = cast(tuple[int, int], layer.padding)
    seen = nn.functional.unfold(one, layer.kernel_size, layer.dilation, padding, layer.stride)
    return torch.einsum("pkl,dl->dkp", seen, delta.flatten(1)).flatten(0, 1)


def by_channel(g_weight: Tensor) -> Tensor:
    """A weight gradient (outputs, inputs, k, k) as (outputs·k², inputs)."""
    return g_weight.flatten(2).transpose(1, 2).flatten(0, 1)


def from_output(
    layer: nn.Module, a: Tensor, free: Tensor, out: Tensor, trust: Tensor, tol: float
) -> tuple[Tensor, int]:
    """Fix the directions ``free`` by the layer's known output: W a + b = out where trust > 0."""
    if not len(free):
        return a, 0
    columns = ((layer(free) - layer(torch.zeros_like(a)[None])) * trust).flatten(1).T
    missing = ((out - layer(a[None])[0]) * trust).reshape(-1, 1)
    t, left = solve(columns.T @ columns, columns.T @ missing, tol**2)  # tall: normal equations
    return a + torch.einsum("ki,k...->...", t, free), len(free) - left.shape[1]


def solve(matrix: Tensor, right: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """Least squares of least norm (n, m), and a basis (n, k) of the directions left open."""
    u, s, vt = torch.linalg.svd(matrix, full_matrices=len(matrix) < matrix.shape[1])
    rank = int((s > tol * s[0]).sum())
    return vt[:rank].T @ (u[:, :rank].T @ right / s[:rank, None]), vt[rank:].T
