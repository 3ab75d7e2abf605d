"""Two images behind one upload, told apart by linear algebra: the attacker who knows DCS².

One more image in a batch of one (DCS², Eq. 10) leaves a last-layer gradient a δ₁f₁ᵀ + b δ₂f₂ᵀ, of
rank 2. So f₁ lies in a known plane, and δ₁ = softmax(W f₁ + b) − y must lie in another: with ten
classes seven equations for two unknowns, whatever the weights a, b. Less a δ₁f₁ᵀ it has rank 1,
which tells a, f₂ and b δ₂; most classes have no part in the concealed label, which tells b; and
with it that label and λg. Both backward passes are then known, and each convolution's gradient is
linear in its input (R-GAP, for two images): the third one fixes both inputs (and, by how well it
fits, f₁ more exactly); in the second, what the other image may have added is projected away; a
least-squares problem in one image is left. Chapter: DCS².
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from ...gradients import Tensors
from ...models import Net, built
from ...runtime import PrivflError
from ...wire import Upload
from ..analytic.equations import by_channel, kernel_equations
from ..base import Attack, Reconstruction
from .dcs2_split import Split, completed, parallel, separate, swapped

LENET = [nn.Conv2d, nn.Sigmoid] * 3 + [nn.Flatten]


@dataclass(frozen=True)
class Pair(Attack):
    """Rebuild the image that bears its own label, of the two behind each upload to a ``lenet``.

    Assumed: one sensitive image, one concealed, one step; a concealed label that over half of the
    classes have no part in. Nothing is granted. All labels are tried, and the three scales that
    Eq. 10 is known with. Weights a, b as the last layer itself tells them are taken instead if they
    fit ten times better; not where δ₁, δ₂ are nearly parallel, for there it tells a + b only. If
    both labels are one-hot, both orders are tried, and the image that keeps to [0, 1] is taken.
    ``details["splits"]`` has what the last layer told of each upload, the weights found among it;
    the cost is how far that is from fitting.
    """

    letter, answers, most = "B", ("dcs2",), (1, 1)

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        self.check(upload)
        built(upload.model, "Pair")
        net = copy.deepcopy(upload.model).double().requires_grad_(False)
        if [type(layer) for layer in net.features] != LENET or net.head.bias is None:
            raise PrivflError(
                "Pair knows the sigmoid lenet only: three convolutions and a last layer with a bias"
            )
        splits, found, maps = [], [], conv_maps(net)
        for k in range(len(upload)):
            one = {n: t[k].double() for n, t in upload.gradients().items()}
            split = separate(net, one["head.weight"], one["head.bias"], range(net.num_classes))
            split = refined(net, one, split)
            orders = [split] if split.soft.max() < 0.99 else [split, swapped(split)]
            found.append(min((image_behind(net, one, s, maps) for s in orders), key=_outside))
            splits.append(split)
        images = torch.stack(found)
        labels = torch.tensor([split.label for split in splits], device=images.device)
        costs = torch.tensor([split.score for split in splits], device=images.device)
        return Reconstruction(images, labels, costs, details={"splits": splits})


def refined(model: Net, tensors: Tensors, split: Split) -> Split:
    """Move f₁ in its plane to where the third convolution's gradient fits best (Nelder–Mead).

    Needed where δ₁ and δ₂ are nearly parallel, as with ỹ = y_s: there the last layer tells f₁ + f₂
    only. Then the search also starts on both sides of where it is.
    """
    from scipy.optimize import minimize  # slow to import

    g, g_b = tensors["head.weight"], tensors["head.bias"]
    _, sizes, right = torch.linalg.svd(g, full_matrices=False)
    v = right[:2].T

    def at(a: Sequence[float]) -> Split:
        f_1 = v @ torch.as_tensor(a).to(g)
        f, delta, soft, *_ = completed(model, g, g_b, split.label, f_1[None], split.weights)
        return split._replace(f=f[0], delta=delta[0], soft=soft[0])

    def misfit(a: Sequence[float]) -> float:
        _, _, left_over = third_inputs(model, tensors, at(a))
        return left_over

    a_0, found = v.T @ split.f[0], []
    for aside in (0.0, -1.0, 1.0) if parallel(sizes) else (0.0,):
        a = (a_0 + torch.tensor([0, aside]).to(g)).tolist()
        step = 0.2 if aside else 1e-3
        simplex = [a, [a[0] + step / 2, a[1]], [a[0], a[1] + step]]
        how = {"initial_simplex": simplex, "xatol": 1e-7, "fatol": 1e-12, "maxfev": 150}
        found.append(minimize(misfit, a, method="Nelder-Mead", options=how))
    best = min(found, key=lambda end: end.fun)
    return at(best.x) if best.fun < third_inputs(model, tensors, split)[2] else split


def sides_of(model: Net) -> tuple[int, int, int]:
    """Of the image, and behind each of the two convolutions of stride 2, which round up."""
    n = model.shape[-1]
    return n, -(-n // 2), -(-n // 4)


def third_inputs(model: Net, tensors: Tensors, split: Split) -> tuple[Tensor, Tensor, float]:
    """Inputs (2, n) of the third convolution, errors (2, n) behind it; what it leaves unexplained.

    Its weight gradient is linear in both inputs: 300 equations for 98 unknowns a channel.
    """
    third, side = model.features[4], sides_of(model)[2]
    seen = by_channel(tensors["features.4.weight"].double())
    e = split.delta @ model.head.weight.detach().double() * split.f * (1 - split.f)
    maps = (e_i.view(third.out_channels, -1) for e_i in e * split.weights[:, None])
    m = torch.cat([kernel_equations(third, e_i, (side, side)) for e_i in maps], 1)
    inputs = torch.linalg.lstsq(m, seen).solution
    left_over = (m @ inputs - seen).norm().nan_to_num(torch.inf).item()
    return inputs.T.view(-1, 2, side**2).transpose(0, 1).flatten(1), e, left_over


def conv_maps(model: Net) -> list[Tensor]:
    """The three convolutions as matrices (outputs, inputs) on flat inputs, without their biases."""
    maps: list[Tensor] = []
    x = model.features[0].weight.detach().new_zeros(1, *model.shape).double()
    for conv, act in zip(model.features[0:6:2], model.features[1:6:2], strict=True):
        basis = torch.eye(x.numel()).to(x).view(-1, *x.shape[1:])
        out = conv2d(basis, conv.weight.detach().double(), None, conv.stride, conv.padding)
        maps, x = [*maps, out.flatten(1).T], act(conv(x))
    return maps


def image_behind(model: Net, tensors: Tensors, split: Split, maps: Sequence[Tensor]) -> Tensor:
    """The first image of a split (C, H, W), back through the lenet's three convolutions.

    ``maps``: those of ``conv_maps``.
    """
    first, second = model.features[0], model.features[2]
    sides = sides_of(model)
    m_1, m_2, m_3 = maps
    g_2, channels = by_channel(tensors["features.2.weight"].double()), second.out_channels
    a_2, e_3, _ = third_inputs(model, tensors, split)
    a_2 = a_2.clamp(1e-7, 1 - 1e-7)
    e_2 = e_3 @ m_3 * a_2 * (1 - a_2)
    size = (sides[1], sides[1])
    sent = (e.view(channels, -1) for e in e_2 * split.weights[:, None])
    ours, theirs = (kernel_equations(second, e, size) for e in sent)
    left, sizes, _ = torch.linalg.svd(theirs)
    free = left[:, int((sizes > 1e-6 * sizes[0]).sum()) :].T  # what no x̃ can have caused
    unit = (free @ ours).norm() / len(free) ** 0.5
    ours, seen = free @ ours / unit, free @ g_2 / unit
    out = a_2[0].logit() - second.bias.detach().double().repeat_interleave(sides[2] ** 2)
    shift = first.bias.detach().double().repeat_interleave(sides[1] ** 2)

    def residual(x: Tensor) -> tuple[Tensor, Tensor]:
        a_1 = torch.sigmoid(m_1 @ x + shift)
        fit = ours @ a_1.view(-1, sides[1] ** 2).T - seen
        return torch.cat([fit.T.flatten(), m_2 @ a_1 - out]), a_1

    x, damp = m_1.new_zeros(m_1.shape[1]), 1e-6
    (r, a_1), eye = residual(x), torch.eye(m_1.shape[1]).to(x)
    for _ in range(12):  # Gauss–Newton: convolution and sigmoid are all that is left
        slope = (a_1 * (1 - a_1))[:, None] * m_1
        rows = ours @ slope.view(-1, sides[1] ** 2, len(x))
        j = torch.cat([rows.flatten(0, 1), m_2 @ slope])
        h, down = j.T @ j, j.T @ r
        new = x - torch.linalg.solve(h + damp * eye, down)
        r_new, a_new = residual(new)
        if not r_new.norm() < r.norm():
            damp *= 100
            continue
        done = r_new.norm() > 0.999 * r.norm()
        x, r, a_1, damp = new, r_new, a_new, max(damp / 10, 1e-10)
        if done:
            break
    return x.view(model.shape).float()


def _outside(image: Tensor) -> float:
    return (image - image.clamp(0, 1)).abs().max().item()
