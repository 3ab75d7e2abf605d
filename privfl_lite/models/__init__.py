"""The papers' networks, small and plain. Each is ``features`` (ending in a vector) and ``head``.

``build("lenet", digits)`` fits a network to a data set, or to a shape such as ``(1, 28, 28)``.
``wrap(net)`` makes one of your own, as it is, fit for everything else; its tensors keep their
names. Nothing here works in place, so that every network can be differentiated twice and under
``vmap``.

Parts that a defense and its attacker share stand here, too: ``keylock`` (FedKL), ``extractor``
(LODA) and ``bottleneck`` (PRECODE).
"""

from .nets import Block, Net
from .registry import MODELS, build
from .wrapping import Wrapped, built, passed, wrap

__all__ = ["MODELS", "Block", "Net", "Wrapped", "build", "built", "passed", "wrap"]
