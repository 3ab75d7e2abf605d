"""The studies of FedKL: what the server is granted, how starts are chosen, what is stored."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from privfl_lite import metrics
from privfl_lite.models.keylock import lock_matrix, locks
from privfl_lite.stored import SHIPPED
from privfl_lite.studies import STUDIES
from privfl_lite.studies.fedkl import attack as study
from privfl_lite.studies.fedkl import targets as fedkl_targets
from privfl_lite.studies.fedkl import training as fedkl_training
from privfl_lite.teach import ledger


@pytest.fixture(scope="module")
def small() -> dict:
    return STUDIES["fedkl/attack"].settings("cpu") | {"images": 2, "rounds": 1}


def test_the_server_that_holds_key_and_lock_can_imitate_and_with_a_wrong_key_cannot(small):
    upload, x, y = fedkl_targets.target(small, 0)
    for k in range(2):
        right, wrong = (
            fedkl_targets.opened(upload[k], how) for how in ("key and lock", "wrong key")
        )
        for opened, same in ((right, True), (wrong, False)):
            made = opened.imitator()(x[k : k + 1, None], y[k : k + 1, None])
            gap = [(made[n] - t).norm().item() for n, t in right.tensors.items()]
            assert (max(gap) < 1e-4) is same
    blank = [p for _, m in locks(upload.model) for p in m.lock.parameters()]
    assert not any(p.any() for p in blank), "the upload itself stays blank"


def test_of_several_starts_the_cheapest_counts_not_the_best(small):
    aim = fedkl_targets.target(small, 0)
    truth, gray = aim.x, torch.full_like(aim.x, 0.5)

    class Fake:
        """Start 0 finds the truth at a high cost for the first image, start 1 for the second."""

        def run(self, upload, seed):
            good = torch.tensor([seed == 0, seed == 1])
            images = torch.where(good[:, None, None, None], truth, gray)
            cost = torch.tensor([2.0, 1.0]) if seed == 0 else torch.tensor([1.0, math.nan])
            return SimpleNamespace(images=images, cost=cost, labels=aim.y, evaluations=7)

    out = study.searched(small, [aim], Fake, starts=2)
    assert out["by_starts"]["1"]["success"] == 1 and out["success"] == 0
    assert out["cost"] == [1.0, 1.0] and out["labels_right"] == 2 and out["evaluations"] == 7


def test_scores_in_all_units(small):
    x = fedkl_targets.target(small, 0).x
    found = 0.5 * x + 0.25
    out = study.score(small, found, x)
    assert out["success"] == 0 and out["fit"]["success"] == 2
    each = 10 * np.log10(255**2 / (255 * (found - x).square().mean((1, 2, 3)).sqrt().numpy()))
    assert out["fedkl_psnr"] == pytest.approx(each.mean(), abs=0.01)
    converted = [(p + 20 * math.log10(255)) / 2 for p in out["psnr"]]  # (PSNR + 48.13) / 2
    assert out["fedkl_psnr"] == pytest.approx(np.mean(converted), abs=0.01)


def test_trained_clients_use_their_own_keys_and_locks(small):
    groups, accuracy = fedkl_targets.trained(small, knows=("key", "coefficients"))
    facts, again = groups[0].upload.knows, groups[1]
    key, c = facts.key, facts.coefficients
    assert [len(t.x) for t in groups] == [3, 3] and 0.1 < accuracy < 0.95
    assert torch.equal(key, again.upload.knows.key) and not torch.equal(key[0], key[1])
    run = fedkl_targets.training(1, small["seed"], "lock", ())
    for k in range(3):
        _, m = next(locks(run.personal(k)))
        torch.testing.assert_close(c[k], torch.cat(m.lock()).detach(), rtol=1e-3, atol=1e-4)
    wide, _ = fedkl_targets.trained(small, double=True)
    for n, t in wide[0].upload.tensors.items():
        assert t.dtype == torch.float64
        torch.testing.assert_close(t.float(), groups[0].upload.tensors[n], rtol=0.05, atol=1e-3)


def test_another_key_opens_a_trained_lock_by_three_quarters(small):
    """Training moves W by −η Σ g kᵀ, so W k' − W₀k' is (k·k')/‖k‖² ≈ 3/4 of W k − W₀k."""
    run = fedkl_targets.training(1, small["seed"], "lock", ())
    name = next(locks(run.model))[0]
    first, last = (
        lock_matrix(dict(n.named_parameters()), [name]) for n in (run.model, run.personal(0))
    )
    moved = (last - first).detach()[:, :-1]
    own, other = (next(locks(run.personal(c)))[1].lock.key for c in (0, 1))
    ratio = (moved @ other) / (moved @ own)
    torch.testing.assert_close(
        ratio, (own @ other / own.square().sum()).expand(24), atol=0.01, rtol=0
    )
    assert 0.7 < ratio.mean() < 0.8


# Training


def test_spread_is_students():
    values = [0.91, 0.93, 0.925]
    out = fedkl_training.spread(values)
    want = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    np.testing.assert_allclose(out["interval"], want)
    cells = [
        {"part": "digits", "arm": arm, "seed": s, "accuracy": v + (arm == "b") * 0.01}
        for arm in "ab"
        for s, v in enumerate(values)
    ]
    apart = fedkl_training.difference(cells, "b", "a")
    assert apart["mean"] == pytest.approx(0.01) and apart["std"] == pytest.approx(0, abs=1e-9)
    assert fedkl_training.table(cells)["a"]["accuracies"] == values


def test_other_keys_of_a_model_that_looks_at_the_lock_only(small):
    """A zero lock makes the output constant: its accuracy is the share of one class."""
    run = fedkl_targets.training(1, small["seed"], "lock", ())
    x, y = run.test[0][:200], run.test[1][:200]
    nets = [run.personal(c) for c in range(3)]
    before = [t.clone() for t in nets[0].state_dict().values()]
    found = fedkl_training.other_keys(nets, (x, y), 0, draws=2)
    assert {k: len(v) for k, v in found.items()} == {
        **{"random": 2, "wrong key": 6, "other key": 6, "zero": 1}
    }
    assert found["zero"][0] in [(y == c).double().mean().item() for c in range(10)]
    assert all(
        torch.equal(a, b) for a, b in zip(before, nets[0].state_dict().values(), strict=True)
    )


def test_table_3_counts_the_head_of_100_classes():
    rows = {(r["model"], r["classes"]): r for r in fedkl_training.shares()}
    lenet = 12 * 75 + 12 + 2 * (12 * 300 + 12)  # three convolutions on color images
    for classes in (10, 100):
        total = lenet + 768 * classes + classes + 2 * 12 * 1025
        assert rows["lenet", classes]["all"] == total
    printed = {
        name.lower().replace("-", ""): row["Parameter Proportion"]
        for name, row in ledger.paper("fedkl/table-3").items()
    }
    assert rows["lenet", 100]["percent"] == pytest.approx(printed["lenet"], abs=0.01)
    assert rows["lenet", 10]["percent"] > 60
    assert all(
        r["percent"] == pytest.approx(printed[r["model"]], rel=0.03)
        for r in rows.values()
        if r["classes"] == 10 and r["model"] != "lenet"
    )


# What is stored


def cell(name: str, **want: object) -> dict:
    (found,) = (c for c in STUDIES[name].show()["cells"] if want.items() <= c.items())
    return found


def test_a_stored_closed_form_comes_out_again(small):
    want = {"part": "informed", "attack": "closed form", "variant": "Eq. 30"}
    stored = cell("fedkl/attack", **want)
    again = STUDIES["fedkl/attack"].compute(small | {"nets": [0]}, want)
    assert min(again["fit"]["psnr"]) > 50 and again["labels_right"] == 2
    assert stored["images"] == stored["labels_right"] == stored["fit"]["success"] == 24
    np.testing.assert_allclose(again["psnr"], stored["psnr"][:2], atol=1)
    assert metrics.wilson(24, 24)[0] == pytest.approx(stored["success_interval"][0], abs=1e-3)
    assert (SHIPPED / "fedkl/attack.json").stat().st_size < 300_000


def test_a_stored_accuracy_comes_out_again(small):
    stored = cell("fedkl/training", part="digits", arm="FedKL", seed=0)
    run = fedkl_targets.training(1, 0, "lock", ())
    assert run.history[0].accuracy == pytest.approx(stored["curve"][0], abs=0.02)


def test_stored_training_matches_and_collapses_only_without_the_lock():
    cells = STUDIES["fedkl/training"].show()["cells"]
    low, high = fedkl_training.difference(cells, "FedKL", "FedAvg")["interval"]
    assert low < 0 < high and high - low < 0.1
    keys = [c["keys"] for c in cells if c.get("arm") == "FedKL" and c["part"] == "digits"]
    assert all(max(k["random"]) < 0.4 for k in keys)
    own = fedkl_training.table(cells)["FedKL"]["mean"]
    assert all(min(k["wrong key"] + k["other key"]) > own - 0.05 for k in keys)


def test_on_a_trained_net_it_is_not_the_secret_that_stops_the_closed_form():
    """The control: γ and β granted change little in 32 bits; 64 bits without them open most."""

    def rebuilt(setting: str, attack: str = "closed form") -> int:
        found = cell("fedkl/attack", part="more", setting=setting, attack=attack)
        assert found["images"] == 24
        return found["success"]

    granted = "closed form, granted"
    assert rebuilt("untrained", granted) == 24, "the control works"
    for setting in ("trained", "trained, eval", "trained, ReLU"):
        assert max(rebuilt(setting), rebuilt(setting, granted)) <= 8
        assert abs(rebuilt(setting) - rebuilt(setting, granted)) <= 4
    assert rebuilt("trained, 64 bits") >= 16 and rebuilt("trained, eval, 64 bits") == 24
    assert rebuilt("trained, batch norm") == rebuilt("trained, open") == 24


def test_the_control_is_granted_and_others_are_not(small, monkeypatch):
    asked = []

    class Spy(study.Unlock):
        def run(self, upload, seed=0):
            asked.append((self.granted, list(upload.knows.names)))
            return super().run(upload, seed)

    monkeypatch.setattr(study, "Unlock", Spy)
    for attack in ("closed form, granted", "closed form"):
        wanted = {"part": "more", "setting": "eval", "attack": attack}
        out = study.STUDY.compute(small | {"nets": [0]}, wanted)
        assert out["success"] == 2
    assert asked == [(True, ["coefficients"]), (False, [])]


def test_controls_are_cells_and_no_two_cells_are_one():
    cells = study.STUDY.cells(study.STUDY.settings("cpu"))
    more = {(c["setting"], c["attack"]) for c in cells if c["part"] == "more"}
    assert set(study.CONTROLS) <= more and len({tuple(c.items()) for c in cells}) == len(cells)
