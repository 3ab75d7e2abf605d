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

from ...gradients import Tensors, flat, per_client
from ...runtime import PrivflError
from ...wire import Upload
from ..analytic.closed_form import row_quotients
from ..analytic.recursive import Recursive
from ..base import Attack, Reconstruction, together
from ..matching.search import IDLG, Matching

SAME = 1e-5  # quotients that differ by less, relative to their size, are of one image: 32 bits
WIRES = (torch.bfloat16, torch.float16)  # coarser formats an upload may have come in
CANDIDATES = 32  # rows of a layer that may be taken for the client's; more cost time, not memory
PARTS = ("weight", "bias")  # of the last layer
CHANCE = 1e-3  # entries of two uploads that are equal by chance are fewer than this share


@dataclass(frozen=True)
class Unguard(Attack):
    """Take the guard's entries out of an upload, then match what is left.

    The guard's upload is used where it is granted (``knows=("guard",)``), else its entries are
    estimated. ``attack`` is any matching; it must leave out zeros. ``details["own"]`` is the upload
    that was matched, 0 where the guard's entries were.
    """

    attack: Matching = field(default_factory=lambda: IDLG(nonzero=True))
    answers = ("entangle",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.attack.nonzero:
            raise PrivflError("the guard's entries are set to 0; the attack needs nonzero=True")

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        own = own_part(upload)
        return replace(self.attack.run(own, seed=seed), details={"own": own})


def own_part(upload: Upload) -> Upload:
    """The uploads with 0 in place of the guard's entries, or without what the guard added."""
    known, seen = upload.knows.guard, upload.tensors
    if known is None:
        mask = estimated(upload)
        return replace(upload, tensors={n: t * ~mask[n] for n, t in seen.items()})
    if known.shape != flat(seen).shape:
        got = f"{tuple(known.shape)} for uploads {tuple(flat(seen).shape)}"
        raise PrivflError(f"the guard's upload must be as long as the others; got {got}")
    guard = _unflat(known, seen)
    equal = {n: (t == guard[n]) & (t != 0) for n, t in seen.items()}
    copied = flat(equal).double().mean(1) > CHANCE  # (U,)
    out = {n: t * ~equal[n] for n, t in seen.items()}
    if not copied.all():
        added = estimated(upload)
        out = {
            n: torch.where(per_client(copied, t) > 0, out[n], t - guard[n] * added[n])
            for n, t in seen.items()
        }
    return replace(upload, tensors=out)


def estimated(upload: Upload) -> Tensors:
    """Entries that are not the client's own as the upload itself tells, name -> (U, *shape), bool.

    For one image and one step, in layers with a bias. The row whose quotients agree with those of
    most others is taken for the client's, with the rows that agree with it; and of their columns
    those in which all agree. So where rows are replaced, the client must keep over half of them.
    "Agree" is up to the rounding of the format in which the upload came (``rounding``); in 16 bits
    numbers of another image can be as near as that, and then they are not seen.
    """
    if (got := (upload.batch, upload.local_steps)) != (1, 1):
        raise PrivflError("the estimate needs 1 image, 1 step; got {}, {}".format(*got))
    mask = {n: torch.zeros_like(t, dtype=torch.bool) for n, t in upload.tensors.items()}
    for name, t in upload.tensors.items():
        bias = name.removesuffix("weight") + "bias"
        if t.dim() != 3 or bias not in mask:
            continue
        w, b = t.double(), upload.tensors[bias].double()
        off_w, off_b = (rounding(v) for v in (t, upload.tensors[bias]))
        quotients = row_quotients(w, b)
        slack = 2 * (off_w + quotients.abs() * off_b[..., None]) / b.abs()[..., None]
        for u, q in enumerate(quotients):  # (out, in)
            rows, columns = _agreeing(q, slack[u])
            mask[name][u] = ~(rows[:, None] & columns)
            mask[bias][u] = ~rows
    return mask


def rounding(t: Tensor) -> Tensor:
    """How far each number may be from what it was before it was sent, in 64 bits, shaped as t.

    Numbers that are all exact in a 16-bit format came in it, whatever they are held in now: half a
    unit of their last place, which stops shrinking where numbers are subnormal. Else SAME counts,
    since 32-bit gradients of one image agree to less than their last place.
    """
    size = t.double().abs()
    for wire in WIRES:
        if torch.equal(t.to(wire).to(t.dtype), t):
            info = torch.finfo(wire)
            return (1 + info.eps) * info.eps / 2 * size.clamp(min=info.tiny)
    return SAME / 4 * size


def read_features(upload: Upload) -> Tensor:
    """r (U, D), the last layer's input, read from the client's own entries; NaN where none is left.

    ``upload`` is as ``own_part`` gives it: entries that are 0 tell nothing.
    """
    q = row_quotients(*(upload.tensors[f"{upload.model.head_name}.{n}"] for n in PARTS))
    return q.masked_fill(q == 0, torch.nan).nanmedian(1).values


def complete(upload: Upload, label: int) -> Upload:
    """Fill rows of the last layer that are 0 by δ rᵀ with δ = softmax(W r + b) − onehot(label).

    Needs r whole, so it is for an upload of which the guard took rows only. Chapter: as above.
    """
    r, head, name = read_features(upload), upload.model.last, upload.model.head_name
    delta = (r @ head.weight.T + head.bias).softmax(1).detach()
    delta[:, label] -= 1
    weight, bias = (upload.tensors[f"{name}.{n}"] for n in PARTS)
    filled = {
        f"{name}.weight": torch.where(bias[..., None] == 0, delta[..., None] * r[:, None], weight),
        f"{name}.bias": torch.where(bias == 0, delta, bias),
    }
    return replace(upload, tensors={**upload.tensors, **filled})


@dataclass(frozen=True)
class UnguardRows(Attack):
    """Rows of the last layer are the guard's: go back layer by layer after filling them in.

    Where the label's own row is left, its bias entry alone is below 0. Else each of the missing
    rows is tried for the label, and the one whose image fits the convolutions best is taken.
    """

    letter, answers, most = "A", ("entangle",), (1, 1)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        self.check(upload)
        own, found = own_part(upload.typed()), []
        for u in range(len(upload)):
            bias = own[u].tensors[f"{upload.model.head_name}.bias"][0]
            labels = bias.argmin()[None] if bias.min() < 0 else (bias == 0).nonzero().flatten()
            if not len(labels):
                raise PrivflError("no row of the last layer can be the label's: none is below 0")
            tried = [Recursive().run(complete(own[u], int(label))) for label in labels]
            found.append(min(tried, key=lambda f: f.cost.nan_to_num(torch.inf).item()))
        return together(found)


def _agreeing(q: Tensor, slack: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (out,) of quotients (out, in) of one image, and columns (in,) in which these agree.

    Two entries agree if they differ by at most the larger one's slack (out, in). Each of at most
    CANDIDATES rows is held against all; never more than a few tensors of q's size are in memory.
    """
    pool = q.isfinite().all(1).nonzero().flatten()
    if not len(pool):
        return (none := torch.zeros_like(q, dtype=torch.bool)).any(1), none.any(0)
    few = torch.linspace(0, len(pool) - 1, min(len(pool), CANDIDATES), device=q.device)
    tried = pool[few.long()]  # (candidates,)

    def same(row: Tensor) -> Tensor:
        return (q - q[row]).abs() <= torch.maximum(slack, slack[row])  # (out, in)

    agree = torch.stack([same(row).double().mean(1) for row in tried], 1)  # (out, candidates)
    agree[tried, torch.arange(len(tried), device=q.device)] = 0  # with itself
    most = agree.amax(1)
    like = (agree > 0.9 * most[:, None]) & (agree > 0.9 * most[tried])
    best = like.sum(0).argmax()  # both ways, or a row with little of the guard's added would win
    rows, near = like[:, best].index_fill(0, tried[best], True), same(tried[best])
    columns = near[rows].all(0) & (rows.sum() > 1)
    # two rows may agree by chance in the guard's columns too, and so be like no others
    return rows | (near[:, columns].all(1) & columns.any()), columns


def _unflat(vector: Tensor, like: Tensors) -> Tensors:
    """Undo ``gradients.flat``: (U, d) -> tensors named and shaped as ``like``."""
    sizes = [t[0].numel() for t in like.values()]
    parts = vector.to(flat(like)).split(sizes, 1)
    return {n: part.view_as(t) for (n, t), part in zip(like.items(), parts, strict=True)}
