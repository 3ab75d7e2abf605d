"""The generator behind GGL: trained on public digits, then both generative attacks on private ones.

The first cell trains a variational autoencoder on training images from index 2,000 on and stores
its decoder among the results. The others attack images of the test split, which it never saw.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, binary_cross_entropy, grid_sample

from ... import metrics, models
from ...attacks.generative.generator import PUBLIC_FROM, Generator
from ...attacks.generative.ggl import GGL
from ...attacks.generative.grnn import GRNN
from ...client import share
from ...data import load
from ...runtime import generator, progress
from ...stored import own, save
from ..base import Study


def _settings(profile: str) -> dict:
    return {
        "dataset": "mnist",
        "public": f"training images from index {PUBLIC_FROM} on",
        "private": "test split",
        "seed": 0,
        "training": {"steps": 15000, "batch": 64, "rate": 2e-3, "kl": 1.0},
        "model": "lenet",
        "images": 8 if profile == "cpu" else 100,
        "steps": {"ggl-adam": 500, "ggl-cma": 4200, "grnn": 800},
        "restarts": {"ggl-adam": 4, "ggl-cma": 1},
    }


def _cells(settings: dict) -> list[dict]:
    return [{"cell": "train"}, *({"cell": name} for name in settings["steps"])]


def _compute(settings: dict, cell: dict) -> dict:
    if cell["cell"] == "train":
        return _train(settings)
    name, seed = cell["cell"], settings["seed"]
    size, steps = 32 if name == "grnn" else 28, settings["steps"][name]
    attack: GRNN | GGL = GRNN(steps=steps, show=False)
    if name != "grnn":
        optimizer, restarts = name.removeprefix("ggl-"), settings["restarts"][name]
        attack = GGL(optimizer=optimizer, steps=steps, restarts=restarts, show=False)
    data = load(settings["dataset"], size=size if size != 28 else None)
    x, y = data.sample(settings["images"], seed=seed, split="test")
    net = models.build(settings["model"], data, seed=seed)
    began = time.perf_counter()
    found = attack.run(share(net, x, y, each=1), seed=seed)
    scores = metrics.compare(found.images, x)
    return {
        "size": size,
        "psnr": [round(v, 2) for v in scores["psnr"].tolist()],
        "ssim": [round(v, 4) for v in scores["ssim"].tolist()],
        "cost": [float(f"{v:.3g}") for v in found.cost.tolist()],
        "labels_right": int((found.labels.cpu() == y).sum()),
        "evaluations": found.evaluations,
        "attack_seconds": round(time.perf_counter() - began, 1),
    }


def train(x: Tensor, steps: int, batch: int, rate: float, kl: float, seed: int = 0) -> Generator:
    """Decoder of a VAE fitted to images x (N, 1, 28, 28): cross-entropy + kl·KL(q(z|x) ‖ N(0, I)).

    Each image is turned, scaled and shifted a little at each use, since N is small.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed).initial_seed())
        decoder = Generator()
        encoder = nn.Sequential(
            *(nn.Flatten(), nn.Linear(28 * 28, 256), nn.ELU()),
            *(nn.Linear(256, 128), nn.ELU(), nn.Linear(128, 2 * decoder.latent)),
        )
        parameters = [*encoder.parameters(), *decoder.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in progress(range(steps), "VAE"):
            real = _jitter(x[torch.randint(len(x), (batch,))])
            mean, log_var = encoder(real).chunk(2, 1)
            z = mean + (log_var / 2).exp() * torch.randn_like(mean)
            prior = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1).mean()
            fit = binary_cross_entropy(decoder(z), real, reduction="sum") / batch
            optimizer.zero_grad()
            (fit + kl * prior).backward()
            optimizer.step()
            schedule.step()
    return decoder.eval()


def _jitter(x: Tensor) -> Tensor:
    """Turn by up to 0.2 rad, scale by up to 10 %, shift by up to 2 pixels."""
    n = len(x)
    turn, scale, shift = (2 * torch.rand(3, n, 2) - 1) * torch.tensor([0.2, 0.1, 1 / 7])[
        :, None, None
    ]
    c, s = turn[:, 0].cos() * (1 + scale[:, 0]), turn[:, 0].sin() * (1 + scale[:, 0])
    theta = torch.stack([c, -s, shift[:, 0], s, c, shift[:, 1]], 1).view(n, 2, 3)
    grid = affine_grid(theta, list(x.shape), align_corners=False)
    return grid_sample(x, grid, align_corners=False).clamp(0, 1)


def _train(settings: dict) -> dict:
    data, seed = load(settings["dataset"]), settings["seed"]
    x = data.x_train[PUBLIC_FROM:]
    net = train(x, **settings["training"], seed=seed)
    path = own() / "weights" / "digits.safetensors"
    about = {"study": "generator", "source": data.source, "public": settings["public"]}
    sha = save(net, path, {**about, "seed": str(seed)})
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": sha, "images": len(x)}


STUDY = Study(
    name="generative-priors/generator",
    about="a generator of public digits (VAE decoder), and GGL and GRNN on one gradient of others",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
