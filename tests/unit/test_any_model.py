"""Modules and gradients as people have them: wrapped, shared, trained, attacked, refused."""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import privfl_lite as pf
from privfl_lite import Plan, Upload, attacks, defenses, models, share
from privfl_lite.runtime import torchvision

ROOT = Path(__file__).resolve().parents[2]


class Mine(nn.Module):
    """Names, a branch and an in-place activation that no network of the package has."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.norm, self.act = nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.features = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.head = nn.ModuleDict({"out": nn.Linear(8 * 36, 5)})

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale
        y = self.norm(self.stem(x))
        y += x  # as torchvision's blocks do
        return self.head["out"](self.features(self.act(y)).sigmoid().flatten(1))


def sequence() -> nn.Sequential:
    """A sigmoid LeNet of one convolution, in two nested sequences."""
    body = nn.Sequential(nn.Conv2d(1, 12, 5, 2, 2), nn.Sigmoid(), nn.Flatten())
    return nn.Sequential(body, nn.Linear(432, 5))


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    return torch.rand(4, 1, 12, 12, generator=rng), torch.tensor([1, 0, 4, 2])


def frozen(net: nn.Module) -> dict[str, Tensor]:
    return {n: t.clone() for n, t in net.state_dict().items()}


def by_hand(net: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(cross_entropy(net(x), y), list(net.parameters()))


@pytest.mark.parametrize("make", [Mine, sequence])
def test_share_takes_a_bare_module_and_leaves_it_alone(seed, make, batch):
    net, (x, y) = make(), batch
    before, mode = frozen(net), net.training
    upload = share(net, x, y, each=2)
    assert list(upload.tensors) == [n for n, _ in net.named_parameters()]
    for k in range(2):
        rows = slice(2 * k, 2 * k + 2)
        want = by_hand(copy.deepcopy(net).eval(), x[rows], y[rows])
        for t, w in zip(upload.tensors.values(), want, strict=True):
            torch.testing.assert_close(t[k], w, rtol=1e-4, atol=1e-6)
    assert net.training is mode and all(torch.equal(before[n], t) for n, t in frozen(net).items())
    assert not any(m.inplace for m in upload.model.modules() if hasattr(m, "inplace"))


def test_a_wrapped_module_is_the_module_under_the_same_names(seed, batch):
    net = Mine()
    wrapped = models.wrap(net, shape=(1, 12, 12), name="mine")
    assert (wrapped.head_name, wrapped.num_classes, wrapped.name) == ("head.out", 5, "mine")
    assert list(wrapped.state_dict()) == list(net.state_dict())
    assert wrapped.num_parameters == sum(p.numel() for p in net.parameters())
    r = wrapped.representation(batch[0])
    assert r.shape == (4, 288)
    torch.testing.assert_close(wrapped.last(r), net.eval()(batch[0]))
    other = copy.deepcopy(wrapped).double().train()
    assert other._net.training and other.norm.training and not wrapped._net.training
    other.load_state_dict(net.state_dict())
    with torch.no_grad():
        other.scale.zero_()  # a weight of the module itself, which forward must see
        assert torch.equal(other(batch[0].double()), other(0 * batch[0].double()))
    assert wrapped.scale == 1 and models.wrap(wrapped) is wrapped


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_fedavg_trains_a_bare_module_on_both_paths(seed, batch, mode):
    net, clients = Mine(), [(t[:2], y[:2]) for t, y in [batch, (batch[0][2:], batch[1][2:])]]
    before, ends = frozen(net), []
    for fast in (True, False):
        plan = Plan(eta=0.05, steps=2, batch_size=2, mode=mode)
        run = pf.FedAvg(net, clients, 2, plan, test=batch, fast=fast, show=False)
        reports = list(run)
        assert reports[-1].loss > 0
        ends.append(run.model.state_dict())
    for n, t in ends[0].items():
        torch.testing.assert_close(t, ends[1][n], rtol=1e-4, atol=1e-6)
    assert all(torch.equal(before[n], t) for n, t in frozen(net).items())
    assert not torch.equal(ends[0]["stem.weight"], before["stem.weight"])


def test_attacks_read_a_sequence_exactly(seed, batch):
    net, (x, y) = sequence(), batch
    upload = share(net, x, y, each=1)
    found = attacks.Recursive().run(upload)
    assert found.labels.tolist() == y.tolist()
    assert pf.metrics.compare(found.images, x)["psnr"].min() > 60
    searched = attacks.IDLG(steps=200, show=False).run(upload)
    assert pf.metrics.compare(searched.images, x)["psnr"].min() > 30
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(144, 32), nn.ReLU(), nn.Linear(32, 5))
    upload = Upload.from_gradients(mlp, by_hand(mlp, x[:1], y[:1]))
    assert upload.model.shape == (1, 12, 12)
    read = attacks.ClosedForm().run(upload)
    assert read.labels == y[0]
    torch.testing.assert_close(read.images, x[:1], rtol=1e-4, atol=1e-5)


def test_soteria_and_entangle_find_the_last_layer_under_any_name(seed, batch):
    net, (x, y) = Mine(), batch
    plain, cut = (share(net, x, y, each=1, defense=d) for d in (None, defenses.Soteria(0.5)))
    zeros = {n: ((t == 0) & (plain.tensors[n] != 0)).sum().item() for n, t in cut.tensors.items()}
    assert zeros.pop("head.out.weight") >= 4 * 5 * 144 and not any(zeros.values())
    guard = {n: torch.zeros_like(t[:1]) for n, t in plain.tensors.items()}
    guarded = share(net, x, y, each=1, defense=defenses.Entangle(guard=guard, ratio="fixed"))
    same = {n: torch.equal(t, plain.tensors[n]) for n, t in guarded.tensors.items()}
    assert not same.pop("head.out.weight") and all(same.values())


def test_defenses_that_take_networks_apart_refuse_others(refused, batch):
    for defense in (defenses.PRECODE(), defenses.FedKL()):
        refused(lambda d=defense: share(sequence(), *batch, defense=d), "pf.models.build")
    wrapped = models.wrap(Mine(), (1, 12, 12))
    edges = torch.linspace(0, 1, 8)
    refused(lambda: attacks.Imprint(wrapped, edges), "is a module of your own")
    refused(lambda: attacks.Recursive().run(share(Mine(), *batch, each=1)), "a plain chain")


@pytest.mark.parametrize("make", [Mine, sequence])
def test_every_attack_and_defense_runs_or_says_one_sentence(seed, make, batch):
    ran, few = [], {"steps": 2, "restarts": 1, "show": False}
    upload = share(make(), *batch, each=1, knows=("labels",))
    for name, kind in attacks.ATTACKS.items():
        takes = {f.name for f in dataclasses.fields(kind)}
        if name in ("grnn", "ggl", "learned"):  # their generators have sides of their own
            continue
        try:
            kind(**{k: v for k, v in few.items() if k in takes}).run(upload)
            ran.append(name)
        except pf.PrivflError as error:
            assert "\n" not in str(error)
    for name in defenses.DEFENSES.keys() - {"loda"}:  # which takes color
        kept = defenses.build("dcs2:steps=2" if name == "dcs2" else name)
        try:
            share(make(), *batch, each=1, defense=kept)
            ran.append(name)
        except pf.PrivflError as error:
            assert "\n" not in str(error)
    assert {"dlg", "idlg", "gs", "unmask", "unprune", "unguard"} < set(ran)
    assert {"dp_gaussian", "dp_sgd", "prune", "soteria", "entangle", "modelcloak"} < set(ran)


def test_the_last_layer_is_dropped_under_its_own_name(seed, batch):
    upload = share(Mine(), *batch, each=1)
    spoiled = {**upload.tensors, "head.out.weight": 1 + upload.tensors["head.out.weight"]}
    x, who = batch[0][:, None], torch.arange(4)
    cost = attacks.IDLG(drop=("head.weight",)).cost(dataclasses.replace(upload, tensors=spoiled))
    assert cost(x, batch[1][:, None], who).max() < 1e-8


def test_resnet18_of_torchvision_as_it_comes(seed):
    torchvision()
    from torchvision.models import resnet18

    net, (x, y) = resnet18(num_classes=10), pf.load("photos").sample(2, seed=1)
    before = frozen(net)
    upload = share(net, x, y, each=1)
    want = by_hand(copy.deepcopy(net).eval(), x[:1], y[:1])
    for t, w in zip(upload.tensors.values(), want, strict=True):
        torch.testing.assert_close(t[0], w, rtol=1e-3, atol=1e-6)
    same = Upload.from_gradients(models.wrap(net, (3, 32, 32)), want)
    first = attacks.GS(steps=2, show=False).run(same)
    found = attacks.GS(steps=12, show=False).run(same)
    assert found.labels == y[0] and found.cost < first.cost
    plan = Plan(eta=0.01, steps=1, batch_size=2)  # batch norm in train mode, two at once
    update = share(net, x, y, plan=plan)
    cost = attacks.GS(steps=2, show=False).run(update).cost
    assert cost.isfinite().all()
    assert all(torch.equal(before[n], t) for n, t in frozen(net).items())


# --- uploads as people have them ---


def forms(net: nn.Module, g: tuple[Tensor, ...]) -> dict[str, object]:
    names = [n for n, _ in net.named_parameters()]
    return {
        "tuple": g,
        "list of arrays": [t.numpy() for t in g],
        "dict": dict(zip(names, g, strict=True)),
        "dict in another order": dict(reversed(list(zip(names, g, strict=True)))),
        "arrays of 64 bits": {n: t.double().numpy() for n, t in zip(names, g, strict=True)},
        "with the clients' axis": [t[None] for t in g],
        "one list a client": [list(g)],
        "one dict a client": [dict(zip(names, g, strict=True))],
    }


FORMS = list(forms(sequence(), tuple(torch.zeros(4))))


@pytest.mark.parametrize("form", FORMS)
def test_gradients_in_every_form_make_the_same_upload(seed, batch, form):
    net = models.wrap(sequence(), (1, 12, 12))
    g = by_hand(net, *batch)
    upload = Upload.from_gradients(net, forms(net, g)[form], labels=batch[1])
    assert (len(upload), upload.batch, upload.kind) == (1, 4, "gradient")
    assert upload.knows.labels.tolist() == [batch[1].tolist()]
    assert list(upload.tensors) == [n for n, _ in net.named_parameters()]
    for t, w in zip(upload.tensors.values(), g, strict=True):
        assert t.dtype == torch.float32 and torch.equal(t[0], w)


def test_several_clients_half_precision_and_labels_in_any_shape(seed, batch):
    net, (x, y) = models.wrap(sequence(), (1, 12, 12)), batch
    each = [by_hand(net, x[k : k + 2], y[k : k + 2]) for k in (0, 2)]
    stacked = [torch.stack(pair).half() for pair in zip(*each, strict=True)]
    for labels in (y, y.view(2, 2), y.numpy(), y.int().tolist()):
        upload = Upload.from_gradients(net, stacked, labels)
        assert upload.knows.labels.tolist() == [[1, 0], [4, 2]] and upload.batch == 2
    assert all(t.dtype == torch.float32 for t in upload.tensors.values())
    assert torch.equal(upload[1].tensors["1.bias"], stacked[-1][1:].float())
    soft = torch.eye(5)[y]
    assert Upload.from_gradients(net, each, soft).knows.labels.shape == (2, 2, 5)
    assert Upload.from_gradients(net, each[0]).knows.labels is None
    assert Upload.from_gradients(net, each[0], labels=3).knows.labels.tolist() == [[3]]


@pytest.mark.parametrize("form", ["modules", "state dicts", "Flower's arrays", "two clients"])
def test_updates_in_every_form(seed, batch, form):
    net, (x, y), plan = Mine().eval(), batch, Plan(0.1, steps=1, batch_size=4, mode="eval")
    after = copy.deepcopy(net)
    for p, g in zip(after.parameters(), by_hand(net, x, y), strict=True):
        p.data -= 0.1 * g
    after.norm.running_mean += 1  # buffers travel in a state dict, but are no part of an upload
    wrapped = models.wrap(net, (1, 12, 12))
    arrays = [[t.numpy() for t in m.state_dict().values()] for m in (net, after)]
    given = {
        "modules": (wrapped, after),
        "state dicts": (net.state_dict(), after.state_dict()),
        "Flower's arrays": arrays,
        "two clients": (net.state_dict(), [after.state_dict(), after]),
    }[form]
    other = models.wrap(Mine(), (1, 12, 12))  # with other weights: those in before= count
    known = torch.cat([y, y]) if form == "two clients" else y
    own = None if form == "modules" else other
    upload = Upload.from_update(*given, plan, 4, own, labels=known)
    assert (upload.kind, upload.mode, upload.batch) == ("update", "eval", 4)
    want = share(net, x, y, plan=plan)
    for n, t in want.tensors.items():
        torch.testing.assert_close(upload.tensors[n][-1:], t, rtol=1e-3, atol=1e-6)
    guess = upload[0].imitator()(x[None], y[None])
    torch.testing.assert_close(
        guess["stem.weight"], upload.tensors["stem.weight"][:1], rtol=1e-3, atol=1e-6
    )
    assert len(upload) == (2 if form == "two clients" else 1)


def test_frozen_weights_may_be_missing_from_the_list(seed, batch):
    net = sequence()
    net[0].requires_grad_(False)
    g = torch.autograd.grad(cross_entropy(net(batch[0]), batch[1]), net[1].parameters())
    upload = Upload.from_gradients(models.wrap(net, (1, 12, 12)), g, batch=4)
    assert list(upload.tensors) == ["1.weight", "1.bias"]


NET = models.wrap(sequence(), (1, 12, 12))
GOOD = {n: torch.zeros_like(p) for n, p in NET.named_parameters()}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Upload(GOOD, "gradient", NET, 1), "no axis of clients in front"),
        (lambda: Upload.from_gradients(NET, list(GOOD.values())[:3]), "got 3 tensors"),
        (lambda: Upload.from_gradients(NET, [*list(GOOD.values())[:3], None]), "'1.bias' is no"),
        (
            lambda: Upload.from_gradients(NET, {**GOOD, "1.bias": torch.zeros(6)}),
            "'1.bias' has shape (6,); the model's is (5,), or (clients, 5)",
        ),
        (lambda: Upload.from_gradients(NET, {"fc.weight": 1}), "no tensor 'fc.weight'; it has"),
        (lambda: Upload.from_gradients(NET, torch.zeros(3)), "gradients is a tensor (3,) of"),
        (lambda: Upload.from_gradients(NET, {}), "one tensor or more"),
        (lambda: Upload.from_gradients(NET, []), "got 0 tensors"),
        (
            lambda: Upload.from_gradients(NET, {"1.bias": np.arange(5)}),
            "holds torch.int64, not floating-point",
        ),
        (lambda: Upload.from_gradients(NET, GOOD, labels=[9]), "labels must lie in 0…4"),
        (lambda: Upload.from_gradients(NET, GOOD, [1, 2], batch=3), "labels must be (1, 3)"),
        (lambda: Upload.from_update(GOOD, GOOD, Plan(), 1), "model=net"),
        (lambda: Upload.from_update({}, GOOD, Plan(), 1, NET), "'0.0.weight' are missing"),
        (lambda: Upload.from_gradients(sequence(), GOOD), "say it: pf.models.wrap(net, shape="),
        (lambda: models.wrap(sequence(), (1, 20, 20)), "cannot take an image of shape (1, 20, 20)"),
        (lambda: models.wrap(sequence(), head="0"), "does not tell the shape"),
        (lambda: models.wrap(sequence(), (1, 12, 12), "fc"), "choose one of: 1"),
        (lambda: models.wrap(nn.Sequential(nn.Conv2d(1, 3, 3)), (1, 9, 9)), "has no nn.Linear"),
        (
            lambda: models.wrap(nn.Sequential(sequence(), nn.Softmax(1)), (1, 12, 12)),
            "is not that of its layer '0.1'",
        ),
        (lambda: models.wrap(nn.Sequential(nn.Flatten(), nn.LazyLinear(3))), "needs one pass"),
        (lambda: models.wrap("lenet"), "net is 'lenet'; it must be an nn.Module"),
        (lambda: models.wrap(Taken(), (1, 12, 12)), "Taken.representation has a name"),
        (lambda: models.build("mlp", (1, 12, 12), 1), "with one class the loss is always 0"),
    ],
)
def test_what_does_not_fit_gets_one_sentence(refused, call, says):
    refused(call, says)


class Taken(nn.Module):
    def __init__(self):
        super().__init__()
        self.representation = nn.Linear(144, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.representation(x.flatten(1))


def test_a_log_softmax_at_the_end_is_the_same_loss(batch):
    net = sequence()
    ends = nn.Sequential(*net, nn.LogSoftmax(1))
    a, b = (share(n, *batch).tensors["1.weight"] for n in (net, ends))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)


# --- images as people have them ---


def test_images_of_8_and_64_bits_and_arrays_are_converted(batch):
    net, (x, y) = sequence(), batch
    bytes_ = (x * 255).round().to(torch.uint8)
    want = share(net, bytes_.float() / 255, y).tensors["1.weight"]
    for images, labels in (
        (bytes_, y),
        (bytes_.numpy(), y.numpy()),
        (bytes_.double() / 255, y.int()),
        (bytes_.float() / 255, y.to(torch.uint8)),
    ):
        torch.testing.assert_close(share(net, images, labels).tensors["1.weight"], want)
    run = pf.FedAvg(net, [(bytes_, y)], 1, test=(bytes_.numpy(), y), show=False)
    assert next(iter(run)).loss > 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda x: x.long(), "images of torch.int64; give floating-point pixels in [0, 1]"),
        (lambda x: x > 0.5, "is a tensor (4, 1, 12, 12) of torch.bool;"),
        (lambda x: x[0], "does not tell the shape"),
        (lambda x: x.expand(-1, 3, -1, -1), "cannot take an image of shape (3, 12, 12)"),
    ],
)
def test_other_images_are_refused(refused, batch, change, says):
    refused(lambda: share(sequence(), change(batch[0]), batch[1]), says)
    x = change(batch[0])
    refused(lambda: pf.fedavg(sequence(), [(x, batch[1])], rounds=1), says)


# --- README ---


def test_your_own_model_in_the_readme_runs_in_four_lines(capsys):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Your own model")[2].partition("\n## ")[0]
    blocks = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 2
    torchvision()
    torch.manual_seed(0)
    (x, y), (photo, label) = pf.load("mnist").sample(1), pf.load("photos").sample(1)
    given = {"pf": pf, "torch": torch, "nn": nn, "cross_entropy": cross_entropy}
    for code, (image, truth) in zip(blocks, ((x, y), (photo, label)), strict=True):
        lines = [line for line in code.splitlines() if line and not line.startswith("#")]
        assert len(lines) <= 4
        here = {**given, "x": image, "y": truth}
        exec(code.replace("steps=300", "steps=100"), here)
        assert here["found"].labels == truth
        assert pf.metrics.compare(here["found"].images, image)["psnr"] > 18


class Warm(nn.Module):
    """A temperature: a weight that is a single number, of shape ()."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU())
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x) / self.temperature)


@pytest.mark.parametrize(
    "defense",
    [
        defenses.Defense(),
        defenses.Prune(0.5, feedback=True),
        defenses.ModelCloak(clip=0.1, sigma=1e-9),
        defenses.DPSGD(clip=0.1, sigma=1e-9),
    ],
)
def test_a_weight_that_is_a_single_number_is_shared_clipped_and_trained(defense):
    torch.manual_seed(0)
    net, x, y = Warm(), torch.rand(4, 1, 6, 6), torch.arange(4)
    upload = share(net, x, y, defense, each=2)
    assert upload.tensors["temperature"].shape == (2,)
    if isinstance(defense, defenses.ModelCloak):
        whole = torch.cat([t.reshape(2, -1) for t in upload.tensors.values()], 1)
        torch.testing.assert_close(whole.norm(dim=1), torch.full((2,), 0.1))
    run = pf.FedAvg(net, [(x, y)] * 2, 1, defense=defense, show=False, fast=True).finish()
    assert run.model.get_parameter("temperature") != 2
