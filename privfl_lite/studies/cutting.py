"""Cutting gradients: how far an image is still determined by what pruning or Soteria lets through.

"newton" cells solve the equations that are on the wire, digits at half or full size; "search" cells
match gradients at full size, once as if nothing had been cut and once knowing that it was.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jvp, vmap
from torch.nn.functional import avg_pool2d

from .. import metrics, models
from ..attacks import IDLG, Reconstruction
from ..data import load
from ..defenses import Prune, Soteria
from ..gradients import gradient_function, stateless, weights
from ..wire import Upload, share
from .base import Study

CHUNK = 112  # columns of the Jacobian in memory at once


def read_label(upload: Upload) -> Tensor:
    """Labels (U,): of one image's last bias gradient only the label's entry is below 0."""
    return upload.tensors["head.bias"].argmin(1)


def flat(tensors: dict[str, Tensor], u: int = 0) -> Tensor:
    """All numbers of upload u as one vector, tensors in the order of the model."""
    return torch.cat([t[u].flatten() for t in tensors.values()])


def gradient_of_pixels(upload: Upload, label: Tensor, dtype: torch.dtype) -> Callable:
    """f(v): the flat gradient that an image with pixels v (n,) and this label would send."""
    net = copy.deepcopy(upload.model).to(dtype)
    f, theta = gradient_function(stateless(net, "eval")), weights(net)
    names, shape = list(upload.tensors), (1, 1, *upload.model.shape)

    def g(v: Tensor) -> Tensor:
        sent = f(theta, v.view(shape), label.view(1, 1))
        return flat({n: sent[n] for n in names})

    return g


def jacobian(g: Callable, v: Tensor, keep: Tensor) -> Tensor:
    """∂g/∂v at v, (kept entries, n), by one forward pass a pixel."""
    columns = vmap(lambda e: jvp(g, (v,), (e,))[1][keep], chunk_size=CHUNK)
    return columns(torch.eye(len(v)).to(v)).T


def gauss_newton(upload: Upload, masked: bool = True, steps: int = 25) -> Reconstruction:
    """Solve g(x) = upload for the one image behind each upload, from a gray start, by damped steps.

    ``masked`` takes only the entries that are not zero as equations; else zeros count as zeros.
    Step: (JᵀJ + c·diag JᵀJ) s = −Jᵀ(g(x) − upload), c lowered after a success and raised after a
    failure (Levenberg and Marquardt). J in 32-bit floats, everything else in 64.
    """
    labels, images, costs = read_label(upload), [], []
    for u in range(len(upload)):
        exact, fast = (
            gradient_of_pixels(upload, labels[u], d) for d in (torch.float64, torch.float32)
        )
        seen = flat(upload.tensors, u).double()
        keep = seen != 0 if masked else torch.ones_like(seen, dtype=torch.bool)
        v = torch.full((torch.Size(upload.model.shape).numel(),), 0.5, dtype=torch.float64)
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


def rank(upload: Upload, x: Tensor, u: int = 0) -> tuple[int, int]:
    """How many entries of upload u are not zero, and the rank of their Jacobian at the image x."""
    g = gradient_of_pixels(upload, read_label(upload)[u], torch.float64)
    keep = flat(upload.tensors, u) != 0
    s = torch.linalg.svdvals(jacobian(g, x.double().flatten(), keep))
    return int(keep.sum()), int((s > 1e-10 * s[0]).sum())


def digits(side: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Held-out digits (count, 1, side, side), side 28 or 14 (means of 2 × 2 pixels)."""
    x, y = load("mnist").sample(count, seed=seed, split="test")
    return avg_pool2d(x, 28 // side), y


def encode(image: Tensor) -> str:
    """A gray image (1, H, W) in 16 levels, one hexadecimal digit a pixel."""
    levels = (15 * metrics.as_image(image)).round().int().flatten().tolist()
    return "".join(f"{v:x}" for v in levels)


def decode(text: str) -> Tensor:
    """The square image (1, H, W) behind ``encode``."""
    side = int(len(text) ** 0.5)
    return torch.tensor([int(c, 16) / 15 for c in text]).view(1, side, side)


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "source": load("mnist").source,
        "model": "lenet (sigmoid), untrained, one image an upload, labels inferred",
        "images": 64 if large else 5,
        "ranks": 5 if large else 2,  # images whose Jacobian's rank is computed
        "newton": {
            "prune 14": [0.95, 0.97, 0.975, 0.98, 0.985, 0.99],
            "prune 28": [0.5, 0.7, 0.9, 0.93, 0.94, 0.95, 0.99, 0.999],
            "soteria 28": [0.2, 0.6, 0.9],
        },
        "naive newton": {"prune 28": [0.5, 0.7, 0.9, 0.99], "soteria 28": [0.2]},
        "search": {
            "steps": 1500 if large else 300,
            "rates": [0.2, 0.5, 0.7, 0.9, 0.99],
            "tv prune": 0.1,  # chosen on other images; the same for both attackers
        },
        "seed": 1,
    }


def _cells(settings: dict) -> list[dict]:
    cells = [
        {"part": "search", "defense": d, "side": 28, "rate": r, "attacker": a}
        for d, informed in (("prune", "mask"), ("soteria", "drop"))
        for r in settings["search"]["rates"]
        for a in ("naive", informed)
        if a != "drop" or r == settings["search"]["rates"][-1]  # the rate makes no difference
    ]
    for part, attacker in (("newton", "mask"), ("naive newton", "naive")):
        for name, rates in settings[part].items():
            defense, side = name.split()
            case = {"part": "newton", "defense": defense, "side": int(side)}
            cells += [{**case, "rate": r, "attacker": attacker} for r in rates]
    return cells


def _compute(settings: dict, cell: dict) -> dict:
    side, who = cell["side"], cell["attacker"]
    x, y = digits(side, settings["images"], settings["seed"])
    defense = (Prune if cell["defense"] == "prune" else Soteria)(cell["rate"])
    upload = share(models.build("lenet", (1, side, side), 10), x, y, defense, each=1)
    extra = {}
    if cell["part"] == "newton":
        found = gauss_newton(upload, who == "mask")
        if who == "mask":
            pairs = [rank(upload, x[u], u) for u in range(settings["ranks"])]
            extra = {"kept": [k for k, _ in pairs], "rank": [r for _, r in pairs]}
    else:
        options = settings["search"]
        found = IDLG(
            steps=options["steps"],
            tv=options["tv prune"] if cell["defense"] == "prune" else 0.0,
            nonzero=who == "mask",
            drop=("head.weight",) if who == "drop" else (),
            show=False,
        ).run(upload)
    return {
        **_scores(found, x, y),
        **extra,
        "pictures": [encode(image) for image in found.images[:3]],
    }


def _scores(found: Reconstruction, x: Tensor, y: Tensor) -> dict:
    scores = metrics.compare(found.images, x)
    return {
        "psnr": [round(min(v, 150.0), 2) for v in scores["psnr"].tolist()],
        "ssim": [round(v, 3) for v in scores["ssim"].tolist()],
        "labels_right": int((found.labels == y).sum()),
    }


STUDY = Study(
    name="cutting",
    about="pruning and Soteria: images found by naive and by informed attackers, and the rank",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
