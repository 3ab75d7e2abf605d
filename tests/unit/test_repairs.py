"""The repairs that the chapters name: what they change on the wire, and who reads it all the same.

The contract (``test_contract``) holds for each setting here; the study is ``red-team/repairs``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from privfl_lite import PrivflError, attacks, fedavg, load, metrics, models, share
from privfl_lite.contract import check_defense
from privfl_lite.defenses import (
    DCS2,
    LODA,
    AdaptiveCloak,
    Context,
    Entangle,
    FedKL,
    ModelCloak,
    Prune,
    Rounded,
)
from privfl_lite.defenses.base import Memory
from privfl_lite.defenses.entangle import replaced
from privfl_lite.gradients import norm
from privfl_lite.models.keylock import locks
from privfl_lite.privacy import epsilon
from privfl_lite.wire import Plan


def digits(n: int = 2):
    data = load("mnist")
    return models.build("lenet", data), *data.sample(n, split="test", seed=1000)


def psnr(found: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return metrics.compare(found, x)["psnr"]


@pytest.mark.parametrize(
    "defense",
    [
        FedKL(16, blocks="chained", seed=0),
        FedKL(16, seed=0) + Rounded(),
        Entangle(tensors="every"),
        Entangle() + ModelCloak(1e3, 1e-5),
        DCS2(steps=2, box=True) + Prune(0.7),
        AdaptiveCloak(1.0, 0.01, 0.1),
    ],
    ids=repr,
)
def test_repairs_keep_the_contract(defense):
    check_defense(defense)


def test_fresh_starts_keep_the_contract():
    net = models.build("lenet", (3, 16, 16), 10)
    check_defense(LODA(steps=2, fresh=True), net)


# --- 16 bits ---


@pytest.mark.parametrize(("name", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_rounded_is_the_nearest_number_of_its_format(name, bits):
    net, x, y = digits()
    plain, sent = share(net, x, y, each=1), share(net, x, y, Rounded(name), each=1)
    for n, t in plain.tensors.items():
        big = t.abs() > 1e-3
        off = ((sent.tensors[n] - t) / t)[big].abs()
        assert off.max() <= 2.0**-bits and off.max() > 2.0 ** -(bits + 2)
        assert sent.tensors[n].dtype == t.dtype


def test_a_search_bears_rounding_and_a_coarser_tolerance_helps_the_closed_form():
    net, x, y = digits()
    found = attacks.informed(share(net, x, y, Rounded(), each=1), "rounded", steps=150, show=False)
    assert (psnr(found.images, x) > 20).all()
    sent = share(net, x, y, FedKL(seed=0) + Rounded(), each=1)
    fine, coarse = (psnr(attacks.Unlock(tol=t).run(sent).images, x) for t in (1e-4, 1e-2))
    assert coarse.mean() > fine.mean() + 3


# --- chained locks ---


def test_a_chain_feeds_each_lock_with_the_coefficients_of_the_one_before():
    net, x, y = digits()
    memory = Memory()
    sent = share(net, x, y, FedKL(16, blocks="chained", seed=0), each=1, memory=memory)
    assert not [n for n in sent.tensors if ".lock." in n]
    model = FedKL(16, blocks="chained", seed=0).model(net)
    parts = [m.lock for _, m in locks(model)]
    assert [p.scale.in_features for p in parts] == [16, 24, 24]
    assert [hasattr(p, "key") for p in parts] == [True, False, False]
    parts[0].key.fill_(0.3)
    gamma, beta = parts[0]()
    assert torch.equal(parts[1]()[0], parts[1].scale(torch.cat([gamma, beta])))
    mine = [n for n in memory.private[0] if n.endswith(".lock.key")]
    assert mine == ["features.1.lock.key"]  # the others have none


def test_unlock_opens_a_chain_without_asking_where_coefficients_come_from():
    net, x, y = digits(1)
    sent = share(net, x, y, FedKL(blocks="chained", seed=0), each=1)
    assert psnr(attacks.Unlock().run(sent).images, x).item() > 30


# --- every tensor entangled ---


def test_every_tensor_has_its_share_of_the_guard_and_falls_all_the_same():
    net, x, y = digits()
    guard = share(net, *load("mnist").sample(2, seed=3), each=1).tensors
    memory, defense = Memory(), Entangle(tensors="every", guard=guard)
    sent = share(net, x, y, defense, ("labels", "guard"), each=1, memory=memory)
    mask = replaced(memory, range(2))
    for n, taken in mask.items():
        part = taken.double().mean().item()
        assert taken.any() and abs(part - memory[0]["ratio"].item()) < (
            0.05 if taken[0].numel() > 999 else 0.5
        )
        assert torch.equal(sent.tensors[n][taken], guard[n][taken])
    only = share(net, x, y, Entangle(guard=guard), each=1, memory=(other := Memory()))
    assert not replaced(other, range(2))["features.0.weight"].any() and len(only) == 2
    search = attacks.IDLG(nonzero=True, steps=250, show=False)
    assert (psnr(attacks.Unguard(search).run(sent).images, x) > 20).all()


# --- a fresh start each round ---


def test_fresh_encodings_differ_by_round_and_their_rounds_are_read_together():
    data = load("photos", size=16)
    x, y = data.sample(2, split="test")
    net = models.build("mlp", data, hidden=(16,))
    for fresh in (False, True):
        loda = LODA(steps=3, start=data.x_train, fresh=fresh)
        memory, knows = Memory(), ("extractor",)
        rounds = [share(net, x, y, loda, knows, 1, seed=r, memory=memory) for r in range(2)]
        found = attacks.Unobscure(steps=2, show=False).run(rounds)
        one, two = found.details["encodings"]
        assert torch.allclose(one, two, atol=1e-3) is not fresh
    with pytest.raises(PrivflError, match="same clients"):
        attacks.Unobscure().run([rounds[0], rounds[1][:1]])


# --- pruned pairs ---


def test_pruned_pairs_are_completed_and_say_whether_they_arrived():
    net, x, y = digits(1)
    hidden = DCS2(steps=100, lr=0.3) + Prune(0.7)
    sent = share(net, x, y, hidden, ("labels", "mixture", "shares"), each=1)
    found = attacks.PairPruned(show=False).run(sent)
    assert found.cost.item() < 1e-4 and psnr(found.images, x).item() > 20
    with pytest.raises(PrivflError, match="sigmoid lenet"):
        other = models.build("lenet", load("mnist"), act="relu")
        attacks.PairPruned().run(replace(sent, model=other))


# --- a private norm ---


def test_the_clip_finds_the_median_norm_and_epsilon_is_that_of_sigma():
    data = load("mnist")
    net = models.build("mlp", data, hidden=(16,))
    people = data.clients(20, per_client=20, seed=0)
    cloak = AdaptiveCloak(clip=20.0, sigma=0.01, bit=0.1, rate=0.5)
    run = fedavg(net, people, 12, Plan(eta=0.1, batch_size=20), defense=cloak, show=False)
    reports = list(run)
    plain = next(iter(fedavg(net, people, 1, Plan(eta=0.1, batch_size=20), show=False)))
    middle = sorted(plain.norms)[10]
    assert middle / 3 < run.memory.run["clip"] < 20 / 3  # on its way down, not past the norms
    assert reports[-1].epsilon.value is not None and reports[-1].epsilon.against == "server"
    strong = AdaptiveCloak(1.0, 20.0, 40.0)
    fixed = ModelCloak(1.0, 20.0)
    pair = [
        list(fedavg(net, people, 3, defense=d, show=False))[-1].epsilon.value
        for d in (strong, fixed)
    ]
    assert pair[0] == pytest.approx(pair[1])  # the bit is paid for by more noise
    assert strong.multiplier > 20 and epsilon(20.0, 1.0, 3) > 0


def test_noise_pays_for_update_and_bit_together():
    cloak = AdaptiveCloak(1.0, 5.0, 10.0)
    assert cloak.multiplier**-2 + (2 * 10.0) ** -2 == pytest.approx(5.0**-2)
    with pytest.raises(PrivflError, match="bit must be over"):
        AdaptiveCloak(1.0, 5.0, 2.0)


def test_the_length_of_an_upload_no_longer_tells_the_norm():
    net, x, y = digits(8)
    true = norm(share(net, x, y, each=1).tensors)
    d = sum(t[0].numel() for t in share(net, x, y, each=1).tensors.values())
    for cloak, told in (
        (ModelCloak(1e3, 5.0, mode="dynamic", keep="scale"), True),
        (AdaptiveCloak(float(true.median()), 5.0), False),
    ):
        length = norm(share(net, x, y, cloak, each=1).tensors) / (25 * d + 1) ** 0.5
        off = ((length - true).abs() / true).max().item()
        assert (off < 0.05) is told


def test_noise_is_zero_mean_of_the_stated_size():
    zero = {"w": torch.zeros(3, 5000)}
    rngs = [torch.Generator().manual_seed(k) for k in range(3)]
    ctx = Context(models.build("mlp", (1, 8, 8), 10), {}, [], [], rngs)
    sent = AdaptiveCloak(2.0, 1.0, 1.0).update(zero, ctx)["w"]
    assert sent.std().item() == pytest.approx(2.0 * (1 - 1 / 4) ** -0.5, rel=0.03)
