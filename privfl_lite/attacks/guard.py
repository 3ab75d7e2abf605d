"""The attacker who knows Model Entanglement: tell the client's own entries from the guard's.

With the guard's upload at hand (the server has it, §3.1) copied entries are those that are equal.
Without it the last layer tells: for one image a fully connected layer has ∇W = δ aᵀ and ∇b = δ, so
∇W_ij / ∇b_i is the same number a_j in all rows i, but not where another image's δ stands. Entries
of the guard are set to 0 and then left out (``nonzero``, ``gauss_newton``); added ones are
subtracted. Chapter: Model Entanglement.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..gradients import Tensors, along, flat
from ..runtime import PrivflError
from ..wire import Upload
from .base import Reconstruction
from .linear import row_quotients
from .matching import IDLG, Matching
from .recursive import Recursive

SAME = 1e-5  # quotients that differ by less, relative to their size, are of one image
CHANCE = 1e-3  # entries of two uploads that are equal by chance are fewer than this share


@dataclass
class Unguard:
    """Take the guard's entries out of an upload, then match what is left.

    The guard's upload is used where it is granted (``knows=("guard",)``), else its entries are
    estimated. ``attack`` is any matching; it must leave out zeros. ``own`` is the upload that was
    matched, 0 where the guard's entries were.
    """

    attack: Matching = field(default_factory=lambda: IDLG(nonzero=True))
    own: Upload | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.attack.nonzero:
            raise PrivflError("the guard's entries are set to 0; the attack needs nonzero=True")

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        self.own = own_part(upload)
        return self.attack.run(self.own, seed=seed)


def own_part(upload: Upload) -> Upload:
    """The uploads with 0 in place of the guard's entries, or without what the guard added."""
    known, seen = upload.knows.get("guard"), upload.tensors
    if known is None:
        mask = estimated(upload)
        return replace(upload, tensors={n: t * ~mask[n] for n, t in seen.items()})
    guard = _unflat(known, seen)
    equal = {n: (t == guard[n]) & (t != 0) for n, t in seen.items()}
    copied = flat(equal).double().mean(1) > CHANCE  # (U,)
    out = {n: t * ~equal[n] for n, t in seen.items()}
    if not copied.all():
        added = estimated(upload)
        out = {
            n: torch.where(along(copied, t) > 0, out[n], t - guard[n] * added[n])
            for n, t in seen.items()
        }
    return replace(upload, tensors=out)


def estimated(upload: Upload) -> Tensors:
    """Entries that are not the client's own as the upload itself tells, name -> (U, *shape), bool.

    For one image and one step, in layers with a bias. The row whose quotients agree with those of
    most others is taken for the client's, with the rows that agree with it; and of their columns
    those in which all agree. So where rows are replaced, the client must keep over half of them.
    """
    if (got := (upload.batch, upload.local_steps)) != (1, 1):
        raise PrivflError("the estimate needs 1 image, 1 step; got {}, {}".format(*got))
    mask = {n: torch.zeros_like(t, dtype=torch.bool) for n, t in upload.tensors.items()}
    for name, t in upload.tensors.items():
        bias = name.removesuffix("weight") + "bias"
        if t.dim() != 3 or bias not in mask:
            continue
        quotients = row_quotients(t.double(), upload.tensors[bias].double())
        for u, q in enumerate(quotients):  # (out, in)
            rows, columns = _agreeing(q)
            mask[name][u] = ~(rows[:, None] & columns)
            mask[bias][u] = ~rows
    return mask


def read_features(upload: Upload) -> Tensor:
    """r (U, D), the last layer's input, read from the client's own entries; NaN where none is left.

    ``upload`` is as ``own_part`` gives it: entries that are 0 tell nothing.
    """
    q = row_quotients(upload.tensors["head.weight"], upload.tensors["head.bias"])
    return q.masked_fill(q == 0, torch.nan).nanmedian(1).values


def complete(upload: Upload, label: int) -> Upload:
    """Fill rows of the last layer that are 0 by δ rᵀ with δ = softmax(W r + b) − onehot(label).

    Needs r whole, so it is for an upload of which the guard took rows only. Chapter: as above.
    """
    r, head = read_features(upload), upload.model.head
    delta = (r @ head.weight.T + head.bias).softmax(1).detach()
    delta[:, label] -= 1
    weight, bias = (upload.tensors[f"head.{n}"] for n in ("weight", "bias"))
    filled = {
        "head.weight": torch.where(bias[..., None] == 0, delta[..., None] * r[:, None], weight),
        "head.bias": torch.where(bias == 0, delta, bias),
    }
    return replace(upload, tensors={**upload.tensors, **filled})


class UnguardRows:
    """Rows of the last layer are the guard's: go back layer by layer after filling them in.

    Where the label's own row is left, its bias entry alone is below 0. Else each of the missing
    rows is tried for the label, and the one whose image fits the convolutions best is taken.
    """

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        own, found = own_part(upload), []
        for u in range(len(upload)):
            bias = own[u].tensors["head.bias"][0]
            labels = bias.argmin()[None] if bias.min() < 0 else (bias == 0).nonzero().flatten()
            tried = [Recursive().run(complete(own[u], int(label))) for label in labels]
            found.append(min(tried, key=lambda f: f.cost.nan_to_num(torch.inf).item()))
        parts = (torch.cat([getattr(f, n) for f in found]) for n in ("images", "labels", "cost"))
        return Reconstruction(*parts)


def _agreeing(q: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (out,) of quotients (out, in) of one image, and columns (in,) in which these agree."""
    size = q.abs()
    same = (q[:, None] - q).abs() <= SAME * torch.maximum(size[:, None], size)  # (out, out, in)
    agree = same.double().mean(2).fill_diagonal_(0)
    like = agree > 0.9 * agree.amax(1, keepdim=True)
    like = like & like.T  # or a row with little of the guard's added would like those without
    center = int(like.sum(1).argmax())  # the row that most others are like
    rows = like[center].index_fill(0, torch.tensor(center, device=q.device), True)
    return rows, same[center][rows].all(0) & (rows.sum() > 1)


def _unflat(vector: Tensor, like: Tensors) -> Tensors:
    """Undo ``gradients.flat``: (U, d) -> tensors named and shaped as ``like``."""
    sizes = [t[0].numel() for t in like.values()]
    parts = vector.to(flat(like)).split(sizes, 1)
    return {n: part.view_as(t) for (n, t), part in zip(like.items(), parts, strict=True)}
