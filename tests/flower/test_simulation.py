"""Flower's own simulation (Ray, two actors): ten nodes, the same model as ``FedAvg``."""

import pytest
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from test_same_model import DEFENSES, PLAN, apart, model_of

import privfl_lite as pf
from privfl_lite.flower import Tap, client_app
from privfl_lite.flower.records import travelling

NODES = 10
RESOURCES = {
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    "init_args": {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False},
}


@pytest.mark.parametrize("name", ["prune"])  # its clients must remember
def test_ten_nodes_end_with_the_model_of_fedavg(name, small):
    ds, clients = small
    model_fn, defense, held = model_of(name, ds), DEFENSES[name], clients[NODES]
    shape = tuple(held[0][0].shape[1:])
    app = client_app(model_fn, held.__getitem__, defense, PLAN, seed=1, secure=False)
    server, ended = ServerApp(), []

    @server.main()
    def main(grid, context):
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES)
        tap = Tap(strategy, model_fn, defense, PLAN, NODES, shape, NODES, seed=1, secure=False)
        ended.append((tap, tap.start(grid, tap.initial(), num_rounds=3)))

    run_simulation(server, app, NODES, backend_config=RESOURCES)
    (tap, result), run = ended[0], pf.FedAvg(
        model_fn(), held, 3, PLAN, defense=defense, seed=1, show=False
    ).finish()  # fmt: skip
    assert [(s.asked, s.clients) for s in tap.history] == [(NODES, list(range(NODES)))] * 3
    names = travelling(run.model, defense)
    assert apart(tap.final(result.arrays), run.model, names) < 1e-6
