"""How far attacks reach: batch, local steps, age of training and network (chapter: reach).

From a center (one digit, one step, an untrained network) one axis is moved at a time, and three
pairs of axes together. A cell is one attacker in one setting; lists in it have a value for each
network (seed), so that intervals can be taken over networks, which share nothing.
"""

from __future__ import annotations

import copy
import time
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ... import attacks, metrics, models
from ...attacks.malicious.imprint import Imprint, ImprintReadout, quantile_edges
from ...client import share
from ...data import Dataset, load
from ...federated import FedAvg
from ...runtime import PrivflError
from ...wire import Plan
from ..base import Study

# With ReLU, LeNet's U(−0.5, 0.5) would let signals explode.
NETS: dict[str, tuple[str, dict[str, Any]]] = {
    "MLP ReLU": ("mlp", {"hidden": (256,)}),
    "MLP sigmoid": ("mlp", {"hidden": (256,), "act": "sigmoid"}),
    "LeNet sigmoid": ("lenet", {}),
    "LeNet ReLU": ("lenet", {"act": "relu", "init": 0.1}),
    "LeNet-5": ("lenet5", {}),
    "ConvNet-16 eval": ("convnet", {"width": 16}),
    "ConvNet-16 train": ("convnet", {"width": 16}),
    "ResNet-20": ("resnet20", {}),
}
DEEP = ("ConvNet-16 eval", "ConvNet-16 train", "ResNet-20")  # dear: fewer images and steps
DENSE, CONV = "MLP ReLU", "LeNet sigmoid"  # the two centers: for the analytic, for the search


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "center": {"data": "mnist", "batch": 1, "steps": 1, "age": 0},
        "batches": [1, 2, 4, 8, 16, 32],
        "steps": [1, 4, 20],
        "ages": [0, 1, 5, 20, 100],
        "seeds": list(range(3)),
        "images": 64 if large else 8,  # for each network; a batch that is larger is one upload
        "images_deep": 64 if large else 2,
        "budget": 4800 if large else 300,  # evaluations of a search
        "budget_deep": 4800 if large else 100,
        "proposals": 4_000_000 if large else 40_000,  # of SPEAR
        "gallery": 100,
        "eta": 0.05,
        "fedavg": {"clients": 10, "per_client": 100, "batch_size": 20, "eta": 0.1},
        "bins": 128,
    }


def _cells(settings: dict) -> list[dict]:
    """The main effects, then the pairs; each setting once for every attacker that applies."""
    at = dict(settings["center"])
    places = [{**at, "net": net} for net in NETS]
    for net in (DENSE, CONV):
        places += [{**at, "net": net, "batch": b} for b in settings["batches"]]
        places += [{**at, "net": net, "age": a} for a in settings["ages"]]
        places += [{**at, "net": net, "steps": s} for s in settings["steps"]]
    places += [{**at, "net": net, "data": "faces"} for net in (DENSE, CONV)]
    pairs = [(b, a) for b in settings["batches"][1:4] for a in settings["ages"][2:]]
    places += [{**at, "net": DENSE, "batch": b, "age": a} for b, a in pairs]
    for net in (DENSE, CONV):
        pairs = [(b, s) for b in settings["batches"][1:3] for s in settings["steps"][1:]]
        places += [{**at, "net": net, "batch": b, "steps": s} for b, s in pairs]
    shallow = [net for net in NETS if net not in DEEP]
    places += [{**at, "net": n, "age": a} for n in shallow for a in settings["ages"][3:]]
    cells = [{**place, "attack": kind} for place in places for kind in applies(place)]
    return [cell for i, cell in enumerate(cells) if cell not in cells[:i]]


def applies(place: dict) -> list[str]:
    """The attackers of a place: the best closed form there is, a search, and for contrast the
    server that changes the model."""
    one = place["batch"] == 1
    chain = place["net"].startswith(("MLP", "LeNet ")) and place["steps"] == 1
    relu = place["net"] == DENSE and place["steps"] == 1
    analytic = ["spear"] if relu and not one else ["recursive"] if one and chain else []
    analytic += ["closed form"] if place["net"].startswith("MLP") else []
    search = ["search"] if place["net"] != DENSE or place["batch"] <= 8 else []
    contrast = ["imprint"] if place["net"] == CONV and place["age"] == 0 else []
    return analytic + search + contrast


@lru_cache(maxsize=8)
def _trained(net: str, data: str, seed: int, key: tuple) -> dict[int, models.Net]:
    """One FedAvg run: the network at each age, in rounds. Trained once in a process."""
    fedavg, ages = dict(key[0]), key[1]
    ds, (name, options) = load(data), NETS[net]
    model = models.build(name, ds, seed=seed, **options)
    clients = ds.clients(fedavg["clients"], "iid", fedavg["per_client"], seed=seed)
    plan = Plan(eta=fedavg["eta"], batch_size=fedavg["batch_size"])
    run, kept = FedAvg(model, clients, max(ages), plan, seed=seed, show=False), {0: model}
    for report in run:
        if report.round + 1 in ages:
            kept[report.round + 1] = copy.deepcopy(run.model).eval()
    return kept


def network(settings: dict, cell: dict, seed: int) -> models.Net:
    """The network of a cell, at its age."""
    if cell["age"] == 0:
        name, options = NETS[cell["net"]]
        return models.build(name, load(cell["data"]), seed=seed, **options)
    key = (tuple(settings["fedavg"].items()), tuple(settings["ages"]))
    return _trained(cell["net"], cell["data"], seed, key)[cell["age"]]


def identified(found: Tensor, x: Tensor, others: Tensor) -> list[bool]:
    """Of each true image: is it the nearest to what was found, among itself and the others?

    ``found`` is in the order of x (``metrics.assign``); distances are of pixels.
    """
    a, own = metrics.as_image(found).flatten(1), x.flatten(1)
    right = (a - own).norm(dim=1)
    return (right < torch.cdist(a, others.flatten(1)).amin(1)).tolist()


def _matched(found: Tensor, x: Tensor, batch: int) -> Tensor:
    """What was found, in the order that fits x best within each upload; favors the attacker.

    How much it does is seen where x are strangers, images that stood behind no upload.
    """
    parts = zip(found.split(batch), x.split(batch), strict=True)
    return torch.cat([f[metrics.assign(f, true)] for f, true in parts])


def _attack(settings: dict, cell: dict) -> attacks.Attack:
    deep = cell["net"] in DEEP
    budget = settings["budget_deep" if deep else "budget"]
    return {
        "recursive": lambda: attacks.Recursive(),
        "closed form": lambda: attacks.ClosedForm(),
        "spear": lambda: attacks.Spear(proposals=settings["proposals"], show=False),
        "imprint": lambda: ImprintReadout(),
        "search": lambda: (
            attacks.GS(steps=budget, show=False) if deep else attacks.IDLG(steps=budget, show=False)
        ),
    }[cell["attack"]]()


def _one(settings: dict, cell: dict, seed: int, ds: Dataset) -> dict:
    """One network: PSNR and identification of each image, what a blind guess has, and the cost."""
    batch, deep = cell["batch"], cell["net"] in DEEP
    count = max(batch, settings["images_deep" if deep else "images"] // batch * batch)
    size = settings["gallery"] - 1
    x, y = ds.sample(2 * count + size, split="test", seed=1000 + seed)
    x, strangers, others = x.split([count, count, size])
    y = y[:count]
    net = network(settings, cell, seed)
    if cell["attack"] == "imprint":
        edges = quantile_edges(ds.x_train.flatten(1).mean(1), settings["bins"]).unique()
        net = Imprint(net, edges, gain=1e-3)
    mode = "train" if cell["net"].endswith("train") else "eval"
    plan = None
    if cell["steps"] > 1:
        plan = Plan(eta=settings["eta"], steps=cell["steps"], batch_size=batch, mode=mode)
    upload = share(net, x, y, knows=("labels",), each=batch, plan=plan, mode=mode, seed=seed)
    began, start = time.process_time(), ds.x_train.mean(0, keepdim=True)
    try:
        result = _attack(settings, cell).run(upload, seed=seed)
    except PrivflError as error:
        return {"refused": str(error)}
    seconds = time.process_time() - began
    found, by_luck = (_matched(result.images.cpu(), true, batch) for true in (x, strangers))
    blind = start.expand_as(x)
    return {
        "psnr": [round(min(v, 160.0), 2) for v in metrics.compare(found, x)["psnr"].tolist()],
        "named": sum(identified(found, x, others)),
        "chance_named": sum(identified(by_luck, strangers, others)),
        "blind_psnr": [round(v, 2) for v in metrics.compare(blind, x)["psnr"].tolist()],
        "blind_named": sum(identified(blind, x, others)),
        "count": count,
        "evaluations": result.evaluations,
        "cpu_seconds": round(seconds, 3),
    }


def _compute(settings: dict, cell: dict) -> dict:
    ds = load(cell["data"])
    rows = [_one(settings, cell, seed, ds) for seed in settings["seeds"]]
    if "refused" in rows[0]:
        return {"refused": rows[0]["refused"]}
    return {"networks": rows}


STUDY = Study(
    name="reach/map",
    about="one axis at a time from one digit, one step, untrained; labels granted; three networks",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
