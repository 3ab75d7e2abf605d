"""What the laboratory in the page needs of the package: networks as data, and real pictures.

    python -m privfl_lite.teach.export

writes ``js/assets/laboratory.safetensors``: pictures as bytes; in its head the layers of each
network and, for each seed, the start of PyTorch's generator, from which the page draws the same
weights as ``models.build`` (js/engine/nets.js). No weight is stored, and none differs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from torch import Tensor, nn

from .. import data, models
from ..data.dataset import resize
from ..data.embedded import PHOTOS as SOURCES
from ..data.embedded import bundled
from ..models import Net
from ..runtime import generator

JS = Path(__file__).parent / "js"
PACK = JS / "assets" / "laboratory.safetensors"
SEEDS = 16  # networks that the page offers
GRAY, COLOR = (1, 28, 28), (3, 32, 32)
NETS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {  # page's name: how it is built
    "lenet-gray": ("lenet", GRAY, {}),
    "lenet-color": ("lenet", COLOR, {}),
    "dense-gray": ("mlp", GRAY, {"hidden": (64,)}),
    "dense-color": ("mlp", COLOR, {"hidden": (32,)}),
}
# LeNet's first weights are U(−a, a): DLG's a = 0.5 suits sigmoids; with it, others saturate.
INIT = {"sigmoid": 0.5, "tanh": 0.05, "relu": 0.05}
DIGITS = (3, 7, 0, 2, 5, 8, 4, 9)
FACES = (1, 5, 22, 25, 28, 29, 38, 66)  # of those in the training set
PHOTOS = {  # the square that is shown: left, top, side
    "astronaut": (150, 20, 200),
    "cat": (90, 0, 300),
    "coffee": (100, 0, 400),
    "flower": (130, 0, 427),
    "motorcycle": (100, 0, 500),
    "temple": (100, 0, 427),
    "rocket": (200, 20, 380),
    "retina": (0, 0, 1411),
}


def build(name: str, seed: int = 0, act: str = "sigmoid") -> Net:
    """The package's network that the page calls ``name``."""
    kind, shape, options = NETS[name]
    init = INIT[act] if kind == "lenet" else None
    return models.build(kind, shape, classes=10, seed=seed, act=act, init=init, **options)


def spec(net: Net) -> dict[str, Any]:
    """Layers and tensors of a network of ``build``, as js/engine/nets.js reads them."""
    redrawn = net.name == "lenet"  # as INIT says, after PyTorch's own first weights
    tensors = [
        {"name": name, "shape": list(p.shape), "size": p.numel(), "bound": bound}
        for (name, p), bound in zip(net.named_parameters(), _bounds(net), strict=True)
    ]
    return {
        "shape": list(net.shape),
        "classes": net.num_classes,
        "layers": list(_layers(net)),
        "tensors": tensors,
        "skip": net.num_parameters if redrawn else 0,
        "init": INIT if redrawn else {},
    }


def _bounds(net: Net) -> Iterator[float]:
    """The bound of PyTorch's uniform first weights: 1/√fan, by two formulas that round apart."""
    for name, p in net.named_parameters():
        fan = math.prod(net.get_parameter(name.rpartition(".")[0] + ".weight").shape[1:])
        weight = math.sqrt(3.0) * (nn.init.calculate_gain("leaky_relu", math.sqrt(5)) / fan**0.5)
        yield weight if p.dim() > 1 else 1 / math.sqrt(fan)


def _layers(net: Net) -> Iterator[dict[str, Any]]:
    """One entry for each layer; ``fan`` inputs meet in each of ``size`` outputs."""
    x = torch.zeros(1, *net.shape)
    for name, layer in [*net.chain(), ("head", net.head)]:
        y = layer(x)
        base = {"name": name, "inputs": x.numel(), "size": y.numel()}
        if isinstance(layer, nn.Conv2d):
            (side, places), (kernel, stride) = (x.shape[2], y.shape[2]), (5, layer.stride[0])
            shape = {"channels": x.shape[1], "side": side, "places": places}
            window = {"kernel": kernel, "stride": stride, "pad": int(layer.padding[0])}
            fan = layer.weight[0].numel()
            yield {"kind": "conv", **base, "out": y.shape[1], "fan": fan, **shape, **window}
        elif isinstance(layer, nn.Linear):
            yield {"kind": "dense", **base, "out": y.shape[1], "fan": x.shape[1]}
        elif not isinstance(layer, nn.Flatten):
            yield {"kind": "act", **base}
        x = y


def pictures() -> dict[str, tuple[Tensor, list[str]]]:
    """Kind -> images (N, C, H, W) in [0, 1] and a word for each, from the embedded data sets."""
    digits, faces = data.load("mnist"), data.load("faces", size=GRAY[1])
    x = torch.stack([digits.x_train[(digits.y_train == d).nonzero()[0, 0]] for d in DIGITS])
    people = faces.x_train[faces.y_train == 0][list(FACES)]
    return {
        "digits": (x, [str(d) for d in DIGITS]),
        "faces": (people, [f"face {i + 1}" for i in range(len(FACES))]),
        "photos": (torch.cat([_photo(*item) for item in PHOTOS.items()]), list(PHOTOS)),
    }


def _photo(name: str, square: tuple[int, int, int]) -> Tensor:
    """A square of one of the photographs, (1, 3, 32, 32)."""
    left, top, side = square
    photo = np.array(Image.open(bundled(SOURCES[name])).convert("RGB"))[top:, left:][:side, :side]
    x = torch.from_numpy(photo).permute(2, 0, 1)[None].float() / 255
    return resize(x, COLOR[1], COLOR[2]).clamp(0, 1)


def pack() -> bytes:
    """The file, as bytes; the same on every machine."""
    images = pictures()
    about = {f"labels:{kind}": json.dumps(words) for kind, (_, words) in images.items()}
    about["nets"] = json.dumps({name: spec(build(name)) for name in NETS})
    about["seeds"] = json.dumps([generator(s).initial_seed() % 2**32 for s in range(SEEDS)])
    as_bytes = {kind: (255 * x).round().byte() for kind, (x, _) in images.items()}
    return save(as_bytes, metadata=about)


if __name__ == "__main__":
    PACK.parent.mkdir(parents=True, exist_ok=True)
    PACK.write_bytes(pack())
    print(f"{PACK.name}: {PACK.stat().st_size:,} bytes")
