"""The wire: an upload is exactly the gradient or update, and holds nothing private."""

from __future__ import annotations

import ast
import copy
import dataclasses
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import privfl_lite as pf
from privfl_lite import Plan, PrivflError, Upload, models, share
from privfl_lite.defenses import Defense, DPGaussian

PACKAGE = Path(pf.__file__).parent


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
    assert share(net, *batch, each=1).knows == {}
    upload = share(net, *batch, DPGaussian(0.2), knows=("labels", "noise_std"), each=1)
    assert upload.knows["noise_std"] == 0.2
    assert torch.equal(upload.knows["labels"].flatten(), batch[1])
    assert torch.equal(upload[2].knows["labels"].flatten(), batch[1][2:3])


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


def imports(path: Path) -> set[str]:
    """The package's own modules that a file imports, as dotted names below the package."""
    here = path.relative_to(PACKAGE).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = list(here[: len(here) - node.level]) + (node.module or "").split(".")
            base = [b for b in base if b]
            found |= {".".join([*base, a.name]) for a in node.names} | {".".join(base)}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("privfl_lite"):
            base = node.module.split(".")[1:]
            found |= {".".join([*base, a.name]) for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name[len("privfl_lite.") :] for a in node.names if "privfl_lite." in a.name}
    return found


def test_no_attack_imports_a_defense_or_the_data():
    for path in (PACKAGE / "attacks").glob("*.py"):
        bad = [m for m in imports(path) if m.split(".")[0] in ("defenses", "data", "metrics")]
        assert not bad, f"{path.name} imports {bad}"


ORDER = (
    *(
        "errors",
        "names",
        "runtime",
        "written",
        "assets",
        "downloads",
        "data",
        "stored",
        "models",
        "extractor",
        "gradients",
        "keylock",
        "privacy",
        "defenses",
        "client",
        "wire",
    ),
    *("federated", "attacks", "metrics", "studies", "teach", "commands", "cli"),
)


def test_nothing_imports_backwards():
    alone = {"errors", "runtime"}
    metrics_free = {"metrics": {*alone, "assets"}, "privacy": alone}
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in ORDER, f"{room} has no place in the order of the house"
        rooms = {m.split(".")[0] for m in imports(path)} & set(ORDER) - {room}
        allowed = metrics_free.get(room, set(ORDER[: ORDER.index(room)]))
        assert rooms <= allowed, f"{path.name} imports {rooms - allowed}"


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
        (lambda n, x, y: share(n, x, y, plan=Plan(eta=0)), "eta must be over 0"),
        (lambda n, x, y: share(n, x, y, plan=Plan(steps=0)), "steps must be at least 1"),
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
