"""What goes wrong at a client stays there: nothing is sent but one word; and the server counts."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from in_process import InProcess
from test_same_model import DEFENSES, PLAN, apart, model_of, on_flower

import privfl_lite as pf
from privfl_lite.flower import Tap, client_app, defense_mod
from privfl_lite.flower.records import travelling

SECRET = "patient 4711"


class Broken(pf.defenses.Defense):
    """Its door finds something private, and says so."""

    def update(self, delta, ctx):
        raise ValueError(SECRET)


def everything(grid):
    """All that clients answered, as text."""
    return "".join(f"{m.error if m.has_error() else list(m.content)}" for m in grid.replies)


def test_a_broken_defense_sends_nothing_and_says_nothing(small, capsys):
    ds, clients = small
    with pytest.raises(pf.PrivflError, match=r"round 1: 0 of 2 clients answered, and wait=1"):
        on_flower(model_of("none", ds), clients[2], Broken())
    app = client_app(model_of("none", ds), clients[2].__getitem__, Broken(), PLAN)
    tap = Tap(FedAvg(fraction_evaluate=0.0), model_of("none", ds), None, PLAN, 2, (1, 14, 14), 0)
    grid = InProcess(app, 2)
    tap.start(grid, tap.initial(), num_rounds=1)
    assert [m.error.reason for m in grid.replies] == ["refused"] * 2
    assert SECRET not in everything(grid)
    assert SECRET in capsys.readouterr().err  # at home


def test_the_silent_are_counted(small):
    ds, clients = small
    _, tap, _ = on_flower(model_of("none", ds), clients[10], DEFENSES["none"], lost=(3, 4))
    assert [(s.asked, len(s.clients), s.failed, s.silent) for s in tap.history] == [
        (10, 8, 0, 2)
    ] * 3
    assert 3 not in tap.history[0].clients
    assert "10, 8 answered, 0 refused or failed, 2 silent" in str(tap.history[0])
    with pytest.raises(pf.PrivflError, match="8 of 10 clients answered, and wait=9"):
        on_flower(model_of("none", ds), clients[10], DEFENSES["none"], lost=(3, 4), wait=9)


def test_what_the_tap_keeps_can_be_attacked(small):
    ds, clients = small
    alone = [(x[:1], y[:1]) for x, y in clients[2]]
    _, tap, _ = on_flower(model_of("none", ds), alone, DEFENSES["none"], rounds=1)
    for upload, (x, _) in zip(tap.history[0].uploads, alone, strict=True):
        found = pf.attacks.ClosedForm().run(upload)
        assert pf.metrics.compare(found.images, x)["psnr"].min() > 60
        assert upload.letter == "C"


# --- a defense as a Mod on anybody's ClientApp ---


def plain_app(mods, moves=0.5, answer=None):
    """A client of somebody else's: it adds to what came, in numpy."""
    app = ClientApp()

    @app.train(mods=mods)
    def train(message, context):
        if answer is not None:
            return answer(message)
        arrays = message.content["arrays"]
        new = {k: Array(np.asarray(a.numpy() + moves, a.numpy().dtype)) for k, a in arrays.items()}
        metrics = MetricRecord({"num-examples": 3})
        return Message(
            RecordDict({"arrays": ArrayRecord(new), "metrics": metrics}), reply_to=message
        )

    return app


def sent_by(app, start=None):
    start = start or {"w": torch.zeros(3, 4), "b": torch.zeros(()), "n": torch.tensor(5)}
    grid = InProcess(app, 2)
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.start(grid, ArrayRecord(start), num_rounds=1)
    return grid


def test_a_mod_clips_and_noises_all_that_leaves():
    clip = pf.defenses.ModelCloak(clip=0.1, sigma=1e-6)
    grid = sent_by(plain_app([defense_mod(clip)]))
    for reply in grid.replies:
        out = reply.content["arrays"].to_torch_state_dict()
        length = torch.cat([out["w"].flatten(), out["b"][None]]).norm()
        assert length == pytest.approx(0.1, rel=1e-3)  # the scalar, too
        assert out["n"] == 5  # a counter is no place for noise
    bare = sent_by(plain_app([])).replies[0].content["arrays"].to_torch_state_dict()
    assert bare["w"].norm() > 1


def test_noise_of_a_mod_is_fresh_or_follows_a_seed():
    def sent(seed):
        app = plain_app([defense_mod(pf.defenses.ModelCloak(clip=1, sigma=1), seed=seed)])
        first = min(sent_by(app).replies, key=lambda m: m.metadata.src_node_id)
        return first.content["arrays"].to_torch_state_dict()["w"]

    assert torch.equal(sent(1), sent(1))
    assert not torch.equal(sent(None), sent(None))


@pytest.mark.parametrize(
    ("defense", "said"),
    [
        (pf.defenses.Prune(0.5), "guards the door 'gradient'"),
        (pf.defenses.LODA(), "guards the door 'data'"),
        (pf.defenses.Defense(), "protects nothing"),
        (pf.defenses.Entangle(), "looks at private data"),
        (pf.defenses.ModelCloak() + pf.defenses.Prune(0.5), "Prune guards"),
        (pf.defenses.ModelCloak(where="server"), "guards the door 'average'"),
    ],
)
def test_a_mod_that_cannot_guard_is_refused(defense, said):
    with pytest.raises(pf.PrivflError, match=said):
        defense_mod(defense)


@pytest.mark.parametrize(
    "answer",
    [
        lambda m: (_ for _ in ()).throw(ValueError(SECRET)),
        lambda m: Message(Error(code=5, reason=SECRET), reply_to=m),
        lambda m: Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=m),
        lambda m: Message(
            RecordDict({"arrays": ArrayRecord({"w": torch.full((3, 4), float("nan"))})}), reply_to=m
        ),
    ],
    ids=["raises", "an error with a text", "no arrays", "other arrays"],
)
def test_a_mod_fails_closed(answer, capsys):
    grid = sent_by(plain_app([defense_mod(pf.defenses.ModelCloak())], answer=answer))
    assert [(m.error.code, m.error.reason) for m in grid.replies] == [(100, "refused")] * 2
    assert SECRET not in everything(grid)


def test_a_mod_and_the_client_app_send_the_same_lengths(small):
    """The same clip behind a Mod on our undefended client, and at our client's own door."""
    ds, clients = small
    clip = pf.defenses.ModelCloak(clip=0.05, sigma=1e-9)
    model_fn = model_of("none", ds)
    how = clients[2].__getitem__, None, PLAN
    app = client_app(model_fn, *how, seed=1, mods=(defense_mod(clip, seed=1),))
    tap = Tap(FedAvg(fraction_evaluate=0.0), model_fn, clip, PLAN, 2, (1, 14, 14), show=False)
    result = tap.start(InProcess(app, 2), tap.initial(), num_rounds=1)
    net, *_ = on_flower(model_fn, clients[2], clip, rounds=1)
    assert apart(tap.final(result.arrays), net, travelling(net, clip)) < 1e-6
