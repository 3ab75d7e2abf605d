"""PRECODE against ten attackers, on other networks, and in training (chapter: changing the model).

One held-out digit an upload, labels granted (the sign of the head's bias gradient tells them).
``draw="weak"`` is the package's layer, std = softplus(s − 5); ``"strong"`` has 5 added to the first
biases of s, so that it starts with std = softplus(s), as a public implementation has it.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ... import metrics, models
from ...attacks import GS, IDLG
from ...attacks.adaptive.precode import ATTACKS, attack
from ...client import share
from ...data import load
from ...defenses import PRECODE
from ...defenses.base import Defense
from ...federated import FedAvg
from ...gradients import gradient_function, stateless, weights
from ...metrics.judge import rounded
from ...pictures import pack
from ...runtime import seeded
from ...wire import Plan
from ..base import Study

ELSEWHERE: dict[str, tuple[str, str, dict[str, Any]]] = {  # name -> data, network, options
    "LeNet, sigmoid": ("mnist", "lenet", {}),
    "LeNet, ReLU": ("mnist", "lenet", {"act": "relu", "init": 0.1}),
    "LeNet-5, max pooling": ("mnist", "lenet5", {}),
    "ResNet-20, batch norm": ("mnist", "resnet20", {}),
    "LeNet, ReLU, CIFAR-10": ("cifar10", "lenet", {"act": "relu", "init": 0.1}),
}


@dataclass(frozen=True)
class Draw(PRECODE):
    """PRECODE whose standard deviation starts at softplus(s + shift − 5)."""

    shift: float = 0.0

    def model(self, model: models.Net) -> models.Net:
        model = super().model(model)
        with torch.no_grad():
            model.features[-1].encode.bias[self.size :] += self.shift
        return model


def randomness(
    net: models.Net, x: Tensor, y: Tensor, defense: Defense | None, draws: int = 20
) -> dict[str, float]:
    """Noise to signal of each tensor of the gradient: root of the total variance over draws,
    divided by the length of the mean; the median over images. ``None``: net draws by itself."""
    used = stateless(net if defense is None else defense.model(copy.deepcopy(net)), "eval")
    f, theta, sent = gradient_function(used), weights(used), []
    for j in range(draws):
        with seeded(j):
            sent.append(f(theta, x[:, None], y[:, None]))
    out = {}
    for n in sent[0]:
        t = torch.stack([g[n].flatten(1) for g in sent])  # (draws, images, numbers)
        noise, signal = t.var(0).sum(1).sqrt(), t.mean(0).norm(dim=1)
        out[n] = (noise / signal).median().item()
    return out


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "datasets": ["mnist", "cifar10"],
        "split": "test",
        "images": 32 if large else 6,
        "sizes": [16, 256],
        "shifts": {"weak": 0.0, "strong": 5.0},
        "beta": 1e-3,
        "evaluations": 2000 if large else 300,
        "pictures": 3,
        "clients": 10,
        "per_client": 100,
        "rounds": 100 if large else 30,
        "eta": 0.1,
        "seeds": [0, 1, 2],
    }


def _cells(settings: dict) -> list[dict]:
    cells = [{"part": "attack", "draw": "none", "size": 0, "attack": a} for a in ("GS", "L-BFGS")]
    cells += [
        {"part": "attack", "draw": d, "size": k, "attack": a}
        for k in settings["sizes"]
        for d in settings["shifts"]
        for a in ATTACKS
    ]
    cells += [
        {"part": "elsewhere", "network": n, "attack": a}
        for n in ELSEWHERE
        for a in ("inversion", "cut", "recursion")
    ]
    return cells + [{"part": "train", "draw": d} for d in ("none", *settings["shifts"])]


def _compute(settings: dict, cell: dict) -> dict:
    return {"attack": _attack, "elsewhere": _elsewhere, "train": _train}[cell["part"]](
        settings, cell
    )


def _scores(settings: dict, found: Tensor, x: Tensor) -> dict:
    scores = metrics.compare(found, x)
    out: dict[str, Any] = {n: rounded(scores[n], 3) for n in ("psnr", "ssim")}
    if x.shape[1] == 1:
        out["images"] = [pack(v) for v in found[: settings["pictures"]]]
    return out


def _attack(settings: dict, cell: dict) -> dict:
    data = load("mnist")
    x, y = data.sample(settings["images"], split=settings["split"], seed=0)
    net, defense = models.build("lenet", data), None
    if cell["draw"] != "none":
        shift = settings["shifts"][cell["draw"]]
        defense = Draw(cell["size"], settings["beta"], shift=shift)
    upload = share(net, x, y, defense, knows=("labels",), each=1)
    if defense is None:
        kind = GS if cell["attack"] == "GS" else IDLG
        found = kind(steps=settings["evaluations"], show=False).run(upload).images
    else:
        found = attack(cell["attack"], upload, settings["evaluations"])
    return _scores(settings, found, x)


def _elsewhere(settings: dict, cell: dict) -> dict:
    name, network, options = ELSEWHERE[cell["network"]]
    data = load(name)
    x, y = data.sample(4, split=settings["split"], seed=0)
    net = models.build(network, data, **options)
    upload = share(net, x, y, Draw(16, shift=5.0), knows=("labels",), each=1)
    steps = settings["evaluations"] // (3 if network == "resnet20" else 1)
    try:
        return _scores(settings, attack(cell["attack"], upload, steps), x)
    except ValueError as error:  # the recursion says what it cannot pass
        return {"refused": str(error).split("(")[0].strip()}


def _train(settings: dict, cell: dict) -> dict:
    """Accuracy of FedAvg, and the draw's standard deviation and randomness when it ends."""
    data = load("mnist")
    out: dict[str, list] = {"accuracy": [], "std": [], "randomness": [], "seconds": []}
    for seed in settings["seeds"]:
        defense: Defense = Defense()
        if cell["draw"] != "none":
            shift = settings["shifts"][cell["draw"]]
            defense = Draw(256, settings["beta"], seed, shift)
        clients = data.clients(settings["clients"], per_client=settings["per_client"], seed=seed)
        plan = Plan(eta=settings["eta"], batch_size=10)
        run = FedAvg(
            models.build("mlp", data, seed=seed),
            clients,
            settings["rounds"],
            plan,
            test=(data.x_test, data.y_test),
            defense=defense,
            seed=seed,
            show=False,
        )
        began = time.process_time()
        for _ in run:
            pass
        out["seconds"].append(round(time.process_time() - began, 2))
        out["accuracy"].append(round(cast(float, run.history[-1].accuracy), 4))
        if cell["draw"] != "none":
            layer = run.model.features[-1]
            x, y = (t[:6].to(layer.encode.weight.device) for t in (data.x_test, data.y_test))
            with torch.no_grad():
                s = layer.encode(run.model.features[:-1](x)).chunk(2, 1)[1]
            out["std"].append(round(softplus(s - 5).mean().item(), 4))
            noise = randomness(run.model, x, y, None)
            out["randomness"].append({n: round(v, 4) for n, v in noise.items()})
    return out


STUDY = Study(
    name="changing-the-model/precode",
    about="PRECODE: ten attackers, a weak and a strong draw; other networks; FedAvg",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
