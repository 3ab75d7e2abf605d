"""All images of a mixed batch at once: the attacker who knows that there are more than are named.

DCS² adds concealed images to a batch (its Eq. 10); whoever knows of them looks for them too.
Chapter: DCS².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...values import Positive
from ...wire import Facts, Upload
from ..matching.search import Matching


def candidate_labels(y: Tensor, classes: int, lambda_g: float) -> Tensor:
    """Labels (U, classes, 2, classes) of x_s and x̃, for every label ỹ that x̃ may have."""
    y_s = one_hot(y, classes).float()[:, None].expand(-1, classes, -1)
    return torch.stack([y_s, lambda_g * torch.eye(classes).to(y_s) + (1 - lambda_g) * y_s], 2)


@dataclass(frozen=True)
class ConcealedMatching(Matching):
    """Search for the sensitive images, and for the concealed ones as further unknowns.

    The labels of all are granted (``mixture``). A concealed image is sought as a multiple of
    ``width``, and so begins that wide; ``tv`` smooths the sensitive images only.
    """

    width: Positive = 1.0
    needs = ("labels", "mixture")
    answers = ("dcs2",)

    def unknowns(self, upload: Upload) -> int:
        concealed = cast(Tensor, upload.knows.mixture).shape[1] - upload.batch
        return concealed * torch.Size(upload.model.shape).numel()

    def _start(self, problems: int, shape: tuple[int, ...], others: int, seed: int) -> Tensor:
        z = super()._start(problems, shape, others, seed)
        images = z.shape[1] - others
        z[:, :images] = 0.5 + 0.3 * z[:, :images]
        return z

    def cost(self, upload: Upload) -> Callable[..., Tensor]:
        """cost(x, y, who, others): as in ``Matching``, for sensitive and concealed images."""
        labels, shape = cast(Tensor, upload.knows.mixture), upload.model.shape
        facts = replace(upload.knows, labels=labels)
        term = super().cost(replace(upload, batch=labels.shape[1], knows=facts))

        def cost(x: Tensor, y: Tensor, who: Tensor, others: Tensor) -> Tensor:
            concealed = self.width * others.reshape(len(x), -1, *shape)
            return term(torch.cat([x, concealed], 1), labels[who].to(x), who)

        return cost


def joint(
    upload: Upload, labels: Tensor, steps: int, seed: int, how: dict, nonzero: bool = False
) -> tuple[Tensor, Tensor, int]:
    """All images behind U uploads, one search for each of labels (U, S, B + M, classes).

    ``how``: ``width`` and ``tv`` of ``ConcealedMatching``. Returns images (U, S, B + M, C, H, W),
    mismatch (U, S), evaluations.
    """
    u, s, n, _ = labels.shape
    mixture, shape = labels.flatten(0, 1), upload.model.shape
    each = replace(  # an upload of its own for every search
        upload,
        tensors={k: t.repeat_interleave(s, 0) for k, t in upload.tensors.items()},
        knows=Facts(mixture[:, : upload.batch].argmax(2), mixture=mixture, clip=upload.knows.clip),
    )
    width, tv = how.get("width", 1.0), how.get("tv", 0.0)
    attack = ConcealedMatching(steps=steps, tv=tv, nonzero=nonzero, width=width, show=False)
    found = attack.run(each, seed)
    concealed = width * found.details["others"].reshape(u * s, -1, *shape)
    images = torch.cat([found.images.view(u * s, -1, *shape), concealed], 1)
    return images.view(u, s, n, *shape), found.cost.view(u, s), found.evaluations
