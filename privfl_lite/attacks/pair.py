"""Two images behind one upload, told apart by linear algebra: the answer to DCS².

A defense that adds one more image to a batch of one (DCS², Eq. 10) leaves a last-layer gradient of
rank two. Four numbers separate it (``split_head``); from there the recursion of R-GAP (Zhu &
Blaschko 2021) works for both images at once, and Gauss–Newton fixes what it leaves open. The labels
must be granted, or tried. Chapter: DCS².
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from scipy.optimize import least_squares
from scipy.special import softmax
from torch import Tensor, nn
from torch.nn.functional import unfold

from ..runtime import PrivflError, generator
from ..wire import Upload
from .base import Reconstruction
from .recursive import solve

PAIR = 2


class Pair:
    """Rebuild both images behind each upload.

    ``upload.batch`` is 2 and ``knows["labels"]`` holds both label distributions (U, 2, classes).
    Works on Conv2d, Sigmoid, Flatten and a last layer with a bias (``lenet``). Singular values
    under ``tol`` of the largest count as 0; ``steps`` of Gauss–Newton; ``starts`` for the last
    layer. Images stand in the order of their labels (equal labels: in any); the cost is the squared
    error of the gradient that they have.
    """

    def __init__(self, tol: float = 1e-6, steps: int = 60, starts: int = 60):
        self.tol, self.steps, self.starts = tol, steps, starts

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        labels = upload.knows.get("labels")
        if upload.batch != PAIR or labels is None or labels.dim() != 3:
            raise PrivflError(
                "Pair needs uploads of two images and both label distributions, knows['labels'] of "
                f"shape (U, 2, classes); got batch {upload.batch}"
            )
        net = copy.deepcopy(upload.model).double().requires_grad_(False)
        known = [nn.Conv2d, nn.Sigmoid, nn.Flatten]
        if not all(type(layer) in known for layer in net.features) or net.head.bias is None:
            raise PrivflError(
                "Pair knows Conv2d, Sigmoid and Flatten, and a last layer with a bias"
            )
        found = [self._one(upload[u], net, labels[u].double(), seed) for u in range(len(upload))]
        like = upload.tensors["head.weight"]
        images = torch.stack(found).to(like)  # (U, 2, C, H, W)
        again = upload.imitator()(images, labels.to(like))
        cost = sum((again[n] - t).square().flatten(1).sum(1) for n, t in upload.tensors.items())
        return Reconstruction(images.flatten(0, 1), labels.argmax(2).flatten(), cost)

    def _one(self, upload: Upload, net: nn.Module, labels: Tensor, seed: int) -> Tensor:
        """Both images (2, C, H, W) behind one upload."""
        g = {n: t[0].double() for n, t in upload.gradients().items()}
        rng = np.random.default_rng(generator(seed).initial_seed())
        a, delta = split_head(g["head.weight"], g["head.bias"], net.head, labels, self.starts, rng)
        back, shapes = delta @ net.head.weight, [(1, *net.shape)]
        x = torch.zeros(shapes[0]).double()
        for layer in list(net.features)[:-1]:
            x = layer(x)
            shapes.append(tuple(x.shape))
        trust, hold = torch.ones_like(a), None
        for i in reversed(range(len(net.features))):
            layer, shape = net.features[i], (PAIR, *shapes[i][1:])
            if isinstance(layer, nn.Flatten):
                a, back, trust = (t.reshape(shape) for t in (a, back, trust))
            elif isinstance(layer, nn.Sigmoid):
                a = a.clamp(1e-9, 1 - 1e-9)
                trust, a = a * (1 - a), torch.logit(a)
                back = back * trust
            else:
                a, left = inputs(layer, g[f"features.{i}.weight"], back, a, trust, shape, self.tol)
                if i and left.shape[1] and hold is None:  # some directions are open
                    hold = net.features[:i], a, left
                (back,) = torch.func.vjp(layer, a)[1](back)
        return a if hold is None else refine(*hold, a, self.steps)


def inputs(
    layer: nn.Conv2d, g_weight: Tensor, delta: Tensor, out: Tensor, trust: Tensor, shape: tuple,
    tol: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Inputs (2, C, H, W) of a convolution from its weight gradient and its outputs, both linear.

    ``delta``: ∂ℓ/∂output; ``trust`` weighs the equations of the outputs. The second result is an
    orthonormal basis (numbers, k) of the directions that stay open.
    """
    (_, c, h, w), one = shape, torch.eye(shape[2] * shape[3]).to(out).view(-1, 1, *shape[2:])
    seen = unfold(one, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    rows = torch.einsum("pkl,ndl->dknp", seen, delta.flatten(2)).flatten(2).flatten(0, 1)
    a, free = solve(rows, g_weight.flatten(2).transpose(1, 2).flatten(0, 1), tol)  # every channel
    a, k = a.T.reshape(c, PAIR, h, w).transpose(0, 1), free.shape[1]
    basis = torch.zeros(c, k, PAIR, c, h, w).to(out)
    for channel in range(c):
        basis[channel, :, :, channel] = free.T.reshape(k, PAIR, h, w)
    basis = basis.flatten(0, 1)  # (C k, 2, C, H, W)
    if not k:
        return a, basis.flatten(1).T
    moved = layer(basis.flatten(0, 1)) - layer(torch.zeros(1, c, h, w).to(out))
    columns = (moved.view(-1, *out.shape) * trust).flatten(1).T
    t, left = solve(columns, ((out - layer(a)) * trust).reshape(-1, 1), tol)
    return a + (t.T @ basis.flatten(1)).view(shape), basis.flatten(1).T @ left


def refine(front: nn.Module, a: Tensor, left: Tensor, x: Tensor, steps: int) -> Tensor:
    """Images whose front(x) agree with ``a`` (2, …) in all directions but ``left``, from start x.

    Gauss–Newton with Levenberg and Marquardt's damping; the images' Jacobians are two blocks.
    """
    slope = torch.func.jacfwd(lambda z: front(z[None])[0].flatten())

    def misfit(x: Tensor) -> Tensor:
        r = (front(x) - a).flatten()
        return r - left @ (left.T @ r)

    r, damping = misfit(x), 1e-3
    for _ in range(steps):
        blocks = [slope(image).flatten(1) for image in x]
        seen = torch.cat(
            [left[i * len(J) : (i + 1) * len(J)].T @ J for i, J in enumerate(blocks)], 1
        )
        normal = torch.block_diag(*[J.T @ J for J in blocks]) - seen.T @ seen
        down = torch.cat([J.T @ part for J, part in zip(blocks, r.chunk(PAIR), strict=True)])
        ridge = damping * torch.diag(normal.diagonal() + 1e-12)
        new = x - torch.linalg.solve(normal + ridge, down).view_as(x)
        if (after := misfit(new)) @ after < r @ r:
            x, r, damping = new, after, max(damping / 5, 1e-14)
        else:
            damping *= 4
        if r @ r < 1e-22 * a.numel():
            break
    return x


def split_head(
    g_weight: Tensor, g_bias: Tensor, head: nn.Linear, labels: Tensor, starts: int, rng: object
) -> tuple[Tensor, Tensor]:
    """Representations r (2, D) and δ = ∂ℓ/∂z (2, classes) of the two images of a mean loss.

    ∇W = Σ δ_i r_iᵀ has rank two, so r_i = q_i V with the two leading right singular vectors V, and
    δ_i = ½ (softmax(W r_i + b) − y_i): four numbers q for the 2 · classes numbers of ∇W Vᵀ and the
    bias gradient. Least squares from random starts, the best by its own cost.
    """
    weight, bias, y = head.weight.numpy(), head.bias.numpy(), labels.numpy()
    basis = torch.linalg.svd(g_weight, full_matrices=False)[2][:PAIR].numpy()
    seen, slope = g_weight.numpy() @ basis.T, weight @ basis.T

    def signals(q: np.ndarray) -> np.ndarray:  # δ (2, classes)
        return 0.5 * (softmax(q @ slope.T + bias, axis=1) - y)

    def misfit(q: np.ndarray) -> np.ndarray:
        q = q.reshape(PAIR, PAIR)
        delta = signals(q)
        return np.concatenate([(delta.T @ q - seen).ravel(), delta.sum(0) - g_bias.numpy()])

    size = np.linalg.norm(seen) / np.linalg.norm(g_bias.numpy())
    tries = (least_squares(misfit, size * rng.normal(size=4)) for _ in range(starts))
    best = next(tries)
    for again in tries:
        if best.cost < 1e-16 * np.square(seen).sum():
            break
        best = min(best, again, key=lambda fit: fit.cost)
    q = best.x.reshape(PAIR, PAIR)
    return torch.from_numpy(q @ basis), torch.from_numpy(signals(q))
