"""Updates of several batches and epochs, when nobody tells in which order the images were read.

The server set the rate, the batch size and the number of epochs, so it can follow local training on
images of its own; which image stood in which batch, the client's shuffle decided. ``Matching``
takes the images as they stand. Here the order is sought, too (chapter: reach). Dimitrov et al.
(TMLR 2022) follow local training with new images in every epoch and tie the epochs together by
their mean image, which no order changes. ``Epochs`` has every image once, and seeks instead how
much of it stands in each batch: far fewer unknowns, and at its ends an order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from ...arrays import Array
from ...runtime import PrivflError
from ...wire import Plan, Upload
from ..base import Reconstruction
from .search import Matching

SWEEPS = 20  # of Sinkhorn's normalization
Orders = Annotated[Tensor, Array("which images stood in which step, (U, S, n)", (3,))]


class Pass(NamedTuple):
    """One reading of all n images: into which steps, and how many into each."""

    steps: list[int]  # one beyond the last step takes what the plan no longer reads
    sizes: Tensor  # (T,), adds up to n


def passes(plan: Plan, n: int) -> list[Pass]:
    """The passes over n images that a plan asks for, first to last."""
    reads = [s for s, batch in enumerate(plan.batches(n)) for _ in batch]
    reads += [plan.count(n)] * (-len(reads) % n)
    rows = torch.tensor(reads, device="cpu").view(-1, n)
    counted = (row.unique(return_counts=True) for row in rows)
    return [Pass(steps.tolist(), sizes) for steps, sizes in counted]


def shares(logits: Tensor, sizes: Tensor) -> Tensor:
    """How much of each image stands in each batch of a pass, (P, n, T) -> (P, n, T).

    Each image is there once, each batch is full (Sinkhorn 1964); all 0 or 1, it is an order.
    """
    for _ in range(SWEEPS):
        logits = logits - logits.logsumexp(1, keepdim=True) + sizes.log()
        logits = logits - logits.logsumexp(2, keepdim=True)
    return logits.exp()


def likeliest(share: Tensor, sizes: Tensor) -> Tensor:
    """The order with the largest sum of shares (Hungarian method), (n, T) of 0 and 1."""
    from scipy.optimize import linear_sum_assignment  # slow to import

    step = torch.arange(len(sizes), device="cpu").repeat_interleave(sizes)  # of each place
    place = linear_sum_assignment(-share.detach().cpu().double()[:, step].numpy())[1]
    return nn.functional.one_hot(step[place], len(sizes)).to(share)


def is_open(upload: Upload) -> bool:
    """Whether the order is unknown and matters: shuffled, and not every batch holds all images."""
    plan, n = upload.plan, upload.batch
    return plan is not None and plan.shuffle and any(len(p.steps) > 1 for p in passes(plan, n))


def by_steps(upload: Upload, logits: Tensor, hard: bool = False) -> Tensor:
    """a (P, S, n) of Eq. 1 from all passes' logits (P, unknowns); ``hard``: the likeliest order."""
    n, plan = upload.batch, upload.plan
    assert plan is not None
    a = logits.new_zeros(len(logits), upload.local_steps + 1, n)
    parts = passes(plan, n)
    for part, some in zip(parts, logits.split([n * len(p.steps) for p in parts], 1), strict=True):
        share = shares(some.reshape(-1, n, len(part.steps)), part.sizes.to(some))
        if hard:
            share = torch.stack([likeliest(one, part.sizes) for one in share])
        a = a.index_add(1, torch.tensor(part.steps, device=a.device), share.mT)
    return a[:, :-1]


def in_shares(upload: Upload, cost: Callable[[Upload], Callable[..., Tensor]]) -> Callable:
    """``cost`` of ``Matching`` for training in which image i stands in step s with weight a_si.

        g_s = (1/b_s) Σ_i a_si ∇ℓ(x_i, y_i),    Σ_i a_si = b_s                               (Eq. 1)

    Every step reads all n images; the weight scales the label's distribution, in which
    cross-entropy is linear. Where a is an order, this is local training itself.
    """
    n, steps, plan = upload.batch, upload.local_steps, upload.plan
    assert plan is not None
    rule = replace(plan, steps=steps, batch_size=n, shuffle=False)
    whole = replace(upload, batch=steps * n, plan=rule, knows=upload.knows.without("labels"))
    term, classes = cost(whole), upload.model.num_classes

    def weighted(x: Tensor, y: Tensor, who: Tensor, a: Tensor) -> Tensor:
        y = y if y.is_floating_point() else nn.functional.one_hot(y, classes).to(x)
        weight = n * a / a.sum(2, keepdim=True)  # (P, S, n)
        each = weight[..., None] * y[:, None]  # (P, S, n, classes)
        many = x[:, None].expand(-1, steps, *x.shape[1:])  # (P, S, n, C, H, W)
        return term(many.flatten(1, 2), each.flatten(1, 2), who)

    return weighted


@dataclass(frozen=True)
class InOrder(Matching):
    """``Matching`` for shuffled batches whose order is given: the end of ``Epochs``."""

    orders: Orders | None = None

    def cost(self, upload: Upload) -> Callable[..., Tensor]:
        term, orders = in_shares(upload, super().cost), self.orders
        assert orders is not None
        return lambda x, y, who, others=None: term(x, y, who, orders[who])


@dataclass(frozen=True)
class Epochs(Matching):
    """Search for images, and for the order in which several batches or epochs read them.

    The first half of ``steps`` seeks images and weights a (Eq. 1). The second keeps the likeliest
    order, where the imitation of local training is exact, momentum included, and goes on from
    the images found; of both results the one with the lower cost counts. ``details["orders"]``
    (U, S, n) says which images stood in each of the S steps.

    Where no order is open (a gradient, all images in each batch, ``shuffle=False``), it is
    ``IDLG``. Each evaluation costs as much as if every step read all images. It ends where the
    images outnumber the equations, where a high rate makes local training chaotic, and at batch
    norm in train mode, which mixes the images of a batch.
    """

    letter, rounds = "C", False

    def run(self, upload: Upload | Sequence[Upload], seed: int = 0) -> Reconstruction:
        if not isinstance(upload, Upload) or not is_open(upload):
            return super().run(upload, seed)
        norms = (isinstance(m, nn.modules.batchnorm._BatchNorm) for m in upload.model.modules())
        if upload.mode == "train" and any(norms):
            raise PrivflError("Epochs needs batch norm in eval mode: Plan(mode='eval')")
        half = -(-self.steps // 2)
        found = super(Epochs, replace(self, steps=half, frames=0)).run(upload, seed)
        orders = by_steps(upload, found.details["others"], hard=True)
        found = replace(found, details={**found.details, "orders": orders})
        return self._go_on(upload, found, self.steps - half, seed) if self.steps > half else found

    def _go_on(self, upload: Upload, soft: Reconstruction, steps: int, seed: int) -> Reconstruction:
        """The same search from the images found, in the order found; the better of both."""
        images, labels = (t.unflatten(0, (-1, upload.batch)) for t in (soft.images, soft.labels))
        own = {f.name: getattr(self, f.name) for f in fields(Matching)}
        own |= {"steps": steps, "start": images, "restarts": 1}
        known = replace(upload.knows, labels=labels if (y := upload.knows.labels) is None else y)
        attack = InOrder(**own, orders=soft.details["orders"])
        hard = attack.run(replace(upload, knows=known), seed)
        better = hard.cost < soft.cost
        each = better.repeat_interleave(upload.batch)[:, None, None, None]
        return replace(
            soft,
            images=torch.where(each, hard.images, soft.images),
            cost=torch.where(better, hard.cost, soft.cost),
            evaluations=soft.evaluations + hard.evaluations,
            history=[(soft.evaluations + tick, images) for tick, images in hard.history],
            details={**soft.details, "kept": better},
        )

    def unknowns(self, upload: Upload) -> int:
        if not is_open(upload) or upload.plan is None:
            return 0
        return upload.batch * sum(len(p.steps) for p in passes(upload.plan, upload.batch))

    def cost(self, upload: Upload) -> Callable[..., Tensor]:
        """cost(x, y, who, others): as in ``Matching``, with the order's logits as ``others``."""
        if not is_open(upload):
            return super().cost(upload)
        term = in_shares(upload, super().cost)
        return lambda x, y, who, others: term(x, y, who, by_steps(upload, others))
