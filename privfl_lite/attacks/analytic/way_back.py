"""One upload's way back through a network's layers: each layer's input, and ∂ℓ/∂input.

Chapter: "Through the layers", also for where it ends and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ...gradients import Tensors
from ...models.nets import Block
from ...runtime import PrivflError
from .equations import from_gradient, from_gradient_alone, from_output, windows

# activation -> slope and inverse of its *output* a, and its range; slope 0 means no way back
ACTIVATIONS = {
    nn.Sigmoid: (lambda a, off: a * (1 - a), torch.logit, (1e-9, 1 - 1e-9)),
    nn.Tanh: (lambda a, off: 1 - a * a, torch.atanh, (-1 + 1e-9, 1 - 1e-9)),
    nn.ReLU: (lambda a, off: (a > off * a.max()).to(a), lambda a: a, (0.0, torch.inf)),
}
SHAPES = (nn.Flatten, nn.Identity, nn.Dropout)  # in eval mode
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)  # in eval mode
AVERAGES = (nn.AvgPool2d, nn.AdaptiveAvgPool2d)
MAXIMA = (nn.MaxPool2d, nn.AdaptiveMaxPool2d)


class Step(NamedTuple):
    """How much of one layer's input is fixed, counted in directions of the space it lives in."""

    layer: str
    unknowns: int  # numbers in the input; all known if the other two add up to it
    by_gradient: int  # directions that the layer's own gradient fixes
    by_output: int  # further directions that its output fixes


class Way:
    """Where the way back through one network stands, for one upload's gradient g.

    ``back`` is ∂ℓ/∂(here), ``out`` the value here, or None where it is not known; ``trust``, the
    slope of the activation just passed, weighs equations for the value. Layers whose input does not
    follow from their output wait in ``behind``, and here is behind them.
    """

    def __init__(self, g: Tensors, tol: float, off: float, out: Tensor, back: Tensor):
        self.g, self.tol, self.off, self.quiet = g, tol, off, 1e-12
        self.out: Tensor | None = out
        self.back, self.trust = back, torch.ones_like(out)
        self.behind: list[tuple[str, nn.Module]] = []
        self.steps: list[Step] = []

    def through(self, layers: list[tuple[str, nn.Module]], x: Tensor) -> None:
        """Back through a chain of layers, by name, whose input has the shape of x (1, …)."""
        inputs = [x]
        for _, layer in layers[:-1]:
            inputs.append(layer(inputs[-1]))
        back = list(zip(reversed(layers), reversed(inputs), strict=True))
        for (name, layer), given in back:  # what a count rules out costs no algebra
            if isinstance(layer, Block):
                _countable(f"{name}.body", layer, given)
        for (name, layer), given in back:
            self.layer(name, layer, given.shape[1:])

    def image(self, shape: tuple[int, ...]) -> Tensor:
        """The image (1, C, H, W), once all layers are passed."""
        if self.behind or self.out is None:
            raise PrivflError(f"the recursion ends at the image: {self.hides()}")
        return self.out.reshape(1, *shape)

    def layer(self, name: str, layer: nn.Module, shape: torch.Size) -> None:
        if isinstance(layer, Block):
            self.block(name, layer, shape)
        elif isinstance(layer, (nn.Linear, nn.Conv2d)):
            self.weights(name, layer, shape)
        elif isinstance(layer, AVERAGES + MAXIMA):
            self.behind.insert(0, (name, layer))
        elif not isinstance(layer, SHAPES + NORMS) and type(layer) not in ACTIVATIONS:
            raise PrivflError(f"the recursion knows no way back through {type(layer).__name__}")
        elif self.behind:
            self.behind.insert(0, (name, layer))
        elif isinstance(layer, SHAPES):
            self.back, self.trust = self.back.reshape(shape), self.trust.reshape(shape)
            self.out = None if self.out is None else self.out.reshape(shape)
        elif isinstance(layer, NORMS):
            self.norm(layer, shape)
        else:
            self.activation(layer)

    def activation(self, layer: nn.Module) -> None:
        assert self.out is not None  # behind a sum of unknown parts stands no activation
        slope, inverse, span = ACTIVATIONS[type(layer)]
        self.trust = slope(self.out.clamp(*span), self.quiet)
        self.out, self.back = inverse(self.out.clamp(*span)), self.back * self.trust

    def norm(self, layer: nn.Module, shape: torch.Size) -> None:
        """An affine map, entry by entry; a channel with γ = 0 gives nothing back."""
        shift, scale = _affine(layer, self.back.new_zeros(1, *shape))
        self.back = self.back * scale
        if self.out is not None:
            self.trust = self.trust * (scale != 0)
            self.out = (self.out - shift) / scale.where(scale != 0, 1)

    def weights(self, name: str, layer: nn.Linear | nn.Conv2d, shape: torch.Size) -> None:
        """The input of a layer, by its gradient and its output, and ∂ℓ/∂input."""
        bent = any(not isinstance(m, SHAPES + NORMS + AVERAGES) for _, m in self.behind)
        if bent and isinstance(layer, nn.Conv2d):
            a, back = self.alone(name, layer, shape, self.pulled)
        else:
            a, back = self.linear(name, layer, shape, bent)
        self.out, self.behind = a, []
        self.back = torch.func.vjp(layer, a[None])[1](back[None])[0][0]
        self.trust, self.quiet = torch.ones_like(a), self.off  # from here on with noise

    def linear(
        self, name: str, layer: nn.Linear | nn.Conv2d, shape: torch.Size, bent: bool
    ) -> tuple[Tensor, Tensor]:
        """Input and error signal of a layer, from its gradient and, if it is known, its output."""
        back, out = self.back, None if bent else self.out
        whole: nn.Module = layer
        if self.behind and not bent:  # an affine map: its slope is the same everywhere
            whole = nn.Sequential(layer, *(m for _, m in self.behind))
            back = self.pulled(layer(back.new_zeros(1, *shape)))
        if isinstance(layer, nn.Linear):
            if bent and f"{name}.bias" not in self.g:
                raise PrivflError(f"the recursion ends at {name!r}: {self.hides()}")
            back = self.g.get(f"{name}.bias", back)  # its bias gradient is δ itself
        a, free = from_gradient(layer, self.g[f"{name}.weight"], back, shape, self.tol)
        known, more = a.numel() - len(free), 0
        if out is not None:
            a, more = from_output(whole, a, free, out, self.trust, self.tol)
        self.steps.append(Step(name, a.numel(), known, more))
        return a, back

    def alone(
        self, name: str, layer: nn.Conv2d, shape: torch.Size, exact: Callable | None
    ) -> tuple[Tensor, Tensor]:
        """Input and error signal of a convolution whose output does not follow from what is known.

        ``exact`` gives the error signal for an output: with it slopes and maxima, once they are
        found, are made exact, as long as the gradient is then explained better.
        """
        if layer.in_channels < shape[1:].numel():
            raise PrivflError(
                f"the recursion ends at {name!r}: {self.hides()}, and its own gradient is enough "
                f"only with an input channel for each pixel, here {layer.in_channels} for "
                f"{shape[1:].numel()}"
            )
        g, size = self.g[f"{name}.weight"], tuple(shape[1:])
        a, back, rank = from_gradient_alone(layer, g, self.total(name), size, self.tol)
        back = back.view(layer(a[None]).shape[1:])
        self.steps.append(Step(name, a.numel(), rank * len(a), 0))
        misfit = _misfit(layer, g, a, back)
        for _ in range(3 if exact else 0):
            again = cast(Callable, exact)(layer(a[None]))
            found, _ = from_gradient(layer, g, again, shape, self.tol)
            if _misfit(layer, g, found, again) >= misfit:
                break
            misfit, a, back = _misfit(layer, g, found, again), found, again
        return a, back

    def pulled(self, here: Tensor) -> Tensor:
        """∂ℓ/∂(what enters the layers that wait), at the value ``here`` (1, …)."""
        tail = nn.Sequential(*(m for _, m in self.behind))
        return torch.func.vjp(tail, here)[1](self.back[None])[0][0]

    def total(self, name: str) -> Tensor:
        """Σ ∂ℓ/∂output over positions (outputs,): a bias gradient, of the layer or its norm."""
        if f"{name}.bias" in self.g:
            return self.g[f"{name}.bias"]
        norm, layer = self.behind[0]
        if not isinstance(layer, NORMS) or f"{norm}.bias" not in self.g:
            raise PrivflError(
                f"the recursion ends at {name!r}: {self.hides()}, and no bias gradient tells the "
                "scale"
            )
        _, scale = _affine(layer, self.back.new_zeros(1, layer.num_features, 1, 1))
        return self.g[f"{norm}.bias"] * scale.flatten()

    def hides(self) -> str:
        """Which layers keep the output from being known."""
        kinds = [type(m).__name__ for _, m in self.behind if not isinstance(m, SHAPES + NORMS)]
        return f"{' and '.join(kinds)} behind it hide its output"

    def block(self, name: str, block: Block, shape: torch.Size) -> None:
        """y = act(F(x) + skip(x)): F's last gradient alone gives what enters its last layer."""
        body = [(f"{name}.body.{n}", layer) for n, layer in block.body.named_children()]
        x, start = self.back.new_zeros(1, *shape), len(self.steps)
        if not self.behind:
            self.activation(block.act)
            signal = self.back
        else:
            top, above = self.back, [(f"{name}.act", block.act), *self.behind]
            (last, conv), norm = body[-2:]
            self.behind = [norm, *above]
            given = block.body[:-2](x).shape[1:]
            signal = self.alone(last, cast(nn.Conv2d, conv), given, None)[1]
            scale = _affine(norm[1], signal[None])[1]
            a = self.body(body, signal / scale.where(scale != 0, 1), x)[None]
            self.behind, self.back = above, top  # with x, the sum and so its slopes are known
            signal, self.steps = self.pulled(block.body(a) + block.skip(a)), self.steps[:start]
        a = self.body(body, signal, x)[None]
        self.back = self.back + torch.func.vjp(block.skip, a)[1](signal[None])[0][0]

    def body(self, body: list[tuple[str, nn.Module]], signal: Tensor, x: Tensor) -> Tensor:
        """The input of a block's chain (its shape is that of x) whose output is not known."""
        self.behind, self.out, self.back = [], None, signal
        self.through(body, x)
        return cast(Tensor, self.out)


def _countable(name: str, block: Block, x: Tensor) -> None:
    """One sentence if a block's last convolution has too few equations (its input is x)."""
    last, conv = list(block.body.named_children())[-2]
    rows, pixels = cast(nn.Conv2d, conv).weight[:, 0].numel(), block.body[:-2](x)[0, 0].numel()
    if rows < pixels:
        raise PrivflError(
            f"the recursion ends at {f'{name}.{last}'!r}: its output is hidden in a sum, and its "
            f"gradient has {rows} equations for the {pixels} pixels of a channel"
        )


def _affine(layer: nn.Module, like: Tensor) -> tuple[Tensor, Tensor]:
    """Shift and scale (channels, …) of a norm in eval mode, for values like these (1, …)."""
    shift = layer(torch.zeros_like(like))
    return shift[0], (layer(torch.ones_like(like)) - shift)[0]


def _misfit(layer: nn.Conv2d, g_weight: Tensor, a: Tensor, delta: Tensor) -> float:
    """How far this input and this error signal are from explaining a weight gradient."""
    return float((delta.flatten(1) @ windows(layer, a[None])[0].T - g_weight.flatten(1)).norm())
