"""Against Mixup and InstaHide: read the blends, then undo the mixing, which is linear.

One blend stands behind each upload, and the matrix M of all U blends of n images is granted, as
LODA and GradAttack do for an upper bound. Chapter: hiding the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ...values import Unit
from ...wire import Upload
from ..adaptive.instahide import align_signs, misfit, mixup_regression, sign_search
from ..analytic.closed_form import ClosedForm
from ..base import Attack, Reconstruction


@dataclass(frozen=True)
class Unmix(Attack):
    """The n images whose blends are nearest to those that were read off a fully connected layer.

    They come instead of one image per upload, so there are n of them, with labels of no meaning.
    """

    needs, answers, most, letter = ("matrix",), ("mixup",), (1, 1), "B"

    def run(self, upload: Upload, seed: int = 0) -> Reconstruction:
        self.check(upload)
        matrix, read = cast(Tensor, upload.knows.matrix), ClosedForm().run(upload).images
        images = self.solve(read, matrix)
        left = misfit(read, matrix, images).flatten(1).square().mean(1)
        blank = torch.zeros(len(images), dtype=torch.long, device=images.device)
        return Reconstruction(images, blank, left, details={"blends": read})

    def solve(self, read: Tensor, matrix: Tensor) -> Tensor:
        """Images (n, C, H, W) from blends (U, C, H, W) and M (U, n)."""
        return mixup_regression(read, matrix)


@dataclass(frozen=True)
class Unflip(Unmix):
    """The same where every pixel of a blend has been reflected about ``center`` by a secret coin.

    One bit stays open: all images may be reflected together. The darker answer is taken.
    """

    center: Unit = 0.5
    answers = ("instahide",)

    def solve(self, read: Tensor, matrix: Tensor) -> Tensor:
        box = (-self.center, 1 - self.center)
        found = align_signs(sign_search(read - self.center, matrix, box=box, show=False))
        two = self.center + found, self.center - found
        return min(two, key=lambda images: images.mean().item())
