"""ATS: train on transformed images, with the transformations found by a search (Gao et al. 2021).

Everything below follows the paper's released code (gaow0007/ATSPrivacy), which applies the policy
after a random crop and flip; those are ordinary augmentation and are left out here. ATS bounds
nothing: it makes an image harder to reach by gradient matching on a *trained* network.
Images are floats in [0, 1] and stay so: where the code rounds to 8 bits after every operation, ours
rounds only inside those that are made of gray levels (posterize, equalize).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from ..gradients import Tensors
from ..runtime import PrivflError
from ..values import Holds
from ..wire import Facts
from .base import Context, Defense

_LIST = """
invert7 contrast6 rotate2 translate_x9 sharpness1 sharpness3 shear_y2 translate_y2 autocontrast5
equalize2 shear_y5 posterize5 color3 brightness5 sharpness9 brightness9 equalize5 equalize1
contrast7 sharpness5 color5 translate_x5 equalize7 autocontrast8 translate_y3 sharpness6
brightness6 color8 solarize0 invert0 equalize0 autocontrast0 equalize8 equalize4 color5 equalize5
autocontrast4 solarize4 brightness3 color0 solarize1 autocontrast0 translate_y3 translate_y3
autocontrast1 solarize1 equalize5 invert0 translate_y3 autocontrast1
"""
# Operation i of the released list: its name and level. Its probability is never used by the code.
OPERATIONS = [(word[:-1], int(word[-1])) for word in _LIST.split()]
_ENDS = {  # magnitude at level 0 and at level 9, evenly spaced between
    **dict.fromkeys(("shear_x", "shear_y"), (0, 0.3)),  # slope
    **dict.fromkeys(("translate_x", "translate_y"), (0, 150 / 331)),  # share of the side
    "rotate": (0, 30),  # degrees, counterclockwise
    **dict.fromkeys(("color", "contrast", "sharpness", "brightness"), (0, 0.5)),  # factor minus 1
    "posterize": (8, 4),  # bits kept
    "solarize": (256, 0),  # gray level from which on pixels are inverted
}
WRITTEN = Holds("operations, as 3-1-7+43-18-18", lambda v: type(v) in (str, int))
_ONE_WAY = ("rotate", "posterize", "solarize")  # the others' magnitudes get a random sign


def magnitude(name: str, level: int) -> float:
    """The magnitude of an operation at a level 0…9; 0 where it has none."""
    low, high = _ENDS.get(name, (0, 0))
    value = low + (high - low) * level / 9
    return float(round(value)) if name == "posterize" else value


def parse(policy: str) -> tuple[tuple[int, ...], ...]:
    """``"3-1-7+43-18-18"`` -> ((3, 1, 7), (43, 18, 18)); "/" may stand for "+" (command line)."""
    try:
        lists = tuple(
            tuple(int(i) for i in part.split("-"))
            for part in str(policy).replace("/", "+").split("+")
        )
    except ValueError:
        lists = ()
    if not lists or not all(0 <= i < len(OPERATIONS) for part in lists for i in part):
        raise PrivflError(
            f"policy {policy!r} is not of the form 3-1-7+43-18-18 "
            f"with operations 0…{len(OPERATIONS) - 1}"
        )
    return lists


@dataclass(frozen=True)
class ATS(Defense):
    """Replace each image by a transformed one; labels stay.

    ``policy``: lists of operations joined by "+". For each image one list is drawn uniformly, and
    its operations are applied in order, every one of them (the code ignores its probabilities).
    In FedAvg an image is transformed anew in every round. No ε: nothing is bounded or random enough
    to hide a pixel.
    """

    policy: Annotated[str, WRITTEN] = "3-1-7+43-18-18"

    def __post_init__(self) -> None:
        super().__post_init__()
        parse(self.policy)
        object.__setattr__(self, "policy", str(self.policy).replace("/", "+"))  # one name for each

    def data(
        self, x: Tensor, y: Tensor, rng: torch.Generator, kept: Tensors | None = None
    ) -> tuple[Tensor, Tensor]:
        if x.shape[1] not in (1, 3):
            raise PrivflError(f"ATS takes gray or RGB images, 1 or 3 channels; got {x.shape[1]}")
        lists = parse(self.policy)
        drawn = torch.randint(len(lists), (len(x),), generator=rng)
        signs = torch.randint(2, (len(x), max(map(len, lists))), generator=rng) * 2 - 1
        out = x.clone()
        for i, indices in enumerate(lists):
            rows = (drawn == i).nonzero().flatten()
            if len(rows):
                out[rows] = transform(x[rows], indices, signs[rows].to(x))
        return out, y

    def rows(self) -> int:
        return 1  # each image by itself

    def facts(self, ctx: Context) -> Facts:
        return Facts(policy=self.policy)


def transform(x: Tensor, indices: tuple[int, ...], signs: Tensor) -> Tensor:
    """Apply operations to images x (n, C, H, W) in order; signs (n, ≥ len(indices)) hold ±1."""
    for step, index in enumerate(indices):
        name, level = OPERATIONS[index]
        sign = torch.ones_like(signs[:, step]) if name in _ONE_WAY else signs[:, step]
        x = APPLY[name](x, magnitude(name, level) * sign)
    return x


# The operations: images x (n, C, H, W) in [0, 1] and one magnitude an image, m (n,).


def _affine(x: Tensor, rows: tuple, cubic: bool = False, fill: float = 0.0) -> Tensor:
    """out(u, v) = x(a u + b v + c, d u + e v + f), pixel centers at +0.5, ``fill`` from outside.

    ``rows`` = (a, b, c, d, e, f), numbers or (n,). Nearest pixel, or Pillow's bicubic (a = −1).
    """
    n, channels, height, width = x.shape
    v, u = torch.meshgrid(
        torch.arange(height, device=x.device, dtype=torch.float64) + 0.5,
        torch.arange(width, device=x.device, dtype=torch.float64) + 0.5,
        indexing="ij",
    )
    a, b, c, d, e, f = (
        torch.as_tensor(t, dtype=torch.float64, device=x.device).expand(n)[:, None, None]
        for t in rows
    )
    px, py = a * u + b * v + c, d * u + e * v + f  # (n, H, W)
    inside = (px >= 0) & (px < width) & (py >= 0) & (py < height)

    def take(i: Tensor, j: Tensor) -> Tensor:  # columns i and rows j, held at the border
        flat = (j.clamp(0, height - 1) * width + i.clamp(0, width - 1)).long()
        picked = x.flatten(2).gather(2, flat.view(n, 1, -1).expand(-1, channels, -1))
        return picked.view_as(x)

    if not cubic:
        out = take(px.floor(), py.floor())
    else:
        i, j = (px - 0.5).floor(), (py - 0.5).floor()
        across, down = _cubic_weights(px - 0.5 - i), _cubic_weights(py - 0.5 - j)
        parts = (
            (down[q] * across[p])[:, None].to(x) * take(i + p - 1, j + q - 1)
            for q in range(4)
            for p in range(4)
        )
        out = cast(Tensor, sum(parts)).clamp(0, 1)
    return torch.where(inside[:, None], out, torch.full_like(out, fill))


def _cubic_weights(t: Tensor) -> tuple[Tensor, ...]:
    """Weights of the pixels at −1, 0, 1, 2 for a point at 0 ≤ t < 1 (Keys' kernel, a = −1)."""
    near, far = 1 - 2 * t**2 + t**3, t + t**2 - t**3
    return -t + 2 * t**2 - t**3, near, far, t**3 - t**2


def _rotate(x: Tensor, m: Tensor) -> Tensor:
    """About the center, nearest pixel; corners become middle gray (128), as in the code."""
    cos, sin = torch.cos(torch.deg2rad(m.double())), torch.sin(torch.deg2rad(m.double()))
    cx, cy = x.shape[3] / 2, x.shape[2] / 2
    rows = (cos, -sin, cx - cos * cx + sin * cy, sin, cos, cy - sin * cx - cos * cy)
    return _affine(x, rows, fill=128 / 255)


def _gray(x: Tensor) -> Tensor:
    """Luminance (n, 1, H, W), ITU-R 601; of a gray image, itself."""
    if x.shape[1] == 1:
        return x
    return (x * x.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)


def _enhance(base: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """x ↦ base + (1 + m)(x − base), clipped: away from or toward a blander image."""

    def apply(x: Tensor, m: Tensor) -> Tensor:
        plain = base(x)
        return (plain + (1 + m.view(-1, 1, 1, 1)) * (x - plain)).clamp(0, 1)

    return apply


def _smooth(x: Tensor) -> Tensor:
    """3×3 mean with the center counted 5 times; the outermost pixels stay."""
    kernel = x.new_ones(1, 1, 3, 3)
    kernel[..., 1, 1] = 5
    out = x.clone()
    inner = conv2d(x.flatten(0, 1)[:, None], kernel / 13)
    out[:, :, 1:-1, 1:-1] = inner.view(*x.shape[:2], *inner.shape[2:])
    return out


def _levels(x: Tensor) -> Tensor:
    return (255 * x).round().clamp(0, 255)


def _posterize(x: Tensor, m: Tensor) -> Tensor:
    """Keep the upper m of 8 bits."""
    step = 2 ** (8 - m.view(-1, 1, 1, 1))
    return (_levels(x) / step).floor() * step / 255


def _autocontrast(x: Tensor, m: Tensor) -> Tensor:
    """Stretch each channel to reach 0 and 1; a constant one stays."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    flat = high <= low
    return torch.where(flat, x, (x - low) / torch.where(flat, torch.ones_like(high), high - low))


def _equalize(x: Tensor, m: Tensor) -> Tensor:
    """Level i of a channel becomes ⌊(⌊s/2⌋ + pixels below level i) / s⌋.

    s = ⌊pixels below the top level / 255⌋; where it is 0 the channel stays.
    """
    q = _levels(x).long().flatten(2)  # (n, C, HW)
    counts = q.new_zeros(*q.shape[:2], 256).scatter_add_(2, q, torch.ones_like(q))
    top = counts.gather(2, q.amax(2, keepdim=True))
    step = (q.shape[2] - top) // 255  # (n, C, 1)
    below = counts.cumsum(2) - counts
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    new = table.gather(2, q).view_as(x).to(x) / 255
    return torch.where((step == 0)[..., None], x, new)


APPLY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "shear_x": lambda x, m: _affine(x, (1, m, 0, 0, 1, 0), cubic=True),
    "shear_y": lambda x, m: _affine(x, (1, 0, 0, m, 1, 0), cubic=True),
    "translate_x": lambda x, m: _affine(x, (1, 0, m * x.shape[3], 0, 1, 0)),
    "translate_y": lambda x, m: _affine(x, (1, 0, 0, 0, 1, m * x.shape[2])),
    "rotate": _rotate,
    "color": _enhance(_gray),  # the identity on gray images
    "contrast": _enhance(lambda x: _gray(x).mean((1, 2, 3), keepdim=True)),
    "sharpness": _enhance(_smooth),
    "brightness": _enhance(torch.zeros_like),
    "posterize": _posterize,
    "solarize": lambda x, m: torch.where(255 * x < m.view(-1, 1, 1, 1), x, 1 - x),
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "invert": lambda x, m: 1 - x,
}
