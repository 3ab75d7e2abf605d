"""Bad input that people really gave: the lists of a review, case by case, and the command line."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from public import world

import privfl_lite as pf
from privfl_lite import attacks, defenses, metrics, models, privacy
from privfl_lite.cli import main, parser

nan = math.nan
W = world()
CLIENTS = [(W.x, W.y), (W.x, W.y)]
UP, NET, X, Y = W.upload, W.net, W.x, W.y
NO_HEAD = replace(UP, tensors={n: t for n, t in UP.tensors.items() if not n.startswith("head")})


REFUSED = [
    # silent and misleading
    (lambda: pf.Plan(mode="Train"), "unknown mode 'Train'"),
    (lambda: defenses.build("prune:feedback=2"), "feedback is 2; it must be True or False"),
    (lambda: UP[99], "there are 4 uploads"),
    (lambda: UP[-5], "there are 4 uploads"),
    (lambda: attacks.GS(drop="nothing", steps=1).run(UP), "drop names 'nothing'"),
    (lambda: pf.share(NET, X, Y, defenses.DCS2(sensitive=[99])), "classes of 0…9; got 99"),
    (lambda: defenses.DCS2(clients=[-5]), "clients is [-5]"),
    (lambda: defenses.DCS2(pool=3), "pool is 3"),
    (lambda: defenses.InstaHide(center=5.0), "center is 5.0; it must be a number from 0 to 1"),
    (lambda: pf.share(NET, X, Y, each=0), "each is 0"),
    (lambda: pf.FedAvg(NET, CLIENTS, 1, per_round=0), "per_round is 0"),
    (lambda: pf.FedAvg(NET, CLIENTS, 1).personal(99), "client is 99"),
    (lambda: pf.FedAvg(NET, CLIENTS, 1).personal(-1), "client is -1"),
    (lambda: pf.FedAvg(NET, CLIENTS, 1, test=(X * nan, Y)), "NaN or infinite pixels"),
    (lambda: pf.share(NET, X - 50, Y), "images lie in [0, 1]"),
    (lambda: pf.share(NET, X * 255, Y), "images lie in [0, 1]"),
    (lambda: pf.share(NET, X * 1e30, Y), "images lie in [0, 1]"),
    (lambda: pf.share(NET, X, -torch.ones(4, 10)), "add up to 1"),
    (lambda: pf.share(NET, X, torch.ones(4, 10)), "add up to 1"),
    (lambda: replace(UP, mode="x"), "unknown mode 'x'"),
    (lambda: attacks.DLG(tv=nan), "tv is nan"),
    (lambda: attacks.DLG(tv=-1), "tv is -1"),
    (lambda: attacks.GGL(penalty=nan), "penalty is nan"),
    (lambda: attacks.GRNN(momentum=2), "momentum is 2"),
    (lambda: attacks.Recursive(tol=-1), "tol is -1"),
    (lambda: attacks.ImprintReadout(nan), "threshold is nan"),
    (lambda: metrics.psnr(X, X, peak=-1), "peak is -1"),
    (lambda: metrics.wilson(1.5, 3), "successes is 1.5"),
    (lambda: metrics.success_rate([1, 2], nan, True), "threshold is nan"),
    (lambda: pf.partition(Y, 2, "dirichlet", alpha=1e308), "alpha is 1e+308"),
    # raw exceptions
    (lambda: pf.Upload(UP.tensors, "update", NET, 1), "an update needs plan="),
    (lambda: pf.Upload({}, "gradient", NET, 1), "one tensor or more"),
    (lambda: attacks.Unlock().run(NO_HEAD), "needs 'head.weight', which is not in the upload"),
    (lambda: attacks.Pair().run(NO_HEAD), "needs 'head.weight', which is not in the upload"),
    (lambda: attacks.UnguardRows().run(NO_HEAD), "not in the upload"),
    (lambda: pf.FedAvg(NET, CLIENTS, 1, checkpoint="/missing/a").finish(), "does not exist"),
    (lambda: pf.FedAvg(NET, CLIENTS, 1, test=(X[:0], Y[:0])), "at least one image"),
    (lambda: pf.FedAvg(NET, CLIENTS, 1, test=(X[:, :, :5], Y)), "images of shape (B, 1, 12, 12)"),
    (lambda: pf.FedAvg(NET, [], 1), "clients is []"),
    (lambda: pf.FedAvg(NET, CLIENTS, 1, schedule=lambda r: nan).finish(), "schedule(1) is nan"),
    (lambda: pf.fedavg(NET, CLIENTS, 1, round=3), "unknown setting of FedAvg 'round'"),
    (lambda: pf.share(NET, X, Y.float()), "whole numbers"),
    (lambda: pf.share(NET, X, torch.ones(4, 3)), "distributions (B, 10)"),
    (lambda: pf.share(NET, X, Y, each=-1), "each is -1"),
    (lambda: pf.share(NET, X.to("meta"), Y), "x is a tensor"),
    (lambda: pf.share(NET.__class__, X, Y), "it must be an nn.Module"),
    (lambda: models.build("lenet", (1, 12, 12), 10, init=-1), "init is -1"),
    (lambda: models.build("lenet", (1, 12, 12), classes=-1), "classes is -1"),
    (lambda: models.build("lenet", (1, 12, 12), 10, width=3), "unknown option of lenet 'width'"),
    (
        lambda: models.build("lenet", (1, 12, 0), 10),
        "like is (1, 12, 0)",
    ),
    (lambda: privacy.epsilon(1e-300, 0.1, 10), "sigma is 1e-300"),
    (lambda: privacy.epsilon(5.0, 0.1, 10**12), "from 1 to 1,000,000,000"),
    (lambda: privacy.epsilon(1e300, 0.1, 10), "sigma is 1e+300"),
    (lambda: metrics.summary({"a": torch.tensor([])}), "scores is"),
    (lambda: metrics.summary({"a": torch.ones(2), "b": torch.ones(3)}), "all equally long"),
    (lambda: attacks.Recursive(entry="x").run(UP), "for entry= 'x'"),
    (lambda: attacks.DLG(start=torch.zeros(1, 9, 9)).run(UP), "start must have the shape"),
    (lambda: attacks.Imprint(NET, torch.tensor([0.0, 1.0]), gain=0), "gain is 0"),
    (lambda: attacks.GRNN(width=0), "width is 0"),
    (lambda: defenses.build("fedkl:seed=x"), "seed is 'x'"),
    (lambda: defenses.build("fedkl:key_length=1e3"), "key_length is 1000.0"),
    (lambda: defenses.build("entangle:guard=5"), "guard is 5"),
    (lambda: pf.share(NET, X, Y, defenses.Entangle(guard={"a": torch.ones(1, 2)})), "guard needs"),
    (lambda: defenses.Prune() + 3, "unsupported"),
    # memory and time
    (lambda: pf.Plan(steps=10**12), "steps is 1000000000000"),
    (lambda: pf.Plan(steps=10**6, batch_size=10**6).batches(4), "need about 7.28 TB of memory"),
    (lambda: privacy.epsilon(300, 0.1, 10**8, accountant="prv"), "use accountant='rdp'"),
    (lambda: pf.FedAvg(NET, CLIENTS, 1, workers=100_000), "workers is 100000"),
]


@pytest.mark.parametrize(("call", "says"), REFUSED)
def test_the_cases_of_the_review_get_one_sentence(call, says, refused):
    if says == "unsupported":  # Python's own sentence for + is as good
        with pytest.raises(TypeError, match=says):
            call()
        return
    refused(call, says)


def test_what_is_right_in_another_form_works():
    assert attacks.GS(drop="features.0").drop == ("features.0",)
    assert defenses.build("prune:feedback=no").feedback is False
    as_bytes = (X * 255).byte()
    for x in (X.double(), as_bytes, X.numpy(), X.tolist()):
        assert len(pf.share(NET, x, Y)) == 1
    assert len(pf.share(NET, X, [1, 2, 3, 4])) == 1
    assert len(UP[-1]) == 1 and torch.equal(
        UP[-1].tensors["head.bias"], UP.tensors["head.bias"][3:]
    )


# The command line, in process: exit code 2 and one line, whatever an option is given

LEADS = {
    "attack": "attack gs --images 1 --model mlp --steps 1 --quiet",
    "compare": "compare --images 1 --model mlp --steps 1 --quiet --attacks gs --defenses none",
    "train": "train --model mlp --clients 2 --rounds 1 --quiet",
    "epsilon": "epsilon",
    "plan": "plan",
    "study": "study show modelcloak-fixed/epsilon",
    "fetch": "fetch mnist",
}
NUMBERS = ("x", "nan", "-1", "1e999", "", "1.5.2", "9" * 30)
FREE = ("labels", "json", "png", "csv", "checkpoint", "knows", "out", "upload", "model-file")


def options(command: str) -> list[str]:
    """Its options that take one value."""
    commands = next(a for a in parser()._actions if a.choices and command in a.choices)
    found = [a for a in commands.choices[command]._actions if a.nargs is None and a.option_strings]
    return [a.option_strings[0] for a in found if a.option_strings[0] != "--help"]


ROWS = [
    (command, option, value)
    for command in LEADS
    for option in options(command)
    if option.removeprefix("--") not in FREE
    for value in NUMBERS
    if not (option == "--seed" and value == "-1")
]
ROWS += [
    *(("attack", "--json", v) for v in ("", "no/such/file", "/", "x" * 300)),
    *(("attack", "--png", v) for v in ("", "dir", "a.xyz", "no/such/file.png")),
    *(("compare", "--csv", v) for v in ("", "no/such/file")),
    *(("train", "--checkpoint", v) for v in ("", "/proc/x", "no/such/file")),
    *(("attack", "--upload", v) for v in ("no such file", "/")),
    *(("attack", "--knows", v) for v in ("key", "nothing")),
    *(("attack", "--labels", v) for v in ("x", "1,-2", "1")),
    ("attack", "--defense", "fedkl:seed=x"),
    ("attack", "--defense", "fedkl:key_length=1e3"),
    ("attack", "--defense", "entangle:guard=5"),
    ("attack", "--defense", "prune:rate=nan"),
    ("attack", "--defense", "prune:feedback=maybe"),
    ("train", "--defense", "modelcloak:sigma=-1"),
    ("compare", "--model", "x"),
    ("attack", "--threads", "100000"),
    ("train", "--workers", "100000"),
    ("epsilon", "--sigma", "1e-300"),
    ("epsilon", "--sigma", "1e300"),
]


@pytest.mark.parametrize(("command", "option", "value"), ROWS)
def test_the_command_line_refuses_in_one_line(
    command, option, value, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = [*LEADS[command].split(), option, value]
    try:
        code = main(words)
    except SystemExit as stop:  # argparse
        code = stop.code
    said = capsys.readouterr().err
    assert code == 2 and said.startswith("privfl") and said.count("\n") == 1, (words, said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "attack recursive --steps 5",
        "attack closed_form --restarts 5",
        "attack gs:drop=nothing --images 1 --model mlp --steps 1 --quiet",
        "attack gs:steps=0",
        "attack gs:tv=nan",
        "epsilon --accountant prv --rounds 100000000 --sigma 300",
        "study show",
        "study run x",
    ],
)
def test_commands_that_make_no_sense_are_refused_at_once(words, capsys):
    try:
        code = main(words.split())
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr().err
    assert code == 2 and said.count("\n") == 1, said
