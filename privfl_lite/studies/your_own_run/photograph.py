"""The report of torchvision's resnet18 on single photographs (chapter: your own run)."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from ...data import load
from ...leak import LeakReport, report
from ...pictures import pack_color
from ...runtime import seeded, torchvision
from ..base import Study


def _settings(profile: str) -> dict:
    return {
        "data": "photos",
        "images": list(range(8)),  # seeds of the samples
        "network": 0,  # seed of the weights
        "evaluations": [5, 60, 300, *([2000] if profile == "gpu" else [])],
    }


def _cells(settings: dict) -> list[dict]:
    return [
        {"image": image, "evaluations": n}
        for image in settings["images"]
        for n in settings["evaluations"]
    ]


def reported(settings: dict, cell: dict) -> LeakReport:
    """As anybody would make it: a module, ``autograd.grad``, and ``report``."""
    photos = load(settings["data"])
    x, y = photos.sample(1, seed=cell["image"])
    with seeded(settings["network"]):
        net = torchvision().models.resnet18(num_classes=photos.num_classes).eval()
    gradient = torch.autograd.grad(cross_entropy(net(x), y), list(net.parameters()))
    return report(
        net, gradient, data=(x, y), gallery=photos.x_test, evaluations=cell["evaluations"]
    )


def _compute(settings: dict, cell: dict) -> dict:
    made = reported(settings, cell)
    assert made.truth is not None
    return {
        "timed_verdict": made.verdict,
        "numbers": made.sent["numbers"],
        "layers": len(made.structure["layers"]),
        "labels": made.structure["labels"]["says"],
        "recursion": made.structure["recursion"]["says"],
        "truth": pack_color(made.truth[0]),
        "attempts": [
            {
                "attack": a.attack,
                "outcome": a.outcome,
                "psnr": list(a.psnr),
                "misfit": list(a.misfit),
                "image_rank": list(a.ranks),
                "seconds": a.seconds,
                "found": None if a.images is None else pack_color(a.images[0]),
            }
            for a in made.attempts
        ],
    }


STUDY = Study(
    name="your-own-run/photograph",
    about="the leak report of torchvision's resnet18, untrained, on the gradient of one photograph "
    "of 32 × 32 pixels, for eight photographs, by evaluations of each search",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
