"""ModelCloak: clip and noise are Eq. 2–5, ε is what accountants say, the selector is Table II's."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from itertools import islice

import pytest
import torch
from toy import make_clients

from privfl_lite import PrivflError, defenses, fedavg, models, privacy, share
from privfl_lite.cli import main
from privfl_lite.defenses import Context, Memory, ModelCloak
from privfl_lite.defenses.modelcloak import perturbation, select
from privfl_lite.gradients import flat, norm
from privfl_lite.runtime import generator
from privfl_lite.teach import ledger
from privfl_lite.wire import Clip, Facts, Noise, Plan

CHOSEN = ledger.paper("modelcloak/table-2")["chosen"]  # bold blue
KINDS = [
    {},
    {"mode": "dynamic", "keep": "variance"},
    {"mode": "dynamic", "keep": "scale"},
    {"where": "server"},
    {"where": "server", "mode": "dynamic", "keep": "scale"},
    {"per": "layer"},
]


def context(k: int, seed: int = 0, round: int = 1, memory: Memory | None = None) -> Context:
    who, rngs = list(range(k)), [generator(seed, i) for i in range(k)]
    return Context(None, {}, [], [], rngs, round, who, memory or Memory())


def updates(k: int = 4, seed: int = 0, sizes: tuple[float, ...] = (0.5, 1, 3, 8)) -> dict:
    """K updates of two tensors with norms ``sizes``."""
    rng = generator(seed, 7)
    raw = {"a": torch.randn(k, 30, 40, generator=rng), "b": torch.randn(k, 50, generator=rng)}
    norms = norm(raw)
    return {
        n: t * (torch.tensor(sizes) / norms).view(-1, *[1] * (t.dim() - 1)) for n, t in raw.items()
    }


@pytest.fixture
def net():
    return models.build("mlp", (1, 12, 12), 10, hidden=(8,))


# --- Eq. 2–5 --------------------------------------------------------------------------------------


def test_clip_is_the_plain_formula_for_the_update_and_by_layer():
    raw = updates()
    whole = flat(ModelCloak(2, 0).update(raw, context(4)))
    norms = flat(raw).norm(dim=1)
    torch.testing.assert_close(whole, flat(raw) * (2 / norms).clamp(max=1)[:, None])
    assert whole.norm(dim=1).tolist() == pytest.approx([0.5, 1, 2, 2], rel=1e-5)
    layers = ModelCloak(2, 0, per="layer").update(raw, context(4))
    for n, t in layers.items():
        own = raw[n].flatten(1).norm(dim=1)
        factor = (2 / own).clamp(max=1).view(-1, *[1] * (t.dim() - 1))
        torch.testing.assert_close(t, raw[n] * factor)
    assert 2 < flat(layers).norm(dim=1).max() <= 2 * math.sqrt(2) + 1e-5  # √L · C


def test_noise_has_the_stated_standard_deviation():
    """ς = σC, or σS with S the length that clipping left, for each client by itself."""
    raw, sizes = updates(), torch.tensor([0.5, 1, 2, 2])  # after the clip at 2
    clean = flat(ModelCloak(2, 0).update(raw, context(4)))
    for kind, std in (
        ({}, torch.full((4,), 6.0)),
        ({"mode": "dynamic", "keep": "variance"}, torch.full((4,), 6.0)),
        ({"mode": "dynamic", "keep": "scale"}, 3 * sizes),
    ):
        noise = flat(ModelCloak(2, 3, **kind).update(raw, context(4))) - clean
        assert noise.std(dim=1).tolist() == pytest.approx(std.tolist(), rel=0.06)
        assert (noise.mean(dim=1).abs() < 4 * std / math.sqrt(noise.shape[1])).all()
        between = torch.corrcoef(noise)[~torch.eye(4, dtype=bool)]
        assert between.abs().max() < 0.12  # clients draw independently


def test_same_seed_same_noise_and_fixed_is_dynamic_with_the_same_variance():
    fixed, variance = (
        ModelCloak(2, 3, **kind).update(updates(), context(4))
        for kind in ({}, {"mode": "dynamic", "keep": "variance"})
    )
    assert all(torch.equal(t, variance[n]) for n, t in fixed.items())
    other = ModelCloak(2, 3).update(updates(), context(4, seed=1))
    assert not torch.equal(other["a"], fixed["a"])


def test_perturbation_is_the_middle_of_equation_5():
    raw = updates()
    sent = ModelCloak(2, 3).update(raw, context(4))
    want = (flat(raw) - flat(sent)).norm(dim=1)
    torch.testing.assert_close(perturbation(raw, sent), want)
    assert want[0].item() == pytest.approx(6 * math.sqrt(1250), rel=0.06)  # E‖noise‖² = ς² 𝕀
    clipped = ModelCloak(2, 0).update(raw, context(4))
    assert perturbation(raw, clipped).tolist() == pytest.approx([0, 0, 1, 6], abs=1e-4)


def test_noise_at_the_server_lies_on_the_mean_and_on_no_upload():
    raw, cloak, ctx = updates(), ModelCloak(2, 3, where="server"), context(4)
    sent = cloak.update(raw, ctx)
    assert torch.equal(flat(sent), flat(ModelCloak(2, 0).update(raw, context(4))))
    mean = {n: torch.zeros_like(t[0]).expand(40, *t.shape[1:]) for n, t in raw.items()}
    noise = flat(cloak.average(mean, 1 / 4, generator(5), ctx.memory))
    assert noise.std().item() == pytest.approx(3 * 2 / 4, rel=0.02)
    assert flat(ModelCloak(2, 3).average(mean, 1 / 4, generator(5), ctx.memory)).abs().max() == 0


def test_noise_at_the_server_follows_the_longest_client_of_this_round_only():
    cloak = ModelCloak(2, 3, where="server", mode="dynamic", keep="scale")
    mean, memory = {"a": torch.zeros(200, 200)}, Memory()
    for sizes, longest in (((0.1, 0.2, 0.5, 0.3), 0.5), ((0.1, 0.1, 0.1, 0.05), 0.1)):
        cloak.update(updates(sizes=sizes), context(4, memory=memory))
        noise = cloak.average(mean, 1 / 4, generator(5), memory)["a"]
        assert noise.std().item() == pytest.approx(3 * longest / 4, rel=0.02)


def test_fedavg_hands_the_largest_weight_to_average(net):
    """Noise on the mean is share · σC, where share is what the heaviest client weighs."""
    clients = make_clients([2, 6, 4])
    for weighting, part in (("examples", 6 / 12), ("uniform", 1 / 3)):
        runs = [
            fedavg(net, clients, 1, defense=ModelCloak(0.5, s, where="server"),
                   weighting=weighting, show=False)
            for s in (0, 2)
        ]  # fmt: skip
        for run in runs:
            list(run)
        clean, noisy = (
            torch.cat([p.detach().flatten() for p in run.model.parameters()]) for run in runs
        )
        assert (noisy - clean).std().item() == pytest.approx(part * 2 * 0.5, rel=0.1)


def test_noise_at_the_server_leaves_batch_norm_statistics_alone():
    net = models.build("convnet", (3, 32, 32), 10, width=2)
    clients = make_clients([6], (3, 32, 32))
    buffers = []
    for sigma in (0, 50):
        run = fedavg(net, clients, 1, defense=ModelCloak(1, sigma, where="server"), show=False)
        list(run)
        buffers.append(dict(run.model.named_buffers()))
    assert all(torch.equal(b, buffers[1][n]) for n, b in buffers[0].items())


# --- paths, checkpoints ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_fast_path_equals_plain_path(net, kind):
    clients, ends = make_clients([7, 12, 5]), []
    for fast in (True, False):
        run = fedavg(net, clients, 3, defense=ModelCloak(0.3, 0.05, **kind), fast=fast, show=False)
        reports = list(run)
        ends.append((run.model.state_dict(), reports[-1].epsilon))
    for name, t in ends[0][0].items():
        torch.testing.assert_close(t, ends[1][0][name], rtol=1e-4, atol=1e-5)
    assert ends[0][1] == ends[1][1]


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_goes_on_to_the_same_bits_and_the_same_epsilon(net, tmp_path, kind):
    clients, file = make_clients([7, 12, 5, 6]), tmp_path / "run.pt"
    options = {"per_round": 2, "defense": ModelCloak(0.3, 2, **kind), "show": False}
    whole = fedavg(net, clients, 5, **options)
    list(whole)
    list(islice(fedavg(net, clients, 5, checkpoint=file, **options), 2))  # stopped
    run = fedavg(net, clients, 5, checkpoint=file, **options)
    reports = list(run)
    for name, t in run.model.state_dict().items():
        assert torch.equal(t, whole.model.state_dict()[name])
    assert [r.epsilon for r in reports] == [r.epsilon for r in whole.history]
    ends = [r.defense.paper_epsilon(5, 0.5, memory=r.memory) for r in (run, whole)]
    assert ends[0] == ends[1] and run.memory.run == whole.memory.run


def test_a_run_does_not_change_the_defense_that_was_handed_in(net):
    cloak = ModelCloak(0.3, 2)
    list(fedavg(net, make_clients([4, 4]), 2, defense=cloak, show=False))
    assert cloak == ModelCloak(0.3, 2) and vars(cloak) == vars(ModelCloak(0.3, 2))
    with pytest.raises(FrozenInstanceError):
        cloak.sigma = 3


def test_a_run_begins_without_what_an_earlier_upload_left(net):
    """The same object may first make a single upload and then train: ε counts the training."""
    clients = make_clients([4, 4])
    for kind in ({}, {"mode": "dynamic"}, {"where": "server", "mode": "dynamic", "keep": "scale"}):
        used, fresh = ModelCloak(0.3, 2, **kind), ModelCloak(0.3, 2, **kind)
        share(net, 9 * clients[0][0], clients[0][1], used, each=1)
        ends = []
        for cloak in (used, fresh):
            run = fedavg(net, clients, 2, defense=cloak, show=False)
            reports = list(run)
            paper = run.defense.paper_epsilon(2, 1.0, memory=run.memory)
            ends.append((reports[-1].epsilon, paper, run.model))
        assert ends[0][:2] == ends[1][:2]
        for a, b in zip(ends[0][2].parameters(), ends[1][2].parameters(), strict=True):
            assert torch.equal(a, b)


# --- ε --------------------------------------------------------------------------------------------


def test_epsilon_at_the_client_is_the_exact_gaussian_of_the_busiest_client(net):
    """Replaced data move an upload by 2C; no sampling helps against the server."""
    clients = make_clients([4] * 6)
    run = fedavg(net, clients, 6, per_round=2, defense=ModelCloak(0.3, 5), show=False)
    reports = list(run)
    for t in (1, 4, 6):
        joined = max(sum(c in r.clients for r in reports[:t]) for c in range(6))
        want = privacy.analytic_gaussian_epsilon(5 / (2 * math.sqrt(joined)))
        assert reports[t - 1].epsilon.value == pytest.approx(want)
    plan = privacy.Training(1)
    delta = privacy.analytic_gaussian_delta(5 / 2, privacy.account(ModelCloak(2, 5), plan).value)
    assert delta == pytest.approx(1e-5, rel=1e-4)
    sampled, everyone = privacy.Training(7, 10, 1), privacy.Training(7, 10)  # neither C nor q
    one, two = (
        privacy.account(ModelCloak(2, 5), sampled),
        privacy.account(ModelCloak(1, 5), everyone),
    )
    assert one == two and one.against == "server" and one.sampling == "none"


def test_epsilon_by_layer_pays_for_every_tensor(net):
    run = fedavg(net, make_clients([4]), 1, defense=ModelCloak(0.3, 5, per="layer"), show=False)
    (report,) = run
    tensors = len(list(net.parameters()))
    want = privacy.analytic_gaussian_epsilon(5 / (2 * math.sqrt(tensors)))
    assert report.epsilon.value == pytest.approx(want)


def test_epsilon_at_the_server_is_the_accountants(net):
    clients = make_clients([4] * 4)
    for sampling, scale, weighting in (("poisson", 5, "fixed"), ("fixed", 5 / 2, "uniform")):
        run = fedavg(net, clients, 3, per_round=2, sampling=sampling, weighting=weighting,
                     defense=ModelCloak(0.3, 5, where="server"), show=False)  # fmt: skip
        want = privacy.epsilon(scale, 0.5, 3, sampling=sampling)
        found = list(run)[-1].epsilon
        assert found.value == pytest.approx(want) and found.against == "outsiders"
        assert found.sampling == f"{sampling} 0.5"


def test_no_epsilon_for_noise_that_follows_the_data_or_none():
    plan = privacy.Training(10)
    same = privacy.account(ModelCloak(2, 5, mode="dynamic"), plan)  # the law of fixed noise
    assert same == privacy.account(ModelCloak(2, 5), plan) and math.isfinite(same.value)
    for cloak, why in (
        (ModelCloak(2, 5, mode="dynamic", keep="scale"), "follows private data"),
        (ModelCloak(2, 0), "no noise is added"),
    ):
        found = privacy.account(cloak, plan)
        assert found.value is None and why in found.reason


def test_paper_epsilon_is_table_iii_and_opacus():
    from opacus.accountants import RDPAccountant

    printed = ledger.paper("modelcloak/table-3")
    for data, sigma, rounds in (("MNIST", 5, 100), ("CIFAR10", 3, 100), ("LFW", 2, 60)):
        ours = ModelCloak(2, sigma).paper_epsilon(rounds, 0.1)
        accountant = RDPAccountant()
        accountant.history = [(sigma, 0.1, rounds)]
        assert ours == pytest.approx(accountant.get_epsilon(1e-5))
        assert round(ours, 3) == printed[data][sigma]


def test_paper_epsilon_counts_the_smallest_dynamic_scale_of_each_round():
    cloak, memory = ModelCloak(2, 5, mode="dynamic"), Memory()
    for r, sizes in enumerate([(0.5, 1, 3, 8), (0.1, 0.2, 0.5, 0.4)], start=1):
        cloak.update(updates(sizes=sizes), context(4, round=r, memory=memory))
    scales = [5 * 2 / 2, 5 * 2 / 0.5]  # S is 2 after the clip, then 0.5
    assert [*memory.run["scales"].values()] == pytest.approx(scales, rel=1e-5)
    found = cloak.paper_epsilon(2, 0.1, memory=memory)
    assert found == pytest.approx(privacy.epsilon(scales, 0.1), rel=1e-4)
    assert found < ModelCloak(2, 5).paper_epsilon(2, 0.1)
    with pytest.raises(PrivflError, match="known for 2 rounds, not for 3"):
        cloak.paper_epsilon(3, 0.1, memory=memory)


def test_paper_epsilon_with_the_same_scale_is_that_of_fixed_noise():
    cloak = ModelCloak(2, 5, mode="dynamic", keep="scale")
    ctx = context(4)
    cloak.update(updates(), ctx)
    found = cloak.paper_epsilon(100, 0.1, memory=ctx.memory)
    assert found == ModelCloak(2, 5).paper_epsilon(100, 0.1)


def test_an_update_of_zeros_is_sent_bare_by_noise_that_follows():
    zeros = {"a": torch.zeros(4, 30)}
    cloak = ModelCloak(2, 5, mode="dynamic", keep="scale")
    assert not cloak.update(zeros, context(4))["a"].any()
    spread, ctx = ModelCloak(2, 5, mode="dynamic"), context(4)
    assert spread.update(zeros, ctx)["a"].std().item() == pytest.approx(10, rel=0.3)
    assert math.isfinite(spread.paper_epsilon(1, 0.1, memory=ctx.memory))


# --- what an attacker may be granted --------------------------------------------------------------


def test_facts_name_the_noise_only_where_it_is_on_the_wire_and_public():
    ctx = context(4)
    assert ModelCloak(2, 5).facts(ctx) == Facts(clip=Clip(2, "update"), noise=Noise(10))
    assert ModelCloak(2, 5, per="layer").facts(ctx).clip == Clip(2, "layer")
    assert ModelCloak(2, 5, mode="dynamic").facts(ctx).noise == Noise(10)
    for kind in ({"mode": "dynamic", "keep": "scale"}, {"where": "server"}):
        assert ModelCloak(2, 5, **kind).facts(ctx).names == ("clip",)


def test_the_granted_clip_makes_the_imitation_equal_the_clipped_upload(net):
    ((x, y),) = make_clients([3])
    for per in ("update", "layer"):
        cloak = ModelCloak(0.2, 0, per=per)
        upload = share(net, x, y, cloak, knows=("clip",), each=1)
        again = upload.imitator()(x[:, None], y[:, None])
        for n, t in upload.tensors.items():
            torch.testing.assert_close(again[n], t, rtol=1e-4, atol=1e-6)


def test_composed_with_another_defense(net):
    chain = ModelCloak(2, 3, where="server") + defenses.Prune(0.5)
    raw, ctx = updates(), context(4)
    chain.update(raw, ctx)
    noise = chain.average({"a": torch.zeros(100, 100)}, 0.5, generator(0), ctx.memory)["a"]
    assert noise.std().item() == pytest.approx(3, rel=0.03)
    plan = privacy.Training(10, 10, 1)
    want = privacy.account(ModelCloak(2, 3, where="server"), plan)
    assert privacy.account(chain, plan) == want and want.value > 0


# --- the selector ---------------------------------------------------------------------------------


def grid(*rows: tuple[float, float, float, float]) -> list[dict]:
    return [dict(zip(("sigma", "clip", "accuracy", "success"), row, strict=True)) for row in rows]


@pytest.mark.parametrize("data", CHOSEN)
def test_select_on_table_ii_gives_the_papers_choice(data):
    cells = ledger.grid("modelcloak/table-2", data, sigma="σ", clip="C")
    assert len(cells) == 30
    for order in (cells, cells[::-1]):
        best = select(order)
        assert {"σ": best["sigma"], "C": best["clip"]} == CHOSEN[data]
    brute = max(c["accuracy"] for c in cells if c["success"] == 0)
    assert best["accuracy"] == brute


def test_select_breaks_ties_by_larger_sigma_then_smaller_clip():
    cells = grid((2, 3, 0.6, 0), (3, 2, 0.6, 0), (3, 1, 0.6, 0), (9, 9, 0.5, 0), (1, 1, 0.9, 0.1))
    for order in (cells, cells[::-1]):
        assert (select(order)["sigma"], select(order)["clip"]) == (3, 1)
    assert select(cells, leakage=0.1)["accuracy"] == 0.9


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: select(grid((1, 1, 0.9, 0.2), (2, 1, 0.8, 0.1))), "0 or less (lowest: 0.1)"),
        (lambda: select([]), "lowest: nan"),
        (lambda: select(grid((1, 1, 0.4, 0)), floor=0.5), "0.5 or more (highest: 0.4)"),
        (lambda: ModelCloak(0, 1), "clip is 0; it must be a number over 0"),
        (lambda: ModelCloak(1, -1), "sigma is -1; it must be a number at least 0"),
        (lambda: ModelCloak(float("nan"), 1), "clip is nan; it must be a number over 0"),
        (lambda: ModelCloak(1, float("inf")), "sigma is inf; it must be a number from 0 to"),
        (lambda: ModelCloak(mode="moving"), "choose one of: fixed, dynamic"),
        (lambda: ModelCloak(keep="all"), "choose one of: variance, scale"),
        (lambda: ModelCloak(where="home"), "choose one of: client, server"),
        (lambda: ModelCloak(per="tensor"), "choose one of: update, layer"),
        (lambda: defenses.build("modelcloak:noise=3"), "key one of: clip, sigma, mode"),
        (lambda: defenses.build("modelcloak:clip=two"), "'modelcloak' cannot use 'clip=two'"),
    ],
)
def test_bad_input_gets_one_sentence(refused, call, says):
    refused(call, says)


def test_the_command_line_form(capsys):
    made = defenses.build("modelcloak:clip=2,sigma=5,mode=dynamic,keep=scale")
    assert isinstance(made, ModelCloak) and repr(made) == repr(
        ModelCloak(2, 5, mode="dynamic", keep="scale")
    )
    assert type(defenses.build("modelcloak")) is ModelCloak
    text = "modelcloak:clip=2,sigma=5,mode=dynamic,keep=scale"
    args = ["train", "--defense", text, "--dataset", "mnist", "--model", "mlp"]
    assert main([*args, "--clients", "4", "--per-round", "2", "--rounds", "1"]) == 0
    assert main(["train", "--defense", "modelcloak:keep=none"]) == 2
    assert "variance, scale" in capsys.readouterr().err


def test_one_local_step_of_one_client_is_the_clipped_gradient(net):
    ((x, y),) = make_clients([5])
    upload = share(net, x, y, ModelCloak(0.1, 0), plan=Plan(eta=0.5, steps=1, batch_size=5))
    gradient = share(net, x, y)
    want = flat(gradient.tensors) * 0.1 / flat(gradient.tensors).norm(dim=1)
    torch.testing.assert_close(flat(upload.tensors), -want, rtol=1e-4, atol=1e-6)
