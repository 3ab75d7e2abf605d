"""Attack cells: one image behind each upload, one step, three untrained networks, labels granted.

"plain" is the best of three attackers who know of no defense, upload by upload, by a cost of their
own: the cosine distance between what was seen and what an undefended client with the found image
would have sent. "informed" knows the defense. Because labels are granted, an image competes with
candidates of its own label where the data set has enough of them (settings["same_label"]), so that
whoever knows nothing else names one in ``gallery`` exactly.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from ... import attacks, metrics, models
from ...attacks.base import Attack, Reconstruction
from ...client import share
from ...data import load
from ...defenses import Defense, Entangle
from ...defenses.mixing import Mixup, flip, mix
from ...gradients import flat
from ...metrics.identification import _features
from ...runtime import PrivflError, generator, seeded
from ...wire import Upload
from .rows import MIXED, ROWS, answer, build

KEPT: dict[bytes, Tensor] = {}  # features of candidates that were looked at before


def features(images: Tensor) -> Tensor:
    """Rows for ``identify``: as its "features", each image through the network once."""
    keys = [image.numpy().tobytes() for image in images.cpu()]
    new = [i for i, key in enumerate(keys) if key not in KEPT]
    if new:
        KEPT.update(zip([keys[i] for i in new], _features(images[new]).cpu(), strict=True))
    return torch.stack([KEPT[key] for key in keys]).to(images)


def private(settings: dict, data: str, seed: int) -> tuple[Tensor, Tensor]:
    """Images that are attacked behind one network, held out from training, and their labels."""
    return load(data).sample(settings["images"][data], split="test", seed=1000 + seed)


def candidates(settings: dict, data: str, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Images with which the private ones compete, and their labels: training images, and test
    images too where a class has fewer than the gallery."""
    ds, most = load(data), settings["gallery"]
    if not settings["same_label"][data]:
        return ds.sample(most - 1, seed=2000 + seed)
    parts = []
    for label in y.unique().tolist():
        pool, rest = ds.x_train[ds.y_train == label], ds.x_test[ds.y_test == label]
        pool = pool if len(pool) >= most - 1 else torch.cat([pool, rest])
        order = torch.randperm(len(pool), generator=generator(2000 + seed, label))
        parts.append(
            (pool[order[:most]], pool.new_full((len(order[:most]),), label, dtype=torch.long))
        )
    x, labels = zip(*parts, strict=True)
    return torch.cat(x), torch.cat(labels)


def scores(settings: dict, data: str, found: Tensor, batch: int, seed: int) -> dict:
    """PSNR of each image, in the order that fits best within an upload; and how many are named."""
    x, y = private(settings, data, seed)
    pool, labels = candidates(settings, data, y, seed)
    same: dict[str, Any] = {}
    if settings["same_label"][data]:
        same = {"labels": y, "pool_labels": labels}
    parts = zip(found.split(batch), x.split(batch), strict=True)
    matched = torch.cat([f[metrics.assign(f, true)] for f, true in parts])
    psnr = metrics.compare(matched, x)["psnr"].tolist()
    how: dict[str, Any] = {"of": settings["gallery"], "batch": batch, **same}
    named = {
        f"named_{word}": metrics.identify(found, x, pool, by=by, **how).hits
        for word, by in (("pixels", "pixels"), ("features", features))
    }
    return {"psnr": [round(min(v, 150.0), 1) for v in psnr], **named}


@lru_cache
def blind(data: str, seed: int, count: int, same: bool, gallery: int) -> dict:
    """The scores of the mean training image of each label: a guess without any upload."""
    given, ds = (
        {"images": {data: count}, "same_label": {data: same}, "gallery": gallery},
        load(data),
    )
    _, y = private(given, data, seed)
    means = torch.stack([ds.x_train[ds.y_train == c].mean(0) for c in y.tolist()])
    return scores(given, data, means, 1, seed)


def victims(settings: dict, cell: dict, seed: int) -> Upload:
    """What clients with one private image each send, with everything granted that is asked for."""
    data, name = cell["data"], cell["row"]
    (x, y), row, ds = private(settings, data, seed), ROWS[name], load(data)
    defense = build(settings, name, data, 1.0, seed, settings["craft"])
    options: dict[str, Any] = {"hidden": (256,)} if row.net == "mlp" else {}
    net = models.build(row.net, ds, seed=seed, **options)
    if name in MIXED:
        return blends(settings, net, x, y, defense, seed)
    if isinstance(defense, Entangle):
        guard = share(net, *ds.sample(len(x), seed=3000 + seed), each=1).tensors
        defense = replace(defense, guard=guard)
    knows = ("labels", *row.granted)
    return share(net, x, y, defense, knows, 1, mode=row.mode, seed=seed)


def blends(
    settings: dict, net: models.Net, x: Tensor, y: Tensor, defense: Defense, seed: int
) -> Upload:
    """Each blend of some rounds behind an upload of its own, with the matrix granted."""
    assert isinstance(defense, Mixup)
    rounds = range(settings["blend_rounds"])
    mixed = [mix(x, y, generator(seed, r), classes=net.num_classes) for r in rounds]
    images, labels, matrix = (
        torch.cat([getattr(m, part) for m in mixed]) for part in ("images", "labels", "matrix")
    )
    if hasattr(defense, "center"):
        images = flip(images, generator(seed, 9), defense.center)
    sent = share(net, images, labels, each=1, knows=("labels",))
    return replace(sent, knows=replace(sent.knows, matrix=matrix))


def plain_tools(settings: dict, cell: dict) -> dict[str, Attack]:
    """Attackers who know of no defense; searches cost evaluations, the closed form none, but in a
    convolutional network many factorizations, so that settings may leave it out there."""
    steps = settings["steps"]
    dense = ROWS[cell["row"]].net == "mlp"
    every: dict[str, Attack] = {
        "closed form": attacks.ClosedForm() if dense else attacks.Recursive(),
        "L-BFGS": attacks.IDLG(steps=steps, show=False),
        "GS": attacks.GS(steps=settings["steps_gs"], show=False),
    }
    asked = settings["plain"][cell["data"]]
    return {n: t for n, t in every.items() if n in asked or (dense and n == "closed form")}


def own_cost(upload: Upload, found: Reconstruction, seed: int) -> Tensor:
    """1 − cos between each upload and what undefended clients with the found images send, (U,)."""
    labels = cast(Tensor, upload.knows.labels)
    x = found.images.view(len(upload), upload.batch, *found.images.shape[1:])
    with seeded(seed, 1):
        made = upload.imitator()(x, labels)
    names = [n for n in upload.tensors if n in made]
    seen, made_ = (flat({n: t[n] for n in names}) for t in (upload.tensors, made))
    return (1 - torch.cosine_similarity(seen, made_, dim=1)).nan_to_num(torch.inf).detach()


def _plain(settings: dict, cell: dict, upload: Upload, seed: int) -> dict:
    """The best of the plain attackers by their own cost, and each by itself."""
    if cell["row"] in MIXED:  # the blend of row i is taken for image i
        upload = upload[: settings["images"][cell["data"]]]
    bare = replace(upload, knows=replace(type(upload.knows)(), labels=upload.knows.labels))
    found, each, evaluations = {}, {}, 0
    for name, tool in plain_tools(settings, cell).items():
        try:
            found[name] = tool.run(bare, seed=seed)
        except PrivflError as error:
            each[name] = {"refused": str(error)}
            continue
        evaluations += found[name].evaluations
        told = scores(settings, cell["data"], found[name].images, bare.batch, seed)
        each[name] = told | {"psnr": statistics.median(told["psnr"])}
    costs = torch.stack([own_cost(bare, f, seed) for f in found.values()])  # (tools, U)
    best = costs.argmin(0).repeat_interleave(bare.batch)
    images = torch.stack([f.images for f in found.values()])
    chosen = images[best, torch.arange(len(best), device=best.device)]
    count = {name: int((best == i).sum()) for i, name in enumerate(found)}
    return scores(settings, cell["data"], chosen, bare.batch, seed) | {
        "chosen": count,
        "each": each,
        "evaluations": evaluations,
        "letter": max(tool.letter for tool in plain_tools(settings, cell).values()),
    }


def _informed(settings: dict, cell: dict, upload: Upload, seed: int) -> dict:
    tool = answer(settings, cell["row"], cell["data"], cell["attacker"] == "earlier")
    found = tool.run(upload, seed=seed)
    told = scores(settings, cell["data"], found.images, upload.batch, seed)
    if cell["row"] == "ATS":  # what its client trained on is another image
        seen = trained_on(settings, cell, seed)
        psnr = metrics.compare(found.images, seen)["psnr"].clamp(max=150).tolist()
        told["psnr_seen"] = [round(v, 1) for v in psnr]
    return told | {"evaluations": found.evaluations, "letter": tool.letter}


def trained_on(settings: dict, cell: dict, seed: int) -> Tensor:
    """The images after the defense's door for data, as ``share`` made them."""
    x, y = private(settings, cell["data"], seed)
    made = build(settings, cell["row"], cell["data"], 1.0, seed, settings["craft"])
    parts = ((x[k : k + 1], y[k : k + 1], generator(seed, k)) for k in range(len(x)))
    return torch.cat([made.data(*part)[0] for part in parts])


def attack(settings: dict, cell: dict) -> dict:
    """One attacker against one defense on one data set: a row of scores for each network."""
    if cell["data"] not in ROWS[cell["row"]].data:
        return {
            "refused": f"{cell['row']} or its attacker does not take images as of {cell['data']}"
        }
    left_out = settings["left_out"].get(cell["data"], {}).get(cell["attacker"], [])
    if cell["row"] in left_out:
        return {"refused": "too dear on these images in this profile"}
    rows: list[dict] = []
    for seed in settings["seeds"]:
        upload = victims(settings, cell, seed)
        began = time.process_time()
        run = _plain if cell["attacker"] == "plain" else _informed
        row = run(settings, cell, upload, seed)
        spent = round(time.process_time() - began, 1)
        some = (settings[part][cell["data"]] for part in ("images", "same_label"))
        guess = blind(cell["data"], seed, *some, settings["gallery"])
        rows.append({**row, "blind": guess, "cpu_seconds": spent})
    granted = ("labels", *(() if cell["attacker"] == "plain" else ROWS[cell["row"]].granted))
    letter = max(row.pop("letter") for row in rows)
    return {"networks": rows, "letter": " + ".join((letter, *granted))}
