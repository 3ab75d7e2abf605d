"""What an upload gives away by counting, before any search: layer by layer, and its labels.

A dense layer with a bias divides its input out of its gradient where one image stands behind it. A
convolution of kernel k² has outputs · k² equations for the H · W pixels of each input channel, and
its output gives outputs · positions more, if it is known (chapter: through the layers).
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..attacks import row_quotients
from ..models import Net
from ..wire import Upload

NORM = nn.modules.batchnorm._BatchNorm
POOLS = (nn.MaxPool2d, nn.AdaptiveMaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
SMOOTH = (nn.Sigmoid, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus)
SAME = 1e-5  # root mean square over pixels below which two rows agree
WORK = 2e10  # multiplications that a rank may cost
RANK_TOL = 1e-5  # of the largest singular value: rounding of 32-bit gradients lies below


@dataclass(frozen=True)
class LayerRow:
    """One layer with weights on the wire: its input, and how many equations there are for it."""

    name: str
    kind: str
    inputs: int  # numbers that enter it, for one image
    by_gradient: int  # of these its own gradient fixes at most so many, if the error is known
    by_output: int  # and its output so many more, if that is known
    measured: bool  # counted by the recursion itself, not bounded
    says: str

    @property
    def left(self) -> int:
        return self.inputs - self.by_gradient - self.by_output


def structure(upload: Upload, recursion: dict[str, Any]) -> dict[str, Any]:
    """Layers, what stands between them, and what the recursion says of one image."""
    shapes = seen_shapes(upload.model)
    rows = [_row(upload, n, m, shapes, recursion["steps"]) for n, m in _weighted(upload)]
    return {
        "layers": [asdict(row) | {"left": row.left} for row in rows],
        "between": _between(upload.model, upload.mode),
        "recursion": recursion,
    }


def seen_shapes(net: Net) -> dict[str, tuple[torch.Size, torch.Size]]:
    """What enters and leaves each dense layer and convolution for one image, by its name."""
    seen: dict[str, tuple[torch.Size, torch.Size]] = {}
    twin = copy.deepcopy(net).eval()

    def note(name: str) -> Any:
        return lambda _m, given, out: seen.update({name: (given[0].shape[1:], out.shape[1:])})

    for name, m in twin.named_modules():
        if isinstance(m, nn.Linear | nn.Conv2d):
            m.register_forward_hook(note(name))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        twin(torch.zeros(1, *net.shape).to(next(twin.parameters())))
    return seen


def _weighted(upload: Upload) -> list[tuple[str, nn.Linear | nn.Conv2d]]:
    return [
        (n, m)
        for n, m in upload.model.named_modules()
        if isinstance(m, nn.Linear | nn.Conv2d) and f"{n}.weight" in upload.tensors
    ]


def _row(
    upload: Upload, name: str, m: nn.Linear | nn.Conv2d, shapes: dict, steps: dict[str, Any]
) -> LayerRow:
    given, out = shapes.get(name, (torch.Size([0]), torch.Size([0])))
    inputs = given.numel()
    if name in steps:
        step = steps[name]
        fixed = step["unknowns"], step["by_gradient"], step["by_output"]
        kind = "dense" if isinstance(m, nn.Linear) else "convolution"
        return LayerRow(name, kind, *fixed, True, _says(upload, name, m, inputs, True))
    if isinstance(m, nn.Linear):
        return LayerRow(
            name, "dense", inputs, inputs, 0, False, _says(upload, name, m, inputs, False)
        )
    pixels = given[1:].numel()
    k = m.weight[0, 0].numel()
    own = given[0] * min(m.out_channels // m.groups * k, pixels)
    more = min(inputs - own, out.numel())
    return LayerRow(name, "convolution", inputs, own, more, False, _kernel(m, pixels, k))


def _says(upload: Upload, name: str, m: nn.Module, inputs: int, measured: bool) -> str:
    if isinstance(m, nn.Conv2d):
        pixels = inputs // m.in_channels
        return _kernel(m, pixels, m.weight[0, 0].numel())
    return _dense(upload, name, m)


def _kernel(m: nn.Conv2d, pixels: int, k: int) -> str:
    equations = m.out_channels // m.groups * k
    stride = f", stride {max(m.stride)}" if max(m.stride) > 1 else ""
    return f"{equations:,} equations for the {pixels:,} pixels of each input channel{stride}"


def _dense(upload: Upload, name: str, m: nn.Module) -> str:
    """What the gradient of a dense layer tells: its input, or mixtures of inputs and their rank."""
    weight = upload.gradients()[f"{name}.weight"]
    bias = upload.gradients().get(f"{name}.bias")
    whole = weight.shape[2] == torch.Size(upload.model.shape).numel() and _first(upload, name)
    what = "the whole image" if whole else "its input, not the image"
    if upload.batch == 1:
        if bias is None:
            return f"{what}, but for one factor: it sends no bias"
        by = "by one division" if upload.local_steps == 1 else "nearly: its steps are averaged"
        return f"{what}, {by} (row of weights over entry of bias)"
    both = weight if bias is None else torch.cat([weight, bias[..., None]], 2)
    if both[0].numel() * min(both.shape[1:]) > WORK:
        return f"mixtures of {upload.batch} inputs"
    rank = rank_of(both[0])
    most = min(both.shape[1:])
    said = f"mixtures of {upload.batch} inputs, of rank {rank} (at most {most})"
    if rank == upload.batch and whole:
        said += ": as many as images, so the images span what was sent"
    elif upload.batch > most:
        said += ": more images than the layer can keep apart"
    if whole and bias is not None:
        said += (
            f"; {lone_rows(weight[:1], bias[:1])} of {weight.shape[1]} rows are one image's alone"
        )
    return said


def _first(upload: Upload, name: str) -> bool:
    return next(iter(upload.tensors)).rpartition(".")[0] == name


def lone_rows(weight: Tensor, bias: Tensor) -> int:
    """Rows ∇W_i / ∇b_i of one upload that look like an image and that another unit has, too.

    Mixtures of images hardly ever agree, so these units were on for one image alone.
    """
    rows = row_quotients(weight, bias)[0].double()
    rows = rows[((rows > -0.01) & (rows < 1.01)).all(1)]  # also drops NaN
    apart = torch.cdist(rows, rows) / max(1, rows.shape[1]) ** 0.5
    return int(((apart < SAME).sum(1) > 1).sum())


def rank_of(matrix: Tensor) -> int:
    """Singular values over ``RANK_TOL`` of the largest."""
    values = torch.linalg.svdvals(matrix.double())
    return int((values > RANK_TOL * values[0]).sum()) if values[0] > 0 else 0


def _between(net: Net, mode: str) -> list[str]:
    """Sentences on what stands between layers with weights."""
    parts = list(net.modules())
    said = []
    norms = [m for m in parts if isinstance(m, NORM)]
    if norms and mode == "eval":
        said.append(
            f"Batch norm ({len(norms)} layers) in eval mode: an affine map that the server knows."
        )
    elif norms:
        said.append(
            f"Batch norm ({len(norms)} layers) in train mode: its statistics are the batch's own; "
            "closed forms refuse it, and searches have to imitate it."
        )
    pools = Counter(type(m).__name__ for m in parts if isinstance(m, POOLS))
    if pools:
        names = ", ".join(f"{n} × {name}" for name, n in pools.items())
        said.append(f"Pooling ({names}): what enters does not follow from what leaves.")
    wide = sum(isinstance(m, nn.Conv2d) and max(m.stride) > 1 for m in parts)
    if wide:
        said.append(f"Strides over 1 in {wide} convolutions: fewer outputs, so fewer equations.")
    smooth = Counter(type(m).__name__ for m in parts if isinstance(m, SMOOTH))
    for name, n in smooth.items():
        said.append(f"{name} × {n}: smooth, so searches have a slope everywhere.")
    relu = sum(isinstance(m, nn.ReLU) for m in parts)
    if relu:
        said.append(
            f"ReLU × {relu}: units that are off leave zeros, which SPEAR reads if "
            "a dense layer comes first."
        )
    return said
