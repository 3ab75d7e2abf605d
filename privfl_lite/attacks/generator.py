"""A small generator of digits, G: latent z -> image in [0, 1], for attacks that search its range.

It is the decoder of a variational autoencoder (Kingma & Welling 2014) that ``studies/generator.py``
trained on *public* digits: the training images of ``load("mnist")`` from index 2,000 on. Private
images of an honest experiment come from the first 2,000 or from the test split.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ..runtime import PrivflError, device

WEIGHTS = Path(__file__).resolve().parents[2] / "book" / "weights"
PUBLIC_FROM = 2000  # training images from this index on were seen by the generator, no others


class Generator(nn.Module):
    """Latents (N, latent), standard normal under its prior, to gray images (N, 1, size, size).

    Computes 28×28 pixels; another ``size`` is resized as ``load("mnist", size=…)`` does.
    """

    def __init__(self, latent: int = 32, widths: tuple[int, int] = (128, 256), size: int = 28):
        super().__init__()
        self.latent, self.size = latent, size
        self.body = nn.Sequential(
            *(nn.Linear(latent, widths[0]), nn.ELU(), nn.Linear(*widths), nn.ELU()),
            *(nn.Linear(widths[1], 28 * 28), nn.Unflatten(1, (1, 28, 28))),
        )

    def forward(self, z: Tensor) -> Tensor:  # (N, latent) -> (N, 1, size, size)
        x = self.body(z).sigmoid()
        if self.size == 28:
            return x
        return interpolate(x, (self.size,) * 2, mode="bilinear", antialias=True).clamp(0, 1)


def digest(state: dict[str, Tensor]) -> str:
    """SHA-256 over the names and values of all tensors, in order of their names."""
    sha = hashlib.sha256()
    for name in sorted(state):
        sha.update(name.encode() + state[name].contiguous().numpy().tobytes())
    return sha.hexdigest()


def save_generator(net: Generator, path: Path, about: dict[str, str]) -> str:
    """Store weights as 16-bit floats with their digest and how they were made; returns it."""
    state = {n: t.detach().cpu().half().contiguous() for n, t in net.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    sha = digest(state)
    save_file(state, path, {**about, "sha256": sha})
    return sha


def load_generator(size: int = 28, path: Path = WEIGHTS / "digits.safetensors") -> Generator:
    """The stored generator of digits, in eval mode, after a check of shapes and digest."""
    remedy = "make it again with: privfl study run generator"
    if not path.is_file():
        raise PrivflError(f"the generator's weights {path} are missing; {remedy}")
    try:
        with safe_open(path, "pt") as file:
            state, want = load_file(path), (file.metadata() or {}).get("sha256")
    except (SafetensorError, OSError):
        raise PrivflError(f"{path.name} is damaged; {remedy}") from None
    if digest(state) != want:
        raise PrivflError(f"{path.name} does not match its own SHA-256; {remedy}")
    with torch.device("meta"):  # no random start, so nobody's stream moves
        net = Generator(size=size)
    shapes = {n: tuple(t.shape) for n, t in net.state_dict().items()}
    if shapes != {n: tuple(t.shape) for n, t in state.items()}:
        raise PrivflError(f"{path.name} holds weights of another generator; {remedy}")
    net.load_state_dict({n: t.float() for n, t in state.items()}, assign=True)
    return net.eval().requires_grad_(False).to(device())
