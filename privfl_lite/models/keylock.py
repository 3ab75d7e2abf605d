"""Batch normalization whose scale and shift come from a private key (FedKL, Ren et al. 2023).

``lock(model)`` puts it behind the first convolution, or behind all of them. Where a network has no
normalization there (LeNet, ``cloak``), it is added: then "with the lock" and "without" differ in
the normalization too. ``normalize(model)`` makes the third network, which tells the two apart: the
same normalization with an ordinary, public scale and shift. Chapter: FedKL.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Annotated, cast

import torch
from torch import Tensor, nn

from ..checking import checked
from ..runtime import PrivflError, choose, seeded
from ..values import Number, Positive, Seed, Word
from .nets import Net
from .wrapping import built

ACTIVATIONS = {"none": lambda t: t, "relu": torch.relu, "sigmoid": torch.sigmoid}
KeyLength = Annotated[int, Number(1, 2**20, whole=True)]
Activation = Annotated[str, Word("activation of the lock", *ACTIVATIONS)]
Blocks = Annotated[str, Word("blocks", "first", "all", "chained")]


class KeyLock(nn.Module):
    """γ = act(W_γ k + b_γ) and β = act(W_β k + b_β) for a key k (Eq. 30).

    The paper has no activation ("none"); its code has "relu" by default, so that γ, β ≥ 0 and about
    half of the channels start dead, with γ = 0. ``before``: the lock whose γ and β are the key of
    this one, in a chain; it belongs to its own block, so it is no part of this one.
    """

    key: Tensor
    scale: nn.Linear
    shift: nn.Linear

    def __init__(self, channels: int, length: int, activation: str, before: KeyLock | None = None):
        super().__init__()
        if before is not None:
            length = 2 * before.scale.out_features
        self.scale, self.shift = nn.Linear(length, channels), nn.Linear(length, channels)
        self.activation, self.before = activation, (before,)
        if before is None:
            self.register_buffer("key", torch.zeros(length))

    def forward(self) -> tuple[Tensor, Tensor]:  # γ (channels,), β (channels,)
        act, (before,) = ACTIVATIONS[self.activation], self.before
        key = self.key if before is None else torch.cat(before())
        return act(self.scale(key)), act(self.shift(key))


class Locked(nn.Module):
    """s = γ û + β (Eq. 20), û the normalized input (Eq. 17–19), γ and β from a ``KeyLock``.

    In train mode a batch of one image is normalized over its own positions, as by instance norm.
    """

    def __init__(self, norm: nn.BatchNorm2d, lock: KeyLock):
        super().__init__()
        self.norm, self.lock = norm, lock

    def forward(self, u: Tensor) -> Tensor:  # (B, channels, H, W)
        gamma, beta = self.lock()
        return gamma[:, None, None] * self.norm(u) + beta[:, None, None]


def normalize(model: Net, blocks: str = "first") -> Net:
    """A copy with batch norm behind the "first" or behind "all" convolutions, where none was."""
    model = copy.deepcopy(model)
    for layers, i in reversed(_convolutions(model, blocks)):  # from the back: places stay right
        if not isinstance(layers[i + 1], (nn.BatchNorm2d, Locked)):
            conv = cast(nn.Conv2d, layers[i])
            norm = nn.BatchNorm2d(conv.out_channels).to(conv.weight)
            layers.insert(i + 1, norm.train(model.training))
    return model


@checked
def lock(
    model: Net,
    key_length: KeyLength = 1024,
    activation: Activation = "none",
    blocks: Blocks = "first",
    init: Positive | None = None,
    seed: Seed = 0,
) -> Net:
    """A copy whose "first" (as in the paper) or "all" convolutions have a lock behind them.

    A batch norm that is there keeps its statistics and loses its scale and shift. Each block has a
    lock of its own, and all of them read the same key; "chained", a variant of the released code,
    makes γ and β of one block the key of the next. The lock's first weights are PyTorch's,
    U(±1/√key_length), or U(±init), drawn by ``seed``. The key is blank; a defense fills it in.
    """
    chained, blocks = blocks == "chained", "first" if blocks == "first" else "all"
    model, last = normalize(model, blocks), None
    with seeded(seed):
        for layers, i in _convolutions(model, blocks):
            if isinstance(layers[i + 1], Locked):
                continue
            conv, old = cast(nn.Conv2d, layers[i]), cast(nn.BatchNorm2d, layers[i + 1])
            norm = nn.BatchNorm2d(conv.out_channels, old.eps, affine=False)
            norm.load_state_dict(old.state_dict(), strict=False)
            part = KeyLock(conv.out_channels, key_length, activation, last)
            last = part if chained else None
            if init is not None:
                for p in part.parameters():
                    nn.init.uniform_(p, -init, init)
            layers[i + 1] = Locked(norm, part).to(conv.weight).train(model.training)
    model.name = f"{model.name}+lock"
    return model


def locks(model: nn.Module) -> Iterator[tuple[str, Locked]]:
    """The locked normalizations of a network and their names, front to back."""
    return ((name, m) for name, m in model.named_modules() if isinstance(m, Locked))


def lock_matrix(state: dict[str, Tensor], names: list[str]) -> Tensor:
    """The named locks as one matrix (2C, S + 1), rows of weights and bias, scale before shift."""
    rows = [
        torch.cat([state[f"{n}.lock.{part}.weight"], state[f"{n}.lock.{part}.bias"][:, None]], 1)
        for part in ("scale", "shift")
        for n in names
    ]
    return torch.cat(rows)


def coefficients(matrix: Tensor, key: Tensor, activation: str) -> Tensor:
    """γ before β, (U, 2C), from lock matrices (U, 2C, S + 1) and keys (U, S): Eq. 30."""
    product = torch.einsum("uos,us->uo", matrix[..., :-1], key)
    return ACTIVATIONS[activation](product + matrix[..., -1])


def _convolutions(model: Net, blocks: str) -> list[tuple[nn.Sequential, int]]:
    """Where the convolutions stand: (list of layers, place in it), front to back."""
    choose("blocks", blocks, ("first", "all"))
    built(model, "a lock")
    rows = [m for m in model.features.modules() if isinstance(m, nn.Sequential)]
    found = [(row, i) for row in rows for i, m in enumerate(row) if isinstance(m, nn.Conv2d)]
    if not found:
        raise PrivflError(f"a lock stands behind a convolution; {model.name!r} has none")
    return found[:1] if blocks == "first" else found
