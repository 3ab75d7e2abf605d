"""Gradient matching: find images whose upload looks like the one that was seen (ModelCloak Eq. 1).

``DLG``, ``IDLG`` and ``GS`` are one search with different settings. All uploads, and all restarts
of each, are searched at once; the best restart is the one with the lowest cost, never the one
nearest to a truth that the attacker does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from torch import Tensor

from ...budget import at_once, footprint
from ...runtime import PrivflError, generator, progress, seeded
from ...values import Count, NotNegative, Text, Word
from ...wire import Upload
from ..base import Attack, Reconstruction
from ..labels import infer_labels
from ..solvers import MEMORY, SOLVERS, Cost, Solution, adam, lbfgs, together
from .rows import Distance, Frames, Optimizer, Restarts, Row, Start
from .terms import distance, patterned, squares, total_variation


@dataclass(frozen=True)
class Matching(Attack):
    """Search for images (and labels) whose gradient or update matches the upload.

    ``distance``: "l2" (sum of squared differences over all tensors), "cosine" (1 − cosine of the
    angle between all tensors taken as one vector) or "likelihood" (l2 / 2σ²: minus the log-density
    of what was seen when noise N(0, σ²) lies on it; σ is granted with ``knows=("noise",)``).
    ``tv`` weighs the mean absolute difference of neighboring pixels; beside a likelihood, a prior.
    ``box`` keeps pixels in [0, 1]. ``labels``: "joint" searches for them too,
    "infer" reads them off the last layer; labels granted with ``knows=`` are used in any case.
    ``steps`` counts evaluations of the gradient. ``frames`` asks for that many images on the way.
    ``compile``: let torch.compile make the steps of Adam quicker, with other rounding; it takes
    half a minute first, so unless told it is used for long searches only (``solvers.LONG``).

    For an attacker who knows the defense: ``drop`` names tensors to leave out (by the beginning of
    their names; "head" is the last layer, whatever its name), ``nonzero`` compares only entries
    that are not zero in the upload, so that pruned ones do not mislead, ``per_tensor`` gives every
    tensor the same weight (the mean of the tensors' own distances), and ``start`` is what to begin
    from instead of noise: an image (C, H, W), a batch an upload (U, B, C, H, W), or "patterned": a
    random patch of half the side, laid out 2×2 (Wei et al. 2020, ModelCloak's attack).
    """

    distance: Distance = "l2"
    optimizer: Optimizer = "lbfgs"
    labels: Annotated[str, Word("labels", "infer", "joint")] = "infer"
    steps: Count = 1000
    restarts: Restarts = 1
    tv: NotNegative = 0.0
    box: bool = False
    frames: Frames = 0
    show: bool = True
    compile: bool | None = None
    drop: tuple[Text, ...] | Text = ()
    nonzero: bool = False
    per_tensor: bool = False
    start: Start | None = None
    rounds = True

    def __post_init__(self) -> None:
        if isinstance(self.drop, str):  # one name, as the command line writes it
            object.__setattr__(self, "drop", (self.drop,))
        super().__post_init__()
        if self.box and self.optimizer == "lbfgs":
            raise PrivflError("box=True needs optimizer='adam'; L-BFGS here has no box")
        if self.compile and self.optimizer == "lbfgs":
            raise PrivflError("compile=True needs optimizer='adam': L-BFGS changes its shapes")

    def run(self, upload: Upload | Sequence[Upload], seed: int = 0) -> Reconstruction:
        """Attack all uploads at once; the same seed gives the same starts.

        Several ``Upload``s are rounds in which the same clients sent the same batches, to one model
        or to a model that moved on: the cost is the sum over the rounds, so their noise averages.
        """
        rounds = [a.typed() for a in ([upload] if isinstance(upload, Upload) else upload)]
        if not rounds or len({(len(a), a.batch) for a in rounds}) > 1:
            raise PrivflError("rounds must be at least one, with the same clients and batch size")
        for one in rounds:
            self.check(one)
        with seeded(seed, 1):  # for a network that draws noise itself
            known = rounds[0].knows.labels
            if known is None and self.labels == "infer":
                known = infer_labels(rounds[0], seed=seed)
            return self._match(rounds, known, seed)

    def _match(self, rounds: list[Upload], known: Tensor | None, seed: int) -> Reconstruction:
        """Search from all starts, then keep of each upload's the one with the lowest mismatch."""
        first, u, r = rounds[0], len(rounds[0]), self.restarts
        row = Row((first.batch, *first.model.shape), first.model.num_classes, known, r)
        terms = [self.cost(a) for a in rounds]

        def mismatch(z: Tensor, rows: Tensor) -> Tensor:
            x, y = row.images(z), row.labels(z, rows)
            return cast(Tensor, sum(term(x, y, rows // r, row.others(z)) for term in terms))

        def objective(z: Tensor, rows: Tensor) -> Tensor:
            smooth = self.tv * total_variation(row.images(z)) if self.tv else 0
            return mismatch(z, rows) + smooth

        z = self._start(u * r, row.shape, row.logits + self.unknowns(first), seed)
        z = z.to(next(first.model.parameters()))
        rows = torch.arange(u * r, device=z.device).split(self._at_once(rounds, z))
        found = together([self._part(objective, z, some, row.pixels) for some in rows])
        with torch.no_grad():
            parts = [mismatch(found.z[some], some) for some in rows]
            cost = torch.cat(parts).nan_to_num(torch.inf)
        best = cost.view(u, r).argmin(1) + torch.arange(0, u * r, r, device=cost.device)
        y = row.labels(found.z[best], best)
        return Reconstruction(
            images=row.images(found.z[best]).flatten(0, 1),
            labels=(y.argmax(-1) if y.is_floating_point() else y).flatten(),
            cost=cost[best],
            evaluations=found.evaluations,
            failed=int((~cost.isfinite()).sum()),
            history=[(tick, row.images(z[best]).flatten(0, 1)) for tick, z in found.snapshots],
            details={"solver": SOLVERS[self.optimizer], "others": row.others(found.z[best])},
        )

    def unknowns(self, upload: Upload) -> int:
        """How many numbers are sought besides images and labels; they begin as N(0, 1).

        The hook for a defense with secrets: ``cost`` is handed them as its fourth argument, and the
        ones found are ``details["others"]``. ``_start`` may be overridden to begin elsewhere.
        """
        return 0

    def _start(self, problems: int, shape: tuple[int, ...], others: int, seed: int) -> Tensor:
        """Starts (P, pixels + others), each row from its own stream: uniform in a box, else normal.

        A given image is taken for all, with a little noise so that restarts differ.
        """
        draw = torch.rand if self.box else torch.randn
        rows: list[Tensor] = []
        if isinstance(self.start, Tensor):
            have, whole = tuple(self.start.shape), (problems // self.restarts, *shape)
            if have not in (whole, shape, shape[1:]):
                want = f"{shape[1:]} or {whole}"
                raise PrivflError(
                    f"start must have the shape of an image or of all, {want}; got {have}"
                )
        for p in range(problems):
            rng = generator(seed, p)
            image, other = draw(shape, generator=rng), torch.randn(others, generator=rng)
            if isinstance(self.start, Tensor):
                given = self.start[p // self.restarts] if self.start.dim() == 5 else self.start
                image = given.cpu() + 0.01 * image
            elif self.start is not None:
                image = patterned(shape, rng)
            rows.append(torch.cat([image.flatten(), other]))
        return torch.stack(rows)

    def _at_once(self, rounds: Sequence[Upload], z: Tensor) -> int:
        """How many searches memory holds (``budget``): gradients of gradients, L-BFGS' pairs."""
        if len(z) == 1:
            return 1
        weights, outputs = footprint(rounds[0].model, rounds[0].model.shape)
        numbers = 4 * len(rounds) * (weights + rounds[0].batch * outputs) + 8 * z.shape[1]
        if self.optimizer == "lbfgs":
            numbers += 2 * MEMORY * (z.shape[1] + MEMORY)
        return at_once(len(z), z.element_size() * numbers, "searches")

    def _part(self, objective: Cost, z: Tensor, rows: Tensor, pixels: int) -> Solution:
        """The searches of these rows of z."""
        if len(rows) == len(z):
            return self._search(objective, z, pixels)
        return self._search(lambda some, at: objective(some, rows[at]), z[rows], pixels)

    def _search(self, objective: Cost, z: Tensor, pixels: int) -> Solution:
        ticks = progress(range(1, self.steps + 1), type(self).__name__, show=self.show)
        snapshots = {self.steps * k // self.frames for k in range(1, self.frames + 1)}
        if self.optimizer == "lbfgs":
            return lbfgs(objective, z, ticks, snapshots)

        def project(z: Tensor) -> Tensor:
            if self.box:
                z[:, :pixels].clamp_(0, 1)
            return z

        return adam(
            objective, z, ticks, self.steps, snapshots, project=project, compile=self.compile
        )

    def cost(self, upload: Upload) -> Callable[..., Tensor]:
        """cost(x, y, who, others) (P,): how far images x (P, B, …) are from the uploads ``who``.

        ``others`` (P, unknowns) is what a subclass looks for besides; nothing here.
        """
        last = upload.model.head_name
        own = {"head": f"{last}.", **{f"head.{n}": f"{last}.{n}" for n in ("weight", "bias")}}
        drop = tuple(own.get(name, name) for name in self.drop)
        if none := [n for n in drop if not any(m.startswith(n) for m in upload.tensors)]:
            raise PrivflError(f"drop names {none[0]!r}, but no tensor of the upload begins so")
        seen = {n: t for n, t in upload.tensors.items() if not n.startswith(drop)}
        if not seen:
            raise PrivflError(f"drop={self.drop} leaves no tensor to match")
        kind, imitate, weight = self.distance, upload.imitator(), {}
        if kind == "likelihood":
            if upload.knows.noise is None:
                raise PrivflError("distance='likelihood' needs the noise: knows=('noise',)")
            kind, noise = "l2", upload.knows.noise
            if not all(noise.of(n) for n in seen):
                raise PrivflError("the noise that is granted is 0: distance='l2' is right there")
            weight = {n: 1 / (2**0.5 * noise.of(n)) for n in seen}  # squared: 1 / 2σ²
        groups = [[n] for n in seen] if self.per_tensor else [list(seen)]
        sizes, alone = [squares(seen, names) for names in groups], len(upload) == 1

        def cost(x: Tensor, y: Tensor, who: Tensor, others: Tensor | None = None) -> Tensor:
            a, b = imitate(x, y), seen if alone else {n: t[who] for n, t in seen.items()}
            if weight:
                a, b = ({n: w * side[n] for n, w in weight.items()} for side in (a, b))
            if self.nonzero:
                a = {n: a[n] * (t != 0) for n, t in b.items()}
            each = zip(groups, sizes, strict=True)
            total = sum(distance(kind, a, b, names, size[who]) for names, size in each)
            return 1 / len(groups) * cast(Tensor, total)

        return cost


@dataclass(frozen=True)
class DLG(Matching):
    """Deep leakage from gradients (Zhu et al. 2019): image and label together, L2, L-BFGS."""

    labels: str = "joint"


@dataclass(frozen=True)
class IDLG(Matching):
    """iDLG (Zhao et al. 2020): the label first, from the last layer's gradient; then the image."""

    answers = ("rounded",)  # a search bears rounding that stops a recursion


@dataclass(frozen=True)
class GS(Matching):
    """Inverting gradients (Geiping et al. 2020): cosine, total variation, signed Adam, a box."""

    distance: str = "cosine"
    optimizer: str = "adam"
    steps: int = 2000
    tv: float = 1e-4
    box: bool = True
