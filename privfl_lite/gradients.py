"""The gradient of one step and the update of several, as pure functions of weights and data.

Clients use these to train and attackers to imitate them. They work on *many clients at once*: data
carry a leading axis U, and so do the results. ``torch.func`` does the bookkeeping, and everything
can be differentiated again with respect to the data, which is what an attack needs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

Tensors = dict[str, Tensor]
M = TypeVar("M", bound=nn.Module)


def weights(model: nn.Module) -> Tensors:
    """θ by name: the trainable weights, detached and copied."""
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def as_rows(t: Tensor) -> Tensor:
    """(K, *shape) as K vectors; a weight that is a single number has a shape of ()."""
    return t.reshape(len(t), -1)


def norm(tensors: Tensors) -> Tensor:
    """Euclidean norm of each client's tensors (K, *shape) taken as one vector, (K,)."""
    return torch.stack([as_rows(t).pow(2).sum(1) for t in tensors.values()]).sum(0).sqrt()


def flat(tensors: Tensors) -> Tensor:
    """Each client's tensors (K, *shape) as one vector, (K, d), in the order of the model."""
    return torch.cat([as_rows(t) for t in tensors.values()], 1)


def clip(tensors: Tensors, bound: float, per: str = "update") -> tuple[Tensors, Tensor]:
    """Each client's tensors (K, *shape), shortened to a length of at most ``bound`` where longer.

    ``per="update"``: all tensors are one vector. ``per="layer"``: each tensor is shortened by
    itself, so the whole may be as long as √L · ``bound`` for L tensors. The second result (K,) is
    the largest length that is left: of the vector, or of one of the tensors.
    """
    groups = [tensors] if per == "update" else [{n: t} for n, t in tensors.items()]
    out: Tensors = {}
    left = []
    for group in groups:
        long = norm(group)
        scale = (bound / long.clamp(min=1e-30)).clamp(max=1.0)
        out |= {n: t * per_client(scale, t) for n, t in group.items()}
        left.append(long * scale)
    return out, torch.stack(left).amax(0)


def per_client(values: Tensor, like: Tensor) -> Tensor:
    """One number per client (K,), shaped so that it multiplies the client's tensor (K, *shape)."""
    return values.to(like).view(-1, *[1] * (like.dim() - 1))


def stateless(model: M, mode: str) -> M:
    """A copy that computes in ``mode`` and leaves no trace in itself.

    "eval": batch norm uses its running statistics. "train": it uses those of the batch; the running
    ones are dropped, since a gradient in this mode does not depend on them.
    """
    model = copy.deepcopy(model).train(mode == "train")
    if mode == "train":
        for m in model.modules():
            if isinstance(m, nn.modules.batchnorm._BatchNorm):
                m.running_mean = m.running_var = m.num_batches_tracked = None
                m.track_running_stats = False
    return model.requires_grad_(False)


def loss_function(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """ℓ(logits, y): mean cross-entropy; y holds class indices or distributions.

    A layer may add to it: what its last forward pass left in an attribute ``penalty`` (PRECODE).
    """
    asking = [m for m in model.modules() if hasattr(m, "penalty")]

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return sum((cast(Tensor, m.penalty) for m in asking), cross_entropy(logits, y))

    return loss


def batch_loss(model: nn.Module) -> Callable[[Tensors, Tensor, Tensor], Tensor]:
    """ℓ(theta, x, y): the loss of one batch at weights θ."""
    loss = loss_function(model)
    return lambda theta, x, y: loss(functional_call(model, theta, (x,)), y)


def gradient_function(model: nn.Module) -> Callable[..., Tensors]:
    """g(theta, x, y, own=None): gradients at shared weights θ of the mean losses of U batches.

    x: (U, B, C, H, W); y: (U, B) or (U, B, classes); result: name -> (U, *shape). ``own`` are
    weights and buffers that each of the U has for itself, (U, *shape), in place of shared ones.
    """
    loss, kept = batch_loss(model), {n for n, _ in model.named_buffers()}
    one = grad(loss)
    many = vmap(one, in_dims=(None, 0, 0), randomness="different")

    def gradient(theta: Tensors, x: Tensor, y: Tensor, own: Tensors | None = None) -> Tensors:
        if own:
            fixed = {n: t for n, t in own.items() if n in kept}
            theta = theta | {n: t for n, t in own.items() if n in theta}
            axes = {n: 0 if n in own else None for n in theta}
            each = grad(lambda theta, fixed, x, y: loss(theta | fixed, x, y))
            return vmap(each, (axes, 0, 0, 0), randomness="different")(theta, fixed, x, y)
        if len(x) == 1:  # without vmap, which costs a tenth
            return {n: t[None] for n, t in one(theta, x[0], y[0]).items()}
        return many(theta, x, y)

    return gradient


def own_gradient(model: nn.Module) -> Callable[[Tensor, Tensor], Tensors]:
    """g(x, y): ``gradient_function`` at the model's own weights, quicker for one batch (U = 1).

    That is plain autograd then, which gives the same bits; inside a transform of ``torch.func`` it
    would miss what they follow. The model's weights are made to ask for gradients: hand it a copy.
    """
    own, loss, many = dict(model.named_parameters()), loss_function(model), gradient_function(model)
    theta = weights(model.requires_grad_())

    def gradient(x: Tensor, y: Tensor) -> Tensors:
        if len(x) > 1 or torch._C._functorch.peek_interpreter_stack() is not None:
            return many(theta, x, y)
        again = torch.is_grad_enabled() and (x.requires_grad or y.requires_grad)
        with torch.enable_grad():
            f = loss(model(x[0]), y[0])
        g = torch.autograd.grad(f, list(own.values()), create_graph=again, materialize_grads=True)
        return {n: t[None] for n, t in zip(own, g, strict=True)}

    return gradient


def passes(model: nn.Module) -> Callable[[Tensors, Tensor, Tensor], tuple[Tensors, Tensor]]:
    """f(theta, x, y): gradients of the mean losses of U batches, (U, *shape), and their logits.

    x: (U, N, C, H, W); y: (U, N, classes); θ is shared or has a leading U. In eval mode.
    """
    net = stateless(model, "eval")
    loss, ranks = loss_function(net), {n: p.dim() for n, p in net.named_parameters()}

    def one(theta: Tensors, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = functional_call(net, theta, (x,))
        return loss(logits, y), logits

    def many(theta: Tensors, x: Tensor, y: Tensor) -> tuple[Tensors, Tensor]:
        axes = {n: 0 if t.dim() > ranks[n] else None for n, t in theta.items()}
        return vmap(grad(one, has_aux=True), (axes, 0, 0), randomness="different")(theta, x, y)

    return many


def update_function(
    model: nn.Module, eta: float, steps: Sequence[Tensor], momentum: float = 0.0
) -> Callable[[Tensors, Tensor, Tensor], Tensors]:
    """Δ(theta, x, y): what SGD from θ adds to it, for each of U clients.

    Step s uses the client's examples ``steps[s]``, indices into x[u]. The steps are unrolled, so Δ
    can be differentiated with respect to x.
    """
    step_gradient = grad(batch_loss(model))

    def one_client(theta: Tensors, x: Tensor, y: Tensor) -> Tensors:
        moved, velocity = theta, {n: torch.zeros_like(w) for n, w in theta.items()}
        for take in (rows.to(x.device) for rows in steps):
            g = step_gradient(moved, x[take], y[take])
            velocity = {n: momentum * velocity[n] + g[n] for n in g} if momentum else g
            moved = {n: w - eta * velocity[n] for n, w in moved.items()}
        return {n: moved[n] - theta[n] for n in theta}

    return vmap(one_client, in_dims=(None, 0, 0), randomness="different")
