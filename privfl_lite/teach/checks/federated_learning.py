"""Checks for the Code exercises of "Federated learning in one page of code".

Each draws random inputs, compares with the book's own answer, and tries the usual slips one by one,
so that "Not yet" comes with the place to look at. ``updates`` are dictionaries name -> tensor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...gradients import Tensors
from ...models import build
from ...runtime import generator
from ..check import Wrong, as_tensor, close, exercise

SHAPES = ({"w": (3, 4), "b": (3,)}, {"conv": (2, 1, 3, 3), "head": (5, 2), "bias": (5,)})


def _updates(count: int, seed: int) -> list[Tensors]:
    """Random updates of ``count`` clients, in double precision so that slips stand out."""
    rng, shapes = generator(seed), SHAPES[seed % len(SHAPES)]
    return [
        {n: torch.randn(*s, generator=rng, dtype=torch.float64) for n, s in shapes.items()}
        for _ in range(count)
    ]


def _flat(tensors: Tensors) -> Tensor:
    return torch.cat([t.flatten() for t in tensors.values()])


def _combine(updates: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
    """Σ w_k Δ_k, tensor by tensor."""
    pairs = list(zip(weights, updates, strict=True))
    return {n: cast(Tensor, sum(w * u[n] for w, u in pairs)) for n in updates[0]}


def _named(got: object, like: Tensors) -> Tensors:
    """The answer as tensors by name, or Wrong with what is missing or misshapen."""
    if got is None or got is ...:
        raise Wrong("nothing came back; replace the dots by your result")
    if not isinstance(got, dict) or set(got) != set(like):
        raise Wrong(f"return a dictionary with the names {', '.join(like)}, as in the updates")
    found = {name: as_tensor(t) for name, t in got.items()}
    for name, t in like.items():
        if not isinstance(found[name], Tensor) or found[name].shape != t.shape:
            raise Wrong(f"the tensor {name!r} should have shape {tuple(t.shape)}, as in the model")
    return {n: t.detach() for n, t in found.items()}


def _judge(got: Tensors, want: Tensors, slips: dict[str, Tensors], hint: str) -> None:
    """Pass if the answer is right; else name the slip that gives the same, or the hint."""
    if close(got, want):
        return
    for what, value in slips.items():
        if close(got, value):
            raise Wrong(what)
    raise Wrong(hint)


@exercise("Every example counts the same, whichever client holds it.")
def check_average(answer: Callable[[list[Tensors], list[int]], Tensors]) -> None:
    """answer(updates, sizes): the mean of the updates, weighted by numbers of examples."""
    for seed, sizes in enumerate(([5, 1, 2], [7, 3], [4, 4, 1, 9])):
        updates = _updates(len(sizes), seed)
        before, given = copy.deepcopy(updates), list(sizes)
        got = _named(answer(updates, given), updates[0])
        if given != sizes or not all(map(close, updates, before)):
            raise Wrong("your function changed its inputs; `+=` on a tensor writes into it")
        total, count = sum(sizes), len(sizes)
        slips = {
            "this is the plain mean; weight each client by its share of the examples, as in step 4 "
            "of the definition of a round": _combine(updates, [1 / count] * count),
            "this is the weighted sum; the weights must add up to one, so divide by the number of "
            "all examples": _combine(updates, sizes),
            "you divided twice: the shares already add up to one": _combine(
                updates, [n / total / count for n in sizes]
            ),
            "this is the sum of the updates without any weights": _combine(updates, [1] * count),
        }
        want = _combine(updates, [n / total for n in sizes])
        _judge(got, want, slips, "the mean is off; client k's weight is sizes[k] / sum(sizes)")


def _train(net: torch.nn.Module, x: Tensor, y: Tensor, eta: float, steps: int, keep: bool) -> None:
    """Full-batch SGD in place; ``keep`` lets gradients pile up, which is one of the slips."""
    for _ in range(steps):
        if not keep:
            net.zero_grad()
        cross_entropy(net(x), y).backward()
        with torch.no_grad():
            for p in net.parameters():
                p.sub_(eta * cast(Tensor, p.grad))


def _moved(model: torch.nn.Module, *plan: Any) -> Tensors:
    net = copy.deepcopy(model)
    _train(net, *plan)
    start = dict(model.named_parameters())
    return {n: (p - start[n]).detach() for n, p in net.named_parameters()}


@exercise("One step gives −η·g; each further step takes the gradient anew.")
def check_update(answer: Callable[..., Tensors]) -> None:
    """answer(model, x, y, eta, steps): Δ after ``steps`` full-batch steps, by parameter name."""
    for seed, (eta, steps) in enumerate(((0.5, 1), (0.3, 4), (0.8, 3))):
        rng = generator(seed)
        model = build("mlp", (1, 4, 4), classes=3, seed=seed, hidden=(5,), act="tanh").double()
        x = torch.rand(6, 1, 4, 4, generator=rng, dtype=torch.float64)
        y = torch.randint(3, (6,), generator=rng)
        start = {n: p.detach().clone() for n, p in model.named_parameters()}
        got = answer(model, x, y, eta, steps)
        if not close(dict(model.named_parameters()), start):
            raise Wrong("your function changed the server's model; train a copy.deepcopy of it")
        got = _named(got, start)
        want = _moved(model, x, y, eta, steps, False)
        first = _moved(model, x, y, eta, 1, False)
        slips = {
            "the sign is turned around: Δ is the client's weights minus the server's": _combine(
                [want], [-1]
            ),
            "these are the weights after training; subtract the server's weights": _combine(
                [start, want], [1, 1]
            ),
            "this is the first step times the number of steps; take the gradient again at the new "
            "weights after every step": _combine([first], [steps]),
            "gradients pile up from step to step; set them to zero before each backward()": _moved(
                model, x, y, eta, steps, True
            ),
            "this is only the first step; repeat it `steps` times": first,
            "the rate is missing or counted twice; each step subtracts eta times the "
            "gradient": _combine([want], [1 / eta]),
        }
        hint = "Δ is off; start from a copy, subtract eta times the gradient, `steps` times"
        _judge(got, want, slips, f"with eta={eta} and steps={steps}, {hint}")


@exercise("All tensors together make one vector; attacks will do the same.")
def check_cosines(answer: Callable[[list[Tensors]], Tensor]) -> None:
    """answer(updates): the matrix (K, K) of cosines between whole updates."""
    for seed, count in enumerate((3, 5)):
        updates = _updates(count, seed)
        for k, update in enumerate(updates):  # tensors and clients of very different lengths
            for i, n in enumerate(update):
                update[n] *= 10.0**i * (k + 1)
        got = as_tensor(answer(updates))
        if got is None or got is ...:
            raise Wrong("nothing came back; replace the dots by your matrix")
        if not isinstance(got, Tensor) or got.shape != (count, count):
            raise Wrong(f"return one tensor of shape ({count}, {count}): every client with every")
        vectors = torch.stack([_flat(u) for u in updates])
        units = vectors / vectors.norm(dim=1, keepdim=True)
        by_tensor = [torch.stack([u[n].flatten() for u in updates]) for n in updates[0]]
        by_tensor = [v / v.norm(dim=1, keepdim=True) for v in by_tensor]
        slips = {
            "these are inner products; divide by both lengths": vectors @ vectors.T,
            "this averages the cosines of the single tensors; join all tensors of a client into "
            "one vector first": sum(v @ v.T for v in by_tensor) / len(by_tensor),
            "this is one minus the cosine": 1 - units @ units.T,
        }
        hint = "the cosines are off; flatten and join the tensors, divide by the length, multiply"
        _judge({"": got}, {"": units @ units.T}, {w: {"": v} for w, v in slips.items()}, hint)


@exercise("With two clients in a round, each can read the other's update.")
def check_spy(answer: Callable[..., Tensors]) -> None:
    """answer(before, after, mine, n_mine, n_other): the update that the other client sent."""
    for seed, (n_mine, n_other) in enumerate(((3, 5), (8, 2), (4, 4))):
        before, mine, other = _updates(3, seed)
        total = n_mine + n_other
        after = _combine([before, mine, other], [1, n_mine / total, n_other / total])
        step = _combine([mine, other], [n_mine / total, n_other / total])
        got = _named(answer(before, after, mine, n_mine, n_other), before)
        slips = {
            "this is the server's whole step; your own update is still in it": step,
            "you treated the two clients as equally large; the server weights by examples": (
                _combine([step, mine], [2, -1])
            ),
            "your own update enters the mean with weight n_mine / (n_mine + n_other); subtract "
            "that much of it": _combine([step, mine], [1, -1]),
            "one step is left: what remains is n_other / (n_mine + n_other) times the other's "
            "update": _combine([other], [n_other / total]),
            "the sign is turned around: the server's step is after minus before": _combine(
                [other], [-1]
            ),
            "`before` is still in it; the server's step is after minus before": _combine(
                [after, mine], [total / n_other, -n_mine / n_other]
            ),
        }
        hint = "solve (after − before) = (n_mine·mine + n_other·other) / (n_mine + n_other)"
        _judge(got, other, slips, f"that is not the other's update; {hint} for `other`")


RIVALS = (2, 7, 11, 12, 13)  # seeds whose update looks like another client's first gradient


def _suspects(seed: int) -> tuple[torch.nn.Module, list[tuple[Tensor, Tensor]]]:
    """A small network, and the data of five clients."""
    rng = generator(seed)
    model = build("mlp", (1, 4, 4), classes=3, seed=seed, hidden=(5,), act="tanh").double()
    data = []
    for _ in range(5):
        x = torch.rand(6, 1, 4, 4, generator=rng, dtype=torch.float64)
        data.append((x, torch.randint(3, (6,), generator=rng)))
    return model, data


@exercise("Whoever follows the rules of training finds the data that fit to the last digit.")
def check_who_sent(answer: Callable[..., int]) -> None:
    """answer(model, delta, candidates, eta, steps): the number of the client that sent delta."""
    eta, steps = 3.0, 10
    for seed in RIVALS:
        model, data = _suspects(seed)
        start = {n: p.detach().clone() for n, p in model.named_parameters()}
        sent = [_moved(model, x, y, eta, steps, False) for x, y in data]
        first = torch.stack([_flat(_moved(model, x, y, eta, 1, False)) for x, y in data])
        who = seed % len(data)
        got = as_tensor(answer(model, copy.deepcopy(sent[who]), list(data), eta, steps))
        if got is None or got is ...:
            raise Wrong("nothing came back; replace the dots by the number of a client")
        if not close(dict(model.named_parameters()), start):
            raise Wrong("your function changed the server's model; train a copy.deepcopy of it")
        if not isinstance(got, Tensor) or got.numel() != 1 or float(got) not in range(len(data)):
            raise Wrong(f"return one number from 0 to {len(data) - 1}, the place in `candidates`")
        if int(got) == who:
            continue
        target = _flat(sent[who])
        naive = {
            int((target - steps * first).norm(dim=1).argmin()),
            int(torch.cosine_similarity(target[None], first).argmax()),
        }
        if int(got) in naive:
            raise Wrong(
                "you compared with the gradient at the start, which is another client's here; "
                "train on each candidate by the same rules, then compare the updates"
            )
        raise Wrong(
            f"client {who} sent it, you say {int(got)}; take `steps` full steps on each candidate "
            "from the server's weights, and return the one whose update is nearest"
        )
