"""Baseline defenses: DP-SGD against Opacus, Soteria against a pass per feature, PRECODE's break."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import cross_entropy

from privfl_lite import FedAvg, Plan, metrics, models, privacy, share
from privfl_lite.attacks import GS, IDLG, ClosedForm, Recursive
from privfl_lite.defenses import DPSGD, PRECODE, Context, Prune, Soteria, build
from privfl_lite.defenses.precode import Bottleneck
from privfl_lite.defenses.soteria import representation_slopes
from privfl_lite.gradients import weights
from privfl_lite.privacy import Training, account
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.studies.first_answers import baselines as baselines


@pytest.fixture(scope="module")
def setting():
    rng = torch.Generator().manual_seed(5)
    x = torch.nn.functional.interpolate(torch.rand(8, 1, 5, 5, generator=rng), 12, mode="bilinear")
    return models.build("lenet", (1, 12, 12), 10), x, torch.randint(10, (8,), generator=rng)


def context(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Context:
    theta = {n: p[None] for n, p in weights(net).items()}
    return Context(net, theta, x[None], y[None], [generator(0)], who=[0])


# --- DP-SGD ---


@pytest.mark.parametrize("clip", [0.05, 0.5, 1e6])
def test_clipped_mean_equals_opacus(setting, clip):
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    net, x, y = setting
    ours = share(net, x, y, DPSGD(clip=clip, sigma=0.0)).tensors
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin = models.build("lenet", (1, 12, 12), 10)
        wrapped = GradSampleModule(twin.train())
        optimizer = DPOptimizer(
            torch.optim.SGD(wrapped.parameters(), lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=clip,
            expected_batch_size=len(x),
        )
        cross_entropy(wrapped(x), y).backward()
        optimizer.pre_step()
    for name, p in twin.named_parameters():
        torch.testing.assert_close(ours[name][0], p.grad, rtol=2e-4, atol=1e-6)


def test_one_example_moves_the_sum_by_at_most_the_clip(setting):
    net, x, y = setting
    bright = torch.cat([x[:7], 40 * x[7:]])  # an outlier
    with_it, without = (
        {n: len(z) * t[0] for n, t in share(net, z, y[: len(z)], DPSGD(0.2, 0.0)).tensors.items()}
        for z in (bright, bright[:7])
    )
    moved = math.sqrt(sum((with_it[n] - t).square().sum().item() for n, t in without.items()))
    assert moved == pytest.approx(0.2, rel=1e-3)


def test_noise_of_dp_sgd_has_the_stated_size(setting):
    net, x, y = setting
    calm, noisy = (share(net, x, y, DPSGD(2.0, s)).tensors for s in (0.0, 3.0))
    noise = torch.cat([(noisy[n] - t).flatten() for n, t in calm.items()])
    assert noise.std().item() == pytest.approx(3.0 * 2.0 / 8, rel=0.03)


def test_epsilon_of_dp_sgd_counts_every_batch_of_the_plan_and_no_sampling():
    """One replaced example moves a sum by 2C; the exact ε of that many Gaussian releases."""
    plan = Plan(epochs=4, batch_size=10)
    for clients, rounds in ((1, 10), (50, 10)):
        run = Training(rounds, clients, 1, plan=plan, examples=40)
        found = account(DPSGD(clip=1.0, sigma=13.0), run)
        want = privacy.analytic_gaussian_epsilon(13 / 2 / 40**0.5)
        assert found.value == pytest.approx(want) and found.kind[:2] == ("example", "replace")
    assert account(DPSGD(sigma=0.0), run).value is None


def test_batch_norm_becomes_group_norm():
    net = models.build("convnet", (3, 32, 32), 10, width=16)
    fixed = DPSGD().model(net)
    kinds = {type(m) for m in fixed.modules()}
    assert nn.GroupNorm in kinds and nn.BatchNorm2d not in kinds


# --- Prune with feedback ---


def test_feedback_loses_nothing(setting):
    net, x, y = setting
    g = share(net, x, y, each=2).tensors
    defense, ctx = Prune(0.9, feedback=True), Context(None, {}, [], [], [], who=[3, 1, 4, 2])
    sent = [defense.gradient(g, ctx) for _ in range(5)]
    for name, t in g.items():
        total = sum(s[name] for s in sent) + torch.stack([ctx.memory[c][name] for c in ctx.who])
        torch.testing.assert_close(total, 5 * t, rtol=1e-4, atol=1e-5)
    other = replace(ctx, who=[9])  # a client met for the first time
    first = defense.gradient({n: t[:1] for n, t in g.items()}, other)
    assert all(torch.equal(first[n], Prune(0.9).gradient(g, ctx)[n][:1]) for n in g)


def test_feedback_survives_a_checkpoint_and_is_not_shared_between_runs(setting, tmp_path):
    net, x, y = setting
    clients = [(x[i : i + 2], y[i : i + 2]) for i in range(0, 8, 2)]
    defense, plan = Prune(0.8, feedback=True), Plan(eta=0.5, batch_size=2)

    held = []

    def run(rounds: int, file=None, fast: bool = True) -> dict:
        fed = FedAvg(net, clients, rounds, plan, defense=defense, per_round=2, fast=fast,
                     checkpoint=file, show=False)  # fmt: skip
        list(fed)
        held.append(fed.memory)
        return fed.model.state_dict()

    whole, plain = run(4), run(4, fast=False)
    run(2, tmp_path / "a.pt")
    resumed = run(4, tmp_path / "a.pt")
    assert all(torch.equal(whole[n], t) for n, t in resumed.items())
    for n, t in plain.items():
        torch.testing.assert_close(whole[n], t, rtol=1e-4, atol=1e-5)
    first, _, _, last = held  # what clients held back is the run's, and as it was
    assert first is not last and sorted(first.clients) == sorted(last.clients)
    for c in first.clients:
        assert all(torch.equal(t, last[c][n]) and t.any() for n, t in first[c].items())


# --- Soteria ---


def slow_slopes(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """As the released code does it: one backward pass a feature."""
    x = x.clone().requires_grad_()
    r = net.representation(x)
    rows = [torch.autograd.grad(r[:, i].sum(), x, retain_graph=True)[0] for i in range(r.shape[1])]
    return torch.stack([row.flatten(1).norm(dim=1) for row in rows], 1)


@pytest.mark.parametrize("act", ["sigmoid", "relu"])
def test_slopes_of_all_features_equal_one_pass_each(setting, act):
    _, x, y = setting
    net = models.build("lenet", (1, 12, 12), 10, act=act, init=0.2)
    slopes, r = representation_slopes(context(net, x[:3], y[:3]))
    torch.testing.assert_close(slopes[0], slow_slopes(net, x[:3]), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(r[0], net.representation(x[:3]), rtol=1e-4, atol=1e-6)


def test_soteria_zeroes_the_columns_of_the_code_and_nothing_else(setting):
    net, x, y = setting
    plain, sent = share(net, x[:3], y[:3]).tensors, share(net, x[:3], y[:3], Soteria(0.6)).tensors
    with torch.no_grad():
        r = net.representation(x[:3])
    score = (slow_slopes(net, x[:3]) / (r + 0.1)).sum(0).numpy()
    keep = torch.tensor(~(score < np.percentile(score, 60)))
    assert torch.equal(sent["head.weight"][0], plain["head.weight"][0] * keep)
    assert 0.59 < 1 - keep.float().mean() < 0.61
    assert all(torch.equal(sent[n], t) for n, t in plain.items() if n != "head.weight")


def test_dead_features_are_pruned_for_free_by_the_code_and_last_by_the_paper(setting):
    _, x, y = setting
    net = models.build("lenet", (1, 12, 12), 10, act="relu", init=0.1)
    plain = share(net, x[:1], y[:1]).tensors["head.weight"][0]
    dead = (plain == 0).all(0)
    assert 0.2 < dead.float().mean() < 0.9
    rate = 0.9 * dead.float().mean().item()  # fewer than are dead
    code, paper = (
        share(net, x[:1], y[:1], Soteria(rate, score=s)).tensors["head.weight"][0]
        for s in ("code", "paper")
    )
    assert torch.equal(code, plain) and not torch.equal(paper, plain)


def test_soteria_is_bypassed_by_dropping_its_tensor_or_reading_its_mask(setting):
    net, x, y = setting
    upload = share(net, x[:2], y[:2], Soteria(0.8), each=1, knows=("labels",))
    naive, drop, mask = (
        metrics.psnr(a.run(upload).images, x[:2]).min()
        for a in (
            IDLG(steps=100),
            IDLG(steps=100, drop=("head.weight",)),
            IDLG(steps=100, nonzero=True),
        )
    )
    assert drop > naive + 10 and mask > naive + 10


# --- PRECODE ---


def test_bottleneck_draws_what_it_says_and_its_penalty_is_the_kl():
    torch.manual_seed(0)
    layer, r = Bottleneck(6, 3, beta=0.01), torch.randn(5, 6)
    out = layer(r)
    mean, s = layer.encode(r).chunk(2, 1)
    own = Normal(mean, nn.functional.softplus(s - 5))
    kl = kl_divergence(own, Normal(0.0, 1.0)).sum(1).mean()
    torch.testing.assert_close(layer.penalty, 0.01 * kl)
    assert out.shape == r.shape and not torch.equal(layer(r), out)
    many = torch.stack([layer(r) for _ in range(4000)])
    center, spread = layer.decode(mean), own.stddev.square() @ layer.decode.weight.square().T
    torch.testing.assert_close(
        many.mean(0), center, rtol=0, atol=5 * spread.max().sqrt().item() / 63
    )
    torch.testing.assert_close(many.var(0), spread, rtol=0.15, atol=1e-9)


def test_precode_adds_the_penalty_to_the_clients_loss_and_repeats_with_the_seed(setting):
    net, x, y = setting
    a, b, c = (share(net, x, y, PRECODE(16, beta=0.1), seed=s).tensors for s in (1, 1, 2))
    assert all(torch.equal(a[n], t) for n, t in b.items())
    assert not torch.equal(a["head.weight"], c["head.weight"])
    free = share(net, x, y, PRECODE(16, beta=0.0), seed=1).tensors
    name = "features.7.encode.bias"
    with torch.no_grad():
        model = PRECODE(16).model(models.build("lenet", (1, 12, 12), 10))
        mean, s = model.features[7].encode(model.features[:7](x)).chunk(2, 1)
    std = nn.functional.softplus(s - 5)
    want = torch.cat([mean.mean(0), ((std - 1 / std) * torch.sigmoid(s - 5)).mean(0)])
    torch.testing.assert_close((a[name] - free[name])[0], 0.1 * want, rtol=1e-3, atol=1e-4)


def test_precode_stops_matching_but_not_the_read_out(setting):
    net, x, y = setting
    upload = share(net, x[:4], y[:4], PRECODE(16), each=1)
    matched = metrics.psnr(metrics.as_image(GS(steps=100).run(upload).images), x[:4]).median()
    found = Recursive(entry="features.7.encode").run(upload)
    assert torch.equal(found.labels, y[:4])
    assert metrics.psnr(found.images, x[:4]).min() > 40 > 30 > matched


def test_precode_before_a_fully_connected_network_is_read_exactly(setting):
    _, x, y = setting
    net = models.build("mlp", (1, 12, 12), 10, hidden=(50, 50, 50))
    found = ClosedForm().run(share(net, x[:4], y[:4], PRECODE(16), each=1))
    assert metrics.psnr(found.images, x[:4]).min() > 80


def test_baselines_train_in_both_paths(setting):
    net, x, y = setting
    clients, plan = [(x[:4], y[:4]), (x[4:], y[4:])], Plan(batch_size=2)
    for defense in (DPSGD(1.0, 0.1), Soteria(0.5), Soteria(0.5) + Prune(0.5)):
        ends = []
        for fast in (True, False):
            run = FedAvg(
                net, clients, 2, Plan(batch_size=2), defense=defense, fast=fast, show=False
            )
            list(run)
            ends.append(run.model.state_dict())
        for n, t in ends[0].items():
            torch.testing.assert_close(ends[1][n], t, rtol=1e-3, atol=1e-5)
    run, again = (
        FedAvg(net, clients, 2, plan, defense=PRECODE(8), test=(x, y), show=False) for _ in range(2)
    )
    assert [r.loss for r in run] == [r.loss for r in again]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: DPSGD(clip=0), "clip is 0; it must be a number over 0"),
        (lambda: Soteria(1.0), "rate is 1.0; it must be a number at least 0"),
        (lambda: Soteria(score="mine"), "choose one of: code, paper"),
        (lambda: PRECODE(size=0), "size is 0; it must be a whole number from 1"),
    ],
)
def test_bad_settings_get_one_sentence(refused, call, says):
    refused(call, says)


# --- what the page "First answers in one table" says about the stored study ---


@pytest.fixture(scope="module")
def stored():
    cells = STUDIES["first-answers/baselines"].show()["cells"]
    return {(c["data"], c["defense"], c["part"]): c for c in cells}


def median(cell: dict, who: str) -> float:
    return float(np.median(cell[who]["psnr"]))


def test_the_informed_attacker_finds_what_the_plain_one_does_not(stored):
    for name in ("Prune 0.9", "Soteria 0.6", "PRECODE", "Mixup 4"):
        cell = stored["mnist", name, "attack"]
        assert median(cell, "plain") < 12 and median(cell, "informed") > 40
    for name in ("DP-SGD", "POGZ-FL", "POGZ-FL, released", "CA-FL", "Prune 0.99", "InstaHide 4"):
        assert median(stored["mnist", name, "attack"], "informed") < 20
    ats = stored["mnist", "ATS", "attack"]
    assert median(ats, "informed") < 15 and median(ats, "informed_seen") > 90


def test_on_cifar10_the_search_is_too_short_and_the_algebra_is_not(stored):
    assert median(stored["cifar10", "none", "attack"], "plain") < 15
    for name in ("none", "PRECODE", "Mixup 4", "InstaHide 4"):
        assert median(stored["cifar10", name, "attack"], "informed") > 90


def test_a_silent_client_costs_less_than_a_point(stored):
    for data in ("mnist", "cifar10"):
        ten, nine = (stored[data, n, "one client"]["accuracy"] for n in ("none", "frozen"))
        assert abs(np.mean(ten) - np.mean(nine)) < 0.01


def test_feedback_repays_what_heavy_pruning_costs(stored):
    plain, feedback, none = (
        np.mean(stored["mnist", n, "train"]["accuracy"])
        for n in ("Prune 0.99", "Prune 0.99, feedback", "none")
    )
    assert feedback - plain > 0.03 and abs(feedback - none) < 0.01


def test_stored_epsilon_is_that_of_the_stored_plan(stored):
    """The ε that the page prints: one example replaced, in one batch of each of 30 rounds."""
    settings = STUDIES["first-answers/baselines"].show()["settings"]
    for data in ("mnist", "cifar10"):
        cell = stored[data, "DP-SGD", "train"]
        dp, n = build(baselines.written(settings, cell)), settings["per_client"][data]
        run = Training(settings["rounds"], plan=Plan(batch_size=10), examples=n)
        want = privacy.analytic_gaussian_epsilon(1.0 / 2 / 30**0.5)
        assert cell["epsilon"] == pytest.approx(account(dp, run).value) == pytest.approx(want)
    epsilons = {name for (_, name, _), c in stored.items() if c.get("epsilon") is not None}
    assert epsilons == {"DP-SGD"}


def test_seven_of_twelve_defenses_stay_under_20_db_on_digits(stored):
    attacked = [n for d, n, part in stored if (d, part) == ("mnist", "attack") and n != "none"]
    hold = {n for n in attacked if median(stored["mnist", n, "attack"], "informed") < 20}
    search = {"DP-SGD", "Prune 0.99", "POGZ-FL", "POGZ-FL, released", "CA-FL"}
    assert hold == search | {"ATS", "InstaHide 4"} and len(attacked) == 12


def test_time_column_is_known_to_15_percent(stored):
    times = [stored[data, "none", "train"]["overhead"] for data in ("mnist", "cifar10")]
    assert times == [1.15, 0.92]  # no defense against itself; the page quotes both
