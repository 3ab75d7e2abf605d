"""PRECODE against ten attackers, on other networks, and in training (chapter: changing the model).

One held-out digit an upload, labels granted (the sign of the head's bias gradient tells them).
``draw="weak"`` is the package's layer, std = softplus(s − 5); ``"strong"`` has 5 added to the first
biases of s, so that it starts with std = softplus(s), as a public implementation has it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import softplus

from .. import metrics, models
from ..attacks import GS, IDLG, Recursive
from ..attacks.engine import adam, lbfgs
from ..attacks.matching import distance, total_variation
from ..client import Plan
from ..data import load
from ..defenses import PRECODE
from ..defenses.base import Defense
from ..defenses.precode import Bottleneck
from ..federated import FedAvg
from ..gradients import Tensors, gradient_function, loss_function, stateless, weights
from ..runtime import generator, seeded
from ..wire import Upload, share
from .base import Study
from .failure_gallery import picture

ATTACKS = {  # name -> what the attacker does
    "GS": "cosine, fresh noise at each evaluation",
    "L-BFGS": "L2, fresh noise at each evaluation",
    "average": "L2 to the mean gradient of 8 draws",
    "no noise": "L2, imitates with noise 0",
    "drop": "L2, noise 0, only the tensors in front of the draw",
    "joint": "L2, searches for image and noise together",
    "noise read": "L2, imitates with the noise read off the upload",
    "inversion": "matches the representation that the encoder gives away",
    "cut": "matches the layers in front of the draw, cut off from it",
    "recursion": "goes back from the encoder by linear algebra",
}
ELSEWHERE = {  # name -> data, network, options
    "LeNet, sigmoid": ("mnist", "lenet", {}),
    "LeNet, ReLU": ("mnist", "lenet", {"act": "relu", "init": 0.1}),
    "LeNet-5, max pooling": ("mnist", "lenet5", {}),
    "ResNet-20, batch norm": ("mnist", "resnet20", {}),
    "LeNet, ReLU, CIFAR-10": ("cifar10", "lenet", {"act": "relu", "init": 0.1}),
}


class Draw(PRECODE):
    """PRECODE whose standard deviation starts at softplus(s + shift − 5)."""

    def __init__(self, size: int = 256, beta: float = 1e-3, seed: int = 0, shift: float = 0.0):
        super().__init__(size, beta, seed)
        self.shift = shift

    def model(self, model: models.Net) -> models.Net:
        model = super().model(model)
        with torch.no_grad():
            model.features[-1].encode.bias[self.size :] += self.shift
        return model


class Chosen(Bottleneck):
    """The same layer with the noise as an input: a buffer (size,) that the attacker sets."""

    def __init__(self, layer: Bottleneck):
        nn.Module.__init__(self)
        self.encode, self.decode, self.beta = layer.encode, layer.decode, layer.beta
        self.penalty = 0.0
        self.register_buffer("noise", torch.zeros(layer.decode.in_features))

    def forward(self, r: Tensor) -> Tensor:  # (B, R) -> (B, R)
        mean, s = self.encode(r).chunk(2, dim=1)
        std = softplus(s - 5)
        kl = (mean.square() + std.square() - 1).sum(1) / 2 - std.log().sum(1)
        self.penalty = self.beta * kl.mean()
        return self.decode(mean + std * self.noise)


def door(upload: Upload) -> str:
    """The name of the bottleneck, the last of the features."""
    return f"features.{len(upload.model.features) - 1}"


def imitator(upload: Upload) -> Callable[[Tensor, Tensor, Tensor], Tensors]:
    """f(x, y, noise): gradients (P, …) of clients with x (P, B, …), y (P, B), noise (P, size)."""
    net, name = stateless(upload.model, upload.mode), door(upload)
    net.features[-1] = Chosen(net.features[-1])
    theta, loss = weights(upload.model), loss_function(net)

    def one(x: Tensor, y: Tensor, noise: Tensor) -> Tensors:
        def at(theta: Tensors) -> Tensor:
            return loss(functional_call(net, {**theta, f"{name}.noise": noise}, (x,)), y)

        return grad(at)(theta)

    return vmap(one)


def input_of(upload: Upload, layer: str) -> Tensor:
    """What entered a fully connected layer with a bias, (U, in): ∇Wᵀ∇b / ‖∇b‖²."""
    g, b = upload.tensors[f"{layer}.weight"].double(), upload.tensors[f"{layer}.bias"].double()
    a = torch.einsum("uoi,uo->ui", g, b) / b.square().sum(1, keepdim=True)
    return a.to(upload.tensors[f"{layer}.weight"])


def read_noise(upload: Upload) -> Tensor:
    """The client's own noise (U, size): ε = (z − μ(r)) / σ(r), with r and z read off."""
    name = door(upload)
    with torch.no_grad():
        mean, s = upload.model.features[-1].encode(input_of(upload, f"{name}.encode")).chunk(2, 1)
    return (input_of(upload, f"{name}.decode") - mean) / softplus(s - 5)


def cut_cost(upload: Upload, features: bool = True, gradients: bool = True) -> Callable:
    """cost(x, rows): how far images x (P, C, H, W) are from what stands in front of the draw.

    ``features``: ‖f(x) − r‖² / ‖r‖², where r was read. ``gradients``: for each tensor the squared
    distance of the gradient of ⟨Wᵀ∇b, f(x)⟩ to the upload's, relative to its size.
    """
    name, net = door(upload), stateless(upload.model, upload.mode).features[:-1]
    r, theta = input_of(upload, f"{name}.encode"), dict(net.named_parameters())
    back = upload.tensors[f"{name}.encode.bias"] @ upload.model.features[-1].encode.weight.detach()
    seen = {n: upload.tensors[f"features.{n}"] for n in theta}
    size = {n: t.flatten(1).square().sum(1).clamp(min=1e-30) for n, t in seen.items()}
    gradient = vmap(
        grad(lambda th, x, b: functional_call(net, th, (x[None],))[0] @ b), (None, 0, 0)
    )

    def cost(x: Tensor, rows: Tensor) -> Tensor:
        total = torch.zeros(len(x))
        if features:
            off = functional_call(net, theta, (x,)) - r[rows]
            total = total + off.square().sum(1) / r[rows].square().sum(1)
        if gradients:
            g = gradient(theta, x, back[rows])
            gaps = ((g[n] - t[rows]).flatten(1).square().sum(1) for n, t in seen.items())
            total = total + sum(gap / size[n][rows] for n, gap in zip(seen, gaps, strict=True))
        return total

    return cost


def attack(name: str, upload: Upload, steps: int, seed: int = 0) -> Tensor:
    """The images (U, C, H, W) that one of ATTACKS finds; ``steps`` evaluations."""
    shape, u, k = upload.model.shape, len(upload), upload.model.features[-1].decode.in_features
    if name in ("GS", "L-BFGS"):
        kind = GS if name == "GS" else IDLG
        with seeded(seed, 1):
            return kind(steps=steps, show=False).run(upload, seed=seed).images
    if name == "recursion":
        return Recursive(entry=f"{door(upload)}.encode").run(upload).images
    pixels = torch.Size(shape).numel()
    start = torch.stack([torch.randn(pixels, generator=generator(seed, p)) for p in range(u)])
    if name == "cut":
        cost = cut_cost(upload)
        return lbfgs(lambda z, rows: cost(z.view(-1, *shape), rows), start, range(steps)).z.view(
            -1, *shape
        )
    if name == "inversion":
        cost = cut_cost(upload, gradients=False)

        def smooth(z: Tensor, rows: Tensor) -> Tensor:
            x = z.view(-1, *shape)
            return cost(x, rows) + 1e-4 * total_variation(x[:, None])

        gray = torch.full((u, pixels), 0.5)
        found = adam(smooth, gray, range(2 * steps), 2 * steps, project=lambda z: z.clamp_(0, 1))
        return found.z.view(-1, *shape)
    return _matching(name, upload, steps, start, k)


def _matching(name: str, upload: Upload, steps: int, start: Tensor, k: int) -> Tensor:
    """L2 and L-BFGS with noise of the attacker's choice."""
    shape, y, imitate = upload.model.shape, upload.knows["labels"], imitator(upload)
    pixels, seen = start.shape[1], upload.tensors
    fixed = read_noise(upload) if name == "noise read" else torch.zeros(len(upload), k)
    draws = [torch.randn(k, generator=generator(7, j)) for j in range(8)]
    names = [n for n in seen if name != "drop" or not n.startswith(("head", door(upload)))]

    def cost(z: Tensor, rows: Tensor) -> Tensor:
        x, target = z[:, :pixels].reshape(-1, 1, *shape), {n: t[rows] for n, t in seen.items()}
        if name == "average":
            many = [imitate(x, y[rows], e.expand(len(x), k)) for e in draws]
            g = {n: sum(m[n] for m in many) / len(many) for n in names}
        else:
            g = imitate(x, y[rows], z[:, pixels:] if name == "joint" else fixed[rows])
        return distance("l2", g, target, names)

    if name == "joint":
        start = torch.cat([start, fixed], 1)
    steps = steps // 4 if name == "average" else steps
    return lbfgs(cost, start, range(steps)).z[:, :pixels].reshape(-1, *shape)


def randomness(
    net: models.Net, x: Tensor, y: Tensor, defense: Defense | None, draws: int = 20
) -> dict[str, float]:
    """Noise to signal of each tensor of the gradient: root of the total variance over draws,
    divided by the length of the mean; the median over images. ``None``: net draws by itself."""
    net = stateless(net if defense is None else defense.model(copy.deepcopy(net)), "eval")
    f, theta, sent = gradient_function(net), weights(net), []
    for j in range(draws):
        with seeded(j):
            sent.append(f(theta, x[:, None], y[:, None]))
    out = {}
    for n in sent[0]:
        t = torch.stack([g[n].flatten(1) for g in sent])  # (draws, images, numbers)
        noise, signal = t.var(0).sum(1).sqrt(), t.mean(0).norm(dim=1)
        out[n] = (noise / signal).median().item()
    return out


def _settings(profile: str) -> dict:
    large = profile == "gpu"
    return {
        "sources": {name: load(name).source for name in ("mnist", "cifar10")},
        "split": "test",
        "images": 32 if large else 6,
        "sizes": [16, 256],
        "shifts": {"weak": 0.0, "strong": 5.0},
        "beta": 1e-3,
        "evaluations": 2000 if large else 300,
        "pictures": 3,
        "clients": 10,
        "per_client": 100,
        "rounds": 100 if large else 30,
        "eta": 0.1,
        "seeds": [0, 1, 2],
    }


def _cells(settings: dict) -> list[dict]:
    cells = [{"part": "attack", "draw": "none", "size": 0, "attack": a} for a in ("GS", "L-BFGS")]
    cells += [
        {"part": "attack", "draw": d, "size": k, "attack": a}
        for k in settings["sizes"]
        for d in settings["shifts"]
        for a in ATTACKS
    ]
    cells += [
        {"part": "elsewhere", "network": n, "attack": a}
        for n in ELSEWHERE
        for a in ("inversion", "cut", "recursion")
    ]
    return cells + [{"part": "train", "draw": d} for d in ("none", *settings["shifts"])]


def _compute(settings: dict, cell: dict) -> dict:
    return {"attack": _attack, "elsewhere": _elsewhere, "train": _train}[cell["part"]](
        settings, cell
    )


def _scores(settings: dict, found: Tensor, x: Tensor) -> dict:
    scores = metrics.compare(found, x)
    out = {n: [round(min(v, 150.0), 3) for v in scores[n].tolist()] for n in ("psnr", "ssim")}
    if x.shape[1] == 1:
        out["images"] = [picture(v) for v in found[: settings["pictures"]]]
    return out


def _attack(settings: dict, cell: dict) -> dict:
    data = load("mnist")
    x, y = data.sample(settings["images"], split=settings["split"], seed=0)
    net, defense = models.build("lenet", data), None
    if cell["draw"] != "none":
        shift = settings["shifts"][cell["draw"]]
        defense = Draw(cell["size"], settings["beta"], shift=shift)
    upload = share(net, x, y, defense, knows=("labels",), each=1)
    if defense is None:
        kind = GS if cell["attack"] == "GS" else IDLG
        found = kind(steps=settings["evaluations"], show=False).run(upload).images
    else:
        found = attack(cell["attack"], upload, settings["evaluations"])
    return _scores(settings, found, x)


def _elsewhere(settings: dict, cell: dict) -> dict:
    name, network, options = ELSEWHERE[cell["network"]]
    data = load(name)
    x, y = data.sample(4, split=settings["split"], seed=0)
    net = models.build(network, data, **options)
    upload = share(net, x, y, Draw(16, shift=5.0), knows=("labels",), each=1)
    steps = settings["evaluations"] // (3 if network == "resnet20" else 1)
    try:
        return _scores(settings, attack(cell["attack"], upload, steps), x)
    except ValueError as error:  # the recursion says what it cannot pass
        return {"refused": str(error).split("(")[0].strip()}


def _train(settings: dict, cell: dict) -> dict:
    """Accuracy of FedAvg, and the draw's standard deviation and randomness when it ends."""
    data, out = load("mnist"), {"accuracy": [], "std": [], "randomness": [], "seconds": []}
    for seed in settings["seeds"]:
        defense = Defense()
        if cell["draw"] != "none":
            shift = settings["shifts"][cell["draw"]]
            defense = Draw(256, settings["beta"], seed, shift)
        clients = data.clients(settings["clients"], per_client=settings["per_client"], seed=seed)
        plan = Plan(eta=settings["eta"], batch_size=10)
        run = FedAvg(
            models.build("mlp", data, seed=seed),
            clients,
            settings["rounds"],
            plan,
            test=(data.x_test, data.y_test),
            defense=defense,
            seed=seed,
            show=False,
        )
        began = time.process_time()
        for _ in run:
            pass
        out["seconds"].append(round(time.process_time() - began, 2))
        out["accuracy"].append(round(run.history[-1].accuracy, 4))
        if cell["draw"] != "none":
            layer, x = run.model.features[-1], data.x_test[:6]
            with torch.no_grad():
                s = layer.encode(run.model.features[:-1](x)).chunk(2, 1)[1]
            out["std"].append(round(softplus(s - 5).mean().item(), 4))
            noise = randomness(run.model, x, data.y_test[:6], None)
            out["randomness"].append({n: round(v, 4) for n, v in noise.items()})
    return out


STUDY = Study(
    name="precode",
    about="PRECODE: ten attackers, a weak and a strong draw; other networks; FedAvg",
    settings=_settings,
    cells=_cells,
    compute=_compute,
)
