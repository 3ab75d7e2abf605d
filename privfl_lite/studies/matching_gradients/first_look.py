"""First look: what an attacker rebuilds from one undefended gradient, over many digits and nets."""

from __future__ import annotations

from ... import attacks, metrics, models
from ...client import share
from ...data import load
from ..base import Study


def _settings(profile: str) -> dict:
    return {
        "dataset": "mnist",
        "model": "lenet",
        "images": 32 if profile == "cpu" else 100,
        "seeds": [0, 1, 2],
        "steps": {"dlg": 1000, "idlg": 1000, "gs": 2000},
    }


def _cells(settings: dict) -> list[dict]:
    return [{"attack": a, "seed": s} for a in settings["steps"] for s in settings["seeds"]]


def _compute(settings: dict, cell: dict) -> dict:
    data, seed = load(settings["dataset"]), cell["seed"]
    model = models.build(settings["model"], data, seed=seed)
    x, y = data.sample(settings["images"], seed=seed)
    steps = settings["steps"][cell["attack"]]
    attack = attacks.build(cell["attack"], steps=steps, show=False)
    found = attack.run(share(model, x, y, each=1), seed=seed)
    scores = metrics.compare(found.images, x)
    return {
        "psnr": [round(v, 2) for v in scores["psnr"].tolist()],
        "ssim": [round(v, 4) for v in scores["ssim"].tolist()],
        "labels_right": int((found.labels.cpu() == y).sum()),
        "evaluations": found.evaluations,
    }


STUDY = Study(
    name="matching-gradients/first-look",
    about="one gradient of one digit, no defense, an untrained sigmoid LeNet; three attacks",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
