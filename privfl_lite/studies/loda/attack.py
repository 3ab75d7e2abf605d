"""LODA, attack side: Tables 1–6 and Fig. 2 of the paper, and attackers whom it does not try.

Private images are CIFAR-10 test images; the extractor, the starts, the attackers' settings and the
decoder's pairs come from public ones (training images from 25,000 on). c is in the paper's units,
``UNIT`` times which is the stored network's. Encodings are 8-bit images, as the released code
trains on. In ``cpu`` the extractor is 16 wide instead of 64 and GS attacks an untrained LeNet for
some hundred steps; LODA₃ is tried on the same images, since SVHN is in no registry.

Scores are against the private image: PSNR (dB), SSIM, and LPIPS-VGG as LODA's code computes it.
Blind guesses ("blind") are the zero of these scales: gray alone has over 12 dB. Settings of an
attack are chosen by the mean LPIPS on public images ("choice"), because PSNR prefers gray to all.

Parts: "encoding", x′ itself and its negative, how near its features are, what is left of Eq. 5;
"inversion" of g(x′), from 1, 2 and 4 encodings of an image; "adaptive", Eq. 6 as released and
tuned; "stationarity", inversion that uses Eq. 5 within the box; "decoder"; "identify", which of
many candidates was encoded; "gradient", GS on one gradient of an image; "panel", two images for
every c, layers and steps; "time".
Mixup and InstaHide by the paper's protocol are the cells "loda" of the study "hiding".
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from ... import metrics
from ...attacks.adaptive.loda_inversion import adaptive, invert, stationarity, violation
from ...data import load
from ...defenses.loda import AT_ONCE, UNIT, WEIGHT, obscure
from ...models.extractor import PUBLIC_FROM, squared_distance
from ..base import Study
from .attackers import by_decoder, by_equation_6, by_inversion, by_stationarity
from .encodings import (
    MAIN,
    encoded,
    extractor,
    means,
    private,
    private_images,
    public_sample,
    scores,
    side_by_side,
    strip,
)
from .gradient import UNDEFENDED, gradient, match

PANEL = (1, 7)  # an automobile and a horse, to look at as c, layers and steps change


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    digits = "svhn" if large else "cifar10"
    return {
        "profile": profile,
        "dataset": "cifar10",
        "data": {"loda3": digits, "loda3-code": digits},  # all others: CIFAR-10
        "images": 64 if large else 32,
        "public": 64 if large else 8,  # to choose an attack's settings by
        "candidates": 1000,
        "unit": UNIT[profile],
        "steps": 500,  # of Algorithm 1
        "start": "cifar100" if large else "cifar10",  # public images
        "c": {
            "loda1": [3, 10, 20, 30, 40, 50],
            "loda2": [10, 20, 30, 40, 50] if large else [10, 50],
        },
        "encodings": [1, 2, 4],
        "tv": [0.3, 1.0, 3.0, 10.0],
        "invert_steps": 1000 if large else 250,
        "kkt_weights": [0.1, 1.0],
        "adaptive": {
            "rate": [1e-2, 1e-3, 1e-4, 1e-5],
            "c": [0, 1, 5, 20],
            "steps": [50, 100, 400],
        },
        "decoder": {  # layers: (pairs, steps)
            "loda1": [[20_000, 20_000]] if large else [[256, 300], [1024, 1200]],
            "loda2": [[20_000, 20_000]] if large else [[256, 300]],
            "loda3": [[20_000, 20_000]] if large else [[256, 300]],
        },
        "gs": {"steps": 5000 if large else 500, "tv": 1e-4, "tv_pruned": 1e-3},
        "panel": {"c": [5, 10, 20, 50], "steps": [50, 500], "tv": 3.0, "rate": 1e-5},
        "attacked": "resnet18 (ReLU), untrained" if large else "lenet (sigmoid), untrained",
        "seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    def encodings(layers: str, values: list[float]) -> list[dict]:
        return [{"part": "encoding", "layers": layers, "c": c} for c in values]

    cells = [{"part": "blind"}]
    cells += [c for layers in MAIN for c in encodings(layers, [WEIGHT[layers]])]
    cells += [{"part": p, "layers": "loda1"} for p in ("inversion", "adaptive", "identify")]
    cells += [{"part": "gradient", "defense": d} for d in (*UNDEFENDED, *MAIN)]
    cells += [{"part": "stationarity", "layers": "loda1"}]
    cells += [{"part": p, "layers": "loda2"} for p in ("inversion", "adaptive", "identify")]
    cells += [{"part": "time"}]
    for layers, values in settings["c"].items():
        cells += encodings(layers, [c for c in values if c != WEIGHT[layers]])
    for layers in ("loda2-code", "loda3", "loda3-code"):
        cells += encodings(layers, [WEIGHT[layers]])
    cells += [{"part": "inversion", "layers": "loda3"}]
    for layers, sizes in settings["decoder"].items():
        cells += [{"part": "decoder", "layers": layers, "pairs": n, "steps": t} for n, t in sizes]
    points = [
        (layers, c, t)
        for layers in MAIN
        for c in settings["panel"]["c"]
        for t in settings["panel"]["steps"]
    ]
    cells += [{"part": "identify", "layers": "loda3"}]
    cells += [{"part": "panel", "layers": l, "c": c, "steps": t} for l, c, t in points]
    return [
        *cells,
        {"part": "gradient", "defense": "loda3"},
        {"part": "adaptive", "layers": "loda3"},
    ]


# What x′ is, and whose


def _blind(settings: dict, cell: dict) -> dict:
    x, _ = private_images(settings)
    pool = load("cifar10").x_train[PUBLIC_FROM:].to(x)
    found = {
        "gray": torch.full_like(x, 0.5),
        "mean image": pool.mean(0).expand_as(x),
        "another image": public_sample(settings, len(x)),
    }
    return {"found": {n: scores(f, x) for n, f in found.items()}, "picture": strip(settings, x)}


def _encoding(settings: dict, cell: dict) -> dict:
    """ "features": ‖g(x′) − g(x)‖² relative to that of another image; "eq5" and "kkt": the norms of
    Eq. 5's left side and of its violation within the box, relative to c‖x′ − x‖."""
    layers, c = cell["layers"], cell["c"]
    x, _ = private_images(settings, layers)
    e, g = encoded(settings, x, layers, c), extractor(settings, layers)
    other = public_sample(settings, len(x))
    with torch.no_grad():
        here = g(x)
        ratio = squared_distance(g(e), here) / squared_distance(g(other), here)
        residual = stationarity(g, e, c * settings["unit"])(x)
    unit = c * settings["unit"] * (e - x).flatten(1).norm(dim=1)
    left = {"eq5": residual, "kkt": violation(residual, e)}
    out: dict[str, Any] = {"found": {"x′": scores(e, x), "negative": scores(1 - e, x)}}
    out["features"] = round(ratio.median().item(), 4)
    out |= {n: round((r.flatten(1).norm(dim=1) / unit).median().item(), 3) for n, r in left.items()}
    out["on_the_box"] = round(((e <= 0) | (e >= 1)).double().mean().item(), 3)
    if layers in MAIN and c == WEIGHT[layers]:
        out["picture"] = strip(settings, e)
    return out


def _identify(settings: dict, cell: dict) -> dict:
    """Which of many candidates, the private one among them, was encoded: nearest by features or
    by pixels, or farthest by pixels. "first": hits at rank 1; "rank": the median."""
    layers, n = cell["layers"], settings["candidates"]
    g, (x, e) = extractor(settings, layers), private(settings, layers)
    data = load(settings["data"].get(layers, "cifar10"))
    pool = data.sample(n, settings["seed"], "test")[0].to(e)  # begins with the private images
    with torch.no_grad():
        here = [t.flatten(1) for t in g(e)]
        features = []
        for some in pool.split(AT_ONCE):
            far = [torch.cdist(a, b.flatten(1)) for a, b in zip(here, g(some), strict=True)]
            features.append(torch.stack(far).square().sum(0))
        pixels = torch.cdist(e.flatten(1), pool.flatten(1))
    by = {"features": torch.cat(features, 1), "nearest pixels": pixels, "farthest pixels": -pixels}
    out = {}
    for name, d in by.items():
        rank = 1 + (d < d.diagonal()[:, None]).sum(1)
        hits = int((rank == 1).sum())
        out[name] = {
            "first": hits,
            "interval": [round(v, 4) for v in metrics.wilson(hits, len(x))],
            "rank": rank.median().item(),
        }
    return {"images": len(x), "of": n, "by": out}


# To look at, and time


def _panel(settings: dict, cell: dict) -> dict:
    """Two images, obscured and attacked with the settings that were chosen for LODA₁."""
    s, (x, y) = settings["panel"], private_images(settings)
    rows = [y.tolist().index(label) for label in PANEL]
    x, y, g = x[rows], y[rows], extractor(settings, cell["layers"])
    e = encoded(settings | {"steps": cell["steps"]}, x, cell["layers"], cell["c"])
    found = {
        "x′": e,
        "GS": match(settings, e, y),
        "adaptive": adaptive(g, e, 0.0, max(settings["adaptive"]["steps"]), s["rate"]),
        "inversion": invert(g, e, s["tv"], steps=settings["invert_steps"], show=False),
    }
    return {
        "scores": {n: means(scores(f, x)) for n, f in found.items()},
        "picture": {n: side_by_side(f) for n, f in found.items()},
    }


def _time(settings: dict, cell: dict) -> dict:
    """Processor time to obscure 100 images one by one over that of many at once, three times.

    With 10 steps instead of 500: all steps cost the same.
    """
    x, start = public_sample(settings, 200).split(100)
    out: dict[str, Any] = {"images": 100, "steps": 10, "at_once": AT_ONCE}
    for layers in MAIN:
        g, ratios = extractor(settings, layers), []
        for again in range(4):
            seconds = []
            for size in (1, AT_ONCE):
                began = time.process_time()
                for a, b in zip(x.split(size), start.split(size), strict=True):
                    obscure(g, a, b, WEIGHT[layers] * settings["unit"], 10, show=False)
                seconds.append(time.process_time() - began)
            ratios += [seconds[0] / seconds[1]] if again else []  # the first is slower
        ratios = [round(r, 3) for r in ratios]
        out[layers] = {"ratio": statistics.median(ratios), "range": [min(ratios), max(ratios)]}
    return out


PARTS = {
    "blind": _blind,
    "encoding": _encoding,
    "inversion": by_inversion,
    "adaptive": by_equation_6,
    "stationarity": by_stationarity,
    "decoder": by_decoder,
    "identify": _identify,
    "gradient": gradient,
    "panel": _panel,
    "time": _time,
}

STUDY = Study(
    name="loda/attack",
    about="LODA under the paper's attacks and under stronger ones (Tables 1-6, Fig. 2)",
    settings=_settings,
    cells=_cells,
    compute=lambda settings, cell: PARTS[cell["part"]](settings, cell),
)
