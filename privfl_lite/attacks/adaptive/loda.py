"""Against LODA: read the encoding off the gradient, then look for an image with its features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch

from ...budget import at_once, footprint
from ...models.extractor import Extractor
from ...values import Count, NotNegative
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

    tv: NotNegative = 3.0
    steps: Count = 400
    show: bool = True
    needs, answers, most, letter = ("extractor",), ("loda",), (1, 1), "C"

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        self.check(upload)
        dense = next(iter(upload.tensors.values())).dim() == 3
        read = (ClosedForm() if dense else Recursive()).run(upload, seed)
        encoding = read.images.clamp(0, 1)
        g = cast(Extractor, upload.knows.extractor)
        _, outputs = footprint(g.net, encoding.shape[1:])
        few = at_once(len(encoding), 32 * outputs, "images", 8 * encoding[0].numel())
        images = [
            invert(g, part, tv=self.tv, steps=self.steps, show=self.show)
            for part in encoding.split(few)
        ]
        return replace(read, images=torch.cat(images), details={"encoding": encoding})
