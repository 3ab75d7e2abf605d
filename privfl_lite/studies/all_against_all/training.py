"""Accuracy cells: FedAvg with every client defended, and the ε and the bound of what was run."""

from __future__ import annotations

from dataclasses import asdict

from ... import models
from ...data import load
from ...defenses import Defense, Soteria
from ...federated import FedAvg
from ...privacy.bounds import success_bound
from ...privacy.mechanisms import Gaussian
from ...wire import Plan
from ..dcs2.training import ForClients, RoundSoteria
from .rows import ROWS, build


def run(settings: dict, name: str, seed: int) -> FedAvg:
    """One training of a network that learns, on digits, with this defense at every client."""
    how, data = settings["train"], load("mnist")
    made = build(settings, name, "mnist", how["eta"], seed, how["craft"])
    if isinstance(made, Soteria) and how["mask_images"]:  # as in dcs2/training: a mask a round
        rounds = RoundSoteria(made.rate, images=how["mask_images"])
        made = ForClients(rounds, tuple(range(how["clients"])))
    training = FedAvg(
        models.build("lenet", data, seed=seed, act="relu", init=0.1),
        data.clients(how["clients"], "iid", how["per_client"], seed=seed),
        how["rounds"],
        Plan(eta=how["eta"], batch_size=how["batch"], momentum=how["momentum"]),
        test=(data.x_test, data.y_test),
        schedule=lambda r: how["decay"] ** (r - 1),
        defense=made,
        seed=seed,
        show=False,
    )
    training.finish()
    return training


def train(settings: dict, cell: dict) -> dict:
    """Accuracy on held-out digits for each seed; ε from the run itself, or why there is none."""
    if "mnist" not in ROWS[cell["row"]].data:
        return {"refused": f"{cell['row']} does not take digits"}
    if cell["row"] in settings["train"]["skip"]:
        return {"refused": "crafting for every image of every step is too dear in this profile"}
    runs = [run(settings, cell["row"], seed) for seed in settings["seeds"]]
    last = [training.history[-1] for training in runs]
    return {
        "accuracy": [round(report.accuracy or 0.0, 4) for report in last],
        "rounds": [len(training.history) for training in runs],
        "epsilon": asdict(last[0].epsilon),
    }


def promise(settings: dict, cell: dict) -> dict:
    """Of one upload of one image: the most that any attacker can name among ``gallery``."""
    row, gallery = ROWS[cell["row"]], settings["gallery"]
    data = next(name for name in row.data)
    parts = _parts(build(settings, cell["row"], data, 1.0, 0, 1))
    sigma = multiplier(settings, parts, data)
    if isinstance(sigma, str):
        return {"bound": None, "reason": sigma}
    return {"bound": round(success_bound(1 / gallery, sigma), 6), "sigma": sigma}


def multiplier(settings: dict, parts: list[Defense], data: str) -> float | str:
    """σ/C of the last clipped Gaussian noise, if nothing behind it looks at the data; or why not.

    The law without the image is that of the noise alone, whatever came before the clip.
    """
    net = models.build("lenet", load(data), seed=0)
    shapes = {n: tuple(p.shape) for n, p in net.named_parameters()}
    for i, part in reversed(list(enumerate(parts))):
        made = part.mechanism(shapes)
        if isinstance(made, Gaussian) and made.place != "mean":
            return made.multiplier
        looks = [d for d in ("gradient", "update") if part.looks(d)]
        if looks:
            why = made if isinstance(made, str) and made else ""
            return why or f"{type(part).__name__} adds no clipped Gaussian noise"
        if isinstance(made, str) and made and i == 0:
            return made
    return "no clip and noise"


def _parts(defense: Defense) -> list[Defense]:
    return list(getattr(defense, "parts", (defense,)))
