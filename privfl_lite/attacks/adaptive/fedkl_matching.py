"""Gradient matching against FedKL's key-lock: by what the server knows of γ and β.

The lock hides two numbers a channel of the first block, 24 for LeNet. An attacker who knows of it
searches for them together with the image. ``unlock`` needs no search where it applies; this one
works for every network, for batches and for local training in one step. Chapter: FedKL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ...checking import checked
from ...gradients import Tensors, loss_function, stateless, weights
from ...models.keylock import coefficients, lock_matrix, locks
from ...runtime import PrivflError
from ...values import Positive, Word
from ...wire import Upload
from ..matching.search import Matching
from ..matching.terms import distance

SECRETS = {  # what the attacker does about γ and β
    "joint": "searches for γ and β with the image; dead channels have γ = 0",
    "key": "searches for the key with the image; holds the lock (as in the released DLG test)",
    "wrong": "takes a key of its own; holds the lock (as in the released GGL test)",
    "known": "holds γ and β, or key and lock",
}


class Opened(nn.Module):
    """A normalization whose scale and shift are inputs: buffers that the attacker sets."""

    gamma: Tensor
    beta: Tensor

    def __init__(self, norm: nn.BatchNorm2d):
        super().__init__()
        self.norm = norm
        self.register_buffer("gamma", torch.ones(norm.num_features))
        self.register_buffer("beta", torch.zeros(norm.num_features))

    def forward(self, u: Tensor) -> Tensor:  # (B, channels, H, W)
        return self.gamma[:, None, None] * self.norm(u) + self.beta[:, None, None]


@dataclass(frozen=True)
class LockMatching(Matching):
    """Search for the images behind gradients of a locked network; ``secret`` is one of SECRETS.

    The lock is granted with ``knows=("lock",)``: in the first round the server drew it itself,
    unless ``fresh``. γ and β are granted with "coefficients", or "key" and "lock". Where the lock's
    own gradient is on the wire (``share_lock``), the key is read from it. Searches for γ and β
    begin at N(0, ``spread``²), by default as wide as PyTorch's first weights make them.
    """

    secret: Annotated[str, Word("secret", *SECRETS)] = "joint"
    spread: Positive = 1 / 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels == "joint" or self.per_tensor or self.nonzero:
            raise PrivflError("LockMatching takes labels as inferred or granted, all tensors alike")

    def check(self, upload: Upload) -> None:
        super().check(upload)
        if upload.local_steps != 1 or not any(locks(upload.model)):
            raise PrivflError("LockMatching needs a locked network and one local step")

    def unknowns(self, upload: Upload) -> int:
        return self._secret(upload)[0]

    def cost(self, upload: Upload) -> Callable[..., Tensor]:
        """cost(x, y, who, others): as in ``Matching``, for the γ and β that ``others`` make."""
        (_, secret), imitate, seen = self._secret(upload), imitator(upload), upload.gradients()
        names = [n for n in shared(upload) if not n.startswith(tuple(self.drop))]

        def cost(x: Tensor, y: Tensor, who: Tensor, others: Tensor) -> Tensor:
            made, sent = imitate(x, y, secret(others, who)), {n: seen[n][who] for n in names}
            return distance(self.distance, made, sent, names)

        return cost

    def _secret(self, upload: Upload) -> tuple[int, Callable[[Tensor, Tensor], Tensor]]:
        """How many standard normal numbers a start needs, and f(numbers, who): γ before β."""
        if self.secret == "joint":
            live = alive(upload)  # (U, C)
            mask = self.spread * torch.cat([live, torch.ones_like(live)], 1)
            positive = next(locks(upload.model))[1].lock.activation != "none"  # γ, β ≥ 0: public
            return mask.shape[1], lambda z, who: (z.abs() if positive else z) * mask[who]
        if self.secret == "known" and upload.knows.coefficients is not None:
            return 0, lambda z, who: upload.knows.coefficients[who]
        matrix, act = lock_of(upload), next(locks(upload.model))[1].lock.activation
        if self.secret == "known":
            key = upload.knows.key if upload.knows.key is not None else read_key(upload)
            return 0, lambda z, who: coefficients(matrix[who], key[who], act)

        def from_key(z: Tensor, who: Tensor) -> Tensor:  # starts as U[0, 1] in mean and spread
            z = z.detach() if self.secret == "wrong" else z
            return coefficients(matrix[who], 0.5 + z / 12**0.5, act)

        return matrix.shape[2] - 1, from_key


def shared(upload: Upload) -> list[str]:
    """Names of the tensors on the wire that are not the lock's."""
    return [n for n in upload.tensors if ".lock." not in n]


def imitator(upload: Upload) -> Callable[[Tensor, Tensor, Tensor], Tensors]:
    """f(x, y, c): gradients (P, …) of clients with x (P, B, …), y (P, B) and γ before β (P, 2C)."""
    net = stateless(upload.model, upload.mode)
    norms = {name: locked.norm for name, locked in locks(net)}
    names = list(norms)
    for name, norm in norms.items():
        parent, _, place = name.rpartition(".")
        opened = Opened(norm).to(net.head.weight)
        setattr(net.get_submodule(parent), place, opened)
    widths = [norm.num_features for norm in norms.values()]
    theta, loss = {n: t for n, t in weights(net).items() if n in upload.tensors}, loss_function(net)

    def one(x: Tensor, y: Tensor, c: Tensor) -> Tensors:
        gamma, beta = (part.split(widths) for part in c.chunk(2))
        own = {f"{n}.gamma": v for n, v in zip(names, gamma, strict=True)}
        own |= {f"{n}.beta": v for n, v in zip(names, beta, strict=True)}
        return grad(lambda theta: loss(functional_call(net, theta | own, (x,)), y))(theta)

    return vmap(one)


def alive(upload: Upload) -> Tensor:
    """Which channels have γ ≠ 0, (U, C): the others' convolution has a gradient of exactly zero."""
    rows = []
    for name, _ in locks(upload.model):
        parent, _, place = name.rpartition(".")
        g = upload.tensors[f"{parent}.{int(place) - 1}.weight"]
        rows.append(g.flatten(2).any(2))
    return torch.cat(rows, 1).to(g)


def lock_of(upload: Upload) -> Tensor:
    """The lock (U, 2C, S + 1), as granted or as the server has it because it is shared."""
    if upload.knows.lock is not None:
        return upload.knows.lock
    names = [name for name, _ in locks(upload.model)]
    if f"{names[0]}.lock.scale.weight" not in upload.tensors:
        raise PrivflError('this attacker holds the lock: grant it with knows=("lock",)')
    matrix = lock_matrix({n: p.detach() for n, p in upload.model.named_parameters()}, names)
    return matrix.expand(len(upload), *matrix.shape)


@checked
def read_key(upload: Upload) -> Tensor:
    """The key (U, S) from the gradient of the lock's shift, where that is on the wire.

    ∇φ = ∇b kᵀ (Eq. 28 with the sum over positions), so k = ∇φᵀ∇b / ‖∇b‖².
    """
    first = next(locks(upload.model), None)
    name = f"{first[0]}.lock.shift" if first else "lock.shift"
    if f"{name}.weight" not in upload.tensors:
        raise PrivflError('the key is not on the wire: grant it with knows=("key",)')
    g, b = (upload.tensors[f"{name}.{part}"].double() for part in ("weight", "bias"))
    key = torch.einsum("uos,uo->us", g, b) / b.square().sum(1, keepdim=True)
    return key.to(upload.tensors[f"{name}.weight"])
