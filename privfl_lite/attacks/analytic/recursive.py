"""Recursion over layers: from the last layer back to the image by linear algebra alone.

Model Entanglement Eq. 11–12, and R-GAP (Zhu & Blaschko 2021). Proofs: "Through the layers"."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import takewhile
from typing import cast

import torch
from torch import Tensor, nn

from ...gradients import Tensors
from ...models import Net
from ...runtime import PrivflError, choose
from ...values import Part, Text
from ...wire import Upload
from ..base import Attack, Reconstruction
from .equations import head_input
from .way_back import NORMS, Step, Way

OFF = (1e-5, 3e-6, 1e-6, 1e-4)  # what counts as 0 behind a ReLU; tried until the upload fits


@dataclass(frozen=True)
class Recursive(Attack):
    """Rebuild the one image behind each upload, layer by layer from the back, without a search.

    Knows Linear, Conv2d, Flatten, Sigmoid, Tanh, ReLU, batch norm in eval mode, pooling, and the
    blocks of our ResNets, in a chain. Where it ends, it names the layer: behind pooling a
    convolution must have an input channel for each pixel (and a bias gradient, its own or its batch
    norm's), but an average with no activation in front; inside a block the last convolution needs
    outputs · k² ≥ pixels. It enters at the last layer ("head", whatever its name), or at any fully
    connected layer with a bias: ``entry="features.7.encode"`` bypasses the layers after it
    (PRECODE). Singular values under ``tol`` of the largest count as 0: these directions hold
    rounding noise. ``details["steps"][u]`` tells how it went, last layer first.
    """

    tol: Part = 1e-4
    entry: Text = "head"
    letter, most = "A", (1, 1)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """The image behind each upload; the cost is DLG's, the squared error of its gradient."""
        self.check(upload)
        if upload.mode == "train" and any(isinstance(m, NORMS) for m in upload.model.modules()):
            raise PrivflError("the recursion needs batch norm in eval mode, not in train mode")
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
        relu = any(isinstance(layer, nn.ReLU) for layer in net.modules())
        fine = (1e-12,) if upload.model.last.weight.dtype == torch.float64 else ()
        for off in (*fine, *OFF) if relu else OFF[:1]:
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
        """Image, label and steps behind one gradient; ``off`` decides what is 0 behind a ReLU."""
        entry = net.head_name if self.entry == "head" else self.entry
        dense = [n for n, m in net.named_modules() if isinstance(m, nn.Linear)]
        choose("fully connected layer for entry=", entry, dense)
        door, behind = cast(nn.Linear, net.get_submodule(entry)), f"{entry}.".startswith
        layers = list(takewhile(lambda part: not behind(f"{part[0]}."), net.chain()))
        a, delta = head_input(g[f"{entry}.weight"], g.get(f"{entry}.bias"), door)
        way = Way(g, self.tol, off, a, door.weight.T @ delta)
        way.through(layers, a.new_zeros(1, *net.shape))
        if entry != net.head_name:
            delta = g.get(f"{net.head_name}.bias", g[f"{net.head_name}.weight"].sum(1))
        return way.image(net.shape), delta.argmin(), way.steps
