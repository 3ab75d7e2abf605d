"""What a challenge is: a text, private images, and how they came to the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ..models import Net
from ..wire import Plan, Upload

Seeds = Callable[[str], int]  # purpose -> seed, of one challenge in one set


class Hint(NamedTuple):
    """A hint and the points that it costs."""

    text: str
    cost: int


class Private(NamedTuple):
    """What the clients hold; ``pool`` are the candidates, of which ``places`` are theirs."""

    images: Tensor  # (N, 1, 28, 28)
    labels: Tensor  # (N,)
    pool: Tensor | None = None  # (M, 1, 28, 28)
    pool_labels: Tensor | None = None  # (M,)
    places: Tensor | None = None  # (N,)


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """One upload to read.

    ``answer`` says what is asked for: the "labels", the "images", or "places" in the pool of
    candidates. ``open``: nobody has done it, as far as the book knows; the flag is true all the
    same. ``network`` makes a network of the right shapes, as text for the reader's own use in
    ``network_text``.
    """

    name: str
    title: str
    story: str
    granted: str
    letter: str
    points: int
    hints: tuple[Hint, Hint, Hint]
    chapter: str  # its slug
    answer: str
    uploads: int
    batch: int
    private: Callable[[Seeds], Private]
    network: Callable[[], Net]
    network_text: str
    send: Callable[[Seeds, Private], Upload]
    open: bool = False
    plan: Plan | None = None

    @property
    def count(self) -> int:
        """Images behind all uploads together."""
        return self.uploads * self.batch
