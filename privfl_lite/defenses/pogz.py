"""POGZ-FL: Laplace noise on each layer, less on layers with more active outputs (Zhu et al. 2022).

Sources: the paper's abstract and its released code (zlh-thu/DPFL), which holds the importance
and the noise but no training. From there: POGZ, the share of a layer's outputs that are greater
than zero before the activation, on the client's own images; ε_l = ε POGZ_l / Σ POGZ; Laplace noise
of scale 2αη / ε_l, with α = 1, η = 0.1, ε = 10 (α is the one that Model Entanglement sets to 1.0 in
its comparison). The paper also selects clients and fine-tunes on public data at the server; neither
is in the code, nor here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from ..gradients import Tensors, as_rows
from ..privacy.mechanisms import Mechanism, Pure
from ..runtime import PrivflError
from ..values import Number, Positive, Word
from ..wire import Facts, Noise
from .base import Context, Defense
from .noise import laplace

LEAST = 0.01  # reconstructed: a layer that is never active counts as 1 % active, not as ε_l = 0


@dataclass(frozen=True)
class POGZFL(Defense):
    """Clip every layer's update to L1 norm αη, and add Laplace noise of scale 2αη / ε_l.

    ``alpha``: the clip, in units of a gradient. ``eta``: the learning rate of the sensitivity 2αη;
    put 1 where a gradient is shared. ``eps``: the budget ε of one upload. ``importance``: "own"
    measures POGZ on each client's images; else fixed shares, layer -> number, as ``pogz`` gives
    for public images.

    Reconstructed: the norm that α bounds is L1 over a layer's weights and biases together (with
    Laplace noise no other norm gives this ε); POGZ is measured at the weights with which the round
    begins; the noise is independent in every entry, as the mechanism requires.

    What is preserved is Σ ε_l = ε, and with fixed shares the upload is ε-DP in the local sense, for
    any two data sets of a client. Proof: two clipped layers differ by at most 2αη in L1, so the
    densities of a noisy layer differ by a factor of at most exp(2αη / (2αη / ε_l)) = exp(ε_l);
    layers have independent noise, so the factors multiply to exp(Σ ε_l) = exp(ε). Uploads of
    several rounds compose by adding. The power of the noise is not preserved: it is
    8 (αη/ε)² Σ n_l / p_l² with n_l entries and shares p_l, least at p_l ∝ n_l^(1/3).

    ``released=True`` does what the released code does instead: *one* Laplace number a layer, added
    to all entries of its weight; biases go out bare, and nothing is clipped. Differences between
    entries are then exact. (In its CIFAR net the code adds conv3's number to conv2; not here.)
    """

    alpha: Positive = 1.0
    eps: Annotated[float, Number(1e-12)] = 10.0
    eta: Positive = 0.1
    importance: Annotated[str, Word("importance", "own")] | Mapping[str, Positive] = "own"
    released: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.importance:
            raise PrivflError("importance must name every layer with a number over 0")

    def scales(self, importance: Mapping[str, float]) -> dict[str, float]:
        """Scale of the Laplace noise of each layer, 2αη / ε_l; its deviation is √2 times that."""
        total = sum(importance.values())
        return {
            n: 2 * self.alpha * self.eta * total / (self.eps * v) for n, v in importance.items()
        }

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        flat = by_layer(delta)
        if isinstance(self.importance, str):
            each = [self.scales(pogz(ctx.model, x)) for x in ctx.x]
        else:
            each = [self.scales(self.importance)] * len(ctx.rngs)
        if missing := [n for n in flat if n not in each[0]]:
            known = ", ".join(each[0])
            raise PrivflError(f"importance has no layer {missing[0]!r}; it names: {known}")
        scale = {n: torch.tensor([s[n] for s in each]).to(t)[:, None] for n, t in flat.items()}
        if self.released:
            return self._as_released(delta, scale, ctx)
        clip = self.alpha * self.eta
        noisy = {}
        for n, t in flat.items():  # (K, n_l)
            norm = t.abs().sum(1, keepdim=True)
            noisy[n] = t * (clip / norm.clamp(min=clip)) + scale[n] * laplace(t, ctx.sources)
        return from_layers(noisy, delta)

    def _as_released(self, delta: Tensors, scale: Tensors, ctx: Context) -> Tensors:
        out = dict(delta)
        for name, t in delta.items():
            layer, _, kind = name.rpartition(".")
            if kind == "weight":
                one = scale[layer] * laplace(t.flatten(1)[:, :1], ctx.sources)  # (K, 1)
                out[name] = t + one.view(-1, *[1] * (t.dim() - 1))
        return out

    def mechanism(self, tensors: Mapping[str, tuple[int, ...]]) -> Mechanism | str:
        """ε of one upload with fixed shares. With "own" shares two Laplace densities of different
        scale have an unbounded ratio; as released, one number hides no more than one entry."""
        if self.released:
            return "one number is added to many entries, so their differences leave bare"
        if isinstance(self.importance, str):
            return "the scale of the noise follows private data; importance= fixes it"
        return Pure(self.eps)

    def looks(self, door: str) -> bool:
        return door == "update" and isinstance(self.importance, str)

    def facts(self, ctx: Context) -> Facts:
        """The noise's standard deviation by layer, where it does not depend on private data.

        As released it is one number for a whole tensor, which is no independent noise.
        """
        if self.released or isinstance(self.importance, str):
            return Facts()
        std = {n: 2**0.5 * b for n, b in self.scales(self.importance).items()}
        return Facts(noise=Noise(std))


def pogz(model: nn.Module, x: Tensor) -> dict[str, float]:
    """Share of each layer's outputs above zero on images x (n, C, H, W), divided by their sum.

    A layer is a module that holds weights of its own; its output is what it computes before the
    activation that follows.
    """
    model, shares = copy.deepcopy(model).eval(), {}
    names = layer_names(n for n, _ in model.named_parameters())

    def watch(name: str) -> None:
        def hook(_module: nn.Module, _inputs: tuple, out: Tensor) -> None:
            shares[name] = max(LEAST, (out > 0).float().mean().item())

        model.get_submodule(name).register_forward_hook(hook)

    for name in names:
        watch(name)
    with torch.no_grad():
        model(x)
    found = {n: shares.get(n, LEAST) for n in names}  # LEAST also where no output was seen
    return {n: v / sum(found.values()) for n, v in found.items()}


def layer_names(tensors: Iterable[str]) -> list[str]:
    """Names of the layers that hold these tensors: "head.weight", "head.bias" -> "head"."""
    return list(dict.fromkeys(n.rpartition(".")[0] for n in tensors))


def by_layer(tensors: Tensors) -> Tensors:
    """All tensors of a layer as one vector a client: layer -> (K, n_l)."""
    parts: dict[str, list[Tensor]] = {n: [] for n in layer_names(tensors)}
    for name, t in tensors.items():
        parts[name.rpartition(".")[0]].append(as_rows(t))
    return {n: torch.cat(group, 1) for n, group in parts.items()}


def from_layers(flat: Tensors, like: Tensors) -> Tensors:
    """Undo ``by_layer``: tensors named and shaped as ``like``."""
    used, out = dict.fromkeys(flat, 0), {}
    for name, t in like.items():
        layer, size = name.rpartition(".")[0], t[0].numel()
        out[name] = flat[layer][:, used[layer] : used[layer] + size].reshape(t.shape)
        used[layer] += size
    return out
