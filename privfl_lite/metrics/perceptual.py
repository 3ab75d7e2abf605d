"""LPIPS, the learned perceptual distance, with backbones out of the cache."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from .. import assets
from ..arrays import Found
from ..checking import checked
from ..runtime import PrivflError, needs, torchvision
from ..values import Word
from .pairs import pair

Backbone = Annotated[str, Word("LPIPS net", "alex", "vgg")]


def _backbone(net: str) -> list[Tensor]:
    """Weight and bias of each convolution in order, as torchvision trained them on ImageNet.

    A file in torch's hub folder counts if its SHA-256 begins as its name says: alexnet-owt-7be5…
    """
    models = torchvision().models
    weights = models.AlexNet_Weights if net == "alex" else models.VGG16_Weights
    path = Path(torch.hub.get_dir(), "checkpoints", Path(weights.IMAGENET1K_V1.url).name)
    if path.is_file() and assets.sha256(path).startswith(path.stem.rpartition("-")[2]):
        state = torch.load(path, map_location="cpu", weights_only=True)
        return [value for key, value in state.items() if key.startswith("features.")]
    state = load_file(assets.fetch("lpips") / f"{path.stem.split('-')[0]}.safetensors")
    return [state[f"conv{i}.{part}"] for i in range(len(state) // 2) for part in ("weight", "bias")]


@lru_cache
def _lpips_net(net: str) -> torch.nn.Module:
    weights = _backbone(net)  # imports torchvision in our way, before lpips does in its own
    with needs("book"):
        from lpips import LPIPS

    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):  # it draws, then we fill
        warnings.simplefilter("ignore")  # lpips builds its backbone with a deprecated argument
        model = LPIPS(net=net, pnet_rand=True, verbose=False)
    for parameter, stored in zip(model.net.parameters(), weights, strict=True):
        parameter.data.copy_(stored)
    return model


@checked
@torch.no_grad()
def lpips(x_hat: Found, x: Found, net: Backbone = "alex") -> Tensor:
    """Learned perceptual distance per image (Zhang et al. 2018, v0.1): 0 when equal, seldom over 1.

    ``net``: "alex" or "vgg", FedKL's LPIPS-A and LPIPS-V. Images go from [0, 1] to [-1, 1], as the
    ``lpips`` package wants; gray ones are repeated to three channels. A shorter side under 32
    pixels is enlarged to 32 (bilinear, for both nets: AlexNet cannot take 28 x 28). The backbone's
    weights come from torch's hub cache, else from the asset ``lpips``.
    """
    x_hat, x = pair(x_hat, x)
    if x.shape[1] not in (1, 3):
        raise PrivflError(f"LPIPS needs images with 1 or 3 channels, not {x.shape[1]}")
    model = _lpips_net(net).to(x.device)
    scale = max(1, 32 / min(x.shape[2:]))  # under 31 pixels AlexNet's pooling leaves nothing
    size = [round(side * scale) for side in x.shape[2:]]

    def prepare(images: Tensor) -> Tensor:
        images = 2 * images.float().expand(-1, 3, -1, -1) - 1
        return F.interpolate(images, size, mode="bilinear") if scale > 1 else images

    pairs = zip(x_hat.split(16), x.split(16), strict=True)  # VGG's features are large
    return torch.cat([model(prepare(a), prepare(b)).flatten() for a, b in pairs]).to(x)
