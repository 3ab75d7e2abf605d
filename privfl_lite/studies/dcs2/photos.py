"""DCS² on color images, faces and photographs (Tables 1, 2, 3, 6, 9, 11), and who knows of it.

Scores are PSNR and SSIM, as in dcs2-attack: "psnr" (a list, one an image), "psnr_mean",
"psnr_std", "psnr_interval", the same for "ssim", "success" (over 20 dB) with its interval, and
"images". All networks are untrained. Cells by "part":

"table" {net, defense, attack}: CIFAR-10, batch 1, the paper's attackers. "lenet, gray" has the
images without color, where L-BFGS gets through undefended; ATS also has
"psnr_transformed", against the transformed image, as its authors score.
"variant" {variant}: DCS² on the sigmoid lenet by λg and start (the table's: λg 0.7, training
images): scores "gs", and what was crafted: "range", "distance", "cosine".
"pair" {kind}: the closed form of ``attacks.Pair``, granted nothing: "label_right" of "split"
uploads, "soft_error" (concealed label and λg) and "feature_error" of x_s; scores of as many images
as were carried through; "unknowns" and "equations" of its last step, and of everything that both
images leave behind.
"joint" {attack}: L-BFGS on both images, with their labels granted.
"ggl" {defense}: a generator of digits as the prior, in place of CelebA's (Table 2).
"imprint" {data, defense}: ten bins in front, one image an upload, in place of TinyImageNet
(Table 2): "position" scores the last occupied bin, as released; "matched" the occupied bin nearest
to x_s; "occupied" counts uploads by occupied bins; "together" is the share of x̃ in x_s's bin.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from ... import models
from ...attacks import GS, IDLG, Matching, Pair
from ...attacks.adaptive.dcs2_algebra import Split, conv_maps, image_behind, refined, separate
from ...attacks.adaptive.dcs2_matching import joint
from ...attacks.analytic.equations import kernel_equations
from ...client import share
from ...data import load
from ...defenses import ATS, DCS2, Defense, DPGaussian, Prune, Soteria
from ...defenses.base import Memory
from ...defenses.dcs2 import crafted
from ...metrics.judge import scores
from ...pictures import packed
from ...runtime import generator
from ...wire import Upload
from ..base import Study
from .attack import BASELINES as DIGITS
from .strong import BINS, HIDDEN, ggl, gray, hidden, imprint

POLICY = "21-13-3+7-4-15+1-2-5-8-10"  # ATS as released with DCS²
BASELINES = {
    "none": Defense,
    "DP-Gaussian 0.001": lambda: DPGaussian(0.001),
    "Prune 0.7": lambda: Prune(0.7),
    "Prune 0.9": lambda: Prune(0.9),
    "Soteria 0.5": lambda: Soteria(0.5),
    "ATS": lambda: ATS(POLICY),
}
VARIANTS: dict[
    str, dict[str, Any]
] = {  # name -> options of DCS² besides λg 0.7 and a start from training images
    "sample": {},
    "noise": {"start": "noise"},
    "mixup": {"start": "mixup"},
    "photos": {},  # starts from another data set, with random labels
    "λg 0.5": {"lambda_g": 0.5},
    "λg 1.0": {"lambda_g": 1.0},
}
JOINT: dict[str, dict[str, Any]] = {"plain": {}, "smooth": {"tv": 0.03}}
GRAY = "lenet, gray"


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "datasets": ["cifar10", "photos", "faces", "mnist"],
        "images": 64 if large else 16,
        "width": 32 if large else 4,  # of the ConvNet; the paper's code has 32
        "craft": 1000 if large else 150,
        "gs": 10000 if large else 400,
        "lbfgs": 1000 if large else 600,
        "lbfgs_gray": 1000 if large else 400,
        "conv_craft": 1000 if large else 40,
        "conv_gs": 10000 if large else 150,
        "joint": 2000 if large else 600,
        "pair_images": 64 if large else 2,  # carried through to pixels, in color
        "ggl": {"steps": 2500, "restarts": 4} if large else {"steps": 150, "restarts": 2},
        "imprint": {"images": 64 if large else 32, "bins": 10, "gain": 1e-3, "net": "lenet5"},
        "imprint_craft": 1000 if large else 100,
        "pool": 1000,
        "success": 20.0,
        "seed": 0,
    }


def _cells(settings: dict) -> list[dict]:
    def table(net: str, defense: str, attack: str) -> dict:
        return {"part": "table", "net": net, "defense": defense, "attack": attack}

    names = [*BASELINES, HIDDEN]
    cells = [table("lenet", d, "GS") for d in names]
    cells += [{"part": "pair", "kind": kind} for kind in ("gray", "color")]
    cells += [
        {"part": "imprint", "data": data, "defense": d}
        for data in ("photos", "faces")
        for d in (*BINS, HIDDEN)
    ]
    cells += [table(GRAY, d, "iDLG") for d in names if d != "Prune 0.7"]
    cells += [table("lenet", d, "iDLG") for d in ("none", "DP-Gaussian 0.001")]
    cells += [{"part": "joint", "attack": name} for name in JOINT]
    cells += [{"part": "ggl", "defense": d} for d in (*DIGITS, HIDDEN)]
    cells += [table("lenet", d, "GS, class average") for d in ("none", HIDDEN)]
    cells += [{"part": "variant", "variant": v} for v in VARIANTS if v != "sample"]
    return cells + [table("convnet", d, "GS") for d in ("none", HIDDEN)]


def _compute(settings: dict, cell: dict) -> dict:
    parts = {"table": _table, "variant": _variant, "pair": _pair, "joint": _joint}
    return (parts | {"ggl": ggl, "imprint": imprint})[cell["part"]](settings, cell)


# Who is attacked


def victims(
    settings: dict,
    net: str,
    defense: Defense,
    memory: Memory | None = None,
    *,
    colorless: bool = False,
) -> tuple[Upload, Tensor, Tensor]:
    """Uploads of one held-out image of CIFAR-10 each, the images and their labels."""
    data, seed = load("cifar10"), settings["seed"]
    x, y = data.sample(settings["images"], split="test", seed=seed)
    x = gray(x) if colorless else x
    width = {"width": settings["width"]} if net == "convnet" else {}
    model = models.build(net, tuple(x.shape[1:]), 10, seed=seed, **width)
    knows = ("labels", "mixture") if isinstance(defense, DCS2) else ("labels",)
    return share(model, x, y, defense, knows, each=1, seed=seed, memory=memory), x, y


@lru_cache
def class_means() -> Tensor:
    """The mean training image of each class of CIFAR-10, (10, 3, 32, 32)."""
    data = load("cifar10")
    return torch.stack([data.x_train[data.y_train == c].mean(0) for c in range(10)])


# Attackers who look for one image


def _table(settings: dict, cell: dict) -> dict:
    name, net, seed = cell["defense"], cell["net"], settings["seed"]
    conv, colorless = net == "convnet", net == GRAY
    steps = settings["conv_craft" if conv else "craft"]
    defense = hidden(settings, "cifar10", steps, colorless) if name == HIDDEN else BASELINES[name]()
    upload, x, y = victims(settings, net.split(",")[0], defense, colorless=colorless)
    attack: Matching
    if cell["attack"] == "iDLG":
        attack = IDLG(steps=settings["lbfgs_gray" if colorless else "lbfgs"], show=False)
    else:
        start = class_means()[y][:, None] if "average" in cell["attack"] else None
        attack = GS(steps=settings["conv_gs" if conv else "gs"], start=start, show=False)
    found = attack.run(upload, seed=seed)
    out = scores(found.images, x, settings["success"]) | {"evaluations": found.evaluations}
    out["cost"] = [float(f"{c:.3g}") for c in found.cost.tolist()]
    if name == "ATS":
        pairs = [
            defense.data(x[k : k + 1], y[k : k + 1], generator(seed, k)) for k in range(len(x))
        ]
        seen = scores(found.images, torch.cat([image for image, _ in pairs]), settings["success"])
        out |= {f"{k}_transformed": v for k, v in seen.items() if k != "images"}
    if "average" in cell["attack"] and name == "none":
        known = class_means()[y]  # before any attack
        out["start"] = scores(known, x, settings["success"])
    if name in ("none", HIDDEN):
        out |= {"pictures": packed(found.images), "pictures_true": packed(x)}
    return out


def _variant(settings: dict, cell: dict) -> dict:
    options, steps = VARIANTS[cell["variant"]], settings["craft"]
    if cell["variant"] == "photos":
        options = options | {"pool": load("photos").x_train}
    defense = hidden(settings, "cifar10", steps, **options)
    memory = Memory()
    upload, x, _ = victims(settings, "lenet", defense, memory)
    made = [crafted(memory)[k] for k in range(len(upload))]
    images, last = (
        torch.cat([m.images for m in made]),
        torch.cat([m.history[..., -1] for m in made]),
    )
    found = GS(steps=settings["gs"], show=False).run(upload, seed=settings["seed"]).images
    out = {"gs": scores(found, x, settings["success"])}
    return out | {
        "range": [round(images.min().item(), 2), round(images.max().item(), 2)],
        "distance": [round(v, 2) for v in last[:, 2].tolist()],
        "cosine": [round(v, 4) for v in last[:, 1].tolist()],
        "pictures_concealed": packed(images),
    }


# Attackers who know that there are two


def counted(net: models.Net) -> dict:
    """Unknown pixels and equations of ``Pair``'s last step, and of two images behind a lenet.

    The last layer and the third convolution fix both images' second feature maps (n each). Beside
    these, there are the entries of the first two kernels' gradients and of the first bias's: at
    most so many equations for both. For one image, ``Pair``'s last step has n and what of the
    second kernel's equations no x̃ can have caused, in each channel.
    """
    first, second = net.features[0], net.features[2]
    n, side = len(conv_maps(net)[1]), net.shape[-1] // 2
    errors = torch.randn(second.out_channels, n // second.out_channels, generator=generator(0))
    theirs = kernel_equations(second, errors.double(), (side, side))
    free = len(theirs) - int(torch.linalg.matrix_rank(theirs))
    kernels = first.weight.numel() + second.weight.numel() + first.bias.numel()
    pixels = torch.Size(net.shape).numel()
    return {
        "unknowns": pixels,
        "equations": n + second.in_channels * free,
        "unknowns_both": 2 * pixels,
        "equations_both": 2 * n + kernels,
    }


def splits(upload: Upload) -> list[Split]:
    """What the last layer and the third convolution tell of both images, upload by upload."""
    net = copy.deepcopy(upload.model).double().requires_grad_(False)
    out = []
    for k in range(len(upload)):
        one = {n: t[k].double() for n, t in upload.gradients().items()}
        found = separate(net, one["head.weight"], one["head.bias"], range(net.num_classes))
        out.append(refined(net, one, found))
    return out


def _pair(settings: dict, cell: dict) -> dict:
    colorless = cell["kind"] == "gray"
    defense = hidden(settings, "cifar10", settings["craft"], colorless)
    upload, x, y = victims(settings, "lenet", defense, colorless=colorless)
    net = copy.deepcopy(upload.model).double().requires_grad_(False)
    if colorless:
        attack = Pair()
        found = attack.run(upload)
        images, pairs = found.images, found.details["splits"]
    else:
        n, pairs, maps = settings["pair_images"], splits(upload), conv_maps(net)
        tensors = [{m: t[k].double() for m, t in upload.gradients().items()} for k in range(n)]
        images = torch.stack([image_behind(net, tensors[k], pairs[k], maps) for k in range(n)])
    f, soft = net.features(x.double()), cast(Tensor, upload.knows.mixture)[:, 1]
    off = [(p.f[0] - t).norm() / t.norm() for p, t in zip(pairs, f, strict=True)]
    return scores(images, x[: len(images)], settings["success"]) | {
        "split": len(pairs),
        "label_right": sum(p.label == t for p, t in zip(pairs, y.tolist(), strict=True)),
        "soft_error": [
            float(f"{(p.soft - t).abs().max():.2g}") for p, t in zip(pairs, soft, strict=True)
        ],
        "feature_error": [float(f"{v:.2g}") for v in off],
        **counted(net),
        "pictures": packed(images),
        "pictures_true": packed(x),
    }


def _joint(settings: dict, cell: dict) -> dict:
    upload, x, _ = victims(settings, "lenet", hidden(settings, "cifar10", settings["craft"]))
    labels = cast(Tensor, upload.knows.mixture)[:, None]  # (U, 1, 2, classes)
    found, cost, count = joint(upload, labels, settings["joint"], 0, JOINT[cell["attack"]])
    out = scores(found[:, 0, 0], x, settings["success"]) | {"evaluations": count}
    out["cost"] = [float(f"{c:.3g}") for c in cost[:, 0].tolist()]
    return out | {"pictures": packed(found[:, 0, 0])}


STUDY = Study(
    name="dcs2/photos",
    about="DCS² on CIFAR-10, faces and photographs: the paper's attackers, and those who know",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
