"""The client: trained, defended and packed by privfl_lite, carried by Flower."""

import os
import time

from privfl_lite.flower import client_app

from .task import DEFENSES, PLAN, data_fn, model_fn


def slowly(client):
    """The data of this client, after a while: so that a demonstration can end a node in time."""
    time.sleep(float(os.environ.get("PRIVFL_SECONDS", 0)))
    return data_fn(client)


app = client_app(
    model_fn,
    slowly,
    defense=lambda config: DEFENSES[config.get("defense", "none")],
    plan=PLAN,
    folder=os.environ.get("PRIVFL_MEMORY"),
)
