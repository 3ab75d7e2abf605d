"""Attack × model × data set: one undefended gradient of one image, many images, no hand-picking."""

from __future__ import annotations

import time
from typing import Any

from ... import attacks, metrics, models
from ...client import share
from ...data import load
from ...metrics.judge import rounded
from ..base import Study

# Each net as its paper starts it; with ReLU, LeNet's U(−0.5, 0.5) would let signals explode.
NETS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {}),
    "lenet": ("lenet", {}),
    "lenet relu": ("lenet", {"act": "relu", "init": 0.1}),
    "convnet": ("convnet", {"width": 16}),
    "resnet20": ("resnet20", {}),
}
STEPS = {"dlg": 1000, "idlg": 1000, "gs": 2000, "grnn": 1000, "ggl": 500}
PLAN: dict[str, dict[str, tuple[str, ...]]] = {  # data set -> net -> attacks
    "mnist": {
        "mlp": ("closed_form", "idlg", "gs"),
        "lenet": ("dlg", "idlg", "gs", "recursive", "grnn", "ggl"),
        "lenet relu": ("idlg", "gs", "recursive"),
    },
    "faces": {"lenet": ("idlg", "gs", "recursive")},
    "photos": {"lenet": ("idlg", "gs", "recursive")},
    "cifar10": {
        "mlp": ("closed_form", "idlg", "gs"),
        "lenet": ("dlg", "idlg", "gs", "recursive", "grnn"),
        "lenet relu": ("idlg", "gs", "recursive"),
        "convnet": ("gs",),
        "resnet20": ("gs",),
    },
}
SLOW = ("convnet", "resnet20", "grnn")


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "datasets": list(PLAN),
        "images": 64 if large else 16,
        "images_slow": 64 if large else 4,
        "steps": STEPS,
        "steps_large_nets": 4800 if large else 400,
        "seed": 0,
        "labels": "inferred from the upload",
    }


def _cells(settings: dict) -> list[dict]:
    return [
        {"data": data, "model": net, "attack": attack}
        for data, nets in PLAN.items()
        for net, names in nets.items()
        for attack in names
    ]


def _compute(settings: dict, cell: dict) -> dict:
    """Private images are held-out ones: the generator behind ``ggl`` has not seen them."""
    name, large = cell["attack"], cell["model"] in SLOW
    size = 32 if name == "grnn" and cell["data"] == "mnist" else None  # a power of two
    data = load(cell["data"], **({"size": size} if size else {}))
    net, options = NETS[cell["model"]]
    model = models.build(net, data, seed=settings["seed"], **options)
    count = settings["images_slow" if large or name in SLOW else "images"]
    x, y = data.sample(count, split="test", seed=settings["seed"])
    steps = settings["steps_large_nets"] if large else settings["steps"].get(name)
    attack = attacks.ATTACKS[name](**({"steps": steps, "show": False} if steps else {}))
    began = time.process_time()
    found = attack.run(share(model, x, y, each=1), seed=settings["seed"])
    seconds = time.process_time() - began
    scores = metrics.compare(found.images, x)
    return {
        "psnr": rounded(scores["psnr"]),
        "ssim": [round(v, 4) for v in scores["ssim"].tolist()],
        "labels_right": int((found.labels.cpu() == y).sum()),
        "evaluations": found.evaluations,
        "cpu_seconds_per_image": round(seconds / count, 3),
    }


STUDY = Study(
    name="matching-gradients/table",
    about="one gradient of one held-out image, no defense, untrained nets; every attack that fits",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
