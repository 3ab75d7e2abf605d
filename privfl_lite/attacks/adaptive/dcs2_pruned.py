"""Two images behind one pruned upload: the attacker who knows that DCS² was followed by pruning.

Pruning hides entries of the last layer's gradient, but those that were sent are still those of a
matrix of rank 2. Where two sent entries stand in a column, the column is known up to the choice of
a basis; and the bias gradient is a column, too, that of a feature which is 1 for both images. So
each image's features are known up to one number (``prop-repair-rank``). Softmax and the kept
entries of the third convolution tell these numbers and the columns that are missing; the third
convolution has as many outputs as inputs, so its input follows. From there the second one leaves
fewer equations than pixels, and the smoothest image is taken. Chapter: The red team.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import jacfwd

from ...gradients import Tensors
from ...models import Net, built
from ...runtime import PrivflError, progress
from ...values import Positive
from ...wire import Upload
from ..analytic.equations import by_channel, windows
from ..base import Attack, Reconstruction
from .dcs2_algebra import LENET, conv_maps

ROUNDING = 1e-6  # of 32-bit entries, all together relative to their length
UNKNOWN = 0.15  # a feature of which nothing was sent is small
SIDES = torch.linspace(0.75, 1.05, 13, dtype=torch.float64).tolist()  # of where the range ends


@dataclass(frozen=True)
class PairPruned(Attack):
    """Rebuild the sensitive one of the two images behind each pruned upload to a ``lenet``.

    Granted: the labels of both ("mixture", sensitive first) and the weights of Eq. 10 ("shares").
    ``smooth`` weighs differences of neighboring pixels. The cost is what is left of the kept
    entries of the last and the third layer, relative to them: under 1e-6 where features were found.
    """

    smooth: Positive = 1e-3
    show: bool = True
    needs, letter, answers, most = ("mixture", "shares"), "B", ("dcs2", "prune"), (1, 1)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        self.check(upload)
        built(upload.model, "PairPruned")
        net = copy.deepcopy(upload.model).double().requires_grad_(False)
        mixture = cast(Tensor, upload.knows.mixture).double()
        if [type(layer) for layer in net.features] != LENET or mixture.shape[1] != 2:
            raise PrivflError("PairPruned knows the sigmoid lenet only, and one concealed image")
        maps, images, costs = conv_maps(net), [], []
        shares = torch.as_tensor(upload.knows.shares).to(mixture)
        for k in progress(range(len(upload)), "pruned pairs", show=self.show):
            g = {n: t[k].double() for n, t in upload.gradients().items()}
            last = LastLayers(net, g, mixture[k], shares, maps[2])
            a_2, cost = last.inputs()
            images.append(smoothest(net, a_2[0], maps, self.smooth))
            costs.append(cost)
        found = torch.stack(images).view(-1, *net.shape).to(upload.model.last.weight)
        return Reconstruction(found, mixture[:, 0].argmax(1), torch.stack(costs))


class LastLayers(NamedTuple):
    """The kept entries of the last layer and the third convolution, for two images."""

    net: Net
    g: Tensors
    y: Tensor  # (2, classes), label distributions, sensitive first
    shares: Tensor  # (2,), a and b of Eq. 10
    map_3: Tensor  # the third convolution as a matrix

    @property
    def shift(self) -> Tensor:
        third = cast(nn.Conv2d, self.net.features[4])
        return cast(Tensor, third.bias).repeat_interleave(len(self.map_3) // third.out_channels)

    def features(self, a_2: Tensor) -> Tensor:
        return torch.sigmoid(a_2 @ self.map_3.T + self.shift)

    def errors(self, f: Tensor) -> Tensor:
        """a δ₁ and b δ₂ (2, classes)."""
        head = self.net.head
        return self.shares[:, None] * ((f @ head.weight.T + head.bias).softmax(1) - self.y)

    def inputs(self) -> tuple[Tensor, Tensor]:
        """Inputs (2, n) of the third convolution, and what they leave of the kept entries."""
        ends = []
        for f, known in self.begin():
            ends.append(self.through(f, known))
            if ends[-1][1] < 1e-3:
                break
        return min(ends, key=lambda end: end[1])

    def through(self, f: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """As ``inputs``, from features (2, n) of which some are known."""
        start = []
        for f_i in f:  # through the third convolution, by the features that are known; gray else
            trust = f_i * (1 - f_i) * known + 1e-3
            rows = self.map_3 * trust[:, None]
            off = (f_i.logit() - self.shift - self.map_3.sum(1) / 2) * trust
            ridge = 1e-6 * torch.eye(len(f_i)).to(f)
            start.append(0.5 + torch.linalg.solve(rows.T @ rows + ridge, rows.T @ off))
        residual = self.residual()
        a_2 = fitted(residual, jacfwd(residual), torch.cat(start).clamp(0, 1), 25)
        return a_2.view(2, -1), residual(a_2).norm()

    def begin(self) -> list[tuple[Tensor, Tensor]]:
        """Features (2, n) by the completed last layer, which columns it knows (n,); for the two
        orders of the images, the one first that fits better."""
        whole = torch.cat([self.g["head.weight"], self.g["head.bias"][:, None]], 1)
        sent = (whole != 0).any(1)
        rows, size = whole[sent], whole.norm()
        if not rows[:, -1].any():
            raise PrivflError("PairPruned needs an entry of the last bias gradient")
        d, c, known = completed(rows / size)
        bias, across = c[-1] / (c[-1] @ c[-1]), torch.stack([-c[-1, 1], c[-1, 0]])
        middle, move = c[:-1] @ bias, c[:-1] @ across  # features are middle + s · move
        ends = torch.stack([-middle / move, (1 - middle) / move])
        low, high = (e[known[:-1]] for e in (ends.amin(0), ends.amax(0)))
        sides = low.quantile(0.99), high.quantile(0.01)
        found = []
        for one, other in (sides, sides[::-1]):
            best: tuple = ()
            for s in ((p * one, q * other) for p in SIDES for q in SIDES):
                basis = torch.stack([bias + t * across for t in s])  # (2, 2)
                f = torch.stack([middle + t * move for t in s]).clamp(1e-4, 1 - 1e-4)
                f = torch.where(known[:-1], f, UNKNOWN)
                seen = torch.linalg.solve(basis, d.T) * size  # a δ₁, b δ₂ where rows were sent
                off = (self.errors(f)[:, sent] - seen).norm().nan_to_num(torch.inf)
                best = min(best or (off, f), (off, f), key=lambda end: end[0])
            found.append(best)
        return [(f, known[:-1]) for _, f in sorted(found, key=lambda end: end[0])]

    def residual(self) -> Callable[[Tensor], Tensor]:
        """f(a_2): what differs at the kept entries of both layers, relative to each tensor."""
        third = cast(nn.Conv2d, self.net.features[4])
        channels, side = third.out_channels, round((len(self.map_3) / third.out_channels) ** 0.5)
        one = torch.eye(side**2).to(self.y).view(-1, 1, side, side)
        seen = windows(third, one)  # (pixels, k², positions)
        g, g_b = self.g["head.weight"], self.g["head.bias"]
        g_3 = by_channel(self.g["features.4.weight"])
        kept = [t != 0 for t in (g, g_b, g_3)]

        def f(v: Tensor) -> Tensor:
            a_2 = v.view(2, -1)
            out = self.features(a_2)
            delta = self.errors(out)
            e = (delta @ self.net.head.weight * out * (1 - out)).view(2, channels, -1)
            around = torch.einsum("pkl,icp->ickl", seen, a_2.view(2, third.in_channels, -1))
            made = torch.einsum("iol,ickl->okc", e, around).flatten(0, 1)
            pairs = zip((delta.T @ out, delta.sum(0), made), (g, g_b, g_3), kept, strict=True)
            return torch.cat([(m - t)[k] / t.norm() for m, t, k in pairs])

        return f


def completed(g: Tensor, rounds: int = 400) -> tuple[Tensor, Tensor, Tensor]:
    """D (r, 2) and C (n, 2) with D Cᵀ = g (r, n) where g is not 0; columns with two such entries.

    Least squares for C and D in turn, from the largest two singular vectors of g.
    """
    kept = (g != 0).to(g)
    known = kept.sum(0) >= 2
    left, sizes, _ = torch.linalg.svd(g, full_matrices=False)
    d, eye = left[:, :2] * sizes[:2].sqrt(), torch.eye(2).to(g)
    for _ in range(rounds):
        c = _halves(kept.T * known[:, None], g.T, d, 1e-12 * eye)
        d = _halves(kept * known, g, c, 1e-14 * eye)
    return d, c, known


def _halves(kept: Tensor, g: Tensor, d: Tensor, ridge: Tensor) -> Tensor:
    """The rows c_i (2,) that fit g_ij = c_i · d_j best where ``kept``."""
    square = torch.einsum("ij,ja,jb->iab", kept, d, d) + ridge
    return torch.linalg.solve(square, torch.einsum("ij,ja->ia", kept * g, d)[..., None])[..., 0]


def fitted(
    residual: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], z: Tensor, steps: int
) -> Tensor:
    """Levenberg and Marquardt: damped Gauss–Newton steps until they gain less than a thousandth."""
    r, damp = residual(z), 1e-3
    for _ in range(steps):
        j = slope(z)
        square, down = j.T @ j, j.T @ r
        floor = 1e-14 * torch.eye(len(z)).to(z)
        for _ in range(8):
            ridge = damp * (square.diagonal() + 1e-12).diag() + floor
            new = z - torch.linalg.solve(square + ridge, down)
            r_new = residual(new)
            if r_new.norm() < r.norm():
                break
            damp *= 5
        else:
            break
        gain = 1 - r_new.norm() / r.norm()
        z, r, damp = new, r_new, max(damp / 10, 1e-12)
        if gain < 1e-3 or r.norm() < ROUNDING:
            break
    return z


def smoothest(net: Net, a_2: Tensor, maps: list[Tensor], smooth: float) -> Tensor:
    """A smooth image (C, H, W) for which the second convolution gives a_2 (n,), ever less smooth.

    Fewer equations than pixels: 588 for 784 on digits.
    """
    first, second = (cast(nn.Conv2d, net.features[i]) for i in (0, 2))
    m_1, m_2, _ = maps
    s_1 = cast(Tensor, first.bias).repeat_interleave(len(m_1) // first.out_channels)
    a_2 = a_2.clamp(1e-7, 1 - 1e-7)
    s_2 = cast(Tensor, second.bias).repeat_interleave(len(m_2) // second.out_channels)
    out, trust = a_2.logit() - s_2, a_2 * (1 - a_2)
    one = torch.eye(m_1.shape[1]).to(a_2).view(-1, *net.shape)
    steps = [one[..., :, 1:] - one[..., :, :-1], one[..., 1:, :] - one[..., :-1, :], 0.1 * one]
    rough = torch.cat([t.flatten(1).T for t in steps])
    x = m_1.new_zeros(m_1.shape[1])
    for weight in (100 * smooth, 10 * smooth, smooth):

        def residual(x: Tensor, w: float = weight) -> Tensor:
            return torch.cat([(m_2 @ torch.sigmoid(m_1 @ x + s_1) - out) * trust, w * (rough @ x)])

        def slope(x: Tensor, w: float = weight) -> Tensor:
            a_1 = torch.sigmoid(m_1 @ x + s_1)
            return torch.cat([m_2 @ ((a_1 * (1 - a_1))[:, None] * m_1) * trust[:, None], w * rough])

        x = fitted(residual, slope, x, 10)
    return x.view(net.shape)
