"""The feature extractor g of LODA: what some layers of a public network say about an image.

``load_extractor()`` is a ResNet-18 of width 16, trained by ``studies/loda/extractor.py`` on public
images: CIFAR-10's training images from index 25,000 on, standing in for the paper's CIFAR-100.
Private images of an honest experiment are CIFAR-10's first 25,000 training images, its test split,
or other pictures altogether, such as the embedded ``photos``. Chapter: LODA.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from torch import Tensor, nn

from .. import assets, stored
from ..checking import checked
from ..names import PROFILES
from ..runtime import PrivflError, device
from ..values import Either, Number, Row, Word
from .nets import Net
from .registry import build

PUBLIC_FROM = 25_000  # CIFAR-10 training images from this index on are public, no others
WORDS = ("map", "pooled", "logits")  # the last map, its mean (the representation), the last layer
# name: convolutions by their number in the network, and what is taken besides
LAYERS: dict[str, tuple[slice, tuple[str, ...]]] = {
    "loda1": (slice(0, 5), ()),  # "first five convolutional layers", text and code
    "loda2": (slice(None), ()),  # "all the convolutional layers", text
    "loda2-code": (slice(0, 15), ()),  # all but the last stage, released code
    "loda3": (slice(-5, None), ("logits",)),  # "last five … + linear layers", text
    "loda3-code": (slice(-15, -10), ("map", "pooled")),  # second stage, last map, its mean: code
}

_LAYER = Either((Number(0, 10_000, whole=True), Word("layer", *WORDS)))
Layers = Annotated[
    str | Sequence[int | str], Either((Word("choice of layers", *LAYERS), Row((_LAYER,), least=1)))
]


class Extractor:
    """g(x): raw outputs of convolutions, before batch norm, as LODA's released code takes them.

    ``layers`` is a name in ``LAYERS``, or the numbers of convolutions in the order in which the
    network lists them (a block's 1×1 shortcut after its two 3×3), with any of ``WORDS``. Running g
    runs no more of the network than the layers need. Images lie in [0, 1], not normalized.
    """

    @checked
    def __init__(self, net: Net, layers: Layers = "loda1"):
        self.net = net = copy.deepcopy(net).eval().requires_grad_(False)
        convs = [m for m in net.features.modules() if isinstance(m, nn.Conv2d)]
        if isinstance(layers, str):
            part, words = LAYERS[layers]
            chosen = list(range(len(convs)))[part]
        else:
            words = tuple(l for l in layers if l in WORDS)
            chosen = [cast(int, l) for l in layers if l not in WORDS]
        if not (chosen or words) or not all(l in range(len(convs)) for l in chosen):
            allowed = f"convolutions 0…{len(convs) - 1} and {', '.join(WORDS)}"
            raise PrivflError(f"layers must be one or more of {allowed}; got {layers!r}")
        self.layers, self.chosen, self.words = layers, chosen, words
        self._convs = [convs[l] for l in chosen]
        self._stages = list(cast(nn.Sequential, net.features))
        if not words:  # nothing behind the last chosen convolution needs to run
            needed = [i for i, s in enumerate(self._stages) if set(s.modules()) & set(self._convs)]
            self._stages = self._stages[: needed[-1] + 1]

    def check(self, x: Tensor) -> None:
        """One clear sentence if these are no images for the network."""
        if x.dim() != 4 or x.shape[1] != self.net.shape[0]:
            want = f"(B, {self.net.shape[0]}, H, W)"
            raise PrivflError(f"the extractor takes images {want}; got {tuple(x.shape)}")

    def __call__(self, x: Tensor) -> list[Tensor]:
        """Images (B, C, H, W) -> one tensor (B, …) a layer."""
        self.check(x)
        seen: dict[nn.Module | str, Tensor] = {}
        hooks = [
            conv.register_forward_hook(lambda m, _, out: seen.__setitem__(m, out))
            for conv in self._convs
        ]
        try:
            for stage in self._stages:
                if isinstance(stage, nn.AdaptiveAvgPool2d):
                    seen["map"] = x
                x = stage(x)
        finally:
            for hook in hooks:
                hook.remove()
        if self.words:
            seen |= {"pooled": x, "logits": self.net.head(x)}
        keys: list[nn.Module | str] = [*self._convs, *self.words]
        return [seen[key] for key in keys]

    def __repr__(self) -> str:
        return f"Extractor({self.net.name}, layers={self.layers!r})"


def squared_distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """‖a − b‖² (B,) over all entries of all layers: the first term of Eq. 4."""
    parts = ((s - t).flatten(1).square().sum(1) for s, t in zip(a, b, strict=True))
    return cast(Tensor, sum(parts))


def stored_at(profile: str) -> Path:
    """Where the extractor of a profile is: among the results, or (22 MB) in the cache."""
    name = f"weights/extractor-{profile}.safetensors"
    return stored.find(name) if profile == "cpu" else assets.cache() / name


def blank(profile: str, seed: int = 0) -> Net:
    """The untrained network: ResNet-18, 16 wide for CIFAR-10, as wide as the paper's for gpu."""
    options: dict[str, Any] = {"width": 16} if profile == "cpu" else {}
    classes = 10 if profile == "cpu" else 100
    return build("resnet18", (3, 32, 32), classes, seed=seed, **options)


@checked
def load_extractor(
    layers: Layers = "loda1",
    profile: Annotated[str, Word("profile", *PROFILES)] = "cpu",
    path: Path | None = None,
) -> Extractor:
    """g on the stored network, after a check of its digest; ``profile`` as in studies."""
    net = blank(profile)
    stored.fill(net, path or stored_at(profile), f"extractor --profile {profile}")
    return Extractor(net.to(device()), layers)
