"""How most challenges are made: digits drawn, a network drawn, an upload sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .. import defenses, models
from ..client import share
from ..models import Net
from ..wire import Plan, Upload
from .base import Private, Seeds
from .digits import drawn

SHAPE, CLASSES = (1, 28, 28), 10


def digits(count: int) -> Callable[[Seeds], Private]:
    """So many digits, with the purpose "images"."""

    def private(seeds: Seeds) -> Private:
        return Private(*drawn(count, seeds("images")))

    return private


def lenet(seed: int = 0) -> Net:
    return models.build("lenet", SHAPE, CLASSES, seed=seed)


def dense(seed: int = 0, width: int = 64) -> Net:
    return models.build("mlp", SHAPE, CLASSES, seed=seed, hidden=(width,))


wide = partial(dense, width=256)
LENET_TEXT = 'pf.models.build("lenet", (1, 28, 28), 10)'
DENSE_TEXT = 'pf.models.build("mlp", (1, 28, 28), 10)'
WIDE_TEXT = 'pf.models.build("mlp", (1, 28, 28), 10, hidden=(256,))'


def sent(
    network: Callable[[int], Net],
    each: int = 1,
    defense: str = "none",
    plan: Plan | None = None,
) -> Callable[[Seeds, Private], Upload]:
    """What clients with ``each`` images send, of a network with the purpose "weights"."""

    def send(seeds: Seeds, private: Private) -> Upload:
        net = network(seeds("weights"))
        kept = defenses.build(defense)
        x, y = private.images, private.labels
        return share(net, x, y, kept, each=each, plan=plan, seed=seeds("client"))

    return send
