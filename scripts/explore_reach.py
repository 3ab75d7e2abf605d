"""What the explorable ``reach-map`` shows: the stored map ``reach/map`` and what its theory counts.

Every cell that the stored result has with its steps on whole batches is taken, whatever networks,
data, batches and ages these are; nothing is filled in between. ``explore_data.py`` writes it.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch

import privfl_lite as pf
from privfl_lite.studies.reach.map import NETS
from privfl_lite.teach.plots import reach_cells

MOST = 32  # pictures whose units are stored
AXES = ("batch", "steps", "age")


def places() -> list[tuple[str, str]]:
    """The pairs of network and data that the map has measured with every step on whole batches.

    Sorted by data, then in the order of ``NETS``, so that new data comes last.
    """
    known = reach_cells.result()
    kinds, nets = [known["settings"]["center"]["data"], *known["settings"]["data"]], [*NETS]
    found = {(c["net"], c["data"]) for c in reach_cells.cells_of_whole_batches()}
    extra = sorted({data for _, data in found} - {*kinds})
    return sorted(found, key=lambda p: ([*kinds, *extra].index(p[1]), nets.index(p[0])))


def measured(net: str, data: str) -> list[list[Any]]:
    """Rows of batch, steps, age, and what the best attacker has; its name is None if all refuse."""
    some = [c for c in reach_cells.cells_of_whole_batches() if (c["net"], c["data"]) == (net, data)]
    rows: list[list[Any]] = []
    for where in sorted({tuple(c[axis] for axis in AXES) for c in some}):
        at = dict(zip(AXES, where, strict=True))
        cell = reach_cells.best(net=net, data=data, **at)
        if cell is None:
            rows.append([*where, None])
            continue
        share, images = reach_cells.named(cell), sum(reach_cells.hits(cell)[1])
        numbers = (reach_cells.exact(cell), share.value, share.low, share.high)
        about = [reach_cells.short(cell), reach_cells.level(cell), images]
        rows.append([*where, *about, *(float(f"{v:.9g}") for v in numbers)])
    return rows


def counted(net: str, data: str) -> dict[str, Any]:
    """What the theory counts with: pixels, numbers sent, units of a dense first layer, and, where
    it has ReLU, which of these are on for the first test pictures of the map's first network."""
    (kind, options), ds = NETS[net], pf.load(data)
    model = pf.models.build(kind, ds, seed=0, **options)
    found = {"pixels": ds.x_test[0].numel(), "sent": model.num_parameters}
    if kind != "mlp":
        return found
    found["units"] = options["hidden"][0]
    if options.get("act", "relu") == "relu":
        x, _ = ds.sample(min(MOST, len(ds.y_test)), split="test", seed=1000)
        with torch.no_grad():
            on = (model.features(x) > 0).numpy()  # (pictures, units)
        found |= {"pictures": len(x), "on": base64.b64encode(np.packbits(on)).decode()}
    return found


def reach() -> dict[str, Any]:
    settings = reach_cells.result()["settings"]
    return {
        "study": reach_cells.result()["study"],
        "gallery": settings["gallery"],
        "proposals": settings["proposals"],
        "row": [*AXES, "attack", "level", "images", "exact", "share", "low", "high"],
        "places": [
            {"net": net, "data": data, **counted(net, data), "cells": measured(net, data)}
            for net, data in places()
        ],
    }
