"""Who is attacked by the red team: uploads of one step, along one defended FedAvg run.

For every defense and seed one network is trained by FedAvg whose clients are defended; at some
ages (in rounds) the network is kept, and clients with held-out images send one defended gradient
to it. Where a defense is too dear for that, less is defended, and it is said here:

* DCS²: one client of the run crafts (as in the released code), with few steps; the attacked
  uploads are crafted with all of them.
* LODA: the encodings of the clients' images are made once, since they depend on image and settings
  only, and the same clients serve all seeds. It takes color images only.
* ModelCloak and DP-SGD also have an undefended run beside them ("training"), because their noise
  leaves nothing of the network: else one could not tell the noise's effect from the wreck's.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import models
from ...client import share
from ...data import Dataset, load
from ...defenses import DCS2, DPSGD, LODA, Defense, Entangle, FedKL, ModelCloak, Prune
from ...defenses.base import Memory
from ...federated import FedAvg
from ...wire import Plan, Upload
from ..reach.map import NETS, private

NONE, DEFENDED, UNDEFENDED = "none", "defended", "undefended"
CLOAK, CLOAK_SERVER = "ModelCloak", "ModelCloak, noise at the server"
FIVE = (CLOAK, CLOAK_SERVER, "DCS²", "FedKL", "Entanglement", "LODA")
ALL = (NONE, "Prune 0.9", "DP-SGD", *FIVE)
CONV, DENSE, POOLED = "LeNet sigmoid", "MLP ReLU", "ConvNet-8 eval"
GRANTS = {  # what the attackers of a defense may be granted besides labels
    "DP-SGD": ("noise", "clip"),
    CLOAK: ("noise", "clip"),
    "DCS²": ("mixture",),
    "Entanglement": ("guard",),
}
OWN_NETS: dict[str, tuple[str, dict[str, Any]]] = {**NETS, POOLED: ("convnet", {"width": 8})}


class Kept(NamedTuple):
    """A run at one age: the server's network, what clients remember, client 0's accuracy."""

    model: models.Net
    memory: Memory
    right: float


class Aim(NamedTuple):
    """Uploads, what is behind them, and 99 strangers for the gallery."""

    upload: Upload
    x: Tensor
    others: Tensor
    right: float


def dataset(name: str) -> Dataset:
    """ "mnist", "cifar10", or "photos 16": photographs of 16 × 16 pixels."""
    base, _, side = name.partition(" ")
    return load(base, size=int(side)) if side else load(base)


def built(settings: dict, name: str, seed: int) -> Defense:
    """A defense at its paper's settings, or ours where it states none (``settings``)."""
    s: dict[str, Any] = settings["defenses"]
    made: dict[str, Any] = {
        NONE: Defense,
        "Prune 0.9": lambda: Prune(0.9),
        "DP-SGD": lambda: DPSGD(**s["DP-SGD"]),
        CLOAK: lambda: ModelCloak(**s["ModelCloak"]),
        CLOAK_SERVER: lambda: ModelCloak(**s["ModelCloak"], where="server"),
        "DCS²": lambda: DCS2(**s["DCS²"]),
        "FedKL": lambda: FedKL(seed=seed),
        "Entanglement": lambda: Entangle(**s["Entanglement"]),
        "LODA": lambda: LODA(**s["LODA"]),
    }
    return made[name]()


def _in_training(settings: dict, name: str, training: str, seed: int) -> Defense:
    """What clients of the run use: as ``built``, less where that is too dear (see above)."""
    if training == UNDEFENDED or name == "LODA":
        return Defense()
    if name == "DCS²":
        return DCS2(steps=settings["craft_in_training"], clients=(0,))
    return built(settings, name, seed)


@lru_cache(maxsize=2)
def _encoded(key: str, name: str) -> list[tuple[Tensor, Tensor]]:
    """The clients' encodings and labels, the same for all seeds."""
    settings = json.loads(key)
    fedavg, loda = settings["fedavg"][name.split()[0]], LODA(**settings["defenses"]["LODA"])
    clients = dataset(name).clients(settings["clients"], "iid", fedavg["per_client"], seed=0)
    return [(loda.obscure(x, show=False).images, y) for x, y in clients]


@lru_cache(maxsize=4)
def _trained(key: str, name: str, net: str, data: str, training: str, seed: int) -> dict[int, Kept]:
    """Networks and clients' memories of one run at each age; trained once in a process."""
    settings, ds = json.loads(key), dataset(data)
    fedavg, ages = settings["fedavg"][data.split()[0]], settings["ages"]
    kind, options = OWN_NETS[net]
    clients = ds.clients(settings["clients"], "iid", fedavg["per_client"], seed=seed)
    if name == "LODA" and training == DEFENDED:
        clients = _encoded(key, data)
    run = FedAvg(
        models.build(kind, ds, seed=seed, **options),
        clients,
        max(ages),
        Plan(eta=fedavg["eta"], batch_size=fedavg["batch_size"], mode=_mode(name, net)),
        defense=_in_training(settings, name, training, seed),
        seed=seed,
        show=False,
    )
    kept = {}
    for report in run:
        if report.round in ages:
            now = copy.deepcopy(run.model).eval(), copy.deepcopy(run.memory)
            kept[report.round] = Kept(*now, _accuracy(run.personal(0), ds))
    return kept


def _mode(name: str, net: str) -> str:
    """FedKL's lock normalizes over the batch, as in its chapter; all else keeps eval mode."""
    return "train" if name == "FedKL" and net != POOLED else "eval"


def _network(settings: dict, cell: dict, seed: int) -> Kept:
    """The network at the cell's age; a client's lock is its own (FedKL), all else is made anew."""
    name, net, data = (cell[part] for part in ("defense", "net", "data"))
    if cell["age"] == 0:
        kind, options = OWN_NETS[net]
        model = models.build(kind, dataset(data), seed=seed, **options)
        return Kept(model, Memory(), _accuracy(model, dataset(data)))
    parts = ("fedavg", "ages", "clients", "defenses", "craft_in_training")
    key = json.dumps({part: settings[part] for part in parts})
    kept = _trained(key, name, net, data, cell["training"], seed)[cell["age"]]
    memory = copy.deepcopy(kept.memory) if name == "FedKL" else Memory()
    return kept._replace(memory=memory)


def aim(settings: dict, cell: dict, seed: int, count: int, knows: tuple[str, ...]) -> Aim:
    """``count`` held-out images, ``batch`` behind an upload, and what this attacker is granted."""
    place = json.dumps({part: v for part, v in cell.items() if part != "attack"})
    found = _aim(json.dumps(settings), place, seed, count)
    facts = found.upload.knows.select(("labels", *knows))
    return found._replace(upload=replace(found.upload, knows=facts))


@lru_cache(maxsize=6)
def _aim(key: str, place: str, seed: int, count: int) -> Aim:
    """The uploads of a place with all that may be granted: made once for all its attackers."""
    settings, cell = json.loads(key), json.loads(place)
    ds, batch, name = dataset(cell["data"]), cell["batch"], cell["defense"]
    alone = settings | {"images": count}
    x, y, others = private(alone, {"attack": "", "batch": batch}, seed, ds)
    net, memory, right = _network(settings, cell, seed)
    how: dict[str, Any] = {"each": batch, "seed": seed, "mode": _mode(name, cell["net"])}
    if name == "Entanglement":  # a guard of its own for each upload, on public images
        public, labels = ds.sample(len(x), seed=3000 + seed)
        guard = share(net, public, labels, **how).tensors
        defense: Defense = Entangle(**settings["defenses"]["Entanglement"], guard=guard)
    else:
        defense = built(settings, name, seed)
    sent = share(net, x, y, defense, ("labels", *GRANTS.get(name, ())), memory=memory, **how)
    return Aim(sent, x, others, right)


@torch.no_grad()
def _accuracy(net: models.Net, ds: Dataset) -> float:
    return (net(ds.x_test).argmax(1) == ds.y_test).float().mean().item()
