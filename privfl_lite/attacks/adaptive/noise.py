"""Against noise: the likelihood of what was seen, and what is known of images before seeing it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from ...gradients import flat
from ...wire import Noise, Upload
from ..base import Reconstruction, together
from ..matching.search import Matching


@dataclass(frozen=True)
class Denoise(Matching):
    """The image that is likeliest given the upload, with smooth images likelier before.

    Minus the log-density of the noise plus ``tv`` times the total variation: where noise drowns the
    gradient, the prior fills in. A clip is imitated where it is granted. Chapters: noise and ε,
    ModelCloak I.
    """

    distance: str = "likelihood"
    tv: float = 3e3
    start: Tensor | str | None = "patterned"
    needs: ClassVar[tuple[str, ...]] = ("noise",)
    answers: ClassVar[tuple[str, ...]] = (
        "dp_gaussian",
        "dp_sgd",
        "modelcloak",
        "adaptive_cloak",
        "pogz_fl",
    )


@dataclass(frozen=True)
class DenoiseUnknown(Denoise):
    """The same where the level of the noise is private: it is read off the upload itself.

    Most entries of such an upload are noise and little else, so their median size is that of the
    noise times 0.6745 (the third quartile of N(0, 1)). Chapter: ModelCloak II.
    """

    needs = ()
    rounds = False
    answers = ("modelcloak", "adaptive_cloak", "pogz_fl")

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:  # type: ignore[override]
        one = Denoise(**vars(self))
        found = []
        for u in upload:
            std = (flat(u.tensors).abs().median() / 0.6745).clamp(min=1e-12).item()
            found.append(one.run(replace(u, knows=replace(u.knows, noise=Noise(std))), seed))
        return together(found)
