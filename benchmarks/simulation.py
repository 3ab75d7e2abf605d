"""One side of the comparison with Flower: prints wall seconds of each round, and bytes, as JSON.

    python -m benchmarks.simulation ours|flower NET CLIENTS ROUNDS

Both sides use two cores. Flower's clients train by the loop that anybody would write, in two Ray
actors that live from round to round; nothing is evaluated on either side.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import OrderedDict
from itertools import pairwise

import torch

import privfl_lite as pf

from . import hand_loop
from .federated import PLAN, built, noise_client, our_workers
from .measure import Record

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray listens on the machine's network address
}


def ours(net: str, count: int, rounds: int) -> Record:
    """``pf.FedAvg``, with two workers where it takes them; bytes that would go down and up."""
    clients = [noise_client(i) for i in range(count)]
    run = pf.FedAvg(built(net), clients, rounds, PLAN, show=False, **our_workers())
    seconds = [report.seconds for report in run]
    sent = sum(t.numel() * t.element_size() for t in run.model.state_dict().values())
    return {"seconds": seconds, "bytes": 2 * count * sent}


def flower(net: str, count: int, rounds: int) -> Record:
    """Flower's simulation of the same clients; bytes of the records of arrays, down and up."""
    os.environ |= QUIET | {"FLWR_HOME": tempfile.mkdtemp()}
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server, marks, sizes = ClientApp(), ServerApp(), [], []

    @client.train()
    def train(message, context):
        torch.set_num_threads(1)
        x, y = noise_client(context.node_config["partition-id"])
        model = built(net)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        hand_loop.train(model, x, y, PLAN.eta, PLAN.batch_size, torch.randperm)
        sent = RecordDict({"arrays": ArrayRecord(OrderedDict(model.state_dict()))})
        sent["metrics"] = MetricRecord({"num-examples": len(x)})
        return Message(sent, reply_to=message)

    @server.main()
    def main(grid, context):
        first = ArrayRecord(OrderedDict(built(net).state_dict()))
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=count, min_available_nodes=count)
        strategy.start(grid, first, num_rounds=rounds, evaluate_fn=note)

    def note(server_round, arrays):
        marks.append(time.perf_counter())
        sizes.append(2 * count * arrays.count_bytes())

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    resources["init_args"] = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    run_simulation(server, client, count, backend_config=resources)
    if len(marks) != rounds + 1:
        raise pf.PrivflError(f"Flower finished {len(marks) - 1} of {rounds} rounds")
    return {"seconds": [b - a for a, b in pairwise(marks)], "bytes": sizes[-1]}


def main(side: str, net: str, clients: str, rounds: str) -> None:
    torch.set_num_threads(1)
    play = {"ours": ours, "flower": flower}[side]
    print(json.dumps(play(net, int(clients), int(rounds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
