"""FedKL's lock opened by linear algebra: the recursion of ``recursive``, through normalizations.

Let u = conv(x) and s = γ û + β with û = (u − μ)/σ, channel by channel; the layers behind tell s and
∂ℓ/∂s. Then u = a s + b with a = σ/γ and b = μ − a β, two numbers a channel, and ∂ℓ/∂u = P(∂ℓ/∂s)/a.
In train mode P takes off the mean and the part along û, and s shows û up to its sign; in eval mode
P is the identity. So conv(x) = a s + b and M x = a ∇W, with M from P(∂ℓ/∂s), are linear and
homogeneous in (x, a, b) together. One scale is left: contrast. Chapter: FedKL.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...gradients import Tensors
from ...models import Net, built
from ...models.keylock import Locked, locks
from ...runtime import PrivflError, progress
from ...values import Part
from ...wire import Upload
from ..analytic.equations import from_gradient, from_output, head_input
from ..analytic.recursive import OFF
from ..analytic.way_back import ACTIVATIONS
from ..base import Attack, Reconstruction
from .fedkl_equations import Secret, lines, normal_equations, projected, with_known_shift

RIDGE = 1e-12  # of the mean diagonal: decides only what no equation does, toward black
ROUNDS = 10
SHARES = torch.linspace(-4, 4, 13, dtype=torch.float64).sigmoid().tolist()  # first scales tried


@dataclass(frozen=True)
class Unlock(Attack):
    """Rebuild the one image behind each upload, and γ and β with it; nothing secret is granted.

    For networks of Conv2d, each with or without a ``Locked`` or BatchNorm2d behind it, Sigmoid or
    Tanh or ReLU, Flatten and the last layer. The image's scale follows from the bias
    gradient of the convolution in eval mode; in train mode it is not on the wire, and the brightest
    pixel is taken to be 1. If *all* convolutions are locked, each has such a scale. Behind a
    sigmoid it is not free: it is searched until the next system is solvable.

    In ``details``: ``coefficients`` (U, 2C), γ before β of the first normalization, as found (in
    eval mode by the server's running statistics; a dead channel has γ = 0); ``gap`` (U, 2), the two
    smallest singular values of the system for the a. The first is 0 but for rounding, the second
    is not, if the a are determined up to their scale.

    ``granted``: the control, for one lock. γ and β come from ``upload.knows.coefficients``. In
    eval mode they give a and b, so that the lock is a public affine map. In train mode b =
    mean(Wx) − a β joins the system, and û is begun both as without them and as (s − β)/γ; the
    lesser misfit counts.
    """

    tol: Part = 1e-4
    granted: bool = False
    letter, answers, most = "B", ("fedkl",), (1, 1)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        """The image behind each upload; the cost is the ratio of its two gaps, 0 for exact data."""
        self.check(upload)
        built(upload.model, "Unlock")
        net = copy.deepcopy(upload.model).double().requires_grad_(False).eval()
        for name, m in net.named_modules():
            weight = f"{name}.weight"
            if isinstance(m, nn.Conv2d) and not upload.tensors.get(weight, torch.zeros(1)).any():
                raise PrivflError(f"unlocking needs {weight!r}, which is not in the upload or zero")
        secrets, found = self._secret(upload), []
        for u in progress(range(len(upload)), "unlocking"):
            g = {n: t[u].double() for n, t in upload.gradients().items()}
            ways = self._ways(net, g, upload.mode, None if secrets is None else secrets[u])
            found.append(min(ways, key=lambda way: way[1]))
        image, cost, secret, gap, delta = (torch.stack(part) for part in zip(*found, strict=True))
        image = image.view(-1, *net.shape).to(upload.tensors["head.weight"])
        details = {"coefficients": secret, "gap": gap}
        return Reconstruction(image, delta.argmin(1), cost, details=details)

    def _secret(self, upload: Upload) -> list[Secret] | None:
        """γ and β (channels,) of each upload, if they are granted."""
        if not self.granted:
            return None
        if len(list(locks(upload.model))) != 1 or upload.knows.coefficients is None:
            raise PrivflError('granted=True is for one lock, with knows=("coefficients",)')
        return [c.chunk(2) for c in upload.knows.coefficients.double()]

    def _ways(
        self, net: Net, g: Tensors, mode: str, secret: Secret | None
    ) -> Iterator[tuple[Tensor, ...]]:
        """(image, misfit, coefficients, gap, δ) for each guess at what is 0 behind a ReLU."""
        a, delta = head_input(g["head.weight"], g.get("head.bias"), net.head)
        back = net.head.weight.T @ delta
        for off in OFF if any(isinstance(m, nn.ReLU) for m in net.features) else OFF[:1]:
            yield *_Way(net, g, mode, self.tol, off, secret).run(a, back), delta


class _Way:
    """The way back through one network for one upload's gradient g."""

    def __init__(
        self, net: Net, g: Tensors, mode: str, tol: float, off: float, secret: Secret | None = None
    ):
        self.layers, self.g, self.mode, self.tol, self.off = net.features, g, mode, tol, off
        self.secret = secret
        shapes = [g["head.weight"].new_zeros(1, *net.shape)]
        for layer in self.layers:
            shapes.append(layer(shapes[-1]))
        self.shapes = [t.shape[1:] for t in shapes]

    def run(self, a: Tensor, back: Tensor) -> tuple[Tensor, ...]:
        """From what enters the last layer, and ∂ℓ/∂a, to (image, misfit, coefficients, gap)."""
        spot = self.walk(len(self.layers), a, back)
        misfit, secret, gap = a.new_zeros(()), a.new_zeros(0), a.new_zeros(2)
        while spot[0]:
            i = spot[0] - 1
            a, back, misfit, secret, gap, free = self.unlock(*spot)
            spot = self.scaled(i, a, back) if free and i else self.walk(i, a, back)
        return spot[1], misfit, secret, gap

    def walk(self, i: int, a: Tensor, back: Tensor) -> tuple[int, Tensor, Tensor, Tensor]:
        """As ``Recursive``: from what enters layer i back to the output of a normalization, or to
        the image: (the normalization's place or 0, a there, ∂ℓ/∂a, trust)."""
        trust = torch.ones_like(a)
        while i > 0:
            i -= 1
            layer, shape = self.layers[i], self.shapes[i]
            if isinstance(layer, (Locked, nn.BatchNorm2d)):
                return i, a, back, trust
            if isinstance(layer, (nn.Flatten, nn.Identity)):
                a, back, trust = (t.reshape(shape) for t in (a, back, trust))
            elif type(layer) in ACTIVATIONS:
                slope, inverse, span = ACTIVATIONS[type(layer)]
                trust = slope(a.clamp(*span), self.off)
                a, back = inverse(a.clamp(*span)), back * trust
            elif isinstance(layer, nn.Conv2d):
                g = self.g[f"features.{i}.weight"]
                known, free = from_gradient(layer, g, back, shape, self.tol)
                a, _ = from_output(layer, known, free, a, trust, self.tol)
                (back,) = torch.func.vjp(layer, a[None])[1](back[None])
                back, trust = back[0], torch.ones_like(a)
            else:
                raise PrivflError(f"unlocking knows no way back through {type(layer).__name__}")
        return 0, a, back, trust

    def unlock(self, i: int, s: Tensor, ds: Tensor, trust: Tensor, rounds: int = ROUNDS) -> tuple:
        """Input of the convolution in front of the normalization i, ∂ℓ/∂input, misfit, (γ, β), gap,
        and whether a scale is free.

        In train mode û is first taken from s. Where the activation is saturated or off, s is not
        known there; then û is taken from the u that was found, as long as the misfit falls.
        """
        i -= 1
        layer: Any = self.layers[i]
        g_bias = self.g.get(f"features.{i}.bias")
        live = self.g[f"features.{i}.weight"].flatten(1).any(1)  # γ = 0 leaves exactly zero
        signals = [projected(s, ds)] if self.mode == "train" else [ds]
        if self.mode == "train" and self.secret is not None:
            signals.append(projected(s, ds, self.secret))
        rounds = rounds if self.mode == "train" else 1
        ways = [self.refined(i, s, ds, du, trust, live, rounds) for du in signals]
        x, a, misfit, gap, du = min(ways, key=lambda way: way[2])
        free = self.mode == "train" or (g_bias is None and self.secret is None)
        if not free and self.secret is not None:
            scale = 1.0
        elif free or g_bias is None:
            scale = 1 / max(x.max(), x.min(), key=abs)  # an image is not negative; brightest 1
        else:  # ∇b = Σ ∂ℓ/∂u = Σ ∂ℓ/∂s / a
            total, seen = ds.flatten(1).sum(1)[live], a[live] * g_bias[live]
            scale = (seen @ total) / (seen @ seen)
        x, a = scale * x, scale * a
        (back,) = torch.func.vjp(layer, x[None])[1]((du / a[:, None, None])[None])
        return x, back[0], misfit, self.coefficients(i, x, s, trust, live), gap, free

    def refined(
        self, i: int, s: Tensor, ds: Tensor, du: Tensor, trust: Tensor, live: Tensor, rounds: int
    ) -> tuple:
        """As ``solve``, and du; û is taken anew from the u that was found while that helps."""
        best: tuple = ()
        for _ in range(rounds):
            x, a, misfit, gap = self.solve(i, s, du, trust, live)
            if best and misfit > 0.9 * best[2]:
                break
            best, du = (x, a, misfit, gap, du), projected(self.layers[i](x[None])[0], ds)
        return best

    def solve(self, i: int, s: Tensor, du: Tensor, trust: Tensor, live: Tensor) -> tuple:
        """x, a (infinite for dead channels), misfit, and the two least singular values.

        x and b are eliminated; what is left is an eigenproblem for the a of the live channels.
        """
        layer, shape, k = self.layers[i], self.shapes[i], int(live.sum())
        full = normal_equations(layer, s, du, trust, self.g[f"features.{i}.weight"], shape, live)
        if self.secret is not None and self.mode == "eval":
            return self.known(i, full, live)
        if self.secret is not None:
            full = with_known_shift(full, layer, self.secret[1][live], shape, live)
        rest = full[k:, k:]
        rest.diagonal().add_(RIDGE * rest.diagonal().mean())
        fold = torch.cholesky_solve(full[k:, :k], torch.linalg.cholesky(rest))
        values, vectors = torch.linalg.eigh(full[:k, :k] - full[k:, :k].T @ fold)
        gap = nn.functional.pad(values[:2].clamp(min=0).sqrt(), (0, max(0, 2 - k)))
        a = torch.full((len(s),), torch.inf).to(s)
        a[live] = vectors[:, 0]
        x = -(fold @ vectors[:, 0])[: shape.numel()].view(shape)
        return x, a, (gap[0] / gap[1]).nan_to_num(torch.inf), gap

    def known(self, i: int, full: Tensor, live: Tensor) -> tuple:
        """As ``solve`` where a = σ/γ and b = μ − bias − a β are known: eval mode, γ, β granted."""
        layer, norm, n, k = self.layers[i], self.layers[i + 1].norm, len(full), int(live.sum())
        gamma, beta = cast(Secret, self.secret)
        a = (norm.running_var + norm.eps).sqrt() / gamma  # infinite for dead channels
        b = norm.running_mean - (0 if layer.bias is None else layer.bias) - a * beta
        rest, right = full[k : n - k, k : n - k], full[k : n - k, :k] @ a[live]
        rest.diagonal().add_(RIDGE * rest.diagonal().mean())
        x = -torch.linalg.solve(rest, right + full[k : n - k, n - k :] @ b[live])
        z = torch.cat([a[live], x, b[live]])
        misfit = (z @ full @ z).clamp(min=0).sqrt() / z.norm()
        return x.view(self.shapes[i]), a, misfit, torch.stack([misfit, torch.ones_like(misfit)])

    def coefficients(self, i: int, x: Tensor, s: Tensor, trust: Tensor, live: Tensor) -> Tensor:
        """γ before β of the normalization behind layer i, whose input is x."""
        norm = getattr(self.layers[i + 1], "norm", self.layers[i + 1])
        norm = copy.deepcopy(norm).train(self.mode == "train")
        return lines(norm(self.layers[i](x[None]))[0], s, trust, live)

    def scaled(self, i: int, a: Tensor, back: Tensor) -> tuple[int, Tensor, Tensor, Tensor]:
        """``walk`` from λ a and back/λ, with the λ for which the next system has the least misfit.

        The largest entry of a is 1 as it comes; the activation's outputs are below 1.
        """
        from scipy.optimize import minimize_scalar  # slow to import

        def misfit(scale: float) -> float:
            i_next, s, ds, trust = self.walk(i, scale * a, back / scale)
            if not i_next:
                raise PrivflError("unlocking needs a first convolution with a normalization")
            return self.unlock(i_next, s, ds, trust, rounds=1)[2].item()

        costs = [misfit(scale) for scale in SHARES]
        best = min(range(len(costs)), key=costs.__getitem__)
        low, high = SHARES[max(best - 1, 0)], SHARES[min(best + 1, len(SHARES) - 1)]
        scale = minimize_scalar(
            misfit, bounds=(low, high), method="bounded", options={"xatol": 1e-6}
        ).x
        return self.walk(i, scale * a, back / scale)
