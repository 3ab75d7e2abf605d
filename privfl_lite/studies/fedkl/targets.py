"""Who is attacked in the study of FedKL: uploads to open, normalized and locked nets."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ... import models
from ...client import share
from ...data import load
from ...defenses import Defense, FedKL
from ...federated import FedAvg
from ...models.keylock import coefficients, locks, normalize
from ...runtime import generator
from ...wire import Plan, Upload


class Target(NamedTuple):
    """Uploads to one net, and what is behind them."""

    upload: Upload
    x: Tensor
    y: Tensor

    def first(self, n: int) -> Target:
        return Target(self.upload[:n], self.x[:n], self.y[:n])


def target(
    settings: dict,
    seed: int,
    net: str = "lock",
    mode: str = "train",
    each: int = 1,
    knows: tuple[str, ...] = ("labels", "key", "lock"),
    data: str = "mnist",
    **options: Any,
) -> Target:
    """Uploads of clients with ``each`` test images to an untrained net; ``options``: of FedKL."""
    source = load(data, size=32)
    model = models.build("lenet", source, seed=seed)
    x, y = source.sample(
        settings["images"], seed, "test", distinct=each > 1
    )  # labels give the order
    if net == "lock":
        return Target(share(model, x, y, FedKL(seed=seed, **options), knows, each, mode=mode), x, y)
    model = normalize(model) if net == "batch norm" else model
    granted = [fact for fact in knows if fact == "labels"]
    return Target(share(model, x, y, None, granted, each, mode=mode), x, y)


def trained(
    settings: dict,
    net: str = "lock",
    mode: str = "train",
    knows: tuple[str, ...] = (),
    double: bool = False,
    **options: object,
) -> tuple[list[Target], float]:
    """Uploads of three clients in training, each with one of its own digits; the accuracy.

    ``double``: they compute and send their gradients with 64 bits.
    """
    run = training(settings["rounds"], settings["seed"], net, tuple(options.items()))
    model, memory = copy.deepcopy(run.model), copy.deepcopy(run.memory)
    out, knows = [], knows if net == "lock" else ()
    if double:
        model, own = model.double(), memory.private.items()
        memory.private = {c: {n: t.double() for n, t in mine.items()} for c, mine in own}
    for i in range(settings["images"]):
        x, y = (torch.stack([c[j][i] for c in run.clients]) for j in (0, 1))
        x = x.to(model.head.weight.dtype)
        upload = share(model, x, y, run.defense, knows, each=1, mode=mode, memory=memory)
        out.append(Target(upload, x, y))
    return out, round(cast(float, run.history[-1].accuracy), 4)


@lru_cache
def training(rounds: int, seed: int, net: str, options: tuple) -> FedAvg:
    """As the run of "fedkl/training" on digits, but shorter."""
    data = load("mnist", size=32)
    model = models.build("lenet", data, seed=seed)
    run = FedAvg(
        normalize(model) if net == "batch norm" else model,
        data.clients(3, "iid", seed=seed),
        rounds,
        Plan(eta=0.01, batch_size=16, momentum=0.9),
        test=(data.x_test, data.y_test),
        defense=FedKL(seed=seed, **dict(options)) if net == "lock" else Defense(),
        seed=seed,
        show=False,
    )
    for _ in run:
        pass
    return run


def opened(upload: Upload, knows: str) -> Upload:
    """One upload whose model has a lock that makes the γ and β that the server goes by."""
    matrix, key = cast(Tensor, upload.knows.lock), cast(Tensor, upload.knows.key)
    if knows == "wrong key":
        key = torch.rand(key.shape, generator=generator(1)).to(key)
    model = copy.deepcopy(upload.model)
    ((_, m),) = locks(model)
    gamma, beta = coefficients(matrix, key, m.lock.activation)[0].chunk(2)
    with torch.no_grad():  # the server's copy of its weights is blank
        m.lock.scale.bias.copy_(gamma)
        m.lock.shift.bias.copy_(beta)
    return replace(upload, model=model)
