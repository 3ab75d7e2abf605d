"""ModelCloak, attack side of Table II: how often a first-round gradient is rebuilt from its noise.

The paper's protocol: one image a client, an untrained 4-convolution sigmoid LeNet, L-BFGS on the
squared distance, patterned start; success is an L2 distance of 1.4 or less. Labels and C are
granted, so each rate is an upper bound on the paper's attacker.

The paper's text and its numbers cannot be one experiment, so two readings are run. "text": the
gradient is clipped to C, and noise of standard deviation σC lies on every entry. "over N": no clip,
and the deviation is σC/1000, with N = 1000 the number of clients.

Parts: "raw" has no noise. "grid" is Table II, searched from a patterned start and also from the
private image itself: where even that search walks away, no start helps an attacker without a prior.
"clip only" is what is on the wire when the noise is added at the server. "equal" has the same noise
under different clips. "informed" has attackers who know the noise: a likelihood with a smoothness
prior, alone and on the mean of 16 rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from ... import metrics, models
from ...attacks import IDLG, Reconstruction
from ...attacks.solvers import note, solvers
from ...client import share
from ...data import load
from ...defenses import Defense, DPGaussian, ModelCloak
from ...wire import Noise, Upload
from ..base import Study

SIGMAS, CLIPS = [6, 5, 4, 3, 2, 1], [4, 3, 2, 1, 0.5]
CLIENTS = 1000
ROUNDS = 16  # that the patient attacker averages


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    steps = {"mnist": 600, "cifar10": 3000, "lfw" if large else "faces": 600}
    images = dict.fromkeys(steps, 24)
    return {
        "datasets": list(steps),
        "model": "lenet4 (sigmoid), untrained",
        "images": dict.fromkeys(images, 100) if large else images,
        "steps": dict.fromkeys(steps, 6000) if large else steps,
        "near_steps": 1000 if large else 150,  # from the private image
        "long": {"cifar10": 100 if large else 8},  # images of the long searches
        "long_settings": {"cifar10": [[1, 0.5], [1, 1], [1, 2], [1, 4], [2, 3], [3, 2]]},
        "text_settings": [[s, c] for s in SIGMAS[::5] for c in CLIPS],  # from a patterned start
        "all_long": large,
        "threshold": 1.4,
        "equal_noise": [0.0005, 0.002],
        "equal_clips": [64, 16, 8, 4, 2],
        "informed_noise": [0.005, 0.01, 0.02, 0.05, 0.1, 0.5],
        "tv": 3e3,  # of 3e3 and 1e4, on digits that are not attacked here
        "seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    cells = [{"part": "raw", "data": d} for d in settings["datasets"]]
    for d in settings["datasets"]:
        for reading in ("text", "over N"):
            for start in ("private image", "patterned"):
                cells += [
                    {"part": "grid", "data": d, "reading": reading, "start": start}
                    | {"sigma": s, "clip": c}
                    for s in SIGMAS
                    for c in CLIPS
                    if _searched(settings, d, reading, start, s, c)
                ]
    cells += [{"part": "clip only", "data": "mnist", "clip": c} for c in CLIPS]
    cells += [
        {"part": "equal", "data": "mnist", "noise": std, "clip": c}
        for std in settings["equal_noise"]
        for c in settings["equal_clips"]
    ]
    return cells + [
        {"part": "informed", "data": "mnist", "noise": std, "attack": attack}
        for std in settings["informed_noise"]
        for attack in ("plain", "prior", "prior, 16 rounds")
    ]


def _searched(
    settings: dict, data: str, reading: str, start: str, sigma: float, clip: float
) -> bool:
    """Whether a setting is attacked from this start; in the profile ``gpu`` all are.

    Where every gradient is clipped, uploads of one σ are multiples of each other, so two clips
    stand for five. Where the search from the private image fails, a few others do.
    """
    if settings["all_long"]:
        return True
    if start == "private image":
        return data == "mnist" or reading == "over N" or clip in (CLIPS[0], CLIPS[-1])
    chosen = settings["long_settings"].get(data)
    if reading == "text":
        return data == "mnist" and [sigma, clip] in settings["text_settings"]
    return not chosen or [sigma, clip] in chosen


def noise_of(reading: str, sigma: float, clip: float) -> Defense:
    """The defense that a reading of the paper means."""
    if reading == "text":
        return ModelCloak(clip, sigma)
    return DPGaussian(sigma * clip / CLIENTS)


def _compute(settings: dict, cell: dict) -> dict:
    part, data = cell["part"], cell["data"]
    if part == "raw":
        return _search(settings, data, Defense(), "patterned")
    if part == "grid":
        defense = noise_of(cell["reading"], cell["sigma"], cell["clip"])
        return _search(settings, data, defense, cell["start"])
    if part == "clip only":
        defense = ModelCloak(cell["clip"], 1.0, where="server", per="layer")
        return _search(settings, data, defense, "patterned")
    if part == "equal":
        defense = ModelCloak(cell["clip"], cell["noise"] / cell["clip"])
        return _search(settings, data, defense, "patterned")
    return _informed(settings, cell)


def victims(settings: dict, data: str, count: int, defense: Defense, seed: int = 0) -> tuple:
    """Uploads of single images that were held out, and the images and labels behind them."""
    source = load(data)
    model = models.build("lenet4", source, seed=settings["seed"])
    x, y = source.sample(count, split="test", seed=settings["seed"])
    knows = ("labels", *noise_facts(defense))
    return share(model, x, y, defense, knows=knows, each=1, seed=seed), x, y


def noise_facts(defense: Defense) -> tuple[str, ...]:
    """What a server that ordered this noise knows of it."""
    if isinstance(defense, ModelCloak):
        dynamic = (defense.mode, defense.keep) == ("dynamic", "scale")
        return ("clip",) if dynamic or defense.where == "server" else ("clip", "noise")
    return ("noise",) if isinstance(defense, DPGaussian) else ()


# settings of one noise level share their result ("over N"): scores, and the solvers that made them
_made: dict[str, tuple[dict, set[str]]] = {}


def _search(settings: dict, data: str, defense: Defense, start: str) -> dict:
    key = f"{data} {defense} {start}"
    if key not in _made:
        long = start == "patterned" and data in settings["long"]
        count = settings["long" if long else "images"][data]
        upload, x, _ = victims(settings, data, count, defense)
        near = start == "private image"
        attack = IDLG(
            steps=settings["near_steps"] if near else settings["steps"][data],
            start=x[:, None] if near else "patterned",
            show=False,
        )
        with solvers() as made_by:
            found = attack.run(upload, seed=settings["seed"])
        _made[key] = _scores(settings, found, x), made_by
    scores, made_by = _made[key]
    note(made_by)
    return dict(scores)


def averaged(settings: dict, data: str, std: float, rounds: int) -> tuple[Upload, Tensor]:
    """The mean of what each client sent in some rounds from the same weights, and its images."""
    sent = [
        victims(settings, data, settings["images"][data], DPGaussian(std), seed=r)
        for r in range(rounds)
    ]
    first, x = sent[0][0], sent[0][1]
    mean = {n: sum(u.tensors[n] for u, *_ in sent) / rounds for n in first.tensors}
    known = replace(first.knows, noise=Noise(std / rounds**0.5))
    return replace(first, tensors=mean, knows=known), x


def _informed(settings: dict, cell: dict) -> dict:
    rounds = ROUNDS if cell["attack"].endswith("rounds") else 1
    upload, x = averaged(settings, cell["data"], cell["noise"], rounds)
    known = {} if cell["attack"] == "plain" else {"distance": "likelihood", "tv": settings["tv"]}
    attack = IDLG(steps=settings["steps"][cell["data"]], start="patterned", show=False, **known)
    return _scores(settings, attack.run(upload, seed=settings["seed"]), x)


def _scores(settings: dict, found: Reconstruction, x: Tensor) -> dict:
    images = metrics.as_image(found.images)
    apart, psnr = metrics.l2(images, x), metrics.psnr(images, x)
    hits = int((apart <= settings["threshold"]).sum())
    return {
        "images": len(x),
        "success": round(hits / len(x), 4),
        "interval": _rounded(metrics.wilson(hits, len(x))),
        "l2": _rounded(apart.tolist()),
        "l2_mean": round(apart.mean().item(), 4),
        "l2_interval": _rounded(metrics.bootstrap_interval(apart)),
        "psnr_median": round(psnr.median().item(), 2),
        "evaluations": found.evaluations,
    }


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(v, 4) for v in values]


STUDY = Study(
    name="modelcloak-fixed/attack",
    about="attack side of ModelCloak's Table II, in two readings; attackers who know the noise",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
