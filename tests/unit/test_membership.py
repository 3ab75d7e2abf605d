"""Membership: distances against the closed form of linear models, counters, the overfit model."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate, one_hot

import privfl_lite as pf
from privfl_lite import metrics, models
from privfl_lite.attacks import membership
from privfl_lite.attacks.membership import (
    LabelOracle,
    boundary_scores,
    gap_scores,
    likelihood_scores,
    loss_scores,
)


def linear(shape, classes, smooth=False, dtype=torch.float32):
    """A linear model whose boundaries all meet at mid-gray, and images near there with its labels.

    The images lie so far inside [0, 1] that the nearest point of the boundary does, too.
    """
    rng = torch.Generator().manual_seed(1)
    net = models.build("mlp", shape, classes, hidden=())
    w = torch.randn(classes, *shape, generator=rng)
    if smooth:
        w = interpolate(w[..., : shape[1] // 4, : shape[2] // 4], shape[1:], mode="bilinear")
    net.head.weight.data, net.head.bias.data = w.flatten(1), -0.5 * w.flatten(1).sum(1)
    x = 0.45 + 0.1 * torch.rand(20, *shape, generator=rng)
    net, x = net.to(dtype), x.to(dtype)
    return net, x, net(x).argmax(1)


def distance(net, x, y):
    """(w_y − w_j)·x + b_y − b_j over ‖w_y − w_j‖, the least over j: the true L2 distance."""
    w, z = net.head.weight.detach(), net(x).detach()
    margin = (z.gather(1, y[:, None]) - z) / (w[y][:, None] - w).norm(dim=2)
    return margin.masked_fill(one_hot(y, len(w)).bool(), torch.inf).amin(1)


@pytest.fixture(scope="module")
def overfit():
    """A small network that knows 60 digits by heart; then 60 that it never saw."""
    digits = pf.load("mnist")
    x, y = digits.sample(120)
    net = models.build("mlp", digits)
    adam = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(150):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x[:60]), y[:60]).backward()
        adam.step()
    return net, x, y, digits


# --- the boundary attack ---


@pytest.mark.parametrize(
    ("shape", "classes", "smooth", "subspace", "tolerance"),
    [
        ((1, 8, 8), 2, False, "full", 0.03),
        ((3, 5, 7), 2, False, "full", 0.03),
        ((1, 8, 8), 5, False, "full", 0.05),
        ((1, 28, 28), 2, True, "resize", 0.05),
        ((3, 16, 16), 5, True, "resize", 0.05),
    ],
)
def test_distance_of_linear_models(shape, classes, smooth, subspace, tolerance):
    net, x, y = linear(shape, classes, smooth)
    found = boundary_scores(LabelOracle(net), x, y, 8000, subspace)
    ratio = found.scores / distance(net, x, y)
    assert not found.failed.any() and ratio.min() > 0.999  # never below the truth
    assert ratio.median() < 1 + tolerance
    if classes == 2:  # with more, some stay at the boundary of a class that is not the nearest
        assert ratio.max() < 1 + tolerance
    assert (net(found.adversarial).argmax(1) != y).all()
    assert found.adversarial.min() >= 0 and found.adversarial.max() <= 1
    torch.testing.assert_close(metrics.l2(found.adversarial, x), found.scores)


def test_half_resolution_helps_where_the_model_is_smooth_and_fails_where_it_is_rough():
    for smooth in (True, False):
        net, x, y = linear((1, 16, 16), 2, smooth)
        full, half = (
            boundary_scores(LabelOracle(net), x, y, 1000, s).scores / distance(net, x, y)
            for s in ("full", "resize")
        )
        assert half.median() < 0.9 * full.median() if smooth else half.median() > 1.5


def test_more_queries_come_closer():
    net, x, y = linear((1, 12, 12), 2)
    scores = [boundary_scores(LabelOracle(net), x, y, b).scores for b in (20, 300, 1000, 4000)]
    assert all((b < a).all() for a, b in itertools.pairwise(scores))


def test_misclassified_is_zero_and_no_start_is_the_largest_distance():
    net, x, _ = linear((1, 8, 8), 3)
    with torch.no_grad():
        net.head.bias[0] += 100  # class 0 everywhere
    oracle = LabelOracle(net)
    found = boundary_scores(oracle, x, torch.arange(20) % 2, 100)
    assert found.failed.tolist() == [True, False] * 10
    assert found.scores.tolist() == [8.0, 0.0] * 10
    assert found.adversarial[::2].isnan().all() and torch.equal(found.adversarial[1::2], x[1::2])
    assert found.queries.tolist() == [1] * 20 and oracle.total == 20 + found.shared


def test_own_images_as_starts(overfit):
    net, x, y, digits = overfit
    noise = boundary_scores(LabelOracle(net), x, y, 100)
    owned = boundary_scores(LabelOracle(net), x, y, 100, starts=digits.x_test[:50])
    assert noise.failed.any() and not owned.failed.any() and owned.shared == noise.shared + 50
    assert owned.scores.median() < noise.scores.median()


def test_same_seed_same_bits_and_another_seed_others():
    net, x, y = linear((1, 8, 8), 3)
    a, b, c = (boundary_scores(LabelOracle(net), x, y, 600, seed=s) for s in (0, 0, 1))
    assert torch.equal(a.scores, b.scores) and torch.equal(a.adversarial, b.adversarial)
    assert not torch.equal(a.scores, c.scores)


@pytest.mark.parametrize("subspace", ["full", "resize"])
def test_a_score_does_not_depend_on_who_else_is_tested(subspace, monkeypatch):
    net, x, y = linear((1, 8, 8), 3, dtype=torch.float64)
    together = boundary_scores(LabelOracle(net), x, y, 700, subspace)
    monkeypatch.setattr(membership, "ELEMENTS", 1)  # also: one candidate at a time in memory
    for k in (0, 7, 19):
        rows = slice(k, k + 1)
        alone = boundary_scores(LabelOracle(net, batch=37), x[rows], y[rows], 700, subspace)
        torch.testing.assert_close(alone.scores[0], together.scores[k], rtol=1e-9, atol=0)
        assert alone.queries[0] == together.queries[k]


# --- the oracle ---


class Counting(nn.Module):
    """Counts images in a class attribute, which the oracle's copy of the model shares."""

    seen = 0

    def __init__(self, net, hard=False):
        super().__init__()
        self.net, self.hard, self.shape = net, hard, net.shape

    def forward(self, x):
        Counting.seen += len(x)
        z = self.net(x)
        return one_hot(z.argmax(1), z.shape[1]).float() if self.hard else z


@pytest.mark.parametrize("budget", [20, 150, 555, 2000])
def test_the_counter_is_exact_and_the_budget_holds(budget):
    net, x, y = linear((1, 8, 8), 3)
    y = torch.where(torch.arange(20) % 5 == 0, (y + 1) % 3, y)
    Counting.seen = 0
    oracle = LabelOracle(Counting(net), batch=64)
    gap_scores(oracle, x, y)
    found = boundary_scores(oracle, x, y, budget)
    assert Counting.seen == oracle.total == found.queries.sum() + found.shared + 20
    assert torch.equal(oracle.queries(20), found.queries + 1) and oracle.queries(25)[20:].sum() == 0
    assert found.queries.max() <= budget and (found.queries[::5] == 1).all()
    assert len(found.queries.unique()) == 2 and (budget < 500 or found.queries.max() > 0.9 * budget)


def test_labels_are_all_that_is_used():
    net, x, y = linear((1, 8, 8), 3)
    soft, hard = (LabelOracle(Counting(net, hard)) for hard in (False, True))
    a, b = (boundary_scores(oracle, x, y, 600) for oracle in (soft, hard))
    assert torch.equal(a.adversarial, b.adversarial)
    assert not any(isinstance(value, nn.Module) for value in vars(soft).values())


def test_the_oracle_copies_the_model_in_eval_mode():
    net = models.build("convnet", (3, 32, 32), 10, width=4).train()
    x, before = torch.rand(8, 3, 32, 32), {k: v.clone() for k, v in net.state_dict().items()}
    labels = LabelOracle(net, batch=3)(x)
    assert net.training and all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert torch.equal(labels, net.eval()(x).argmax(1))


# --- the scores without search ---


def test_the_gap_attack_gives_the_accuracy_gap_and_no_more(overfit):
    net, x, y, _ = overfit
    score = gap_scores(LabelOracle(net), x, y)
    right = (net(x).argmax(1) == y).double()
    gap = right[:60].mean() - right[60:].mean()
    assert gap > 0.2
    assert metrics.auc(score[:60], score[60:]) == pytest.approx(0.5 + gap.item() / 2, abs=1e-12)


def test_loss_and_likelihood_by_hand(overfit):
    net, x, y, _ = overfit
    net = copy.deepcopy(net).double()
    every = net(x.double()).detach().softmax(1)
    p, rest = every[torch.arange(120), y], every.masked_fill(one_hot(y, 10).bool(), 0).sum(1)
    torch.testing.assert_close(loss_scores(net, x.double(), y), p.log(), rtol=1e-8, atol=1e-14)
    phi = likelihood_scores(net, x.double(), y)
    torch.testing.assert_close(phi, (p / rest).log(), rtol=1e-9, atol=1e-12)


def test_confident_answers_neither_overflow_nor_tie():
    net, x, y = linear((1, 8, 8), 3)
    net.head.weight.data *= 3000
    net.head.bias.data *= 3000
    phi = likelihood_scores(net, x, y)
    assert phi.isfinite().all() and phi.max() > 500 and len(phi.unique()) == 20
    wrong = loss_scores(net, x, (y + 1) % 3)
    assert wrong.isfinite().all() and wrong.min() < -500


def test_reference_compares_with_class_mates():
    net, x, y = linear((1, 8, 8), 2)
    z = net(x).detach().double()
    phi = z[torch.arange(20), y] - z[torch.arange(20), 1 - y]
    many = x.repeat(8, 1, 1, 1), y.repeat(8)  # at least 8 of each class
    score = likelihood_scores(net, x, y, many)
    for label in (0, 1):
        own = phi[y == label]
        want = (own - own.mean()) / own.std(correction=0)
        torch.testing.assert_close(score[y == label], want, rtol=1e-4, atol=1e-4)
    few = likelihood_scores(net, x, y, (x[:7], y[:7]))  # too few of each: over all of them
    want = (phi - phi[:7].mean()) / phi[:7].std(correction=0)
    torch.testing.assert_close(few, want, rtol=1e-4, atol=1e-4)


def test_overfitting_gives_members_away(overfit):
    net, x, y, digits = overfit
    reference, starts = (digits.x_test[:200], digits.y_test[:200]), digits.x_test[200:250]
    scores = {"loss": loss_scores(net, x, y), "phi": likelihood_scores(net, x, y)}
    scores["reference"] = likelihood_scores(net, x, y, reference)
    for s in ("full", "resize"):
        scores[s] = boundary_scores(LabelOracle(net), x, y, 600, s, starts=starts).scores
    scores["gap"] = gap_scores(LabelOracle(net), x, y)
    auc = {name: metrics.auc(value[:60], value[60:]) for name, value in scores.items()}
    assert auc["loss"] == auc["phi"]  # one order
    assert min(auc[name] for name in ("loss", "reference", "full", "resize")) > auc["gap"] + 0.1
    assert torch.equal(scores["full"] > 0, scores["gap"] > 0)  # it contains the gap attack


def test_an_untrained_model_gives_nothing_away():
    digits = pf.load("mnist")
    x, y = digits.sample(300)
    score = loss_scores(models.build("mlp", digits), x, y)
    assert abs(metrics.auc(score[:150], score[150:]) - 0.5) < 0.1  # 3 standard errors


# --- errors ---


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda n, o, x, y: gap_scores(o, x[0], y), "x is a tensor (1, 8, 8) of torch.float32;"),
        (lambda n, o, x, y: gap_scores(o, x[:, :, 1:], y), "got (20, 1, 7, 8)"),
        (lambda n, o, x, y: boundary_scores(o, x[:0], y[:0]), "x is a tensor (0, 1, 8, 8) of"),
        (lambda n, o, x, y: gap_scores(o, x, y[:3]), "20 images need an integer tensor of 20"),
        (
            lambda n, o, x, y: loss_scores(n, x, y.float()),
            "y is a tensor (20,) of",
        ),
        (lambda n, o, x, y: loss_scores(n, x, y + 3), "labels must lie in 0…2"),
        (lambda n, o, x, y: boundary_scores(o, x + 1, y), "it holds numbers from 1"),
        (
            lambda n, o, x, y: likelihood_scores(n, x * torch.nan, y),
            "x is a tensor (20, 1, 8, 8) of",
        ),
        (lambda n, o, x, y: boundary_scores(o, x, y, 0), "budget is 0; it must be"),
        (
            lambda n, o, x, y: boundary_scores(o, x, y, -5),
            "budget is -5; it must be",
        ),
        (lambda n, o, x, y: boundary_scores(o, x, y, samples=1), "samples at least 2"),
        (lambda n, o, x, y: boundary_scores(o, x, y, subspace="dct"), "one of: full, resize"),
        (lambda n, o, x, y: boundary_scores(o, x, y, starts=x[..., 1:]), "got (20, 1, 8, 7)"),
    ],
)
def test_bad_input_gets_one_sentence(refused, call, says):
    net, x, y = linear((1, 8, 8), 3)
    refused(lambda: call(net, LabelOracle(net), x, y), says)
