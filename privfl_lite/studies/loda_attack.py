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

import torch
from torch import Tensor

from .. import metrics
from ..attacks.decoder import train_decoder
from ..attacks.obscured import adaptive, invert, stationarity, violation
from ..data import load
from ..defenses.loda import AT_ONCE, UNIT, WEIGHT, obscure
from ..extractor import PUBLIC_FROM, Extractor, load_extractor, squared_distance
from .base import Study
from .loda_encodings import (
    choose_by_lpips,
    encoded,
    means,
    private,
    private_images,
    public,
    public_sample,
    scores,
    side_by_side,
    strip,
)
from .loda_gradient import UNDEFENDED, gradient, match, matched

MAIN = ("loda1", "loda2")
PANEL = (1, 7)  # an automobile and a horse, to look at as c, layers and steps change


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    digits = "svhn" if large else "cifar10"
    return {
        "profile": profile,
        "source": load("cifar10").source,
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
        "attacked": "resnet18, untrained" if large else "lenet (sigmoid), untrained",
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


def _extractor(settings: dict, layers: str) -> Extractor:
    return load_extractor(layers, settings["profile"])


# Attacks on the encoding itself


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
    e, g = encoded(settings, x, layers, c), _extractor(settings, layers)
    other = public_sample(settings, len(x))
    with torch.no_grad():
        here = g(x)
        ratio = squared_distance(g(e), here) / squared_distance(g(other), here)
        residual = stationarity(g, e, c * settings["unit"])(x)
    unit = c * settings["unit"] * (e - x).flatten(1).norm(dim=1)
    left = {"eq5": residual, "kkt": violation(residual, e)}
    out = {"found": {"x′": scores(e, x), "negative": scores(1 - e, x)}}
    out["features"] = round(ratio.median().item(), 4)
    out |= {n: round((r.flatten(1).norm(dim=1) / unit).median().item(), 3) for n, r in left.items()}
    out["on_the_box"] = round(((e <= 0) | (e >= 1)).double().mean().item(), 3)
    if layers in MAIN and c == WEIGHT[layers]:
        out["picture"] = strip(settings, e)
    return out


def _inversion(settings: dict, cell: dict) -> dict:
    layers, steps = cell["layers"], settings["invert_steps"]
    g, (x, e) = _extractor(settings, layers), public(settings, layers, settings["public"])
    options = {str(tv): invert(g, e, tv, steps=steps, show=False) for tv in settings["tv"]}
    best, table = choose_by_lpips(x, options)
    x, _ = private_images(settings, layers)
    many = settings["encodings"] if layers == "loda1" else [1]
    seen = [private(settings, layers, seed)[1] for seed in range(max(many))]
    found = {str(n): invert(g, seen[:n], float(best), steps=steps, show=False) for n in many}
    out = {"choice": {"tv": float(best), "table": table}}
    if layers in MAIN:
        out["picture"] = strip(settings, found[str(max(many))])
        sent = matched(settings, layers)
        found["from a gradient"] = invert(g, sent, float(best), steps=steps, show=False)
    return out | {"found": {n: scores(f, x) for n, f in found.items()}}


def _adaptive(settings: dict, cell: dict) -> dict:
    """Rate, then c, then steps, one after the other; "released" is the committed choice."""
    layers, unit = cell["layers"], settings["unit"]
    g, (x, e) = _extractor(settings, layers), public(settings, layers, settings["public"])
    now, tables = {"rate": 1e-2, "c": 1, "steps": 100}, {}

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


def _stationarity(settings: dict, cell: dict) -> dict:
    layers, steps = cell["layers"], settings["invert_steps"]
    g, (x, e) = _extractor(settings, layers), public(settings, layers, settings["public"])
    c = WEIGHT[layers] * settings["unit"]

    def attack(e: Tensor, weight: float) -> Tensor:
        return invert(g, e, 3.0, c, weight, steps, show=False)

    options = {str(w): attack(e, w) for w in settings["kkt_weights"]}
    best, table = choose_by_lpips(x, options)
    x, e = private(settings, layers)
    return {
        "choice": {"weight": float(best), "tv": 3.0, "table": table},
        "found": {"tuned": scores(attack(e, float(best)), x)},
    }


def _decoder(settings: dict, cell: dict) -> dict:
    """Trained on public pairs of one encoding each; "4": the mean of what it makes of four.

    LODA₁'s is used on LODA₂'s encodings, too: what if the attacker does not know the layers?
    """
    layers, seed = cell["layers"], settings["seed"]
    g, pairs = _extractor(settings, layers), public(settings, layers, cell["pairs"])
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


def _identify(settings: dict, cell: dict) -> dict:
    """Which of many candidates, the private one among them, was encoded: nearest by features or
    by pixels, or farthest by pixels. "first": hits at rank 1; "rank": the median."""
    layers, n = cell["layers"], settings["candidates"]
    g, (x, e) = _extractor(settings, layers), private(settings, layers)
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
    x, y, g = x[rows], y[rows], _extractor(settings, cell["layers"])
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
    out = {"images": 100, "steps": 10, "at_once": AT_ONCE}
    for layers in MAIN:
        g, ratios = _extractor(settings, layers), []
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
    "inversion": _inversion,
    "adaptive": _adaptive,
    "stationarity": _stationarity,
    "decoder": _decoder,
    "identify": _identify,
    "gradient": gradient,
    "panel": _panel,
    "time": _time,
}

STUDY = Study(
    name="loda-attack",
    about="LODA under the paper's attacks and under stronger ones (Tables 1-6, Fig. 2)",
    settings=_settings,
    cells=_cells,
    compute=lambda settings, cell: PARTS[cell["part"]](settings, cell),
)
