"""ε of whole runs: what holds is printed, and what does not is refused with its reason.

E1 to E9 are settings in which an earlier version stated an ε that did not hold.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch
from toy import make_clients

from privfl_lite import FedAvg, Plan, PrivflError, defenses, models, privacy, share
from privfl_lite.defenses import (
    ATS,
    CAFL,
    DCS2,
    DPSGD,
    POGZFL,
    Defense,
    DPGaussian,
    Entangle,
    FedKL,
    InstaHide,
    KeepStatistics,
    Mixup,
    ModelCloak,
    Prune,
    Soteria,
)
from privfl_lite.gradients import flat, norm
from privfl_lite.privacy import Epsilon, Training, account
from privfl_lite.runtime import generator

exact = privacy.analytic_gaussian_epsilon
SERVER = {"where": "server"}


@pytest.fixture(scope="module")
def net():
    return models.build("lenet", (1, 12, 12), 10)


@pytest.fixture(scope="module")
def normed():
    return models.build("convnet", (3, 16, 16), 10, width=4)


def run(net, defense, rounds=1, sizes=(4, 4, 4, 4), shape=(1, 12, 12), **how):
    made = FedAvg(net, make_clients(list(sizes), shape), rounds, defense=defense, show=False, **how)
    return made, list(made)[-1].epsilon


def refuse(found: Epsilon, *words: str) -> None:
    assert found.value is None and all(word in found.reason for word in words), found
    assert str(found).startswith("no ε: ")


# --- E1: every local step counts ---


@pytest.mark.parametrize(("epochs", "rounds"), [(1, 1), (50, 1), (2, 3)])
def test_e1_every_pass_of_dp_sgd_counts(net, epochs, rounds):
    plan = Plan(epochs=epochs, batch_size=4)
    _, found = run(net, DPSGD(sigma=1.0), rounds, plan=plan)
    assert found.value == pytest.approx(exact(1 / 2 / (epochs * rounds) ** 0.5))
    assert found.kind == ("example", "replace", "server", 1e-5) and found.sampling == "none"


def test_e1_small_batches_give_no_credit_and_a_single_gradient_is_one_step(net):
    _, found = run(net, DPSGD(sigma=1.0), plan=Plan(epochs=10, batch_size=2))
    assert found.value == pytest.approx(exact(1 / 2 / 10**0.5)) and found.value > 17.9
    _, found = run(net, DPSGD(sigma=1.0), share="gradient", plan=Plan(epochs=10))
    assert found.value == pytest.approx(exact(1 / 2))


@pytest.mark.parametrize(
    ("n", "batch", "steps"), [(7, 3, 5), (7, 3, 1), (6, 3, 5), (4, 8, 3), (3, 5, 4), (5, 1, 12)]
)
def test_uses_are_at_least_those_of_any_order(n, batch, steps):
    """Σ m² by counting rows in 400 random orders of what the plan really does."""
    plan, seen = Plan(steps=steps, batch_size=batch), 0
    for seed in range(400):
        counts = [int((rows == 0).sum()) for rows in plan.batches(n, generator(seed))]
        seen = max(seen, sum(m * m for m in counts))
    bound = Training(1, plan=plan, examples=n).uses()
    assert seen <= bound <= 2 * seen


def test_clients_that_hold_less_or_join_more_often_are_counted_by_their_own_steps():
    plan = Plan(steps=4, batch_size=5)
    made = Training(9, 2, plan=plan, examples=(20, 5), joined=(9, 3))
    assert made.uses() == max(9 * 1, 3 * 4) and made.busiest == 9
    assert made.uses(rows=3) == 9 * made.uses()


# --- E2, E3, E9: a later part looks at the data again ---


@pytest.mark.parametrize(
    ("chain", "name"),
    [
        (ModelCloak(1, 5) + Entangle(ratio="fixed"), "Entangle"),
        (DPSGD() + Entangle(), "Entangle"),
        (DPSGD() + DCS2(steps=2), "DCS2"),
        (DPSGD() + Soteria(), "Soteria"),
        (ModelCloak(1, 5) + POGZFL(), "POGZFL"),
        (Entangle() + DPSGD(), "Entangle"),  # its door comes later all the same
    ],
)
def test_e2_e3_e9_a_part_that_uses_private_data_after_the_noise(net, chain, name):
    _, found = run(net, chain)
    refuse(found, f"{name} uses private data again after the noise")


def test_a_part_that_uses_only_what_it_is_handed_changes_nothing(net):
    alone = account(DPSGD(), Training(3))
    for later in (Prune(0.5, feedback=True), DPGaussian(0.1), CAFL()):
        assert account(DPSGD() + later, Training(3)) == alone
    assert alone in account(DPSGD() + POGZFL(importance={"a": 1.0}), Training(3)).also
    assert account(DPSGD() + Entangle(score="random"), Training(3)).value == alone.value
    assert account(ModelCloak() + CAFL(), Training(3)) == account(ModelCloak(), Training(3))


def test_a_third_partys_door_is_not_trusted_unless_it_says_so():
    class Other(Defense):
        def update(self, delta, ctx):
            return delta

    class Blind(Other):
        blind = ("update",)

    class Copies(Defense):
        def data(self, x, y, rng, kept=None):
            return x.repeat(2, 1, 1, 1), y.repeat(2)

    for cloak in (ModelCloak(), DPSGD()):
        refuse(account(cloak + Other(), Training(1)), "Other uses private data again")
        assert account(cloak + Blind(), Training(1)).value is not None
    refuse(account(DPSGD() + Copies(), Training(1)), "Copies does not say in how many rows")
    assert account(ModelCloak() + Copies(), Training(1)).value is not None  # clipped after that


def test_a_subclass_that_changes_a_door_must_speak_for_itself():
    class Louder(ModelCloak):
        def update(self, delta, ctx):
            return {n: t + 9 * delta[n] for n, t in super().update(delta, ctx).items()}

    class LaterLook(Prune):
        def gradient(self, g, ctx):
            return {n: t + ctx.x.sum() for n, t in g.items()}

    class Doubled(Mixup):
        def data(self, x, y, rng, kept=None):
            return x.repeat(9, 1, 1, 1), y.repeat(9)

    class Renamed(ModelCloak):
        pass

    refuse(account(Louder(), Training(1)), "Louder: a door was changed")
    refuse(account(DPSGD() + LaterLook(), Training(1)), "LaterLook uses private data again")
    refuse(account(DPSGD() + Doubled(), Training(1)), "Doubled does not say in how many rows")
    assert account(Renamed(), Training(1)) == account(ModelCloak(), Training(1))


# --- E4: one example in many rows ---


@pytest.mark.parametrize("mixing", [Mixup(4), InstaHide(4, crypto=False)])
def test_e4_mixing_multiplies_the_influence_of_an_example(net, mixing):
    _, found = run(net, mixing + DPSGD(sigma=1.0), plan=Plan(batch_size=8), sizes=(8, 8))
    assert found.value == pytest.approx(exact(1 / (2 * 4)))
    _, plain = run(net, ATS() + DPSGD(sigma=1.0), plan=Plan(batch_size=8), sizes=(8, 8))
    assert plain.value == pytest.approx(exact(1 / 2))  # each image by itself


def test_e4_the_bound_on_mixed_examples_is_met():
    """One image turned into its negative moves the clipped sum by 2kC; without mixing by 2C."""
    linear = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 10, bias=False))
    torch.nn.init.zeros_(linear[1].weight)
    net, clip = models.wrap(linear, shape=(1, 12, 12), head="1"), 1e-3
    x, y = torch.zeros(8, 1, 12, 12), torch.zeros(8, dtype=torch.long)
    x[0] = 1.0
    for defense, rows in ((Mixup(4) + DPSGD(clip, 0.0), 4), (DPSGD(clip, 0.0), 1)):
        one, two = (share(net, z, y, defense).tensors for z in (x, -x))
        gap = norm({n: 8 * (t - two[n]) for n, t in one.items()}).item()
        assert gap == pytest.approx(2 * rows * clip, rel=1e-4)


# --- E5: statistics that leave bare ---


@pytest.mark.parametrize("defense", [ModelCloak(1, 1000), DPSGD() + FedKL(8, seed=0)])
def test_e5_batch_norm_statistics_leave_bare_or_stay_at_home(normed, defense):
    _, found = run(normed, defense, shape=(3, 16, 16))
    refuse(found, "statistics of batch norm", "leave without noise", "KeepStatistics()")
    made, kept = run(normed, defense + KeepStatistics(), 2, shape=(3, 16, 16))
    assert kept.value is not None
    server = dict(made.model.named_buffers())
    for name, first in normed.named_buffers():
        if name.endswith("running_mean") and name in server:
            assert torch.equal(server[name], first)  # the server has its own from before
    own = [dict(made.personal(c).named_buffers()) for c in (0, 1)]
    names = [n for n in own[0] if n.endswith("running_mean")]
    assert names and all(not torch.equal(own[0][n], own[1][n]) for n in names)


def test_e5_statistics_at_rest_are_no_matter(normed):
    for how in ({"share": "gradient"}, {"plan": Plan(mode="eval")}):
        _, found = run(normed, ModelCloak(1, 1000), shape=(3, 16, 16), **how)
        assert found.value == pytest.approx(exact(500))
    _, found = run(normed, DPSGD(), shape=(3, 16, 16))  # group norm in its place
    assert found.value == pytest.approx(exact(1 / 2))


def test_a_buffer_of_ones_own_that_moves_is_noticed(net):
    class Watched(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(144, 10)
            self.register_buffer("seen", torch.zeros(144))
            self.register_buffer("constant", torch.ones(144))

        def forward(self, x):
            if self.training:
                self.seen = self.seen + x.flatten(1).mean(0)
            return self.fc(x.flatten(1) * self.constant)

    watched = models.wrap(Watched(), shape=(1, 12, 12), head="fc")
    made = FedAvg(watched, make_clients([4]), 1, defense=ModelCloak(), fast=False, show=False)
    (report,) = made
    refuse(report.epsilon, "(seen, …)")


# --- E6, E7: the server's mean ---


def test_e6_poisson_sampling_needs_a_fixed_divisor(net):
    cloak = ModelCloak(0.3, 5, **SERVER)
    how = {"sampling": "poisson", "per_round": 2}
    _, found = run(net, cloak, 3, weighting="uniform", **how)
    refuse(found, "those who came", "weighting='fixed'")
    _, found = run(net, cloak, 3, weighting="fixed", **how)
    assert found.value == pytest.approx(privacy.epsilon(5, 0.5, 3))
    assert found.kind == ("client", "add/remove", "outsiders", 1e-5)


def test_e6_noise_of_one_size_in_every_round_also_where_nobody_came(net):
    """The global model moves by σC/K in each entry, K the expected number, whoever comes."""
    cloak, clients = ModelCloak(1e-4, 1e4, **SERVER), make_clients([4] * 4)
    made = FedAvg(net, clients, 12, sampling="poisson", per_round=1, weighting="fixed",
                  defense=cloak, plan=Plan(eta=1e-3), show=False)  # fmt: skip
    before, came = flat({n: p.detach()[None].clone() for n, p in net.named_parameters()}), set()
    for report in made:
        after = flat({n: p.detach()[None].clone() for n, p in made.model.named_parameters()})
        assert (after - before).std().item() == pytest.approx(1e4 * 1e-4 / 1, rel=0.05)
        before = after
        came.add(len(report.clients))
    assert 0 in came and len(came) > 2


def test_a_fixed_divisor_is_the_mean_where_everybody_comes(net):
    (a, _), (b, _) = (run(net, Defense(), 2, weighting=w) for w in ("fixed", "uniform"))
    for one, two in zip(a.model.parameters(), b.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_e7_weights_by_examples_are_private(net):
    cloak, sizes = ModelCloak(0.3, 5, **SERVER), (4, 9, 4, 4)
    for sampling, remedy in (("fixed", "'uniform'"), ("poisson", "'fixed'")):
        _, found = run(net, cloak, sizes=sizes, sampling=sampling, per_round=2)
        refuse(found, "numbers of examples, which are private", remedy)
    _, found = run(net, cloak, sizes=sizes, per_round=2, weighting="uniform")
    assert found.value == pytest.approx(privacy.epsilon(5 / 2, 0.5, 1, sampling="fixed"))
    _, found = run(net, cloak, 3, sizes=sizes, weighting="uniform")
    assert found.value == pytest.approx(exact(5 / 2 / 3**0.5)) and found.sampling == "none"


# --- E8: between clip and noise ---


@pytest.mark.parametrize(
    "later", [CAFL(), CAFL(radius=1.0), POGZFL(), Entangle(how="add"), ModelCloak(9, 1)]
)
def test_e8_nothing_may_act_between_clip_and_noise(later):
    plan = Training(1, 4)
    found = account(ModelCloak(0.1, 5, **SERVER) + later, plan)
    every = [found, *found.also]
    assert all(e.against != "outsiders" for e in every)
    refuse(account(ModelCloak(0.1, 5, **SERVER) + CAFL(), plan), "between the clip and the noise")
    first = account(ModelCloak(9, 1) + ModelCloak(0.1, 5, **SERVER), plan)  # before: it is clipped
    assert {e.against for e in (first, *first.also)} == {"server", "outsiders"}


def test_a_guards_update_in_the_uploads_of_others_is_refused_before_the_clip(net):
    for cloak in (ModelCloak(1, 5), ModelCloak(1, 5, **SERVER)):
        why = "puts one client's data into the uploads of others"
        refuse(account(Entangle(score="random") + cloak, Training(1, 4)), why)
        public = Entangle(guard={n: p.detach()[None] for n, p in net.named_parameters()})
        assert account(public + cloak, Training(1, 4)).value is not None


# --- orders without effect, units, records ---


@pytest.mark.parametrize("first", [Prune(), Soteria(), DPGaussian(), DPSGD(), DCS2(steps=2)])
def test_a_part_that_would_have_no_effect_is_refused(first):
    sentence = f"{type(first).__name__} has no effect before DPSGD, which computes the gradient"
    with pytest.raises(PrivflError, match=sentence):
        first + DPSGD()
    with pytest.raises(PrivflError, match="no effect before DPSGD"):
        first + ModelCloak() + DPSGD()


def test_units_are_never_compared():
    plan = Training(1, 4)
    found = account(DPSGD(1, 3) + ModelCloak(1, 0.2) + ModelCloak(1, 20), plan)
    assert found.unit == "client" and found.value == pytest.approx(exact(10))  # the less of two
    (other,) = found.also
    assert other.unit == "example" and other.value == pytest.approx(exact(3 / 2))
    assert "; also ε = " in str(found)
    mixed = account(POGZFL(importance={"a": 1.0}, eps=1.0) + ModelCloak(1, 0.2), plan)
    assert {e.delta for e in (mixed, *mixed.also)} == {0.0, 1e-5}  # different δ, both are told


def test_the_record_says_all_that_belongs_to_it():
    plan = Training(10, 100, 10, sampling="poisson", weighting="fixed", secure=True)
    found = account(ModelCloak(1, 5, **SERVER), plan)
    text = f"ε = {found.value:.4g} (δ = 1e-05, per client, add/remove, against outsiders, RDP, "
    assert str(found) == text + "poisson 0.1)"
    seeded = account(ModelCloak(1, 5, **SERVER), replace(plan, secure=False))
    assert str(seeded) == text + "poisson 0.1, if the seed is secret)"
    assert Epsilon.load(asdict(found)) == found
    both = account(DPSGD() + ModelCloak(), Training(1))
    assert Epsilon.load(asdict(both)) == both and both.also


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Epsilon(None), "needs a reason"),
        (lambda: Epsilon(-1.0), "value is -1.0; it must be a number from 0"),
        (lambda: Epsilon(float("nan")), "value is nan; it must be a number from 0 to"),
        (lambda: Epsilon(1.0, unit="pixel"), "unit"),
        (lambda: Training(0), "rounds is 0; it must be a whole number at"),
        (lambda: Training(1, 3, 4), "per_round must lie in 1…3"),
        (lambda: Training(1, sampling="coins"), "sampling"),
    ],
)
def test_bad_records_get_one_sentence(refused, call, says):
    refused(call, says)


def test_asking_later_or_again_changes_nothing(net):
    """A defense remembers nothing: ε of 1,000 rounds is not that of the two that were run."""
    made, two = run(net, ModelCloak(1, 5), 2)
    assert two.value == pytest.approx(exact(5 / 2 / 2**0.5))
    assert account(made.defense, Training(1000)).value == pytest.approx(exact(5 / 2 / 1000**0.5))


def test_an_interrupted_run_goes_on_with_the_same_records(net, tmp_path):
    def make(rounds):
        return FedAvg(net, make_clients([4] * 4), rounds, defense=DPSGD() + ModelCloak(),
                      per_round=2, checkpoint=tmp_path / "run.pt", show=False)  # fmt: skip

    list(make(2))
    again = [r.epsilon for r in make(4)]
    (tmp_path / "run.pt").unlink()
    assert again == [r.epsilon for r in make(4)] and again[0].also


# --- system randomness ---

NOISY = [
    "dp_gaussian:sigma=1",
    "dp_sgd:clip=1,sigma=1",
    "modelcloak:clip=1,sigma=1",
    "pogz_fl",
    "ca_fl:radius=0.1",
]


@pytest.mark.parametrize("text", NOISY)
def test_secure_noise_follows_no_seed_and_has_the_same_law(net, text):
    ((x, y),) = make_clients([4])

    def sent(**how):
        return flat(share(net, x, y, defenses.build(text), **how).tensors)[0]

    assert torch.equal(sent(), sent())
    one, two = sent(secure=True), sent(secure=True)
    assert (one != two).float().mean() > 0.4  # CA-FL has two values
    assert one.std().item() == pytest.approx(sent().std().item(), rel=0.15)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_a_secure_run_draws_its_clients_in_secret(net, sampling):
    """Credit for sampling is void for those who know who took part."""
    clients = make_clients([1] * 40)
    runs = [
        FedAvg(net, clients, 6, per_round=10, sampling=sampling, secure=s, show=False)
        for s in (True, True, False, False)
    ]
    one, two, three, four = ([r.clients for r in made] for made in runs)
    assert one != two and one != three and three == four
    sizes = [len(some) for some in (*one, *two)]
    assert set(sizes) == {10} if sampling == "fixed" else 5 < sum(sizes) / 12 < 15
    assert all(some == sorted(set(some)) for some in one)


def test_a_secure_run_says_so_and_never_repeats(net):
    runs = [run(net, ModelCloak(1, 5, **SERVER), 2, weighting="uniform", secure=True) for _ in "ab"]
    assert all(found.secure for _, found in runs)
    one, two = (flat({n: p.detach()[None] for n, p in r.model.named_parameters()}) for r, _ in runs)
    assert (one != two).all()
