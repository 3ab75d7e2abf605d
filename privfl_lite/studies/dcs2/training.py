"""DCS², accuracy side (Tables 1, 10): FedAvg with one defended client of ten, or with all ten.

A cell is {data, split, defended, defense, how} and holds, with one entry a seed, "sensitive" and
"test" (accuracy on client 5's own images and on test images), their "_mean" and "_std" (sample
standard deviation over seeds), "update" (length of client 5's upload over the mean of the others',
mean over rounds) and "rounds" (fewer than asked for: it diverged). DCS² also has "cosine" (of the
concealed gradients to the sensitive ones, after crafting in the last round) and "projected" (share
of its steps in which Eq. 11 acted).

``data``: "mnist, sigmoid" has the paper's own network, with fewer steps of crafting and a training
that is not finished; "mnist" and "cifar10" a quicker one. ``split``: "iid" or "dirichlet".
``defended``: "one" (client 5, as released) or "all". ``how``: "real": the defended client takes its
defended step. "frozen": as released, where a gradient is copied only if one was there before:
nothing moves under DP-Gaussian and Prune, and under Soteria all but the last layer does, unmasked.
"mean", "sum", "code": ``scale`` of DCS². Controls without a defense: "step × 2/3", "step × 1/3" of
the defended client, and "absent": the others alone.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from ... import models
from ...data import Dataset, load, partition
from ...defenses import DCS2, Defense, DPGaussian, Prune, Soteria
from ...defenses.base import Context
from ...defenses.dcs2 import crafted
from ...defenses.prune import largest
from ...federated import FedAvg, evaluate
from ...gradients import Tensors, flat
from ...wire import Plan
from ..base import Study

CLIENT = 5  # the defended one in the released code
STEPS = {"step × 2/3": 2 / 3, "step × 1/3": 1 / 3}
SLOW = "mnist, sigmoid"
RATES = {  # §8.3 and the released code: noise (a standard deviation), pruning, Soteria's pruning
    "mnist": {"DP-Gaussian": 0.01, "Prune": 0.7, "Soteria": 0.2},
    "cifar10": {"DP-Gaussian": 0.001, "Prune": 0.9, "Soteria": 0.5},
}
RATES[SLOW] = RATES["mnist"]
BOTH = "DP-Gaussian, Prune"  # frozen, they are one and the same
CONTROLS = [("none", how) for how in (*STEPS, "absent")]
PLAIN = [
    ("none", "real"),
    ("DP-Gaussian", "real"),
    ("Prune", "real"),
    ("Soteria", "real"),
    (BOTH, "frozen"),
    ("Soteria", "frozen"),
]
ALL = [("none", "real"), ("none", "step × 2/3")]
ALL += [(name, "real") for name in RATES["mnist"]]


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    quick = {"act": "relu", "init": 0.1}  # DLG's sigmoids and U(−0.5, 0.5) take 100 rounds to learn

    def by_data(paper: tuple, here: tuple) -> dict:
        return dict(zip(RATES, paper if large else here, strict=True))

    return {
        "model": by_data(("lenet", "convnet", "lenet"), ("lenet", "lenet", "lenet")),
        "options": by_data(({}, {"width": 32}, {}), (quick, quick, {})),
        "clients": 10,
        "per_client": by_data((200, 2000, 200), (128, 128, 128)),
        "batch": 64 if large else 32,
        "rounds": by_data((200, 50, 200), (12, 12, 40)),
        "eta": by_data((0.01, 0.01, 0.01), (0.06, 0.03, 0.05)),
        "decay": 0.99,
        "momentum": 0.9,
        "alpha": 0.5,
        "craft": by_data((1000, 1000, 1000), (20, 20, 10)),
        "craft_all": 1000 if large else 6,
        "craft_lr": 0.1 if large else 0.3,  # fewer and longer steps, to nearly the same cosine
        "pool": 300,
        "mask_images": 64 if large else 4,  # from which Soteria makes a mask, once a round
        "test": 1000,
        "rates": RATES,
        "seeds": [0, 1, 2],
    }


def _cells(settings: dict) -> list[dict]:
    def cells(data: str, split: str, defended: str, pairs: list) -> list[dict]:
        where = {"data": data, "split": split, "defended": defended}
        return [where | {"defense": name, "how": how} for name, how in pairs]

    hidden = [("DCS²", how) for how in ("mean", "sum", "code")]
    return [
        *cells("mnist", "iid", "one", PLAIN + CONTROLS + hidden),
        *cells("mnist", "iid", "all", ALL + hidden[:1]),
        *cells("cifar10", "iid", "one", PLAIN + hidden[2:]),
        *cells("mnist", "dirichlet", "one", PLAIN + hidden[2:]),
        *cells(SLOW, "iid", "one", [("none", "real"), (BOTH, "frozen"), *hidden[2:]]),
    ]


@dataclass(frozen=True)
class ForClients(Defense):
    """A defense's gradient door for some clients, one after the other, with what it did to them.

    One by one, the crafting of DCS² needs no copy of the weights for every image, and is quicker.
    The run remembers "turned": whether ⟨g, shared⟩ came out as 0, where Eq. 11 ends.
    """

    inner: Defense
    clients: tuple[int, ...]

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        out = {n: t.clone() for n, t in g.items()}
        for k, client in enumerate(ctx.who):
            if client not in self.clients:
                continue
            mine, theta = ({n: t[k : k + 1] for n, t in part.items()} for part in (g, ctx.theta))
            own = replace(ctx, theta=theta, x=ctx.x[k : k + 1], y=ctx.y[k : k + 1])
            own = replace(own, rngs=[ctx.rngs[k]], who=[client])
            sent = self.inner.gradient(mine, own)
            for n, t in sent.items():
                out[n][k] = t[0]
            a, b = flat(mine)[0], flat(sent)[0]
            turned = bool((a @ b).abs() < 1e-5 * a.norm() * b.norm())
            ctx.memory.run.setdefault("turned", []).append(turned)
        return out


@dataclass(frozen=True)
class Scaled(Defense):
    """The gradient times a factor for the tensors whose name begins with ``part``."""

    factor: float
    part: str = ""

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        return {n: self.factor * t if n.startswith(self.part) else t for n, t in g.items()}


@dataclass(frozen=True)
class RoundSoteria(Soteria):
    """Soteria with a mask that is made once a round, from the first ``images`` of a batch."""

    images: int = 1

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        (client,) = ctx.who
        mine = ctx.memory[client]
        if int(mine.get("round", -1)) != ctx.round:
            x, y = (cast(Tensor, part)[:, : self.images] for part in (ctx.x, ctx.y))
            some = replace(ctx, x=x, y=y)
            mine.update(round=torch.tensor(ctx.round), mask=largest(self.scores(some), self.rate))
        keep = mine["mask"]
        return {n: t * keep[:, None] if n == "head.weight" else t for n, t in g.items()}


def _load(data: str) -> Dataset:
    return load(data.split(",")[0])


def defense_of(settings: dict, cell: dict, pool: tuple[Tensor, Tensor]) -> Defense:
    """What the defended client does to its gradient."""
    name, how, rates = cell["defense"], cell["how"], settings["rates"][cell["data"]]
    if how == "frozen":
        return Scaled(0.0, "head" if name == "Soteria" else "")
    if name == "none":
        return Scaled(STEPS.get(how, 1.0))
    if name == "DCS²":
        every = cell["defended"] == "all"
        steps = settings["craft_all"] if every else settings["craft"][cell["data"]]
        return DCS2(steps=steps, lr=settings["craft_lr"], start="sample", pool=pool, scale=how)
    if name == "Soteria":
        return RoundSoteria(rates[name], images=settings["mask_images"])
    return {"DP-Gaussian": DPGaussian, "Prune": Prune}[name](rates[name])


def parts(settings: dict, data: str, split: str, seed: int) -> tuple[list, tuple[Tensor, Tensor]]:
    """The clients' (images, labels), and images that nobody has, to start concealed ones from."""
    source, n = _load(data), settings["clients"]
    shares = partition(
        source.y_train, n, split, settings["per_client"][data], settings["alpha"], seed=seed
    )
    free = torch.ones_like(source.y_train, dtype=torch.bool)
    free[torch.cat(shares)] = False
    rest = free.nonzero().flatten()[: settings["pool"]]
    pick = [(source.x_train[rows], source.y_train[rows]) for rows in (*shares, rest)]
    return pick[:-1], pick[-1]


def train(settings: dict, cell: dict, seed: int) -> dict:
    """One run: accuracies at its end, and what the defended client sent."""
    data, source = cell["data"], _load(cell["data"])
    clients, pool = parts(settings, data, cell["split"], seed)
    own, who = clients[CLIENT], [CLIENT] if cell["defended"] == "one" else list(range(len(clients)))
    if cell["how"] == "absent":
        clients, who = clients[:CLIENT] + clients[CLIENT + 1 :], []
    guard = ForClients(defense_of(settings, cell, pool), tuple(who))
    eta, batch, momentum = settings["eta"][data], settings["batch"], settings["momentum"]
    run = FedAvg(
        models.build(settings["model"][data], source, seed=seed, **settings["options"][data]),
        clients,
        settings["rounds"][data],
        Plan(eta=eta, batch_size=batch, momentum=momentum),
        schedule=lambda r: settings["decay"] ** (r - 1),
        defense=guard,
        seed=seed,
        show=False,
    )
    run.finish()
    n = settings["test"]
    sides = {"sensitive": own, "test": (source.x_test[:n], source.y_test[:n])}
    out = {name: round(evaluate(run.model, *side)[0], 4) for name, side in sides.items()}
    out["rounds"] = len(run.history)
    if cell["how"] != "absent":
        norms = torch.tensor([r.norms for r in run.history])  # (rounds, clients)
        rest = norms[:, [c for c in range(len(clients)) if c != CLIENT]].mean(1)
        out["update"] = round((norms[:, CLIENT] / rest).mean().item(), 4)
    inner = guard.inner
    if isinstance(inner, DCS2):
        last = torch.cat([part.history[:, 1, -1] for part in crafted(run.memory).values()])
        out["cosine"] = round(last.mean().item(), 4)
        turned = run.memory.run["turned"]
        out["projected"] = round(sum(turned) / len(turned), 4)
    return out


def _compute(settings: dict, cell: dict) -> dict:
    runs = [train(settings, cell, seed) for seed in settings["seeds"]]
    out = {name: [run[name] for run in runs] for name in runs[0]}
    summary = {}
    for name in ("sensitive", "test"):
        summary[f"{name}_mean"] = round(statistics.fmean(out[name]), 4)
        summary[f"{name}_std"] = round(statistics.stdev(out[name]), 4)
    return out | summary


STUDY = Study(
    name="dcs2/training",
    about="accuracy side of DCS²'s Tables 1, 10: real updates, frozen clients, all defended",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
