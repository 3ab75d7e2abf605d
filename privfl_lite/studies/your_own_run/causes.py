"""Why "I cannot reconstruct anything" is often not privacy: six causes, and the cure of each.

Chapter: your own run. The same upload is attacked twice by the same search, once read as people
read it at first, and once as it was made. Only the reading differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from ... import attacks, metrics, models
from ...batches import Data
from ...client import share
from ...data import Dataset, load
from ...pictures import pack
from ...runtime import seeded
from ...wire import Facts, Plan, Upload
from ..base import Study

Readings = tuple[Upload, Upload, Data]  # as people read it at first, as it was made, the truth


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "data": "mnist",
        "networks": list(range(20 if large else 3)),
        "steps": 1000 if large else 200,
        "eta": 0.01,
        "local_steps": 4,
        "momentum": 0.9,
        "clients": 4,
    }


def _cells(settings: dict) -> list[dict]:
    return [{"cause": cause} for cause in CAUSES]


def _sampled(ds: Dataset, seed: int, n: int = 1) -> Data:
    return ds.sample(n, split="test", seed=300 + seed)


def _as_gradient(upload: Upload, factor: float) -> Upload:
    """The same tensors, times a factor, read as a gradient."""
    tensors = {n: factor * t for n, t in upload.tensors.items()}
    return replace(upload, tensors=tensors, kind="gradient", plan=None, mode="eval")


def _update(settings: dict, ds: Dataset, seed: int) -> Readings:
    """One step: Δ = −η g, taken for g."""
    data = _sampled(ds, seed)
    plan = Plan(settings["eta"], steps=1, batch_size=1)
    sent = share(models.build("lenet", ds, seed=seed), *data, plan=plan)
    return _as_gradient(sent, 1.0), sent, data


def _steps(settings: dict, ds: Dataset, seed: int) -> Readings:
    """Several steps, taken for one: Δ / −η, so every step counts as if at the first weights."""
    data = _sampled(ds, seed)
    plan = Plan(settings["eta"], steps=settings["local_steps"], batch_size=1)
    sent = share(models.build("lenet", ds, seed=seed), *data, plan=plan)
    return _as_gradient(sent, -1 / settings["eta"]), sent, data


def _momentum(settings: dict, ds: Dataset, seed: int) -> Readings:
    """The steps are followed, but without the client's momentum."""
    data = _sampled(ds, seed)
    plan = Plan(settings["eta"], steps=settings["local_steps"], batch_size=1,
                momentum=settings["momentum"])  # fmt: skip
    sent = share(models.build("lenet", ds, seed=seed), *data, plan=plan)
    return replace(sent, plan=replace(plan, momentum=0.0)), sent, data


def normed(ds: Dataset, seed: int) -> models.Net:
    """Two convolutions with batch norm and sigmoid, as a module of one's own."""
    c, h, w = ds.shape
    with seeded(seed):
        net = nn.Sequential(
            *(nn.Conv2d(c, 12, 5, 2, 2), nn.BatchNorm2d(12), nn.Sigmoid()),
            *(nn.Conv2d(12, 12, 5, 2, 2), nn.BatchNorm2d(12), nn.Sigmoid()),
            *(nn.Flatten(), nn.Linear(12 * (-(-h // 4)) * (-(-w // 4)), ds.num_classes)),
        )
    return models.wrap(net, ds.shape, name="normed")


def _batch_norm(settings: dict, ds: Dataset, seed: int) -> Readings:
    """A gradient in train mode, imitated in eval mode."""
    data = _sampled(ds, seed)
    sent = share(normed(ds, seed), *data, mode="train")
    return replace(sent, mode="eval"), sent, data


def by_name(y: Tensor) -> Tensor:
    """Digits as a loader numbers them that sorts the names of its classes as text."""
    order = sorted(WORDS)
    return torch.tensor([order.index(WORDS[c]) for c in y.tolist()], device=y.device)


WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _labels(settings: dict, ds: Dataset, seed: int) -> Readings:
    """The true labels are granted, but the client numbers its classes in another order."""
    x, y = _sampled(ds, seed)
    sent = share(models.build("lenet", ds, seed=seed), x, by_name(y))
    return replace(sent, knows=Facts(labels=y[None])), sent, (x, y)


def _averaged(settings: dict, ds: Dataset, seed: int) -> Readings:
    """The mean of several clients' gradients, taken for that of one client with one image."""
    data = _sampled(ds, seed, settings["clients"])
    sent = share(models.build("lenet", ds, seed=seed), *data)
    return replace(sent, batch=1), sent, data


CAUSES: dict[str, Callable[[dict, Dataset, int], Readings]] = {
    "update taken for a gradient": _update,
    "several steps taken for one": _steps,
    "momentum left out": _momentum,
    "batch norm in the other mode": _batch_norm,
    "labels in another order": _labels,
    "a mean of clients taken for one": _averaged,
}


def _tried(upload: Upload, steps: int, data: Data, seed: int) -> tuple[float, str]:
    """PSNR of what is found, of one image where there are several, the one it fits best; and the
    first of what was found, as a picture.
    """
    found = attacks.IDLG(steps=steps, show=False).run(upload, seed=seed)
    x = data[0].to(found.images)
    if len(found.images) < len(x):
        every = metrics.psnr(metrics.as_image(found.images).expand_as(x), x)
        return round(every.max().item(), 2), pack(found.images[0])
    order = metrics.assign(found.images, x)
    score = metrics.compare(found.images[order], x)["psnr"].mean().item()
    return round(score, 2), pack(found.images[order[0]])


def _compute(settings: dict, cell: dict) -> dict:
    ds = load(settings["data"])
    told: dict[str, list[float]] = {"psnr_before": [], "psnr_after": []}
    pictures: dict[str, str] = {}
    for seed in settings["networks"]:
        wrong, right, data = CAUSES[cell["cause"]](settings, ds, seed)
        shown = {"truth": pack(data[0][0])}
        for when, upload in (("before", wrong), ("after", right)):
            score, shown[when] = _tried(upload, settings["steps"], data, seed)
            told[f"psnr_{when}"].append(score)
        pictures = pictures or shown
    return {**told, "pictures": pictures}


STUDY = Study(
    name="your-own-run/causes",
    about="one upload of digits, read wrongly and then as it was made: PSNR of the same L-BFGS "
    "search behind three untrained networks, for six usual mistakes",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
