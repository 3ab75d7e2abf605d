"""A run on Flower and the same run in ``FedAvg`` end with the same model, to float precision."""

import pytest
import torch
from flwr.serverapp.strategy import FedAvg
from in_process import InProcess

import privfl_lite as pf
from privfl_lite.flower import Tap, client_app
from privfl_lite.flower.records import travelling

PLAN = pf.Plan(eta=0.1, batch_size=5)
DEFENSES = {
    "none": pf.defenses.Defense(),
    "prune": pf.defenses.Prune(0.9, feedback=True),
    "modelcloak": pf.defenses.ModelCloak(clip=2, sigma=0.05),
    "fedkl": pf.defenses.FedKL(seed=0),
    "server's noise": pf.defenses.ModelCloak(clip=2, sigma=0.05, where="server"),
}


def model_of(name, ds, net="lenet"):
    return lambda: pf.models.build("lenet" if name == "fedkl" else "mlp", ds, seed=3)


def on_flower(model_fn, clients, defense, plan=PLAN, rounds=3, folder=None, restart=None, **how):
    """(final model, tap, grid) of a run in process."""
    n = len(clients)
    app = client_app(
        model_fn, clients.__getitem__, defense, plan, seed=1, secure=False, folder=folder
    )
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=n, min_train_nodes=n)
    shape = tuple(clients[0][0].shape[1:])
    tap = Tap(
        strategy, model_fn, defense, plan, n, shape, seed=1, secure=False, show=False,
        **{k: v for k, v in how.items() if k == "wait"},
    )  # fmt: skip
    grid = InProcess(app, n, **{k: v for k, v in how.items() if k != "wait"})
    if restart is not None:
        first = tap.configure_train

        def restarting(r, *rest):
            if r == 3:
                grid.restart(restart)
            return first(r, *rest)

        tap.configure_train = restarting
    result = tap.start(grid, tap.initial(), num_rounds=rounds)
    return tap.final(result.arrays), tap, grid


def apart(a, b, names):
    """The largest difference between two models in these tensors."""
    a, b = a.state_dict(), b.state_dict()
    return max(float((a[n].double() - b[n].double()).abs().max()) for n in names)


def compared(name, ds, clients):
    """The same run on Flower and in ``FedAvg``: how far the model moved, how far apart they end."""
    model_fn, defense, n = model_of(name, ds), DEFENSES[name], len(clients)
    net, tap, grid = on_flower(model_fn, clients, defense, shuffle=n)
    assert len(grid.replies) == 3 * n and not any(m.has_error() for m in grid.replies)
    run = pf.FedAvg(model_fn(), clients, 3, PLAN, defense=defense, seed=1, show=False).finish()
    state = net.state_dict()
    names = [n for n in travelling(net, defense) if state[n].is_floating_point()]
    return {
        "moved": apart(defense.model(model_fn()), run.model, names),
        "apart": apart(net, run.model, names),
        "epsilon": [str(seen.epsilon) for seen in tap.history],
        "same epsilon": [s.epsilon for s in tap.history] == [r.epsilon for r in run.history],
    }


@pytest.mark.parametrize("n", [2, 10])
@pytest.mark.parametrize("name", DEFENSES)
def test_the_same_model_and_the_same_epsilon(name, n, small):
    ds, clients = small
    found = compared(name, ds, clients[n])
    assert found["moved"] > 0.02
    assert found["apart"] < 1e-4 * found["moved"]
    assert found["same epsilon"]


def test_another_seed_is_another_run(small):
    ds, clients = small
    name = "modelcloak"
    net, *_ = on_flower(model_of(name, ds), clients[2], DEFENSES[name])
    run = pf.FedAvg(
        model_of(name, ds)(), clients[2], 3, PLAN, defense=DEFENSES[name], seed=2, show=False
    ).finish()
    assert apart(net, run.model, travelling(net, DEFENSES[name])) > 1e-3


def test_batch_norm_travels_and_its_counter_stays_whole(small):
    ds, clients = small

    def model_fn():
        return pf.models.build("convnet", ds, width=4, seed=0)

    net, tap, _ = on_flower(model_fn, clients[2], pf.defenses.Defense(), rounds=2)
    run = pf.FedAvg(model_fn(), clients[2], 2, PLAN, seed=1, show=False).finish()
    counters = [n for n, b in net.named_buffers() if b.dtype == torch.int64]
    assert counters and apart(net, run.model, counters) == 0
    assert apart(net, run.model, travelling(net, pf.defenses.Defense())) < 1e-4
    assert tap.statistics  # they leave bare, and the record knows


def test_memory_survives_a_restart_in_a_file_of_the_clients_own(small, tmp_path):
    ds, clients = small
    defense = DEFENSES["prune"]
    how = model_of("prune", ds), clients[2], defense
    names = travelling(how[0](), defense)
    whole, *_ = on_flower(*how)
    kept, *_ = on_flower(*how, folder=tmp_path, restart=0)
    lost, *_ = on_flower(*how, restart=0)
    assert apart(whole, kept, names) == 0
    assert apart(whole, lost, names) > 1e-4  # the residual is gone
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2 and all(f.stat().st_mode & 0o077 == 0 for f in files)


def test_a_damaged_memory_is_noticed_and_nothing_is_sent(small, tmp_path, capsys):
    ds, clients = small
    how = model_of("prune", ds), clients[2], DEFENSES["prune"]
    on_flower(*how, rounds=1, folder=tmp_path)
    for file in tmp_path.iterdir():
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(bytes(data))
    with pytest.raises(pf.PrivflError, match="0 of 2 clients answered"):
        on_flower(*how, rounds=1, folder=tmp_path)
    assert "is damaged" in capsys.readouterr().err
