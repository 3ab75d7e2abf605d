"""Model Entanglement, training side: accuracy (Fig. 4, 5a), membership (5b), time (5c), Fig. 1.

Digits in 10 disjoint uneven parts; client 0 is the guard. One "train" cell is one run: the test
accuracy after every round, the share μ that was replaced, and for the methods of Fig. 5 the
boundary attack every five rounds, on the model that the server can rebuild of a random private
client (what it had plus what that client sent). "time": processor time of a round of each method
over that of FedAvg, in alternation, and what a score costs. "figure 1": how far apart the
representations of two digits are, in pixels, in untrained nets and in a trained one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from ... import models
from ...attacks.membership import LabelOracle, boundary_scores, gap_scores, loss_scores
from ...data import load
from ...defenses import CAFL, POGZFL, Defense, Entangle
from ...federated import FedAvg, Report
from ...metrics import auc, auc_interval, wilson
from ...runtime import generator, needs
from ...training import train_one
from ...wire import Plan
from ..base import Study
from ..membership.attack import local_model, matched

METHODS = {  # name -> defense, given the local rate
    "FedAvg": lambda eta: Defense(),
    "POGZ-FL": lambda eta: POGZFL(alpha=1.0, eta=eta),
    "POGZ-FL, released": lambda eta: POGZFL(alpha=1.0, eta=eta, released=True),
    "CA-FL": lambda eta: CAFL(eps=5.0, ratio=0.1),
    "β 0.7": lambda eta: Entangle(0.7),
}


def _entangled(beta: float) -> Callable[[float], Defense]:
    return lambda eta: Entangle(beta)


MORE: dict[str, Callable[[float], Defense]] = {
    "FedAvg, no guard": lambda eta: Defense(),  # the nine private clients alone
    **{f"β {b}": _entangled(b) for b in (0.1, 0.3, 0.5, 0.9)},
    "β 0.7, random units": lambda eta: Entangle(0.7, score="random"),
    "β 0.7, rows": lambda eta: Entangle(0.7, "rows"),
    "β 0.7, both": lambda eta: Entangle(0.7, "both"),
    "β 0.7, added": lambda eta: Entangle(0.7, how="add"),
}
CHOICES = {  # what else the paper leaves open; with one seed
    "β 0.7, fixed ratio": lambda eta: Entangle(0.7, ratio="fixed"),
    "β 0.7, floor 1e-5": lambda eta: Entangle(0.7, floor=1e-5),
    "β 0.7, floor 0.1": lambda eta: Entangle(0.7, floor=0.1),
    "β 0.7, score of 8 images": lambda eta: Entangle(0.7, images=8),
}
ONCE = [m for m in MORE if m.startswith("β 0.7, ")]  # ablations, with one seed
SHARDS = ("FedAvg", "FedAvg, no guard", "β 0.7")  # also with two classes a client


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "dataset": "mnist",
        "model": {"name": "lenet", "act": "relu", "init": 0.1},
        "clients": 10,
        "per_client": 380,
        "alpha": 0.5,  # Dirichlet
        "plan": {"eta": 0.05, "epochs": 10 if large else 2, "batch_size": 32},
        "rounds": 50 if large else 20,
        "every": 5,
        "candidates": 380,  # members: all images of the client; and so many others
        "budget": 2500 if large else 250,  # queries a candidate
        "starts": 50,
        "seeds": [0, 1, 2] if large else [0, 1],
        "digits": [1, 5],
        "digits_each": 400,
    }


def _cells(settings: dict) -> list[dict]:
    first, *others = settings["seeds"]
    runs = [("dirichlet", m, first) for m in (*METHODS, *MORE)]
    runs += [("shards", m, first) for m in SHARDS]
    runs += [("dirichlet", m, s) for s in others for m in (*METHODS, *MORE) if m not in ONCE]
    runs += [("dirichlet", m, first) for m in CHOICES]
    cells = [{"part": "train", "split": how, "method": m, "seed": s} for how, m, s in runs]
    return [{"part": "figure 1"}, {"part": "time"}, *cells]


def federation(settings: dict, method: str, split: str, seed: int, rounds: int) -> FedAvg:
    """A run of ten clients, of which the first is the guard (or takes no part)."""
    data, plan = load("mnist"), Plan(**settings["plan"])
    parts = {"per_client": settings["per_client"], "alpha": settings["alpha"], "seed": seed}
    clients = data.clients(settings["clients"], split, **parts)
    return FedAvg(
        _net(settings, seed),
        clients[1:] if method == "FedAvg, no guard" else clients,
        rounds,
        plan,
        test=(data.x_test, data.y_test),
        defense=(METHODS | MORE | CHOICES)[method](plan.eta),
        keep_uploads=method in METHODS,
        seed=seed,
        show=False,
    )


def _net(settings: dict, seed: int) -> models.Net:
    return models.build(like=load("mnist"), seed=seed, **settings["model"])


# Accuracy and membership


def _train(settings: dict, cell: dict) -> dict:
    method, seed, split = cell["method"], cell["seed"], cell["split"]
    run = federation(settings, method, split, seed, settings["rounds"])
    accuracy, ratios, membership = [], [], []
    attacked = method in METHODS and (split, seed) == ("dirichlet", settings["seeds"][0])
    for report in run:
        accuracy.append(round(cast(float, report.accuracy), 4))
        if isinstance(run.defense, Entangle):
            each = [run.memory[c]["ratio"] for c in report.clients[1:]]
            ratios.append(round(torch.stack(each).mean().item(), 4))
        if attacked and report.round % settings["every"] == 0:
            membership.append(_membership(settings, run, report))
        report.uploads.clear()
    n = len(load("mnist").x_test)
    low, high = wilson(round(accuracy[-1] * n), n)
    return {
        "accuracy": accuracy,
        "interval": [round(low, 4), round(high, 4)],
        "ratios": ratios,
        "membership": membership,
    }


def _membership(settings: dict, run: FedAvg, report: Report) -> dict:
    """Boundary, gap and loss attack on the rebuilt model of one private client of this round."""
    data, n = load("mnist"), settings["candidates"]
    rng = generator(settings["seeds"][0], 7, report.round)
    k = 1 + int(torch.randint(len(run.clients) - 1, (1,), generator=rng))  # the same for all
    sent, (x, y) = report.uploads[k], run.clients[k]
    net = local_model(sent.model, sent.tensors)
    m = min(n, len(x))
    x, y = torch.cat([x[:m], data.x_test[:n]]), torch.cat([y[:m], data.y_test[:n]])
    starts = data.x_test[n : n + settings["starts"]]
    found = boundary_scores(
        LabelOracle(net), x, y, settings["budget"], "resize", starts=starts, show=False
    )
    right = gap_scores(LabelOracle(net), x, y)
    same = matched(y[:m], y[m:])
    out = {
        "round": report.round,
        "client": k,
        "members": m,
        "others": n,
        "matched": len(same[0]),
        "accuracy_members": round(right[:m].double().mean().item(), 4),
        "accuracy_others": round(right[m:].double().mean().item(), 4),
    }
    for name, s in (
        ("boundary", found.scores),
        ("gap", right),
        ("loss", loss_scores(net, x, y)),
    ):
        out[name] = _areas(s[:m], s[m:], same)
    return out


def _areas(members: Tensor, others: Tensor, same: tuple[Tensor, Tensor]) -> dict:
    """AUC with its interval, and AUC among as many members as others of every class."""
    low, high = auc_interval(members, others)
    return {
        "auc": round(auc(members, others), 4),
        "interval": [round(low, 4), round(high, 4)],
        "auc_matched": round(auc(members[same[0]], others[same[1]]), 4),
    }


# Time


def _time(settings: dict, cell: dict) -> dict:
    """Ratios to FedAvg, each the median of three rounds; and one score in images of training."""
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    for again in range(4):
        for name in METHODS:
            run = federation(settings, name, "dirichlet", 0, 1)
            began = time.process_time()
            list(run)
            if again:  # the first is slower
                seconds[name].append(time.process_time() - began)
    middle = {name: statistics.median(s) for name, s in seconds.items()}
    passes = settings["clients"] * settings["per_client"] * settings["plan"]["epochs"]
    extra = (middle["β 0.7"] - middle["FedAvg"]) / (settings["clients"] - 1)
    score = extra * passes / middle["FedAvg"]
    return {
        "ratio": {name: round(s / middle["FedAvg"], 3) for name, s in middle.items()},
        "ratio_range": {
            name: [round(v / middle["FedAvg"], 3) for v in (min(s), max(s))]
            for name, s in seconds.items()
        },
        "score_in_images": round(score, 1),  # of one step of training, forward and backward
        "ratio_at_papers_size": round(1 + 9 * score / (60000 * 10), 4),  # 10 epochs of 60,000
    }


# Figure 1


def _figure(settings: dict, cell: dict) -> dict:
    """Silhouette and held-out accuracy of a straight cut, of two digits; PCA of 100 of each."""
    with needs("book"):  # slow to import
        from sklearn.decomposition import PCA
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        from sklearn.metrics import silhouette_score

    data, each = load("mnist"), settings["digits_each"]
    y = data.y_train
    take = torch.cat([(y == d).nonzero().flatten()[:each] for d in settings["digits"]])
    labels = (y[take] == settings["digits"][1]).long()
    held = torch.cat([(data.y_test == d).nonzero().flatten() for d in settings["digits"]])
    trained = _net(settings, 0)
    delta, _ = train_one(
        trained,
        (data.x_train, y),
        Plan(settings["plan"]["eta"], epochs=2, batch_size=32),
        Defense(),
        generator(0),
    )
    sigmoid = models.build("lenet", data)  # the net of the attack
    maps = {
        "pixels": lambda x: x.flatten(1),
        "untrained, sigmoid": sigmoid.representation,
        "untrained": trained.representation,
        "trained": local_model(trained, delta).representation,
    }
    out = {}
    for name, f in maps.items():
        with torch.no_grad():
            r, r_held = f(data.x_train[take]).numpy(), f(data.x_test[held]).numpy()
        cut = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(r, labels)
        right = cut.score(r_held, (data.y_test[held] == settings["digits"][1]).long())
        pca = PCA(2, random_state=0)
        flat = pca.fit_transform(r)
        some = [*range(100), *range(each, each + 100)]
        low, high = wilson(round(right * len(held)), len(held))
        out[name] = {
            "silhouette": round(float(silhouette_score(r, labels)), 4),
            "silhouette_pca": round(float(silhouette_score(flat, labels)), 4),
            "held_out_accuracy": round(float(right), 4),
            "interval": [round(low, 4), round(high, 4)],
            "explained": [round(float(v), 4) for v in pca.explained_variance_ratio_],
            "pca": [[float(f"{v:.3g}") for v in row] for row in flat[some].tolist()],
            "digit": [settings["digits"][int(labels[i])] for i in some],
        }
    return {"images": len(take), "held_out": len(held), "maps": out}


def _compute(settings: dict, cell: dict) -> dict:
    parts = {"train": _train, "time": _time, "figure 1": _figure}
    return parts[cell["part"]](settings, cell)


STUDY = Study(
    name="entanglement/training",
    about="Model Entanglement: accuracy by β, membership, time (Fig. 4, 5); separability (Fig. 1)",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
