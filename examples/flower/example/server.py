"""The server: Flower's FedAvg, with a tap that keeps what it sees and says so."""

import os
from pathlib import Path

from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from privfl_lite.checkpoint import fingerprint
from privfl_lite.flower import Tap

from .task import DEFENSES, PLAN, model_fn

app = ServerApp()


@app.main()
def main(grid, context):
    set_ = context.run_config
    name, n = set_.get("defense", "none"), set_.get("clients", 2)
    tap = Tap(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        model_fn,
        DEFENSES[name],
        PLAN,
        clients=n,
        shape=(1, 14, 14),
        wait=set_.get("wait", 1),
    )
    rounds, timeout = set_.get("num-rounds", 2), set_.get("timeout", 3600)
    result = tap.start(grid, tap.initial(), num_rounds=rounds, timeout=timeout)
    for upload in tap.history[0].uploads[:1]:
        print("kept", upload)
    if folder := os.environ.get("PRIVFL_UPLOADS"):  # for privfl report, and for the book
        tap.history[0].save(Path(folder, name))
    print("the final model is", fingerprint(tap.final(result.arrays).state_dict().values()))
