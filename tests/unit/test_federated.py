"""FedAvg: the fast path equals the plain one, runs resume to the same bits, sampling is as said."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from toy import make_clients

from privfl_lite import FedAvg, Plan, PrivflError, fedavg, models
from privfl_lite.defenses import DCS2, Defense, DPGaussian, Prune
from privfl_lite.federated import evaluate
from privfl_lite.training import clients_at_once


@pytest.fixture
def net():
    return models.build("lenet", (1, 12, 12), 10, init=0.2)


def final(run: FedAvg) -> dict[str, torch.Tensor]:
    list(run)
    return {n: t.clone() for n, t in run.model.state_dict().items()}


def assert_same(a, b, **tolerance):
    for name, t in a.items():
        torch.testing.assert_close(t, b[name], **tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"plan": Plan(eta=0.2, epochs=2, batch_size=4, momentum=0.9)},
        {"plan": Plan(eta=0.2, steps=5, batch_size=3)},
        {"per_round": 2, "weighting": "uniform"},
        {"sampling": "poisson", "per_round": 2},
        {"share": "gradient"},
        {"defense": DPGaussian(0.05)},
    ],
)
def test_fast_path_equals_plain_path(net, options):
    clients = make_clients([7, 12, 12, 5])  # unequal sizes, a partial last batch
    a, b = (
        final(fedavg(net, clients, 3, fast=fast, show=False, **options)) for fast in (True, False)
    )
    assert_same(a, b, rtol=1e-4, atol=1e-6)


def test_fast_path_equals_plain_path_with_batch_norm():
    net = models.build("convnet", (3, 32, 32), 10, width=2)
    clients = make_clients([6, 9], (3, 32, 32))
    a, b = (
        final(fedavg(net, clients, 2, Plan(eta=0.05), fast=f, show=False)) for f in (True, False)
    )
    assert_same(a, b, rtol=1e-3, atol=1e-4)
    assert a["features.1.num_batches_tracked"] == 2 and a["features.1.running_mean"].any()


def test_chunks_do_not_change_the_result(net, monkeypatch):
    clients = make_clients([8] * 5)
    whole = final(fedavg(net, clients, 2, fast=True, show=False))
    monkeypatch.setattr("privfl_lite.training.CACHE", 1)
    assert clients_at_once(net, 10) == 1
    assert_same(final(fedavg(net, clients, 2, fast=True, show=False)), whole, rtol=1e-5, atol=1e-7)


def test_one_gradient_round_is_a_step_on_the_pooled_data(net):
    clients = make_clients([3, 9])
    got = final(fedavg(net, clients, 1, Plan(eta=0.5, mode="eval"), share="gradient", show=False))
    x, y = (torch.cat(part) for part in zip(*clients, strict=True))
    torch.nn.functional.cross_entropy(net(x), y).backward()
    want = {n: p.detach() - 0.5 * p.grad for n, p in net.named_parameters()}
    assert_same(want, got, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"defense": DPGaussian(0.05), "per_round": 2}])
def test_an_interrupted_run_goes_on_to_the_same_bits(net, tmp_path, options):
    clients, file = make_clients([7, 12, 5]), tmp_path / "run.pt"
    whole = final(fedavg(net, clients, 5, show=False, **options))
    list(islice(fedavg(net, clients, 5, checkpoint=file, show=False, **options), 2))  # stopped
    run = fedavg(net, clients, 5, checkpoint=file, show=False, **options)
    reports = list(run)
    assert [r.round for r in reports] == [1, 2, 3, 4, 5]
    for name, t in run.model.state_dict().items():
        assert torch.equal(t, whole[name])


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(net, tmp_path):
    clients, file = make_clients([4, 4]), tmp_path / "run.pt"
    list(fedavg(net, clients, 2, checkpoint=file, show=False))
    with pytest.raises(PrivflError, match="other settings"):
        list(fedavg(net, clients, 2, checkpoint=file, seed=1, show=False))
    with pytest.raises(PrivflError, match="more rounds"):
        list(fedavg(net, clients, 1, checkpoint=file, show=False))
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(PrivflError, match="damaged; delete it"):
        list(fedavg(net, clients, 2, checkpoint=file, show=False))


def test_a_flipped_bit_in_a_checkpoint_is_noticed_and_its_owner_alone_may_read_it(net, tmp_path):
    clients, file = make_clients([4, 4]), tmp_path / "run.pt"
    list(fedavg(net, clients, 2, checkpoint=file, show=False))
    assert file.stat().st_mode & 0o777 == 0o600
    whole = file.read_bytes()
    for place in range(0, len(whole), len(whole) // 50):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(PrivflError, match="damaged; delete it"):
            list(fedavg(net, clients, 2, checkpoint=file, show=False))


def test_a_checkpoint_is_of_one_run_at_a_time(net, tmp_path):
    first = fedavg(net, make_clients([4, 4]), 3, checkpoint=tmp_path / "run.pt", show=False)
    rounds = iter(first)
    next(rounds)
    second = fedavg(net, make_clients([4, 4]), 3, checkpoint=tmp_path / "run.pt", show=False)
    with pytest.raises(PrivflError, match="by this process already"):
        list(second)
    rounds.close()
    assert len(list(second)) == 3


OTHERS = {
    "other images": {"clients": make_clients([4, 4], seed=1)},
    "one pixel": {"clients": [(x + 1e-6, y) for x, y in make_clients([4, 4])]},
    "other labels": {"clients": [(x, (y + 1) % 10) for x, y in make_clients([4, 4])]},
    "another order": {"clients": make_clients([4, 4])[::-1]},
    "another split": {"clients": make_clients([5, 3])},
    "no schedule": {"schedule": None},
    "another schedule": {"schedule": lambda r: 0.8**r},
    "another plan": {"plan": Plan(momentum=0.5)},
    "another defense": {"defense": Prune(0.5)},
    "another setting": {"defense": Prune(0.7, feedback=True)},
    "other tensors": {"defense": DCS2(steps=1, sensitive=torch.zeros(1, 1, 12, 12))},
    "other weights": {"model": models.build("lenet", (1, 12, 12), 10, init=0.2, seed=1)},
    "another model": {"model": models.build("mlp", (1, 12, 12), 10)},
    "another kind": {"share": "gradient"},
    "another weighting": {"weighting": "uniform"},
    "another sampling": {"sampling": "poisson"},
    "fewer a round": {"per_round": 1},
    "another test set": {"test": make_clients([4], seed=2)[0]},
    "another activation": {"model": models.build("lenet", (1, 12, 12), 10, init=0.2, act="relu")},
    "system randomness": {"secure": True},
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_other_images_or_settings_is_refused_and_kept(refused, net, tmp_path, name):
    file = tmp_path / "run.pt"
    same = {"model": net, "clients": make_clients([4, 4]), "schedule": lambda r: 0.9**r}
    same |= {"rounds": 2, "checkpoint": file, "defense": Prune(0.7), "show": False}
    if name == "other tensors":
        same["defense"] = DCS2(steps=1, sensitive=torch.ones(1, 1, 12, 12))
    list(FedAvg(**same))
    kept = file.read_bytes()
    refused(lambda: list(FedAvg(**{**same, **OTHERS[name]})), "of a run with other settings")
    assert file.read_bytes() == kept
    assert len(list(FedAvg(**same))) == 2  # the same run, made anew, finds it


def test_a_longer_run_goes_on_from_a_shorter_one(net, tmp_path):
    """The schedule is that of the rounds played, so more rounds are no other run."""
    clients, file = make_clients([4, 4]), tmp_path / "run.pt"
    options = {"schedule": lambda r: 0.9**r, "show": False}
    list(fedavg(net, clients, 2, checkpoint=file, **options))
    longer = final(fedavg(net, clients, 4, checkpoint=file, **options))
    whole = final(fedavg(net, clients, 4, **options))
    assert all(torch.equal(t, whole[n]) for n, t in longer.items())


def test_sampling_is_fixed_in_size_or_poisson(net):
    clients = make_clients([2] * 20)
    plan = Plan(batch_size=2)
    fixed = list(fedavg(net, clients, 30, plan, per_round=5, show=False))
    assert all(len(set(r.clients)) == 5 for r in fixed)
    assert len({c for r in fixed for c in r.clients}) == 20
    poisson = [
        len(r.clients)
        for r in fedavg(net, clients, 60, plan, per_round=5, sampling="poisson", show=False)
    ]
    assert len(set(poisson)) > 3 and 4 < sum(poisson) / 60 < 6  # binomial(20, 1/4): mean 5


def test_an_empty_poisson_round_leaves_the_model_alone(net):
    clients = make_clients([2] * 3)
    run = fedavg(net, clients, 40, per_round=1, sampling="poisson", keep_uploads=True, show=False)
    before, quiet = run.model.head.bias.clone(), 0
    for report in run:
        now = run.model.head.bias.clone()
        assert (len(report.clients) == 0) == torch.equal(before, now)
        assert len(report.uploads) == len(report.norms) == len(report.clients)
        quiet += not report.clients
        before = now
    assert quiet


def test_the_servers_uploads_are_what_was_averaged(net):
    clients = make_clients([4, 6])
    run = fedavg(net, clients, 1, weighting="uniform", keep_uploads=True, show=False)
    (report,) = run
    for name, p in net.named_parameters():
        mean = sum(u.tensors[name][0] for u in report.uploads) / 2
        torch.testing.assert_close(run.model.state_dict()[name], p + mean, rtol=1e-5, atol=1e-7)


def test_schedule_scales_the_rate(net):
    clients = make_clients([6])
    plan = Plan(eta=0.1, steps=1, batch_size=6)
    slow = fedavg(net, clients, 1, plan, schedule=lambda r: 0.5 / r, show=False)
    half = fedavg(net, clients, 1, Plan(eta=0.05, steps=1, batch_size=6), show=False)
    assert_same(final(slow), final(half))


def test_the_given_model_is_not_touched_and_the_seed_decides(net):
    clients, before = make_clients([6, 6]), {n: t.clone() for n, t in net.state_dict().items()}
    a, b, c = (
        final(fedavg(net, clients, 2, Plan(batch_size=2), seed=s, show=False)) for s in (1, 1, 2)
    )
    assert all(torch.equal(t, net.state_dict()[n]) for n, t in before.items())
    assert all(torch.equal(a[n], b[n]) for n in a) and any(not torch.equal(a[n], c[n]) for n in a)


def test_evaluate_counts_by_hand(net):
    x, y = make_clients([23])[0]
    accuracy, loss = evaluate(net, x, y, batch=7)
    logits = net(x)
    assert accuracy == pytest.approx((logits.argmax(1) == y).double().mean().item())
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(logits, y).item(), rel=1e-5)


class Poison(Defense):
    def update(self, delta, ctx):
        return {n: t * (torch.nan if ctx.round == 2 else 1) for n, t in delta.items()}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clients": []}, "clients is []; it must be a list of one or"),
        (
            {"clients": [(torch.rand(0, 1, 12, 12), torch.zeros(0).long())]},
            "client 0 needs at least",
        ),
        ({"clients": make_clients([2], (3, 12, 12))}, "images of shape (B, 1, 12, 12)"),
        ({"per_round": 9}, "per_round must lie in 1…2"),
        ({"rounds": 0}, "rounds is 0; it must be a whole number at"),
        ({"sampling": "all"}, "choose one of: fixed, poisson"),
        ({"share": "weights"}, "choose one of: update, gradient"),
        ({"weighting": "size"}, "choose one of: examples, uniform"),
        ({"defense": Poison()}, "sent NaN or infinite values in round 2"),
    ],
)
def test_bad_runs_get_one_sentence(refused, net, options, says):
    options = {"clients": make_clients([4, 4]), "rounds": 3, "show": False, **options}
    refused(lambda: list(FedAvg(net, **options)), says)
