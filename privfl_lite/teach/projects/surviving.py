"""Part III: a defense that survives attackers of the registry and costs two points at most."""

from __future__ import annotations

import statistics

from torch import Tensor

from ...attacks import GS, INFORMED, Attack, Recursive, answer
from ...client import share as send
from ...data import Dataset
from ...defenses import DEFENSES
from ...defenses.base import Defense
from ...federated import FedAvg
from ...metrics import identify
from ...models import Net, build
from ...names import FACTS
from ...runtime import PrivflError, generator, seeded
from ...wire import Plan, Upload
from ..check import told
from .pictures import digits, fresh, warped
from .points import Goal, Score

COST, VICTIMS, GALLERY, NAMED = 0.02, 8, 100, 1  # accuracy; digits; candidates; still survived
ROUNDS, CLIENTS, EXAMPLES, RUNS, STEPS = 12, 10, 128, 2, 300
STAGES = {"Recursive": 20.0, "gradient matching": 20.0, "informed": 60.0}


def judge_defense(defense: Defense, seed: int) -> Score:
    """20 points for surviving ``Recursive``, 20 for GS, 60 times what the informed one misses.

    A chain meets the informed attacker of each of its parts, and the best of them counts.
    """
    if not isinstance(defense, Defense):
        got = type(defense).__name__
        raise PrivflError(f"part-3 asks for a defense, such as pf.defenses.Prune(0.9), not {got}")
    try:
        lost = cost(defense, seed)
        price = f"costs {100 * lost:.1f} points of accuracy"
        if lost <= COST:
            return Score("part-3", _attacked(defense, seed, price), seed)
        why = f"{price}, more than {100 * COST:g}"
    except (Exception, SystemExit) as error:  # a class of the reader's own
        why = told(error)
    return Score("part-3", tuple(Goal(n, 0.0, of, why) for n, of in STAGES.items()), seed)


def cost(defense: Defense, seed: int) -> float:
    """Accuracy without the defense minus accuracy with it, from the same starts."""
    ds, lost = digits(), []
    for run in range(RUNS):
        plain, guarded = (accuracy(ds, d, seed + run) for d in (Defense(), defense))
        lost.append(plain - guarded)
    return statistics.mean(lost)


def accuracy(ds: Dataset, defense: Defense, seed: int) -> float:
    """On held-out digits, after ten clients trained a LeNet on digits of their own."""
    shares = ds.clients(CLIENTS, "iid", EXAMPLES, seed=seed)
    clients = [(warped(x, generator(seed, k)), y) for k, (x, y) in enumerate(shares)]
    with seeded(seed):
        net = build("lenet", ds)
    plan = Plan(eta=0.06, batch_size=32, epochs=1)
    test = ds.x_test, ds.y_test
    run = FedAvg(net, clients, ROUNDS, plan, test=test, defense=defense, seed=seed, show=False)
    *_, last = iter(run)
    return float(last.accuracy or 0.0)


def _attacked(defense: Defense, seed: int, price: str) -> tuple[Goal, ...]:
    ds = digits()
    x, y = fresh(ds, VICTIMS, seed)
    with seeded(seed):
        net = build("lenet", ds)
    upload = send(net, x, y, defense, _granted(defense, net, x, y), each=1, seed=seed)
    pool = warped(ds.x_train, generator(seed, 3))
    judged = x, y, pool, ds.y_train
    goals = []
    for name, attack in (("Recursive", Recursive()), ("gradient matching", GS(steps=STEPS))):
        hits, said = named(attack, upload, judged, seed)
        points = STAGES[name] if hits <= NAMED else 0.0
        goals.append(Goal(name, points, STAGES[name], f"{said}; {price}"))
    return (*goals, _informed(defense, upload, judged, seed))


def _informed(
    defense: Defense, upload: Upload, judged: tuple[Tensor, Tensor, Tensor, Tensor], seed: int
) -> Goal:
    parts = getattr(defense, "parts", (defense,))
    names = [next((n for n, k in DEFENSES.items() if type(p) is k), "") for p in parts]
    if not all(name in INFORMED for name in names):
        why = "no attacker of the registry knows it, so this is not judged"
        return Goal("informed", 0.0, STAGES["informed"], why)
    known = [answer(name, upload.knows.names) for name in dict.fromkeys(names)]
    hits, said = max(named(attack, upload, judged, seed) for attack in known)
    return Goal("informed", STAGES["informed"] * (1 - hits / VICTIMS), STAGES["informed"], said)


def _granted(defense: Defense, net: Net, x: Tensor, y: Tensor) -> tuple[str, ...]:
    """Labels, and every fact that this defense has."""
    found = ["labels"]
    for fact in FACTS:
        try:
            send(net, x[:1], y[:1], defense, (fact,), each=1)
            found.append(fact)
        except PrivflError:
            continue
    return tuple(dict.fromkeys(found))


def named(
    attack: Attack, upload: Upload, judged: tuple[Tensor, Tensor, Tensor, Tensor], seed: int
) -> tuple[int, str]:
    """How many digits an attack names among candidates of their class; and a sentence."""
    x, y, pool, labels = judged
    try:
        found = attack.run(upload, seed).images
    except PrivflError as error:
        return 0, f"{type(attack).__name__} does not apply: {error}"
    found = found.nan_to_num(0.0).clamp(0, 1)
    told = identify(found, x, pool, GALLERY, labels=y, pool_labels=labels, seed=seed)
    return told.hits, f"{type(attack).__name__} names {told.hits} of {len(x)}"
