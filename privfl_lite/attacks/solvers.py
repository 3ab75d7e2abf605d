"""Two optimizers that solve P independent problems at once, each problem with its own steps.

A problem is a row of ``z`` (P, n). ``cost(z, rows)`` gives the costs of problems ``rows`` at ``z``,
(len(rows),). ``ticks`` counts evaluations of the cost (and may be a progress bar); ``snapshots``
lists the ticks at which to keep a copy of z. A problem whose cost is not finite at its start stays
there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

Cost = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Solution:
    """Best point of each problem, and the points on the way that were asked for."""

    z: Tensor  # (P, n)
    cost: Tensor  # (P,)
    evaluations: int = 0
    snapshots: list[tuple[int, Tensor]] = field(default_factory=list)


def value_and_gradient(cost: Cost, z: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Costs (p,) and gradients (p, n). Problems are independent: one backward pass serves."""
    z = z.detach().requires_grad_()
    f = cost(z, rows)
    (g,) = torch.autograd.grad(f.sum(), z)
    return f.detach(), g


def lbfgs(
    cost: Cost, z: Tensor, ticks: Iterable[int], snapshots: Collection[int] = (), memory: int = 30
) -> Solution:
    """Limited-memory BFGS (Liu & Nocedal 1989), one evaluation of every open problem a tick.

    The line search is that of Lewis & Overton (2013): halve the step while the cost does not fall
    enough, double it while the slope is still steep. It needs no interpolation, so each problem can
    be at its own stage of its own search. A cost that is not finite counts as "does not fall". A
    problem closes when no step along its gradient lowers its cost any more.
    """
    rows = torch.arange(len(z), device=z.device)
    z = z.detach().clone()
    f, g = value_and_gradient(cost, z, rows)
    still = f.isfinite() & g.isfinite().all(1)
    s, y = (z.new_zeros(len(z), memory, z.shape[1]) for _ in range(2))
    rho = z.new_zeros(len(z), memory)  # 0 marks an empty slot, which then changes nothing
    d, low, high, t = -g, torch.zeros_like(f), torch.full_like(f, torch.inf), _first_step(g)
    out = Solution(z, f, 1)
    for tick in ticks:
        rows = still.nonzero().flatten()
        if not len(rows):
            break
        trial = z[rows] + t[rows, None] * d[rows]
        f_new, g_new = value_and_gradient(cost, trial, rows)
        out.evaluations += 1
        slope = (g[rows] * d[rows]).sum(1)
        falls = (f_new <= f[rows] + 1e-4 * t[rows] * slope) & g_new.isfinite().all(1)
        flat = (g_new * d[rows]).sum(1) >= 0.9 * slope
        high[rows[~falls]] = t[rows[~falls]]
        low[rows[falls & ~flat]] = t[rows[falls & ~flat]]

        ok = falls & flat
        w = rows[ok]  # these step, learn the curvature and choose a new direction
        s[w], y[w] = _push(s[w], trial[ok] - z[w]), _push(y[w], g_new[ok] - g[w])
        rho[w] = _push(rho[w], 1 / (s[w, -1] * y[w, -1]).sum(1))
        z[w], f[w], g[w] = trial[ok], f_new[ok], g_new[ok]
        d[w] = -_inverse_hessian(g[w], s[w], y[w], rho[w])
        low[w], high[w], t[w] = 0.0, torch.inf, 1.0

        w = rows[~ok]  # these search on along the same direction
        t[w] = torch.where(high[w].isinf(), 2 * low[w], (low[w] + high[w]) / 2)
        stuck = w[high[w] - low[w] < 1e-7 * high[w]]
        again = stuck[rho[stuck].any(1)]  # once more along the gradient itself, then close
        still[stuck] = False
        still[again] = True
        rho[again], d[again], low[again], high[again] = 0.0, -g[again], 0.0, torch.inf
        t[again] = _first_step(g[again])
        if tick in snapshots:
            out.snapshots.append((tick, z.clone()))
    return out


def _first_step(g: Tensor) -> Tensor:
    """A short first step along −g, since nothing is known of the curvature yet."""
    return (1 / g.abs().sum(1)).clamp(max=1.0)


def _push(slots: Tensor, new: Tensor) -> Tensor:
    """Drop the oldest of the slots (p, m, …) and append the newest."""
    return torch.cat([slots[:, 1:], new[:, None]], 1)


def _inverse_hessian(g: Tensor, s: Tensor, y: Tensor, rho: Tensor) -> Tensor:
    """The two-loop recursion: approximate inverse Hessian times g (p, n); s, y are (p, m, n)."""
    q, alphas = g.clone(), []
    for i in reversed(range(rho.shape[1])):
        alphas.append(rho[:, i] * (s[:, i] * q).sum(1))
        q -= alphas[-1][:, None] * y[:, i]
    q /= (rho[:, -1] * y[:, -1].pow(2).sum(1))[:, None]
    for i, alpha in enumerate(reversed(alphas)):
        beta = rho[:, i] * (y[:, i] * q).sum(1)
        q += (alpha - beta)[:, None] * s[:, i]
    return q


def adam(
    cost: Cost,
    z: Tensor,
    ticks: Iterable[int],
    steps: int,
    snapshots: Collection[int] = (),
    rate: float = 0.1,
    project: Callable[[Tensor], Tensor] = lambda z: z,
) -> Solution:
    """Signed Adam with three drops of the rate, as in Inverting Gradients (Geiping et al. 2020).

    The gradient is replaced by its sign before Adam sees it; the rate falls to a tenth after 3/8,
    5/8 and 7/8 of the steps; ``project`` puts z back into its box. Keeps the best point of each
    problem by cost.
    """
    rows = torch.arange(len(z), device=z.device)
    z = z.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=rate)
    drops = [steps * k // 8 for k in (3, 5, 7)]
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, drops, gamma=0.1)
    out = Solution(z.detach().clone(), torch.full_like(z[:, 0].detach(), torch.inf))
    for tick in ticks:
        f, g = value_and_gradient(cost, z, rows)
        out.evaluations += 1
        better = f < out.cost
        out.z[better], out.cost[better] = z.detach()[better], f[better]
        if tick in snapshots:
            out.snapshots.append((tick, out.z.clone()))
        z.grad = g.sign().nan_to_num(0.0)
        optimizer.step()
        scheduler.step()
        z.data = project(z.data)
    return out
