"""DCS², attack side (Tables 1, 4, 5, 7, 11; Table 3 and §8.3 on digits), and attackers who know it.

Batch 1, untrained sigmoid LeNet, digits. Parts: "table", the paper's defenses under its attackers,
who look for one image; "variant", what crafting makes and how GS does on it; "joint", L-BFGS on
both images; "separate", no search over images at all; "overhead", the time that crafting takes.

"separate": the last layer's gradient is ½(δ₁f₁ᵀ + δ₂f₂ᵀ), of rank 2. So f₁ lies in a known plane,
and δ₁ = softmax(W f₁ + b) − y must lie in another: nine equations for two unknowns. What is left
has rank 1 and gives f₂, δ₂, and with them the concealed label and λg. Both backward passes are then
known, and each convolution's gradient is linear in its input (R-GAP, for two images): the third one
fixes both inputs (and, by how well it fits, f₁ more exactly); in the second, what x̃ may have added
is projected away; a least-squares problem in x_s alone is left. Nothing is granted, not
even the label: all ten are tried. If both labels are one-hot (λg 1, or ỹ = y_s), both orders are
tried, and the image that keeps to [0, 1] is taken.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import conv2d, one_hot, unfold

from .. import metrics, models
from ..attacks import GS, IDLG, Matching
from ..attacks.engine import lbfgs
from ..attacks.matching import total_variation
from ..data import load
from ..defenses import DCS2, Defense, DPGaussian, Prune, Soteria
from ..runtime import generator
from ..wire import Upload, share
from .base import Study
from .pictures import pack

BASELINES = {
    "none": Defense,
    "DP-Gaussian 0.01": lambda: DPGaussian(0.01),
    "Prune 0.7": lambda: Prune(0.7),
    "Soteria 0.2": lambda: Soteria(0.2),
}
MAIN = "sample"
VARIANTS = {  # name -> options of DCS² besides λg 0.7, a start from training digits
    MAIN: {},
    "noise": {"start": "noise"},
    "mixup": {"start": "mixup"},
    "λg 0.5": {"lambda_g": 0.5},
    "λg 1.0": {"lambda_g": 1.0},
    "box": {"box": True},
    "1000 steps": {"steps": 1000},
    "released units": {"steps": 1000, "lr": 0.031, "lambda_x": 0.032, "far": 92.0},
    "same label": {},  # ỹ = y_s: starts from digits of the sensitive image's class
    "+ Prune 0.7": {},
    "+ noise 1e-5": {},
    "5:1": {"ratio": "5:1"},
    "10:1": {"ratio": "10:1"},
}
AFTER = {
    "+ Prune 0.7": lambda: Prune(0.7),
    "+ noise 1e-5": lambda: DPGaussian(1e-5),
}
EACH = {"5:1": 5, "10:1": 10}
JOINT = {  # name -> variant, and how the search is told to go
    "labels granted": {},
    "wide start": {"width": 5.0},
    "smooth": {"tv": 0.03},
    "label tried": {"tried": True},
}


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "source": load("mnist").source,
        "model": "lenet (sigmoid), untrained",
        "images": 64 if large else 16,
        "batches": 8 if large else 2,  # uploads where one x̃ conceals several images
        "craft": 1000 if large else 300,
        "gs": 10000 if large else 800,
        "lbfgs": 1000 if large else 400,
        "joint": 2000 if large else 1000,
        "joint_main": 2000 if large else 1500,
        "starts": 8 if large else 2,
        "some_images": 64 if large else 8,  # the first ones, for all other joint searches
        "tried_images": 64 if large else 4,
        "tried_steps": 2000 if large else 500,
        "success": 20.0,  # dB
        "seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    cells = [
        {"part": "table", "defense": name, "attack": attack}
        for name in (*BASELINES, "DCS²")
        for attack in ("GS", "GS, class average", "iDLG")
    ]
    cells += [{"part": "variant", "variant": v} for v in VARIANTS if v != "+ noise 1e-5"]
    pruned = "+ Prune 0.7"  # its last layer has no rank 2 to start from
    cells += [{"part": "separate", "variant": v} for v in VARIANTS if v not in (pruned, *EACH)]
    cells += [{"part": "joint", "variant": MAIN, "attack": a} for a in JOINT]
    cells += [
        {"part": "joint", "variant": v, "attack": "labels granted"}
        for v in ("box", "same label", "+ Prune 0.7", *EACH)
    ]
    return [*cells, {"part": "overhead"}]


def _compute(settings: dict, cell: dict) -> dict:
    parts = {"table": _table, "variant": _variant, "separate": _separate, "joint": _joint}
    return parts.get(cell["part"], _overhead)(settings, cell)


# Who is attacked


class Victims(NamedTuple):
    """Uploads, and what is behind them."""

    upload: Upload  # with "labels"; and "mixture", the labels of the augmented batches
    x: Tensor
    y: Tensor
    concealed: Tensor  # x̃ of all uploads
    labels: Tensor  # ỹ
    history: Tensor  # (M, 4, steps + 1), as in ``Crafted``


def defended(settings: dict, variant: str, digit: int | None = None) -> DCS2:
    """The DCS² of a variant; ``digit`` restricts its starts to one class."""
    data = load("mnist")
    keep = slice(None) if digit is None else data.y_train == digit
    options = {"steps": settings["craft"], "start": "sample"} | VARIANTS[variant]
    return DCS2(pool=(data.x_train[keep], data.y_train[keep]), **options)


def victims(settings: dict, variant: str) -> Victims:
    """Clients with one held-out digit each (several for 5:1 and 10:1), defended by a variant."""
    keys = ("images", "batches", "craft", "seed")
    return _victims(tuple((k, settings[k]) for k in keys), variant)


@lru_cache
def _victims(items: tuple, variant: str) -> Victims:
    settings, data = dict(items), load("mnist")
    each, seed = EACH.get(variant, 1), settings["seed"]
    count = settings["images"] if each == 1 else settings["batches"] * each
    model = models.build("lenet", data, seed=seed)
    x, y = data.sample(count, split="test", seed=seed)
    if variant == "same label":
        order, groups = y.argsort(stable=True), y.unique().tolist()
        digits = [(x[y == g], y[y == g], defended(settings, variant, g)) for g in groups]
    else:
        order, digits = torch.arange(count), [(x, y, defended(settings, variant))]
    sent, made, back = [], [], order.argsort() if each == 1 else slice(None)
    for x_g, y_g, first in digits:
        whole = first + AFTER[variant]() if variant in AFTER else first
        sent.append(share(model, x_g, y_g, whole, ("labels", "mixture"), each, seed=seed))
        made += [first.crafted[k] for k in range(len(sent[-1]))]
    upload = replace(
        sent[0],
        tensors={n: torch.cat([u.tensors[n] for u in sent])[back] for n in sent[0].tensors},
        knows={n: torch.cat([u.knows[n] for u in sent])[back] for n in ("labels", "mixture")},
    )
    parts = ("images", "labels", "history")
    hidden = [torch.cat([getattr(m, part) for m in made])[back] for part in parts]
    return Victims(upload, x, y, *hidden)


# Scores


def scores(settings: dict, found: Tensor, x: Tensor) -> dict:
    """PSNR and SSIM of each image, mean, standard deviation, 95 % interval; rate of successes."""
    values, out = metrics.compare(found, x), {"images": len(x)}
    for name, places in (("psnr", 2), ("ssim", 4)):
        each = [min(v, 150.0) for v in values[name].tolist()]
        out[name] = [round(v, places) for v in each]
        out[f"{name}_mean"] = round(statistics.fmean(each), places)
        out[f"{name}_std"] = round(statistics.pstdev(each), places)
        out[f"{name}_interval"] = [round(v, places) for v in metrics.bootstrap_interval(each)]
    hits = int((values["psnr"] >= settings["success"]).sum())
    low, high = metrics.wilson(hits, len(x))
    return out | {"success": hits, "success_interval": [round(low, 4), round(high, 4)]}


def _pictures(images: Tensor) -> list[str]:
    return [pack(image) for image in images[:4]]


def _matched(found: Tensor, x: Tensor, each: int) -> Tensor:
    """Images in the order that fits best within each upload."""
    pairs = zip(found.split(each), x.split(each), strict=True)
    return torch.cat([a[metrics.assign(a, b)] for a, b in pairs])


# Attackers who look for what was not hidden


def _table(settings: dict, cell: dict) -> dict:
    data, seed = load("mnist"), settings["seed"]
    if cell["defense"] == "DCS²":
        upload, x, y, *_ = victims(settings, MAIN)
    else:
        x, y = data.sample(settings["images"], split="test", seed=seed)
        model = models.build("lenet", data, seed=seed)
        upload = share(model, x, y, BASELINES[cell["defense"]](), ("labels",), each=1, seed=seed)
    if cell["attack"] == "iDLG":
        attack = IDLG(steps=settings["lbfgs"], show=False)
    else:
        start = class_means()[y][:, None] if "average" in cell["attack"] else None
        attack = GS(steps=settings["gs"], start=start, show=False)
    found = attack.run(upload, seed=seed)
    return scores(settings, found.images, x) | {"evaluations": found.evaluations}


def class_means() -> Tensor:
    """The mean training digit of each class, (10, 1, 28, 28)."""
    data = load("mnist")
    return torch.stack([data.x_train[data.y_train == c].mean(0) for c in range(10)])


def _variant(settings: dict, cell: dict) -> dict:
    v, each = victims(settings, cell["variant"]), EACH.get(cell["variant"], 1)
    found = GS(steps=settings["gs"], show=False).run(v.upload, seed=settings["seed"]).images
    last = v.history[:, :, -1]
    out = {
        "gs": scores(settings, _matched(found, v.x, each), v.x),
        "range": [round(v.concealed.min().item(), 2), round(v.concealed.max().item(), 2)],
        "outside": round(((v.concealed < 0) | (v.concealed > 1)).double().mean().item(), 4),
        "distance": [round(a, 2) for a in last[:, 2].tolist()],
        "cosine": [round(a, 4) for a in last[:, 1].tolist()],
        "logit_distance": [round(a, 4) for a in last[:, 3].tolist()],
        "concealed_labels": v.labels.tolist(),
        "labels": v.y.tolist(),
    }
    if cell["variant"] == MAIN:
        out |= {
            "pictures": _pictures(v.x),
            "pictures_concealed": _pictures(v.concealed),
            "pictures_gs": _pictures(found),
        }
    return out


# The attacker who looks for both images


def _joint(settings: dict, cell: dict) -> dict:
    how, variant = JOINT[cell["attack"]], cell["variant"]
    v, each = victims(settings, variant), EACH.get(variant, 1)
    starts, steps, upload, x = settings["starts"], settings["joint"], v.upload, v.x
    mixture = upload.knows["mixture"][:, None]  # (U, 1, B + M, classes)
    if how.get("tried"):
        starts, steps, n = 1, settings["tried_steps"], settings["tried_images"]
        upload, x = upload[:n], x[:n]
        mixture = tried(upload.knows["labels"][:, 0], 10, defended(settings, variant).lambda_g)
    elif variant == MAIN:
        steps, n = settings["joint_main"], settings["some_images" if how else "images"]
        upload, x, mixture = upload[:n], x[:n], mixture[:n]
    else:
        starts, n = 1, settings["some_images"] if each == 1 else len(x)
        upload, x, mixture = upload[:n], x[:n], mixture[:n]
    labels = mixture.repeat_interleave(starts, 1)  # (U, starts, B + M, classes)
    found, cost, evaluations = joint(
        upload, labels, steps, settings["seed"], how, nonzero=variant == "+ Prune 0.7"
    )
    best = cost.argmin(1)
    images = found[torch.arange(len(best)), best][:, :each].flatten(0, 1)
    out = scores(settings, _matched(images, x, each), x)
    out |= {"starts": labels.shape[1], "evaluations": evaluations, "attacked": len(upload)}
    out["cost"] = [float(f"{c:.3g}") for c in cost.min(1).values.tolist()]
    if how.get("tried"):
        out["label_right"] = int((best == v.labels[: len(best)]).sum())
    if variant == MAIN and cell["attack"] == "labels granted":
        out["pictures"] = _pictures(images)
    return out


def tried(y: Tensor, classes: int, lambda_g: float) -> Tensor:
    """Labels (U, classes, 2, classes) of x_s and x̃, for every label ỹ that x̃ may have."""
    y_s = one_hot(y, classes).float()[:, None].expand(-1, classes, -1)
    return torch.stack([y_s, lambda_g * torch.eye(classes) + (1 - lambda_g) * y_s], 2)


def joint(
    upload: Upload, labels: Tensor, steps: int, seed: int, how: dict, nonzero: bool = False
) -> tuple[Tensor, Tensor, int]:
    """L-BFGS for all images behind U uploads, one search for each of labels (U, S, B + M, classes).

    ``width``: x̃ is sought as a multiple of that, and so begins that wide. ``tv`` smooths the
    sensitive images only. Returns images (U, S, B + M, C, H, W), mismatch (U, S), evaluations.
    """
    u, s, n, _ = labels.shape
    shape = (n, *upload.model.shape)
    scale = torch.ones(n, 1, 1, 1)
    scale[upload.batch :] = how.get("width", 1.0)
    term = Matching(nonzero=nonzero).cost(replace(upload, batch=n))
    flat = labels.flatten(0, 1)

    def mismatch(z: Tensor, rows: Tensor) -> Tensor:
        return term(z.view(-1, *shape) * scale, flat[rows], rows // s)

    def objective(z: Tensor, rows: Tensor) -> Tensor:
        smooth = total_variation(z.view(-1, *shape)[:, : upload.batch]) if how.get("tv") else 0
        return mismatch(z, rows) + how.get("tv", 0) * smooth

    z = torch.stack([torch.randn(shape, generator=generator(seed, p)) for p in range(u * s)])
    z[:, : upload.batch] = 0.5 + 0.3 * z[:, : upload.batch]
    found = lbfgs(objective, z.flatten(1), range(1, steps + 1))
    with torch.no_grad():
        cost = mismatch(found.z, torch.arange(u * s)).nan_to_num(torch.inf)
    return (found.z.view(-1, *shape) * scale).view(u, s, *shape), cost.view(u, s), found.evaluations


# The attacker who separates the two by linear algebra


class Pair(NamedTuple):
    """Features f (2, n) and errors δ (2, classes) of the sensitive image and the concealed one."""

    f: Tensor
    delta: Tensor
    label: int
    soft: Tensor  # label distribution of the concealed image
    score: float  # how far all this is from fitting, and from its range


def separate(model: Module, weight: Tensor, bias: Tensor, labels: Sequence[int]) -> Pair:
    """Split the last layer's gradient (classes, n), (classes,); of the labels the one that fits."""
    return min((_split(model, weight, bias, c) for c in labels), key=lambda pair: pair.score)


def _split(model: Module, g: Tensor, g_b: Tensor, label: int) -> Pair:
    """Levenberg–Marquardt for f₁ = V a on P(softmax(W V a + b) − y) = 0, from a fan of starts."""
    w, b = (p.detach().to(g) for p in (model.head.weight, model.head.bias))
    y = one_hot(torch.tensor(label), len(b)).to(g)
    left, _, right = torch.linalg.svd(g, full_matrices=False)
    v, off = right[:2].T, torch.eye(len(b)).to(g) - left[:, :2] @ left[:, :2].T
    angle = torch.linspace(0, 2 * torch.pi, 73)[:-1].to(g)
    radius = torch.linspace(0.08, 1, 12).to(g)[:, None] * len(v) ** 0.5  # features lie in (0, 1)
    a = torch.stack([radius * angle.cos(), radius * angle.sin()], -1).view(-1, 2)
    a = a[(a @ v.T > -0.01).to(g).mean(1) > 0.9]
    if not len(a):
        return Pair(torch.zeros(2, len(v)).to(g), torch.zeros(2, len(b)).to(g), label, y, torch.inf)

    def residual(a: Tensor) -> tuple[Tensor, Tensor]:
        p = (a @ (w @ v).T + b).softmax(1)
        slope = torch.diag_embed(p) - p[:, :, None] * p[:, None]
        return (p - y) @ off, off @ slope @ w @ v

    damp, (r, slope) = torch.full((len(a), 1, 1), 1e-3).to(g), residual(a)
    for _ in range(60):
        h = slope.mT @ slope
        ridge = damp * h.diagonal(dim1=1, dim2=2).sum(1)[:, None, None] + 1e-14
        h = h + ridge * torch.eye(2).to(g)
        new = a - torch.linalg.solve(h, slope.mT @ r[..., None])[..., 0]
        r_new, slope_new = residual(new)
        ok = (r_new.norm(dim=1) < r.norm(dim=1))[:, None]
        a, r = torch.where(ok, new, a), torch.where(ok, r_new, r)
        slope = torch.where(ok[..., None], slope_new, slope)
        damp = torch.where(ok[..., None], damp / 5, damp * 5).clamp(1e-9, 1e6)
    f, delta, soft = completed(model, g, g_b, label, a @ v.T)
    score = r.norm(dim=1) + sum((t - t.clamp(0, 1)).abs().amax(1) for t in (*f.unbind(1), soft))
    k = score.nan_to_num(torch.inf).argmin()
    return Pair(f[k], delta[k], label, soft[k], score[k].item())


def completed(model: Module, g: Tensor, g_b: Tensor, label: int, f_1: Tensor) -> tuple:
    """Features (N, 2, n), errors (N, 2, classes) and x̃'s label, for features f₁ (N, n) of x_s."""
    w, b = (p.detach().to(g) for p in (model.head.weight, model.head.bias))
    d_1 = (f_1 @ w.T + b).softmax(1) - one_hot(torch.tensor(label), len(b)).to(g)
    d_2 = 2 * g_b - d_1
    rest = 2 * g - d_1[:, :, None] * f_1[:, None]  # δ₂ f₂ᵀ
    f_2 = (rest * d_2[..., None]).sum(1) / d_2.pow(2).sum(1, keepdim=True)
    soft = (f_2 @ w.T + b).softmax(1) - d_2
    return torch.stack([f_1, f_2], 1), torch.stack([d_1, d_2], 1), soft


def refined(model: Module, tensors: dict[str, Tensor], pair: Pair) -> Pair:
    """Move f₁ in its plane to where the third convolution's gradient fits best (Nelder–Mead).

    Needed where δ₁ and δ₂ are nearly parallel, as with ỹ = y_s: there the last layer tells f₁ + f₂
    only. Then the search also starts on both sides of where it is.
    """
    from scipy.optimize import minimize  # slow to import

    g, g_b = tensors["head.weight"], tensors["head.bias"]
    _, sizes, right = torch.linalg.svd(g, full_matrices=False)
    v = right[:2].T

    def at(a: Sequence[float]) -> Pair:
        f_1 = v @ torch.as_tensor(a).to(g)
        f, delta, soft = (t[0] for t in completed(model, g, g_b, pair.label, f_1[None]))
        return pair._replace(f=f, delta=delta, soft=soft)

    def misfit(a: Sequence[float]) -> float:
        _, _, left_over = third_inputs(model, tensors, at(a))
        return left_over

    a_0, found = v.T @ pair.f[0], []
    for aside in (0.0, -1.0, 1.0) if sizes[1] < 1e-2 * sizes[0] else (0.0,):
        a = (a_0 + torch.tensor([0, aside]).to(g)).tolist()
        step = 0.2 if aside else 1e-3
        simplex = [a, [a[0] + step / 2, a[1]], [a[0], a[1] + step]]
        how = {"initial_simplex": simplex, "xatol": 1e-7, "fatol": 1e-12, "maxfev": 150}
        found.append(minimize(misfit, a, method="Nelder-Mead", options=how))
    best = min(found, key=lambda end: end.fun)
    return at(best.x) if best.fun < third_inputs(model, tensors, pair)[2] else pair


def third_inputs(model: Module, tensors: dict, pair: Pair) -> tuple[Tensor, Tensor, float]:
    """Inputs (2, n) of the third convolution, errors (2, n) behind it; what it leaves unexplained.

    Its weight gradient is linear in both inputs: 300 equations for 98 unknowns a channel.
    """
    third, side = model.features[4], model.shape[-1] // 4
    seen = by_channel(tensors["features.4.weight"].double())
    e = pair.delta @ model.head.weight.detach().double() * pair.f * (1 - pair.f)
    m = torch.cat(
        [kernel_gradient(row.view(third.out_channels, -1), third, side) / 2 for row in e], 1
    )
    inputs = torch.linalg.lstsq(m, seen).solution
    left_over = (m @ inputs - seen).norm().nan_to_num(torch.inf).item()
    return inputs.T.view(-1, 2, side**2).transpose(0, 1).flatten(1), e, left_over


def conv_matrix(conv: Module, side: int) -> Tensor:
    """The linear map of a convolution on flat inputs, (outputs, inputs), double precision."""
    n = conv.in_channels * side**2
    basis = torch.eye(n).double().view(n, -1, side, side)
    out = conv2d(basis, conv.weight.detach().double(), None, conv.stride, conv.padding)
    return out.flatten(1).T


def kernel_gradient(errors: Tensor, conv: Module, side: int) -> Tensor:
    """M (outputs·k², side²): an input channel a has the weight gradient M a.

    The rows are those of weight[:, channel], in order; errors (outputs, positions) are ∂loss/∂out.
    """
    basis = torch.eye(side**2).to(errors).view(-1, 1, side, side)
    seen = unfold(basis, conv.kernel_size, padding=conv.padding, stride=conv.stride)
    return torch.einsum("ou,nku->okn", errors, seen).flatten(0, 1)


def by_channel(gradient: Tensor) -> Tensor:
    """A weight gradient (outputs, inputs, k, k) as (outputs·k², inputs)."""
    return gradient.transpose(0, 1).flatten(2).flatten(1).T


def image_behind(model: Module, tensors: dict[str, Tensor], pair: Pair) -> Tensor:
    """The first image of a pair (C, H, W), back through the lenet's three convolutions."""
    first, second, third = (model.features[i] for i in (0, 2, 4))
    sides = (model.shape[-1], model.shape[-1] // 2, model.shape[-1] // 4)
    m_1, m_2, m_3 = _matrices(first, second, third, sides)
    g_2, channels = by_channel(tensors["features.2.weight"].double()), second.out_channels
    a_2, e_3, _ = third_inputs(model, tensors, pair)
    a_2 = a_2.clamp(1e-7, 1 - 1e-7)
    e_2 = e_3 @ m_3 * a_2 * (1 - a_2)
    ours, theirs = (kernel_gradient(e.view(channels, -1), second, sides[1]) / 2 for e in e_2)
    left, sizes, _ = torch.linalg.svd(theirs)
    free = left[:, int((sizes > 1e-6 * sizes[0]).sum()) :].T  # what no x̃ can have caused
    size = (free @ ours).norm() / len(free) ** 0.5
    ours, seen = free @ ours / size, free @ g_2 / size
    out = a_2[0].logit() - second.bias.detach().double().repeat_interleave(sides[2] ** 2)
    shift = first.bias.detach().double().repeat_interleave(sides[1] ** 2)

    def residual(x: Tensor) -> tuple[Tensor, Tensor]:
        a_1 = torch.sigmoid(m_1 @ x + shift)
        fit = ours @ a_1.view(-1, sides[1] ** 2).T - seen
        return torch.cat([fit.T.flatten(), m_2 @ a_1 - out]), a_1

    x, damp = torch.zeros(m_1.shape[1]).double(), 1e-6
    (r, a_1), eye = residual(x), torch.eye(m_1.shape[1]).double()
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


def swapped(pair: Pair) -> Pair:
    """The other order: where both labels are one-hot, nothing tells x̃ from x_s but its range."""
    return pair._replace(f=pair.f.flip(0), delta=pair.delta.flip(0))


def _outside(image: Tensor) -> float:
    return (image - image.clamp(0, 1)).abs().max().item()


_kept: dict[tuple, tuple] = {}


def _matrices(first: Module, second: Module, third: Module, sides: tuple) -> tuple:
    key = (sides, *(conv.weight.detach().double().sum().item() for conv in (first, second, third)))
    if key not in _kept:
        convs = zip((first, second, third), sides, strict=True)
        _kept[key] = tuple(conv_matrix(conv, side) for conv, side in convs)
    return _kept[key]


def _separate(settings: dict, cell: dict) -> dict:
    v = victims(settings, cell["variant"])
    upload, found, pairs = v.upload, [], []
    net = copy.deepcopy(upload.model).double().requires_grad_(False)
    began = time.process_time()
    for k in range(len(upload)):
        one = {n: t[k].double() for n, t in upload.tensors.items()}
        pair = separate(net, one["head.weight"], one["head.bias"], range(net.num_classes))
        pair = refined(net, one, pair)
        pairs.append(pair)
        orders = [pair] if pair.soft.max() < 0.99 else [pair, swapped(pair)]
        found.append(min((image_behind(net, one, p) for p in orders), key=_outside))
    seconds = time.process_time() - began
    began = time.process_time()
    IDLG(steps=20, show=False).run(upload, seed=settings["seed"])
    images, unit = torch.stack(found), (time.process_time() - began) / 21
    soft = upload.knows["mixture"][:, 1]
    f = net.features(torch.stack([v.x, v.concealed], 1).double().flatten(0, 1)).detach()
    apart = torch.stack([p.f for p in pairs]) - f.view(len(pairs), 2, -1)
    off = apart.norm(dim=2) / f.view(len(pairs), 2, -1).norm(dim=2)
    out = scores(settings, images, v.x) | {
        "label_right": sum(p.label == t for p, t in zip(pairs, v.y.tolist(), strict=True)),
        "soft_error": [
            float(f"{(p.soft - t).abs().max():.2g}") for p, t in zip(pairs, soft, strict=True)
        ],
        "feature_error": [[float(f"{e:.2g}") for e in row] for row in off.tolist()],
        "score": [float(f"{p.score:.2g}") for p in pairs],
        "same_label": (v.labels == v.y).tolist(),
        "evaluations_worth": round(seconds / unit, 1),  # of one gradient by the same clock
    }
    if cell["variant"] == MAIN:
        out["pictures"] = _pictures(images)
    return out


# What crafting costs


def _overhead(settings: dict, cell: dict) -> dict:
    """Process time of sharing with DCS² over sharing without, for 16 clients at once or in turn."""
    data, n = load("mnist"), 16
    model = models.build("lenet", data, seed=settings["seed"])
    x, y = data.sample(n, split="test", seed=settings["seed"])

    def seconds(defense: Defense, rows: int, at_once: bool) -> float:
        began = time.process_time()
        for part in torch.arange(rows).split(rows if at_once else 1):
            share(model, x[part], y[part], defense, each=1)
        return (time.process_time() - began) / rows

    def plain(at_once: bool) -> float:
        return statistics.median(seconds(Defense(), n, at_once) for _ in range(9))

    hidden = defended(settings, MAIN)
    plain(True)  # the first call is slower
    times = {True: seconds(hidden, n, True), False: seconds(hidden, 4, False)}
    return {
        "batched": round(times[True] / plain(True), 1),
        "one_by_one": round(times[False] / plain(False), 1),
        "one_by_one_over_batched": round(times[False] / times[True], 2),
        "steps": settings["craft"],
    }


STUDY = Study(
    name="dcs2-attack",
    about="DCS² on digits: the paper's attackers, and attackers who know of the concealed image",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
