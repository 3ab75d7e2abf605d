"""The red team: for every defense the attackers who know it, by what they need and where they end.

``ATTACKERS[defense]`` names them; ``run`` attacks. None is chosen by the truth: each is a cell of
its own. What an attacker refuses, it says in a sentence, and that is its result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ...attacks import (
    GS,
    IDLG,
    ClosedForm,
    Components,
    Denoise,
    LockMatching,
    Recursive,
    Spear,
    Unlock,
    Unprune,
)  # fmt: skip
from ...attacks.adaptive.dcs2_algebra import Pair
from ...attacks.adaptive.dcs2_matching import ConcealedMatching
from ...attacks.adaptive.entanglement import Unguard, own_part
from ...attacks.adaptive.loda_decoder import Decoder, train_decoder
from ...attacks.base import Attack, Reconstruction
from ...defenses import LODA
from ...wire import Facts, Upload
from .targets import CLOAK, CLOAK_SERVER, DENSE, NONE, POOLED, dataset

AS_GS: dict[str, Any] = {"distance": "cosine", "optimizer": "adam", "tv": GS.tv, "box": True}


class Attacker(NamedTuple):
    """``make(settings, how)``: the attack; ``kind``: "algebra", "pair" (dear) or "search"."""

    make: Callable[[dict, dict], Attack]
    kind: str = "search"
    knows: tuple[str, ...] = ()


RECURSION = Attacker(lambda s, how: Recursive(), "algebra")
SEARCH = Attacker(lambda s, how: IDLG(**{"steps": s["budget"], "show": False} | how))
BY_ANGLE = Attacker(  # a clip keeps the angle
    lambda s, how: IDLG(**{"steps": s["budget"], "show": False} | AS_GS | how)
)
LIKELY = Attacker(
    lambda s, how: Denoise(steps=s["budget_noise"], show=False), "search", ("noise", "clip")
)
ATTACKERS: dict[str, dict[str, Attacker]] = {
    NONE: {
        "recursion": RECURSION,
        "search": SEARCH,
    },
    "Prune 0.9": {
        "search, sent entries": Attacker(
            lambda s, how: Unprune(**{"steps": s["budget"], "show": False} | how)
        ),
    },
    "DP-SGD": {"likelihood": LIKELY},
    CLOAK: {"likelihood": LIKELY},
    CLOAK_SERVER: {"recursion": RECURSION, "search": BY_ANGLE},
    "DCS²": {
        "pair": Attacker(lambda s, how: Pair(), "pair"),
        "search, both images": Attacker(
            lambda s, how: ConcealedMatching(**{"steps": s["joint"], "show": False} | how),
            "joint",
            ("mixture",),
        ),
    },
    "FedKL": {
        "unlock": Attacker(lambda s, how: Unlock(), "algebra"),
        "search, lock and image": Attacker(
            lambda s, how: LockMatching(**{"steps": s["budget"], "show": False} | AS_GS | how)
        ),
    },
    "Entanglement": {
        "search, own entries": Attacker(
            lambda s, how: Unguard(
                IDLG(**{"steps": s["budget"], "show": False, "nonzero": True} | how)
            ),
            "search",
            ("guard",),
        ),
    },
    "LODA": {
        "encoding": RECURSION,
        "decoder": RECURSION,
        "search for the encoding": SEARCH,
    },
}
READERS: dict[str, Attacker] = {  # behind a dense first layer, whatever the defense
    "lone units": Attacker(lambda s, how: ClosedForm(), "algebra"),
    "SPEAR": Attacker(lambda s, how: Spear(proposals=s["proposals"], show=False), "algebra"),
    "components": Attacker(lambda s, how: Components(), "algebra"),
}


def of(cell: dict) -> Attacker:
    """The attacker of a cell; the guard's upload reaches the server in clear."""
    if cell["net"] != DENSE:
        return ATTACKERS[cell["defense"]][cell["attack"]]
    reader = READERS[cell["attack"]]
    return reader._replace(knows=("guard",)) if cell["defense"] == "Entanglement" else reader


def run(settings: dict, cell: dict, upload: Upload, seed: int) -> Reconstruction:
    """Attack; where an encoding was found, a decoder goes on, and of two images a box chooses."""
    how = AS_GS | {"steps": settings["budget_pooled"]} if cell["net"] == POOLED else {}
    attack = of(cell).make(settings, how)
    if cell["net"] == DENSE and cell["defense"] == "DCS²":
        return _inside(attack, upload, seed)
    if cell["net"] == DENSE and cell["defense"] == "Entanglement":
        upload = own_part(upload)
    found = attack.run(upload, seed=seed)
    if cell["attack"] != "decoder":
        return found
    decoder = _decoder(json.dumps(settings["defenses"]["LODA"]), cell["data"])
    with torch.no_grad():
        return replace(found, images=decoder(found.images.clamp(0, 1)))


def _inside(attack: Attack, upload: Upload, seed: int) -> Reconstruction:
    """Behind a dense layer DCS² is a batch twice as large; x̃ leaves the box, so the half that
    keeps to [0, 1] best is taken for the sensitive one."""
    whole = replace(upload, batch=2 * upload.batch, knows=Facts())
    found = attack.run(whole, seed=seed)
    parts = found.images.split(whole.batch)
    off = [(part - part.clamp(0, 1)).flatten(1).norm(dim=1) for part in parts]
    kept = [p[far.argsort()[: upload.batch]] for p, far in zip(parts, off, strict=True)]
    return replace(found, images=torch.cat(kept), labels=found.labels[: len(kept) * upload.batch])


@lru_cache(maxsize=2)
def _decoder(key: str, data: str) -> Decoder:
    """Trained on public pairs: training images of the same data set, obscured by the attacker."""
    loda = LODA(**json.loads(key))
    public = dataset(data).sample(200, seed=4000)[0]
    return train_decoder(loda.g, public, loda.obscure(public, show=False).images, 300, show=False)
