"""``Facts``: what an attacker may be granted besides its role, with ``Noise`` and ``Clip``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from torch import Tensor

from ..arrays import Array, floats
from ..checking import Checked, checked
from ..gradients import Tensors
from ..models.extractor import Extractor
from ..runtime import PrivflError, choose
from ..values import NotNegative, Positive, Text, Unit, Word

Labels = Annotated[Tensor, Array("labels (uploads, examples)", (2, 3), "any", 0)]
Two = Annotated[Tensor, floats("numbers (uploads, …)", 2)]
Three = Annotated[Tensor, floats("numbers (uploads, …, …)", 3)]


@dataclass(frozen=True)
class Noise(Checked):
    """Independent noise of mean 0 on an upload: its standard deviation, one or by tensor or layer.

    ``Noise + Noise`` is that of the sum: variances add.
    """

    std: NotNegative | Mapping[str, NotNegative]

    def of(self, name: str) -> float:
        """The standard deviation in the tensor of this name; its layer's, where that is listed."""
        std = self._entry(name)
        if std is None:
            raise PrivflError(f"no noise is stated for {name!r}, only by other names; got {self}")
        return std

    def _entry(self, name: str) -> float | None:
        if not isinstance(self.std, Mapping):
            return float(self.std)
        for key in (name, name.rpartition(".")[0]):
            if key in self.std:
                return float(self.std[key])
        return None

    def __add__(self, other: Noise) -> Noise:
        names = {n: None for a in (self, other) if isinstance(a.std, Mapping) for n in a.std}
        if not names:
            return Noise(math.hypot(self.of(""), other.of("")))
        both = ((n, self._entry(n), other._entry(n)) for n in names)
        return Noise({n: math.hypot(a, b) for n, a, b in both if a is not None and b is not None})

    def __mul__(self, factor: float) -> Noise:
        if isinstance(self.std, Mapping):
            return Noise({n: factor * s for n, s in self.std.items()})
        return Noise(factor * self.std)


@dataclass(frozen=True)
class Clip(Checked):
    """What was shortened to a length of at most ``bound``.

    The "update" as one vector, every "layer" by itself, or the gradient of each "example".
    """

    bound: Positive
    per: Annotated[str, Word("unit of clipping", "update", "layer", "example")] = "update"


@dataclass(frozen=True)
class Facts(Checked):
    """What an attacker is granted besides its role; None is not granted.

    U uploads, B examples behind each. Labels may be classes (U, B) or distributions.
    """

    labels: Labels | None = None  # (U, B) or (U, B, classes), as they were trained on
    noise: Noise | None = None  # on each upload
    clip: Clip | None = None
    key: Two | None = None  # FedKL: (U, S)
    lock: Three | None = None  # FedKL: weights and bias of the lock, (U, 2C, S + 1)
    coefficients: Two | None = None  # FedKL: γ before β, (U, 2C)
    guard: Two | None = None  # Model Entanglement: the guard's upload as one vector, (U, d)
    lambda_g: Unit | None = None  # DCS²: Eq. 10
    concealed: Labels | None = None  # DCS²: labels ỹ of the M concealed samples, (U, M)
    mixture: Three | None = None  # DCS²: labels of the augmented batch, (U, B + M, classes)
    shares: tuple[Unit, Unit] | None = None  # DCS²: weights of both parts in Eq. 10
    policy: Text | None = None  # ATS: which transformations
    matrix: Two | None = None  # Mixup, InstaHide: blends by images, (U, n)
    c: NotNegative | None = None  # LODA: weight of the pixels in Eq. 4
    extractor: Extractor | None = None  # LODA: g of Eq. 4
    measurement: Callable[..., Tensors] | None = None  # CA-FL: f(tensors, round), what travels
    eps: Positive | None = None  # CA-FL: the budget of one measurement

    @property
    def names(self) -> tuple[str, ...]:
        """What is granted."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is not None)

    @checked
    def select(self, names: Sequence[Text] | Text) -> Facts:
        """Only these; one that does not exist here is refused."""
        names = (names,) if isinstance(names, str) else tuple(names)
        return Facts(**{n: getattr(self, choose("fact in knows=", n, self.names)) for n in names})

    def summed(self, each: int, gradient: bool) -> Facts:
        """What is left of them where only the mean of all uploads, ``each`` examples behind one,
        is on the wire: labels in one row; noise, which averages out; a clip of single examples."""
        y, noise, clip = self.labels, self.noise, None
        if self.clip is not None and (self.clip.per == "example" or (each == 1 and gradient)):
            clip = replace(self.clip, per="example") if self.clip.per != "layer" else None
        if y is not None:
            noise = noise and noise * (1 / math.sqrt(len(y)))
            y = y.flatten(0, 1)[None]
        return Facts(labels=y, noise=noise, clip=clip)

    def without(self, *names: str) -> Facts:
        """All but these."""
        return replace(self, **dict.fromkeys(names))

    def __getitem__(self, rows: slice) -> Facts:
        """The facts about some of the uploads."""
        held = {n: getattr(self, n) for n in self.names}
        some: dict[str, Any] = {n: v[rows] if isinstance(v, Tensor) else v for n, v in held.items()}
        return Facts(**some)

    def __or__(self, other: Facts) -> Facts:
        """Both together, as of two defenses in a row: noises add, else the later one counts."""
        both = {n: getattr(other, n) for n in other.names}
        if self.noise is not None and other.noise is not None:
            both["noise"] = self.noise + other.noise
        return replace(self, **both)

    def __repr__(self) -> str:
        def short(value: Any) -> str:
            return f"{tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"

        return f"Facts({', '.join(f'{n}={short(getattr(self, n))}' for n in self.names)})"
