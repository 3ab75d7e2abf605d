"""``Net``, and the layers of the papers' networks: each ends in a vector, for the last layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from torch import Tensor, nn

from ..checking import checked
from ..values import Function, Number, Row, Text

Side = Annotated[int, Number(1, 4096, whole=True)]
Shape = Annotated[tuple[int, ...], Row((Number(1, 4096, whole=True),) * 3, fixed=True)]
Wide = Annotated[int, Number(1, 65536, whole=True)]
Stride = Annotated[int, Number(1, 64, whole=True)]
Some = Annotated[Sequence[int], Row((Number(1, 64, whole=True),), least=1)]
Hidden = Annotated[Sequence[int], Row((Number(1, 65536, whole=True),))]


class Net(nn.Module):
    """A network in two: ``features`` gives the representation r, ``head`` gives the logits.

    What works on any network asks for ``last`` and ``head_name``, for ``representation`` and
    ``chain``; ``features`` and ``head`` are there in networks of ``build`` alone.
    """

    features: Any  # a module; in networks of ``build`` a chain of layers, by their index
    head_name = "head"  # of the last layer: its gradient is the upload's f"{head_name}.weight"

    @checked
    def __init__(self, name: Text, features: nn.Module, head: nn.Linear, shape: Shape):
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


@checked
def lenet(channels: Side, act: Function, strides: Some = (2, 2, 1)) -> nn.Module:
    """DLG's LeNet: 5×5 convolutions of 12 channels, no pooling (Zhu et al. 2019)."""
    layers: list[nn.Module] = []
    for stride in strides:
        layers += [nn.Conv2d(channels, 12, 5, stride=stride, padding=2), act()]
        channels = 12
    return nn.Sequential(*layers, nn.Flatten())


@checked
def lenet5(channels: Side, act: Function) -> nn.Module:
    """LeNet-5 with max pooling; its first dense layer adapts to the image size."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=2), act(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), act(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.LazyLinear(120), act(), nn.Linear(120, 84), act()),
    )


@checked
def mlp(channels: Side, act: Function, hidden: Hidden = (64,)) -> nn.Module:
    """Fully connected layers of the given widths; ``hidden=()`` leaves softmax regression."""
    layers: list[nn.Module] = [nn.Flatten()]
    for i, width in enumerate(hidden):
        layers += [nn.Linear(hidden[i - 1], width) if i else nn.LazyLinear(width), act()]
    return nn.Sequential(*layers)


@checked
def cloak(channels: Side, act: Function) -> nn.Module:
    """ModelCloak's training net: two 3×3 convolutions, no bias anywhere (its released code)."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3, bias=False), act(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, bias=False), act(), nn.MaxPool2d(2), nn.Flatten()),
    )


def _conv_norm(inp: int, out: int, act: Callable, bias: bool = True) -> list[nn.Module]:
    return [nn.Conv2d(inp, out, 3, padding=1, bias=bias), nn.BatchNorm2d(out), act()]


@checked
def convnet(channels: Side, act: Function, width: Side = 64) -> nn.Module:
    """The ConvNet of Inverting Gradients: 8 convolutions (its source names 9, one is dropped)."""
    layers: list[nn.Module] = []
    for i, factor in enumerate((1, 2, 2, 4, 4, 4, 4, 4)):
        layers += _conv_norm(channels, factor * width, act)
        channels = factor * width
        layers += [nn.MaxPool2d(3)] if i in (5, 7) else []
    return nn.Sequential(*layers, nn.Flatten())


@checked
def vgg16(channels: Side, act: Function) -> nn.Module:
    """VGG-16 with batch norm, in its CIFAR form: 13 convolutions and one dense layer."""
    layers: list[nn.Module] = []
    for item in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        layers += _conv_norm(channels, item, act) if item else [nn.MaxPool2d(2)]
        channels = item or channels
    return nn.Sequential(*layers, nn.Flatten())


class Block(nn.Module):
    """A residual block of two 3×3 convolutions; a 1×1 convolution where the shape changes."""

    @checked
    def __init__(self, inp: Wide, out: Wide, stride: Stride, act: Function):
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


@checked
def resnet(
    channels: Side, act: Function, blocks: Some = (2, 2, 2, 2), width: Side = 64
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
