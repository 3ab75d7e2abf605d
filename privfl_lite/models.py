"""The papers' networks, small and plain. Each is ``features`` (ending in a vector) and ``head``.

``build("lenet", digits)`` fits a network to a data set, or to a shape such as ``(1, 28, 28)``.
``wrap(net)`` makes one of your own, as it is, fit for everything else; its tensors keep their
names. Nothing here works in place, so that every network can be differentiated twice and under
``vmap``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from .runtime import PrivflError, choose, seeded

ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh, "identity": nn.Identity}


class Net(nn.Module):
    """A network in two: ``features`` gives the representation r, ``head`` gives the logits.

    What works on any network asks for ``last`` and ``head_name``, for ``representation`` and
    ``chain``; ``features`` and ``head`` are there in networks of ``build`` alone.
    """

    features: Any  # a module; in networks of ``build`` a chain of layers, by their index
    head_name = "head"  # of the last layer: its gradient is the upload's f"{head_name}.weight"

    def __init__(self, name: str, features: nn.Module, head: nn.Linear, shape: tuple[int, ...]):
        super().__init__()
        self.name, self.shape = name, shape
        self.features, self.head = features, head

    def representation(self, x: Tensor) -> Tensor:
        """The vector r that enters the last layer, (B, C, H, W) -> (B, head.in_features)."""
        return self.features(x)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W) -> (B, classes)
        return self.head(self.features(x))

    @property
    def last(self) -> nn.Linear:
        """The last layer, under whatever name."""
        layer = self.get_submodule(self.head_name)
        assert isinstance(layer, nn.Linear)
        return layer

    def chain(self) -> list[tuple[str, nn.Module]]:
        """Names and layers in front of the last, where they are a plain chain, front to back."""
        return [(f"features.{n}", layer) for n, layer in self.features.named_children()]

    @property
    def num_classes(self) -> int:
        return self.last.out_features

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())


def _lenet(channels: int, act: Callable, strides: Sequence[int] = (2, 2, 1)) -> nn.Module:
    """DLG's LeNet: 5×5 convolutions of 12 channels, no pooling (Zhu et al. 2019)."""
    layers: list[nn.Module] = []
    for stride in strides:
        layers += [nn.Conv2d(channels, 12, 5, stride=stride, padding=2), act()]
        channels = 12
    return nn.Sequential(*layers, nn.Flatten())


def _lenet5(channels: int, act: Callable) -> nn.Module:
    """LeNet-5 with max pooling; its first dense layer adapts to the image size."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=2), act(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), act(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.LazyLinear(120), act(), nn.Linear(120, 84), act()),
    )


def _mlp(channels: int, act: Callable, hidden: Sequence[int] = (64,)) -> nn.Module:
    """Fully connected layers of the given widths; ``hidden=()`` leaves softmax regression."""
    layers: list[nn.Module] = [nn.Flatten()]
    for i, width in enumerate(hidden):
        layers += [nn.Linear(hidden[i - 1], width) if i else nn.LazyLinear(width), act()]
    return nn.Sequential(*layers)


def _cloak(channels: int, act: Callable) -> nn.Module:
    """ModelCloak's training net: two 3×3 convolutions, no bias anywhere (its released code)."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3, bias=False), act(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, bias=False), act(), nn.MaxPool2d(2), nn.Flatten()),
    )


def _conv_norm(inp: int, out: int, act: Callable, bias: bool = True) -> list[nn.Module]:
    return [nn.Conv2d(inp, out, 3, padding=1, bias=bias), nn.BatchNorm2d(out), act()]


def _convnet(channels: int, act: Callable, width: int = 64) -> nn.Module:
    """The ConvNet of Inverting Gradients: 8 convolutions (its source names 9, one is dropped)."""
    layers: list[nn.Module] = []
    for i, factor in enumerate((1, 2, 2, 4, 4, 4, 4, 4)):
        layers += _conv_norm(channels, factor * width, act)
        channels = factor * width
        layers += [nn.MaxPool2d(3)] if i in (5, 7) else []
    return nn.Sequential(*layers, nn.Flatten())


def _vgg16(channels: int, act: Callable) -> nn.Module:
    """VGG-16 with batch norm, in its CIFAR form: 13 convolutions and one dense layer."""
    layers: list[nn.Module] = []
    for item in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        layers += _conv_norm(channels, item, act) if item else [nn.MaxPool2d(2)]
        channels = item or channels
    return nn.Sequential(*layers, nn.Flatten())


class Block(nn.Module):
    """A residual block of two 3×3 convolutions; a 1×1 convolution where the shape changes."""

    def __init__(self, inp: int, out: int, stride: int, act: Callable):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(inp, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), act()),
            *(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)),
        )
        same = stride == 1 and inp == out
        self.skip = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inp, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )
        self.act = act()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.body(x) + self.skip(x))


def _resnet(
    channels: int, act: Callable, blocks: Sequence[int] = (2, 2, 2, 2), width: int = 64
) -> nn.Module:
    """A ResNet with the 3×3 stem of CIFAR; each stage after the first halves the image."""
    layers: list[nn.Module] = _conv_norm(channels, width, act, bias=False)
    inp = width
    for stage, count in enumerate(blocks):
        out = width * 2**stage
        for i in range(count):
            layers.append(Block(inp, out, 2 if stage and not i else 1, act))
            inp = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


# name -> (features, activation, bound of the uniform start or None, whether the head has a bias)
MODELS: dict[str, tuple[Callable, str, float | None, bool]] = {
    "lenet": (_lenet, "sigmoid", 0.5, True),
    "lenet4": (partial(_lenet, strides=(2, 2, 1, 1)), "sigmoid", 0.5, True),
    "lenet5": (_lenet5, "relu", None, True),
    "mlp": (_mlp, "relu", None, True),
    "cloak": (_cloak, "relu", None, False),
    "convnet": (_convnet, "relu", None, True),
    "resnet20": (partial(_resnet, blocks=(3, 3, 3), width=16), "relu", None, True),
    "resnet32": (partial(_resnet, blocks=(5, 5, 5), width=16), "relu", None, True),
    "resnet18": (_resnet, "relu", None, True),
    "resnet34": (partial(_resnet, blocks=(3, 4, 6, 3)), "relu", None, True),
    "vgg16": (_vgg16, "relu", None, True),
}


def build(
    name: str,
    like: object,
    classes: int | None = None,
    seed: int = 0,
    act: str | None = None,
    init: float | None = None,
    **options: object,
) -> Net:
    """Build network ``name`` for a data set, or for a shape (C, H, W) and a number of classes.

    ``act`` replaces the network's own activation; ``init=a`` draws every weight and bias from
    U(−a, a), as DLG does with a = 0.5 (already the default of ``lenet`` and ``lenet4``).
    ``options`` go to the network (``width`` of ``convnet``, ``hidden`` of ``mlp``). The same seed
    gives the same weights, whatever was drawn before.
    """
    make, own_act, bound, bias = MODELS[choose("model", name, MODELS)]
    shape: tuple[int, ...] = tuple(cast(Sequence[int], getattr(like, "shape", like)))
    classes = classes or getattr(like, "num_classes", None)
    if len(shape) != 3 or not classes:
        raise PrivflError(
            f"build({name!r}) needs a data set, or a shape (C, H, W) with classes=…; got {like!r}"
        )
    if classes == 1:
        raise PrivflError(
            "with one class the loss is always 0 and nothing is learned; give classes=…, "
            "or sort the pictures into a folder for each class"
        )
    activation = ACTIVATIONS[choose("activation", act or own_act, ACTIVATIONS)]
    with seeded(seed):
        features = make(shape[0], activation, **options).eval()
        width = _flat_size(name, features, shape, partial(make, shape[0], activation, **options))
        net = Net(name, features, nn.Linear(width, classes, bias=bias), shape)
        if limit := init or bound:
            for p in net.parameters():
                nn.init.uniform_(p, -limit, limit)
    return net.eval()


def _flat_size(name: str, features: nn.Module, shape: tuple, remake: Callable) -> int:
    """Length of r for this image size; if it does not fit, an error with the smallest side."""
    try:
        width = features(torch.zeros(1, *shape)).shape[1]
        if width:
            return width
    except RuntimeError:
        pass
    for side in range(1, 257):
        try:
            with torch.device("meta"):
                if remake().eval()(torch.zeros(1, shape[0], side, side)).shape[1]:
                    break
        except RuntimeError:
            continue
    raise PrivflError(
        f"model {name!r} cannot take images of {shape[1]}×{shape[2]} pixels; "
        f"the smallest side that it takes is {side}"
    )


class Wrapped(Net):
    """A module of somebody else's as a ``Net``; make one with ``wrap``.

    It *is* the module in all that PyTorch asks by name: parameters, buffers and parts are the same
    objects under the same names, so gradients of the module fit. Only ``forward`` is called there.
    """

    _net: nn.Module

    def __init__(self, net: nn.Module, name: str, shape: tuple[int, ...], head_name: str):
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


OWN = ("name", "shape", "training")  # instance attributes of a Wrapped, besides those of its class


def wrap(
    net: nn.Module,
    shape: Sequence[int] | None = None,
    head: str | None = None,
    name: str | None = None,
) -> Net:
    """Your own module, as it is, for ``share``, ``FedAvg``, ``Upload`` and attacks.

    ``shape`` (C, H, W) is that of one image, ``head`` the name of the last layer, an ``nn.Linear``
    whose output is the module's: ``wrap(resnet18(), shape=(3, 32, 32), head="fc")``. Both are found
    where they can be, or a sentence asks for them. It is a copy, in eval mode, in which activations
    do not work in place; the module itself stays as it is, and what it learns later is not seen.
    """
    if isinstance(net, Net):
        return net
    if not isinstance(net, nn.Module):
        raise PrivflError(f"a model is an nn.Module; got {type(net).__name__}")
    name = name or type(net).__name__
    if not any(True for _ in net.parameters()) or any(map(nn.parameter.is_lazy, net.parameters())):
        raise PrivflError(f"{name} has no weights yet; a lazy module needs one pass first")
    net = copy.deepcopy(net).eval()
    for part in net.modules():
        if getattr(part, "inplace", False) is True:
            part.inplace = False  # type: ignore[assignment]
    size = _image_shape(net, name) if shape is None else tuple(int(n) for n in shape)
    return Wrapped(net, name, size, _head_name(net, name, size, head))


def built(model: nn.Module, who: str) -> None:
    """One sentence where ``who`` takes a network apart, and this is not one of ``build``."""
    if isinstance(model, Wrapped):
        raise PrivflError(
            f"{who} takes networks of pf.models.build apart; {model.name!r} is a module of your own"
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


def passed(net: nn.Module, layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
