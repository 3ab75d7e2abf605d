"""Checks for the exercises of the chapter "Cutting gradients": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from ...defenses.prune import largest
from ...runtime import generator
from ..check import TRIALS, Wrong, exercise, number, tensor


@exercise("Per tensor, by magnitude, and ties stay.")
def check_prune(prune: Callable[[Tensor, float], Tensor]) -> None:
    """``prune(t, rate)`` -> t with the entries below its ``rate`` quantile of |t| set to zero."""
    for trial in range(TRIALS):
        t = torch.randn(7, 5, generator=generator(trial))
        ties = torch.randn(4, 4, generator=generator(trial)).sign() * 0.5
        for given, rate in ((t, 0.3 + 0.15 * trial), (ties, 0.5)):
            found = tensor(prune(given.clone(), rate), tuple(given.shape), "the answer").to(t)
            keep = largest(given[None], rate)[0]
            if torch.equal(found, given * keep):
                continue
            if given is ties and not found.any():
                raise Wrong(
                    "all entries are equally large and you removed them all: only what is strictly "
                    "below the quantile goes"
                )
            if torch.equal(found, given * ~keep):
                raise Wrong("you kept the small entries and removed the large ones")
            if torch.equal(found, given * (given >= given.quantile(rate))):
                raise Wrong("large negative entries went too: compare magnitudes, |t|")
            if not torch.equal(found[found != 0], given[found != 0]):
                raise Wrong("entries that stay must keep their value and sign")
            raise Wrong(f"at rate {rate:.2f} you kept {int((found != 0).sum())} of {given.numel()}"
                        f" entries; {int(keep.sum())} should stay")  # fmt: skip


@exercise("The search now compares with what was said, not with silence.")
def check_masked_distance(masked_distance: Callable[[dict, dict], Tensor]) -> None:
    """``masked_distance(mine, sent)`` -> sum of squared differences over the entries sent."""
    for trial in range(TRIALS):
        rng = generator(trial)
        sent = {n: torch.randn(s, generator=rng) for n, s in (("a", (4, 3)), ("b", (5,)))}
        sent = {n: t * largest(t[None], 0.5)[0] for n, t in sent.items()}
        mine = {n: torch.randn(t.shape, generator=rng) for n, t in sent.items()}
        found = tensor(masked_distance(dict(mine), dict(sent)), (), "the sum").float()
        parts = {n: (mine[n] - t).square() for n, t in sent.items()}
        want = cast(Tensor, sum((p * (sent[n] != 0)).sum() for n, p in parts.items()))
        if torch.allclose(found, want, rtol=1e-4):
            continue
        if torch.allclose(found, cast(Tensor, sum(p.sum() for p in parts.values())), rtol=1e-4):
            raise Wrong("zeros of the upload still count: they mean “not said”, not “zero”")
        if torch.allclose(found, want.sqrt(), rtol=1e-4):
            raise Wrong("that is the root; the sum of squares itself is asked for")
        means = sum((p * (sent[n] != 0)).sum() / p.numel() for n, p in parts.items())
        if torch.allclose(found, cast(Tensor, means), rtol=1e-4):
            raise Wrong("you took means; tensors of different sizes then count differently")
        raise Wrong(f"the sum over sent entries of both tensors is {want:.3f}, yours {found:.3f}")


@exercise("Not one value was needed: where the large entries stand is enough.")
def check_label_from_mask(label_from_mask: Callable[[Tensor], int]) -> None:
    """``label_from_mask(mask)`` -> the label, from which entries (m, D) of the head were sent."""
    for trial in range(TRIALS):
        rng = generator(trial)
        p = torch.randn(6, generator=rng).softmax(0)
        y = int(torch.randint(6, (), generator=rng))
        delta = p - torch.eye(6)[y]
        g = torch.outer(delta, torch.rand(40, generator=rng))
        mask = largest(g[None], 0.8)[0]
        found = int(number(label_from_mask(mask.clone()), "the label"))
        if found == y:
            continue
        if found == int(mask.sum(1).argmin()):
            raise Wrong("you took the row with the fewest entries; the label's row is the largest")
        if found >= len(mask):
            raise Wrong("that is no class: sum over the features (dim 1), not over the classes")
        raise Wrong(f"the label is {y}, you found {found}; count the entries sent in each row")


@exercise("Exactly: what was kept had rank enough, and zeros were left alone.")
def check_solve(solve_image: Callable[[Callable, Tensor, Tensor], Tensor]) -> None:
    """``solve_image(h, sent, v)`` -> the image (n,) behind the entries of ``sent`` not zero."""
    for trial in range(TRIALS):
        h, x = _small_network(generator(trial))
        g = h(x)
        sent = g * largest(g[None], 0.6)[0]
        start = torch.full_like(x, 0.5)
        found = tensor(
            solve_image(h, sent.clone(), start.clone()), (len(x),), "the image", "did it diverge?"
        )
        if (found - x).abs().max() > 1e-3:
            raise _why_not(h, sent, start, found)


def _small_network(rng: torch.Generator) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Pixels (6,) -> the gradient of a sigmoid network with 10 units; and a private image."""
    w, b, u = (torch.randn(s, generator=rng).double() for s in ((10, 6), (10,), (3, 10)))

    def h(v: Tensor) -> Tensor:
        r = (w @ v + b).sigmoid()
        delta = (u @ r).softmax(0) - torch.eye(3).double()[1]
        signal = (u.T @ delta) * r * (1 - r)
        parts = (torch.outer(signal, v), signal, torch.outer(delta, r), delta)
        return torch.cat([p.flatten() for p in parts])

    return h, torch.rand(6, generator=rng).double()


def damped(h: Callable, sent: Tensor, v: Tensor, keep: Tensor, steps: int = 40) -> Tensor:
    """Gauss–Newton with damping on the entries in ``keep``."""
    damp, rest = 1e-2, (h(v) - sent)[keep]
    for _ in range(steps):
        j = torch.func.jacfwd(h)(v)[keep]
        a = j.T @ j
        new = v - torch.linalg.solve(a + damp * torch.diag(a.diagonal() + 1e-12), j.T @ rest)
        trial = (h(new) - sent)[keep]
        fell = bool(trial @ trial < rest @ rest)
        v, rest, damp = (new, trial, damp / 10) if fell else (v, rest, 4 * damp)
    return v


def _why_not(h: Callable, sent: Tensor, start: Tensor, found: Tensor) -> Wrong:
    """What is wrong with a solution."""
    keep = sent != 0
    cost = {n: (h(v) - sent)[keep].square().sum() for n, v in (("start", start), ("found", found))}
    if torch.equal(found, start):
        return Wrong("this is still the start: take steps")
    if (found - damped(h, sent, start, torch.ones_like(keep))).abs().max() < 0.02:
        return Wrong("zeros still count as equations: keep only rows and residuals that were sent")
    if cost["found"] > cost["start"]:
        return Wrong("you are farther off than at the start: check the sign of the step, and damp")
    return Wrong("you are nearer than at the start, and not there: linearize again, more often")
