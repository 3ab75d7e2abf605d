"""An image as answers of yes or no that noise does not change: what an image's flag is made of.

The image is cut in 7 × 7 cells, whose means are brought to mean 0 and standard deviation 1, so that
brightness and contrast do not count. A question is a random pattern of weights for the cells, after
whitening by the digits of the public set, so that one answer says little about another; the answer
is whether the sum is positive. Of 8,000 questions that follow from the salt those are asked to
which every image of the challenge answers clearly: a rebuilt image then gives the same answers,
exact or not (a secure sketch, as of Dodis et al. 2008, by choosing what is asked).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from ..data import load
from ..runtime import PrivflError, generator

CELLS, OFFERED = 7, 8000
ANSWERS, LEAST = 128, 12  # of all images of a challenge together, about; of each, at least
CLEAR = 0.4  # least distance of a clear answer from 0, in standard deviations over digits
RIDGE = 2.0  # added to the variances of cells, which are 1 on average: corners never change


class Whitening(NamedTuple):
    """The mean of the cells over public digits, and (covariance + RIDGE)^(−1/2)."""

    mean: Tensor  # (49,)
    root: Tensor  # (49, 49)
    after: Tensor  # (49, 49), covariance of what comes out


def cells(images: Tensor) -> Tensor:
    """Means of 7 × 7 cells, standardized image by image, (N, 1, H, W) -> (N, 49)."""
    rough = adaptive_avg_pool2d(images.double().cpu(), CELLS).flatten(1)
    rough = rough - rough.mean(1, keepdim=True)
    return rough / rough.square().mean(1, keepdim=True).sqrt().clamp(min=1e-9)


@lru_cache(maxsize=1)
def whitening() -> Whitening:
    """By the training digits of ``mnist``."""
    seen = cells(load("mnist").x_train)
    covariance = torch.cov(seen.T)
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * (values.clamp(min=0) + RIDGE).rsqrt()) @ vectors.T
    return Whitening(seen.mean(0), root, root @ covariance @ root)


def replies(images: Tensor, salt: str) -> Tensor:
    """To all questions of a salt, (N, OFFERED), in standard deviations over digits."""
    white = whitening()
    rng = generator(int(salt[:15], 16))
    weights = torch.randn(OFFERED, CELLS**2, generator=rng, dtype=torch.float64)
    spread = ((weights @ white.after) * weights).sum(1).sqrt()
    return (cells(images) - white.mean) @ white.root @ weights.T / spread


def chosen(images: Tensor, salt: str) -> list[int]:
    """The first questions that all images answer clearly; by their numbers."""
    asked = max(LEAST, ANSWERS // len(images))
    clear = (replies(images, salt).abs() > CLEAR).all(0).nonzero().flatten().tolist()
    if len(clear) < asked:
        raise PrivflError(f"only {len(clear)} questions are clear for these images; draw others")
    return clear[:asked]


def sketches(images: Tensor, salt: str, questions: list[int]) -> list[str]:
    """The answers of each image, 1 for yes."""
    yes = (replies(images, salt)[:, questions] > 0).long().tolist()
    return ["".join(map(str, row)) for row in yes]
