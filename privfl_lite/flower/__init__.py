"""The same clients, defenses and attacks on Flower (https://flower.ai): ``privfl_lite[flower]``.

    app = client_app(model_fn, data_fn, defense, plan)   # our client behind Flower's messages
    strategy = Tap(FedAvg(fraction_evaluate=0.0), model_fn, defense, plan, clients=10)
    strategy.start(grid, strategy.initial(), num_rounds=3)
    for seen in strategy.history:                        # what the server saw, ready to attack
        found = pf.attacks.GS(steps=300).run(seen.uploads[0])

Chapter: from one machine to many. Nothing else of the package imports this folder, and the package
does not import it by itself.
"""

from __future__ import annotations

from importlib.util import find_spec

from ..errors import PrivflError

if find_spec("flwr") is None:
    raise PrivflError('Flower is not installed; run: pip install "privfl_lite[flower]"')

from .client import client_app
from .mod import defense_mod
from .tap import Seen, Tap

__all__ = ["Seen", "Tap", "client_app", "defense_mod"]
