"""Lab 6, build and red-team a defense: its checks, with ``PRACTICE`` or a class's key.

Chapter "The red team": prop-red-again.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...client import share
from ...defenses import Defense
from ..check import TRIALS, Wrong, as_tensor, begun, exercise, mask, number
from .kit import PRACTICE, demand, draws, own, unpack
from .red_team_cases import (
    PIXELS,
    captured,
    digits,
    filled,
    first_layer,
    handout,
    network,
    sent,
    signs,
)

__all__ = ["PRACTICE", "demand", "digits", "handout", "network", "sent", "unpack"]  # and checks
MANY = 24  # rounds behind a check of patience


def _made(kind: type[Defense]) -> Defense:
    begun(kind)
    if not isinstance(kind, type) or not issubclass(kind, Defense):
        raise Wrong("this is a class that inherits pf.defenses.Defense")
    return kind()


@exercise("Signs and one size for each tensor and client.")
def check_signs(kind: type[Defense], key=PRACTICE, clients=3) -> None:
    """``Signs``: each tensor of each client is its sign times the mean of its absolute values."""
    for trial in range(2):
        seed = draws(key, "signs", str(trial)).initial_seed() % 2**31
        bare, got = (
            sent(defense, torch.Generator().manual_seed(seed), clients)
            for defense in (Defense(), _made(kind))
        )
        for name, t in bare.items():
            right, found = signs(t), got[name]
            if torch.allclose(found, right, rtol=1e-4, atol=1e-9):
                continue
            if torch.equal(found, t):
                raise Wrong("the gradient leaves as it was; is the method called `gradient`?")
            if torch.allclose(found, t.sign(), rtol=1e-4):
                raise Wrong("the size is missing: multiply by the mean of |g|")
            if torch.allclose(found, t.sign() * t.abs().mean(), rtol=1e-4, atol=1e-9):
                raise Wrong(
                    "clients come together, (K, *shape), and your mean runs over all of them: a "
                    "client's upload may not depend on its neighbors"
                )
            raise Wrong(f"{name}: it should be sign(g) times the mean of |g|, client by client")


@exercise("What is exactly zero has no sign, and tells.")
def check_silhouette(silhouette: Callable[[Tensor], Tensor], key=PRACTICE, off=True) -> None:
    """``silhouette(layer)`` -> which pixels are not zero, (196,), from signs (units, 196)."""
    for trial in range(TRIALS):
        rng = draws(key, "silhouette", str(trial))
        x, y = digits(rng, 1)
        layer = first_layer(rng, x, y)
        while not layer.any():
            layer = first_layer(rng, x, y)
        layer = layer if off else layer[layer.any(1)]
        answer = own(silhouette, "attacks")(layer.clone())
        said = as_tensor(mask(answer, (PIXELS,), f"return {PIXELS} truth values")).bool()
        if torch.equal(said, x.flatten() != 0):
            continue
        if torch.equal(said, x.flatten() == 0):
            raise Wrong("these are the pixels that are zero")
        if torch.equal(said, (layer != 0).all(0)):
            raise Wrong(
                "a unit that is off has zeros in every column; one unit that is on is enough"
            )
        raise Wrong("a pixel is not zero if some unit has a sign in its column")


@exercise("The candidate whose own silhouette agrees best.")
def check_name(name: Callable[[Tensor, Tensor], int], key=PRACTICE, spoiled=True) -> None:
    """``name(mask, pool)`` -> the index of the candidate (n, 196) whose nonzero pixels fit best."""
    for trial in range(2 * TRIALS):
        rng = draws(key, "name", str(trial))
        pool = digits(rng, 40)[0].flatten(1)
        right = 1 + int(torch.randint(39, (1,), generator=rng))
        pool[right - 1] = pool[right]  # a candidate that has all of its pixels, and more
        pool[right - 1, torch.randperm(PIXELS, generator=rng)[:40]] = 1.0
        seen = pool[right] != 0
        if spoiled:  # some pixels were read wrongly
            wrong = torch.randperm(PIXELS, generator=rng)[:6]
            seen[wrong] = ~seen[wrong]
        if int((seen != (pool != 0)).sum(1).argmin()) != right:
            continue
        found = int(
            number(own(name, "attacks", "metrics")(seen.clone(), pool.clone()), "the index")
        )
        if found == right:
            continue
        if found == int((seen & (pool != 0)).sum(1).argmax()):
            raise Wrong("pixels that only the candidate has must count against it, too")
        raise Wrong("the fewest disagreements win; some pixels may have been read wrongly")


@exercise("A number from 0 to 99. Whether it is the right one, the grader knows.")
def check_index_form(who: int) -> None:
    if not 0 <= number(who, "the index") < 100:
        raise Wrong("an index from 0 to 99")


@exercise("That was the client's picture.")
def check_who(who: int, key: str) -> None:
    if int(number(who, "the index")) != captured(key)[1]:
        raise Wrong("another candidate is behind the upload")


@exercise("No zero leaves any more, and nothing else has changed.")
def check_filled(kind: type[Defense], key=PRACTICE, alone=True) -> None:
    """``Filled``: as ``Signs``, with a random sign in place of each zero, from the client's rng."""
    for trial in range(2):
        seed = draws(key, "filled", str(trial)).initial_seed() % 2**31
        rng = torch.Generator().manual_seed(seed)
        x, y = digits(rng, 3)
        net = network(rng)
        bare = share(net, x, y, each=1).tensors
        got, same, other = (
            share(net, x, y, _made(kind), each=1, seed=s).tensors for s in (trial, trial, trial + 9)
        )
        for name, t in bare.items():
            size = t.abs().flatten(1).mean(1).view(-1, *[1] * (t.dim() - 1))
            kept = t != 0
            if (got[name] == 0)[(size > 0).expand_as(t)].any():
                raise Wrong(f"{name} still has zeros")
            if not torch.allclose(got[name][kept], signs(t)[kept], rtol=1e-4):
                raise Wrong("entries that have a sign must leave as before")
            if not torch.allclose(got[name].abs(), size.expand_as(t), rtol=1e-4):
                raise Wrong("a filled entry has the same size as the others, else it stands out")
            if not torch.equal(got[name], same[name]):
                raise Wrong("the same seed gives other signs: draw them from ctx.rngs[k]")
        if all(torch.equal(got[name], other[name]) for name in got):
            raise Wrong("every seed gives the same signs, so they are no secret")
        if alone:  # the second client by itself sends what it sent among others
            one = share(net, x[:1], y[:1], _made(kind), each=1, seed=trial).tensors
            if not all(torch.allclose(one[n][0], got[n][0], rtol=1e-3) for n in got):
                raise Wrong("a client's signs depend on its neighbors: one generator for each")


@exercise("What is drawn anew is seen to change.")
def check_patient(patient: Callable[[Tensor], Tensor], key=PRACTICE, off=True) -> None:
    """``patient(rounds)`` -> which pixels are not zero, from filled signs (T, units, 196)."""
    for trial in range(TRIALS):
        rng = draws(key, "patient", str(trial))
        x, y = digits(rng, 1)
        layer = first_layer(rng, x, y)
        while not layer.any():
            layer = first_layer(rng, x, y)
        layer = layer if off else layer[layer.any(1)]
        rounds = torch.stack([filled(layer, rng) for _ in range(MANY)])
        answer = own(patient, "attacks")(rounds)
        said = as_tensor(mask(answer, (PIXELS,), f"return {PIXELS} truth values")).bool()
        if int((said != (x.flatten() != 0)).sum()) <= 1:  # luck may keep one coin for 24 rounds
            continue
        if int((said != (x.flatten() == 0)).sum()) <= 1:
            raise Wrong("these are the pixels that are zero")
        if said.all():
            raise Wrong("one round has no zeros; hold the rounds against each other")
        raise Wrong("a pixel is not zero if some unit never changes its sign there")


@exercise("That was the client's picture, in spite of the coins.")
def check_who_again(who: int, key: str) -> None:
    if int(number(who, "the index")) != captured(key)[2]:
        raise Wrong("another candidate is behind the sixteen rounds")
