"""Fishing, the check that should catch it, and sums (chapter: the malicious server).

A batch holds one image of the target class or more; the rest is drawn from all digits. Part
"caught": how many images bite, and what an attack on one image makes of what is restored; by class
after one answer, by feature after several of the same batch. Part "check": D-SNR of the batches at
models that servers sent ("feature": with the cut at which one image bites).
"""

from __future__ import annotations

import statistics
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from ... import data, metrics, models
from ...attacks import (
    GS,
    IDLG,
    ClosedForm,
    FishingReadout,
    feature_of,
    fish,
    fished,
    restored,
    silenced,
)
from ...attacks.malicious.fishing import GAIN
from ...attacks.malicious.imprint import Imprint, quantile_edges
from ...attacks.malicious.sums import spoken
from ...client import share
from ...client_checks import d_snr
from ...defenses import SecureSum, sum_of
from ...federated import FedAvg
from ...metrics.judge import rounded
from ...runtime import generator
from ...wire import Facts, Plan, Upload
from ..base import Study

NETS = {"mlp": "relu", "lenet": "sigmoid", "lenet5": "relu"}


def _settings(profile: str) -> dict:
    return {
        "data": "mnist",
        "nets": [*NETS],
        "seeds": [0, 1, 2],
        "batches": [4, 16, 64],
        "trials": 5 if profile == "cpu" else 40,  # batches per network and seed
        "searched": 2,  # of these, in networks without a closed form
        "steps": 150 if profile == "cpu" else 1000,
        "target": 3,
        "clients": 4,
        "of": 100,
        "bins": 256,
        "rounds": 6,  # of training, where a network is trained: ten clients, 50 images a step
    }


def _cells(settings: dict) -> list[dict]:
    every = [
        {"net": net, "batch": batch} for net in settings["nets"] for batch in settings["batches"]
    ]
    servers = ["honest", "class", "feature", "imprint"]
    caught = [
        {"part": "caught", **cell, "bait": bait, "sum": how}
        for cell in every
        for bait, how in (
            *(("class", how) for how in ("off", "all fished", "others silenced")),
            ("feature", "off"),
        )
        if how == "off" or cell["batch"] == settings["batches"][1]
    ]
    check = [
        {"part": "check", **cell, "trained": trained, "server": server}
        for cell in every
        for server, trained in (*((server, False) for server in servers), ("honest", True))
    ]
    return [*caught, *check]


@lru_cache
def network(net: str, seed: int, rounds: int) -> models.Net:
    """A network of this kind, after so many rounds of FedAvg over ten clients."""
    ds = data.load("mnist")
    model = models.build(net, ds, seed=seed)
    if not rounds:
        return model
    eta = 0.5 if NETS[net] == "sigmoid" else 0.1
    run = FedAvg(model, ds.clients(10, seed=seed), rounds, Plan(eta, batch_size=50), show=False)
    return run.finish().model.cpu()


def drawn(settings: dict, batch: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """``trials`` batches, one after the other, whose first image is of the target class; a gallery
    of other images of that class."""
    ds, rng = data.load("mnist"), generator(seed, batch)
    order = torch.randperm(len(ds.x_train), generator=rng)
    first = order[ds.y_train[order] == settings["target"]][: settings["trials"]]
    rest = order[~torch.isin(order, first)]  # without those that came first
    rest = rest[torch.randperm(len(rest), generator=rng)][: settings["trials"] * (batch - 1)]
    taken = torch.cat([first[:, None], rest.view(settings["trials"], batch - 1)], 1).flatten()
    return ds.x_train[taken], ds.y_train[taken], ds.x_test[ds.y_test == settings["target"]]


def served(settings: dict, net: models.Net, server: str, batch: int) -> models.Net:
    """What this server sends in place of the network; its public images are the test split."""
    ds, target = data.load("mnist"), settings["target"]
    if server == "class":
        return fished(net, target)
    if server == "imprint":
        edges = quantile_edges(ds.x_test.flatten(1).mean(1), settings["bins"]).unique()
        return Imprint(net, edges, gain=1e-3)
    return net


def _uploads(settings: dict, cell: dict, net: models.Net, x: Tensor, y: Tensor) -> Upload:
    """What the server sees of each trial: the fished client alone, or in a sum of clients."""
    batch, k = cell["batch"], settings["clients"]
    alone = share(net, x, y, each=batch)
    if cell["sum"] == "off":
        return alone
    ds = data.load("mnist")
    other = silenced(net) if cell["sum"] == "others silenced" else net
    rows = []
    for t in range(len(alone)):
        near = ds.sample((k - 1) * batch, seed=10_000 + t)
        others = share(other, *near, each=batch)
        total = sum_of([alone[t], *others], SecureSum(places=32), seed=t)
        rows.append(spoken(total, batch) if other is not net else total)
    tensors = {n: torch.cat([one.tensors[n] for one in rows]) for n in rows[0].tensors}
    return Upload(tensors, "gradient", net, rows[0].batch)


def _by_feature(
    settings: dict, cell: dict, net: models.Net, x: Tensor, y: Tensor, seed: int
) -> Upload:
    """The difference of two answers for each batch, with the model of the first."""
    line, batch = feature_of(net, data.load("mnist").x_test, seed), cell["batch"]
    rows = []
    for pair in zip(x.split(batch), y.split(batch), strict=True):
        ask = partial(lambda own, model: share(model, *own), pair)
        rows.append(fish(ask, net, settings["target"], *line))
    tensors = {n: torch.cat([one.tensors[n] for one in rows]) for n in rows[0].tensors}
    return Upload(tensors, "gradient", rows[0].model, batch)


def _highest(cell: dict, net: models.Net, x: Tensor, seed: int) -> Tensor:
    """Of each batch the image with the highest feature: the one that should bite."""
    u, _ = feature_of(net, data.load("mnist").x_test, seed)
    with torch.no_grad():
        place = (net.representation(x) @ u).view(-1, cell["batch"]).argmax(1)
    batches = x.split(cell["batch"])
    return torch.stack([own[k] for own, k in zip(batches, place.tolist(), strict=True)])


def _caught(settings: dict, cell: dict) -> dict:
    count: list[int | None] = []
    of_class: list[int] = []
    psnr: list[float] = []
    hits = tried = 0
    for seed in settings["seeds"]:
        plain = network(cell["net"], seed, 0)
        x, y, gallery = drawn(settings, cell["batch"], seed)
        if cell["bait"] == "feature":
            upload, truth = (
                _by_feature(settings, cell, plain, x, y, seed),
                _highest(cell, plain, x, seed),
            )
            gallery = data.load("mnist").x_test
        else:
            net = served(settings, plain, cell["bait"], cell["batch"])
            upload, truth = _uploads(settings, cell, net, x, y), x[:: cell["batch"]]
        lone, found = _bite(settings, cell, upload)
        of_class += (y == settings["target"]).view(-1, cell["batch"]).sum(1).tolist()
        count += [None if c.isnan() else round(float(c)) for c in lone]
        truth = truth[: len(found)]
        psnr += rounded(metrics.compare(found, truth)["psnr"])
        who = metrics.identify(found, truth, gallery, settings["of"], seed=seed)
        hits, tried = hits + who.hits, tried + len(found)
    low, high = metrics.wilson(hits, tried)
    return {
        "trials": len(of_class),
        "of_class": of_class,  # images of the target class in the batch, at least one
        "caught": count,  # as the upload says; None where it does not
        "single": None if None in count else count.count(1),
        "identified": hits,
        "tried": tried,
        "low": round(low, 4),
        "high": round(high, 4),
        "psnr": psnr,
        "psnr_median": round(statistics.median(psnr), 2),
    }


def _bite(settings: dict, cell: dict, upload: Upload) -> tuple[Tensor, Tensor]:
    """How many images bit in each upload, and what an attack on one image finds."""
    every = upload
    if cell["net"] == "mlp":
        attack: Any = ClosedForm()
    else:
        upload = upload[: settings["searched"]]
        kind = {"lenet": IDLG, "lenet5": GS}[cell["net"]]
        attack = kind(steps=settings["steps"], show=False)
    if cell["sum"] == "others silenced":  # the last layer, which counts, is not in what is left
        own = _alone(upload, settings["target"])
        images = attack.run(own).images.cpu()
        return images.new_full((len(upload),), torch.nan), images
    found = FishingReadout(attack).run(upload)
    return restored(every)[1].cpu(), found.images[:: upload.batch].cpu()


def _alone(upload: Upload, target: int) -> Upload:
    """One image each, from the tensors in front of the last layer."""
    scaled = {n: upload.batch * t for n, t in upload.tensors.items()}
    like = next(iter(upload.tensors.values()))
    labels = like.new_full((len(upload), 1), target).long()
    return Upload(scaled, "gradient", upload.model, 1, knows=Facts(labels=labels))


def _check(settings: dict, cell: dict) -> dict:
    values, batch = [], cell["batch"]
    for seed in settings["seeds"]:
        plain = network(cell["net"], seed, settings["rounds"] * cell["trained"])
        x, y, _ = drawn(settings, batch, seed)
        nets = [served(settings, plain, cell["server"], batch)] * settings["trials"]
        if cell["server"] == "feature":
            u, _ = feature_of(plain, data.load("mnist").x_test, seed)
            with torch.no_grad():
                top = (plain.representation(x) @ u).view(-1, batch).topk(2).values.mean(1)
            nets = [fished(plain, settings["target"], u, cut, GAIN) for cut in top.tolist()]
        pairs = zip(nets, x.split(batch), y.split(batch), strict=True)
        values += [d_snr(net, xb, yb) for net, xb, yb in pairs]
    return {
        "ratios": [round(min(v, 1e6), 3) for v in values],
        "ratio_median": round(min(statistics.median(values), 1e6), 3),
    }


def _compute(settings: dict, cell: dict) -> dict:
    return (_caught if cell["part"] == "caught" else _check)(settings, cell)


STUDY = Study(
    name="malicious-server/fishing",
    about="Fishing from batches of digits, three networks; D-SNR; secure sums of four clients",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
