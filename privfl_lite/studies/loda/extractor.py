"""The feature extractor behind LODA: a ResNet-18 trained on public images, and the units of its c.

The paper's is trained on CIFAR-100 and encodes CIFAR-10. CIFAR-100 is in no registry, so the
``cpu`` profile splits CIFAR-10: the extractor sees training images from index 25,000 on, and the
first 25,000 are private. It thus knows the classes of the private task, which the paper's does not.
``gpu`` is the paper's: CIFAR-100, full width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...assets import cache
from ...data import load
from ...federated import evaluate
from ...metrics import wilson
from ...models.extractor import (
    LAYERS,
    PUBLIC_FROM,
    Extractor,
    blank,
    load_extractor,
    squared_distance,
)
from ...runtime import device, generator, progress
from ...stored import own, save
from ..base import Study


def _settings(profile: str) -> dict:
    small = profile == "cpu"
    name = "cifar10" if small else "cifar100"
    return {
        "profile": profile,
        "dataset": name,
        "public": f"training images from index {PUBLIC_FROM if small else 0} on",
        "seed": 0,
        "training": {"epochs": 5 if small else 200, "batch": 128, "rate": 0.2, "decay": 5e-4},
        "pairs": 50,
    }


def _cells(settings: dict) -> list[dict]:
    return [{"cell": "train"}, *({"cell": "scale", "images": n} for n in ("cifar10", "photos"))]


def _compute(settings: dict, cell: dict) -> dict:
    return _train(settings) if cell["cell"] == "train" else _scale(settings, cell["images"])


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: int,
    batch: int,
    rate: float,
    decay: float,
    seed: int,
) -> None:
    """SGD with Nesterov momentum 0.9, one cycle of the rate, and random mirroring; in place."""
    layout = torch.channels_last  # a third quicker on a CPU
    net.train().to(device()).to(memory_format=layout)  # type: ignore[call-overload]
    rng, steps = generator(seed, 1), epochs * (len(x) // batch)
    optimizer = torch.optim.SGD(net.parameters(), rate, 0.9, weight_decay=decay, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.25)
    for step in progress(range(steps), "extractor"):
        if step % (len(x) // batch) == 0:
            order = torch.randperm(len(x), generator=rng).split(batch)
        rows = order[step % (len(x) // batch)]
        mirror = torch.rand(len(rows), 1, 1, 1, generator=rng) < 0.5
        images = torch.where(mirror, x[rows].flip(3), x[rows])
        images = images.to(device(), memory_format=layout)
        optimizer.zero_grad()
        cross_entropy(net(images), y[rows].to(device())).backward()
        optimizer.step()
        schedule.step()
    net.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def _train(settings: dict) -> dict:
    data, small, seed = load(settings["dataset"]), settings["profile"] == "cpu", settings["seed"]
    first = PUBLIC_FROM if small else 0
    net = blank(settings["profile"], seed)
    folder = (own() if small else cache()) / "weights"
    path = folder / f"extractor-{settings['profile']}.safetensors"
    train(net, data.x_train[first:], data.y_train[first:], **settings["training"], seed=seed)
    about = {key: str(settings[key]) for key in ("dataset", "public", "seed")}
    sha = save(net, path, {"study": "extractor", "source": data.source, **about})
    kept = load_extractor(profile=settings["profile"], path=path).net  # in 16 bits, as stored
    accuracy, _ = evaluate(kept, data.x_test, data.y_test)
    right = round(accuracy * len(data.y_test))
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": sha,
        "images": len(data.x_train) - first,
        "parameters": kept.num_parameters,
        "accuracy": accuracy,
        "interval": wilson(right, len(data.y_test)),
    }


def _scale(settings: dict, images: str) -> dict:
    """‖g(a) − g(b)‖² / ‖a − b‖² over pairs of images: the c at which Eq. 4's two terms are equal.

    Batch norm makes the scale of a convolution's output arbitrary, so a paper's c means nothing
    for another network; this ratio does.
    """
    x, _ = load(images).sample(2 * settings["pairs"], settings["seed"], "test")
    a, b = x.to(device()).chunk(2)
    net, out = load_extractor(profile=settings["profile"]).net, {}
    for layers in LAYERS:
        g = Extractor(net, layers)
        ratio = squared_distance(g(a), g(b)) / (a - b).flatten(1).square().sum(1)
        low, mid, high = ratio.quantile(torch.tensor([0.1, 0.5, 0.9]).to(ratio)).tolist()
        out[layers] = {"median": round(mid, 3), "p10": round(low, 3), "p90": round(high, 3)}
    return {"pairs": len(a), "ratio": out}


STUDY = Study(
    name="loda/extractor",
    about="a feature extractor for LODA, trained on public images, and the scale of its features",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
