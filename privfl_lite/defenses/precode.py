"""PRECODE (Scheliga et al. 2022): a layer that draws noise, in front of the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from ..models import Net, built
from ..models.bottleneck import Bottleneck
from ..runtime import seeded
from ..values import NotNegative, Number, Seed
from .base import Defense


@dataclass(frozen=True)
class PRECODE(Defense):
    """Put a ``Bottleneck`` of ``size`` between the features and the last layer.

    The draw makes the gradient a random function of the input, so that an attacker who imitates the
    client meets other noise than the client had. Only the layers *behind* the draw are protected by
    it, and only in part: what enters ``encode``, a fully connected layer with a bias, stands in its
    gradient (chapter: changing the model). ``seed`` draws the new layers' first weights.
    """

    size: Annotated[int, Number(1, 2**20, whole=True)] = 256
    beta: NotNegative = 1e-3
    seed: Seed = 0
    draws = True

    def model(self, model: Net) -> Net:
        built(model, "PRECODE")
        with seeded(self.seed):
            layer = Bottleneck(model.head.in_features, self.size, self.beta)
        model.features = nn.Sequential(*model.features, layer.to(model.head.weight))
        model.name = f"{model.name}+precode"
        return model
