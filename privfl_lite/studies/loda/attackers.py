"""Attackers who hold a LODA encoding: from x′ back to the private image, settings chosen in public.

Each is a part of the study "loda/attack": of its settings and a cell it makes "found", the scores
against the private images, and mostly "choice" and "picture".
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...attacks.adaptive.loda_decoder import train_decoder
from ...attacks.adaptive.loda_inversion import adaptive, invert
from ...defenses.loda import WEIGHT
from .encodings import (
    MAIN,
    choose_by_lpips,
    extractor,
    private,
    private_images,
    public,
    scores,
    strip,
)
from .gradient import matched


def by_inversion(settings: dict, cell: dict) -> dict:
    layers, steps = cell["layers"], settings["invert_steps"]
    g, (x, e) = extractor(settings, layers), public(settings, layers, settings["public"])
    options = {str(tv): invert(g, e, tv, steps=steps, show=False) for tv in settings["tv"]}
    best, table = choose_by_lpips(x, options)
    x, _ = private_images(settings, layers)
    many = settings["encodings"] if layers == "loda1" else [1]
    seen = [private(settings, layers, seed)[1] for seed in range(max(many))]
    found = {str(n): invert(g, seen[:n], float(best), steps=steps, show=False) for n in many}
    out: dict[str, Any] = {"choice": {"tv": float(best), "table": table}}
    if layers in MAIN:
        out["picture"] = strip(settings, found[str(max(many))])
        sent = matched(settings, layers)
        found["from a gradient"] = invert(g, sent, float(best), steps=steps, show=False)
    return out | {"found": {n: scores(f, x) for n, f in found.items()}}


def by_equation_6(settings: dict, cell: dict) -> dict:
    """Rate, then c, then steps, one after the other; "released" is the committed choice."""
    layers, unit = cell["layers"], settings["unit"]
    g, (x, e) = extractor(settings, layers), public(settings, layers, settings["public"])
    now: dict[str, Any] = {"rate": 1e-2, "c": 1, "steps": 100}
    tables = {}

    def attack(e: Tensor, rate: float, c: float, steps: int) -> Tensor:
        return adaptive(g, e, c * unit, int(steps), rate)

    for name, values in settings["adaptive"].items():
        options = {str(v): attack(e, **now | {name: v}) for v in values}
        best, tables[name] = choose_by_lpips(x, options)
        now[name] = float(best)
    x, e = private(settings, layers)
    found = {
        "released": attack(e, 1e-2, 5, 100),
        "tuned": attack(e, **now),
        "from a gradient": attack(matched(settings, layers), **now),
    }
    out = {"choice": now | {"table": tables}, "picture": strip(settings, found["tuned"])}
    return out | {"found": {n: scores(f, x) for n, f in found.items()}}


def by_stationarity(settings: dict, cell: dict) -> dict:
    layers, steps = cell["layers"], settings["invert_steps"]
    g, (x, e) = extractor(settings, layers), public(settings, layers, settings["public"])
    c, tv = WEIGHT[layers] * settings["unit"], settings["panel"]["tv"]  # as inversion chose

    def attack(e: Tensor, weight: float) -> Tensor:
        return invert(g, e, tv, c, weight, steps, show=False)

    options = {str(w): attack(e, w) for w in settings["kkt_weights"]}
    best, table = choose_by_lpips(x, options)
    x, e = private(settings, layers)
    return {
        "choice": {"weight": float(best), "tv": tv, "table": table},
        "found": {"tuned": scores(attack(e, float(best)), x)},
    }


def by_decoder(settings: dict, cell: dict) -> dict:
    """Trained on public pairs of one encoding each; "4": the mean of what it makes of four.

    LODA₁'s is used on LODA₂'s encodings, too: what if the attacker does not know the layers?
    """
    layers, seed = cell["layers"], settings["seed"]
    g, pairs = extractor(settings, layers), public(settings, layers, cell["pairs"])
    net = train_decoder(g, *pairs, steps=cell["steps"], seed=seed, show=False)
    x, e = private(settings, layers)
    seen = {"1": e} | ({"from a gradient": matched(settings, layers)} if layers in MAIN else {})
    with torch.no_grad():
        found = {name: net(images) for name, images in seen.items()}
        if layers == "loda1":
            many = [net(private(settings, layers, s)[1]) for s in range(4)]
            found["4"] = torch.stack(many).mean(0)
            found["of LODA₂"] = net(private(settings, "loda2")[1])
    out = {"found": {n: scores(f, x) for n, f in found.items()}}
    return out | {"picture": {n: strip(settings, f) for n, f in found.items()}}
