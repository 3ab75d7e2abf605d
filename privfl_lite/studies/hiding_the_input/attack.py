"""Mixup, InstaHide and ATS: what decoders make of encodings, what ATS changes, what they cost.

"digits": decoders by k and by encodings an image, the mixing matrix granted, encodings exact.
"loda": ten color images and fifty rounds as in LODA's Tables 1 and 2; the errors of the gradient
attack are imitated by Gaussian noise on the encodings. "ats": gradient matching and the recursion,
scored against the transformed and the private image. "accuracy": FedAvg with every client defended.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ... import attacks, metrics, models
from ...client import share
from ...data import load
from ...defenses import build
from ...defenses.mixing import flip, mix
from ...federated import FedAvg
from ...metrics.judge import rounded
from ...runtime import generator
from ...wire import Plan
from ..base import Study
from ..measuring_leakage.lpips import lpips_normalized

POLICIES = {"none": "none", "ATS 3-1-7+43-18-18": "ats", "ATS 1-18-13": "ats:policy=1-18-13"}
ACCURACY = {
    **POLICIES,
    "Mixup 4": "mixup:k=4",
    "Mixup 6": "mixup:k=6",
    "InstaHide 4, c = 0.5": "instahide:k=4,crypto=False",
    "InstaHide 4, c = 0.13": "instahide:k=4,crypto=False,center=0.13",
}


def encode(x: Tensor, y: Tensor, rounds: int, k: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Fresh blends in each of several rounds: images (E, …), soft labels and M (E, n)."""
    rng = generator(seed)
    mixed = [mix(x, y, rng, k) for _ in range(rounds)]
    images, labels, matrix = (torch.cat(part) for part in zip(*mixed, strict=True))
    return images, labels, matrix


def decoders(e: Tensor, m: Tensor, restarts: int, adam: bool = True) -> dict[str, Tensor]:
    """What three decoders make of InstaHide's encodings e = ±(M x − ½) + ½, in [0, 1]."""
    e, found = 2 * e - 1, {}
    if adam:
        found["Adam"] = attacks.instahide_decode(e, m, show=False)
        found["Adam, aligned"] = attacks.align_signs(found["Adam"])
    search = attacks.sign_search(e, m, restarts=restarts, show=False)
    found["search, aligned"] = attacks.align_signs(search)
    return {name: ((x_hat + 1) / 2).clamp(0, 1) for name, x_hat in found.items()}


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "datasets": ["mnist", "cifar10"],
        "images": 10,
        "digits": {"size": 14, "k": [2, 4, 6], "rounds": [1, 2, 5], "restarts": 100},
        "loda": {
            "k": [4, 6],
            "rounds": 50,
            "noise": [0.0, 0.02, 0.05, 0.148],  # the last: PSNR 16.6 dB, LODA's "No Defense"
            "adam_noise": [0.0, 0.148],
            "restarts": 200 if large else 20,
        },
        "ats": {"steps": [0, 50, 500], "images": 64 if large else 8, "gs_steps": 300},
        "accuracy": {
            "model": "lenet5",
            "clients": 4,
            "per_client": 500,
            "rounds": 20 if large else 4,
            "epochs": 3,
            "eta": 0.02,
            "momentum": 0.9,
            "batch": 32,
        },
        "seeds": [0, 1, 2],
    }


def _cells(settings: dict) -> list[dict]:
    digits, loda = settings["digits"], settings["loda"]
    return [
        *(
            {"part": "digits", "k": k, "rounds": r, "seed": s}
            for k in digits["k"]
            for r in digits["rounds"]
            for s in settings["seeds"]
        ),
        *({"part": "loda", "k": k, "noise": z} for k in loda["k"] for z in loda["noise"]),
        *(
            {"part": "ats", "defense": d, "steps": s}
            for d in POLICIES
            for s in settings["ats"]["steps"]
        ),
        *({"part": "accuracy", "defense": d} for d in ACCURACY),
    ]


def _compute(settings: dict, cell: dict) -> dict:
    parts = {"digits": _digits, "loda": _loda, "ats": _ats, "accuracy": _accuracy}
    return parts[cell["part"]](settings, cell)


def _round(values: Tensor) -> list[float]:
    return rounded(values, 3)


def _psnr(x_hat: Tensor, x: Tensor) -> list[float]:
    return _round(metrics.psnr(x_hat.clamp(0, 1), x))


def _digits(settings: dict, cell: dict) -> dict:
    s, data = settings["digits"], load("mnist", size=settings["digits"]["size"])
    x, y = data.sample(settings["images"], seed=cell["seed"])
    blends, _, m = encode(x, y, cell["rounds"], cell["k"], cell["seed"])
    found = decoders(flip(blends, generator(cell["seed"], 9)), m, s["restarts"])
    found = {"regression on Mixup": attacks.mixup_regression(blends, m), **found}
    found |= {"black": torch.zeros_like(x), "mean image": data.x_train.mean(0).expand_as(x)}
    rank, condition = attacks.conditioning(m)
    psnr = {name: _psnr(x_hat, x) for name, x_hat in found.items()}
    return {"rank": rank, "condition": round(min(condition, 1e6), 2), "psnr": psnr}


def _loda(settings: dict, cell: dict) -> dict:
    """Of two global signs the better one is scored for InstaHide, as said in the chapter."""
    s, data = settings["loda"], load("cifar10")
    x, y = data.sample(settings["images"], seed=0, split="test")
    blends, _, m = encode(x, y, s["rounds"], cell["k"], 0)
    errors = cell["noise"] * torch.randn(blends.shape, generator=generator(0, 3))
    hidden = flip(blends, generator(0, 9)) + errors
    found = {"regression on Mixup": attacks.mixup_regression(blends + errors, m).clamp(0, 1)}
    signed = decoders(hidden, m, s["restarts"], adam=cell["noise"] in s["adam_noise"])
    for name, x_hat in signed.items():
        two = (x_hat, 1 - x_hat)
        found[name] = max(two, key=lambda images: metrics.psnr(images, x).mean().item())
    n = len(x)
    heaviest = x[m[:n].argmax(1)]  # LODA's reference where nothing is decoded
    pairs = {name: (x_hat, x) for name, x_hat in found.items()}
    pairs["blend"] = ((blends + errors)[:n].clamp(0, 1), heaviest)
    pairs["encoding"] = (hidden[:n].clamp(0, 1), heaviest)
    pairs["mean image"] = (data.x_train.mean(0).expand_as(x), x)
    return {
        "psnr": {name: _psnr(*pair) for name, pair in pairs.items()},
        "lpips": {name: _round(lpips_normalized(*pair, "vgg")) for name, pair in pairs.items()},
    }


def _ats(settings: dict, cell: dict) -> dict:
    s, data = settings["ats"], load("mnist")
    model, rng = models.build("lenet", data), generator(0, 1)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(cell["steps"]):
        rows = torch.randint(len(data.y_train), (32,), generator=rng)
        sgd.zero_grad()
        cross_entropy(model(data.x_train[rows]), data.y_train[rows]).backward()
        sgd.step()
    with torch.no_grad():
        right = (model(data.x_test).argmax(1) == data.y_test).float().mean().item()
    x, y = data.sample(s["images"], split="test", seed=0)
    defense = build(POLICIES[cell["defense"]])
    each = [defense.data(x[i : i + 1], y[i : i + 1], generator(0, i))[0] for i in range(len(x))]
    upload, seen = share(model, x, y, defense, knows=("labels",), each=1), torch.cat(each)
    out: dict[str, Any] = {"trained_to": round(right, 4)}
    for name, attack in (
        ("GS", attacks.GS(steps=s["gs_steps"], show=False)),
        ("recursion", attacks.Recursive()),
    ):
        found = attack.run(upload).images
        out[name] = {"transformed": _psnr(found, seen), "private": _psnr(found, x)}
    return out


def _accuracy(settings: dict, cell: dict) -> dict:
    s, data, reached = settings["accuracy"], load("mnist"), []
    plan = Plan(eta=s["eta"], momentum=s["momentum"], epochs=s["epochs"], batch_size=s["batch"])
    for seed in settings["seeds"]:
        run = FedAvg(
            models.build(s["model"], data, seed=seed),
            data.clients(s["clients"], per_client=s["per_client"], seed=seed),
            s["rounds"],
            plan,
            test=(data.x_test, data.y_test),
            defense=build(ACCURACY[cell["defense"]]),
            seed=seed,
            show=False,
        )
        reached.append(round(cast(float, list(run)[-1].accuracy), 4))
    return {"accuracy": reached}


STUDY = Study(
    name="hiding-the-input/attack",
    about="decoding Mixup and InstaHide, ATS early and late, and what the three cost in accuracy",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
