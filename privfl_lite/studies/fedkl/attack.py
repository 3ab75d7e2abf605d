"""FedKL, attack side: Tables 4, 6 and 7 on digits, and attackers who know of the lock.

Digits of 32 × 32 pixels, sigmoid LeNet. Unless "setting" says otherwise: untrained, one image an
upload, train mode (so that the normalization is over that image), lock behind the first block.

* "table": {"net", "attack", "knows"}. Nets: "open" LeNet; "batch norm", the same with a public
  scale and shift; "lock". Attacks: "DLG" (L2, L-BFGS), "GS" (cosine, signed Adam, a box), "GRNN",
  "GGL" (our generator of digits); labels are granted. What the server knows of the lock:
  "wrong key" (it holds the lock's weights, and takes a key of its own: the released GGL test),
  "lock" (it holds the weights, and searches for the key: the released DLG test), "nothing" (it
  searches for γ and β), "lock's gradient" (Table 7, "Lock": the key is read from it), "key and
  lock" (Table 7, "Both"; the same as γ and β). The key alone (Table 7, "Key") is worth nothing more
  than "nothing": with free weights any γ and β are possible. The released test grants the weights.
* "informed": {"attack", "variant"}, 24 pairs of image and key on three nets, nothing granted,
  labels inferred. "closed form" (``Unlock``; on the open net ``Recursive``), "joint" (image, γ, β),
  "first round" (the lock's weights are the server's; image and key); "GS, " before it: as GS.
  "by_starts": as if only the first k starts had been made. "evaluations_worth": time over that of
  one gradient evaluation. "coefficient_error": ‖(γ, β) found − true‖ / ‖true‖.
* "more": {"setting", "attack"}: all blocks locked, batches, a trained net, eval mode, color
  photographs (one net, settings["photographs"] images); "known": γ and β are. Searches are granted
  labels, the closed form nothing; "closed form, granted" is its control, which has γ and β. A
  trained net has "accuracy", and with a lock "live", how many of its channels have γ ≠ 0 at each
  client. Trainings of Eq. 30's lock differ with the order of sums (threads, processor), so all
  rows of the closed form are of one of them, and what is stored of searches is of another.
* "floor": a black image (its "fit" is the best constant gray), and the truth ("pictures").

A cell has, by image, "psnr" and "ssim", with mean, std and interval, "success" (of "images", PSNR
of at least settings["success"] dB) and its interval; "fit", the same after the best brightness and
contrast (``metrics.affine_fit``, to be read beside the floor's); means of "mse", "lpips_a",
"lpips_v", and of the paper's units "fedkl_mse", "fedkl_psnr"; "evaluations" a start, "starts",
"seconds" of process time; "cost", the attacker's own; "pictures" of the first four images.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from ... import metrics
from ...attacks import GGL, GRNN, GS, IDLG, LockMatching, Recursive, Unlock
from ...metrics.judge import scores
from ...pictures import packed
from ...runtime import PrivflError
from ...wire import Facts
from ..base import Study
from ..clock import evaluation
from .targets import Target, opened, target, trained

NETS = ("open", "batch norm", "lock")
KNOWS = {  # of the lock -> what LockMatching does about it
    "wrong key": "wrong",
    "nothing": "joint",
    "lock": "key",
    "lock's gradient": "known",
    "key and lock": "known",
}
VARIANTS: dict[str, dict[str, Any]] = {  # name -> options of FedKL
    "Eq. 30": {},
    "ReLU": {"activation": "relu"},
    "U(±0.5)": {"init": 0.5},
    "own lock": {"fresh": True},
}
MORE: dict[
    str, tuple[dict[str, Any], tuple[str, ...]]
] = {  # setting -> how uploads are made, attacks
    "eval": ({"mode": "eval"}, ("closed form", "known", "joint", "GS, joint")),
    "trained": ({"trained": True}, ("closed form", "known", "joint")),
    "trained, eval": ({"trained": True, "mode": "eval"}, ("closed form", "known")),
    "trained, batch norm": ({"trained": True, "net": "batch norm"}, ("closed form",)),
    "trained, open": ({"trained": True, "net": "open"}, ("closed form",)),
    "trained, 64 bits": ({"trained": True, "double": True}, ("closed form",)),
    "trained, eval, 64 bits": (
        {"trained": True, "mode": "eval", "double": True},
        ("closed form",),
    ),
    "batch 4": ({"each": 4}, ("known", "joint", "first round")),
    "batch 4, open": ({"each": 4, "net": "open"}, ("DLG",)),
    "batch 4, batch norm": ({"each": 4, "net": "batch norm"}, ("DLG",)),
    "batch 2": ({"each": 2}, ("known", "joint")),
    "batch 2, open": ({"each": 2, "net": "open"}, ("DLG",)),
    "batch 2, batch norm": ({"each": 2, "net": "batch norm"}, ("DLG",)),
    "all blocks": ({"blocks": "all"}, ("closed form", "known", "joint")),
    "all blocks, eval": ({"blocks": "all", "mode": "eval"}, ("closed form", "known")),
    "trained, ReLU": ({"trained": True, "activation": "relu"}, ("closed form",)),
    "trained, eval, own statistics": (
        {"trained": True, "mode": "eval", "share_statistics": False},
        ("closed form",),
    ),
    "untrained": ({}, ()),
    "trained, ReLU, 64 bits": ({"trained": True, "activation": "relu", "double": True}, ()),
    "photographs": ({"data": "photos"}, ()),
}
CONTROLS = (  # setting, attack: cells after all others, so that these keep their places
    *((s, "closed form, granted") for s in ("untrained", "trained", "trained, eval")),
    *((s, "closed form, granted") for s in ("trained, 64 bits", "trained, ReLU")),
    ("trained, ReLU, 64 bits", "closed form"),
    ("photographs", "closed form"),
)
SECRET = {"joint": "joint", "known": "known", "first round": "key"}
AS_GS: dict[str, Any] = {"distance": "cosine", "optimizer": "adam", "tv": GS.tv, "box": True}


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "dataset": "mnist",
        "model": "lenet (sigmoid)",
        "images": 16 if large else 8,  # a net
        "nets": [0, 1, 2],  # seeds: of the net, its images, keys and locks
        "steps": 3000 if large else 700,
        "gs": 4000 if large else 700,
        "informed": 3000 if large else 500,  # steps of all searches outside the table
        "starts": 16 if large else 3,
        "more_starts": 8 if large else 2,
        "grnn": {"images": 16 if large else 4, "steps": 20000 if large else 400, "rate": 1e-3},
        "ggl": {"steps": 500 if large else 150, "restarts": 4 if large else 2},
        "rounds": 30 if large else 8,  # of the trained net
        "trained_searches": 8 if large else 3,  # times 3 images
        "all_blocks": {  # images for the closed form
            "train": 8 if large else 2,
            "eval": 8 if large else 4,
        },
        "photographs": 16 if large else 4,
        "success": 20.0,  # dB
        "seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    table = [
        {"part": "table", "net": net, "attack": attack, "knows": "all"}
        for net in NETS[:2]
        for attack in ("DLG", "GS", "GRNN", "GGL")
    ]
    known = {"DLG": tuple(KNOWS), "GS": ("wrong key", "nothing", "lock", "key and lock")}
    table += [
        {"part": "table", "net": "lock", "attack": attack, "knows": knows}
        for attack in ("DLG", "GS", "GRNN", "GGL")
        for knows in known.get(attack, ("wrong key", "key and lock"))
    ]
    informed = [("closed form", v) for v in (*VARIANTS, *NETS[:2])]
    informed += [("GS, joint", "Eq. 30"), ("joint", "Eq. 30")]
    informed += [("first round", "Eq. 30"), ("GS, joint", "ReLU")]
    more = [(setting, attack) for setting, (_, attacks) in MORE.items() for attack in attacks]
    more.sort(key=lambda pair: pair[1] != "closed form")
    return [
        {"part": "floor"},
        *({"part": "informed", "attack": a, "variant": v} for a, v in informed[:3]),
        *table,
        *({"part": "informed", "attack": a, "variant": v} for a, v in informed[3:]),
        *({"part": "more", "setting": s, "attack": a} for s, a in (*more, *CONTROLS)),
    ]


def _compute(settings: dict, cell: dict) -> dict:
    began = time.process_time()
    parts = {"table": _table, "informed": _informed, "more": _more, "floor": _floor}
    out = parts[cell["part"]](settings, cell)
    return out | {"seconds": round(time.process_time() - began, 1)}


# Scores


def score(settings: dict, found: Tensor, x: Tensor) -> dict:
    """What each cell has of images; see above."""
    fitted, seen = metrics.affine_fit(found, x), metrics.as_image(found)
    out = scores(found, x, settings["success"]) | {"fit": scores(fitted, x, settings["success"])}
    units = {"mse": metrics.mse, "fedkl_mse": metrics.fedkl_mse, "fedkl_psnr": metrics.fedkl_psnr}
    out |= {n: float(f"{f(seen, x).mean():.4g}") for n, f in units.items()}
    for name, net in (("lpips_a", "alex"), ("lpips_v", "vgg")):
        try:
            out[name] = round(metrics.lpips(seen, x, net).mean().item(), 4)
        except PrivflError:  # its weights are not at hand
            out[name] = None
    return out | {"pictures": packed(found)}


def searched(settings: dict, targets: list[Target], make: Callable, starts: int = 1) -> dict:
    """Search all targets ``starts`` times; of an upload's starts, that of least cost counts."""
    x, y = (torch.cat([getattr(t, part) for t in targets]) for part in ("x", "y"))
    each, ends, batch = [], [], targets[0].upload.batch
    for s in range(starts):
        found = [make().run(t.upload, seed=settings["seed"] + s) for t in targets]
        each.append(torch.cat([f.images for f in found]))
        ends.append(torch.cat([f.cost for f in found]).repeat_interleave(batch))
    tries, costs = torch.stack(each), torch.stack(ends).nan_to_num(torch.inf)

    def after(k: int) -> Tensor:
        return tries[costs[:k].argmin(0), torch.arange(len(x), device=costs.device)]

    out = score(settings, after(starts), x) | {
        "labels_right": int((torch.cat([f.labels for f in found]).cpu() == y).sum()),
        "evaluations": max(f.evaluations for f in found),
        "starts": starts,
        "cost": [float(f"{c:.2g}") for c in costs.min(0).values.tolist()],
    }
    if starts > 1:
        out["by_starts"] = {str(k): _brief(settings, after(k), x) for k in range(1, starts + 1)}
    return out


def _brief(settings: dict, found: Tensor, x: Tensor) -> dict:
    names = ("psnr_mean", "success", "success_interval")
    raw = scores(found, x, settings["success"])
    fit = scores(metrics.affine_fit(found, x), x, settings["success"])
    return {n: raw[n] for n in names} | {"fit": {n: fit[n] for n in names}}


def _floor(settings: dict, cell: dict) -> dict:
    x = torch.cat([target(settings, seed).x for seed in settings["nets"]])
    return score(settings, torch.zeros_like(x), x) | {"pictures": packed(x)}


# The paper's attackers


def _table(settings: dict, cell: dict) -> dict:
    net, attack, knows = cell["net"], cell["attack"], cell["knows"]
    options: dict[str, Any] = {}
    if knows == "lock's gradient":
        options = {"share_lock": True, "knows": ("labels",)}
    aim = target(settings, settings["seed"], net, **options)
    if attack in ("DLG", "GS"):
        steps = settings["steps" if attack == "DLG" else "gs"]
        make: Callable = partial(IDLG if attack == "DLG" else GS, steps=steps, show=False)
        if net == "lock":
            how: dict[str, Any] = {"secret": KNOWS[knows], **(AS_GS if attack == "GS" else {})}
            make = partial(LockMatching, steps=steps, show=False, **how)
        return searched(settings, [aim], make)
    how = dict(settings[attack.lower()])
    aim = aim.first(how.pop("images", len(aim.x)))
    make = partial(GRNN if attack == "GRNN" else GGL, **how, show=False)
    if net != "lock":
        return searched(settings, [aim], make)
    each = [Target(aim.upload[k], aim.x[k : k + 1], aim.y[k : k + 1]) for k in range(len(aim.x))]
    return searched(settings, [t._replace(upload=opened(t.upload, knows)) for t in each], make)


# Attackers who know of the lock


def _informed(settings: dict, cell: dict) -> dict:
    attack, variant = cell["attack"], cell["variant"]
    net = variant if variant in NETS else "lock"
    first = attack.endswith("first round")
    knows = ("coefficients",) if attack == "closed form" else ("lock",) if first else ()
    options: dict[str, Any] = VARIANTS.get(variant, {}) | {"knows": knows}
    targets = [target(settings, seed, net, **options) for seed in settings["nets"]]
    if attack == "closed form":
        return solved(settings, targets, Recursive() if net == "open" else Unlock())
    starts = settings["more_starts" if first else "starts"]
    return searched(settings, targets, _matching(settings, attack), starts)


def _matching(settings: dict, attack: str) -> Callable:
    gs, secret = attack.startswith("GS, "), SECRET[attack.removeprefix("GS, ")]
    how: dict[str, Any] = AS_GS if gs else {}
    return partial(LockMatching, steps=settings["informed"], secret=secret, show=False, **how)


def solved(
    settings: dict, targets: list[Target], attack: Unlock | Recursive, granted: bool = False
) -> dict:
    """Score of a closed form; γ and β are there to be compared, unless they are granted to it."""
    images, costs, off, right, seconds = [], [], [], 0, 0.0
    for upload, _, y in targets:
        began = time.process_time()
        found = attack.run(upload if granted else replace(upload, knows=Facts()))
        seconds += time.process_time() - began
        images.append(found.images)
        costs += found.cost.tolist()
        right += int((found.labels.flatten().cpu() == y).sum())
        true = upload.knows.coefficients
        told = found.details.get("coefficients")
        if true is not None and told is not None and true.shape == told.shape:  # one lock
            true = true.double()
            off += ((told - true).norm(dim=1) / true.norm(dim=1)).tolist()
    x = torch.cat([t.x for t in targets])
    out = score(settings, torch.cat(images), x) | {
        "labels_right": right,
        "evaluations": 0,
        "evaluations_worth": round(seconds / len(x) / unit(settings["images"]), 1),
        "starts": 1,
        "cost": [float(f"{c:.2g}") for c in costs],
    }
    return out | ({"coefficient_error": [float(f"{e:.2g}") for e in off]} if off else {})


def live(aim: Target) -> list[int]:
    """Channels of the first convolution with γ ≠ 0, by upload: those of the others are zero."""
    return aim.upload.tensors["features.0.weight"].flatten(2).any(2).sum(1).tolist()


@lru_cache
def unit(images: int) -> float:
    """Process time of one evaluation of the gradient mismatch and its gradient, for one image."""
    upload = target({"images": images}, 0, knows=("labels",)).upload
    return evaluation(LockMatching(), upload) / images


# All blocks, batches, a trained net, eval mode


def _more(settings: dict, cell: dict) -> dict:
    setting, attack = cell["setting"], cell["attack"]
    how: dict[str, Any] = dict(MORE[setting][0])
    extra: dict[str, Any] = {}
    closed = attack.startswith("closed form")
    how["knows"] = ("coefficients",) if closed else ("labels", "key", "lock")
    if how.pop("trained", False):
        targets, extra["accuracy"] = trained(settings, **how)
        extra |= {"live": live(targets[0])} if how.get("net", "lock") == "lock" else {}
        targets = targets if closed else targets[: settings["trained_searches"]]
    elif closed and not how.keys() & {"blocks", "data"}:
        targets = [target(settings, seed, **how) for seed in settings["nets"]]
    else:
        targets = [target(settings, settings["seed"], **how)]
    if closed:
        if "blocks" in how:
            targets = [targets[0].first(settings["all_blocks"][how.get("mode", "train")])]
        if "data" in how:
            targets = [targets[0].first(settings["photographs"])]
        granted = attack.endswith("granted")
        solver = Recursive() if how.get("net") == "open" else Unlock(granted=granted)
        return solved(settings, targets, solver, granted) | extra
    if attack == "DLG":
        make: Callable = partial(IDLG, steps=settings["informed"], show=False)
    else:
        make = _matching(settings, attack)
    starts = 1 if attack in ("DLG", "known", "GS, known") else settings["more_starts"]
    return searched(settings, targets, make, starts) | extra


STUDY = Study(
    name="fedkl/attack",
    about="FedKL on digits: the paper's attackers, and attackers who know of the lock",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
