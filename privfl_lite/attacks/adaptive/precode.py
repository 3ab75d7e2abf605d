"""Ten attackers of PRECODE's bottleneck, who imitate, read or go around its draw.

One image an upload, labels granted; the bottleneck is the last of the features (chapter: changing
the model).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ...gradients import Tensors, loss_function, stateless, weights
from ...models import built
from ...models.bottleneck import Bottleneck
from ...runtime import PrivflError, generator, seeded
from ...values import Word
from ...wire import Upload
from ..analytic.recursive import Recursive
from ..base import Reconstruction
from ..matching.search import GS, IDLG, Matching
from ..matching.terms import distance

ATTACKS = {  # name -> what the attacker does
    "GS": "cosine, fresh noise at each evaluation",
    "L-BFGS": "L2, fresh noise at each evaluation",
    "average": "L2 to the mean gradient of 8 draws",
    "no noise": "L2, imitates with noise 0",
    "drop": "L2, noise 0, only the tensors in front of the draw",
    "joint": "L2, searches for image and noise together",
    "noise read": "L2, imitates with the noise read off the upload",
    "inversion": "matches the representation that the encoder gives away",
    "cut": "matches the layers in front of the draw, cut off from it",
    "recursion": "goes back from the encoder by linear algebra",
}

WAYS = list(ATTACKS)[2:-1]


class Chosen(Bottleneck):
    """A bottleneck's own layers, with the noise as an input: a buffer (size,) of the attacker's."""

    given: Tensor

    def __init__(self, layer: Bottleneck):
        nn.Module.__init__(self)  # no new layers, which would draw random weights
        self.encode, self.decode, self.beta = layer.encode, layer.decode, layer.beta
        self.penalty = 0.0
        self.register_buffer("given", torch.zeros(layer.decode.in_features))

    def noise(self, mean: Tensor) -> Tensor:
        return self.given


def door(upload: Upload) -> str:
    """The name of the bottleneck, the last of the features."""
    built(upload.model, "the attack on PRECODE")
    if not isinstance(upload.model.features[-1], Bottleneck):
        raise PrivflError("this attack is for a network with PRECODE's bottleneck; there is none")
    return f"features.{len(upload.model.features) - 1}"


def draw_size(upload: Upload) -> int:
    """How many numbers the bottleneck draws."""
    return upload.model.features[-1].decode.in_features


def imitator(upload: Upload) -> Callable[[Tensor, Tensor, Tensor], Tensors]:
    """f(x, y, noise): gradients (P, …) of clients with x (P, B, …), y (P, B), noise (P, size)."""
    net, name = stateless(upload.model, upload.mode), door(upload)
    net.features[-1] = Chosen(net.features[-1])
    theta, loss = weights(upload.model), loss_function(net)

    def one(x: Tensor, y: Tensor, noise: Tensor) -> Tensors:
        def at(theta: Tensors) -> Tensor:
            return loss(functional_call(net, {**theta, f"{name}.given": noise}, (x,)), y)

        return grad(at)(theta)

    return vmap(one)


def input_of(upload: Upload, layer: str) -> Tensor:
    """What entered a fully connected layer with a bias, (U, in): ∇Wᵀ∇b / ‖∇b‖²."""
    g, b = upload.tensors[f"{layer}.weight"].double(), upload.tensors[f"{layer}.bias"].double()
    a = torch.einsum("uoi,uo->ui", g, b) / b.square().sum(1, keepdim=True)
    return a.to(upload.tensors[f"{layer}.weight"])


def read_noise(upload: Upload) -> Tensor:
    """The client's own noise (U, size): ε = (z − μ(r)) / σ(r), with r and z read off."""
    name = door(upload)
    with torch.no_grad():
        mean, std = upload.model.features[-1].code(input_of(upload, f"{name}.encode"))
    return (input_of(upload, f"{name}.decode") - mean) / std


def cut_cost(upload: Upload, features: bool = True, gradients: bool = True) -> Callable:
    """cost(x, rows): how far images x (P, C, H, W) are from what stands in front of the draw.

    ``features``: ‖f(x) − r‖² / ‖r‖², where r was read. ``gradients``: for each tensor the squared
    distance of the gradient of ⟨Wᵀ∇b, f(x)⟩ to the upload's, relative to its size.
    """
    name, net = door(upload), stateless(upload.model, upload.mode).features[:-1]
    r, theta = input_of(upload, f"{name}.encode"), dict(net.named_parameters())
    back = upload.tensors[f"{name}.encode.bias"] @ upload.model.features[-1].encode.weight.detach()
    seen = {n: upload.tensors[f"features.{n}"] for n in theta}
    size = {n: t.flatten(1).square().sum(1).clamp(min=1e-30) for n, t in seen.items()}
    gradient = vmap(
        grad(lambda th, x, b: functional_call(net, th, (x[None],))[0] @ b), (None, 0, 0)
    )

    def cost(x: Tensor, rows: Tensor) -> Tensor:
        total = x.new_zeros(len(x))
        if features:
            off = functional_call(net, theta, (x,)) - r[rows]
            total = total + off.square().sum(1) / r[rows].square().sum(1)
        if gradients:
            g = gradient(theta, x, back[rows])
            gaps = ((g[n] - t[rows]).flatten(1).square().sum(1) for n, t in seen.items())
            total = total + sum(gap / size[n][rows] for n, gap in zip(seen, gaps, strict=True))
        return total

    return cost


@dataclass(frozen=True)
class DrawMatching(Matching):
    """Search for the image in one of the ways of ATTACKS, from "average" to "cut".

    ``way="joint"`` looks for the noise besides, from 0; "inversion" begins with a gray image.
    """

    way: Annotated[str, Word("way", *WAYS)] = "joint"
    needs = ("labels",)
    answers = ("precode",)
    most = (1, 1)

    def unknowns(self, upload: Upload) -> int:
        return draw_size(upload) if self.way == "joint" else 0

    def _start(self, problems: int, shape: tuple[int, ...], others: int, seed: int) -> Tensor:
        z = super()._start(problems, shape, others, seed)
        if self.way == "inversion":
            return torch.full_like(z, 0.5)
        z[:, z.shape[1] - others :] = 0.0
        return z

    def cost(self, upload: Upload) -> Callable[..., Tensor]:
        """cost(x, y, who, noise): as in ``Matching``, with noise of the attacker's choice."""
        if self.way in ("inversion", "cut"):
            cut = cut_cost(upload, gradients=self.way == "cut")
            return lambda x, y, who, others: cut(x[:, 0], who)
        seen, imitate, k = upload.gradients(), imitator(upload), draw_size(upload)
        like = upload.tensors["head.weight"]
        fixed = read_noise(upload) if self.way == "noise read" else like.new_zeros(len(upload), k)
        draws = [torch.randn(k, generator=generator(7, j)).to(like) for j in range(8)]
        behind = ("head", door(upload)) if self.way == "drop" else ()
        names = [n for n in seen if not n.startswith(behind)]

        def cost(x: Tensor, y: Tensor, who: Tensor, others: Tensor) -> Tensor:
            if self.way == "average":
                many = [imitate(x, y, e.expand(len(x), k)) for e in draws]
                g = {n: cast(Tensor, sum(m[n] for m in many)) / len(many) for n in names}
            else:
                g = imitate(x, y, others if self.way == "joint" else fixed[who])
            return distance(self.distance, g, {n: seen[n][who] for n in names}, names)

        return cost


def attack(name: str, upload: Upload, steps: int, seed: int = 0) -> Tensor:
    """The images (U, C, H, W) that one of ATTACKS finds; ``steps`` evaluations."""
    how: dict[str, Any] = {"steps": steps, "show": False}
    if name == "recursion":
        return Recursive(entry=f"{door(upload)}.encode").run(upload).images
    if name in ("GS", "L-BFGS"):
        return (GS if name == "GS" else IDLG)(**how).run(upload, seed).images
    if name == "average":
        how["steps"] = steps // 4
    if name == "inversion":
        how |= {"steps": 2 * steps, "optimizer": "adam", "box": True, "tv": 1e-4}
    return DrawMatching(way=name, **how).run(upload, seed).images


@dataclass(frozen=True)
class BeforeDraw(Recursive):
    """Enter at the encoder, the last of the features, and go back layer by layer.

    Chapter: changing the model.
    """

    answers = ("precode",)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        built(upload.model, "BeforeDraw")
        encoder = f"features.{len(upload.model.features) - 1}.encode"
        with seeded(seed):  # the network draws when the cost is computed
            return Recursive(**vars(replace(self, entry=encoder))).run(upload, seed)
