"""The wire: an upload is exactly the gradient or update, and holds nothing private."""

from __future__ import annotations

import copy
import dataclasses
import re
import subprocess
import sys

import pytest
import torch
from checkout import PACKAGE, imports
from torch.nn.functional import cross_entropy

from privfl_lite import Plan, PrivflError, Upload, attacks, models, share
from privfl_lite.defenses import DPSGD, POGZFL, Defense, DPGaussian, ModelCloak
from privfl_lite.wire import Clip, Facts, Noise


@pytest.fixture
def net():
    return models.build("lenet", (1, 12, 12), 10)


@pytest.fixture
def batch():
    rng = torch.Generator().manual_seed(1)
    return torch.rand(6, 1, 12, 12, generator=rng), torch.randint(10, (6,), generator=rng)


def autograd(net, x, y):
    loss = cross_entropy(net(x), y)
    return torch.autograd.grad(loss, list(net.parameters()))


@pytest.mark.parametrize("each", [1, 2, 6])
def test_gradients_equal_autograd_client_by_client(net, batch, each):
    upload = share(net, *batch, each=each)
    assert len(upload) == 6 // each and upload.batch == each
    for k in range(len(upload)):
        rows = slice(k * each, (k + 1) * each)
        want = autograd(net, batch[0][rows], batch[1][rows])
        for t, w in zip(upload.tensors.values(), want, strict=True):
            torch.testing.assert_close(t[k], w, rtol=1e-4, atol=1e-7)


def test_update_equals_torch_sgd_and_the_servers_imitation(net, batch):
    plan = Plan(eta=0.3, steps=4, batch_size=2, shuffle=False, mode="eval")
    upload = share(net, *batch, plan=plan)
    assert upload.kind == "update" and upload.local_steps == 4
    before = [p.detach().clone() for p in net.parameters()]
    sgd = torch.optim.SGD(net.parameters(), lr=0.3)
    for take in ([0, 1], [2, 3], [4, 5], [0, 1]):
        sgd.zero_grad()
        cross_entropy(net(batch[0][take]), batch[1][take]).backward()
        sgd.step()
    guess = upload.imitator()(batch[0][None], batch[1][None])
    for (name, t), b, p in zip(upload.tensors.items(), before, net.parameters(), strict=True):
        torch.testing.assert_close(t[0], p.detach() - b, rtol=1e-3, atol=2e-6)
        torch.testing.assert_close(guess[name], t, rtol=1e-3, atol=2e-6)


def test_imitating_with_the_truth_reproduces_the_upload(net, batch):
    upload = share(net, *batch, each=2)
    guess = upload.imitator()(batch[0].view(3, 2, 1, 12, 12), batch[1].view(3, 2))
    for name, t in upload.tensors.items():
        torch.testing.assert_close(guess[name], t)


def test_train_mode_uses_batch_statistics_and_eval_mode_does_not():
    net = models.build("convnet", (3, 32, 32), 10, width=4).double()  # rounding hides nothing
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)).double()
    y = torch.arange(4)
    uploads = {mode: share(net, x, y, mode=mode) for mode in ("train", "eval")}
    for mode, upload in uploads.items():
        own = copy.deepcopy(net).train(mode == "train")  # training would move the statistics
        for t, w in zip(upload.tensors.values(), autograd(own, x, y), strict=True):
            torch.testing.assert_close(t[0], w, rtol=1e-8, atol=1e-12)
    first = next(iter(uploads["train"].tensors))
    assert not torch.allclose(uploads["train"].tensors[first], uploads["eval"].tensors[first])


def test_upload_grants_only_what_is_asked(net, batch):
    assert share(net, *batch, each=1).knows == Facts()
    upload = share(net, *batch, DPGaussian(0.2), knows=("labels", "noise"), each=1)
    assert upload.knows.noise == Noise(0.2) and upload.knows.names == ("labels", "noise")
    assert torch.equal(upload.knows.labels.flatten(), batch[1])
    assert torch.equal(upload[2].knows.labels.flatten(), batch[1][2:3])


def test_no_field_of_an_upload_holds_the_private_batch(net, batch):
    x, y = batch
    upload = share(net, x, y, each=2)
    found = []

    def walk(value: object) -> None:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            [walk(v) for v in value.values()]
        elif isinstance(value, torch.nn.Module):
            [walk(t) for t in value.state_dict().values()]
        elif dataclasses.is_dataclass(value):
            [walk(getattr(value, f.name)) for f in dataclasses.fields(value)]

    walk(upload)
    assert len(found) > 8
    pixels = set(x[x > 0].tolist())
    for t in found:
        assert t.numel() != y.numel() or not torch.equal(t.flatten().long(), y)
        assert not pixels & set(t.flatten().tolist())


def test_weights_that_never_leave_are_blank_at_the_server(net, batch):
    class KeepHead(Defense):
        def leaves(self, name):
            return not name.startswith("head")

    upload = share(net, *batch, KeepHead())
    assert not any(n.startswith("head") for n in upload.tensors)
    assert upload.model.head.weight.abs().sum() == 0 and net.head.weight.abs().sum() > 0


def test_the_first_gradient_of_a_process_waits_for_no_compiler():
    """``torch.func.grad`` imports all of ``torch._dynamo`` and sympy when it is first called."""
    code = """if True:
        import sys, torch, privfl_lite as pf
        net = pf.models.build("lenet", (1, 12, 12), 10)
        pf.share(net, torch.rand(2, 1, 12, 12), torch.tensor([3, 1]))
        print(sorted({"sympy", "torch._dynamo"} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_no_attack_imports_a_defense_or_the_data():
    for path in (PACKAGE / "attacks").rglob("*.py"):
        bad = [m for m in imports(path) if m.split(".")[0] in ("defenses", "data", "metrics")]
        assert not bad, f"{path.name} imports {bad}"


ORDER = (
    *(
        "errors",
        "values",
        "checking",
        "names",
        "runtime",
        "arrays",
        "budget",
        "disk",
        "written",
        "assets",
        "downloads",
        "data",
        "stored",
    ),
    "models",
    *("gradients", "wire", "privacy", "defenses", "batches", "layout"),
    *(
        "training",
        "client",
        "client_checks",
        "workers",
        "rounds",
        "reports",
        "spending",
        "checkpoint",
    ),
    "federated",
    *(
        "flower",
        "attacks",
        "contract",
        "metrics",
        "pictures",
        "leak",
        "studies",
        "laws",
        "planning",
        "teach",
        "challenges",
        "commands",
    ),
    "cli",
)


def test_nothing_imports_backwards():
    alone = {"errors", "values", "checking", "arrays", "runtime"}
    # identification looks with the eyes of a public network, so metrics may know models
    metrics_free = {"metrics": {*alone, "assets", "models"}, "privacy": alone}
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in ORDER, f"{room} has no place in the order of the house"
        rooms = {m.split(".")[0] for m in imports(path)} & set(ORDER) - {room}
        allowed = metrics_free.get(room, set(ORDER[: ORDER.index(room)]))
        assert rooms <= allowed, f"{path.name} imports {rooms - allowed}"


@pytest.mark.parametrize("path", ["README.md", "privfl_lite/__init__.py"])
def test_the_drawn_order_is_the_enforced_one(path):
    text = (PACKAGE.parent / path).read_text(encoding="utf-8").replace("`", "").lower()
    drawn = re.search(r"data (?:─►|->)\s+models.*?metrics", text, re.DOTALL)[0]
    rooms = [room for room in re.findall(r"[a-z]+", drawn) if room != "types"]
    assert rooms == sorted(rooms, key=ORDER.index) and len(rooms) > 8


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda n, x, y: share(n, x[0], y), "images of shape (B, 1, 12, 12)"),
        (lambda n, x, y: share(n, torch.rand(2, 3, 12, 12), y[:2]), "got (2, 3, 12, 12)"),
        (lambda n, x, y: share(n, x, y[:2]), "6 images and 2 labels"),
        (lambda n, x, y: share(n, x[:0], y[:0]), "at least one image"),
        (lambda n, x, y: share(n, x, y + 10), "labels must lie in 0…9"),
        (lambda n, x, y: share(n, x * torch.nan, y), "NaN or infinite pixels"),
        (lambda n, x, y: share(n, x, y, each=4), "does not divide"),
        (lambda n, x, y: share(n, x, y, mode="test"), "choose one of: eval, train"),
        (lambda n, x, y: share(n, x, y, knows=("key",)), "choose one of: labels"),
        (lambda n, x, y: share(n, x, y, plan=Plan(eta=0)), "eta is 0; it must be a number over 0"),
        (
            lambda n, x, y: share(n, x, y, plan=Plan(steps=0)),
            "steps is 0; it must be",
        ),
    ],
)
def test_bad_batches_get_one_sentence(refused, net, batch, call, says):
    refused(lambda: call(net, *batch), says)


def test_nan_and_wrong_shapes_in_an_upload_are_named(net, batch):
    good = share(net, *batch, each=2)
    broken = {n: t.clone() for n, t in good.tensors.items()}
    broken["head.bias"][1, 3] = torch.nan
    with pytest.raises(PrivflError, match=r"upload 1 holds NaN or infinite values.*'head.bias'"):
        Upload(broken, "gradient", net, 2)
    with pytest.raises(PrivflError, match=r"'head.bias' has shape \(3,\)"):
        Upload({"head.bias": torch.zeros(1, 3)}, "gradient", net, 2)


# --- an upload behaves like a list of uploads ---


def test_iteration_ends_and_gives_every_upload_once(net, batch):
    upload = share(net, *batch, each=2, knows=("labels",))
    each = list(upload)
    assert len(each) == len(upload) == 3
    for k, one in enumerate(each):
        assert len(one) == 1 and torch.equal(one.knows.labels, batch[1].view(3, 2)[k : k + 1])
        assert all(torch.equal(t, upload.tensors[n][k : k + 1]) for n, t in one.tensors.items())


def test_indices_count_from_the_end_and_end_like_a_lists(net, batch):
    upload = share(net, *batch, each=2)
    for i in (-3, -2, -1, 0, 1, 2):
        want = upload.tensors["head.bias"][i]
        assert torch.equal(upload[i].tensors["head.bias"][0], want)
    for i in (3, -4, 99):
        with pytest.raises(IndexError):
            upload[i]
    assert len(upload[1:]) == 2 and len(upload[::2]) == 2 and len(upload[-1:]) == 1
    assert torch.equal(upload[::2].tensors["head.bias"], upload.tensors["head.bias"][::2])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tensors": {}}, "needs one tensor or more, each with a row for every client; got 0"),
        ({"tensors": {"head.bias": torch.zeros(0, 10)}}, "a row for every client"),
        ({"tensors": {"head.bias": torch.zeros(())}}, "a row for every client"),
        (
            {"tensors": {"head.bias": torch.zeros(2, 10), "head.weight": torch.zeros(3, 10, 108)}},
            "got 2 tensors with [2, 3] rows",
        ),
        ({"tensors": {"tail.bias": torch.zeros(2, 10)}}, "the model's is missing"),
        ({"mode": "test"}, "choose one of: eval, train"),
        ({"kind": "weights"}, "choose one of: gradient, update"),
        ({"kind": "update"}, "an update needs plan=Plan(…)"),
        ({"batch": 0}, "batch is 0; it must be a whole number at"),
        ({"knows": Facts(labels=torch.zeros(2, 1))}, "labels must be (3, 2), uploads by examples"),
    ],
)
def test_what_is_no_upload_gets_one_sentence(refused, net, batch, change, says):
    good = share(net, *batch, each=2)
    refused(lambda: dataclasses.replace(good, **change), says)


def test_no_upload_is_left_of_an_empty_slice(refused, net, batch):
    refused(lambda: share(net, *batch, each=2)[3:], "a row for every client")


# --- the server's imitation ---


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    "schedule", [{"epochs": 3}, {"epochs": 2, "batch_size": 2}, {"steps": 5, "batch_size": 3}]
)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_every_rule_of_the_plan_is_imitated_exactly(net, batch, momentum, schedule, mode):
    """Several epochs, a last smaller batch (6 = 4 + 2), momentum: Δ to 1e-6."""
    rules = {"batch_size": 4, **schedule}
    plan = Plan(eta=0.3, momentum=momentum, shuffle=False, mode=mode, **rules)
    upload = share(net, *batch, plan=plan)
    guess = upload.imitator()(batch[0][None], batch[1][None])
    assert max(t.abs().max() for t in upload.tensors.values()) > 0.05
    for name, t in upload.tensors.items():
        torch.testing.assert_close(guess[name], t, rtol=0, atol=1e-6)


def test_batch_norm_is_imitated_in_both_modes():
    net = models.build("convnet", (3, 32, 32), 10, width=4).double()
    x = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0)).double()
    for mode in ("train", "eval"):
        plan = Plan(eta=0.1, batch_size=3, epochs=2, momentum=0.5, shuffle=False, mode=mode)
        upload = share(net, x, torch.arange(5), plan=plan)
        guess = upload.imitator()(x[None], torch.arange(5)[None])
        for name, t in upload.tensors.items():
            torch.testing.assert_close(guess[name], t, rtol=0, atol=1e-6)


def test_gradients_of_an_update_weigh_all_steps_also_with_momentum(net, batch):
    """For a rate near 0 the weights stay, every step has the same gradient, and it comes out."""
    (x, y), net = batch, net.double()
    want = share(net, x.double(), y).tensors
    for momentum in (0.0, 0.9):
        plan = Plan(eta=1e-7, steps=4, batch_size=6, momentum=momentum, shuffle=False, mode="eval")
        found = share(net, x.double(), y, plan=plan).gradients()
        for name, t in want.items():
            torch.testing.assert_close(found[name], t, rtol=1e-4, atol=1e-6)


def test_a_clip_of_every_examples_gradient_is_imitated_for_a_batch(net, batch, refused):
    x, y = batch
    defense = DPSGD(clip=0.5, sigma=0.0)
    upload = share(net, x, y, defense, knows=("clip", "labels"), each=3)
    assert upload.knows.clip == Clip(0.5, "example")
    plain = share(net, x, y, each=3)
    guess = upload.imitator()(x.view(2, 3, 1, 12, 12), y.view(2, 3))
    for name, t in upload.tensors.items():
        torch.testing.assert_close(guess[name], t, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(guess["head.bias"], plain.tensors["head.bias"], atol=1e-2)
    trained = share(net, x, y, defense, knows="clip", plan=Plan())
    refused(trained.imitator, "a clip of every example's gradient is imitated for gradients only")


# --- what is granted ---


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("defense", [DPGaussian(0.2), DPSGD(1.0, 0.8)], ids=["raw", "dp-sgd"])
def test_granted_noise_is_that_on_the_update(net, batch, defense, momentum):
    """Four steps of 4, 2, 4 and 2 examples: the noise of all of them, in units of Δ."""
    plan = Plan(eta=1e-3, epochs=2, batch_size=4, momentum=momentum, shuffle=False)
    options = {"plan": plan, "each": 6}
    noisy = share(net, *batch, defense, knows="noise", **options)
    silent = DPSGD(1.0, 0.0) if isinstance(defense, DPSGD) else None
    clean = share(net, *batch, silent, **options).tensors
    off = torch.cat([(t - clean[n]).flatten() for n, t in noisy.tensors.items()])
    assert off.std().item() == pytest.approx(noisy.knows.noise.std, rel=0.03)
    one = share(net, *batch, defense, knows="noise").knows.noise  # of a gradient, as it is
    assert one == Noise(0.2 if isinstance(defense, DPGaussian) else 0.8 / 6)


def test_an_upload_says_its_letter_and_what_the_server_sees(net, batch):
    bare = share(net, *batch, each=2)
    assert bare.letter == "A"
    assert repr(bare).startswith("Upload: 3 gradients of") and "2 examples behind each" in repr(
        bare
    )
    assert "granted besides: nothing; letter A" in repr(bare)
    assert f"{sum(p.numel() for p in net.parameters()):,} numbers" in repr(bare)
    granted = share(net, *batch, DPGaussian(0.1), each=2, knows=("noise", "labels"))
    assert granted.letter == "A + labels + noise"
    assert granted.letter in repr(granted) and "labels, noise" in repr(granted)
    trained = share(net, *batch, plan=Plan(epochs=2, batch_size=4), knows="labels")
    assert trained.letter == "C + labels" and "1 updates of 4 steps" in repr(trained)
    assert "\n" not in repr(granted) and "tensor(" not in repr(granted)
    assert repr(granted.knows) == "Facts(labels=(3, 2), noise=Noise(std=0.1))"


def test_granted_facts_are_selected_and_taken_back_by_name(net, batch, refused):
    cloak = ModelCloak(clip=1.0, sigma=0.5)
    upload = share(net, *batch, cloak, knows=("labels", "noise", "clip"))
    assert upload.knows.names == ("labels", "noise", "clip")
    assert upload.knows.noise == Noise(0.5) and upload.knows.clip == Clip(1.0, "update")
    assert upload.knows.without("labels", "clip") == Facts(noise=Noise(0.5))
    assert share(net, *batch, cloak, knows="clip").knows == Facts(clip=Clip(1.0, "update"))
    refused(lambda: share(net, *batch, cloak, knows=("labels", "key")), "one of: labels, noise")
    with pytest.raises(dataclasses.FrozenInstanceError):
        upload.knows.labels = None


def test_noises_add_as_variances():
    assert Noise(3.0) + Noise(4.0) == Noise(5.0)
    assert (Noise({"a": 3.0, "b": 0.0}) + Noise(4.0)).std == {"a": 5.0, "b": 4.0}
    assert (Noise(4.0) + Noise({"a": 3.0, "b": 0.0})).std == {"a": 5.0, "b": 4.0}
    by_layer, by_tensor = Noise({"a": 3.0}), Noise({"a.weight": 4.0, "a.bias": 0.0})
    for both in (by_layer + by_tensor, by_tensor + by_layer):
        assert both.of("a.weight") == 5 and both.of("a.bias") == 3
    assert Noise(3.0) * 2 == Noise(6.0) and Noise({"a": 3.0}) * 2 == Noise({"a": 6.0})
    assert (Facts(noise=Noise(3.0)) | Facts(noise=Noise(4.0), c=1.0)) == Facts(
        noise=Noise(5.0), c=1.0
    )


def test_noise_of_an_unlisted_tensor_is_refused(refused):
    refused(lambda: Noise({"head": 1.0}).of("features.0.weight"), "no noise is stated for")


def test_noise_by_layer_is_added_measured_and_weighs_the_likelihood(net, batch):
    """POGZ-FL with fixed shares, then raw noise: what lies on the wire has the granted deviation,
    and minus the log-density of the truth is, but for a constant, Σ noise² / 2σ² of each layer."""
    x, y = batch[0][:1], batch[1][:1]
    shares = {"features.0": 0.5, "features.2": 0.2, "features.4": 0.2, "head": 0.1}
    pogz = POGZFL(alpha=1e6, eta=1.0, eps=4e7, importance=shares)  # a clip that nothing reaches
    upload = share(net, x, y, pogz + DPGaussian(0.1), knows=("noise", "labels"))
    noise, clean = upload.knows.noise, share(net, x, y).tensors
    for layer, part in shares.items():
        laplace = 2**0.5 * 2e6 / (4e7 * part)
        assert noise.of(f"{layer}.weight") == pytest.approx((laplace**2 + 0.1**2) ** 0.5)
        off = torch.cat([(upload.tensors[n] - clean[n]).flatten() for n in clean if layer in n])
        assert off.std().item() == pytest.approx(noise.of(f"{layer}.bias"), rel=0.15)
    cost = attacks.Matching(distance="likelihood").cost(upload)
    got = cost(x[None], y[None], torch.tensor([0])).item()
    want = sum(
        ((upload.tensors[n] - t) / noise.of(n)).pow(2).sum().item() / 2 for n, t in clean.items()
    )
    assert got == pytest.approx(want, rel=1e-4)
    found = attacks.Matching(distance="likelihood", steps=5, show=False).run(upload)
    assert found.cost.isfinite().all()
