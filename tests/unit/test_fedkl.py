"""FedKL: what the lock computes, what stays at home, and attackers who open it."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
import torch
from torch.nn.functional import batch_norm

import privfl_lite as pf
from privfl_lite import models, share
from privfl_lite.attacks import LockMatching, Unlock, read_key
from privfl_lite.client import private_tensors
from privfl_lite.defenses import DPGaussian, FedKL, Memory
from privfl_lite.defenses.fedkl import uniform
from privfl_lite.federated import FedAvg, evaluate
from privfl_lite.metrics import affine_fit, as_image, psnr
from privfl_lite.models.keylock import coefficients, lock, locks, normalize
from privfl_lite.teach import ledger
from privfl_lite.wire import Facts, Plan

FACTS = ("labels", "key", "lock", "coefficients")


@pytest.fixture(scope="module")
def net(digits):
    return models.build("lenet", digits)


def send(net, batch, n=2, mode="train", knows=FACTS, **options):
    x, y = batch
    return share(net, x[:n], y[:n], FedKL(seed=0, **options), knows, each=1, mode=mode)


# -- the lock


@pytest.mark.parametrize("activation", ["none", "relu", "sigmoid"])
def test_lock_is_batch_norm_with_scale_and_shift_of_eq_30(net, batch, activation):
    locked = lock(net, key_length=40, activation=activation).train()
    part = locked.features[1].lock
    part.key.copy_(torch.rand(40))
    act = {"none": lambda t: t, "relu": lambda t: np.maximum(t, 0)}
    act["sigmoid"] = lambda t: 1 / (1 + np.exp(-t))
    w = {n: p.detach().double().numpy() for n, p in part.named_parameters()}
    k = part.key.double().numpy()
    gamma = act[activation](w["scale.weight"] @ k + w["scale.bias"])
    beta = act[activation](w["shift.weight"] @ k + w["shift.bias"])
    u = locked.features[0](batch[0])
    want = batch_norm(
        u, None, None, torch.tensor(gamma).float(), torch.tensor(beta).float(), training=True
    )
    torch.testing.assert_close(locked.features[1](u), want, rtol=1e-4, atol=1e-5)


# (model, share of the lock in Table 3); LeNet's is that of 100 classes, VGG-16's of a larger one
TABLE_3 = [
    (name.lower().replace("-", ""), None if name == "VGG-16" else row["Parameter Proportion"])
    for name, row in ledger.paper("fedkl/table-3").items()
]


@pytest.mark.parametrize(("name", "percent"), TABLE_3)
def test_lock_fits_every_network_and_has_table_3s_size(name, percent):
    net = models.build(name, (3, 32, 32), 100)
    locked = lock(net)
    (_, only), *others = locks(locked)
    assert not others and only.lock.key.shape == (1024,)
    assert locked(torch.rand(2, 3, 32, 32)).shape == (2, 100)
    size = sum(p.numel() for p in only.lock.parameters())
    if percent is not None:  # our ResNets have 1×1 skips where the paper's may not
        assert abs(100 * size / locked.num_parameters - percent) < 0.02 * percent + 0.05
    affine = 0 if name == "lenet" else 2 * only.norm.num_features
    assert locked.num_parameters == net.num_parameters + size - affine


def test_mnist_lenet_is_mostly_lock():
    locked = lock(models.build("lenet", (3, 32, 32), 10))
    assert 0.60 < 24_600 / locked.num_parameters < 0.62  # Table 3 prints 22.43 % for it


def test_lock_on_all_blocks_and_the_public_twin():
    net = models.build("resnet20", (3, 32, 32), 10)
    convs = sum(isinstance(m, torch.nn.Conv2d) for m in net.modules())
    everywhere = lock(net, 8, blocks="all")
    assert len(list(locks(everywhere))) == convs
    assert not any(isinstance(m, torch.nn.BatchNorm2d) and m.affine for m in everywhere.modules())
    lenet = models.build("lenet", (1, 12, 12), 10)
    twin = normalize(lenet, "all")
    assert [type(m).__name__ for m in twin.features[:3]] == ["Conv2d", "BatchNorm2d", "Sigmoid"]
    assert sum(isinstance(m, torch.nn.BatchNorm2d) for m in twin.features) == 3
    assert len(lenet.features) == 7, "a copy is changed, never the network itself"


def test_equations_27_to_29_with_the_sums_that_they_lack(net, batch):
    """∂ℓ/∂ω = (Σ δ û) kᵀ, ∂ℓ/∂φ = (Σ δ) kᵀ, ∂ℓ/∂û = δ γ, with δ = ∂ℓ/∂s; against autograd."""
    locked = lock(net, key_length=30).double().train()
    layer, seen = locked.features[1], {}
    layer.lock.key.copy_(torch.rand(30))

    def keep(name):
        def hook(_module, _inputs, out):
            out.retain_grad()
            seen[name] = out

        return hook

    layer.norm.register_forward_hook(keep("u_hat"))
    layer.register_forward_hook(keep("s"))
    torch.nn.functional.cross_entropy(locked(batch[0].double()), batch[1]).backward()
    delta, u_hat, k = seen["s"].grad, seen["u_hat"].detach(), layer.lock.key
    gamma = layer.lock()[0].detach()
    by_gamma, by_beta = (delta * u_hat).sum((0, 2, 3)), delta.sum((0, 2, 3))
    torch.testing.assert_close(layer.lock.scale.weight.grad, torch.outer(by_gamma, k))
    torch.testing.assert_close(layer.lock.shift.weight.grad, torch.outer(by_beta, k))
    torch.testing.assert_close(seen["u_hat"].grad, delta * gamma[:, None, None])


# -- the defense


def everything(upload) -> bytes:
    """All that an upload holds, tensors and model, as raw bytes."""
    file = io.BytesIO()
    state = {**upload.tensors, **{f"model.{n}": t for n, t in upload.model.state_dict().items()}}
    for t in state.values():
        file.write(t.contiguous().numpy().tobytes())
    return file.getvalue()


@pytest.mark.parametrize("plan", [None, Plan(eta=0.05, steps=3, batch_size=2)])
@pytest.mark.parametrize("fresh", [False, True])
def test_no_byte_of_key_or_lock_is_on_the_wire(net, batch, plan, fresh):
    x, y = batch[0][:4], batch[1][:4]
    upload = share(net, x, y, FedKL(seed=0, fresh=fresh), FACTS, each=2, plan=plan)
    sent = everything(upload)
    secret = torch.cat([upload.knows.key.flatten(), upload.knows.lock.flatten()]).numpy()
    pairs = [secret[i : i + 2].tobytes() for i in range(0, len(secret) - 1, 61)]  # 4 bytes may
    assert not any(pair in sent for pair in pairs)  # come up by chance, 8 do not
    assert not any(".lock." in n for n in upload.tensors)
    assert all(t.abs().sum() == 0 for n, t in upload.model.state_dict().items() if ".lock." in n)
    shared = share(net, x, y, FedKL(seed=0, share_lock=True), ("key",), each=2)
    first = next(locks(shared.model))[1].lock.scale.weight[0, 5:7].detach().numpy()
    assert first.tobytes() in everything(shared), "the search would find it"


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_upload_depends_on_the_key_only_through_gamma_and_beta(net, batch, mode):
    one, other = FedKL(seed=0), FedKL(seed=1)
    model = one.model(net)
    memories = [Memory(), Memory()]
    homes = [
        private_tensors(d, model, [0, 1], m) for d, m in zip((one, other), memories, strict=True)
    ]
    want = torch.cat([torch.stack(layer_coefficients(model, homes[0], k)) for k in range(2)])
    biases = {}
    for part, row in (("scale", 0), ("shift", 1)):
        name = f"features.1.lock.{part}"
        have = torch.einsum(
            "kos,ks->ko", homes[1][f"{name}.weight"], homes[1]["features.1.lock.key"]
        )
        biases[f"{name}.bias"] = want.view(2, 2, -1)[:, row] - have
    for k in range(2):  # another key, other weights, the same γ and β
        memories[1].private[k] |= {n: t[k] for n, t in biases.items()}
    x, y = batch[0][:2], batch[1][:2]
    a, b = (
        share(model, x, y, d, FACTS, each=1, mode=mode, memory=m)
        for d, m in zip((one, other), memories, strict=True)
    )
    assert (a.knows.key - b.knows.key).abs().mean() > 0.2
    for n, t in a.tensors.items():
        torch.testing.assert_close(b.tensors[n], t, rtol=1e-3, atol=1e-5)


def layer_coefficients(model, home, k):
    state = {n.removeprefix("features.1.lock."): t[k] for n, t in home.items()}
    return torch.func.functional_call(model.features[1].lock, state, ())


def toy(digits, n=3, each=20):
    return [
        (digits.x_train[i * each :][:each], digits.y_train[i * each :][:each]) for i in range(n)
    ]


def training(digits, rounds=2, **options):
    net = models.build("lenet", digits, act="relu", init=0.1)
    given = {"defense": FedKL(seed=0), "plan": Plan(eta=0.05, batch_size=10), "show": False}
    test = digits.x_train[:50], digits.y_train[:50]
    return FedAvg(net, toy(digits), rounds, test=test, **{**given, **options})


def test_fast_path_equals_plain_path_and_locks_differ(digits):
    runs = [training(digits, fast=fast) for fast in (True, False)]
    for run in runs:
        list(run)
    a, b = (run.model.state_dict() for run in runs)
    for n in a:
        torch.testing.assert_close(a[n], b[n], rtol=1e-4, atol=1e-5)
    homes = [run.memory.private for run in runs]
    for c in range(3):
        for n, t in homes[0][c].items():
            torch.testing.assert_close(homes[1][c][n], t, rtol=1e-4, atol=1e-5)
    name = "features.1.lock.scale.weight"
    assert not torch.equal(homes[0][0][name], homes[0][1][name]), "each trained its own"
    start = FedKL(seed=0).model(models.build("lenet", digits, act="relu", init=0.1))
    assert torch.equal(a[name], start.state_dict()[name]), "the server's lock never moved"
    assert a["features.1.lock.key"].abs().sum() == 0


def test_accuracy_is_that_of_personal_models(digits):
    run = training(digits, rounds=1)
    (report,) = run
    test = digits.x_train[:50], digits.y_train[:50]
    own = [evaluate(run.personal(c), *test) for c in range(3)]
    assert report.accuracy == pytest.approx(sum(a for a, _ in own) / 3)
    assert report.loss == pytest.approx(sum(b for _, b in own) / 3)
    assert len({b for _, b in own}) == 3


def test_checkpoint_keeps_keys_that_nobody_can_draw_again(digits, tmp_path):
    file = tmp_path / "run.pt"
    first = training(digits, defense=FedKL(), checkpoint=file)
    list(first)
    again = training(digits, defense=FedKL(), checkpoint=file)
    reports = list(again)
    assert [r.accuracy for r in reports] == [r.accuracy for r in first.history]
    assert sorted(first.memory.private) == sorted(again.memory.private) == [0, 1, 2]
    for c, home in first.memory.private.items():
        assert "features.1.lock.key" in home
        assert all(torch.equal(t, again.memory.private[c][n]) for n, t in home.items())


@pytest.mark.parametrize("shared", [True, False])
def test_statistics_are_averaged_or_stay(digits, shared):
    run = training(digits, rounds=1, defense=FedKL(seed=0, share_statistics=shared))
    list(run)
    mean = run.model.features[1].norm.running_mean
    own = [run.personal(c).features[1].norm.running_mean for c in range(3)]
    assert bool(mean.any()) is shared
    assert torch.equal(own[0], own[1]) is shared
    if shared:
        assert torch.equal(own[0], mean)


def test_shared_gradients_train_the_lock_at_home(digits):
    run = training(digits, rounds=1, share="gradient", plan=Plan(eta=0.1, mode="eval"))
    net = run.personal(1)
    before = {n: t.clone() for n, t in run.memory.private[1].items()}
    x, y = run.clients[1]
    torch.nn.functional.cross_entropy(net.eval()(x), y).backward()
    list(run)
    after = run.memory.private[1]
    for n, p in net.named_parameters():
        if ".lock." in n:
            torch.testing.assert_close(after[n], before[n] - 0.1 * p.grad)


def test_lock_learns_faster_than_a_plain_scale_by_the_length_of_the_key(digits):
    """Δγ = −η (‖k‖² + 1) ∂ℓ/∂γ: one step of SGD on the lock is one on γ with 340 times the rate."""
    run = training(digits, rounds=1, share="gradient", plan=Plan(eta=1e-3, mode="eval"))
    run.clients = run.clients[:1]
    net, x, y = run.personal(0).eval(), *run.clients[0]
    gamma, beta = (t.detach().requires_grad_() for t in net.features[1].lock())
    s = gamma[:, None, None] * net.features[1].norm(net.features[0](x)) + beta[:, None, None]
    loss = torch.nn.functional.cross_entropy(net.head(net.features[2:](s)), y)
    g_gamma, _ = torch.autograd.grad(loss, [gamma, beta])
    run.per_round = 1
    list(run)
    moved = run.personal(0).features[1].lock()[0] - gamma
    factor = net.features[1].lock.key.square().sum() + 1
    assert 300 < factor < 380
    torch.testing.assert_close(moved, -1e-3 * factor * g_gamma, rtol=1e-2, atol=1e-6)


def test_update_door_of_another_defense_leaves_the_lock_alone(net, batch):
    x, y = batch[0][:2], batch[1][:2]
    both = FedKL(seed=0) + DPGaussian(1e-3)
    upload = share(net, x, y, both, ("key",), each=1)
    plain = share(net, x, y, FedKL(seed=0), ("key",), each=1)
    assert torch.equal(upload.knows.key, plain.knows.key)
    assert list(upload.tensors) == list(plain.tensors)


def test_keys_are_uniform_private_and_of_each_client(net):
    assert not torch.equal(uniform(64, None), uniform(64, None))
    assert torch.equal(uniform(64, 3, 1, 0), uniform(64, 3, 1, 0))
    draw = uniform(50_000, None)
    assert draw.min() >= 0 and draw.max() < 1
    assert abs(draw.mean() - 0.5) < 0.01 and abs(draw.var() - 1 / 12) < 0.002
    for defense in (FedKL(), FedKL(seed=0)):
        model, name = defense.model(net), "features.1.lock.key"
        keys = torch.stack([defense.begin(model, c)[name] for c in (0, 1)])
        assert abs(torch.corrcoef(keys)[0, 1]) < 0.15


@pytest.mark.parametrize("fresh", [False, True])
def test_first_lock_is_the_servers_or_the_clients_own(net, fresh):
    defense = FedKL(seed=0, fresh=fresh)
    model = defense.model(net)
    name = "features.1.lock.scale.weight"
    mine = torch.stack([defense.begin(model, c)[name] for c in (0, 1)])
    server = model.features[1].lock.scale.weight.detach()
    assert torch.equal(mine[0], server) is not fresh
    assert torch.equal(mine[0], mine[1]) is not fresh
    assert mine.abs().max() <= 1 / 32 and abs(mine.std() - 1 / 32 / 3**0.5) < 1e-3


# -- the attackers


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_unlock_finds_image_label_and_secret(net, batch, mode, activation):
    upload = send(net, batch, 3, mode, activation=activation)
    found = Unlock().run(dataclasses.replace(upload, knows=Facts()))  # nothing is granted
    x, y = batch[0][:3], batch[1][:3]
    assert torch.equal(found.labels, y)
    assert psnr(found.images, x * (1 if mode == "eval" else 1 / top(x))).min() > 40
    torch.testing.assert_close(
        found.details["coefficients"].float(), upload.knows.coefficients, rtol=0.01, atol=0.01
    )
    assert (found.cost < 0.02).all()


def top(x):
    return x.amax((1, 2, 3), keepdim=True)


def test_train_mode_hides_contrast_and_eval_mode_does_not(net, batch):
    x, y = batch[0][:1] / top(batch[0][:1]), batch[1][:1]
    for mode, hidden in (("train", True), ("eval", False)):
        a, b = (
            share(net, scale * x, y, FedKL(seed=0), each=1, mode=mode).tensors
            for scale in (1.0, 0.5)
        )
        apart = max(((a[n] - b[n]).norm() / a[n].norm()).item() for n in a if "0.bias" not in n)
        assert (apart < 1e-3) is hidden
        found = Unlock().run(share(net, 0.5 * x, y, FedKL(seed=0), each=1, mode=mode))
        assert psnr(found.images, x if hidden else 0.5 * x) > 40
        assert psnr(affine_fit(found.images, 0.5 * x), 0.5 * x) > 40


def test_unlock_goes_through_locks_on_all_blocks_in_eval_mode(net, batch):
    found = Unlock().run(send(net, batch, 2, "eval", blocks="all"))
    assert psnr(found.images, batch[0][:2]).min() > 30


def test_unlock_searches_for_one_scale_a_block_in_train_mode(net, batch):
    found = Unlock().run(send(net, batch, 1, blocks="all"))
    assert psnr(affine_fit(found.images, batch[0][:1]), batch[0][:1]) > 40 and found.cost < 0.01


def test_unlock_where_relu_leaves_half_of_the_features_unknown(digits, batch):
    net = models.build("lenet", digits, act="relu", init=0.3)
    found = Unlock().run(send(net, batch, 2))
    x = batch[0][:2]
    assert psnr(affine_fit(found.images, x), x).max() > 40 and found.cost.min() < 0.01


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_the_control_with_gamma_and_beta_granted_uses_them(net, batch, mode, activation):
    """It finds the image; with γ and β of another key in eval mode it finds something else."""
    upload = send(net, batch, 2, mode, activation=activation)
    x = batch[0][:2]
    found = Unlock(granted=True).run(upload)
    assert psnr(found.images, x * (1 if mode == "eval" else 1 / top(x))).min() > 40
    wrong = Facts(coefficients=upload.knows.coefficients * 1.5)
    other = Unlock(granted=True).run(dataclasses.replace(upload, knows=wrong))
    if mode == "eval":
        assert psnr(other.images, x).max() < 30
    assert not torch.equal(other.images, found.images)


def test_dead_channels_show_as_zero_rows(net, batch):
    upload = send(net, batch, 3, activation="relu")
    gamma = upload.knows.coefficients[:, :12]
    rows = upload.tensors["features.0.weight"].flatten(2).abs().sum(2)
    assert torch.equal(rows == 0, gamma == 0) and 0.2 < (gamma == 0).float().mean() < 0.8


def test_key_is_the_quotient_of_the_locks_gradients(net, batch):
    x, y = batch[0][:2], batch[1][:2]
    upload = share(net, x, y, FedKL(seed=0, share_lock=True), ("key",), each=1, mode="train")
    torch.testing.assert_close(read_key(upload), upload.knows.key, rtol=1e-3, atol=1e-4)


def test_matching_by_what_the_server_knows(net, batch):
    x, y = batch[0][:1], batch[1][:1]
    upload = send(net, batch, 1)
    both = share(net, x, y, FedKL(seed=0, share_lock=True), each=1, mode="train")

    def score(secret, upload=upload, restarts=1):
        attack = LockMatching(steps=120, secret=secret, restarts=restarts, show=False)
        found = attack.run(upload)
        assert found.images.shape == x.shape
        return psnr(affine_fit(found.images, x), x).item(), found.cost.item()

    wrong, far = score("wrong")
    assert score("known")[0] > wrong + 8 and score("key")[0] > wrong + 3
    assert score("known", both)[0] > wrong + 8  # the lock is shared, and its gradient tells the key
    _, near = score("joint", restarts=3)  # so few steps lower its cost; the image comes later
    assert near < far


def test_matching_takes_batches(net, batch):
    x, y = batch[0][:4], batch[1][:4]
    upload = share(net, x, y, FedKL(seed=0), ("labels",), each=2, mode="train")
    first, later = (LockMatching(steps=k, show=False).run(upload) for k in (1, 25))
    assert later.images.shape == x.shape and (later.cost < first.cost).all()


def test_imitation_with_the_true_coefficients_is_the_upload(net, batch):
    from privfl_lite.attacks.adaptive.fedkl_matching import imitator

    upload = send(net, batch, 2, blocks="all")
    facts = upload.knows
    made = imitator(upload)(batch[0][:2, None], batch[1][:2, None], facts.coefficients)
    for n, t in upload.tensors.items():
        torch.testing.assert_close(made[n], t, rtol=1e-3, atol=1e-6)
    again = coefficients(facts.lock, facts.key, "none")
    torch.testing.assert_close(again, facts.coefficients)


def test_affine_fit_is_the_line_of_least_squares():
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(3, 1, 9, 9, generator=rng)
    x_hat = 0.2 * x + 0.6 + 0.1 * torch.rand(3, 1, 9, 9, generator=rng)
    for a, b, fit in zip(x_hat, x, affine_fit(x_hat, x), strict=True):
        line = np.polyfit(a.flatten().double(), b.flatten().double(), 1)
        np.testing.assert_allclose(fit, np.polyval(line, a), atol=1e-5)
    assert torch.allclose(affine_fit(-x, x), x.mean((1, 2, 3), keepdim=True).expand_as(x)), (
        "a negative is not turned"
    )
    assert affine_fit(torch.full_like(x, torch.nan), x).isfinite().all()
    assert as_image(affine_fit(x_hat, x)).max() <= 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda n, b: lock(models.build("mlp", (1, 9, 9), 10)), "'mlp' has none"),
        (lambda n, b: lock(n, activation="tanh"), "choose one of: none, relu"),
        (lambda n, b: lock(n, blocks="last"), "choose one of: first, all"),
        (lambda n, b: lock(n, key_length=0), "key_length is 0; it must be"),
        (lambda n, b: FedKL(fresh=True, share_lock=True), "exclude each other"),
        (lambda n, b: LockMatching(secret="guess"), "choose one of: joint, key"),
        (lambda n, b: LockMatching().run(share(n, *b)), "needs a locked network"),
        (lambda n, b: LockMatching(secret="key").run(send(n, b, knows=())), 'knows=("lock",)'),
        (lambda n, b: read_key(send(n, b)), "key is not on the wire"),
        (lambda n, b: Unlock().run(share(n, *b, FedKL())), "1 image, 1 step"),
        (lambda n, b: Unlock(granted=True).run(share(n, *b, FedKL(), each=1)), "for one lock"),
        (lambda n, b: pf.defenses.build("fedkl:key=3"), "one of: key_length"),
    ],
)
def test_bad_requests_get_one_sentence(net, batch, refused, call, says):
    refused(lambda: call(net, batch), says)
