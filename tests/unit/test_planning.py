"""The plan of a federation against federations that were run, and against what was measured."""

from __future__ import annotations

import json

import pytest

import privfl_lite as pf
from privfl_lite import laws, planning
from privfl_lite.cli import main
from privfl_lite.planning import Federation

D, PLAN = pf.defenses, pf.Plan(eta=0.1, batch_size=10)


def ran(clients: int, rounds: int, text: str, summing: str, **how) -> pf.FedAvg:
    """A run with the defense that a plan names, its uploads kept."""
    digits = pf.load("mnist")
    data = [digits.sample(20, seed=c) for c in range(clients)]
    made = D.build(text) if summing == "none" else D.build(text) + D.SecureSum()
    net = pf.models.build("lenet", digits)
    given = {"plan": PLAN, "defense": made, "keep_uploads": True, "show": False, **how}
    return pf.FedAvg(net, data, rounds, **given).finish()


CASES = [
    ("none", "none", {}),
    ("dp_sgd:clip=1.0,sigma=1.5", "none", {"weighting": "uniform"}),
    ("modelcloak:clip=1.0,sigma=2.0", "none", {"weighting": "uniform"}),
    ("modelcloak:clip=1.0,sigma=2.0", "pairs", {"weighting": "uniform"}),
    (
        "modelcloak:clip=1.0,sigma=2.0,where=server",
        "none",
        {"per_round": 2, "sampling": "poisson", "weighting": "fixed"},
    ),
]


@pytest.mark.parametrize(("text", "summing", "how"), CASES)
def test_a_run_spends_what_was_planned(text, summing, how):
    """ε, its unit, against whom; and bytes, as the uploads of the run have them."""
    run = ran(4, 2, text, summing, **how)
    sampling = how.get("sampling", "fixed")
    plan = Federation(
        how.get("per_round", 4), 4, 2, defense=text, summing=summing, sampling=sampling, delta=1e-5
    )
    assert plan.epsilon == run.history[-1].epsilon
    assert run.model.num_parameters == planning.LENET
    assert len(run.leaving) == planning.TENSORS
    for upload in (u for report in run.history for u in report.uploads):
        numbers = sum(t[0].numel() for t in upload.tensors.values())
        if summing == "none":
            assert plan.bytes_up == upload.nbytes
        else:
            assert plan.masks.bytes_masked == (numbers + 1) * D.SecureSum().bits // 8
    assert plan.bytes_down - (plan.masks.bytes_down if plan.masks else 0) == sum(
        t.numel() * t.element_size() for t in run.model.state_dict().values()
    )


def test_clients_who_take_turns_spend_as_planned():
    """Twelve clients, four a round, three rounds: each once. A run that draws them at random spends
    what its busiest client spent, and says so."""
    plan = Federation(4, 12, 3, defense="modelcloak:clip=1.0,sigma=2.0", delta=1e-5)
    assert plan.turns == 1 and Federation(4, 12, 4).turns == 2
    each = pf.privacy.Training(1, clients=1)
    assert plan.epsilon.value == pf.privacy.account(D.ModelCloak(1.0, 2.0), each).value
    run = ran(12, 3, "modelcloak:clip=1.0,sigma=2.0", "none", per_round=4, weighting="uniform")
    assert run.history[-1].epsilon.value >= plan.epsilon.value


def test_laws_are_as_near_to_what_was_measured_as_they_say():
    """The largest relative error of each law is the stated one, and below one half."""
    law, off = laws.seconds(), laws.misfit()
    for cell in laws.cells("masks"):
        size = (cell["numbers"] + 1) * law["mask_number"]
        found = (cell["clients"] - 1) * law["agreement"] + cell["clients"] * size
        assert abs(found / cell["seconds_client"] - 1) <= off["masks"] + 1e-9
    for cell in laws.cells("mean"):
        each = cell["numbers"] * law["add_number"] + cell["tensors"] * law["add_tensor"]
        found = law["round"] + cell["clients"] * each
        assert abs(found / cell["seconds_server"] - 1) <= off["mean"] + 1e-9
    assert all(v > 0 for v in law.values()) and all(0 < v < 0.5 for v in off.values())


def test_measured_bytes_are_the_planned_ones():
    """Of every cell of the study, up to 10,000 clients."""
    for cell in laws.cells("run"):
        plan = Federation(cell["clients"], cell["clients"], numbers=cell["numbers"])
        assert cell["bytes_up"] == cell["clients"] * plan.bytes_up
        assert cell["bytes_down"] == plan.bytes_down
    for cell in laws.cells("masks"):
        plan = Federation(
            cell["clients"], cell["clients"], numbers=cell["numbers"], summing="pairs"
        )
        assert cell["bytes_masked"] == plan.masks.bytes_masked


def test_a_server_that_adds_needs_little_and_one_that_keeps_needs_them_all():
    kept = {c["clients"]: c["time_peak_bytes"] for c in laws.cells("memory", kept=True)}
    adds = {c["clients"]: c["time_peak_bytes"] for c in laws.cells("memory", kept=False)}
    plan = Federation(1000, 1000, numbers=12_730)
    assert kept[1000] > plan.memory_kept > adds[1000] > plan.memory
    assert (adds[10_000] - adds[1000]) / 9000 < 0.1 * 4 * plan.numbers  # bookkeeping, not uploads


def test_a_fit_has_no_negative_factor_and_finds_an_exact_law():
    terms = [(n, n * n) for n in (1, 2, 5, 20)]
    factors, off = laws.fitted(terms, [3 * a + 0.5 * b for a, b in terms])
    assert factors == pytest.approx([3, 0.5]) and off < 1e-9
    factors, off = laws.fitted(terms, [3 * a for a, _ in terms])
    assert min(factors) >= 0 and factors[0] == pytest.approx(3)


def test_masks_make_a_pruned_upload_dense():
    plain = Federation(100, 100, defense="prune:rate=0.9")
    dense = Federation(100, 100, defense="prune:rate=0.9", summing="pairs")
    assert plain.bytes_up < 4 * plain.numbers < dense.bytes_up


def test_a_graph_of_few_is_all_pairs_and_of_many_is_cheaper():
    few = [Federation(100, 100, summing=s) for s in ("pairs", "graph")]
    assert few[0].masks == few[1].masks
    pairs, graph = (Federation(10**5, 10**6, summing=s) for s in ("pairs", "graph"))
    assert graph.bytes_up < pairs.bytes_up / 10
    assert graph.seconds_client < pairs.seconds_client / 1000


BAD = [
    ({"cohort": 11}, "more than the population"),
    ({"cohort": 2, "summing": "pairs"}, "three clients"),
    ({"defense": "modelcloak+secure_sum"}, "summing="),
    ({"defense": "nonsense"}, "unknown defense"),
    ({"summing": "ring"}, "choose one of: none, pairs, graph"),
    ({"mbit": 0.0}, "mbit"),
    ({"rounds": 0}, "rounds"),
    ({"delta": 1.0}, "delta"),
]


@pytest.mark.parametrize(("wrong", "says"), BAD)
def test_bad_plans_are_refused_in_one_sentence(refused, wrong, says):
    refused(lambda: Federation(**{"cohort": 10, "population": 10, **wrong}), says)


def test_a_defense_that_was_never_timed_is_refused(refused):
    plan = Federation(10, 10, defense="soteria:rate=0.6+prune")
    refused(plan.lines, "were not measured")


def test_the_command_prints_each_number_with_its_source(capsys, tmp_path):
    out = tmp_path / "plan.json"
    words = "plan --cohort 100000 --defense modelcloak:clip=1,sigma=1 --summing graph --json"
    assert main([*words.split(), str(out)]) == 0
    said, lines = capsys.readouterr().out, json.loads(out.read_text())["lines"]
    plan = Federation(10**5, 10**6, 1000, defense="modelcloak:clip=1,sigma=1", summing="graph")
    assert {line["what"]: line["value"] for line in lines}["up"] == plan.bytes_up
    assert "extrapolated" in said and "sees sums only" in said and said.count("\nε:") == 2
    assert main("plan --cohort 100 --population 10".split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
