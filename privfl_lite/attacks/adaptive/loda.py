"""Against LODA: read the encoding off the gradient, then look for an image with its features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from ...models.extractor import Extractor
from ...wire import Upload
from ..adaptive.loda_inversion import invert
from ..analytic.closed_form import ClosedForm
from ..analytic.recursive import Recursive
from ..base import Attack, Reconstruction


@dataclass(frozen=True)
class Unobscure(Attack):
    """x′ by linear algebra, then the smoothest image with the features of x′ (chapter: LODA).

    A decoder that was trained on public pairs reads more (``train_decoder``); this one needs no
    data. ``details["encoding"]`` is x′.
    """

    tv: float = 3.0
    steps: int = 400
    show: bool = True
    needs, answers, most, letter = ("extractor",), ("loda",), (1, 1), "C"

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        self.check(upload)
        dense = next(iter(upload.tensors.values())).dim() == 3
        read = (ClosedForm() if dense else Recursive()).run(upload, seed)
        encoding = read.images.clamp(0, 1)
        g = cast(Extractor, upload.knows.extractor)
        images = invert(g, encoding, tv=self.tv, steps=self.steps, show=self.show)
        return replace(read, images=images, details={"encoding": encoding})
