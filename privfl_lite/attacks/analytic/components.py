"""Independent components: a batch behind a dense layer, by what natural images are not.

Chapter: reach. For a first dense layer [∇W ∇b] = D [X 1] (``lem-layer-gradient``): its rows are
mixtures of the images in the batch, and any activation will do. Kariyappa et al. (2023, the
Cocktail Party attack) unmix them by independent component analysis, since a mixture of independent
signals is closer to a Gaussian than each of them. Images themselves are far from independent
(digits all lie in the middle, faces all have a chin); *differences between neighboring pixels* are
nearly so, and are mixed by the same weights. So the components are sought among those. The bias
column then fixes sign and scale, which independent components lack.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...runtime import generator
from ...values import Count
from ...wire import Upload
from ..base import Attack, Reconstruction
from ..labels import known_labels
from .closed_form import first_dense


def whiten(signals: Tensor) -> Tensor:
    """The matrix (B, B) that gives signals (B, T) unit variance without correlation."""
    u, s, _ = torch.linalg.svd(signals, full_matrices=False)
    return (u / s.clamp(min=1e-12 * s[0].item())).T * signals.shape[1] ** 0.5


def fast_ica(white: Tensor, steps: int, rng: torch.Generator) -> Tensor:
    """Rotation (B, B) to components that are least Gaussian (Hyvärinen 1999, symmetric, tanh)."""
    b, t = white.shape
    start = torch.randn(b, b, generator=rng, dtype=torch.float64).to(white)
    w = torch.linalg.qr(start)[0]
    for _ in range(steps):
        y = torch.tanh(w @ white)
        u, _, v = torch.linalg.svd(y @ white.T / t - (1 - y * y).mean(1)[:, None] * w)
        w, before = u @ v, w
        if ((w * before).sum(1).abs() - 1).abs().max() < 1e-9:
            break
    return w


def differences(images: Tensor) -> Tensor:
    """Differences between neighboring pixels, (B, C, H, W) -> (B, T)."""
    across, down = images.diff(dim=3), images.diff(dim=2)
    return torch.cat([across.flatten(1), down.flatten(1)], 1)


def gaussianity(components: Tensor) -> float:
    """Mean log cosh of components (B, T) of unit variance: smaller is less Gaussian."""
    return nn.functional.softplus(-2 * components.abs()).add(components.abs()).mean().item()


def unmix(
    g_weight: Tensor, g_bias: Tensor, batch: int, shape: tuple[int, ...],
    starts: int, steps: int, rng: torch.Generator,
) -> tuple[Tensor, float]:  # fmt: skip
    """Images (batch, *shape) behind a layer's gradient (m, n) and (m,), and their gaussianity."""
    both = torch.cat([g_weight, g_bias[:, None]], 1).double()
    basis = torch.linalg.svd(both, full_matrices=False)[2][:batch]  # (B, n + 1)
    signals = differences(basis[:, :-1].reshape(batch, *shape))
    white = whiten(signals)
    tries = [fast_ica(white @ signals, steps, rng) @ white for _ in range(starts)]
    costs = [gaussianity(v @ signals) for v in tries]
    best = min(range(starts), key=costs.__getitem__)
    images = tries[best] @ basis
    scale = images[:, -1:]
    scale = torch.where(scale.abs() < 1e-12, torch.ones_like(scale), scale)
    return (images[:, :-1] / scale).reshape(batch, *shape), costs[best]


@dataclass(frozen=True)
class Components(Attack):
    """Unmix a batch behind a first dense layer by independent components (Kariyappa et al. 2023).

    Works behind any activation and any number of local steps and needs no labels, but is not exact:
    differences between pixels are only nearly independent. Of ``starts`` rotations the least
    Gaussian one is taken. It ends at a batch larger than the layer, and where noise or rounding
    drowns the smallest images; of an image that is there twice it finds one, and noise.
    """

    starts: Count = 4
    steps: Count = 200
    letter = "B"

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        self.check(upload)
        (name, _), shape = first_dense(upload, "Components"), tuple(upload.model.shape)
        g = upload.gradients()
        pairs = [
            unmix(weight, bias, upload.batch, shape, self.starts, self.steps, generator(seed, 0))
            for weight, bias in zip(g[f"{name}.weight"], g[f"{name}.bias"], strict=True)
        ]
        labels = known_labels(upload)
        like = g[f"{name}.weight"]
        images = torch.cat([images for images, _ in pairs]).to(like)
        return Reconstruction(
            images, labels.flatten(), like.new_tensor([cost for _, cost in pairs])
        )
