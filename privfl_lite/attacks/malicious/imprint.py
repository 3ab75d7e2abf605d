"""The malicious server: a module in front of the model that sorts images into bins and keeps them.

Robbing the Fed (Fowl et al. 2022). The server sends a model that begins with two fully connected
layers of its own. The first compares one number h(x), here the mean pixel, with a rising list of
edges; an image passes its gradient to every bin whose edge it exceeds. The difference of two
neighboring rows of the gradient then holds only the images between their edges, and the closed
form reads an image that is alone there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from ...arrays import MODEL, Array
from ...checking import checked
from ...models import Net, built
from ...runtime import PrivflError
from ...values import Part, Positive
from ...wire import Upload
from ..analytic.closed_form import row_quotients
from ..base import Attack, Reconstruction
from ..labels import known_labels

Edges = Annotated[Tensor, Array("rising numbers (bins,), two or more", (1,))]


def quantile_edges(values: Tensor, bins: int) -> Tensor:
    """Edges (bins,) that split measured values of h evenly; the first lies below them all."""
    cut = values.quantile(torch.arange(bins).to(values) / bins)
    cut[0] = values.min() - (values.max() - values.min())
    return cut


def normal_edges(mean: float, std: float, bins: int) -> Tensor:
    """Edges (bins,) that would split N(mean, std²) evenly: what a server without images assumes."""
    inner = torch.arange(1, bins) / bins
    cut = mean + std * 2**0.5 * torch.erfinv(2 * inner - 1)
    return torch.cat([torch.tensor([mean - 10 * std]), cut])


class Imprint(Net):
    """A model with the imprint block in front; it has the same inputs and outputs as the model.

    It shares the model's modules (a change of type or weights in one is one in the other).

    All rows of ``first`` are the same query h, scaled by ``gain``; biases are −gain·edges. All
    entries of ``second`` are equal, so that every active bin receives the same error signal: only
    then do differences of rows isolate a bin.
    """

    @checked
    def __init__(self, model: Annotated[Net, MODEL], edges: Edges, gain: Positive = 1.0):
        nn.Module.__init__(self)
        built(model, "Imprint")
        if not (edges.diff() > 0).all() or len(edges) < 2:
            raise PrivflError("imprint edges must be at least two rising numbers")
        self.shape, self.name = tuple(model.shape), f"imprint+{model.name}"
        pixels, bins = torch.Size(self.shape).numel(), len(edges)
        self.first, self.second = nn.Linear(pixels, bins), nn.Linear(bins, pixels)
        with torch.no_grad():
            self.first.weight.fill_(gain / pixels)  # h(x): the mean pixel
            self.first.bias.copy_(-gain * edges)
            self.second.weight.fill_(1 / (bins * gain))
            self.second.bias.zero_()
        self.features = nn.Sequential(model.features)
        self.head = model.head

    def representation(self, x: Tensor) -> Tensor:
        bins = self.first(x.flatten(1)).relu()
        return self.features(self.second(bins).view(-1, *self.shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.representation(x))


@dataclass(frozen=True)
class ImprintReadout(Attack):
    """Read the bins of uploads that were made with an ``Imprint`` model.

    A bin counts as occupied if its error signal exceeds ``threshold`` times the largest one; below
    stands what rounding, or a defense, leaves in empty bins. Bins with several images give their
    mixture: which ones do cannot be told from the upload, so all are returned, strongest first.
    """

    threshold: Part = 1e-6
    letter = "G"

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """As many images as stand behind each upload; gray where there were fewer occupied bins."""
        if "first.weight" not in upload.tensors or "first.bias" not in upload.tensors:
            raise PrivflError(
                "the upload has no imprint block; send clients attacks.Imprint(model, edges)"
            )
        g = upload.gradients()
        weight, bias = (_between(g[f"first.{part}"]) for part in ("weight", "bias"))
        rows, images, cost = row_quotients(weight, bias), [], []
        for row, b in zip(rows, bias, strict=True):
            strong = b.abs() > self.threshold * b.abs().max()
            best = (b.abs() * strong).argsort(descending=True)[: upload.batch]
            best = best[strong[best]]
            gray = row.new_full((upload.batch - len(best), row.shape[1]), 0.5)
            images.append(torch.cat([row[best], gray]))
            cost.append(b.abs()[~strong].sum() / b.abs().sum())
        labels = known_labels(upload, seed)
        found = torch.cat(images).reshape(-1, *upload.model.shape)
        return Reconstruction(found, labels.flatten(), torch.stack(cost))


def _between(rows: Tensor) -> Tensor:
    """Row i minus row i + 1 (U, bins, …): the share of the images between edges i and i + 1."""
    return rows - torch.cat([rows[:, 1:], torch.zeros_like(rows[:, :1])], 1)
