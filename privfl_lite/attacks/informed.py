"""The attacker who knows the defense: ``informed(upload, "prune")``."""

from __future__ import annotations

import inspect
from typing import Annotated

from ..checking import checked
from ..runtime import choose
from ..values import Seed, Text, Word
from ..wire import Upload
from .adaptive import (
    BeforeDraw,
    Denoise,
    DenoiseUnknown,
    Measured,
    Unflip,
    Unmask,
    Unmix,
    Unobscure,
    Unprune,
)
from .adaptive.dcs2_algebra import Pair
from .adaptive.entanglement import Unguard
from .adaptive.fedkl_recursion import Unlock
from .analytic.recursive import Recursive
from .base import Attack, Reconstruction
from .matching.search import GS, IDLG

INFORMED: dict[str, type[Attack]] = {  # defense -> who answers it best here
    "none": Recursive,
    "dp_gaussian": Denoise,
    "dp_sgd": Denoise,
    "prune": Unprune,
    "soteria": Unmask,
    "precode": BeforeDraw,
    "ats": Recursive,  # it reads what the client trained on
    "pogz_fl": DenoiseUnknown,
    "ca_fl": Measured,
    "mixup": Unmix,
    "instahide": Unflip,
    "modelcloak": DenoiseUnknown,
    "adaptive_cloak": DenoiseUnknown,
    "dcs2": Pair,
    "entangle": Unguard,
    "fedkl": Unlock,
    "loda": Unobscure,
    "secure_sum": GS,  # it is a larger batch
    "rounded": IDLG,
}


Name = Annotated[str, Word("defense", *INFORMED)]


@checked
def answer(defense: Name, granted: tuple[Text, ...] = (), **settings: object) -> Attack:
    """The informed attacker for a defense by its name; with the noise granted, one that uses it."""
    kind = INFORMED[defense]
    if kind is DenoiseUnknown and "noise" in granted:
        kind = Denoise
    takes = inspect.signature(kind).parameters
    for name in settings:
        choose(f"setting of {kind.__name__}", name, takes)
    return kind(**settings)


@checked
def informed(upload: Upload, defense: Name, seed: Seed = 0, **settings: object) -> Reconstruction:
    """Attack an upload as someone does who knows that this defense was used."""
    return answer(defense, upload.knows.names, **settings).run(upload, seed)
