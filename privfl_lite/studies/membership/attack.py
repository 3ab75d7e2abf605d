"""Membership (chapter: was I in the training set): four attacks on overfit and federated models.

One cell is one model under attack: ``how`` its data were dealt ("central": one overfit model, no
federation), the ``round``, and whether the ``target`` is the global model or the local model of one
random client, as in Model Entanglement, Section 5.3.2 (every five rounds).
"""

from __future__ import annotations

import copy
import json
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from ...attacks.membership import (
    LabelOracle,
    boundary_scores,
    gap_scores,
    likelihood_scores,
    loss_scores,
)
from ...data import load
from ...federated import FedAvg
from ...gradients import Tensors
from ...metrics import auc, auc_interval, tpr_at_fpr, tpr_interval
from ...models import Net, build
from ...runtime import generator
from ...wire import Plan
from ..base import Study

GRID = np.linspace(0, 1, 21)  # false positive rates at which the ROC is stored


def _settings(profile: str) -> dict:
    small = profile == "cpu"
    return {
        "seed": 0,
        "hidden": [64],  # of the MLP
        "central": {"mnist": 300, "cifar10": 500},  # training images of the overfit models
        "central_steps": 300,  # of Adam, rate 0.003, on all of them at once
        "clients": 10,
        "per_client": 400,
        "alpha": 0.5,  # Dirichlet, of the uneven federation
        "plan": {"eta": 0.1, "epochs": 5, "batch_size": 32},
        "rounds": 30 if small else 50,
        "every": 5,
        "candidates": 500,  # at most so many members, and so many others
        "references": 250,  # images of the attacker's own, for likelihood scores
        "starts": 100,  # of these, starting points of the boundary attack
        "budget": 300 if small else 2500,  # queries a candidate
        "large_budget": 1200 if small else 10000,  # only central and in the last round
    }


def _cells(settings: dict) -> list[dict]:
    rounds = range(settings["every"], settings["rounds"] + 1, settings["every"])
    cells = [
        {"data": name, "how": "central", "round": 0, "target": "global"}
        for name in settings["central"]
    ]
    for how in ("iid", "dirichlet"):
        for target in ("global", "local"):
            cells += [{"data": "mnist", "how": how, "round": r, "target": target} for r in rounds]
    return cells


def _net(settings: dict, data: object) -> Net:
    return build("mlp", data, seed=settings["seed"], hidden=settings["hidden"])


def overfit(net: Net, x: Tensor, y: Tensor, steps: int) -> Net:
    """Train on x, y by heart: Adam on all images at once."""
    net = copy.deepcopy(net)
    adam = torch.optim.Adam(net.parameters(), 0.003)
    for _ in range(steps):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        adam.step()
    return net


def local_model(server: Net, delta: Tensors) -> Net:
    """θ + Δ: what the server can rebuild of a client's model from its update (1, *shape)."""
    net = copy.deepcopy(server)
    with torch.no_grad():
        for n, p in net.named_parameters():
            p.add_(delta[n][0])
    return net


@lru_cache(maxsize=1)
def _federation(text: str, how: str) -> dict[tuple[int, str], tuple]:
    """(round, target) -> (model, x of its members, y): one run, kept while its cells are made."""
    settings = json.loads(text)  # as a string, which lru_cache can take
    digits = load("mnist")
    parts = {"per_client": settings["per_client"], "alpha": settings["alpha"]}
    clients = digits.clients(settings["clients"], how, seed=settings["seed"], **parts)
    run = FedAvg(
        _net(settings, digits),
        clients,
        settings["rounds"],
        Plan(**settings["plan"]),
        keep_uploads=True,
        seed=settings["seed"],
        show=False,
    )
    everyone = [torch.cat(part) for part in zip(*clients, strict=True)]
    found = {}
    for report in run:
        if report.round % settings["every"] == 0:
            rng = generator(settings["seed"], 7, report.round)
            k = int(torch.randint(len(clients), (1,), generator=rng))
            sent = report.uploads[k]
            found[report.round, "global"] = copy.deepcopy(run.model), *everyone
            found[report.round, "local"] = local_model(sent.model, sent.tensors), *clients[k]
        report.uploads.clear()
    return found


def _victim(settings: dict, cell: dict) -> tuple[Net, Tensor, Tensor]:
    """The model under attack and all that it was trained on."""
    if cell["how"] != "central":
        return _federation(json.dumps(settings), cell["how"])[cell["round"], cell["target"]]
    data = load(cell["data"])
    x, y = data.sample(settings["central"][cell["data"]], settings["seed"])
    return overfit(_net(settings, data), x, y, settings["central_steps"]), x, y


def roc(members: np.ndarray, others: np.ndarray, grid: np.ndarray = GRID) -> np.ndarray:
    """True positive rate at each false positive rate of ``grid``, straight between thresholds."""
    cuts = np.append(np.unique(np.concatenate([members, others])), np.inf)[::-1]
    fpr, tpr = (1 - np.searchsorted(np.sort(s), cuts) / len(s) for s in (others, members))
    return np.interp(grid, fpr, tpr)


def _judge(members: Tensor, others: Tensor) -> dict:
    """AUC and TPR at 1 % FPR with 95 % intervals, and the ROC with a 95 % band (bootstrap)."""
    rng = np.random.default_rng(0)
    a, b = members.double().numpy(), others.double().numpy()
    draws = [roc(rng.choice(a, len(a)), rng.choice(b, len(b))) for _ in range(200)]
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    curve = {"tpr": roc(a, b), "low": low, "high": high}
    return {
        "auc": round(auc(a, b), 4),
        "auc_interval": [round(v, 4) for v in auc_interval(a, b)],
        "tpr": round(tpr_at_fpr(a, b), 4),
        "tpr_interval": [round(v, 4) for v in tpr_interval(a, b)],
        "roc": {k: " ".join(f"{v:.3f}" for v in values) for k, values in curve.items()},
    }


def matched(y_members: Tensor, y_others: Tensor) -> tuple[Tensor, Tensor]:
    """Indices of members and of others that have the same number of images of every class."""
    pairs = [((y_members == c).nonzero(), (y_others == c).nonzero()) for c in y_others.unique()]
    cut = [(m[: len(o)].flatten(), o[: len(m)].flatten()) for m, o in pairs]
    return torch.cat([m for m, _ in cut]), torch.cat([o for _, o in cut])


def _compute(settings: dict, cell: dict) -> dict:
    net, x, y = _victim(settings, cell)
    data, most = load(cell["data"]), settings["candidates"]
    rng = generator(settings["seed"], 8, cell["round"])
    pick = torch.randperm(len(x), generator=rng)[:most]
    others, own = most, settings["references"]
    x = torch.cat([x[pick], data.x_test[:others]])
    y = torch.cat([y[pick], data.y_test[:others]])
    reference = data.x_test[others : others + own], data.y_test[others : others + own]
    starts, n = reference[0][: settings["starts"]], len(pick)
    asks = {}
    scores = {
        "gap": gap_scores(LabelOracle(net), x, y),
        "loss": loss_scores(net, x, y),
        "likelihood": likelihood_scores(net, x, y, reference),
    }
    last = cell["round"] in (0, settings["rounds"])
    jobs = [("resize", settings["budget"])]
    if last:
        jobs += [("full", settings["budget"]), ("resize", settings["large_budget"])]
    for space, budget in jobs:
        name = f"boundary {space} {budget}"
        found = boundary_scores(LabelOracle(net), x, y, budget, space, starts=starts, show=False)
        scores[name], asks[name] = found.scores, found.queries.double().mean()
    right = scores["gap"].bool()
    m, o = matched(y[:n], y[n:])
    result = {
        "source": data.source,
        "members": n,
        "others": others,
        "accuracy_members": round(right[:n].double().mean().item(), 4),
        "accuracy_others": round(right[n:].double().mean().item(), 4),
        "matched": len(m),
        "attacks": {},
    }
    for name, s in scores.items():
        known = _judge(s[:n], s[n:])
        known["auc_right"] = round(auc(s[:n][right[:n]], s[n:][right[n:]]), 4)
        known["auc_matched"] = round(auc(s[:n][m], s[n:][o]), 4)
        known["queries"] = round(float(asks.get(name, 1.0)), 1)
        result["attacks"][name] = known
    return result


STUDY = Study(
    name="membership/attack",
    about="Membership attacks on overfit and federated models, every five rounds (ME Fig. 5b)",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
