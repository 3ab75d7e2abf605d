"""Clipped and noisy gradients (chapter: what ε buys): what attacks rebuild.

One client, one digit, its gradient clipped to C with noise N(0, σ²C²) on it, sent in T rounds from
the same weights; the attacker averages the rounds, so their noise falls with √T. One cell is one
network, attack, σ, C and T. "cosine" knows the labels; "likelihood" also knows σ and C and has a
prior (total variation); "descent" is a likelihood without a prior, by L-BFGS, the strongest where
there is almost no noise.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ...attacks import GS
from ...attacks.matching.search import Matching
from ...client import share
from ...data import load
from ...defenses import DPSGD
from ...metrics import bootstrap_interval, compare
from ...models import Net, build
from ...pictures import pack
from ...privacy import analytic_gaussian_epsilon
from ...wire import Noise, Upload
from ..base import Study

KNOWN = ("labels", "noise", "clip")


def averaged(net: Net, x: Tensor, y: Tensor, sigma: float, clip: float, rounds: int) -> Upload:
    """The mean of what single-image clients send in ``rounds`` rounds from the same weights."""
    defense = DPSGD(clip, sigma)
    total: dict[str, Tensor] = {}
    for t in range(rounds):
        sent = share(net, x, y, defense, KNOWN, each=1, seed=t)
        total = {n: total[n] + v if t else v for n, v in sent.tensors.items()}
    known = replace(sent.knows, noise=Noise(sigma * clip / rounds**0.5))
    return Upload({n: v / rounds for n, v in total.items()}, "gradient", sent.model, 1, knows=known)


def _settings(profile: str) -> dict:
    small = profile == "cpu"
    return {
        "seed": 3,
        "images": 8 if small else 64,  # of MNIST, one an upload
        "pictures": 3,  # kept for the page
        "steps": 200 if small else 2000,
        "tv": {"cosine": 0.01, "likelihood": 1000.0},
        "delta_dp": 1e-5,
        "sigmas": {
            "mlp": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
            "lenet": [1e-5, 1e-4, 0.001, 0.003, 0.01, 0.03, 0.1],
        },
        "clips": [0.25, 1.0, 16.0],
        "rounds": [1, 8, 64],
    }


def _cells(settings: dict) -> list[dict]:
    def cell(net: str, attack: str, sigma: float, clip: float = 1.0, rounds: int = 1) -> dict:
        return {"net": net, "attack": attack, "sigma": sigma, "clip": clip, "rounds": rounds}

    mlp, lenet = (settings["sigmas"][n] for n in ("mlp", "lenet"))
    cells = [
        cell("mlp", "likelihood", s, c, t)
        for c in settings["clips"]
        for t in settings["rounds"]
        for s in mlp
    ]
    cells += [cell("mlp", "cosine", s) for s in mlp]
    return cells + [cell("lenet", a, s) for a in ("descent", "likelihood") for s in lenet]


def attack_of(settings: dict, name: str) -> Matching:
    """The attack by its name in a cell."""
    steps, tv = settings["steps"], settings["tv"]
    if name == "cosine":
        return GS(steps=steps, tv=tv["cosine"], show=False)
    if name == "descent":
        return Matching("likelihood", steps=steps, show=False)
    return Matching("likelihood", "adam", tv=tv["likelihood"], box=True, steps=steps, show=False)


def _compute(settings: dict, cell: dict) -> dict:
    digits = load("mnist")
    x, y = digits.sample(settings["images"], seed=settings["seed"])
    net = build(cell["net"], digits)
    upload = averaged(net, x, y, cell["sigma"], cell["clip"], cell["rounds"])
    found = attack_of(settings, cell["attack"]).run(upload)
    psnr = compare(found.images, x)["psnr"]
    low, high = bootstrap_interval(psnr)
    eps = analytic_gaussian_epsilon(cell["sigma"] / cell["rounds"] ** 0.5, settings["delta_dp"])
    kept = cell["net"] == "mlp"
    return {
        "source": digits.source,
        "psnr": [round(v, 2) for v in psnr.tolist()],
        "mean": round(psnr.mean().item(), 2),
        "interval": [round(low, 2), round(high, 2)],
        "epsilon": round(eps, 3),
        "pictures": [pack(image) for image in found.images[: settings["pictures"] * kept]],
    }


STUDY = Study(
    name="what-epsilon-buys/attack",
    about="What gradient matching rebuilds from clipped, noisy gradients, beside the exact ε",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
