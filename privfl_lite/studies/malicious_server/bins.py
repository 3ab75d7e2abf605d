"""Imprint: images alone in their bins, and DCS²'s Table 2 (chapter: the malicious server).

Part "bins" counts lone images on three data sets for three ways to place the edges, and runs the
attack on some batches. Part "wire" repeats the setting of DCS²'s Table 2, one image behind each
upload and ten bins, on stand-in photographs. Part "decoy" puts a second image into each upload and
scores with and without matching.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ... import attacks, data, metrics, models
from ...attacks.malicious.imprint import Imprint, ImprintReadout, normal_edges, quantile_edges
from ...client import share
from ...defenses import DPGaussian, Prune
from ..base import Study

WIRE = {  # name -> defense, as in DCS²'s Table 2 (its scripts prune 50 %, its text says 70 %)
    "none": lambda: None,
    "noise 0.5": lambda: DPGaussian(0.5),
    "prune 0.5": lambda: Prune(0.5),
    "prune 0.7": lambda: Prune(0.7),
}


def laplace_edges(bins: int) -> Tensor:
    """The released edges (bins,) for h = mean normalized pixel: Laplace quantiles, never measured.

    The code asks for 1.32 h and assumes a Laplace law of unit variance; its first edge is −10.
    """
    q = torch.arange(1, bins) / bins - 0.5
    quantiles = -q.sign() * torch.log1p(-2 * q.abs()) / math.sqrt(2)
    return torch.cat([torch.tensor([-10.0]), quantiles]) / 1.32


def expected_alone(sizes: Tensor, batch: int) -> float:
    """Mean number of lone images in a batch drawn without replacement from bins of these sizes."""
    sizes, n = sizes[sizes > 0].double(), int(sizes.sum())

    def log_choose(total: Tensor, taken: int) -> Tensor:
        rest = total - taken
        ways = torch.lgamma(total + 1) - torch.lgamma(rest + 1) - math.lgamma(taken + 1)
        return torch.where(rest < 0, -torch.inf, ways)

    others = log_choose(n - sizes, batch - 1) - log_choose(
        torch.tensor(n - 1.0).double(), batch - 1
    )
    return float(batch * (sizes / n * others.exp()).sum())


def public_alone(batch: int, bins: int, known: int) -> float:
    """Mean number of lone images if the edges are quantiles of ``known`` values of the same law.

    Each bin then holds r = (known + 1) / bins steps of the ordered public values (chapter:
    prop-public-edges, with the binomials continued to any r).
    """
    r, g = (known + 1) / bins, math.lgamma
    log = g(r * (bins - 1) + batch - 1) - g(r * (bins - 1)) - g(r * bins + batch) + g(r * bins)
    return bins * batch * r * math.exp(log)


def alone(h: Tensor, edges: Tensor) -> Tensor:
    """Which values of h (B,) share their bin with no other."""
    bins = torch.bucketize(h, edges.contiguous())
    return (bins[:, None] == bins).sum(1) == 1


def _settings(profile: str) -> dict:
    return {
        "data": ["mnist", "photos", "cifar10"],
        "edges": ["measured", "normal", "released"],
        "sizes": [[16, 64], [64, 128], [64, 1024]],  # (images in a batch, bins)
        "batches": 400,
        "attacked": 3,
        "wire_images": 64,
        "gains": [1e-3, 1e-4],
    }


def _cells(settings: dict) -> list[dict]:
    bins = [
        {"part": "bins", "data": name, "edges": how, "batch": batch, "bins": k}
        for name in settings["data"]
        for how in settings["edges"]
        for batch, k in settings["sizes"]
    ]
    wire = [
        {"part": "wire", "defense": name, "gain": gain, "pixels": "normalized"}
        for name in WIRE
        for gain in settings["gains"]
    ]
    plain = [
        {"part": "wire", "defense": name, "gain": settings["gains"][0], "pixels": "in [0, 1]"}
        for name in ("prune 0.5", "prune 0.7")
    ]
    return [*bins, *wire, *plain, {"part": "decoy"}]


def _compute(settings: dict, cell: dict) -> dict:
    return {"bins": _bins, "wire": _wire, "decoy": _decoy}[cell["part"]](settings, cell)


def _bins(settings: dict, cell: dict) -> dict:
    ds, batch, k = data.load(cell["data"]), cell["batch"], cell["bins"]
    h, known = (x.flatten(1).mean(1) for x in (ds.x_train, ds.x_test))
    if cell["edges"] == "measured":
        edges = quantile_edges(known, k).unique()  # ties among few values would repeat edges
    elif cell["edges"] == "normal":
        edges = normal_edges(known.mean().item(), known.std().item(), k)
    else:
        edges = ds.x_test.mean() + ds.x_test.std() * laplace_edges(k)
    sizes = torch.bucketize(h, edges).bincount(minlength=len(edges) + 1)
    rng = torch.Generator().manual_seed(0)
    counts = [
        int(alone(h[torch.randperm(len(h), generator=rng)[:batch]], edges).sum())
        for _ in range(settings["batches"])
    ]
    net = Imprint(models.build("lenet5", ds), edges, gain=1e-3)
    lone, read, worst = [], [], []
    for seed in range(settings["attacked"]):
        x, y = ds.sample(batch, seed=seed)
        found = ImprintReadout(threshold=1e-6).run(share(net, x, y)).images.flatten(1).cpu()
        error = torch.cdist(x.flatten(1), found, p=torch.inf).amin(1)
        stands = alone(x.flatten(1).mean(1), edges)
        lone.append(int(stands.sum()))
        read.append(int((error[stands] < 1e-3).sum()))
        worst.append(error[stands].max().item() if stands.any() else 0.0)
    low, high = metrics.bootstrap_interval(counts)
    return {
        "source": ds.source,
        "edges_used": len(edges),
        "equal_bins": round(batch * (1 - 1 / k) ** (batch - 1), 2),
        "public": round(public_alone(batch, k, len(known)), 2),
        "public_values": len(known),
        "expected": round(expected_alone(sizes, batch), 2),
        "mean": round(sum(counts) / len(counts), 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "attacked_lone": lone,
        "attacked_read": read,
        "worst_error": float(f"{max(worst):.1e}"),
    }


def _photos(settings: dict, gain: float) -> tuple[Imprint, Tensor, Tensor, Tensor, Tensor]:
    """The released block before a ResNet-20; images, labels, and each channel's mean and std."""
    ds = data.load("photos", size=64)
    pixels = torch.cat([ds.x_train, ds.x_test])
    mean, std = (part.view(3, 1, 1) for part in (pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))))
    net = Imprint(models.build("resnet20", ds), laplace_edges(10), gain)
    with torch.no_grad():
        net.second.weight.fill_(1 / gain)
    x, y = ds.sample(settings["wire_images"], seed=42)
    return net, x, y, mean, std


def _scores(x_hat: Tensor, x: Tensor) -> dict:
    scores = metrics.compare(x_hat, x, lpips="alex")
    return {
        **{f"{name}_mean": round(scores[name].mean().item(), 3) for name in ("ssim", "lpips")},
        **{f"{name}_std": round(scores[name].std().item(), 3) for name in ("ssim", "lpips")},
        "exact": round((scores["ssim"] > 0.99).float().mean().item(), 3),
    }


def _wire(settings: dict, cell: dict) -> dict:
    net, x, y, mean, std = _photos(settings, cell["gain"])
    if cell["pixels"] == "in [0, 1]":  # the same edges, moved with the pixels
        mean, std = torch.zeros_like(mean), torch.ones_like(std)
        pixels = data.load("photos", size=64).x_train
        edges = pixels.mean() + pixels.std() * laplace_edges(10)
        with torch.no_grad():
            net.first.bias.copy_(-cell["gain"] * edges)
    defense = WIRE[cell["defense"]]()
    upload = share(net, (x - mean) / std, y, defense, knows=("labels",), each=1)
    found = ImprintReadout().run(upload).images.cpu()
    return _scores(found * std + mean, x)


def _decoy(settings: dict, cell: dict) -> dict:
    """Two images behind an upload; the score of the first, alone or against the last bin read."""
    net, x, y, mean, std = _photos(settings, settings["gains"][0])
    decoys, labels = data.load("photos", size=64).sample(len(x), seed=7)
    both, y_both = torch.stack([x, decoys], 1).flatten(0, 1), torch.stack([y, labels], 1).flatten()
    upload = share(net, (both - mean) / std, y_both, knows=("labels",), each=2)
    g = upload.gradients()
    weight, bias = (
        torch.cat([t[:, :-1] - t[:, 1:], t[:, -1:]], 1)
        for t in (g["first.weight"].cpu(), g["first.bias"].cpu())
    )
    rows = attacks.row_quotients(weight, bias).view(len(x), 10, *x.shape[1:]) * std + mean
    hit = bias.abs() > 1e-4 * bias.abs().amax(1, keepdim=True)
    last = torch.stack([r[h][-1] for r, h in zip(rows, hit, strict=True)])
    nearest = [
        r[h][(r[h] - image).flatten(1).norm(dim=1).argmin()]
        for r, h, image in zip(rows, hit, x, strict=True)
    ]
    return {
        "two_bins": round((hit.sum(1) == 2).float().mean().item(), 3),
        **{f"last_{k}": v for k, v in _scores(last, x).items()},
        **{f"matched_{k}": v for k, v in _scores(torch.stack(nearest), x).items()},
    }


STUDY = Study(
    name="malicious-server/bins",
    about="Imprint: lone images on three data sets, and the setting of DCS²'s Table 2",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
