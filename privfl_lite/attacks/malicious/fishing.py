"""Fishing (Wen et al. 2022): values of the last layer for which one image outweighs the batch.

The server changes no architecture, only the last layer. *By class*: all classes but the target are
so likely, whatever the image, that images of other classes send nothing back through the layer; the
gradient in front of it is that of the target's images alone. *By feature*: a cut through a feature
of the images. What a client sends without a cut, minus what it sends with one, is the sum over
images above the cut, of whatever class, as if each had the target's; the upload counts them, and a
few more questions move the cut until there is one. What is restored is the gradient of a single
image, for any attack on one image. Chapter: the malicious server.

The paper's cut is answered once and thins out images of one class; the difference of two answers is
that of its binary search.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from ...arrays import MODEL, Images, Row1
from ...checking import checked
from ...models import Net, wrap
from ...runtime import PrivflError, generator
from ...values import Count, Finite, Positive, Seed, Whole
from ...wire import Facts, Upload
from ..base import Attack, Reconstruction
from ..matching.search import IDLG

GAIN = 1e4  # how steep a cut is
AWAY = 1e4  # logit of the classes that are not fished: e^−9000 is zero in any floating point


@checked
def fished(
    model: Annotated[nn.Module, MODEL],
    target: Whole,
    direction: Row1 | None = None,
    cut: Finite = 0.0,
    gain: Positive = 0.5,
) -> Net:
    """A copy of the model that fishes for images of class ``target``.

    Without ``direction`` for all of them: row ``target`` of the last layer is ``gain`` everywhere,
    other rows are 0 and their bias is ``AWAY``, so that no image is taken for the target. With a
    direction u (d,) for those whose feature u·r lies below ``cut``: the target's logit is then
    gain·(u·r − cut) + log(classes − 1), all others 0.
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
            last.weight[target] = gain
            last.bias.fill_(AWAY)
            last.bias[target] = 0.0
        else:
            last.weight[target] = gain * direction.to(last.weight)
            last.bias.zero_()
            last.bias[target] = math.log(last.out_features - 1) - gain * cut
    return net


@checked
def feature_of(
    model: Annotated[Net, MODEL], x: Images, seed: Seed = 0
) -> tuple[Tensor, tuple[float, float]]:
    """A direction u (d,) in which public images differ, and the ends of what they reach there.

    Drawn at random and scaled so that u·r has deviation 1 over the public images; the ends are one
    range beyond the lowest and the highest of them.
    """
    with torch.no_grad():
        r = copy.deepcopy(model).eval().representation(x.to(next(model.parameters())))
    u = torch.randn(r.shape[1], generator=generator(seed)).to(r)
    u = u / (r @ u).std()
    low, high = (r @ u).aminmax()
    return u, (float(2 * low - high), float(2 * high - low))


@checked
def fish(
    ask: Callable[[Net], Upload],
    model: Annotated[Net, MODEL],
    target: Whole,
    direction: Row1,
    ends: tuple[Finite, Finite],
    questions: Count = 16,
) -> Upload:
    """The upload of one client's image with the highest feature, found by questions to that client.

    ``ask(net)``: what the client sends at these weights, for the same batch each time. The first
    question has a cut above all, each other halves where the second highest feature may end and the
    highest begin. The difference of two answers has the first's model; ``restored`` reads it.
    """
    low, high = ends
    above = 10 * high - 9 * low
    net = fished(model, target, direction, above, GAIN)
    first, best = ask(net), None
    for _ in range(questions):
        cut = (low + high) / 2
        answer = ask(fished(model, target, direction, cut, GAIN))
        difference = {n: t - answer.tensors[n] for n, t in first.tensors.items()}
        best = replace(first, tensors=difference)
        count = round(float(restored(best)[1][0]))
        if count == 1:
            break
        low, high = (cut, high) if count > 1 else (low, cut)
    assert best is not None
    return best


@dataclass(frozen=True)
class FishingReadout(Attack):
    """Restore the gradient of the image that bit, and hand it to an attack on one image.

    The bias gradient of the target's row counts: −B g is how many images bit (after one answer with
    a cut: how many of the class did, less how many of other classes). ``details["caught"]`` (U,) is
    that number, ``details["single"]`` the restored upload; ``cost`` is how far it is from one. The
    other images of a batch are gray.
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
