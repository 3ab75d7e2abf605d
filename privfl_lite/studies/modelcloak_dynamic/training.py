"""ModelCloak with dynamic noise: Tables IV and V, Fig. 2, and how leakage goes on as nets train.

"training": the paper's choice for a data set, with fixed noise and with both dynamic kinds, over
several seeds. It keeps what Fig. 2 shows (the distance between raw and sent updates), the l2-max
sensitivity S of every round, and ε as the paper counts it: one release a round with multiplier σ,
or σC/S. "fade": how well single images are read from gradients as a net trains, with noise of a
fixed size and with noise that follows the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ... import attacks, metrics, models, privacy
from ...attacks.matching.search import Matching
from ...client import share
from ...data import load
from ...defenses import Context, DPGaussian, ModelCloak
from ...defenses.modelcloak import perturbation
from ...federated import FedAvg
from ...gradients import Tensors, clip, norm
from ...metrics.judge import rounded
from ...wire import Noise, Plan
from ..base import Study
from ..modelcloak_fixed.training import STUDY as TRAINING
from ..modelcloak_fixed.training import cloak, summary, train

CHOSEN = {"mnist-full": (5, 2), "cifar10": (3, 2), "faces": (2, 3), "lfw": (2, 3)}  # Table II
KINDS = {
    "fixed": {},
    "dynamic, same variance": {"mode": "dynamic", "keep": "variance"},
    "dynamic, same scale": {"mode": "dynamic", "keep": "scale"},
}


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    training = TRAINING.settings(profile)
    return training | {
        "chosen": {name: list(CHOSEN[name]) for name in training["datasets"]},
        "rate": 0.1,
        "delta_dp": 1e-5,
        "fade_model": "mlp (64 hidden units), trained on 1,000 digits",
        "fade_rounds": [0, 1, 2, 5, 10, 20, 40],
        "fade_images": 64 if large else 24,
        "fade_steps": 2000 if large else 300,
        "fade_sigma": 0.01,
        "tv": {"likelihood": 1000.0, "cosine": 0.02},
    }


def _cells(settings: dict) -> list[dict]:
    cells = [
        {"part": "training", "data": d, "kind": kind, "seed": s}
        for d in settings["datasets"]
        for kind in KINDS
        for s in settings["seeds"]
    ]
    return cells + [
        {"part": "fade", "round": r, "whose": whose}
        for r in settings["fade_rounds"]
        for whose in ("trained on", "held out")
    ]


@dataclass(frozen=True)
class Watched(ModelCloak):
    """ModelCloak, and in the run's memory what it did in each round: S, and raw against sent."""

    def update(self, delta: Tensors, ctx: Context) -> Tensors:
        _, left = clip(delta, self.clip, self.per)
        sent, seen = super().update(delta, ctx), ctx.memory.run.setdefault("seen", {})
        longest, apart = seen.get(ctx.round, (0.0, []))
        apart = [*apart, *perturbation(delta, sent).tolist()]
        seen[ctx.round] = max(longest, left.max().item()), apart
        return sent


def _compute(settings: dict, cell: dict) -> dict:
    return (_train if cell["part"] == "training" else _fade)(settings, cell)


def _train(settings: dict, cell: dict) -> dict:
    data, kind = cell["data"], KINDS[cell["kind"]]
    sigma, bound = settings["chosen"][data]
    watched = Watched(**vars(cloak(settings, data, "server", sigma, bound, **kind)))
    run = train(settings, data, watched, cell["seed"])
    longest, each = zip(*(run.memory.run["seen"][r.round] for r in run.history), strict=True)
    scales: list[float] | float = sigma
    if cell["kind"].endswith("variance"):
        scales = [sigma * bound / s for s in longest]
    rounds = len(run.history)
    eps = privacy.epsilon(scales, settings["rate"], rounds, settings["delta_dp"])
    apart = [sum(v) / len(v) for v in each]
    return summary(settings, data, run) | {
        "epsilon": round(eps, 4),
        "longest": [round(s, 4) for s in longest],
        "clipped": [round(v, 4) for v in apart],  # ‖raw − clipped‖: no noise lies on an upload here
    }


def _fade(settings: dict, cell: dict) -> dict:
    """Gradients of single digits at one round of training: their norms, and what is read."""
    digits = load("mnist")
    people = digits.clients(10, per_client=100, seed=0)
    net = models.build("mlp", digits, seed=0)
    if cell["round"]:
        run = FedAvg(net, people, cell["round"], Plan(eta=0.1, batch_size=10), seed=0, show=False)
        for _ in run:
            pass
        net = run.model
    count = settings["fade_images"]
    if cell["whose"] == "trained on":
        x, y = (torch.cat([p[i] for p in people])[:count] for i in (0, 1))
    else:
        x, y = digits.sample(count, split="test", seed=0)
    raw = share(net, x, y, each=1, knows=("labels",))
    norms = norm(raw.tensors)
    fixed = settings["fade_sigma"] * _first_norm(settings)
    out = {"norms": [round(v, 6) for v in norms.tolist()], "noise_fixed": round(fixed, 5)}
    out["no noise"] = _psnr(attacks.ClosedForm().run(raw).images, x)
    known = ("labels", "noise")
    sent = {"fixed noise": share(net, x, y, DPGaussian(fixed), each=1, knows=known)}
    cloaked = ModelCloak(1e9, settings["fade_sigma"], mode="dynamic", keep="scale")
    upload = share(net, x, y, cloaked, each=1, knows=known[:1])
    noise = Noise(settings["fade_sigma"] * norms.median().item())  # one for all
    sent["noise that follows"] = replace(upload, knows=replace(upload.knows, noise=noise))
    for name, upload in sent.items():
        for cost, tv in settings["tv"].items():
            attack = Matching(
                cost, "adam", tv=tv, box=True, steps=settings["fade_steps"], show=False
            )
            out[f"{name}, {cost}"] = _psnr(attack.run(upload).images, x)
    return out


def _first_norm(settings: dict) -> float:
    """Median norm of the gradients of held-out digits at the untrained net."""
    digits = load("mnist")
    x, y = digits.sample(settings["fade_images"], split="test", seed=0)
    net = models.build("mlp", digits, seed=0)
    return norm(share(net, x, y, each=1).tensors).median().item()


def _psnr(found: torch.Tensor, x: torch.Tensor) -> list[float]:
    return rounded(metrics.compare(found, x)["psnr"])


STUDY = Study(
    name="modelcloak-dynamic/training",
    about="ModelCloak's Tables IV and V and Fig. 2, and leakage as training goes on",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
