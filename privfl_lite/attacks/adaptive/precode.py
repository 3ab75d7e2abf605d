"""Against PRECODE: what enters its encoder stands in the encoder's gradient, before the draw."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...models import built
from ...runtime import seeded
from ...wire import Upload
from ..base import Reconstruction
from ..recursive import Recursive


@dataclass(frozen=True)
class BeforeDraw(Recursive):
    """Enter at the encoder, the last of the features, and go back layer by layer.

    Chapter: changing the model.
    """

    answers = ("precode",)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        built(upload.model, "BeforeDraw")
        encoder = f"features.{len(upload.model.features) - 1}.encode"
        with seeded(seed):  # the network draws when the cost is computed
            return Recursive(**vars(replace(self, entry=encoder))).run(upload, seed)
