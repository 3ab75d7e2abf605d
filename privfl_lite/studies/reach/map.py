"""How far attacks reach: batch, local steps, age of training and network (chapter: reach).

From two centers (one digit, one step, an untrained network: dense with ReLU for the analytic
attacks, LeNet with sigmoid for the search) one axis is moved at a time, and three pairs of axes
together. A cell is one attacker in one setting; it keeps a row for each network (seed), because
images behind one network are not independent and intervals must know it (``metrics.clustered``).
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
from ...pictures import pack
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
    "ConvNet-8 eval": ("convnet", {"width": 8}),
    "ConvNet-8 train": ("convnet", {"width": 8}),
    "ResNet-20, width 8": ("resnet20", {"width": 8}),
}
DENSE, CONV = "MLP ReLU", "LeNet sigmoid"  # the two centers
NARROW = ("ConvNet-8 eval", "ConvNet-8 train", "ResNet-20, width 8")  # for the profile cpu
DEEP = ("ConvNet-16 eval", "ConvNet-16 train", "ResNet-20", *NARROW)  # fewer images, evaluations
SEARCHES = ("L-BFGS", "GS")
WHOLE, DRAWN = "whole", "drawn"  # every step sees all images, or half of them, newly drawn


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "center": {"data": "mnist", "batch": 1, "steps": 1, "order": WHOLE, "age": 0},
        "batches": [1, 2, 4, 8, 16, 32, *([64, 128] if large else [])],
        "steps": [1, 4, 20],
        "ages": [0, 1, 5, 20, 100],
        "data": ["faces", "photos", "cifar10"],
        "color": {"data": "cifar10", "batches": [2, 4, 8], "images": 100 if large else 8},
        "seeds": list(range(3)),
        "images": 100 if large else 16,  # for each network; a batch that is larger is one upload
        "images_search": 100 if large else 8,
        "images_dear": 100 if large else 4,  # searches of ``dear`` steps
        "images_deep": 100 if large else 2,  # searches in deep networks
        "deep": [net for net in DEEP if large or net in NARROW],
        "dear": 20,
        "budget": 4800 if large else 400,  # evaluations of a search
        "budget_dear": 4800 if large else 200,
        "proposals": 4_000_000 if large else 100_000,  # of SPEAR, for each upload
        "gallery": 100,
        "eta": 0.1,
        "fedavg": {"clients": 10, "per_client": 100, "batch_size": 20, "eta": 0.1},
        "bins": 128,
    }


def _cells(settings: dict) -> list[dict]:
    """The main effects, then the pairs; each setting once for every attacker that applies."""
    cells = [{**p, "attack": kind} for p in places(settings) for kind in applies(p)]
    return [cell for i, cell in enumerate(cells) if cell not in cells[:i]]


def places(settings: dict) -> list[dict]:
    """Where attackers are measured: network, data, batch, steps, order and age."""
    at, late = dict(settings["center"]), settings["ages"][3:]
    large = settings["images_dear"] == settings["images"]  # nothing is too dear: the profile gpu
    batches, steps = settings["batches"], settings["steps"]
    found = [{**at, "net": DENSE, "batch": b, "age": a} for b in batches for a in settings["ages"]]
    found += [{**at, "net": DENSE, "batch": b, "steps": s} for b in batches for s in steps]
    found += [{**at, "net": "MLP sigmoid", "batch": b} for b in batches]
    found += [{**at, "net": CONV, "batch": b} for b in batches]
    found += [{**at, "net": CONV, "age": a} for a in settings["ages"]]
    found += [{**at, "net": CONV, "batch": 4, "age": a} for a in late]
    found += [{**at, "net": DENSE, "data": name} for name in settings["data"]]
    found += [{**at, "net": DENSE, "batch": 4, "steps": s, "order": DRAWN} for s in steps[1:]]
    shallow = [net for net in NETS if net not in DEEP]
    found += [{**at, "net": n, "age": a} for n in shallow for a in (0, late[-1])]
    color = {**at, "data": settings["color"]["data"]}
    found += [{**color, "net": n} for n in (*shallow, *(settings["deep"] if large else ()))]
    found += [
        {**color, "net": n, "batch": b} for n in (DENSE, CONV) for b in settings["color"]["batches"]
    ]
    found += [{**at, "net": CONV, "steps": s} for s in steps]
    found += [{**at, "net": net} for net in settings["deep"]]
    if large:
        found += [{**at, "net": CONV, "batch": 4, "steps": s} for s in steps[1:]]
        found += [{**at, "net": CONV, "batch": 4, "steps": s, "order": DRAWN} for s in steps[1:]]
        found += [{**at, "net": CONV, "data": name} for name in settings["data"]]
    return found


def applies(place: dict) -> list[str]:
    """The attackers of a place: what reads, what searches, and for contrast the server that
    changes the model. What refuses a place is asked all the same: its sentence is the result."""
    net, one = place["net"], place["batch"] == 1
    dense, still = net.startswith("MLP"), place["steps"] == 1
    analytic = ["closed form"] if dense else ["recursive"] if one and still else []
    analytic += ["components"] if dense and not one else []
    analytic += ["spear"] if net == DENSE and not one else []
    asked = still and place["batch"] in (1, 4) and place["age"] not in (1, 5)
    asked = asked and (net == DENSE or place["age"] == 0)
    search = ["L-BFGS"] if net not in DEEP and (asked or not dense) else []
    search += ["GS"] if not dense and still else []
    contrast = ["imprint"] if net == CONV and place["age"] == 0 and still else []
    return analytic + search + contrast


@lru_cache(maxsize=16)
def _trained(net: str, data: str, seed: int, key: tuple) -> dict[int, models.Net]:
    """One FedAvg run: the network at each age, in rounds. Trained once in a process."""
    fedavg, ages = dict(key[0]), key[1]
    ds, (name, options) = load(data), NETS[net]
    model = models.build(name, ds, seed=seed, **options)
    clients = ds.clients(fedavg["clients"], "iid", fedavg["per_client"], seed=seed)
    plan = Plan(eta=fedavg["eta"], batch_size=fedavg["batch_size"])
    run, kept = FedAvg(model, clients, max(ages), plan, seed=seed, show=False), {0: model}
    for report in run:
        if report.round in ages:
            kept[report.round] = copy.deepcopy(run.model).eval()
    return kept


def network(settings: dict, cell: dict, seed: int) -> models.Net:
    """The network of a cell, at its age."""
    if cell["age"] == 0:
        name, options = NETS[cell["net"]]
        return models.build(name, load(cell["data"]), seed=seed, **options)
    key = (tuple(settings["fedavg"].items()), tuple(settings["ages"]))
    return _trained(cell["net"], cell["data"], seed, key)[cell["age"]]


def is_color(settings: dict, cell: dict) -> bool:
    """Whether the pictures are those of ``color``, which red-team/* do not have."""
    return "color" in settings and cell["data"] == settings["color"]["data"]


def is_dear(settings: dict, cell: dict) -> bool:
    """Whether a search takes so long here that it is given fewer images and evaluations."""
    return is_color(settings, cell) or cell["net"] in DEEP or cell["steps"] >= settings["dear"]


def plan_of(settings: dict, cell: dict) -> Plan | None:
    """The rules of local training; with ``drawn`` each pass reads the images in two halves."""
    mode, batch, steps = mode_of(cell), cell["batch"], cell["steps"]
    if steps == 1:
        return None
    if cell["order"] == DRAWN:
        return Plan(settings["eta"], epochs=steps // 2, batch_size=batch // 2, mode=mode)
    return Plan(settings["eta"], steps=steps, batch_size=batch, mode=mode)


def mode_of(cell: dict) -> str:
    """How batch norm works, for the client and for the attacker who imitates it."""
    return "train" if cell["net"].endswith("train") else "eval"


def _attack(settings: dict, cell: dict) -> attacks.Attack:
    budget = settings["budget_dear" if is_dear(settings, cell) else "budget"]
    return {
        "recursive": lambda: attacks.Recursive(),
        "closed form": lambda: attacks.ClosedForm(),
        "components": lambda: attacks.Components(),
        "spear": lambda: attacks.Spear(proposals=settings["proposals"], show=False),
        "imprint": lambda: ImprintReadout(),
        "L-BFGS": lambda: attacks.IDLG(steps=budget, show=False),
        "GS": lambda: attacks.GS(steps=budget, show=False),
    }[cell["attack"]]()


def private(settings: dict, cell: dict, seed: int, ds: Dataset) -> tuple[Tensor, Tensor, Tensor]:
    """Private images and labels, test images all; and the others in the gallery."""
    count, batch = settings["images"], cell["batch"]
    if cell["attack"] in SEARCHES:
        count = settings["images_dear" if is_dear(settings, cell) else "images_search"]
        count = settings["images_deep"] if cell["net"] in DEEP else count
    elif is_color(settings, cell):
        count = settings["color"]["images"]
    count = min(count, len(ds.y_test)) // batch * batch
    return _drawn(ds, max(batch, count), seed, settings["gallery"])


def _drawn(ds: Dataset, count: int, seed: int, gallery: int) -> tuple[Tensor, Tensor, Tensor]:
    x, y = ds.sample(count, split="test", seed=1000 + seed)
    return x, y, ds.sample(gallery - 1, seed=2000 + seed)[0]


def scores(found: Tensor, x: Tensor, others: Tensor, batch: int) -> dict:
    """PSNR of each image, in the order that fits best within an upload (it favors the attacker);
    and how many are named by pixels and by features, where no order is chosen."""
    parts = zip(found.split(batch), x.split(batch), strict=True)
    matched = torch.cat([f[metrics.assign(f, true)] for f, true in parts])
    psnr = metrics.compare(matched, x)["psnr"]
    named = {
        f"named_{by}": metrics.identify(found, x, others, by=by, batch=batch).hits
        for by in ("pixels", "features")
    }
    return {"psnr": [round(min(v, 160.0), 1) for v in psnr.tolist()], **named}


@lru_cache(maxsize=64)
def blind(data: str, count: int, seed: int, gallery: int) -> dict:
    """The scores of the mean training image, which anybody may hand in without any upload."""
    ds = load(data)
    x, _, others = _drawn(ds, count, seed, gallery)
    return scores(ds.x_train.mean(0, keepdim=True).expand_as(x), x, others, 1)


def _one(settings: dict, cell: dict, seed: int, ds: Dataset) -> dict:
    """One network: what was found, what a blind guess has, and the cost."""
    batch = cell["batch"]
    x, y, others = private(settings, cell, seed, ds)
    net = network(settings, cell, seed)
    with torch.no_grad():
        right = (net(ds.x_test).argmax(1) == ds.y_test).float().mean().item()
    if cell["attack"] == "imprint":
        edges = quantile_edges(ds.x_train.flatten(1).mean(1), settings["bins"]).unique()
        net = Imprint(net, edges, gain=1e-3)
    how: dict[str, Any] = {
        "plan": plan_of(settings, cell),
        "mode": mode_of(cell),
        "each": batch,
        "seed": seed,
    }
    upload = share(net, x, y, knows=("labels",), **how)
    began = time.process_time()
    try:
        result = _attack(settings, cell).run(upload, seed=seed)
    except PrivflError as error:
        return {"refused": str(error)}
    seconds, found = time.process_time() - began, result.images.cpu()
    return {
        **scores(found, x, others, batch),
        "blind": blind(cell["data"], len(x), seed, settings["gallery"]),
        "picture": pack(found[metrics.assign(found[:batch], x[:batch])][0].mean(0, keepdim=True)),
        "accuracy": round(right, 3),
        "evaluations": result.evaluations,
        "cpu_seconds": round(seconds, 3),
    }


def _compute(settings: dict, cell: dict) -> dict:
    ds = load(cell["data"])
    rows: list[dict] = []
    for seed in settings["seeds"]:
        rows.append(_one(settings, cell, seed, ds))
        if "refused" in rows[-1]:  # a matter of layers and counts, the same for each network
            return rows[-1]
    return {"networks": rows}


STUDY = Study(
    name="reach/map",
    about="one axis at a time from one digit, one step, untrained; labels granted; three networks",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
