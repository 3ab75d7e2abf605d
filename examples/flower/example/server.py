"""The server: Flower's FedAvg, with a tap that keeps what it sees and says so."""

from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import privfl_lite as pf
from privfl_lite.checkpoint import fingerprint
from privfl_lite.flower import Tap

from .task import DEFENSES, PLAN, model_fn

app = ServerApp()


@app.main()
def main(grid, context):
    set_ = context.run_config
    n = set_.get("clients", 2)
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    tap = Tap(
        strategy,
        model_fn,
        DEFENSES[set_.get("defense", "none")],
        PLAN,
        clients=n,
        shape=(1, 14, 14),
        wait=set_.get("wait", 1),
    )
    rounds, timeout = set_.get("num-rounds", 2), set_.get("timeout", 3600)
    result = tap.start(grid, tap.initial(), num_rounds=rounds, timeout=timeout)
    seen = tap.history[0].uploads[0]
    found = pf.attacks.ClosedForm().run(seen)
    print(seen)
    print(f"lone units show {len(found.images)} images, at a cost of {found.cost.mean():.2g}")
    print("the final model is", fingerprint(tap.final(result.arrays).state_dict().values()))
