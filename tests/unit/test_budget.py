"""Bounded memory: work that would not fit is cut, gives the same result, or is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import privfl_lite as pf
from privfl_lite import attacks, budget, defenses, models
from privfl_lite.training import fitting

SHAPE = (1, 12, 12)


@pytest.fixture
def net():
    return models.build("lenet", SHAPE, 10)


@pytest.fixture
def batch():
    rng = torch.Generator().manual_seed(1)
    return torch.rand(6, *SHAPE, generator=rng), torch.randint(10, (6,), generator=rng)


def test_the_budget_is_said_or_found(monkeypatch, refused):
    monkeypatch.delenv("PRIVFL_MEMORY", raising=False)
    assert budget.budget() == pytest.approx(0.75 * budget.free(), rel=0.2)
    for said, want in (("500MB", 500 * 2**20), ("1.5 gb", 1.5 * 2**30), ("7000", 7000)):
        monkeypatch.setenv("PRIVFL_MEMORY", said)
        assert budget.budget() == want
    for wrong in ("much", "-3GB", "0", "3 apples"):
        monkeypatch.setenv("PRIVFL_MEMORY", wrong)
        refused(budget.budget, f"PRIVFL_MEMORY is {wrong!r}")


def test_work_is_cut_to_what_fits(monkeypatch, refused):
    monkeypatch.setenv("PRIVFL_MEMORY", "1000")
    assert [budget.at_once(n, 100, "things") for n in (3, 10, 99)] == [3, 10, 10]
    assert budget.at_once(10, 100, "things", kept=50) == 5
    refused(lambda: budget.at_once(2, 1001, "things"), "2 things need about 1001 bytes of memory")
    refused(lambda: budget.at_once(30, 1, "things", kept=50), "30 things need about 1.47 KB")


def few(monkeypatch, net, x, defense, plan=None) -> None:
    """A budget into which two clients of these six fit at once."""
    data = [(one[None], torch.zeros(1, dtype=torch.long)) for one in x]
    for size in range(200, 9000, 20):
        monkeypatch.setenv("PRIVFL_MEMORY", f"{size}KB")
        try:
            if len(fitting(net, data, defense, plan)) == 3:
                return
        except pf.PrivflError:
            continue
    raise AssertionError("no budget makes three groups")


OTHER = ("loda", "precode", "mixup", "instahide", "secure_sum")  # no row of its own per client
DEFENSES = [n for n in defenses.DEFENSES if n not in OTHER]


@pytest.mark.parametrize("name", DEFENSES)
@pytest.mark.parametrize("plan", [None, pf.Plan(steps=2, batch_size=1)], ids=["gradient", "update"])
def test_uploads_are_the_same_in_groups(monkeypatch, net, batch, name, plan):
    some = {"dcs2": {"steps": 3}, "fedkl": {"key_length": 8, "seed": 1}}.get(name, {})
    made = defenses.DEFENSES[name](**some)
    how = {"each": 1, "seed": 3, "knows": ("labels",), "plan": plan}
    whole = pf.share(net, *batch, made, **how)
    few(monkeypatch, net, batch[0], made, plan)
    parts = pf.share(net, *batch, made, **how)
    assert parts.knows.names == whole.knows.names and len(parts) == 6
    for n, t in whole.tensors.items():
        last_bit = 2**-10 if name == "rounded" else 2e-4  # of 16 bits, for numbers at a border
        torch.testing.assert_close(parts.tensors[n], t, rtol=last_bit, atol=1e-6)


def test_a_guard_is_still_needed(net, batch, refused):
    guard = defenses.Entangle()
    refused(lambda: pf.share(net, batch[0][:1], batch[1][:1], guard), "has no guard here")


SEARCHES = {
    "dlg": {"steps": 12, "restarts": 2},
    "idlg": {"steps": 12, "frames": 3},
    "gs": {"steps": 12, "frames": 3},
    "unprune": {"steps": 12},
    "denoise": {"steps": 8},
    "lock_matching": {"steps": 6},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_are_the_same_in_groups(monkeypatch, net, batch, name):
    x, y = batch[0][:4], batch[1][:4]
    locked = name == "lock_matching"
    defense = defenses.FedKL(8, seed=1) if locked else defenses.DPGaussian(1e-3)
    upload = pf.share(net, x, y, defense, () if locked else ("noise",), each=1)
    attack = attacks.ATTACKS[name](**SEARCHES[name], show=False)
    whole, cuts = attack.run(upload, seed=2), []
    monkeypatch.setattr(
        "privfl_lite.attacks.matching.search.at_once", lambda *_: cuts.append(1) or 2
    )
    parts = attack.run(upload, seed=2)
    assert cuts and parts.evaluations == whole.evaluations
    assert [tick for tick, _ in parts.history] == [tick for tick, _ in whole.history]
    torch.testing.assert_close(parts.images, whole.images, rtol=1e-3, atol=1e-3)
    assert torch.equal(parts.labels, whole.labels)


@pytest.mark.parametrize("name", ["ggl", "grnn", "unobscure"])
def test_generators_and_inversions_are_the_same_in_groups(monkeypatch, name):
    data = pf.load("photos", size=16) if name == "unobscure" else pf.load("mnist", size=16)
    net, (x, y) = models.build("mlp", data), data.sample(3)
    knows = ()
    defense = None
    if name == "unobscure":
        defense, knows = defenses.LODA(steps=2, start="noise"), ("extractor",)
    upload = pf.share(net, x, y, defense, knows, each=1)
    attack = attacks.ATTACKS[name](steps=4, show=False)
    whole, cuts = attack.run(upload, seed=2), []
    room = {"unobscure": "adaptive.loda"}.get(name, f"generative.{name}")
    monkeypatch.setattr(f"privfl_lite.attacks.{room}.at_once", lambda *_: cuts.append(1) or 2)
    parts = attack.run(upload, seed=2)
    assert cuts and parts.evaluations == whole.evaluations
    torch.testing.assert_close(parts.images, whole.images, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(parts.cost, whole.cost, rtol=1e-3, atol=1e-5)


def test_a_budget_for_nothing_is_one_sentence(monkeypatch, net, batch, refused):
    upload = pf.share(net, *batch, each=1)
    monkeypatch.setenv("PRIVFL_MEMORY", "10KB")
    refused(lambda: pf.share(net, *batch, each=1), "6 uploads need about")
    refused(lambda: attacks.GS(steps=1).run(upload), "6 searches need about")


def test_memory_that_runs_out_all_the_same_is_one_sentence(monkeypatch, net, batch, refused):
    upload = pf.share(net, *batch, each=1)

    def full(*_, **__):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory")

    monkeypatch.setattr("privfl_lite.client.gradients_of", full)
    refused(lambda: pf.share(net, *batch), "share ran out of memory")
    monkeypatch.setattr("privfl_lite.attacks.matching.search.Matching._match", full)
    refused(lambda: attacks.GS(steps=1).run(upload), "GS ran out of memory")
    monkeypatch.setattr("privfl_lite.client.gradients_of", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # only memory is spoken of
        pf.share(net, *batch)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
def test_four_hundred_large_uploads_under_a_limit_are_refused_at_once():
    code = """if True:
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (10 * 2**30,) * 2)
        import torch, privfl_lite as pf
        net = pf.models.build("resnet18", (3, 32, 32), 10)
        try:
            pf.share(net, torch.rand(400, 3, 32, 32), torch.zeros(400).long(), each=1)
        except pf.PrivflError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("400 uploads need about 1"), done.stderr
    assert "GB may be taken here" in done.stdout


def test_typed_uploads_are_searched_in_the_models_type(net, batch):
    upload = pf.share(net, *batch, each=1)[:2]
    double = replace(upload, tensors={n: t.double() for n, t in upload.tensors.items()})
    assert upload.typed() is upload and double.typed().tensors["head.bias"].dtype == torch.float32
    one, two = (attacks.GS(steps=3, show=False).run(u).images for u in (upload, double))
    assert torch.equal(one, two)
