"""Projects: a baseline has some points, a good answer passes, nonsense is told in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from checkout import ROOT
from scipy.stats import laplace

import privfl_lite as pf
from privfl_lite.privacy import analytic_gaussian_delta
from privfl_lite.privacy.one_run import audit, audit_p_value
from privfl_lite.teach.projects import PROJECTS, auditing, score, surviving, training, uploads
from privfl_lite.teach.projects.pictures import digits, fresh
from privfl_lite.teach.projects.points import PASS


def names(found) -> dict[str, float]:
    return {goal.name: goal.points for goal in found.goals}


@pytest.mark.parametrize("project", PROJECTS)
def test_nonsense_is_one_sentence(project, refused):
    for answer in (None, 7, "an answer", [1, 2]):
        refused(lambda answer=answer: score(project, answer), f"{project} asks for")


def test_projects_are_found_by_name(refused):
    assert pf.teach.projects.score is score
    refused(lambda: score("part-5", lambda: 0), "part-5")


def test_the_score_says_points_and_why():
    found = score("part-4", lambda release, count: 0.0, seed=1)
    assert found.points == 0 and not found.passed
    assert "0 of 100" in repr(found) and "draw 1" in found._repr_html_()


def test_each_draw_is_another_one():
    seeds = {score("part-4", lambda release, count: 0.0).seed for _ in range(3)}
    assert len(seeds) == 3


# --- Part I ---


def by_recursion(upload):
    return pf.attacks.Recursive().run(upload).images


def by_kind(upload):
    """Looks at the upload, and chooses."""
    if upload.batch > 1:
        return pf.attacks.Spear().run(upload).images
    zeros = torch.cat([t.flatten() for t in upload.tensors.values()]).eq(0).float().mean()
    if zeros > 0.5:
        return pf.attacks.Unprune(steps=300).run(upload).images
    if upload.local_steps > 1:
        return pf.attacks.IDLG(steps=60).run(upload).images
    return by_recursion(upload)


def test_fresh_digits_are_in_no_list():
    x, y = fresh(digits(), 6, seed=3)
    everything = torch.cat([digits().x_train, digits().x_test])
    near = torch.cdist(x.flatten(1), everything.flatten(1)).min(1).values
    assert (near > 1.0).all() and x.min() >= 0 and x.max() <= 1  # 1.4 is ModelCloak's "rebuilt"
    assert torch.equal(fresh(digits(), 6, seed=3)[0], x) and len(y) == 6


@pytest.fixture
def one_each(monkeypatch):
    monkeypatch.setattr(uploads, "EACH", 1)


def test_part_1_a_single_tool_gets_its_kind_and_a_choice_gets_all(one_each):
    alone = names(score("part-1", by_recursion, seed=1))
    assert alone["one digit, LeNet"] == 25 and alone["four digits, dense"] == 0
    assert sum(alone.values()) < PASS
    good = score("part-1", by_kind, seed=1)
    assert good.passed, good


def test_part_1_guesses_have_no_points_and_errors_name_the_line(one_each, monkeypatch):
    monkeypatch.setattr(uploads, "KINDS", uploads.KINDS[:2])
    mean = digits().x_train.mean(0)
    guess = score("part-1", lambda upload: mean.expand(upload.batch, -1, -1, -1), seed=2)
    assert guess.points == 0
    for answer, says in (
        (lambda upload: upload.nothing, "your code raised AttributeError"),
        (lambda upload: torch.zeros(3), "has shape"),
        (lambda upload: None, "returns nothing yet"),
    ):
        found = score("part-1", answer, seed=2)
        assert found.points == 0 and says in found.goals[0].why


# --- Part II ---

GOOD = {"clip": 0.3, "sigma": 4.0, "rounds": 20, "eta": 2.0, "batch_size": 400}


def test_part_2_a_plan_that_was_thought_about_passes():
    found = score("part-2", GOOD, seed=1)
    assert found.passed and "ε = 11.4" in found.goals[0].why


def test_part_2_counts_for_itself():
    little = score("part-2", {**GOOD, "rounds": 2}, seed=1)
    assert 0 < little.points < PASS
    spent = score("part-2", {**GOOD, "sigma": 0.5, "rounds": 1}, seed=1)
    assert spent.points == 0 and "is above 12" in spent.goals[0].why


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rounds": 2.5}, "rounds must be a whole number"),
        ({"sigma": 0}, "sigma must be a number above 0"),
        ({"eta": float("nan")}, "eta must be a number above 0"),
        ({"rounds": 41}, "at most 40 rounds"),
        ({"clip": True}, "clip must be"),
        ({"more": 1}, "asks for a dictionary with"),
    ],
)
def test_part_2_refuses_impossible_settings(refused, change, says):
    refused(lambda: score("part-2", {**GOOD, **change}), says)


# --- Part III ---


@pytest.fixture
def small(monkeypatch):
    """Fewer digits, rounds and steps: the rules are tested here, and not the defenses."""
    for name, value in {"VICTIMS": 3, "ROUNDS": 2, "RUNS": 1, "STEPS": 60, "EXAMPLES": 64}.items():
        monkeypatch.setattr(surviving, name, value)
    monkeypatch.setattr(surviving, "NAMED", 0)


def test_part_3_nothing_survives_without_a_defense(small):
    found = names(score("part-3", pf.defenses.Defense(), seed=1))
    assert found["Recursive"] == 0 and found["informed"] == 0


def test_part_3_loud_noise_ends_the_recursion(small, monkeypatch):
    monkeypatch.setattr(surviving, "accuracy", lambda ds, d, seed: 0.8)
    found = score("part-3", pf.defenses.DPGaussian(10.0), seed=1)
    assert names(found)["Recursive"] == 20 and "costs" in found.goals[0].why


def test_part_3_noise_that_ends_learning_has_no_points(small, monkeypatch):
    monkeypatch.setattr(surviving, "accuracy", lambda ds, d, seed: 0.8 if d == none else 0.7)
    none = pf.defenses.Defense()
    found = score("part-3", pf.defenses.DPGaussian(10.0), seed=1)
    assert found.points == 0 and "more than 2" in found.goals[0].why


def test_part_3_a_chain_meets_who_knows_its_parts(small, monkeypatch):
    """At no price, as in the table of All against all; Unlock alone would open FedKL's lock."""
    monkeypatch.setattr(surviving, "accuracy", lambda ds, d, seed: 0.8)
    lock = pf.defenses.FedKL()
    alone = score("part-3", lock, seed=1)
    chain = score("part-3", lock + pf.defenses.DPGaussian(1e-3), seed=1)
    assert names(alone)["informed"] == 0 and not alone.passed
    assert chain.passed, chain


class Own(pf.defenses.DPGaussian):
    """A class that the registry does not have."""


class Broken(pf.defenses.Defense):
    def gradient(self, g, ctx):
        return g["nothing"]


def test_part_3_an_unknown_class_is_not_judged_by_who_does_not_know_it(small):
    found = score("part-3", Own(1e-3), seed=1)
    assert found.goals[-1].points == 0 and "not judged" in found.goals[-1].why
    broken = score("part-3", Broken(), seed=1)
    assert broken.points == 0 and "KeyError" in broken.goals[0].why


# --- Part IV ---


def pooled(release, count):
    """Five runs as one: all guesses together, and then one bound."""
    right, guesses = 0, count // 2
    for _ in range(5):
        coins = np.random.default_rng().random(count) < 0.5
        order, low = np.argsort(release(coins), kind="stable"), guesses // 2
        right += int((~coins[order[:low]]).sum() + coins[order[-low:]].sum())
    low, high = 0.0, 12.0
    if audit_p_value(low, right, 5 * guesses, 5 * count, 1e-5) >= 0.05:
        return 0.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        refuted = audit_p_value(middle, right, 5 * guesses, 5 * count, 1e-5) < 0.05
        low, high = (middle, high) if refuted else (low, middle)
    return low


def test_part_4_the_usual_audit_has_half_and_five_runs_pooled_pass():
    usual = score("part-4", lambda r, n: audit(r, n, delta_dp=1e-5, seed=5).epsilon, seed=1)
    assert 30 < usual.points < PASS
    assert score("part-4", pooled, seed=1).passed


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda release, count: 0.3, "mean bound 0.30"),
        (lambda release, count: 3.0, "bounds are above the truth"),
        (lambda release, count: [release([1] * count) for _ in range(6)], "called 5 times"),
        (lambda release, count: release([1]), "takes 400 coins"),
        (lambda release, count: "low", "is one number"),
        (lambda release, count: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_part_4_constants_and_tricks_have_no_points(answer, says):
    found = score("part-4", answer, seed=1)
    assert found.points == 0 and says in found.goals[0].why


def test_the_stated_eps_of_each_mechanism_is_true():
    """Gaussian by its exact δ; Laplace noise and random answers by their ratio of probabilities."""
    made = [auditing.Mechanism(np.random.default_rng([0, i])) for i in range(40)]
    assert {m.kind for m in made} == {"gaussian", "laplace", "answers"}
    for m in made:
        if m.kind == "gaussian":
            assert analytic_gaussian_delta(m.spread, m.eps) == pytest.approx(1e-5, rel=1e-3)
        elif m.kind == "laplace":
            ratio = laplace.pdf(0, 0, m.spread) / laplace.pdf(0, 1, m.spread)
            assert np.log(ratio) == pytest.approx(m.eps)
        else:
            said = np.round(np.asarray(m.noisy(np.ones(40_000)))).mean()
            assert said == pytest.approx(1 / (1 + np.exp(-m.eps)), abs=0.02)
        order = np.linspace(-2, 2, 9)
        assert (np.diff(m.curve(order)) > 0).all()


def test_limits_are_those_of_the_page():
    page = (ROOT / "book" / "projects.md").read_text(encoding="utf-8")
    for words in (
        f"A score of {PASS} passes",
        f"{uploads.OF:g} points for each kind",
        f"all at {uploads.GOAL:g} dB",
        f"within ε = {training.EPSILON:g}",
        f"at most {training.ROUNDS} rounds",
        f"none at {training.LOW:.0%}".replace("%", " %"),
        f"all at {training.HIGH:.0%}".replace("%", " %"),
        f"{surviving.STAGES['informed']:g} times the share",
        f"more than {auditing.MISTAKES} of {auditing.RELEASES} bounds",
        f"all at {auditing.HIGH:.0%}".replace("%", " %"),
    ):
        assert words in page, words
