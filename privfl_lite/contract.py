"""The contract of defenses and attacks, to be run on any of them: ours, or a third party's.

    from privfl_lite.contract import check_attack, check_defense

    check_defense(MyDefense())   # one sentence for every clause that is broken, or nothing
    check_attack(MyAttack())

Both run in seconds, on small random images and a small network.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from .arrays import MODEL
from .attacks.base import Attack, Reconstruction
from .checking import checked
from .client import share
from .defenses.base import Defense, Pool
from .federated import FedAvg
from .models import Net, build
from .runtime import PrivflError, device, generator
from .stored import identity
from .values import Count
from .wire import Facts, Plan, Upload

CLOSE: dict[str, Any] = {
    "rtol": 1e-3,
    "atol": 1e-5,
}  # of the fast and the plain path, which sum in another order


@checked
def check_defense(
    defense: Defense,
    model: Annotated[Net, MODEL] | None = None,
    each: Count = 4,
    federated: bool = True,
) -> None:
    """Raise a sentence for every clause that this defense breaks.

    ``model``: a network it can protect (default: a sigmoid LeNet for 16 × 16 gray images).
    ``each``: images behind an upload. ``federated=False`` leaves out the clauses about training,
    for a defense that is too slow for a few rounds.
    """
    net = model or build("lenet", (1, 16, 16), 10)
    clauses = [_frozen, _repeats, _independent, _composes, _speaks]
    if federated:
        clauses += [_fast_is_plain, _resumes]
    new = copy.deepcopy(defense)  # should it remember something after all, no clause sees it
    _raise(type(defense).__name__, (c(copy.deepcopy(new), net, each) for c in clauses))


@checked
def check_attack(attack: Attack, upload: Upload | None = None) -> None:
    """Raise a sentence for every clause that this attack breaks.

    ``upload``: one that it can take (default: two undefended gradients of a sigmoid LeNet, one
    16 × 16 image each, with all that the attack needs granted, if that is labels).
    """
    if upload is None:
        x, y = _images((1, 16, 16), 2)
        upload = share(build("lenet", (1, 16, 16), 10), x, y, knows=attack.needs, each=1)
    clauses = [_settings_only, _answers, _repeatable, _leaves_no_trace, _limits]
    _raise(type(attack).__name__, (c(attack, upload) for c in clauses))


def _raise(name: str, found: Iterator[str]) -> None:
    if broken := [sentence for sentence in found if sentence]:
        raise PrivflError(f"{name} breaks the contract: {'; '.join(broken)}")


def _images(shape: tuple[int, ...], n: int) -> tuple[Tensor, Tensor]:
    x = torch.rand(n, *shape, generator=generator(0, 1))
    return x, torch.arange(n) % 10


def _equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(t, b[n]) for n, t in a.items())


# Clauses of a defense: "" if it holds


def _is_frozen(thing: Any) -> bool:
    return type(thing).__dataclass_params__.frozen


def _frozen(defense: Defense, net: Net, each: int) -> str:
    if not is_dataclass(defense) or not _is_frozen(defense):
        return "it is no frozen dataclass, so it could remember something"
    same = identity(replace(defense)) == identity(defense)
    return "" if same else "dataclasses.replace changes its settings"


def _repeats(defense: Defense, net: Net, each: int) -> str:
    x, y = _images(net.shape, 3 * each)
    one, two = (share(net, x, y, defense, each=each, seed=1).tensors for _ in range(2))
    return "" if _equal(one, two) else "share twice with one seed gives other bits"


def _independent(defense: Defense, net: Net, each: int) -> str:
    if _pool(defense) is not None:
        return _adds(defense) or _a_sum(defense, net, each)
    x, y = _images(net.shape, 3 * each)
    many = share(net, x, y, defense, each=each, seed=1).tensors
    few = share(net, x[: 2 * each], y[: 2 * each], defense, each=each, seed=1).tensors
    same = all(torch.allclose(t, many[n][:2], **CLOSE) for n, t in few.items())
    return "" if same else "what a client sends depends on clients computed beside it"


def _pool(defense: Defense, seed: int = 0) -> Pool | None:
    return defense.collect(range(3), lambda k: generator(seed, k))


def _adds(defense: Defense) -> str:
    """What arrives is Σ w Δ of those who are there, whatever the masks and the order of clients."""
    rows = {"t": torch.randn(3, 40, generator=generator(0, 2))}
    sums: list[tuple[list[int], Tensor]] = []
    for who in ([[0, 1, 2]], [[2], [1, 0]]):
        if (pool := _pool(defense, len(sums))) is None:
            return "it adds uploads up on some rounds only"
        for some in who:
            pool.add(some, {"t": rows["t"][some]}, [1.0 + k for k in some])
        total, weight = pool.done()
        there = torch.tensor(pool.there)
        true = torch.tensordot(1.0 + there, rows["t"][there], dims=1)
        if weight != float((1 + there).sum()) or not torch.allclose(total["t"], true, **CLOSE):
            return "what arrives is not the weighted sum of what clients sent"
        sums.append((pool.there, total["t"]))
    same = sums[0][0] != sums[1][0] or torch.equal(sums[0][1], sums[1][1])
    return "" if same else "the sum depends on the masks, or on the order of clients"


def _a_sum(defense: Defense, net: Net, each: int) -> str:
    """Another first client moves the sum of three and the sum of two by the same."""
    x, y = _images(net.shape, 3 * each)
    if (pool := _pool(defense)) is None or len(pool.there) < 3:
        return ""  # who is in the sum is drawn anew: ``_adds`` has looked at it
    moved = []
    for n in (3, 2):
        a, b = x[: n * each], torch.cat([1 - x[:each], x[each : n * each]])
        one, two = (
            share(net, t, y[: n * each], defense, each=each, seed=1).tensors for t in (a, b)
        )
        moved.append({name: n * (two[name] - one[name]) for name in one})
    same = all(torch.allclose(t, moved[1][name], **CLOSE) for name, t in moved[0].items())
    return "" if same else "what a client adds to the sum depends on clients computed beside it"


def _composes(defense: Defense, net: Net, each: int) -> str:
    x, y = _images(net.shape, 2 * each)
    alone, chained = (share(net, x, y, d, each=each) for d in (defense, defense + Defense()))
    return "" if _equal(alone.tensors, chained.tensors) else "a chain with no defense changes it"


def _speaks(defense: Defense, net: Net, each: int) -> str:
    x, y = _images(net.shape, 2 * each)
    upload = share(net, x, y, defense, each=each)
    known = dict(upload.model.named_parameters())
    if any(not defense.leaves(n) for n in upload.tensors):
        return "a tensor leaves that it says stays at home"
    return "" if set(upload.tensors) <= set(known) else "it sends tensors that the model lacks"


def _run(defense: Defense, net: Net, each: int, rounds: int, **how: Any) -> FedAvg:
    clients = list(zip(*(t.split(each) for t in _images(net.shape, 3 * each)), strict=True))
    run = FedAvg(net, clients, rounds, Plan(eta=0.05, steps=2, batch_size=each), **how,
                 defense=defense, show=False)  # fmt: skip
    for _ in run:
        pass
    return run


def _fast_is_plain(defense: Defense, net: Net, each: int) -> str:
    if defense.draws:
        return ""
    runs = (_run(defense, net, each, 2, fast=way) for way in (True, False))
    fast, plain = (run.model.state_dict() for run in runs)
    same = all(torch.allclose(t.float(), plain[n].float(), **CLOSE) for n, t in fast.items())
    return "" if same else "many clients at once train otherwise than one after the other"


def _resumes(defense: Defense, net: Net, each: int) -> str:
    whole = _run(copy.deepcopy(defense), net, each, 3).model.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.pt")
        _run(copy.deepcopy(defense), net, each, 1, checkpoint=file)
        again = _run(defense, net, each, 3, checkpoint=file).model.state_dict()
    return "" if _equal(whole, again) else "a run that was resumed ends with other bits"


# Clauses of an attack


def _settings_only(attack: Attack, upload: Upload) -> str:
    if not isinstance(attack, Attack):
        return "it is no attacks.Attack"
    frozen = is_dataclass(attack) and _is_frozen(attack)
    return "" if frozen else "it is no frozen dataclass, so results could be left on it"


def _answers(attack: Attack, upload: Upload) -> str:
    found = attack.run(upload)
    if not isinstance(found, Reconstruction):
        return "run returns no Reconstruction"
    n, where = len(found.images), next(iter(upload.tensors.values())).device
    if tuple(found.images.shape[1:]) != tuple(upload.model.shape) or len(found.labels) != n:
        return "images and labels are not those of the model"
    if len(found.cost) not in (len(upload), n) or found.images.device != where:
        return "there is no cost for each upload, or images are not where the upload is"
    return "" if found.images.isfinite().all() else "images are not finite"


def _repeatable(attack: Attack, upload: Upload) -> str:
    """Up to rounding: linear algebra sums in an order that depends on where tensors lie."""
    one, two = (attack.run(upload, seed=3).images for _ in range(2))
    same = torch.allclose(one, two, rtol=1e-5, atol=1e-6)
    return "" if same else "the same seed gives other images"


def _leaves_no_trace(attack: Attack, upload: Upload) -> str:
    def state() -> tuple[str, dict]:
        return identity(attack), {n: t.clone() for n, t in upload.model.state_dict().items()}

    before, sent = state(), {n: t.clone() for n, t in upload.tensors.items()}
    attack.run(upload)
    after = state()
    kept = before[0] == after[0] and _equal(before[1], after[1]) and _equal(sent, upload.tensors)
    return "" if kept else "it changes itself, the model or the upload"


def _limits(attack: Attack, upload: Upload) -> str:
    """More images than it takes, and facts that are missing, are refused in one sentence."""
    most = attack.most[0]
    trials: list[Callable[[], Upload]] = []
    if most is not None:
        x, y = _images(tuple(upload.model.shape), most + 1)
        x, y = x.to(device()), y.to(device()) % upload.model.num_classes
        trials.append(lambda: share(upload.model, x, y))
    trials += [lambda: replace(upload, knows=Facts())] * len(attack.needs)
    for make in trials:
        try:
            attack.run(make())
        except PrivflError:
            continue
        return "an upload beyond its limits is not refused"
    return ""
