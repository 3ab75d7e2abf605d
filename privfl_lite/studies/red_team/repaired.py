"""The repairs of ``red-team/repairs``: who is defended how, what is sent, and who attacks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import attacks, models
from ...client import share
from ...data import Dataset, load
from ...defenses import (
    DCS2,
    LODA,
    AdaptiveCloak,
    Defense,
    Entangle,
    FedKL,
    ModelCloak,
    Prune,
    Rounded,
)
from ...gradients import norm
from ...wire import Upload
from ..dcs2.training import Scaled
from ..reach.map import _drawn

DATA = {"loda": "photos"}
NOISE = 0.01  # standard deviation beside entanglement: ModelCloak's sweet spot on digits


class Scene(NamedTuple):
    """One network, the private images, and the strangers that they are to be told from."""

    net: models.Net
    x: Tensor
    y: Tensor
    others: Tensor
    data: Dataset


def scene(settings: dict, family: str, seed: int) -> Scene:
    ds = load(DATA.get(family, "mnist"))
    x, y, others = _drawn(ds, settings["images"], seed, settings["gallery"])
    net = models.build("mlp" if family == "loda" else "lenet", ds, seed=seed)
    return Scene(net, x, y, others, ds)


def median_norm(at: Scene) -> float:
    """Of gradients of public training images at this network."""
    return norm(share(at.net, *at.data.sample(20, seed=3000), each=1).tensors).median().item()


def defense_of(settings: dict, family: str, name: str, at: Scene | None, seed: int) -> Defense:
    """The defense, plain or repaired; ``at`` is None in a training run."""
    craft, bits = settings["craft" if at else "cost_craft"], "16 bits" in name
    if family == "dcs2":
        if name == "boxed, rescaled":
            return DCS2(**craft, box=True) + Scaled(settings["scale"])
        return DCS2(**craft) + Prune(0.7) if name == "pruned" else DCS2(**craft)
    if family == "fedkl":
        lock = FedKL(seed=seed, blocks="chained" if "chained" in name else "first")
        return lock + Rounded() if bits else lock
    if family == "entangle":
        how: dict[str, Any] = {"tensors": "every"} if name == "every tensor" else {}
        if at is not None:
            public = at.data.sample(settings["images"], seed=4000 + seed)
            how["guard"] = share(at.net, *public, each=1).tensors
        whole = Entangle(**how, score="quotient" if at else "random")
        return whole + ModelCloak(1e3, NOISE / 1e3) if name == "noise" else whole
    if family == "loda":
        assert at is not None  # its cost is in a study of its own
        deep = "loda3" if name == "deeper layer" else "loda1"
        steps, fresh = settings["loda"]["steps"], name == "fresh starts"
        return LODA(layers=deep, steps=steps, start=at.data.x_train, fresh=fresh)
    if family == "cloak":
        sigma, first = 5.0 if "5" in name else settings["sigma"], median_norm(at) if at else 1.0
        if "private" in name:
            return AdaptiveCloak(first, sigma, bit=10 * sigma)
        return ModelCloak(1e3, sigma, mode="dynamic", keep="scale")
    return Defense()


GRANTED = {
    ("dcs2", "pruned"): ("labels", "mixture", "shares"),
    ("entangle", "noise"): ("labels", "noise", "guard"),
    ("cloak", "private norm"): ("labels", "noise", "clip"),
    ("cloak", "private norm, sigma 5"): ("labels", "noise", "clip"),
}


def uploads(settings: dict, cell: dict, at: Scene, seed: int) -> list[Upload]:
    """What is sent; more than one round where clients begin anew each round, and it is used."""
    family, name = cell["family"], cell["defense"]
    guard = defense_of(settings, family, name, at, seed)
    plain = {"dcs2": ("labels",), "fedkl": (), "loda": ("extractor",), "cloak": ("labels",)}
    knows = GRANTED.get((family, name), plain.get(family, ("labels", "guard")))
    many = settings["loda"]["rounds"] if name == "fresh starts" and cell["who"] == "knows" else 1
    how: dict[str, Any] = {"knows": knows, "each": 1}
    return [share(at.net, at.x, at.y, guard, **how, seed=seed + 100 * r) for r in range(many)]


def attack_of(settings: dict, cell: dict) -> Callable[[list[Upload]], attacks.Reconstruction]:
    """The attacker of a cell, as a function of the rounds that it saw."""
    family, name, knows = cell["family"], cell["defense"], cell["who"] == "knows"
    search: dict[str, Any] = {"steps": settings["search"], "show": False}
    if family == "dcs2":
        who = attacks.PairPruned(show=False) if name == "pruned" and knows else attacks.Pair()
        return lambda seen: who.run(seen[0])
    if cell["who"] == "searches":  # for image, γ and β: rounding does not end a search
        how: dict[str, Any] = {"distance": "cosine", "optimizer": "adam", "tv": 1e-4, "box": True}
        return lambda seen: attacks.LockMatching(**how, **search).run(seen[0])
    if family == "fedkl":
        tried = settings["tol"] if "16 bits" in name and knows else settings["tol"][:1]
        return lambda seen: least([attacks.Unlock(tol=t).run(seen[0]) for t in tried])
    if family == "loda":
        inverse = attacks.Unobscure(steps=settings["loda"]["invert"], show=False)
        return lambda seen: inverse.run(seen if len(seen) > 1 else seen[0])
    if family == "entangle":
        unguard = attacks.Unguard(attacks.IDLG(nonzero=True, **search))
        denoise = attacks.Denoise(drop="head.weight", **search)  # the rest is the client's own
        one: attacks.Attack = denoise if name == "noise" and knows else unguard
        return lambda seen: one.run(seen[0])
    known = "private" in name and knows
    cloaked = attacks.Denoise(**search) if known else attacks.DenoiseUnknown(**search)
    return lambda seen: cloaked.run(seen[0])


def least(found: list[attacks.Reconstruction]) -> attacks.Reconstruction:
    """Of several reconstructions of each upload, that of least cost: the attacker's own score."""
    costs = torch.stack([f.cost for f in found]).nan_to_num(torch.inf)
    best, rows = costs.argmin(0), torch.arange(costs.shape[1], device=costs.device)
    images, labels = (torch.stack([getattr(f, n) for f in found]) for n in ("images", "labels"))
    return replace(
        found[0], images=images[best, rows], labels=labels[best, rows], cost=costs.amin(0)
    )
