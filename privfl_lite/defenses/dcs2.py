"""DCS² (Wu et al. 2024): hide a sensitive sample's gradient behind that of a crafted image.

Chapter "DCS²: concealing sensitive samples". Cross-entropy is linear in the label distribution, so
Eq. 10 is the gradient of a batch with one more image x̃, labeled λg ỹ + (1 − λg) y_s. The sensitive
gradient still leaves: nothing is bounded; an attacker must look for two images instead of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple, cast

import torch
from torch import Generator, Tensor
from torch.linalg import vector_norm
from torch.nn.functional import cosine_similarity, one_hot

from ..arrays import Images, Labels, Pictures
from ..gradients import Tensors, flat, passes, per_client
from ..models import Net
from ..runtime import PrivflError, progress
from ..values import Count, Holds, NotNegative, Positive, Unit, Whole, Wholes, Word
from ..wire import Facts
from .base import Context, Defense, Memory
from .mixing import distributions

ELEMENTS = 2**26  # numbers in the gradients of the samples that are crafted at once
# M concealed samples to craft, A sensitive mates each: x_s (M, A, C, H, W), y_s (M, A, classes);
# and where they start: x_0 (M, C, H, W), one-hot ỹ (M, classes)
Task = tuple[Tensor, Tensor, Tensor, Tensor]


class Crafted(NamedTuple):
    """M concealed samples; history: Eq. 9, cosine, pixel distance, relative logit distance."""

    images: Tensor  # x̃ (M, C, H, W)
    labels: Tensor  # ỹ (M,)
    soft: Tensor  # λg ỹ + (1 − λg) y_s, (M, classes)
    history: Tensor  # (M, 4, steps + 1)


@dataclass(frozen=True, eq=False)
class DCS2(Defense):
    """Craft x̃ by Eq. 9, mix its gradient into the batch's by Eq. 10, project by Eq. 11–12.

    ``sensitive``: "all", classes, or the images themselves (n, C, H, W), looked for in every batch.
    ``clients``: who is defended; None is all. ``ratio``: sensitive to concealed, as in §8.3: "5:1"
    is one x̃ for five samples (a short group is filled up from the first), "1:5" five for each. Over
    the mates of an x̃, gradients and both distances are averaged, the latter inside e^(−λx·).
    ``start``: "noise" (uniform in a box, else normal) with a random label; "sample", an image of
    ``pool`` with its label; "mixup", 0.7 of that and 0.3 of x_s. The tables start from samples;
    noise needs no other data and did as well (Table 5). ``pool``: images or (images, labels), of
    any data set; without labels they are random. (Released code: noise with a sample's label; its
    flag ``--mixup`` turns mixup off.) ``box`` keeps x̃ in [0, 1]; neither paper nor code does.

    ``lambda_x``, ``far``, ``lr`` are for images in [0, 1]; the code's are in units of std: on MNIST
    its 0.01, 300, 0.1 are 0.032, 92, 0.031 here. ``far`` ends crafting beyond that distance (code
    only). Adam, its drops by 10 after 3/8, 5/8 and 7/8 of the steps, and logits for f are the
    code's; but each x̃ has its own cosine, where the code has one for a batch's mean gradients.
    ``eps`` has no effect inside the sum of Eq. 9; with ``hinge`` only more than it counts (Eq. 8).
    ``scale="mean"``: mean over the B + M samples of the augmented batch, as in Eq. 4, so that η
    keeps its meaning; "sum": Eq. 10 as printed, (B + M)/B times that; "code": batch mean plus
    concealed mean, over 3 (over 2 for λg 0 or 1). What concerns x̃ is computed in eval mode.
    """

    lambda_g: Unit = 0.7
    lambda_x: NotNegative = 0.01
    lambda_z: NotNegative = 0.01
    eps: NotNegative = 0.01
    steps: Count = 1000
    lr: Positive = 0.1
    ratio: Annotated[str, Holds("sensitive:concealed, as 1:1, 5:1, 1:5", _is_ratio)] = "1:1"
    sensitive: Annotated[str, Word("sensitive", "all")] | Whole | Wholes | Images = "all"
    clients: Whole | Wholes | None = None
    start: Annotated[str, Word("start", "noise", "sample", "mixup")] = "noise"
    pool: Pictures | tuple[Pictures, Labels | None] | None = None
    box: bool = False
    far: Positive | None = None
    hinge: bool = False
    scale: Annotated[str, Word("scale", "mean", "sum", "code")] = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start != "noise" and self.pool is None:
            raise PrivflError(f"start={self.start!r} needs pool=, the images to start from")

    def gradient(self, g: Tensors, ctx: Context) -> Tensors:
        """Algorithm 1 for K clients at once; g (K, *shape) is the batch's, as it comes here."""
        x = cast(Tensor, ctx.x)  # (K, B, C, H, W)
        y = torch.stack([distributions(t, ctx.model.num_classes) for t in ctx.y]).to(x)
        who, tasks = ctx.who, {}
        for k, client in enumerate(who):
            rows = self._sensitive(x[k], y[k], client)
            if len(rows):
                tasks[k] = self.task(x[k][rows], y[k][rows], ctx.rngs[k])
        made = dict(zip(tasks, self.search(ctx.model, ctx.theta, tasks), strict=True))
        run, mixed = passes(ctx.model), {n: t.clone() for n, t in g.items()}
        for k, (images, _, soft, _) in made.items():
            a, b = self.weights(x.shape[1], len(images))
            hidden, _ = run({n: t[k] for n, t in ctx.theta.items()}, images[None], soft[None])
            for n, t in hidden.items():
                mixed[n][k] = a * g[n][k] + b * t[0]
        for k, client in enumerate(who):
            ctx.memory[client].clear()
            if k in made:
                ctx.memory[client].update(made[k]._asdict(), batch=y[k])
        return project(g, mixed)[0]

    def weights(self, batch: int, concealed: int) -> tuple[float, float]:
        """Eq. 10's weights of the batch's mean gradient and of the concealed samples' mean."""
        if self.scale == "code":
            return (1 / 3, 1 / 3) if 0 < self.lambda_g < 1 else (1 / 2, 1 / 2)
        whole = batch if self.scale == "sum" else batch + concealed
        return batch / whole, concealed / whole

    def craft(self, model: Net, theta: Tensors, x: Tensor, y: Tensor, rng: Generator) -> Crafted:
        """Conceal x (S, C, H, W) with labels y, (S,) or (S, classes), at weights θ."""
        task = self.task(x, distributions(y, model.num_classes).to(x), rng)
        return self.search(model, {n: t[None] for n, t in theta.items()}, {0: task})[0]

    def task(self, x: Tensor, y: Tensor, rng: Generator) -> Task:
        """Who conceals whom among S samples of one client, y (S, classes); and the starts."""
        many, few = map(int, self.ratio.split(":"))
        mates = torch.arange(-(-len(x) // many) * many, device=x.device).view(-1, many) % len(x)
        mates = mates.repeat_interleave(few, 0)  # (M, A)
        images, labels = self.pool if isinstance(self.pool, tuple) else (self.pool, None)
        m, classes = len(mates), y.shape[1]
        y_c = torch.randint(classes, (m,), generator=rng)
        if self.start == "noise":
            x_0 = (torch.rand if self.box else torch.randn)(m, *x.shape[1:], generator=rng).to(x)
        else:
            assert images is not None  # __post_init__ saw to that
            _check_pool(images, labels, x, classes)
            taken = torch.randint(len(images), (m,), generator=rng)
            x_0, y_c = images[taken].to(x), y_c if labels is None else labels[taken].cpu()
        if self.start == "mixup":
            x_0 = 0.7 * x_0 + 0.3 * x[mates].mean(1)
        return x[mates], y[mates], x_0, one_hot(y_c, classes).to(x)

    def search(self, model: Net, theta: Tensors, tasks: dict[int, Task]) -> list[Crafted]:
        """Minimize Eq. 9 for the tasks of clients k at their weights θ (K, *shape), all at once."""
        if not tasks:
            return []
        each = [k for k, (_, _, x_0, _) in tasks.items() for _ in x_0]
        owner = torch.tensor(each, device=next(iter(theta.values())).device)
        same = all(len(t) == 1 or t.stride(0) == 0 for t in theta.values())
        whole, parts = [torch.cat(t) for t in zip(*tasks.values(), strict=True)], []
        everyone = torch.arange(len(owner), device=owner.device)
        for now in everyone.split(max(1, ELEMENTS // model.num_parameters)):
            own = {n: t[0] if same else t[owner[now]] for n, t in theta.items()}
            task = cast(Task, tuple(t[now] for t in whole))
            parts.append(self._descend(passes(model), own, task))
        made = [torch.cat(t) for t in zip(*parts, strict=True)]
        return [Crafted(*(t[owner == k] for t in made)) for k in tasks]

    def _descend(self, run: Callable, theta: Tensors, task: Task) -> Crafted:
        """Adam on Eq. 9, one row a concealed sample; the last images count."""
        x_s, y_s, x_0, y_c = task
        target, z_s = run(theta, x_s, y_s)  # name -> (M, *shape); (M, A, classes)
        target, size = flat(target), vector_norm(z_s, dim=2).clamp(min=1e-30)
        x, history = x_0.clone().requires_grad_(), []
        adam = torch.optim.Adam([x], self.lr)
        drops = [math.ceil(self.steps * part / 8) for part in (3, 5, 7)]
        slower = torch.optim.lr_scheduler.MultiStepLR(adam, drops, 0.1)
        for step in progress(range(self.steps + 1), "concealing"):
            g, z = run(theta, x[:, None], y_c[:, None])
            apart = vector_norm((x[:, None] - x_s).flatten(2), dim=2).mean(1)
            latent = (vector_norm(z - z_s, dim=2) / size).mean(1)
            angle = cosine_similarity(flat(g), target, eps=1e-15)
            cost = self.objective(angle, apart, latent)
            history.append(torch.stack([cost, angle, apart, latent], 1).detach())
            moving = apart.detach() <= (self.far or math.inf)
            if step == self.steps or not moving.any():
                break
            (x.grad,), before = torch.autograd.grad(cost.sum(), x), x.detach().clone()
            adam.step()
            slower.step()
            new = x.detach().clamp(0, 1) if self.box else x.detach()
            x.data = torch.where(per_client(moving, x) > 0, new, before)
        history += history[-1:] * (self.steps + 1 - len(history))
        soft = self.lambda_g * y_c + (1 - self.lambda_g) * y_s.mean(1)
        return Crafted(x.detach(), y_c.argmax(1), soft, torch.stack(history, 2))

    def objective(self, cosine: Tensor, distance: Tensor, latent: Tensor) -> Tensor:
        """Eq. 9 (M,), from cosine of gradients, pixel distance and relative logit distance."""
        over = (latent - self.eps).clamp(min=0) if self.hinge else latent - self.eps
        return (1 - cosine) + torch.exp(-self.lambda_x * distance) + self.lambda_z * over

    def _sensitive(self, x: Tensor, y: Tensor, client: int) -> Tensor:
        """Rows of one client's batch x (B, C, H, W), y (B, classes) that are to be concealed."""
        if self.clients is not None and client not in torch.tensor(self.clients):
            return torch.arange(0, device=x.device)
        if isinstance(self.sensitive, Tensor):
            return _among(x, self.sensitive).nonzero().flatten()
        if self.sensitive == "all":
            return torch.arange(len(x), device=x.device)
        chosen = torch.tensor(self.sensitive, device=y.device)
        if int(chosen.max()) >= y.shape[1]:
            raise PrivflError(f"sensitive names classes of 0…{y.shape[1] - 1}; got {chosen.max()}")
        return torch.isin(y.argmax(1), chosen).nonzero().flatten()

    def facts(self, ctx: Context) -> Facts:
        """λg; and of the last step, if each of K clients had M concealed samples, their labels
        (K, M), Eq. 10's weights, and the augmented batch's labels, (K, B + M, classes), for which
        the upload is, with ``scale="mean"``, a gradient like any other.
        """
        notes = [ctx.memory[c] for c in ctx.who]
        counts = {len(note["images"]) if note else 0 for note in notes}
        if 0 in counts or len(counts) > 1:
            return Facts(lambda_g=self.lambda_g)
        labels, soft, y = (torch.stack([n[k] for n in notes]) for k in ("labels", "soft", "batch"))
        shares = self.weights(y.shape[1], labels.shape[1])
        mixture = torch.cat([y, soft], 1)
        return Facts(lambda_g=self.lambda_g, concealed=labels, mixture=mixture, shares=shares)


def _is_ratio(text: object) -> bool:
    sides = text.split(":") if isinstance(text, str) else ()
    return (
        len(sides) == 2 and "1" in sides and all(s.isdecimal() and 0 < int(s) < 1000 for s in sides)
    )


def crafted(memory: Memory) -> dict[int, Crafted]:
    """What each client's last step made, by its number, as a run remembers it."""
    notes = {c: note for c, note in memory.clients.items() if note}
    return {c: Crafted(*(note[f] for f in Crafted._fields)) for c, note in notes.items()}


def project(g: Tensors, g_c: Tensors) -> tuple[Tensors, Tensor]:
    """Eq. 11: the vector ĝ nearest to g_c with ⟨g, ĝ⟩ ≥ 0, and v* (K,), where ĝ = g_c + v* g.

    Proof. ½‖ĝ − g_c‖² − v⟨g, ĝ⟩ is stationary at ĝ = g_c + v g; by complementary slackness v = 0 or
    0 = ⟨g, ĝ⟩ = ⟨g, g_c⟩ + v‖g‖². So v* = max(0, −⟨g, g_c⟩/‖g‖²), at a cost of O(d), not O(d³). ∎

    (Eq. 12 lacks a v: its first term is ½ v gᵀg v. As printed, it is linear and has no minimum if
    ⟨g, g_c⟩ < −½‖g‖².) With g_c = a g + b g̃, ⟨g, g_c⟩ < 0 takes cos(g, g̃) < −a‖g‖ / b‖g̃‖: a
    concealed gradient against g, and long enough. Eq. 9 aims at the opposite.
    The released code calls GEM's solver at its defaults: v = max(½, −⟨g, g_c⟩/(‖g‖² + 10⁻³)).
    """
    a = flat(g)
    v = (-(a * flat(g_c)).sum(1) / a.pow(2).sum(1).clamp(min=1e-30)).clamp(min=0)
    return {n: t + per_client(v, t) * g[n] for n, t in g_c.items()}, v


def _among(x: Tensor, images: Tensor) -> Tensor:
    """Which of x (B, …) equal one of the images (n, …), (B,)."""
    same = [bool((images.to(x) == row).flatten(1).all(1).any()) for row in x]
    return torch.tensor(same, device=x.device)


def _check_pool(images: Tensor, labels: Tensor | None, x: Tensor, classes: int) -> None:
    if images.shape[1:] != x.shape[1:] or _among(x, images).any():
        raise PrivflError(f"pool needs images {tuple(x.shape[1:])}, none of them a sensitive one")
    if labels is not None and not 0 <= labels.min() <= labels.max() < classes:
        raise PrivflError(f"labels of pool must lie in 0…{classes - 1}, or be left out")
