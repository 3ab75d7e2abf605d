"""LODA (Wan et al. 2022): train on images with the private ones' features but not their pixels.

Chapter "LODA: learning to obscure data". Nothing is bounded: the encoding x′ is a function of the
private image x*, whose features it keeps on purpose, and it is as far from x* as the box allows.
Both are information about x* (``attacks.adaptive.loda_inversion``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, NamedTuple, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Generator, Tensor

from .. import disk
from ..arrays import Images
from ..data import NAMES, load
from ..gradients import Tensors
from ..models import Net
from ..models.extractor import PUBLIC_FROM, Extractor, Layers, load_extractor, squared_distance
from ..runtime import PrivflError, device, generator, progress
from ..stored import digest, identity
from ..values import Count, NotNegative, Positive, Seed, Word
from ..wire import Facts
from .base import Context, Defense

WEIGHT = {"loda1": 20.0, "loda2": 30.0, "loda2-code": 30.0, "loda3": 1.0, "loda3-code": 1.0}
# the paper's c is for the paper's network; on ours 7.5 times it puts LODA₁'s encodings as far from
# the private images as Table 1 has them (PSNR 5.77 dB; here 5.5 and 6.0, two starts, 16 images)
UNIT = {"cpu": 7.5, "gpu": 1.0}
STARTS = ("noise", *NAMES)  # of encodings
AT_ONCE = 64  # images that are obscured side by side
A_WRITE = 256  # images between two writes of an obscured set


class Obscured(NamedTuple):
    """Encodings of N images; history: ‖g(x′) − g(x*)‖² and ‖x′ − x*‖² around each step."""

    images: Tensor  # x′ (N, C, H, W)
    history: Tensor  # (N, 2, steps + 1)


@dataclass(frozen=True, eq=False)
class LODA(Defense):
    """Replace each image by its encoding, Eq. 4, found by Algorithm 1; labels stay.

    ``extractor``: "cpu" or "gpu", a stored one, or any network. ``layers``: a name in
    ``extractor.LAYERS`` ("loda2" and "loda3" as the text says; "-code" as released), or numbers of
    convolutions. ``c`` weighs the pixels. It has no meaning across networks: rescaling a
    convolution before batch norm changes no output, but it changes the features, and so c. The
    default is the paper's times the ``UNIT`` of a stored network.

    ``start``: where x′ begins, images (N, C, H, W) to draw from or the name of a data set:
    "photos" (training tiles), "cifar10" (its public part), "cifar100" (the paper's); or "noise".

    An image is obscured once: its encoding depends on the image, these settings and ``seed`` only,
    not on the round or on the caller's generator, so that a client does not hand out several
    encodings of one image (which tell more). A client keeps what it has obscured in its memory.
    ``fresh``: it does not, and begins every round from another start, drawn by its generator.
    """

    extractor: Net | Annotated[str, Word("extractor", *UNIT)] = "cpu"
    layers: Layers = "loda1"
    c: NotNegative | None = None
    steps: Count = 500
    step_size: Positive = 0.1
    start: Images | Annotated[str, Word("start", *STARTS)] = "photos"
    seed: Seed = 0
    fresh: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        named = isinstance(self.layers, str) and self.layers in WEIGHT
        if self.c is None and not (named and isinstance(self.extractor, str)):
            known = ", ".join(WEIGHT)
            raise PrivflError(f"c has a default only for stored networks and layers {known}")
        self.g  # noqa: B018  (layers that do not exist are refused now)

    @property
    def weight(self) -> float:
        """c: as given, or the paper's in the units of the stored network."""
        if self.c is not None:
            return float(self.c)
        return WEIGHT[cast(str, self.layers)] * UNIT[cast(str, self.extractor)]

    @cached_property
    def g(self) -> Extractor:
        """The feature extractor, on the device."""
        if isinstance(self.extractor, str):
            return load_extractor(self.layers, self.extractor)
        g = Extractor(self.extractor, self.layers)
        g.net.to(device())
        return g

    def data(
        self, x: Tensor, y: Tensor, rng: Generator, kept: Tensors | None = None
    ) -> tuple[Tensor, Tensor]:
        if self.fresh:
            seed = int(torch.randint(2**31, (), generator=rng))
            return replace(self, seed=seed, fresh=False).obscure(x).images, y
        kept = {} if kept is None else kept
        keys = [_key(image).hex() for image in x]
        new = list({key: i for i, key in enumerate(keys) if key not in kept}.values())
        if new:
            for i, image in zip(new, self.obscure(x[new]).images, strict=True):
                kept[keys[i]] = image.cpu()
        return torch.stack([kept[key] for key in keys]).to(x), y

    def obscure(self, x: Tensor, show: bool = True) -> Obscured:
        """Encodings of images x (N, C, H, W), many at once, with both terms of Eq. 4 on the way."""
        self.g.check(x)
        begin, parts = self.starts(x), []
        everyone = torch.arange(len(x), device=x.device)
        for rows in progress(everyone.split(AT_ONCE), "LODA", show=show):
            terms = (x[rows], begin[rows], self.weight, self.steps, self.step_size)
            parts.append(obscure(self.g, *terms, show=show))
        return Obscured(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def starts(self, x: Tensor) -> Tensor:
        """Where the encodings of x begin: a public image each, drawn by the image and the seed."""
        rngs = [generator(self.seed, int.from_bytes(_key(image)[:7], "big")) for image in x]
        if isinstance(self.start, str) and self.start == "noise":
            return torch.stack([torch.rand(x.shape[1:], generator=rng) for rng in rngs]).to(x)
        pool = self.start if isinstance(self.start, Tensor) else public_images(self.start, x)
        if pool.shape[1:] != x.shape[1:]:
            got = f"{tuple(pool.shape[1:])}, the private ones {tuple(x.shape[1:])}"
            raise PrivflError(
                f"images to start from must be as large as the private; they are {got}"
            )
        drawn = [torch.randint(len(pool), (), generator=rng) for rng in rngs]
        return pool[torch.stack(drawn)].to(x)

    def rows(self) -> int:
        return 1  # each image by itself

    def facts(self, ctx: Context) -> Facts:
        return Facts(c=self.weight, extractor=self.g)


@torch.enable_grad()
def obscure(
    g: Extractor,
    x: Tensor,
    start: Tensor,
    c: float,
    steps: int = 500,
    step_size: float = 0.1,
    shrink: bool = False,
    show: bool = True,
) -> Obscured:
    """Algorithm 1: x′ ← proj_[0,1](x′ − τ ∇/‖∇‖), ∇ that of ‖g(x′) − g(x*)‖² − c‖x′ − x*‖², Eq. 4.

    Every image has its own norm. Steps of one length τ never come to rest; with ``shrink`` (not in
    the paper) they fall to zero linearly, for encodings near a stationary point.
    """
    with torch.no_grad():
        target = g(x)
    z, history = start.clone(), []
    for t in progress(range(steps + 1), "obscuring", show=show):
        z.requires_grad_()
        pixels = (z - x).flatten(1).square().sum(1)
        features = squared_distance(g(z), target)
        history.append(torch.stack([features, pixels], 1).detach())
        if t == steps:
            break
        (grad,) = torch.autograd.grad((features - c * pixels).sum(), z)
        norm = grad.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None, None]
        length = step_size * (1 - t / steps) if shrink else step_size
        z = (z.detach() - length * grad / norm).clamp(0, 1)
    return Obscured(z.detach(), torch.stack(history, 2))


def public_images(name: str, like: Tensor) -> Tensor:
    """Images (N, C, H, W) that encodings may begin from; of CIFAR-10 only the public part."""
    data = load(name, size=like.shape[-1]) if name == "photos" else load(name)
    return data.x_train[PUBLIC_FROM if name == "cifar10" else 0 :]


def obscured_set(loda: LODA, x: Tensor, path: Path, show: bool = True) -> Tensor:
    """Encodings of x (N, C, H, W) as 8-bit images, written once: a client's new training set.

    The released code trains on 8-bit images, too. An interrupted run goes on where it stopped; a
    file of other images or settings is refused.
    """
    seen = hashlib.sha256(x.cpu().numpy().tobytes()).hexdigest()
    about = {"loda": identity(loda), "images": seen}
    done = torch.zeros(0, *x.shape[1:], dtype=torch.uint8)
    if path.is_file():
        done = _read_encodings(path, about)
    disk.check_writable(path, make_folder=True)
    for first in progress(range(len(done), len(x), A_WRITE), "obscured set", show=show):
        new = loda.obscure(x[first : first + A_WRITE], show=False).images
        done = torch.cat([done, new.mul(255).round().byte().cpu()])
        held = {"images": done}
        disk.write(path, save(held, {**about, "sha256": digest(held)}))
    return done.to(x) / 255


def _read_encodings(path: Path, about: dict[str, str]) -> Tensor:
    remedy = "delete it to make it again"
    try:
        with safe_open(path, "pt") as file:
            stored, done = file.metadata() or {}, file.get_tensor("images")
    except (SafetensorError, OSError):
        raise PrivflError(f"{path.name} is damaged; {remedy}") from None
    sha = stored.pop("sha256", None)
    if stored != about:
        raise PrivflError(f"{path.name} holds encodings of other images or settings")
    if sha != digest({"images": done}):
        raise PrivflError(f"{path.name} does not match its own SHA-256; {remedy}")
    return done


def _key(image: Tensor) -> bytes:
    return hashlib.sha256(image.detach().cpu().contiguous().numpy().tobytes()).digest()
