"""Against LODA: read the encoding off the gradient, then look for an image with its features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch

from ...budget import at_once, footprint
from ...models.extractor import Extractor
from ...runtime import PrivflError
from ...values import Count, NotNegative
from ...wire import Upload
from ..adaptive.loda_inversion import invert
from ..analytic.closed_form import ClosedForm
from ..analytic.recursive import Recursive
from ..base import Attack, Reconstruction


@dataclass(frozen=True)
class Unobscure(Attack):
    """x′ by linear algebra, then the smoothest image with the features of x′ (chapter: LODA).

    Several uploads are rounds in which the same clients sent the same images, each time with an
    encoding of another start (``LODA(fresh=True)``): the features are fitted to all of them.
    A decoder that was trained on public pairs reads more (``train_decoder``); this one needs no
    data. ``details["encoding"]`` is x′, of the first round; "encodings" are those of all.
    """

    tv: NotNegative = 3.0
    steps: Count = 400
    show: bool = True
    needs, answers, most, letter = ("extractor",), ("loda",), (1, 1), "C"
    rounds = True

    def run(self, upload: Upload | Sequence[Upload], seed: int = 0) -> Reconstruction:
        uploads = [upload] if isinstance(upload, Upload) else list(upload)
        if not uploads or len({len(one) for one in uploads}) > 1:
            raise PrivflError("rounds must be at least one, with the same clients")
        for one in uploads:
            self.check(one)
        first = uploads[0]
        dense = next(iter(first.tensors.values())).dim() == 3
        read = [(ClosedForm() if dense else Recursive()).run(one, seed) for one in uploads]
        encodings = [r.images.clamp(0, 1) for r in read]
        encoding, g = encodings[0], cast(Extractor, first.knows.extractor)
        _, outputs = footprint(g.net, encoding.shape[1:])
        few = at_once(len(encoding), 32 * outputs, "images", 8 * encoding[0].numel())
        images = [
            invert(g, part, tv=self.tv, steps=self.steps, show=self.show)
            for part in zip(*(e.split(few) for e in encodings), strict=True)
        ]
        told = {"encoding": encoding, "encodings": encodings}
        return replace(read[0], images=torch.cat(images), details=told)
