"""The papers' networks, small and plain. Each is ``features`` (ending in a vector) and ``head``.

``build("lenet", digits)`` fits a network to a data set, or to a shape such as ``(1, 28, 28)``.
Nothing here works in place, so that every network can be differentiated twice and under ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from .runtime import PrivflError, choose, seeded

ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh, "identity": nn.Identity}


class Net(nn.Module):
    """A network in two: ``features`` gives the representation r, ``head`` gives the logits."""

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
    def num_classes(self) -> int:
        return self.head.out_features

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
    shape = tuple(getattr(like, "shape", like))
    classes = classes or getattr(like, "num_classes", None)
    if len(shape) != 3 or not classes:
        raise PrivflError(
            f"build({name!r}) needs a data set, or a shape (C, H, W) with classes=…; got {like!r}"
        )
    activation = ACTIVATIONS[choose("activation", act or own_act, ACTIVATIONS)]
    with seeded(seed):
        features = make(shape[0], activation, **options).eval()
        width = _flat_size(name, features, shape, partial(make, shape[0], activation, **options))
        net = Net(name, features, nn.Linear(width, classes, bias=bias), shape)
        if init or bound:
            for p in net.parameters():
                nn.init.uniform_(p, -(init or bound), init or bound)
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
