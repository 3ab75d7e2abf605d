"""``wrap``: anybody's ``nn.Module`` as a ``Net``, as it is; its tensors keep their names."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..arrays import MODEL, Array
from ..checking import checked
from ..runtime import PrivflError, choose
from ..values import Text
from .nets import Net, Shape


class Wrapped(Net):
    """A module of somebody else's as a ``Net``; make one with ``wrap``.

    It *is* the module in all that PyTorch asks by name: parameters, buffers and parts are the same
    objects under the same names, so gradients of the module fit. Only ``forward`` is called there.
    """

    _net: nn.Module

    @checked
    def __init__(self, net: nn.Module, name: Text, shape: Shape, head_name: Text):
        nn.Module.__init__(self)
        taken = [n for n in _own_names(net) if hasattr(type(self), n) or n in OWN]
        if taken:
            raise PrivflError(
                f"{name}.{taken[0]} has a name that the package needs for itself; rename that part"
            )
        self.name, self.shape, self.head_name = name, shape, head_name
        kept = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
        self.__dict__ |= {"_net": net, **{n: net.__dict__[n] for n in kept}}
        self.training = net.training

    def train(self, mode: bool = True) -> Wrapped:
        self._net.train(mode)
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W) -> (B, classes)
        return self._net(x)

    def representation(self, x: Tensor) -> Tensor:
        """What enters the last layer on the way through, (B, C, H, W) -> (B, last.in_features)."""
        return passed(self, self.last, x)[0]

    def chain(self) -> list[tuple[str, nn.Module]]:
        layers = list(_unrolled(self._net))
        if layers[-1][0] != self.head_name:
            raise PrivflError(
                f"this needs a plain chain of layers, an nn.Sequential that ends in its last "
                f"layer; {self.name!r} is none"
            )
        return layers[:-1]


Seen = Annotated[Tensor, Array("images (B, C, H, W)", (4,), finite=False, meta=True)]
OWN = ("name", "shape", "training")  # instance attributes of a Wrapped, besides those of its class


@checked
def wrap(
    net: Annotated[nn.Module, MODEL],
    shape: Shape | None = None,
    head: Text | None = None,
    name: Text | None = None,
) -> Net:
    """Your own module, as it is, for ``share``, ``FedAvg``, ``Upload`` and attacks.

    ``shape`` (C, H, W) is that of one image, ``head`` the name of the last layer, an ``nn.Linear``
    whose output is the module's: ``wrap(resnet18(), shape=(3, 32, 32), head="fc")``. Both are found
    where they can be, or a sentence asks for them. It is a copy, in eval mode, in which activations
    do not work in place; the module itself stays as it is, and what it learns later is not seen.
    """
    if isinstance(net, Net):
        return net
    name = name or type(net).__name__
    if not any(True for _ in net.parameters()) or any(map(nn.parameter.is_lazy, net.parameters())):
        raise PrivflError(f"{name} has no weights yet; a lazy module needs one pass first")
    net = copy.deepcopy(net).eval()
    for part in net.modules():
        if getattr(part, "inplace", False) is True:
            part.inplace = False  # type: ignore[assignment]
    size = _image_shape(net, name) if shape is None else tuple(int(n) for n in shape)
    return Wrapped(net, name, size, _head_name(net, name, size, head))


@checked
def built(model: nn.Module, who: Text) -> None:
    """One sentence where ``who`` takes a network apart, and this is not one of ``build``."""
    if isinstance(model, Wrapped) or not isinstance(model, Net):
        name = getattr(model, "name", type(model).__name__)
        raise PrivflError(
            f"{who} takes networks of pf.models.build apart; {name!r} is a module of your own"
        )


def _own_names(net: nn.Module) -> Iterator[str]:
    for kind in (net._parameters, net._buffers, net._modules):
        yield from kind


def _unrolled(net: nn.Module, before: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Names and layers of a sequence, and of sequences inside it; else the module itself."""
    if type(net) is not nn.Sequential:
        yield before.removesuffix("."), net
        return
    for n, layer in net.named_children():
        yield from _unrolled(layer, f"{before}{n}.")


@checked
def passed(net: nn.Module, layer: nn.Module, x: Seen) -> tuple[Tensor, Tensor, Tensor]:
    """What enters and leaves ``layer`` when the network sees x, and the network's answer."""
    seen: list[tuple[Tensor, Tensor]] = []
    hook = layer.register_forward_hook(lambda _m, given, out: seen.append((given[0], out)))
    try:
        answer = net(x)
    finally:
        hook.remove()
    if not seen:
        raise PrivflError("the last layer that was named takes no part in a forward pass")
    return *seen[-1], answer


def _head_name(net: nn.Module, name: str, shape: tuple[int, ...], head: str | None) -> str:
    """The name of the last layer, tried on an image: its output must be the module's."""
    linear = [n for n, m in net.named_modules() if isinstance(m, nn.Linear)]
    if head is not None:
        choose(f"nn.Linear in {name} for head=", head, linear)
    elif not linear:
        raise PrivflError(f"{name} has no nn.Linear that could be its last layer, as attacks need")
    head, like = head or linear[-1], next(net.parameters())
    try:
        with torch.no_grad():
            ramp = torch.linspace(0, 1, math.prod(shape)).to(like).view(1, *shape)
            r, logits, answer = passed(net, net.get_submodule(head), ramp)
    except (RuntimeError, ValueError, IndexError) as error:
        if isinstance(error, PrivflError):
            raise
        why = str(error).partition("\n")[0]
        raise PrivflError(f"{name} cannot take an image of shape {shape}: {why}") from None
    same = isinstance(answer, Tensor) and answer.shape == logits.shape and r.dim() == 2
    if not same or not any(map(answer.allclose, (logits, logits.log_softmax(-1)))):
        raise PrivflError(
            f"the output of {name} is not that of its layer {head!r}: name the nn.Linear that "
            f'gives the logits, pf.models.wrap(net, shape={shape}, head="…")'
        )
    return head


def _image_shape(net: nn.Module, name: str) -> tuple[int, ...]:
    """(C, H, W) of square images, as the first layer tells; asks for it where several fit."""
    first: Any = next((m for m in net.modules() if isinstance(m, (nn.Linear, nn.Conv2d))), None)
    fits: list[tuple[int, ...]] = []
    if isinstance(first, nn.Conv2d):
        fits = _sides(net, first.in_channels)
    elif first is not None:
        sides = [(c, math.isqrt(first.in_features // c)) for c in (1, 3)]
        fits = [(c, n, n) for c, n in sides if c * n * n == first.in_features]
    if len(fits) == 1:
        return fits[0]
    seen = f"images of {fits[0]} to {fits[-1]} fit" if fits else "none could be found"
    example = fits[-1] if fits and fits[-1][1] < 256 else (3, 32, 32)
    raise PrivflError(
        f"{name} does not tell the shape (C, H, W) of its images ({seen}); "
        f"say it: pf.models.wrap(net, shape={example})"
    )


def _sides(net: nn.Module, channels: int) -> list[tuple[int, ...]]:
    """Shapes of square images, up to 256 pixels a side, that the network can take."""
    fits: list[tuple[int, ...]] = []
    net = copy.deepcopy(net).to("meta")
    for side in range(1, 257):
        try:
            with torch.no_grad():
                net(torch.zeros(1, channels, side, side, device="meta"))
        except (RuntimeError, ValueError):
            continue
        fits.append((channels, side, side))
    return fits
