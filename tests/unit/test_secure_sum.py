"""A secure sum: masks cancel to the bit, lost ones come back, and nothing else is on the wire."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from scipy import stats
from toy import make_clients

from privfl_lite import FedAvg, Plan, PrivflError, load, models, privacy, share
from privfl_lite.attacks import Imprint, ImprintReadout
from privfl_lite.defenses import (
    CAFL,
    DPSGD,
    Defense,
    DPGaussian,
    ModelCloak,
    Prune,
    SecureSum,
    masked_uploads,
)
from privfl_lite.defenses.masking import (
    PRIME,
    Member,
    derived,
    masked,
    pair_masks,
    share_at,
    stream,
    unmasked,
    weights_at_zero,
)
from privfl_lite.privacy import Training, account
from privfl_lite.runtime import generator

SEED = b"x" * 32


@pytest.fixture(scope="module")
def world():
    digits = load("mnist")
    return models.build("mlp", digits), *digits.sample(12)


def cohort(n: int) -> tuple[list[Member], dict[int, int]]:
    members = [Member(i + 1, derived(SEED, f"client {i}", 32)) for i in range(n)]
    return members, {m.place: m.public for m in members}


# --- the protocol ---


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_any_threshold_shares_give_the_secret_and_fewer_any_value(threshold):
    secret = PRIME - 12345
    shares = {at: share_at(secret, SEED, "s", threshold, at) for at in range(1, 8)}
    for some in ([1, 2, 3, 4, 5], [7, 3, 1, 6, 2], [5, 4, 7, 2, 6]):
        some = some[:threshold]
        found = sum(w * shares[at] for w, at in zip(weights_at_zero(some), some, strict=True))
        assert found % PRIME == secret
    if threshold > 1:  # with one share fewer, every secret has a last share that fits
        few = list(range(1, threshold))
        for other in (0, 1, secret):
            w = weights_at_zero([*few, 9])
            known = sum(a * shares[at] for a, at in zip(w, few, strict=False))
            last = (other - known) * pow(w[-1], -1, PRIME) % PRIME
            assert (known + w[-1] * last) % PRIME == other


@pytest.mark.parametrize("bits", [8, 32, 33, 48, 62])
@pytest.mark.parametrize("gone", [(), (0,), (1, 3)])
def test_the_sum_is_exact_and_lost_masks_come_back(bits, gone):
    members, publics = cohort(5)
    x = [np.arange(7, dtype=np.uint64) * 11 + k for k in range(5)]
    there = [k for k in range(5) if k not in gone]
    sent = {k: masked(members[k], x[k], publics, bits) for k in there}
    total = sum(sent.values())
    found = unmasked(total, members, [members[k] for k in there], 3, bits)
    assert (found == sum(x[k] for k in there) % 2**bits).all()
    if gone:  # without the shares of those who left, their masks stay in
        only = unmasked(total, [members[k] for k in there], [members[k] for k in there], 3, bits)
        assert (only != found).any()


def test_two_clients_agree_on_a_mask_and_it_cancels():
    members, publics = cohort(2)
    one, two = (pair_masks(m.place, m.key, publics, 50, 40) for m in members)
    assert ((one + two) % 2**40 == 0).all() and one.any()


def test_a_client_whose_two_secrets_are_told_is_open():
    """Why there are two masks: the server may ask for one of the two secrets, never for both."""
    members, publics = cohort(4)
    x = np.arange(9, dtype=np.uint64)
    late, m = masked(members[1], x, publics, 32), members[1]
    half = (late - pair_masks(m.place, m.key, publics, 9, 32)) % 2**32
    assert (half != x).all()  # key alone: the own mask still hides it
    assert ((half - stream(m.own, 9, 32)) % 2**32 == x).all()


def test_masked_uploads_look_uniform_and_their_sum_does_not(world):
    net, x, y = world
    uploads = share(net, x, y, each=3).tensors
    rows = masked_uploads(uploads, SecureSum()).numpy()
    d = sum(t[0].numel() for t in uploads.values())
    assert rows.shape == (4, 1 + d) and rows.min() >= 0 and rows.max() < 2**48
    plain = SecureSum().encode(torch.cat([t.flatten(1) for t in uploads.values()], 1), 24, 4)
    for row in (*rows, rows[:2].sum(0) % 2**48, rows[:3].sum(0) % 2**48):
        assert stats.kstest(row / 2.0**48, "uniform").pvalue > 1e-4
        counts = np.bincount(row % 64, minlength=64)  # the low bits, too
        assert stats.chisquare(counts).pvalue > 1e-4
    for row in plain:  # the test can fail
        assert stats.kstest(row / 2.0**48, "uniform").pvalue < 1e-100
    again = masked_uploads(uploads, SecureSum(), seed=1).numpy()
    assert (again != rows).mean() > 0.99


# --- in the house ---


def test_the_wire_shows_one_row_the_gradient_of_all_examples(world):
    net, x, y = world
    upload = share(net, x, y, SecureSum(), ("labels",), each=3)
    assert len(upload) == 1 and upload.batch == 12
    assert upload.knows.labels.tolist() == [y.tolist()]
    whole = share(net, x, y).tensors
    for n, t in upload.tensors.items():
        torch.testing.assert_close(t, whole[n], rtol=1e-4, atol=2.0**-25 + 1e-6)


@pytest.mark.parametrize("places", [4, 12, 24])
def test_rounding_is_what_is_stated(world, places):
    net, x, y = (t.double() if t is not world[2] else t for t in world)
    each = share(net, x, y, each=3).tensors
    found = share(net, x, y, SecureSum(places=places), each=3).tensors
    error = max((found[n] - t.mean(0, keepdim=True)).abs().max() for n, t in each.items())
    assert error <= 2.0 ** -(places + 1)  # K · 2^−(places + 1) over Σ w = K
    assert error > 2.0 ** -(places + 5)  # and it is there


def test_one_step_of_many_clients_is_one_step_of_one_with_all_data(world):
    net, x, y = world
    plan = Plan(eta=0.1, steps=1, batch_size=3)
    found = share(net, x, y, SecureSum(), each=3, plan=plan)
    assert found.local_steps == 1 and found.plan.batch_size == 12
    g = share(net, x, y).tensors
    for n, t in found.gradients().items():
        torch.testing.assert_close(t, g[n], rtol=1e-3, atol=1e-5)
    long = share(net, x, y, SecureSum(), each=3, plan=Plan(epochs=2, batch_size=2))
    assert long.local_steps == 4 == Plan(epochs=2, batch_size=2).count(3)
    assert [len(b) for b in long.plan.batches(12)] == [8, 8, 8, 8]


@pytest.mark.parametrize("how", [{}, {"weighting": "uniform"}, {"fast": False}, {"workers": 2}])
def test_fedavg_ends_where_the_plain_run_ends(how):
    clients, net = make_clients([4, 3, 5], seed=1), models.build("lenet", (1, 12, 12), 10)
    plan = Plan(eta=0.2, batch_size=2)
    about = {"show": False, "keep_uploads": True, **how}
    plain, summed = (
        FedAvg(net, clients, 3, plan, defense=d, **about).finish() for d in (Defense(), SecureSum())
    )
    for (n, a), b in zip(plain.model.named_parameters(), summed.model.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6), n
    assert [len(r.uploads) for r in plain.history] == [3] * 3
    assert [len(r.uploads) for r in summed.history] == [1] * 3
    upload = summed.history[0].uploads[0]
    assert upload.batch == 12 and len(upload) == 1 and len(summed.history[0].norms) == 1


def test_bits_do_not_depend_on_masks_groups_or_order():
    clients, net = make_clients([4, 4, 4, 4], seed=1), models.build("lenet", (1, 12, 12), 10)
    runs = [
        FedAvg(net, clients, 2, Plan(batch_size=2), defense=SecureSum(), show=False, **how).finish()
        for how in ({"secure": True}, {"secure": True}, {})
    ]  # the masks of the first two are the operating system's, different each time
    a, b, c = (torch.cat([p.flatten() for p in run.model.parameters()]) for run in runs)
    assert torch.equal(a, b) and torch.equal(a, c)


def test_who_drops_out_is_left_out_and_the_rest_is_their_mean():
    clients, net = make_clients([4, 4, 4, 4], seed=1), models.build("lenet", (1, 12, 12), 10)
    x, y = (torch.cat(part) for part in zip(*clients, strict=True))
    rule = SecureSum(lost=1)
    there = rule.collect(range(4), lambda k: generator(0, 3, k)).there  # as ``share`` draws them
    upload = share(net, x, y, rule, ("labels",), each=4)
    assert len(there) == 3 and upload.batch == 12
    rows = torch.cat([torch.arange(16).split(4)[k] for k in there])
    assert upload.knows.labels[0].tolist() == y[rows].tolist()
    true = share(net, x[rows], y[rows]).tensors
    for n, t in upload.tensors.items():
        torch.testing.assert_close(t, true[n], rtol=1e-3, atol=1e-6)
    run = FedAvg(net, clients, 1, defense=rule, keep_uploads=True, show=False).finish()
    assert run.history[0].uploads[0].batch == 12


def test_noise_averages_out_and_so_does_what_is_granted_of_it(world):
    net, x, y = world
    upload = share(net, x, y, DPGaussian(0.1) + SecureSum(), ("noise",), each=1)
    assert upload.knows.noise.std == pytest.approx(0.1 / math.sqrt(12))
    clean = share(net, x, y).tensors
    left = torch.cat([(t - clean[n]).flatten() for n, t in upload.tensors.items()])
    assert left.std().item() == pytest.approx(0.1 / math.sqrt(12), rel=0.02)


def test_imprint_reads_the_sum_of_clients_as_one_batch():
    """What the corollary in the book says: a sum hides whose image it is, not the image."""
    digits = load("mnist")
    x, y = digits.sample(8)
    edges = torch.linspace(0, 0.4, 400)
    net = Imprint(models.build("mlp", digits), edges, gain=1e-3)
    found = ImprintReadout().run(share(net, x, y, SecureSum(), each=1))
    error = torch.cdist(x.flatten(1), found.images.flatten(1), p=torch.inf).amin(1)
    bins = torch.bucketize(x.flatten(1).mean(1), edges)
    lone = (bins[:, None] == bins).sum(1) == 1
    assert lone.sum() >= 6 and error[lone].max() < 1e-2


# --- ε ---


def test_noises_add_up_in_the_sum_and_only_where_nothing_is_between():
    cloak, run = ModelCloak(2.0, 5.0), Training(10, clients=100, per_round=25, joined=4)
    held = account(cloak + SecureSum(), run)
    assert (held.against, held.value) == ("server", account(cloak, run).value)
    (more,) = held.also
    assert more.against == "sums" and "sums only, all clients honest" in str(held)
    exact = privacy.analytic_gaussian_epsilon(5 * math.sqrt(25) / 2 / math.sqrt(4), 1e-5)
    assert more.value == pytest.approx(exact)
    small = account(ModelCloak(1e-5, 0.01) + SecureSum(places=20), run).also[0]
    assert small.value is None and "step of rounding" in small.reason
    assert privacy.Epsilon.load(asdict(held)) == held


@pytest.mark.parametrize(
    ("defense", "how", "says"),
    [
        (ModelCloak() + SecureSum(lost=1), {}, "drop out, and their noise"),
        (ModelCloak() + SecureSum(), {"weighting": "examples"}, "numbers of examples"),
        (ModelCloak() + SecureSum(), {"sampling": "poisson"}, "left to coins"),
        (DPSGD() + SecureSum(), {"plan": Plan()}, "lies on the upload"),
        (ModelCloak() + CAFL(radius=0.1) + SecureSum(), {}, "between the noise and"),
    ],
)
def test_where_the_noises_do_not_add_up_there_is_a_reason(defense, how, says):
    found = account(defense, Training(3, clients=10, **how))
    told = [found.reason, *(e.reason for e in found.also)]
    assert any(says in reason for reason in told), told
    assert all(e.value is None for e in found.also if e.against == "sums")


def test_alone_it_has_no_epsilon_and_central_noise_does_not_survive_the_rounding():
    run = Training(3, clients=10)
    assert account(SecureSum(), run).value is None
    trusted = account(ModelCloak(where="server") + SecureSum(), run)
    assert trusted.value is None and "rounds between" in trusted.reason


# --- refusals ---


def test_what_could_overflow_is_refused_in_one_sentence(world, refused):
    net, x, y = world
    rule = SecureSum(bits=24, places=20)
    assert rule.largest(4) == pytest.approx(2, rel=1e-5)
    edge = torch.tensor([rule.largest(4)] * 4)
    total = sum(rule.encode(v[None], 20, 4) for v in edge) % 2**24
    assert rule.decode(total, 20).item() == pytest.approx(8, rel=1e-5)  # the most that fits
    refused(lambda: rule.encode(edge[:1] + 0.01, 20, 4, who=2), "client 2 would add 2.01")
    refused(lambda: share(net, 9 * x, y, SecureSum(bits=20), each=3), "could overflow")


def test_a_sum_of_one_and_too_few_survivors_are_refused(world, refused):
    net, x, y = world
    refused(
        lambda: share(net, x, y, SecureSum()), "1 of 1 clients remain, but a secure sum needs 2"
    )
    refused(
        lambda: share(net, x, y, SecureSum(lost=2), each=3),
        "2 of 4 clients remain, but a secure sum needs 3",
    )
    share(net, x, y, SecureSum(lost=2, threshold=0.5), each=3)


def test_it_stands_last(refused):
    refused(lambda: SecureSum() + Prune(0.5), "Prune acts at the client")
    refused(lambda: SecureSum() + SecureSum(), "stands before SecureSum")
    assert isinstance((Prune(0.5) + SecureSum()).parts[1], SecureSum)
    with pytest.raises(PrivflError):
        SecureSum(bits=63)
