"""Fishing (Wen et al. 2022): values of the last layer for which one image outweighs the batch.

The server changes no architecture, only the last layer. *By class*: all classes but the target are
so likely, whatever the image, that images of other classes send nothing back through the layer; the
gradient in front of it is that of the target's images alone. *By feature*: where several images
have the target class, a cut through the features lets only those below it bite. What is restored is
the gradient of one image, for any attack on one image. Chapter: the malicious server.

A cut closes the target's images above it and opens those of other classes there, so it has to lie
above them: the direction is one in which the classes differ (``fishing_line``).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from ...arrays import MODEL, Images, Labels, Row1
from ...checking import checked
from ...models import Net, wrap
from ...runtime import PrivflError
from ...values import Count, Finite, Positive, Whole
from ...wire import Facts, Upload
from ..base import Attack, Reconstruction
from ..matching.search import IDLG

AWAY = 1000.0  # logit of the classes that are not fished: e^−1000 is zero in any floating point


@checked
def fished(
    model: Annotated[nn.Module, MODEL],
    target: Whole,
    direction: Row1 | None = None,
    cut: Finite = 0.0,
    gain: Positive = 1.0,
) -> Net:
    """A copy of the model that fishes for images of class ``target``.

    Without ``direction`` for all of them: row ``target`` of the last layer is gain/d everywhere, so
    its logit is gain times the mean feature, and the others' are ``AWAY``. With a direction u (d,)
    for those whose feature u·r lies below ``cut``: that logit is gain·(u·r − cut), others 0.
    """
    net = copy.deepcopy(wrap(model))
    last = net.last
    if last.bias is None:
        raise PrivflError("fishing needs a last layer with a bias")
    if target >= last.out_features:
        raise PrivflError(f"target is {target}, but the model has {last.out_features} classes")
    if direction is not None and len(direction) != last.in_features:
        raise PrivflError(f"direction must have {last.in_features} numbers, one for each feature")
    with torch.no_grad():
        last.weight.zero_()
        if direction is None:
            last.weight[target] = gain / last.in_features
            last.bias.fill_(AWAY)
            last.bias[target] = 0.0
        else:
            last.weight[target] = gain * direction.to(last.weight)
            last.bias.zero_()
            last.bias[target] = math.log(last.out_features - 1) - gain * cut
    return net


@checked
def fishing_line(
    model: Annotated[Net, MODEL], x: Images, y: Labels, target: Whole, expected: Count = 1
) -> tuple[Tensor, float]:
    """(direction, cut) from public images: the direction in which the class stands out most.

    By least squares with a little ridge. The cut is the middle of the lowest of ``expected``
    images of the class, the number that a batch is likely to hold: of these one is below it.
    """
    with torch.no_grad():
        r = copy.deepcopy(model).eval().representation(x.to(next(model.parameters()))).double()
    wanted = (y == target).to(r)
    if not 0 < wanted.sum() < len(y):
        raise PrivflError(f"public images must be of class {target} and of others")
    centered, side = r - r.mean(0), torch.eye(r.shape[1]).to(r)
    gram = centered.T @ centered
    u = torch.linalg.solve(gram + 1e-3 * gram.trace() / len(gram) * side, centered.T @ wanted)
    u = u / (r @ u).std()
    scores = (r @ u)[wanted > 0]
    return u.to(next(model.parameters())), float(scores.quantile(min(0.5, 1 / expected)))


@dataclass(frozen=True)
class FishingReadout(Attack):
    """Restore the gradient of the image that bit, and hand it to an attack on one image.

    The bias gradient of the target's row counts: −B g is how many images of the class bit, less how
    many of other classes did. ``details["caught"]`` (U,) is that number, ``details["single"]`` the
    restored upload; ``cost`` is how far it is from one. The other images of a batch are gray.
    """

    attack: Attack = field(default_factory=IDLG)
    letter = "F"

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        single, caught = restored(upload)
        found = self.attack.run(single, seed=seed)
        shape = tuple(upload.model.shape)
        images = found.images.new_full((len(upload), upload.batch, *shape), 0.5)
        images[:, 0] = found.images
        labels = single.knows.labels
        assert labels is not None
        return replace(
            found,
            images=images.flatten(0, 1),
            labels=labels.expand(-1, upload.batch).flatten(),
            cost=(caught - 1).abs().to(found.images),
            details={"caught": caught, "single": single},
        )


@checked
def restored(upload: Upload) -> tuple[Upload, Tensor]:
    """What bit, as uploads of one image each, and how many bit (U,).

    In front of the last layer the gradient of a batch is that of what bit, over B. In the last
    layer the target's row tells the features r, and what one image would have sent follows.
    """
    net, name = upload.model, upload.model.head_name
    last, g = net.last, upload.gradients()
    fished_rows = last.weight.flatten(1).abs().sum(1).nonzero().flatten()
    if len(fished_rows) != 1 or last.bias is None:
        raise PrivflError(
            "the upload's model does not fish; send clients attacks.fished(model, target)"
        )
    target = int(fished_rows)
    weight, bias = f"{name}.weight", f"{name}.bias"
    caught = -upload.batch * g[bias][:, target]  # (U,)
    scale = upload.batch / caught.clamp(min=1e-12)  # to the mean of what bit
    scale = torch.where(caught > 0.5, scale, torch.ones_like(scale))
    out = {n: t * scale.view(-1, *[1] * (t.dim() - 1)) for n, t in g.items()}
    row = out[weight][:, target].clone()  # −r
    out[weight] = (-row / (last.out_features - 1))[:, None].repeat(1, last.out_features, 1)
    out[bias] = torch.full_like(g[bias], 1 / (last.out_features - 1))
    out[weight][:, target], out[bias][:, target] = row, -1.0
    labels = torch.full((len(upload), 1), target, device=row.device)
    return Upload(out, "gradient", net, 1, upload.mode, knows=Facts(labels=labels)), caught
