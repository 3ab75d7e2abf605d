"""``Upload``: what leaves clients, and what the server knows of it. An attack sees nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from torch import Tensor, nn

from ..arrays import GIVEN, MODEL, Array
from ..checking import Checked, checked
from ..gradients import Tensors, as_rows
from ..models import Net, wrap
from ..runtime import PrivflError
from ..values import MANY, Count, Either, Holds, Kind, Mode, Number, Word
from .converting import gradient_parts, update_parts
from .facts import Facts
from .imitating import imitator
from .plan import Plan

SENT = Holds(
    "tensors or arrays: a list in the order of model.parameters(), a dict by name, or a module",
    lambda v: isinstance(v, Sequence | Mapping | nn.Module) and not isinstance(v, str | bytes),
)
_named = Array("labels", (0, 1, 2, 3), "any", loose=True)
GRANTED = Either((_named, Number(0, MANY, whole=True), Kind(type(None))))
PLACE = Holds("a whole number or a slice", lambda v: type(v) in (int, slice))


class NoSuchUpload(PrivflError, IndexError):
    """An index beyond the last upload, as a list would refuse it."""


@dataclass(frozen=True, repr=False)
class Upload(Checked):
    """U independent uploads, one per client, of the same kind and for the same model.

    ``tensors[name]`` is (U, *shape). ``kind="gradient"``: gradients of the mean loss over ``batch``
    examples. ``kind="update"``: weights after local training minus weights before,
    Δ = θ_client − θ_server, made by the rules in ``plan``. ``mode`` is that of batch norm.
    ``from_gradients`` and ``from_update`` make one out of what people have.
    """

    tensors: Annotated[Tensors, GIVEN]
    kind: Annotated[str, Word("kind of upload", "gradient", "update")]
    model: Annotated[Net, MODEL]
    batch: Count
    mode: Mode = "eval"
    plan: Plan | None = None
    knows: Facts = field(default_factory=Facts)

    @classmethod
    @checked
    def from_gradients(
        cls,
        model: Annotated[nn.Module, MODEL],
        gradients: Annotated[Any, SENT],
        labels: Annotated[Any, GRANTED] = None,
        batch: Count | None = None,
        mode: Mode = "eval",
    ) -> Upload:
        """Gradients of the mean loss over a batch, as people have them (``naming.named``).

        ``Upload.from_gradients(net, torch.autograd.grad(loss, net.parameters()))``. ``labels``,
        (B,) or (U, B), are granted to the attacker; ``batch`` is as many, or 1.
        """
        return cls(**gradient_parts(model, gradients, labels, batch), mode=mode)

    @classmethod
    @checked
    def from_update(
        cls,
        before: Annotated[Any, SENT],
        after: Annotated[Any, SENT],
        plan: Plan,
        batch: Count,
        model: Annotated[nn.Module, MODEL] | None = None,
        labels: Annotated[Any, GRANTED] = None,
    ) -> Upload:
        """Δ = ``after`` − ``before``, local training by ``plan`` on ``batch`` examples.

        Both are modules, state dicts or lists of arrays (Flower's ``get_parameters``); ``after``
        may be a list of them, one per client. ``model`` is needed where ``before`` is no module.
        """
        parts = update_parts(before, after, batch, model, labels)
        return cls(**parts, mode=plan.mode, plan=plan)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "model", wrap(self.model))
        if self.kind == "update" and self.plan is None:
            raise PrivflError("an update needs plan=Plan(…), the rules by which it was trained")
        self._check_tensors()
        self._check_labels()

    def _check_tensors(self) -> None:
        shapes = {n: tuple(p.shape) for n, p in self.model.named_parameters()}
        if self.tensors and all(tuple(t.shape) == shapes.get(n) for n, t in self.tensors.items()):
            raise PrivflError(
                "the tensors have no axis of clients in front: add it with t[None], "
                "or use Upload.from_gradients(model, tensors)"
            )
        rows = {len(t) if t.dim() else 0 for t in self.tensors.values()}
        if len(rows) != 1 or 0 in rows:
            raise PrivflError(
                "an upload needs one tensor or more, each with a row for every client; "
                f"got {len(self.tensors)} tensors with {sorted(rows)} rows"
            )
        for name, t in self.tensors.items():
            if tuple(t.shape[1:]) != shapes.get(name):
                raise PrivflError(
                    f"upload tensor {name!r} has shape {tuple(t.shape[1:])} after the clients' "
                    f"axis; the model's is {shapes.get(name, 'missing')}"
                )
            bad = (~as_rows(t).isfinite()).any(1).nonzero().flatten().tolist()
            if bad:
                raise PrivflError(
                    f"upload {bad[0]} holds NaN or infinite values in tensor {name!r}; "
                    "only finite numbers can be averaged or attacked"
                )

    def _check_labels(self) -> None:
        y = self.knows.labels
        if y is not None and tuple(y.shape[:2]) != (len(self), self.batch):
            raise PrivflError(
                f"labels must be ({len(self)}, {self.batch}), uploads by examples; "
                f"got {tuple(y.shape)}"
            )

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __iter__(self) -> Iterator[Upload]:
        return (self[i] for i in range(len(self)))

    @checked
    def __getitem__(self, i: Annotated[int | slice, PLACE]) -> Upload:
        """Upload i (or a slice of them), with what is known about it; indices as a list's."""
        if isinstance(i, int):
            if not -len(self) <= i < len(self):
                raise NoSuchUpload(f"there are {len(self)} uploads, so none has the number {i}")
            i = slice(i % len(self), i % len(self) + 1)
        tensors = {n: t[i] for n, t in self.tensors.items()}
        return replace(self, tensors=tensors, knows=self.knows[i])

    @property
    def nbytes(self) -> int:
        """Bytes on the wire for one upload of 32-bit floats."""
        return sum(4 * t[0].numel() for t in self.tensors.values())

    @property
    def local_steps(self) -> int:
        """How many steps of SGD stand behind one upload."""
        return 1 if self.plan is None else self.plan.count(self.batch)

    @property
    def letter(self) -> str:
        """The threat model by the letters of Carletti et al. (2025), and what is granted besides.

        A: the uploads alone. C: the rules of local training, too. Labels, keys and the like are
        more than any letter.
        """
        return " + ".join(("A" if self.plan is None else "C", *self.knows.names))

    def __repr__(self) -> str:
        what = "gradients" if self.kind == "gradient" else f"updates of {self.local_steps} steps"
        besides = ", ".join(self.knows.names) or "nothing"
        return (
            f"Upload: {len(self)} {what} of {self.nbytes // 4:,} numbers, {self.batch} examples "
            f"behind each, for {self.model.name}; granted besides: {besides}; letter {self.letter}"
        )

    def gradients(self) -> Tensors:
        """The uploads as mean gradients: as they are, or Δ over −η and the weight of all steps."""
        if self.plan is None:
            return self.tensors
        weight = sum(self.plan.step_weights(self.local_steps))
        return {n: -t / (self.plan.eta * weight) for n, t in self.tensors.items()}

    def typed(self) -> Upload:
        """The same in the model's own type of numbers, as searches need it."""
        like = next(self.model.parameters()).dtype
        if all(t.dtype == like for t in self.tensors.values()):
            return self
        return replace(self, tensors={n: t.to(like) for n, t in self.tensors.items()})

    def imitator(self) -> Callable[[Tensor, Tensor], Tensors]:
        """f(x, y): what undefended clients with data x (U, B, C, H, W) and y would have sent.

        The server set the rules of training, so it can follow them on data of its own. It does not
        know in which order a client drew its examples and takes them as they stand. Where it is
        granted the clip, the imitation is clipped too.
        """
        return imitator(self)
