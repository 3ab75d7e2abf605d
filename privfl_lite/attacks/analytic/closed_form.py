"""The closed form: a fully connected layer gives its input away (DCS² Eq. 3–5; Phong et al.)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from ...arrays import Array
from ...checking import checked
from ...runtime import PrivflError, choose
from ...values import Text
from ...wire import Upload
from ..base import Attack, Reconstruction
from ..labels import known_labels

Weights = Annotated[Tensor, Array("gradients of weights (U, out, in)", (3,), finite=False)]
Biases = Annotated[Tensor, Array("gradients of biases (U, out)", (2,), finite=False)]


@checked
def row_quotients(g_weight: Weights, g_bias: Biases) -> Tensor:
    """∇W_i / ∇b_i for each row i: (U, out, in); rows with a zero bias gradient become NaN.

    For one example ∇W = δ aᵀ and ∇b = δ, so every row with δ_i ≠ 0 gives the input a exactly. For a
    batch, row i gives the mean of the inputs weighted by their δ_i.
    """
    if g_weight.shape[:2] != g_bias.shape:
        got = f"{tuple(g_weight.shape)} and {tuple(g_bias.shape)}"
        raise PrivflError(f"g_weight must be (U, out, in) and g_bias (U, out); got {got}")
    return g_weight / torch.where(g_bias == 0, torch.nan, g_bias)[:, :, None]


@dataclass(frozen=True)
class ClosedForm(Attack):
    """Read the images behind a network whose first layer is fully connected, with no optimization.

    With one image behind an upload every row is the image; the one with the largest bias gradient
    is taken, whatever its range. With more, rows are mixtures unless a unit was active for one
    image alone. All units that were active for the same single image give
    the same row, while mixtures hardly ever agree: of the rows that lie in [0, 1], those with which
    most others agree are taken.
    """

    layer: Text | None = None
    letter = "A"

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """The images that entered the layer (default: the first)."""
        layer = self.layer or next(iter(upload.tensors)).rpartition(".")[0]
        layers = [n[: -len(".bias")] for n in upload.tensors if n.endswith(".bias")]
        if self.layer is None and layer not in layers:
            raise PrivflError(
                f"layer {layer!r} sends no bias; the closed form needs a network that begins with "
                "a fully connected layer with a bias"
            )
        choose("layer with a bias", layer, layers)
        g = upload.gradients()
        shape = tuple(upload.model.shape)
        if g[f"{layer}.weight"][0].dim() != 2 or g[f"{layer}.weight"].shape[2] != _size(shape):
            raise PrivflError(
                f"layer {layer!r} does not take the whole image; "
                "the closed form needs a network that begins with a fully connected layer"
            )
        rows = row_quotients(g[f"{layer}.weight"], g[f"{layer}.bias"])
        picked = [_pick(r, b, upload.batch) for r, b in zip(rows, g[f"{layer}.bias"], strict=True)]
        images, cost = (torch.stack(part) for part in zip(*picked, strict=True))
        return Reconstruction(images.reshape(-1, *shape), known_labels(upload).flatten(), cost)


def first_dense(upload: Upload, who: str) -> tuple[str, nn.Linear]:
    """The first layer and its name, if it is dense, has a bias and takes the whole image."""
    name = next(iter(upload.tensors)).rpartition(".")[0]
    layer = upload.model.get_submodule(name)
    if not isinstance(layer, nn.Linear) or layer.bias is None:
        raise PrivflError(f"{who} needs a network that begins with a dense layer with a bias")
    if layer.in_features != _size(tuple(upload.model.shape)):
        raise PrivflError(f"layer {name!r} does not take the whole image")
    if upload.batch > (most := min(layer.out_features, layer.in_features)):
        raise PrivflError(
            f"{who} needs a batch of at most {most} images, the size of the layer; "
            f"got {upload.batch}"
        )
    return name, layer


def _size(shape: tuple[int, ...]) -> int:
    return shape[0] * shape[1] * shape[2]


def _pick(rows: Tensor, bias: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` most repeated different rows (count, in), and the share of rows left over.

    For one image the strongest row. Rows agree if they are less than 0.00001 apart, a root mean
    square over pixels. Where fewer different rows were found than there are images, the rest is
    gray.
    """
    rows = rows[bias.abs().argsort(descending=True)]  # strong first: small divisors add noise
    fits = rows.isfinite() if count == 1 else (rows > -0.01) & (rows < 1.01)  # also drops NaN
    rows = rows[fits.all(1)]
    apart = torch.cdist(rows.double(), rows.double())  # in 32 bits its errors would be too large
    agree = apart / rows.shape[1] ** 0.5 < 0.00001
    order = range(len(rows)) if count == 1 else agree.sum(1).argsort(descending=True, stable=True)
    taken: list[int] = []
    for i in map(int, order):
        if len(taken) < count and not agree[i, taken].any():
            taken.append(i)
    gray = rows.new_full((count - len(taken), rows.shape[1]), 0.5)
    used = agree[taken].any(0).sum()
    return torch.cat([rows[taken], gray]), 1 - used / len(bias)
