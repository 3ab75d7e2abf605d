"""Every tensor is made where it is needed: the package on a second device, without a GPU.

Each run below is made twice, on the CPU and on the device of ``second.py``, which computes the same
numbers and refuses what a GPU refuses. It must get through, end there, and end with the same bits.
Another test reads the source of every module for tensors that are made without naming a device.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from second import SECOND, Second, WrongDevice, second_device
from torch import Tensor
from toy import make_clients

import privfl_lite
from privfl_lite import FedAvg, Plan, Upload, attacks, defenses, metrics, models, runtime, share
from privfl_lite.attacks import membership
from privfl_lite.attacks.adaptive import loda_decoder as decoder
from privfl_lite.attacks.adaptive import loda_inversion as obscured
from privfl_lite.attacks.adaptive import precode
from privfl_lite.attacks.adaptive.dcs2_matching import candidate_labels, joint
from privfl_lite.attacks.malicious.imprint import normal_edges, quantile_edges
from privfl_lite.client import update_context
from privfl_lite.defenses import ats_search, mixing
from privfl_lite.defenses.loda import LODA, obscured_set
from privfl_lite.models.extractor import Extractor, load_extractor
from privfl_lite.studies import STUDIES
from privfl_lite.wire import Facts

X, Y = make_clients([4], seed=1)[0]
COLOR, COLOR_Y = make_clients([4], (3, 32, 32), seed=2)[0]


def home(*tensors: Tensor) -> list[Tensor]:
    """These tensors on the device that the package uses now."""
    return [t.to(runtime.device()) for t in tensors]


def net(name: str = "lenet", **options: object) -> models.Net:
    return models.build(name, (1, 12, 12), 10, **options)


def sent(defense: object = None, model: str = "lenet", **options: object) -> Upload:
    """The uploads of four clients with one image each."""
    return share(net(model), X, Y, defense, **{"each": 1, **options})


def tensors(found: object) -> Iterator[Tensor]:
    """All tensors in a result, which may be nested."""
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, dict):
        yield from (t for part in found.values() for t in tensors(part))
    elif isinstance(found, list | tuple):
        yield from (t for part in found for t in tensors(part))
    elif isinstance(found, torch.nn.Module):
        yield from found.state_dict().values()
    elif dataclasses.is_dataclass(found):
        yield from tensors(vars(found))


def twice(run: Callable[[], object], atol: float = 0.0) -> None:
    """A run ends on the second device, with the bits that it ends with on the CPU."""
    want = list(tensors(run()))
    with second_device():
        found = list(tensors(run()))
    assert found and len(found) == len(want)
    for a, b in zip(found, want, strict=True):
        assert a.device == SECOND
        torch.testing.assert_close(a.numbers, b, rtol=0, atol=atol, equal_nan=True)


# --- the second device itself ---


def test_second_device_refuses_what_a_gpu_refuses():
    rng = torch.Generator()
    with second_device() as there:
        far, near, index = torch.ones(3, device=there), torch.ones(3), torch.tensor([0, 2])
        for wrong in (
            lambda: far + near,
            lambda: torch.cat([far, near]),
            lambda: torch.stack([far[0], near[0]]),
            lambda: near[index.to(there)],
            lambda: far.index_select(0, index),
            lambda: far.put_(index, near[:2]),
            lambda: torch.rand(3, device=there, generator=rng),
            lambda: far.uniform_(generator=rng),
            lambda: far.numpy(),
            lambda: torch.nn.Linear(3, 2)(far),
        ):
            with pytest.raises(WrongDevice):
                wrong()


def test_second_device_does_what_a_gpu_does():
    rng = torch.Generator().manual_seed(0)
    with second_device() as there:
        far, near = torch.tensor([1.0, 2.0, 3.0], device=there), torch.rand(3, generator=rng)
        far[torch.tensor([0])] = torch.tensor(5.0)  # indices and single numbers from the CPU
        assert (far * torch.tensor(2.0)).tolist() == [10, 4, 6] and far.max().item() == 5
        assert torch.equal(near.to(there).cpu(), near) and far.new_zeros(2).device == there
        assert torch.zeros_like(far).device == there and near.to(far).device == there
        model = torch.nn.Linear(3, 1).to(there).double()
        model(far.double()).sum().backward()
        assert model.weight.grad.device == there and model.weight.grad.tolist() == [[5, 2, 3]]
        slopes = torch.func.vmap(torch.func.grad(lambda t: t**2))(far)
        assert slopes.device == there and slopes.tolist() == [10, 4, 6]
        assert runtime.device() == there
    assert runtime.device() != there and isinstance(far, Second)


# --- what clients send ---

DEFENSES = [
    *("none", "dp_gaussian", "dp_sgd", "prune:feedback=True", "soteria", "soteria:score=paper"),
    *("precode:size=8", "ats", "pogz_fl", "pogz_fl:released=True"),
    *("ca_fl", "ca_fl:decoder=omp,ratio=0.2", "mixup:k=2", "instahide:k=2,crypto=False"),
    *("modelcloak", "modelcloak:mode=dynamic,per=layer", "modelcloak:where=server"),
    *("dcs2:steps=2", "dcs2:steps=2,sensitive=1,ratio='1:2',box=True,far=3.0"),
    *("entangle", "entangle:side=both,score=random", "fedkl:seed=0", "fedkl:seed=0,fresh=True"),
    *("adaptive_cloak", "rounded", "rounded:format=bfloat16"),
    *("dp_gaussian+prune", "secure_sum", "dp_gaussian+secure_sum"),
]


def test_every_defense_is_run():
    assert {d.split(":")[0] for d in DEFENSES} | {"loda"} >= set(defenses.DEFENSES)


def defended(text: str) -> defenses.Defense:
    defense = defenses.build(text)
    if isinstance(defense, defenses.Entangle):  # a gradient has no round, so the guard is given
        (x, y) = make_clients([2], seed=3)[0]
        defense = defenses.Entangle(defense.beta, defense.side, score=defense.score,
                                    guard=share(net(), x, y).tensors)  # fmt: skip
    return defense


def all_facts(defense: defenses.Defense) -> tuple[str, ...]:
    """Names of all that may be granted about the uploads below."""
    memory = defenses.Memory()
    share(net(), X, Y, defense, each=2, mode="train", memory=memory)
    rngs, data = [runtime.generator(0, k) for k in (0, 1)], [(X[:2], Y[:2]), (X[2:], Y[2:])]
    ctx = update_context(defense.model(net()), data, rngs, defense, memory=memory)
    return ("labels", *defense.facts(ctx).names)


@pytest.mark.parametrize("text", DEFENSES)
def test_share(text):
    knows = all_facts(defended(text))

    def run() -> tuple:
        upload = share(net(), X, Y, defended(text), knows, each=2, mode="train")
        return upload.tensors, upload.knows, upload.model

    twice(run)
    plan = Plan(steps=2, batch_size=2)
    twice(lambda: share(net(), X, Y, defended(text), each=2, plan=plan).tensors)


PLAIN = ("none", "dp_sgd", "prune:feedback=True", "entangle", "fedkl:seed=0")


@pytest.mark.parametrize(
    ("text", "fast"), [*((text, True) for text in DEFENSES), *((text, False) for text in PLAIN)]
)
def test_fedavg(text, fast):
    clients, defense = make_clients([4, 3]), defenses.build(text)
    if "modelcloak:where" in text or "fedkl" in text:
        options = {"test": (X, Y)}
    else:
        options = {"share": "gradient"} if "ca_fl" in text else {}

    def run() -> tuple:
        game = FedAvg(net("convnet", width=4) if "none" in text else net(), clients, 2,
                      Plan(batch_size=3, momentum=0.5), defense=defense, fast=fast,
                      keep_uploads=True, show=False, **options)  # fmt: skip
        list(game)
        return game.model, game.personal(1), [r.uploads for r in game.history]

    twice(run)


def test_loda(tmp_path):
    small = models.build("resnet18", (3, 32, 32), 10, width=2)
    for start in (1 - COLOR, "photos", "noise"):

        def run(start: Tensor | str = start) -> tuple:
            loda = LODA(small, c=1.0, steps=2, start=start)
            file = tmp_path / f"{runtime.device()}{start[0] if isinstance(start, str) else 0}"
            return share(small, COLOR, COLOR_Y, loda).tensors, obscured_set(
                loda, *home(COLOR), file
            )

        twice(run)


def test_search_for_ats_policies():
    def run() -> list:
        model = net().to(runtime.device())
        found = ats_search.search(model, model, *home(X, Y), candidates=2, points=3)
        return home(torch.tensor([[c.privacy, c.accuracy] for c in found]))

    twice(run)


# --- attacks ---


def quick(name: str, **options: object) -> object:
    return attacks.ATTACKS[name](**options)


def opened(model: str = "lenet", **options: object) -> Upload:
    return sent(defenses.FedKL(seed=0, key_length=8), model, mode="train", **options)


def two_images() -> Upload:
    """A digit-sized image and a concealed one behind one upload, in 64 bits."""
    model = models.build("lenet", (1, 12, 12), 10)
    return share(model, X[:1], Y[:1], defenses.DCS2(steps=2))


def blended() -> Upload:
    """Gradients of four blends, with the matrix granted."""
    made = mixing.mix(X, Y, runtime.generator(0), k=2)
    upload = share(net("mlp"), made.images, made.labels, each=1)
    return dataclasses.replace(upload, knows=Facts(matrix=home(made.matrix)[0]))


def encoded() -> Upload:
    """Gradients of LODA's encodings, with the extractor granted."""
    extractor = models.build("resnet18", (3, 32, 32), 10, width=2)
    loda = LODA(extractor, c=1.0, steps=2, start="noise")
    mlp = models.build("mlp", (3, 32, 32), 10)
    return share(mlp, COLOR, COLOR_Y, loda, ("extractor",), each=1)


LOCK = ("labels", "key", "lock", "coefficients")
ATTACKS = {
    "closed_form": lambda: quick("closed_form").run(sent(model="mlp")),
    "closed_form, batch": lambda: quick("closed_form").run(share(net("mlp"), X, Y)),
    "spear": lambda: quick("spear").run(share(net("mlp"), X, Y)),
    "components": lambda: quick("components").run(share(net("mlp"), X, Y)),
    "recursive": lambda: quick("recursive").run(sent()),
    "recursive, relu": lambda: quick("recursive").run(share(net(act="relu"), X, Y, each=1)),
    "unlock": lambda: quick("unlock").run(opened()),
    "unlock, eval": lambda: quick("unlock").run(
        sent(defenses.FedKL(seed=0, key_length=8, blocks="all"))
    ),
    "lock_matching": lambda: quick("lock_matching", steps=2, show=False).run(opened()),
    "lock_matching, key": lambda: quick("lock_matching", steps=2, secret="key", show=False).run(
        opened(knows=LOCK)
    ),
    "pair": lambda: quick("pair").run(two_images()),
    "pair_pruned": lambda: quick("pair_pruned", show=False).run(
        share(
            models.build("lenet", (1, 12, 12), 10),
            X[:1],
            Y[:1],
            defenses.DCS2(steps=2) + defenses.Prune(0.5),
            ("mixture", "shares"),
        )
    ),
    "dlg": lambda: quick("dlg", steps=3, restarts=2, show=False).run(sent()),
    "idlg": lambda: quick("idlg", steps=3, show=False).run(sent()),
    "gs": lambda: quick("gs", steps=3, restarts=2, frames=2, show=False).run(sent()),
    "gs, update": lambda: quick("gs", steps=3, show=False).run(
        share(net(), X, Y, each=2, plan=Plan(steps=2, batch_size=2))
    ),
    "epochs": lambda: quick("epochs", steps=4, restarts=2, show=False).run(
        share(net(), X, Y, each=2, plan=Plan(epochs=2, batch_size=1))
    ),
    "grnn": lambda: quick("grnn", steps=2, width=4, latent=8, show=False).run(
        share(models.build("lenet", (1, 16, 16), 10), COLOR[:, :1, :16, :16], COLOR_Y, each=2)
    ),
    "ggl": lambda: quick("ggl", steps=2, restarts=2, tv=1e-4, show=False).run(digits()),
    "ggl, cma": lambda: quick("ggl", optimizer="cma", steps=28, show=False).run(digits()),
    "learned": lambda: quick("learned", draws=8, steps=2, show=False).run(digits()),
    "imprint": lambda: quick("imprint").run(
        share(attacks.Imprint(net(), home(torch.linspace(0.4, 0.6, 8))[0]), X, Y)
    ),
    "fishing": lambda: quick("fishing", attack=attacks.IDLG(steps=3, show=False)).run(
        share(attacks.fished(net(), 1), X, Y)
    ),
    "denoise": lambda: quick("denoise", steps=3, show=False).run(
        sent(defenses.DPGaussian(0.1), knows=("noise",))
    ),
    "denoise_unknown": lambda: quick("denoise_unknown", steps=3, show=False).run(
        sent(defenses.DPGaussian(0.1))
    ),
    "unprune": lambda: quick("unprune", steps=3, show=False).run(sent(defenses.Prune(0.5))),
    "unmask": lambda: quick("unmask", steps=3, show=False).run(sent(defenses.Soteria())),
    "before_draw": lambda: quick("before_draw").run(sent(defenses.PRECODE(8))),
    "unmix": lambda: quick("unmix").run(blended()),
    "unflip": lambda: quick("unflip").run(blended()),
    "measured": lambda: quick("measured", steps=3, show=False).run(
        sent(defenses.CAFL(), knows=("measurement",))
    ),
    "unguard": lambda: attacks.Unguard(attacks.IDLG(steps=2, nonzero=True, show=False)).run(
        sent(defended("entangle"))
    ),
    "unguard_rows": lambda: quick("unguard_rows").run(sent(defended("entangle:side=rows"))),
    "unobscure": lambda: quick("unobscure", steps=2, show=False).run(encoded()),
}


def digits() -> Upload:
    small = torch.nn.functional.interpolate(X, (28, 28))
    return share(models.build("lenet", (1, 28, 28), 10), small, Y, each=1)


def test_every_attack_is_run():
    assert {name.split(",")[0] for name in ATTACKS} == set(attacks.ATTACKS)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name):
    twice(ATTACKS[name], 1e-5)


OTHERS = {
    "labels": lambda: attacks.infer_labels(share(net(), X, Y)),
    "labels, no bias": lambda: attacks.infer_labels(share(net("cloak"), X, Y)),
    "newton": lambda: attacks.gauss_newton(sent(defenses.Prune(0.3))[0], steps=2).images,
    "joint": lambda: joint(
        two_images(), candidate_labels(home(Y[:1])[0], 10, 0.7), 2, 0, {"tv": 1e-4}
    )[:2],
    "read_key": lambda: attacks.read_key(
        sent(defenses.FedKL(seed=0, key_length=8, share_lock=True), mode="train")
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_attack(name):
    twice(OTHERS[name], 1e-5)


@pytest.mark.parametrize("name", precode.ATTACKS)
def test_precode(name):
    def run() -> Tensor:
        upload = sent(defenses.PRECODE(8), "lenet", knows=("labels",))
        return precode.attack(name, upload, 4)

    twice(run, 1e-5)


def test_imprint():
    def run() -> tuple:
        model, edges = net(), quantile_edges(home(X)[0].mean((1, 2, 3)), 8)
        other = normal_edges(0.5, 0.1, 8)
        block = [attacks.Imprint(model, e.cpu()) for e in (edges, other)]
        return edges, [attacks.ImprintReadout().run(share(b, X, Y)) for b in block]

    twice(run)


def test_blends():
    def run() -> tuple:
        m = torch.rand(6, 4, generator=runtime.generator(0)).softmax(1)
        e, m = home((m @ X.flatten(1)).view(6, 1, 12, 12), m)
        x, y = home(X, torch.tensor([1, 4, 2, 7]))
        labels = torch.zeros(6, 10, device=e.device)
        labels[:, y] = m
        upload = share(net("mlp"), *(t.cpu() for t in (e, labels)), each=1)
        return (
            *(attacks.mixup_regression(e, m), attacks.mixup_regression(e, m, (0.0, 1.0), 5)),
            *(attacks.misfit(e, m, x), attacks.pair_scores(e)),
            *(attacks.instahide_decode(e, m, 3, show=False), attacks.soft_labels(upload, e)),
            attacks.align_signs(attacks.sign_search(e, m, 3, 2, show=False)),
            *(attacks.coefficients_from_labels(labels), attacks.assign_by_known(e, labels, x, y)),
        )

    twice(run, 1e-5)


def test_encodings():
    def run() -> tuple:
        g = Extractor(models.build("resnet18", (3, 32, 32), 10, width=2).to(runtime.device()))
        x, e = home(COLOR, 1 - COLOR)
        net = decoder.train_decoder(g, x, e, 2, 2, width=4, blocks=1, show=False)
        return (
            *(obscured.adaptive(g, e, steps=2), obscured.invert(g, [e, x], c=1.0, steps=2)),
            *(net.body, net(e)),
        )

    twice(run, 1e-5)


def test_stored_networks():
    twice(lambda: load_extractor()(*home(COLOR)))
    twice(lambda: attacks.load_generator(12))


@pytest.mark.parametrize("near", [True, False])
def test_membership(near):
    """The candidates may be where they were loaded or where the model is."""

    def run() -> tuple:
        model = net().to(runtime.device())
        x, y = make_clients([6], seed=4)[0]
        if not near:
            x, y = home(x, y)
        oracle = membership.LabelOracle(model)
        y = oracle(x).to(y)  # so that there is a boundary to look for
        found = (
            *(membership.gap_scores(oracle, x, y), membership.loss_scores(model, x, y)),
            membership.likelihood_scores(model, x, y, (X, Y)),
            *(membership.boundary_scores(oracle, x, y, 60, s, 4, X, show=False)
              for s in ("full", "resize")),
        )  # fmt: skip
        assert all(t.device == x.device for part in found[:3] for t in tensors(part))
        return tuple(home(*tensors(found)))

    twice(run)


# --- metrics ---


def test_metrics():
    def run() -> tuple:
        x, x_hat = home(COLOR, (COLOR.flip(0) + 0.1).clamp(0, 1))
        scores = metrics.compare(x_hat, x, match=True)
        rate = metrics.success_rate(scores["mse"], 0.1, False), metrics.summary(scores)["mean"]
        area = metrics.auc(scores["mse"], scores["psnr"]), metrics.bootstrap_interval(scores["mse"])
        assert rate and area
        shown = metrics.compare(x_hat, COLOR)  # found there, compared with what the owner has here
        return scores, metrics.affine_fit(x_hat, x), metrics.l2(x_hat, x), home(*shown.values())

    twice(run)


# --- studies ---

SMALL = {"steps": 2, "images": 4, "evaluations": 3, "rounds": 1, "starts": 1}
CELLS = {  # study: a cell that is quick with such settings, and needs no download
    "matching-gradients/table": {"model": "mlp", "attack": "closed_form"},
    "first-answers/baselines": {"part": "one client", "defense": "frozen"},
    "cutting-gradients/attack": {"part": "search", "attacker": "mask"},
    "dcs2/training": {"data": "mnist", "how": "real"},
    "entanglement/attack": {"part": "variant", "attack": "readout"},
    "loda/extractor": {"cell": "scale", "images": "photos"},
    "matching-gradients/failures": {"cause": "L-BFGS"},
    "fedkl/attack": {"part": "table", "net": "lock", "attack": "DLG"},
    "fedkl/training": {"part": "share"},
    "matching-gradients/first-look": {"attack": "gs"},
    "generative-priors/attack": {"attack": "ggl-adam", "prune": 0.99},
    "generative-priors/generator": {"cell": "grnn"},
    "hiding-the-input/attack": {"part": "digits", "k": 2},
    "malicious-server/bins": {"part": "bins", "data": "mnist"},
    "modelcloak-fixed/attack": {"part": "informed", "noise": 0.5, "attack": "prior, 16 rounds"},
    "modelcloak-fixed/training": {"data": "faces", "where": "client"},
    "what-epsilon-buys/attack": {"net": "lenet", "attack": "likelihood"},
    "changing-the-model/precode": {"part": "train", "draw": "strong"},
    "red-team/repairs": {"part": "attack", "family": "fedkl", "defense": "plain"},
    "through-the-layers/trained": {"act": "sigmoid", "recipe": "untrained"},
}


def small(value: object, key: str = "") -> object:
    """Settings with numbers as small as they may be."""
    if isinstance(value, dict):
        return {k: small(v, key if any(n in key for n in SMALL) else k) for k, v in value.items()}
    limits = [limit for name, limit in SMALL.items() if name in key]
    return min(value, *limits) if limits and type(value) is int else value


@pytest.mark.parametrize("name", CELLS)
def test_study(name):
    """What was found meets the truth, which is on the CPU."""
    study = STUDIES[name]
    settings = small(study.settings("cpu"))
    cell = next(c for c in study.cells(settings) if CELLS[name].items() <= c.items())
    with second_device():
        assert study.compute(settings, cell)


# --- the source ---

FACTORIES = set(
    "arange as_tensor empty eye from_numpy full linspace logspace normal ones rand randint randn "
    "randperm tensor tril_indices triu_indices zeros".split()
)
MOVES = {"to", "tolist", "numpy", "item", "register_buffer"}  # a buffer moves with its module
DRAWS = {"device", "generator", None}  # generators are the CPU's, by design; None: **options
HERE = {  # file or file:function -> why these tensors belong on the CPU
    "assets/readers.py": "files are read to the CPU; share and FedAvg move images",
    "data/dataset.py": "data sets are on the CPU; share and FedAvg move images",
    "data/embedded.py": "as data/dataset.py",
    "data/folder.py": "as data/dataset.py",
    "data/splits.py": "as data/dataset.py",
    "downloads.py": "files are read to the CPU",
    "models/registry.py:_flat_size": "networks are built on the CPU; share and FedAvg move them",
    "contract.py:_images": "as data/dataset.py",
    "wire/plan.py:once": "rows of a shuffle, drawn on the CPU",
    "metrics/statistics.py:success_rate": "scores may be Python numbers",
    "attacks/adaptive/fedkl_recursion.py:run": "one zero for a tensor that was not sent",
    "attacks/malicious/imprint.py:normal_edges": "numbers for a network not yet sent",
    "defenses/dcs2.py:_sensitive": "compares Python numbers: is this client among the defended?",
    "defenses/mixing.py:mix": "who is blended with whom: drawn on the CPU, moved by blend",
    "defenses/mixing.py:flip": "the system's random bits, moved where they are used",
    "defenses/mixing.py:draw": "as in mix",
    "defenses/mixing.py:coefficients": "as in mix",
    "studies/dcs2/training.py:gradient": "the number of a round",
    "studies/dcs2/training.py:train": "statistics of Python numbers",
    "studies/matching_gradients/failures.py:_run": "statistics of Python numbers",
    "studies/proof_bound_audit/canaries.py": "as data/dataset.py",
    "studies/proof_bound_audit/axis.py:torn": "labels of public images; share moves both",
    "studies/proof_bound_audit/axis.py:release": "rows of images that share moves",
    "studies/generative_priors/generator.py:train": "a small network, trained on the CPU",
    "studies/generative_priors/generator.py:_jitter": "as in train",
    "defenses/secure_sum.py:upload": "whole numbers of the protocol, on the CPU until summed",
    "defenses/secure_sum.py:decode": "as in upload; the sum is moved to where the uploads were",
    "defenses/secure_sum.py:masked_uploads": "as in upload, to be looked at",
    "studies/malicious_server/bins.py:laplace_edges": "as normal_edges",
    "studies/malicious_server/bins.py:expected_alone": "statistics of counts on the CPU",
    "pictures.py:unpack": "images out of a file",
}


def unplaced(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(function, call) for each tensor that is made without a device and not moved at once."""

    def walk(node: ast.AST, name: str, moved: bool) -> Iterator[tuple[str, str]]:
        name = node.name if isinstance(node, ast.FunctionDef) else name
        method = node.func.attr if _is_method(node) else ""
        named = {k.arg for k in node.keywords} if isinstance(node, ast.Call) else set()
        if method in FACTORIES and ast.unparse(node.func) == f"torch.{method}":
            empty = bool(node.args) and ast.unparse(node.args[0]) == "0"  # holds nothing
            if not (moved or empty or named & DRAWS):
                yield name, ast.unparse(node)
        moved = moved or method in MOVES or bool(method and "generator" in named)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, name, moved)

    yield from walk(tree, "", False)


def _is_method(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("torch.zeros(3)", True),
        ("x + torch.eye(3)", True),
        ("f(torch.tensor([1, 2]))", True),
        ("torch.zeros(3, device=x.device)", False),
        ("torch.stack([torch.ones(2) for _ in x]).to(x)", False),
        ("torch.randn(3, generator=rng)", False),
        ("torch.empty(3).exponential_(generator=rng)", False),
        ("torch.zeros(0)", False),
        ("x.new_zeros(3)", False),
    ],
)
def test_unplaced_finds_tensors_without_a_device(line, found):
    assert bool(list(unplaced(ast.parse(line)))) is found


def test_package_names_the_device_of_every_tensor():
    """Except in the checks of exercises (teach/), which are small and on the CPU by design."""
    root, left, used = Path(privfl_lite.__file__).parent, [], set()
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root).as_posix()
        for name, call in unplaced(ast.parse(path.read_text(encoding="utf-8"))):
            reason = {file, f"{file}:{name}"} & set(HERE)
            used |= reason
            if not reason and not file.startswith("teach/"):
                left.append(f"{file}:{name}: {call}")
    assert not left, "\n".join(left)
    assert used == set(HERE)  # no reason without a tensor
