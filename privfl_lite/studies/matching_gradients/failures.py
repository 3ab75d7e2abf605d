"""Where gradient matching fails: one knob turned at a time (chapter: matching gradients).

Every cell starts from one setting that works (one digit, an untrained sigmoid LeNet with weights
from U(−0.5, 0.5), the gradient, L2 and L-BFGS, label read off the last layer) and turns one knob.
Attacked images are of the test split, which no trained network has seen. Restarts are chosen by the
attacker's own cost; where the choice by truth is stored as well, its name says "oracle".
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ... import metrics, models
from ...attacks import DLG, GS, IDLG, Matching, Reconstruction, infer_labels
from ...client import share
from ...data import Dataset, load
from ...metrics.judge import judge
from ...pictures import pack
from ...runtime import generator
from ...wire import Facts, Plan, Upload
from ..base import Study

CAUSES: dict[str, tuple] = {
    "batch size": (1, 2, 4, 8),
    "one label in a batch of 4": (1, 2, 3, 4),  # how many images have it
    "activation": ("sigmoid", "tanh", "ReLU, small weights", "ReLU"),
    "steps of training": (0, 100, 300, 1000),
    "local steps, read as a gradient": (1, 2, 5, 10),
    "activation, GS": ("sigmoid", "ReLU, small weights", "ReLU"),
    "L-BFGS": ("ours", "strong Wolfe", "no line search", "signed Adam instead"),
    "label": ("granted", "inferred", "joint search", "wrong"),
    "initial weights": ("PyTorch's", "0.5", "1"),
    "batch norm": ("eval mode", "train mode"),
    "restarts, batch of 2": (1, 2, 4),
    "evaluations, batch of 4": (100, 300, 1000),
    "local steps, unrolled": (2, 5),
}
TWO_NETS = (*tuple(CAUSES)[:4], "L-BFGS")  # the others take one, which halves their time
SAME_RUN = {  # knobs at the place where another cell has them (labels are read right there)
    ("activation", "sigmoid"): ("batch size", 1),
    ("steps of training", 0): ("batch size", 1),
    ("initial weights", "0.5"): ("batch size", 1),
    ("L-BFGS", "ours"): ("batch size", 1),
    ("label", "granted"): ("batch size", 1),
    ("label", "inferred"): ("batch size", 1),
    ("restarts, batch of 2", 1): ("batch size", 2),
    ("evaluations, batch of 4", 300): ("batch size", 4),
}
BATCH = {"evaluations, batch of 4": 4, "restarts, batch of 2": 2, "one label in a batch of 4": 4}


def _settings(profile: str) -> dict:
    return {
        "dataset": "mnist",
        "split": "test",
        "model": "lenet",
        "images": 8 if profile == "cpu" else 64,
        "seeds": [0, 1] if profile == "cpu" else [0, 1, 2, 3, 4],
        "evaluations": {"lbfgs": 300, "adam": 600},
        "eta": 0.1,
        "threshold_db": 20,
        "pictures": 3,
    }


def _cells(settings: dict) -> list[dict]:
    return [{"cause": c, "level": v} for c, levels in CAUSES.items() for v in levels]


def private(settings: dict, cell: dict, seed: int) -> tuple[Tensor, Tensor, int]:
    """The clients' images (N, C, H, W) and labels (N,), and how many go into one batch."""
    data, n, level = load(settings["dataset"]), settings["images"], cell["level"]
    batch = BATCH.get(cell["cause"], 1)
    if cell["cause"] == "batch size":
        batch = level
    if cell["cause"] == "one label in a batch of 4":
        return *_with_shared_label(data, n // batch, batch, level, seed, settings["split"]), batch
    if batch == 1:
        return *data.sample(n, seed=seed, split=settings["split"]), batch
    parts = [  # no label twice in a batch
        data.sample(batch, seed=1000 * seed + k, split=settings["split"], distinct=True)
        for k in range(n // batch)
    ]
    x, y = (torch.cat(column) for column in zip(*parts, strict=True))
    return x, y, batch


def _with_shared_label(
    data: Dataset, batches: int, size: int, shared: int, seed: int, split: str
) -> tuple[Tensor, Tensor]:
    """Batches in which ``shared`` images have one label and the others all different ones."""
    xs, ys = [], []
    for k in range(batches):
        x, y = data.sample(400, seed=1000 * seed + k, split=split)
        label = int(y[0])
        same = (y == label).nonzero().flatten()[:shared].tolist()
        others = [int((y == c).nonzero()[0]) for c in range(data.num_classes) if c != label]
        take = same + others[: size - shared]
        xs.append(x[take])
        ys.append(y[take])
    return torch.cat(xs), torch.cat(ys)


def network(settings: dict, cell: dict, seed: int) -> models.Net:
    """The network of a cell, in eval mode."""
    data, name = load(settings["dataset"]), settings["model"]
    cause, level = cell["cause"], cell["level"]
    if cause.startswith("activation"):
        small = "small" in level
        act = level.split(",")[0].lower()
        return models.build(name, data, seed=seed, act=act, init=0.1 if small else None)
    if cause == "initial weights" and level != "PyTorch's":
        return models.build(name, data, seed=seed, init=float(level))
    net = models.build(name, data, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed).initial_seed())
        if cause == "initial weights":
            for m in net.modules():
                if isinstance(m, nn.Conv2d | nn.Linear):
                    m.reset_parameters()
        if cause == "batch norm":
            layers = [
                part
                for m in net.features
                for part in ((m, nn.BatchNorm2d(12)) if isinstance(m, nn.Conv2d) else (m,))
            ]
            net.features = nn.Sequential(*layers)
    return _train(net, data, level, seed) if cause == "steps of training" else net.eval()


def _train(net: models.Net, data: Dataset, steps: int, seed: int) -> models.Net:
    """Adam at 0.003 on batches of 32 of the training split."""
    rng, optimizer = generator(seed), torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(steps):
        take = torch.randint(len(data.y_train), (32,), generator=rng)
        optimizer.zero_grad()
        cross_entropy(net(data.x_train[take]), data.y_train[take]).backward()
        optimizer.step()
    return net


def upload(settings: dict, cell: dict, net: models.Net, x: Tensor, y: Tensor, batch: int) -> Upload:
    """What the clients of a cell send, and what the attacker believes about it."""
    cause, level = cell["cause"], cell["level"]
    plan, mode = None, "eval"
    if cause.startswith("local steps"):
        plan = Plan(eta=settings["eta"], steps=level, batch_size=batch, mode="eval")
    if cause == "batch norm":
        mode = level.split()[0]
    # iDLG's rule misreads tanh networks; labels are granted there, so that one knob turns at a time
    granted = level in ("granted", "wrong") or cause.startswith("activation")
    knows = ("labels",) if granted else ()
    sent = share(net, x, y, each=batch, plan=plan, mode=mode, knows=knows)
    if level == "wrong":
        labels = cast(Tensor, sent.knows.labels)
        sent = replace(sent, knows=Facts(labels=(labels + 1) % net.num_classes))
    if cause == "local steps, read as a gradient":
        sent = replace(sent, kind="gradient", tensors=sent.gradients(), plan=None)
    return sent


def attack(settings: dict, cell: dict) -> Matching:
    """The attack of a cell, where it is one of the package's."""
    cause, level = cell["cause"], cell["level"]
    lbfgs, adam = settings["evaluations"].values()
    if cause == "activation, GS":
        return GS(steps=adam, show=False)
    if level == "signed Adam instead":
        return IDLG(steps=lbfgs, optimizer="adam", show=False)
    if cause == "evaluations, batch of 4":
        lbfgs = level
    return (DLG if level == "joint search" else IDLG)(steps=lbfgs, show=False)


def torch_lbfgs(
    sent: Upload, evaluations: int, line_search: str | None, seed: int
) -> Reconstruction:
    """DLG's optimizer, torch.optim.LBFGS, one problem at a time: images, and final / first cost.

    Same starts and labels as ``IDLG`` with the same seed. The image is that of the last step, as in
    the released code; cost ratios are infinite where the search ended in NaN.
    """
    starts = IDLG()._start(len(sent), (sent.batch, *sent.model.shape), 0, seed)
    labels, params = infer_labels(sent), list(sent.model.parameters())
    names, images, ratios = [n for n, _ in sent.model.named_parameters()], [], []
    for u in range(len(sent)):
        x = starts[u].view(sent.batch, *sent.model.shape).clone().to(params[0].device)
        x.requires_grad_()
        optimizer = torch.optim.LBFGS([x], max_iter=20, line_search_fn=line_search)
        seen = [sent.tensors[n][u] for n in names]
        costs: list[float] = []

        def closure(x=x, optimizer=optimizer, seen=seen, u=u, costs=costs) -> Tensor:
            optimizer.zero_grad()
            loss = cross_entropy(sent.model(x), labels[u])
            g = torch.autograd.grad(loss, params, create_graph=True)
            cost = sum((a - b).square().sum() for a, b in zip(g, seen, strict=True))
            (x.grad,) = torch.autograd.grad(cost, x)
            costs.append(float(cost.detach()))
            return cost.detach()

        before = -1
        while before < len(costs) < evaluations:  # stops where a step evaluates nothing any more
            before = len(costs)
            optimizer.step(closure)
        closure()
        images.append(x.detach())
        ratio = costs[-1] / costs[0]
        ratios.append(ratio if ratio == ratio else torch.inf)
    return Reconstruction(
        torch.cat(images), labels.flatten(), torch.tensor(ratios, device=labels.device)
    )


def _restarts(sent: Upload, engine: Matching, count: int, x: Tensor, y: Tensor, seed: int) -> tuple:
    """Best of ``count`` starts by cost, and PSNRs of the best by truth (which no attacker has)."""
    many = replace(
        sent, tensors={n: t.repeat_interleave(count, 0) for n, t in sent.tensors.items()}
    )
    found = engine.run(many, seed=seed)
    batch, u = sent.batch, len(sent)
    images = found.images.view(u, count, batch, *x.shape[1:])
    labels, cost = found.labels.view(u, count, batch), found.cost.view(u, count)
    scores = torch.stack(
        [
            torch.stack([_psnr(images[i, r], x[batch * i : batch * (i + 1)]) for r in range(count)])
            for i in range(u)
        ]
    )  # (U, R, B)
    oracle = scores[torch.arange(u, device=scores.device), scores.mean(2).argmax(1)].flatten()
    rows = torch.arange(u, device=cost.device), cost.argmin(1)
    best = Reconstruction(images[rows].flatten(0, 1), labels[rows].flatten(), cost[rows])
    return best, [round(v, 2) for v in oracle.tolist()]


def _psnr(x_hat: Tensor, x: Tensor) -> Tensor:
    return metrics.compare(x_hat, x, match=True)["psnr"]


def _compute(settings: dict, cell: dict) -> dict:
    key = cell["cause"], cell["level"]
    nets = len(settings["seeds"]) if cell["cause"] in TWO_NETS else 1  # one n in a row
    return copy.deepcopy(_run(json.dumps(settings), *SAME_RUN.get(key, key), nets))


@lru_cache
def _run(settings_json: str, cause: str, level: str | int, nets: int) -> dict:
    settings, cell = json.loads(settings_json), {"cause": cause, "level": level}
    out: dict = {"psnr": [], "pictures": [], "labels_right": 0, "diverged": 0}
    for seed in settings["seeds"][:nets]:
        x, y, batch = private(settings, cell, seed)
        net = network(settings, cell, seed)
        sent = upload(settings, cell, net, x, y, batch)
        if cause == "L-BFGS" and level in ("strong Wolfe", "no line search"):
            search = "strong_wolfe" if level == "strong Wolfe" else None
            found = torch_lbfgs(sent, settings["evaluations"]["lbfgs"], search, seed)
            out["diverged"] += int((found.cost >= 1).sum())  # ends above its start, or in NaN
        elif cause == "restarts, batch of 2":
            found, oracle = _restarts(sent, attack(settings, cell), int(level), x, y, seed)
            out.setdefault("oracle_psnr", []).extend(oracle)
        else:
            found = attack(settings, cell).run(sent, seed=seed)
        images, scores = judge(found, x, y, batch)
        rows = scores["per_image"]
        out["psnr"] += [round(row["psnr"], 2) for row in rows]
        out["labels_right"] += sum(
            int(
                (found.labels[i : i + batch].cpu().bincount(minlength=10))
                .minimum(y[i : i + batch].bincount(minlength=10))
                .sum()
            )
            for i in range(0, len(y), batch)
        )
        if not out["pictures"]:
            out["pictures"] = [pack(image) for image in images[: settings["pictures"]]]
        if cause == "steps of training":
            data = load(settings["dataset"])
            right = (net(data.x_test).argmax(1) == data.y_test).float().mean()
            out.setdefault("accuracy", []).append(round(float(right), 3))
    hits = sum(v >= settings["threshold_db"] for v in out["psnr"])
    low, high = metrics.wilson(hits, len(out["psnr"]))
    median = float(torch.tensor(out["psnr"]).double().quantile(0.5))
    return {
        "rate": hits / len(out["psnr"]),
        "interval": [round(low, 3), round(high, 3)],
        "median": round(median, 1),
        **out,
    }


STUDY = Study(
    name="matching-gradients/failures",
    about="gradient matching with one knob turned: 13 knobs, at two to four levels each",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
