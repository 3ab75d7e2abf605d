"""Learning to invert against a search, on spoiled uploads (chapter: generative priors).

One held-out digit an upload, three untrained LeNets, the uploads as they are, pruned, reduced to
signs, or noisy. The search is the one that knows what was done; the blind guess is the mean public
image. A cell keeps a row for each network, because images behind one network are not independent.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from ... import attacks, metrics, models
from ...client import share
from ...data import Dataset, load
from ...defenses import Defense, DPGaussian, Prune
from ...pictures import pack
from ...wire import Upload
from ..base import Study

SPOILED: dict[str, Defense] = {  # what leaves -> the defense that makes it so
    "whole": Defense(),
    "90 % pruned": Prune(0.9),
    "99 % pruned": Prune(0.99),
    "signs": Defense(),  # and then only signs are kept, as in signSGD
    "noise, σ = 0.1": DPGaussian(0.1),
}
ATTACKS = ("blind", "search", "learned")


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "seeds": [0, 1, 2],
        "images": 100 if large else 8,
        "public": 2000,  # training images from the first on; the gallery holds others
        "gallery": 100,
        "steps": 4800 if large else 200,  # evaluations of a search
        "learning_steps": 4000 if large else 400,
        "pictures": 3,
    }


def _cells(settings: dict) -> list[dict]:
    return [{"upload": how, "attack": attack} for how in SPOILED for attack in ATTACKS]


def uploads(settings: dict, how: str, seed: int, data: Dataset) -> tuple[Upload, torch.Tensor]:
    """Uploads of held-out digits behind one network, and the digits."""
    x, y = data.sample(settings["images"], split="test", seed=1000 + seed)
    net = models.build("lenet", data, seed=seed)
    knows = ("noise",) if how.startswith("noise") else ()
    upload = share(net, x, y, SPOILED[how], knows, each=1, seed=seed)
    if how == "signs":
        upload = replace(upload, tensors={n: t.sign() for n, t in upload.tensors.items()})
    return upload, x


def _attack(settings: dict, how: str, kind: str, data: Dataset) -> attacks.Attack:
    """The attacker; each search knows what was done to the upload."""
    few: dict[str, Any] = {"steps": settings["steps"], "show": False}
    if kind == "learned":
        x, y = (t[: settings["public"]] for t in (data.x_train, data.y_train))
        return attacks.LearnedInversion(x, y, steps=settings["learning_steps"], show=False)
    if how == "signs":
        return attacks.GS(**few)  # the cosine does not ask for sizes
    search = attacks.Unprune if how.endswith("pruned") else attacks.IDLG
    return (attacks.Denoise if how.startswith("noise") else search)(**few)


def _one(settings: dict, cell: dict, seed: int, data: Dataset) -> dict:
    upload, x = uploads(settings, cell["upload"], seed, data)
    others = data.x_train[settings["public"] :][: settings["gallery"] - 1]
    began, evaluations = time.process_time(), 0
    found = data.x_train[: settings["public"]].mean(0, keepdim=True).expand_as(x)
    if cell["attack"] != "blind":
        result = _attack(settings, cell["upload"], cell["attack"], data).run(upload, seed)
        found, evaluations = result.images.cpu(), result.evaluations
    named = (metrics.identify(found, x, others, by=by).hits for by in ("pixels", "features"))
    return {
        "psnr": [round(v, 1) for v in metrics.compare(found, x)["psnr"].clamp(max=160).tolist()],
        **dict(zip(("named_pixels", "named_features"), named, strict=True)),
        "evaluations": evaluations,
        "pictures": [pack(v) for v in found[: settings["pictures"]]],
        "cpu_seconds": round(time.process_time() - began, 2),
    }


def _compute(settings: dict, cell: dict) -> dict:
    data = load("mnist")
    return {"networks": [_one(settings, cell, seed, data) for seed in settings["seeds"]]}


STUDY = Study(
    name="generative-priors/learned",
    about="learning to invert against searches on whole, pruned, signed and noisy uploads of one "
    "digit each; three untrained LeNets",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
