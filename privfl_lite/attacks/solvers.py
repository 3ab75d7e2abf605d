"""Two optimizers that solve P independent problems at once, each problem with its own steps.

A problem is a row of ``z`` (P, n). ``cost(z, rows)`` gives the costs of problems ``rows`` at ``z``,
(len(rows),). ``ticks`` counts evaluations of the cost (and may be a progress bar); ``snapshots``
lists the ticks at which to keep a copy of z. A problem whose cost is not finite at its start stays
there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..runtime import PrivflError

Cost = Callable[[Tensor, Tensor], Tensor]
SOLVER = "lbfgs-2"  # which L-BFGS made a result; "lbfgs-1" kept 30 pairs and summed in two loops
SOLVERS = {"lbfgs": SOLVER, "adam": "adam-1"}
_watching: ContextVar[tuple[set[str], ...]] = ContextVar("watching", default=())
MEMORY = 100  # pairs that L-BFGS keeps
LONG = 6000  # evaluations from which on compiling pays for itself


@contextmanager
def solvers() -> Iterator[set[str]]:
    """The solvers that work inside, such as "lbfgs-2": how a study learns what made its cells."""
    seen: set[str] = set()
    token = _watching.set((*_watching.get(), seen))
    try:
        yield seen
    finally:
        _watching.reset(token)


def _work(name: str) -> None:
    for seen in _watching.get():
        seen.add(SOLVERS[name])


def note(made_by: Iterable[str]) -> None:
    """Say that these solvers made what is used now, though they worked before."""
    for seen in _watching.get():
        seen.update(made_by)


@dataclass
class Solution:
    """Best point of each problem, and the points on the way that were asked for."""

    z: Tensor  # (P, n)
    cost: Tensor  # (P,)
    evaluations: int = 0
    snapshots: list[tuple[int, Tensor]] = field(default_factory=list)


def together(parts: list[Solution]) -> Solution:
    """Solutions of some problems after those of others, as one; who ended early stays there."""
    if len(parts) == 1:
        return parts[0]
    ticks = sorted({tick for part in parts for tick, _ in part.snapshots})
    films = [dict(part.snapshots) for part in parts]
    return Solution(
        torch.cat([part.z for part in parts]),
        torch.cat([part.cost for part in parts]),
        max(part.evaluations for part in parts),
        [(t, torch.cat([f.get(t, p.z) for f, p in zip(films, parts, strict=True)])) for t in ticks],
    )


def value_and_gradient(cost: Cost, z: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Costs (p,) and gradients (p, n). Problems are independent: one backward pass serves."""
    z = z.detach().requires_grad_()
    f = cost(z, rows)
    (g,) = torch.autograd.grad(f.sum(), z)
    return f.detach(), g


class Pairs:
    """The last pairs (s, y) of each problem, steps and changes of the gradient, in rings of slots.

    With S and Y the pairs by age, R the upper triangle of SᵀY, D its diagonal and γ = sᵀy / yᵀy of
    the newest, the two loops of Liu & Nocedal are two triangular systems (Byrd, Nocedal & Schnabel
    1994, Eq. 3.1 multiplied out): α = R⁻¹Sᵀg, q = γ(g − Yα), Hg = q + S R⁻ᵀ(Dα − Yᵀq). R⁻¹ is kept,
    in double precision: a new pair adds a column to it, an old one leaves with its row and column.
    So slots need no order, and one that is empty, with zeros there, changes nothing.
    """

    def __init__(self, z: Tensor, size: int):
        problems, n = z.shape
        self.s, self.y = (z.new_zeros(problems, size, n) for _ in range(2))
        self.inverse = z.new_zeros(problems, size, size, dtype=torch.double)  # R⁻¹
        self.curvature = self.inverse.new_zeros(problems, size)  # D
        self.count = torch.zeros(problems, dtype=torch.long, device=z.device)

    def direction(self, w: Tensor, s: Tensor, y: Tensor, g: Tensor) -> Tensor:
        """Add a pair (p, n) to each of the problems w (p,), and give −Hg (p, n) for their g."""
        curvature, slot = (s * y).sum(1), self.count[w] % self.s.shape[1]
        self.s[w, slot], self.y[w, slot], self.curvature[w, slot] = s, y, curvature.double()
        self.inverse[w, slot], self.inverse[w, :, slot] = 0.0, 0.0  # the oldest leaves
        self.count[w] += 1
        used = min(int(self.count.max()), self.s.shape[1])
        at = slice(None) if len(w) == len(self.s) else w  # views in place of copies
        old, new = self.s[at, :used], self.y[at, :used]
        dots = (torch.stack([y, g], 1) @ old.mT).double()  # (p, 2, used): products of rows are fast
        column = -dots[:, :1] @ self.inverse[at, :used, :used].mT / curvature[:, None, None]
        self.inverse[w, :used, slot] = column[:, 0]
        self.inverse[w, slot, slot] = 1 / curvature.double()
        inverse = self.inverse[at, :used, :used]
        alpha = dots[:, 1:] @ inverse.mT  # (p, 1, used)
        q = (curvature / y.square().sum(1))[:, None, None] * (g[:, None] - alpha.to(g) @ new)
        rest = self.curvature[at, None, :used] * alpha - (q @ new.mT).double()
        return -(q + (rest @ inverse).to(g) @ old)[:, 0]

    def forget(self, w: Tensor) -> None:
        self.inverse[w], self.count[w] = 0.0, 0


def compiled(cost: Cost, z: Tensor, rows: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """``value_and_gradient`` of these rows as one compiled graph, up to rounding; z: an example."""
    from torch.fx.experimental.proxy_tensor import make_fx  # a slow import, seldom needed

    graph = make_fx(lambda z: value_and_gradient(cost, z, rows))(z)
    with warnings.catch_warnings(action="ignore"):  # PyTorch's own, about its own modules
        run = torch.no_grad()(torch.compile(graph, dynamic=False))
        run(z)  # compiles
    return run


def _evaluator(
    cost: Cost, z: Tensor, rows: Tensor, steps: int, compile: bool | None
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """What ``adam`` evaluates: compiled if told to, or for a LONG search where that works."""
    if compile or (compile is None and steps >= LONG):
        try:
            return compiled(cost, z, rows)
        except Exception as error:  # no compiler, or an operator that it cannot take
            if compile:
                raise PrivflError(f"torch.compile cannot be used here: {error}") from error
    return lambda z: value_and_gradient(cost, z, rows)


def lbfgs(
    cost: Cost,
    z: Tensor,
    ticks: Iterable[int],
    snapshots: Collection[int] = (),
    memory: int = MEMORY,
) -> Solution:
    """Limited-memory BFGS (Liu & Nocedal 1989), one evaluation of every open problem a tick.

    The line search is that of Lewis & Overton (2013): halve the step while the cost does not fall
    enough, double it while the slope is still steep. It needs no interpolation, so each problem can
    be at its own stage of its own search. A cost that is not finite counts as "does not fall". A
    problem closes when no step along its gradient lowers its cost any more.
    """
    _work("lbfgs")
    rows = torch.arange(len(z), device=z.device)
    z, pairs = z.detach().clone(), Pairs(z, memory)
    f, g = value_and_gradient(cost, z, rows)
    still = f.isfinite() & g.isfinite().all(1)
    d, low, high, t = -g, torch.zeros_like(f), torch.full_like(f, torch.inf), _first_step(g)
    out = Solution(z, f, 1)
    for tick in ticks:
        rows = still.nonzero().flatten()
        if not len(rows):
            break
        at = slice(None) if len(rows) == len(z) else rows  # views in place of copies
        trial = z[at] + t[at, None] * d[at]
        f_new, g_new = value_and_gradient(cost, trial, rows)
        out.evaluations += 1
        slope = (g[at] * d[at]).sum(1)
        falls = (f_new <= f[at] + 1e-4 * t[at] * slope) & g_new.isfinite().all(1)
        ok = falls & ((g_new * d[at]).sum(1) >= 0.9 * slope)
        if ok.any():  # these step, learn the curvature and choose a new direction
            of = slice(None) if ok.all() else ok
            w, z_w, g_w = rows[of], trial[of], g_new[of]
            d[w] = pairs.direction(w, z_w - z[w], g_w - g[w], g_w)
            z[w], f[w], g[w] = z_w, f_new[of], g_w
            low[w], high[w], t[w] = 0.0, torch.inf, 1.0
        if not ok.all():  # these search on along the same direction
            w, falls = rows[~ok], falls[~ok]
            low[w], high[w] = torch.where(falls, t[w], low[w]), torch.where(falls, high[w], t[w])
            t[w] = torch.where(high[w].isinf(), 2 * low[w], (low[w] + high[w]) / 2)
            stuck = w[high[w] - low[w] < 1e-7 * high[w]]
            again = stuck[pairs.count[stuck] > 0]  # once more along the gradient, then close
            still[stuck] = False
            still[again] = True
            d[again], low[again], high[again] = -g[again], 0.0, torch.inf
            t[again] = _first_step(g[again])
            pairs.forget(again)
        if tick in snapshots:
            out.snapshots.append((tick, z.clone()))
    return out


def _first_step(g: Tensor) -> Tensor:
    """A short first step along −g, since nothing is known of the curvature yet."""
    return (1 / g.abs().sum(1)).clamp(max=1.0)


def adam(
    cost: Cost,
    z: Tensor,
    ticks: Iterable[int],
    steps: int,
    snapshots: Collection[int] = (),
    rate: float = 0.1,
    project: Callable[[Tensor], Tensor] = lambda z: z,
    compile: bool | None = False,
) -> Solution:
    """Signed Adam with three drops of the rate, as in Inverting Gradients (Geiping et al. 2020).

    The gradient is replaced by its sign before Adam sees it; the rate falls to a tenth after 3/8,
    5/8 and 7/8 of the steps; ``project`` puts z back into its box. Keeps the best point of each
    problem by cost. ``compile`` as in ``Matching``. Its steps are those of ``torch.optim.Adam``, to
    the bit, in a fraction of the time.
    """
    _work("adam")
    z = z.detach().clone()
    evaluate = _evaluator(cost, z, torch.arange(len(z), device=z.device), steps, compile)
    mean, square = torch.zeros_like(z), torch.zeros_like(z)
    drops = [steps * k // 8 for k in (3, 5, 7)]
    out = Solution(z.clone(), torch.full_like(z[:, 0], torch.inf))
    for step, tick in enumerate(ticks):
        f, g = evaluate(z)
        out.evaluations += 1
        better = f < out.cost
        out.z, out.cost = torch.where(better[:, None], z, out.z), torch.where(better, f, out.cost)
        if tick in snapshots:
            out.snapshots.append((tick, out.z))
        sign, rate = g.sign().nan_to_num(0.0), rate * 0.1 ** drops.count(step)
        mean.lerp_(sign, 1 - 0.9)
        square.mul_(0.999).addcmul_(sign, sign, value=1 - 0.999)
        width = (square.sqrt() / (1 - 0.999 ** (step + 1)) ** 0.5).add_(1e-8)
        z = project(z.addcdiv(mean, width, value=-rate / (1 - 0.9 ** (step + 1))))
    return out
