"""Gauss–Newton: solve the equations on the wire for the pixels (chapter: cutting gradients)."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jvp, vmap

from ...checking import checked
from ...gradients import flat, gradient_function, stateless, weights
from ...runtime import PrivflError
from ...values import Count
from ...wire import Upload
from ..base import Reconstruction

CHUNK = 112  # columns of the Jacobian in memory at once


def read_label(upload: Upload) -> Tensor:
    """Labels (U,): of one image's last bias gradient only the label's entry is below 0."""
    bias = f"{upload.model.head_name}.bias"
    if bias not in upload.tensors:
        raise PrivflError(f"the label is read off {bias!r}, which is not in the upload")
    return upload.tensors[bias].argmin(1)


def gradient_of_pixels(upload: Upload, label: Tensor, dtype: torch.dtype) -> Callable:
    """f(v): the flat gradient that an image with pixels v (n,) and this label would send."""
    net = copy.deepcopy(upload.model).to(dtype)
    f, theta = gradient_function(stateless(net, "eval")), weights(net)
    names, shape = list(upload.tensors), (1, 1, *upload.model.shape)

    def g(v: Tensor) -> Tensor:
        sent = f(theta, v.view(shape), label.view(1, 1))
        return flat({n: sent[n] for n in names})[0]

    return g


def jacobian(g: Callable, v: Tensor, keep: Tensor) -> Tensor:
    """∂g/∂v at v, (kept entries, n), by one forward pass a pixel."""
    columns = vmap(lambda e: jvp(g, (v,), (e,))[1][keep], chunk_size=CHUNK)
    return columns(torch.eye(len(v)).to(v)).T


@checked
def gauss_newton(upload: Upload, masked: bool = True, steps: Count = 25) -> Reconstruction:
    """Solve g(x) = upload for the one image behind each upload, from a gray start, by damped steps.

    ``masked`` takes only the entries that are not zero as equations; else zeros count as zeros.
    Step: (JᵀJ + c·diag JᵀJ) s = −Jᵀ(g(x) − upload), c lowered after a success and raised after a
    failure (Levenberg and Marquardt). J in 32-bit floats, everything else in 64.
    """
    if (got := (upload.batch, upload.local_steps)) != (1, 1):
        raise PrivflError("Gauss–Newton needs 1 image, 1 step; got {}, {}".format(*got))
    labels, images, costs = read_label(upload), [], []
    for u in range(len(upload)):
        exact, fast = (
            gradient_of_pixels(upload, labels[u], d) for d in (torch.float64, torch.float32)
        )
        seen = flat(upload.tensors)[u].double()
        keep = seen != 0 if masked else torch.ones_like(seen, dtype=torch.bool)
        v = torch.full((torch.Size(upload.model.shape).numel(),), 0.5, dtype=torch.float64).to(seen)
        rest = (exact(v) - seen)[keep]
        cost, damp = rest @ rest, 1e-2
        for _ in range(steps):
            j = jacobian(fast, v.float(), keep).double()
            a, b = j.T @ j, j.T @ rest
            for _ in range(8):
                new = v - torch.linalg.solve(a + torch.diag(damp * a.diagonal() + 1e-14), b)
                rest_new = (exact(new) - seen)[keep]
                if rest_new @ rest_new < cost:
                    break
                damp *= 4
            else:
                break
            gain = 1 - rest_new @ rest_new / cost
            v, rest, cost, damp = new, rest_new, rest_new @ rest_new, max(damp / 10, 1e-12)
            if gain < 1e-3 or cost < 1e-13 * (seen @ seen):  # the second: rounding on the wire
                break
        images.append(v.view(upload.model.shape))
        costs.append(cost)
    return Reconstruction(torch.stack(images).float(), labels, torch.stack(costs))
