"""How ATS finds its policies: two scores of a list of operations, and a random search over lists.

"The code" is the paper's released one (gaow0007/ATSPrivacy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from ..gradients import gradient_function, stateless, weights
from ..runtime import PrivflError, generator
from .ats import ATS, OPERATIONS


def privacy_score(
    model: nn.Module, x: Tensor, y: Tensor, policy: str, points: int = 21, seed: int = 0
) -> float:
    """How well gradients point the way to the transformed images; lower is better.

    For an image x′ = ATS(x) and uniform noise z, s(t) is the mean over tensors of the cosine
    between the gradients at z + t(x′ − z) and at x′. The score is the area under s over t ∈ [0, 1]
    by the trapezoid rule at ``points`` values, averaged over images. The code measures it on a
    network trained on a tenth of the data, 5 images a class.
    """
    if points < 2:
        raise PrivflError(f"points must be at least 2, noise and image; got {points}")
    rng = generator(seed)
    x, y = ATS(policy).data(x, y, rng)
    z = torch.rand(x.shape, generator=rng).to(x)
    f, theta = gradient_function(stateless(model, "eval")), weights(model)
    t = torch.linspace(0, 1, points).to(x).view(-1, 1, 1, 1)
    areas = []
    for image, noise, label in zip(x, z, y, strict=True):
        line = t * image + (1 - t) * noise  # (points, C, H, W): as many clients with one image
        g = f(theta, line[:, None], label.expand(points, 1, *label.shape))
        s = [cosine_similarity(v.flatten(1), v[-1:].flatten(1)) for v in g.values()]
        areas.append(torch.trapezoid(torch.stack(s).mean(0), dx=1 / (points - 1)))
    return torch.stack(areas).mean().item()


def accuracy_score(model: nn.Module, x: Tensor, policy: str, seed: int = 0) -> float:
    """How differently an *untrained* network treats the transformed images; higher is better.

    With v the eigenvalues of the correlations between the images' Jacobians, ∂(Σ logits)/∂x′:
    −Σ (log(v + k) + 1/(v + k)), k = 1e-5 (Mellor et al. 2021). The code asks for −85 or more on 100
    images; the score is a sum over images, so this floor means nothing for another number of them.
    """
    x = ATS(policy).data(x, x.new_zeros(len(x)), generator(seed))[0].requires_grad_(True)
    (jacobian,) = torch.autograd.grad(stateless(model, "eval")(x).sum(), x)
    v = torch.linalg.eigvalsh(torch.corrcoef(jacobian.flatten(1).double()))
    v = v.clamp(min=0) + 1e-5  # rounding may leave an eigenvalue of 0 slightly below it
    return -(v.log() + 1 / v).sum().item()


@dataclass(frozen=True)
class Candidate:
    """One list of operations with its two scores."""

    policy: str
    privacy: float
    accuracy: float


def search(
    model: nn.Module,
    untrained: nn.Module,
    x: Tensor,
    y: Tensor,
    candidates: int = 20,
    floor: float = -math.inf,
    points: int = 21,
    seed: int = 0,
) -> list[Candidate]:
    """Random lists of three, those with accuracy score ≥ ``floor``, lowest privacy score first.

    As in the code each place is drawn from −1…49, −1 for no operation (the code's range goes to 50,
    which does not exist), 1,600 lists in all. Join the best with "+" for a policy.
    """
    rng = generator(seed, 1)
    found: list[Candidate] = []
    while len(found) < candidates:
        drawn = torch.randint(-1, len(OPERATIONS), (3,), generator=rng).tolist()
        if policy := "-".join(str(i) for i in drawn if i >= 0):
            privacy = privacy_score(model, x, y, policy, points, seed)
            found.append(Candidate(policy, privacy, accuracy_score(untrained, x, policy, seed)))
    return sorted((c for c in found if c.accuracy >= floor), key=lambda c: c.privacy)
