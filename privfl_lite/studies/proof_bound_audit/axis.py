"""One axis of noise: what is named, what is rebuilt and what an audit says, beside the proofs.

A hundred clients hold one digit each, drawn from a list of a hundred that the server knows, and
send clipped, noisy gradients (DP-SGD on a batch of one) in one round or in eight; after a round the
server steps along their mean, so that the weights move. The part "attack" names the digit by the
likelihood of all rounds, which is the best there is, and searches for it without the list; "audit"
plants canaries: clients whose coin decides between two examples (chapter: proof, bound, audit).
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ...attacks import Attack, Denoise
from ...attacks.matching.search import Matching
from ...client import share
from ...data import Dataset, load
from ...defenses import DPSGD
from ...gradients import flat
from ...metrics import compare, identify
from ...models import Net, build
from ...pictures import pack
from ...privacy import Audit, audit
from ...runtime import generator
from ...wire import Upload
from ..base import Study

KNOWN = ("labels", "noise", "clip")
GUESSES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # shares of the canaries that an auditor may plan


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "data": "mnist",
        "net": "mlp",  # 784-64-10, ReLU, untrained
        "seeds": [0, 1, 2],  # networks, each with its own list
        "clip": 1.0,
        "sigmas": [0.01, 0.03, 0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 10.0],
        "rounds": [1, 8],
        "eta": 0.1,  # of the server's step along the mean
        "clients": 1000 if large else 100,  # to be named
        "candidates": 100,
        "few": 10,
        "images": 100 if large else 8,  # to be rebuilt: the first clients
        "images_rounds": 100 if large else 4,  # from several rounds
        "steps": 2000 if large else 200,
        "canaries": 1000 if large else 150,  # behind each network
        "delta_dp": 1e-5,
    }


def _cells(settings: dict) -> list[dict]:
    return [
        {"part": part, "sigma": sigma, "rounds": rounds}
        for part in ("attack", "audit")
        for rounds in settings["rounds"]
        for sigma in settings["sigmas"]
    ]


def played(settings: dict, net: Net, x: Tensor, y: Tensor, cell: dict, seed: int) -> list[Upload]:
    """What the clients, one example each, send in each round, with the weights of that round."""
    net, sent = copy.deepcopy(net), []
    for t in range(cell["rounds"]):
        defense = DPSGD(settings["clip"], cell["sigma"])
        sent.append(share(net, x, y, defense, KNOWN, each=1, seed=1000 * seed + t))
        with torch.no_grad():
            for name, p in net.named_parameters():
                p.sub_(settings["eta"] * sent[-1].tensors[name].mean(0))
    return sent


def clean(settings: dict, net: Net, x: Tensor, y: Tensor) -> Tensor:
    """What each example would send from these weights without noise, as rows (N, d)."""
    return flat(share(net, x, y, DPSGD(settings["clip"], 0.0), each=1).tensors)


def likelihoods(settings: dict, sent: list[Upload], x: Tensor, y: Tensor, sigma: float) -> Tensor:
    """log p(all uploads of a client | candidate), up to a constant of the client: (K, N)."""
    total: Tensor | float = 0.0
    for upload in sent:
        rows = clean(settings, upload.model, x, y).double()
        seen = flat(upload.tensors).double()
        total = total + (seen @ rows.T - rows.square().sum(1) / 2)
    assert isinstance(total, Tensor)
    return total / (sigma * settings["clip"]) ** 2


@lru_cache(maxsize=8)
def drawn(data: str, candidates: int, clients: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A list of candidates (x, y), and which of them each client holds: drawn by lot."""
    x, y = load(data).sample(candidates, seed=3000 + seed)
    return x, y, torch.randint(candidates, (clients,), generator=generator(seed, 5))


def _start(settings: dict, seed: int) -> tuple[Dataset, Net, Tensor, Tensor, Tensor]:
    ds = load(settings["data"])
    lists = drawn(settings["data"], settings["candidates"], settings["clients"], seed)
    return ds, build(settings["net"], ds, seed=seed), *lists


def _attack(settings: dict, cell: dict, seed: int) -> dict:
    """One network: what its clients send, who is named by it, and what is rebuilt."""
    ds, net, x, y, secret = _start(settings, seed)
    sent = played(settings, net, x[secret], y[secret], cell, seed)
    mean = ds.x_train.mean(0, keepdim=True)
    row = _named(settings, sent, x, y, secret, cell["sigma"], seed)
    return row | _rebuilt(settings, sent, x, secret, mean, seed)


def _named(
    settings: dict, sent: list[Upload], x: Tensor, y: Tensor, secret: Tensor, sigma: float,
    seed: int,
) -> dict:  # fmt: skip
    """How many clients the likeliest candidate names, of all and of a few with the truth."""
    log = likelihoods(settings, sent, x, y, sigma)  # (K, N)
    lots = torch.rand(log.shape, generator=generator(seed, 6))
    lots.scatter_(1, secret[:, None], 2.0)  # the truth is among the few
    some = lots.topk(settings["few"]).indices
    best = some.gather(1, log.gather(1, some).argmax(1, keepdim=True))[:, 0]
    return {
        "clients": len(secret),
        "named": int((log.argmax(1) == secret).sum()),
        "named_few": int((best == secret).sum()),
    }


def searches(settings: dict, rounds: int) -> dict[str, Attack]:
    """What rebuilds without a list; eight rounds cost the slower search too much."""
    steps = settings["steps"]
    some: dict[str, Attack] = {
        "search": Matching("likelihood", "adam", tv=1e3, box=True, steps=steps, show=False)
    }
    return some if rounds > 1 else some | {"denoise": Denoise(steps=steps, show=False)}


def scores(found: Tensor, x: Tensor, secret: Tensor) -> dict:
    """PSNR, and how many are nearer to the truth than to any other of the list."""
    psnr = compare(found, x[secret])["psnr"]
    return {
        "psnr": [round(min(v, 160.0), 2) for v in psnr.tolist()],
        "named": identify(found, x[secret], x).hits,
    }


def _rebuilt(
    settings: dict, sent: list[Upload], x: Tensor, secret: Tensor, mean: Tensor, seed: int
) -> dict:
    """What searches make of the uploads of the first clients, and the blind guess."""
    mine = secret[: settings["images" if len(sent) == 1 else "images_rounds"]]
    first = [upload[: len(mine)] for upload in sent]
    row: dict = {"images": len(mine), "blind": scores(mean.expand(len(mine), -1, -1, -1), x, mine)}
    for name, attack in searches(settings, len(sent)).items():
        found = cast(Any, attack).run(first, seed=seed).images  # one, or one for each round
        row[name] = {**scores(found, x, mine), "picture": pack(found[0])}
    return row


def torn(settings: dict, net: Net, x: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """One image with two labels whose clipped gradients are farthest apart: the canaries' pair."""
    best, labels = (0.0, 0, [0, 1]), torch.arange(classes)
    for i in range(min(20, len(x))):
        rows = clean(settings, net, x[i : i + 1].expand(classes, *x.shape[1:]), labels)
        apart = torch.cdist(rows, rows)
        at = int(apart.argmax())
        best = max(best, (apart.max().item(), i, [at // classes, at % classes]))
    return x[best[1]].expand(2, *x.shape[1:]), torch.tensor(best[2])


def planned(shift: float, canaries: int, delta_dp: float) -> int:
    """How many guesses promise most, from made-up scores ±``shift``/2 + N(0, 1): no data are used.

    ``shift``: how far apart, in deviations, the auditor expects the scores of in and out."""
    rng = np.random.default_rng(0)

    def scores(coins: np.ndarray) -> list[float]:
        return (shift * (coins - 0.5) + rng.normal(size=len(coins))).tolist()

    tried = {}
    for share_ in GUESSES:
        count = max(2, int(share_ * canaries))
        tried[count] = np.mean(
            [audit(scores, canaries, count, delta_dp, seed=s).epsilon for s in range(5)]
        )
    return max(tried, key=lambda count: tried[count])


def _audit(settings: dict, cell: dict) -> dict:
    """One audit over all networks: their clients are disjoint, so together they are one run."""
    m, sigma = settings["canaries"], cell["sigma"]
    pairs = []
    for seed in settings["seeds"]:
        ds, net, x, _, _ = _start(settings, seed)
        pairs.append((seed, net, *torn(settings, net, x, len(ds.classes))))
    far = [clean(settings, net, x, y).diff(dim=0).norm().item() for _, net, x, y in pairs]
    shift = min(far) * cell["rounds"] ** 0.5 / (sigma * settings["clip"])

    def release(coins: np.ndarray) -> list[float]:
        found: list[float] = []
        for (seed, net, x, y), mine in zip(pairs, coins.reshape(-1, m), strict=True):
            which = torch.from_numpy(mine).long()
            sent = played(settings, net, x[which], y[which], cell, 50 + seed)
            log = likelihoods(settings, sent, x, y, sigma)  # (m, 2)
            found += (log[:, 1] - log[:, 0]).tolist()
        return found

    every = m * len(pairs)
    guesses = planned(shift, every, settings["delta_dp"])
    made: Audit = audit(release, every, guesses, settings["delta_dp"], seed=7)
    return {
        "epsilon": round(made.epsilon, 4),
        "right": made.right,
        "guesses": made.guesses,
        "canaries": made.canaries,
        "apart": [round(v, 3) for v in far],
    }


def _compute(settings: dict, cell: dict) -> dict:
    if cell["part"] == "audit":
        return _audit(settings, cell)
    return {"networks": [_attack(settings, cell, seed) for seed in settings["seeds"]]}


STUDY = Study(
    name="proof-bound-audit/axis",
    about="digits, MLP, DP-SGD on one digit a client, 1 or 8 rounds: named, rebuilt, audited",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
