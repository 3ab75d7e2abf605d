"""The laboratory's engine (privfl_lite/teach/js/engine) computes what the package computes.

Node runs it (tests/js/ask.mjs); PyTorch, in doubles, is the reference. Skipped without Node.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load
from torch import Tensor

import privfl_lite as pf
from privfl_lite.attacks.analytic.closed_form import row_quotients
from privfl_lite.attacks.labels import infer_label, infer_labels
from privfl_lite.attacks.matching.terms import total_variation
from privfl_lite.attacks.solvers import adam
from privfl_lite.gradients import flat
from privfl_lite.runtime import generator
from privfl_lite.teach import export

ASK = Path(__file__).resolve().parents[1] / "js" / "ask.mjs"
ENGINE = export.JS / "engine"
ACTS = ("sigmoid", "tanh", "relu")
CASES = [(name, act) for name in export.NETS for act in ACTS]
Q = dict[str, object]

if not shutil.which("node"):
    pytest.skip(
        "Node is not installed, which runs the laboratory's engine", allow_module_level=True
    )


def ask(*questions: Q) -> list:
    done = subprocess.run(
        ["node", ASK], input=json.dumps(questions), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def of(name: str, act: str, seed: int = 0) -> Q:
    return {"name": name, "act": act, "seed": seed}


def some(name: str, count: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Real pictures in doubles, and labels."""
    kinds = export.pictures()
    x = kinds["photos" if name.endswith("color") else "digits"][0][:count].double()
    return x, torch.randint(10, (count,), generator=generator(seed))


def net_of(name: str, act: str, seed: int = 0) -> pf.models.Net:
    return export.build(name, seed, act).double()


def flat1(tensors: dict[str, Tensor]) -> list[float]:
    """One client's tensors in a row."""
    return flat(tensors)[0].tolist()


def near(found: list[float] | float, wanted: Tensor, relative: float) -> None:
    """The largest difference, as a part of the largest entry."""
    gap = (torch.tensor(found, dtype=torch.double).flatten() - wanted.flatten()).abs().max()
    assert gap <= relative * wanted.abs().max(), f"{gap / wanted.abs().max():.1e} > {relative}"


# --- networks ---


@pytest.mark.parametrize("name", export.NETS)
def test_weights_are_those_that_the_package_builds(name):
    seeds = (0, 5)
    for act in ACTS:
        found = ask(*({"do": "weights", **of(name, act, s)} for s in seeds))
        for weights, seed in zip(found, seeds, strict=True):
            built = torch.cat([p.flatten() for p in export.build(name, seed, act).parameters()])
            near(weights, built.double().detach(), 1e-7)
        assert found[0] != found[1]


def test_the_pack_is_up_to_date():
    """Bytes of pictures may differ by rounding on another machine; networks may not."""
    stored, made = export.PACK.read_bytes(), export.pack()
    assert _head(stored) == _head(made), "run: python -m privfl_lite.teach.export"
    there = load(stored)
    for kind, x in load(made).items():
        assert (x.int() - there[kind].int()).abs().max() <= 2, kind
    assert len(stored) < 50_000


def _head(pack: bytes) -> dict:
    length = int.from_bytes(pack[:8], "little")
    return json.loads(pack[8 : 8 + length])


def test_pictures_are_named():
    (found,) = ask({"do": "pictures"})
    kinds = export.pictures()
    assert [p["label"] for p in found] == [w for _, words in kinds.values() for w in words]
    assert {tuple(p["shape"]) for p in found} == {export.GRAY, export.COLOR}


# --- gradients and costs ---


@pytest.mark.parametrize(("name", "act"), CASES)
def test_gradient_is_torchs(name, act):
    net, questions, wanted = net_of(name, act), [], []
    for count in (1, 3):
        x, y = some(name, count)
        questions.append({"do": "gradient", **of(name, act), "x": _list(x), "y": y.tolist()})
        loss = torch.nn.functional.cross_entropy(net(x), y)
        g = torch.autograd.grad(loss, [*net.parameters()])
        wanted.append((loss.detach(), torch.cat([t.flatten() for t in g])))
    for found, (loss, g) in zip(ask(*questions), wanted, strict=True):
        near(found["loss"], loss, 1e-6)
        near(found["g"], g, 1e-6)


def _list(x: Tensor) -> list[float]:
    return x.flatten().tolist()


COSTS = {  # engine's settings: the package's attack, and what it is granted
    "l2": ({}, pf.attacks.IDLG()),
    "cosine": ({"distance": "cosine", "tv": 1e-4}, pf.attacks.GS()),
    "nonzero": ({"nonzero": True, "tv": 0.1}, pf.attacks.Unprune()),
    "drop": ({"drop": ["head.weight"]}, pf.attacks.Unmask()),
    "likelihood": ({"distance": "likelihood", "std": 0.02, "tv": 3e3}, pf.attacks.Denoise()),
    "clip": ({"distance": "likelihood", "std": 0.02, "tv": 3e3, "clip": 0.4}, pf.attacks.Denoise()),
}
DEFENDED = {
    "nonzero": pf.defenses.Prune(0.9),
    "drop": pf.defenses.Soteria(0.6),
    "likelihood": pf.defenses.DPGaussian(0.02),
    "clip": pf.defenses.ModelCloak(clip=0.4, sigma=0.05),
}


@pytest.mark.parametrize(("name", "act"), CASES)
def test_costs_and_their_slopes_are_torchs(name, act):
    x, y = some(name, 2)
    net, questions, wanted = net_of(name, act), [], []
    for kind, (how, attack) in COSTS.items():
        knows = {"likelihood": ("noise",), "clip": ("noise", "clip")}.get(kind, ())
        upload = pf.share(net, x, y, defense=DEFENDED.get(kind), knows=knows)
        start = torch.rand(1, *x.shape, generator=generator(2), dtype=torch.double)
        start.requires_grad_()
        cost = attack.cost(upload)(start, y[None], torch.tensor([0])).sum()
        cost = cost + how.get("tv", 0) * total_variation(start).sum()
        wanted.append((cost.detach(), *torch.autograd.grad(cost, start)))
        common = {**of(name, act), "x": _list(start.detach()), "labels": y.tolist()}
        questions.append({"do": "objective", **common, "sent": flat1(upload.tensors), "how": how})
    for found, (cost, slope) in zip(ask(*questions), wanted, strict=True):
        near(found["f"], cost, 1e-5)
        near(found["g"], slope, 1e-5)


# --- what is read off ---


@pytest.mark.parametrize(("name", "act"), CASES)
def test_labels_are_the_packages(name, act):
    net, questions, wanted = net_of(name, act), [], []
    probes = torch.rand(64, *net.shape, generator=generator(0))  # those of infer_labels
    x, y = some(name, 8)
    for i in range(4):
        upload = pf.share(net, x[i : i + 1], y[i : i + 1])
        common = {**of(name, act), "sent": flat1(upload.tensors)}
        questions.append({"do": "label", **common})
        wanted.append(int(infer_label(upload)))
        questions.append({"do": "labels", **common, "count": 1, "probes": _list(probes)})
        wanted.append(infer_labels(upload).flatten().tolist())
    batch = pf.share(net, x, y)
    common = {"do": "labels", **of(name, act), "sent": flat1(batch.tensors)}
    questions.append({**common, "count": 8, "probes": _list(probes)})
    wanted.append(infer_labels(batch).flatten().tolist())
    assert ask(*questions) == wanted


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", ["dense-gray", "dense-color"])
def test_row_quotients_are_the_packages(name, act):
    net = net_of(name, act)
    x, y = some(name, 3)
    upload = pf.share(net, x, y)
    g = upload.gradients()
    rows = row_quotients(g["features.1.weight"], g["features.1.bias"])[0]
    common = {**of(name, act), "sent": flat1(upload.tensors)}
    (found,) = ask({"do": "quotients", **common})
    for mine, row in zip(found, rows, strict=True):
        if row.isnan().any():
            assert set(mine) == {None}  # NaN in JSON
        else:
            assert mine == row.tolist()  # exactly


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("act", ACTS)
def test_closed_form_finds_what_the_package_finds(act, count):
    net = net_of("dense-gray", act)
    x, y = some("dense-gray", count)
    upload = pf.share(net, x, y)
    (found,) = ask(
        {"do": "closed", **of("dense-gray", act), "sent": flat1(upload.tensors), "count": count}
    )
    package = pf.attacks.ClosedForm().run(upload)
    near(found["images"], package.images, 1e-12)
    assert math.isclose(1 - found["used"] / 64, package.cost.item(), abs_tol=1e-9)
    read = pf.metrics.compare(package.images, x, match=True)["psnr"] > 60
    assert read.any() == (count == 1 or act == "relu"), "lone units need a ReLU"


def test_all_rows_together_see_through_noise():
    net = net_of("dense-gray", "relu")
    x, y = some("dense-gray", 1)
    upload = pf.share(net, x, y, defense=pf.defenses.DPGaussian(0.01))
    common = {**of("dense-gray", "relu"), "sent": flat1(upload.tensors)}
    rows, one = ask({"do": "rows", **common}, {"do": "closed", **common, "count": 1})
    g = upload.gradients()
    weight, bias = g["features.1.weight"][0], g["features.1.bias"][0]
    near(rows, bias @ weight / bias.square().sum(), 1e-9)
    found = torch.tensor([rows, one["images"]], dtype=torch.double).view(2, *x.shape[1:])
    together, alone = pf.metrics.compare(found, x.expand_as(found))["psnr"]
    assert together > alone + 6


def test_a_pixel_is_taken_from_the_rows_that_sent_it():
    net = net_of("dense-gray", "tanh")
    x, y = some("dense-gray", 1)
    upload = pf.share(net, x, y, defense=pf.defenses.Prune(0.9))
    g = upload.gradients()
    weight, bias = g["features.1.weight"][0], g["features.1.bias"][0][:, None]
    below = (bias**2 * (weight != 0)).sum(0)
    wanted = torch.where(below > 0, (bias * weight).sum(0) / below.clamp(min=1e-300), 0.0)
    (rows,) = ask({"do": "rows", **of("dense-gray", "tanh"), "sent": flat1(upload.tensors)})
    near(rows, wanted, 1e-9)


# --- defenses ---


@pytest.mark.parametrize(("name", "act"), CASES)
def test_defended_uploads_are_the_packages(name, act):
    net = net_of(name, act)
    x, y = some(name, 2)
    clean = pf.share(net, x, y)
    rng = generator(0, 0)  # the noise of share(seed=0), tensor by tensor
    noise = torch.cat(
        [torch.randn(t.shape[1:], generator=rng).flatten() for t in clean.tensors.values()]
    )
    pairs = {
        "noise": (pf.defenses.DPGaussian(0.03), {"sigma": 0.03}),
        "cloak": (pf.defenses.ModelCloak(clip=0.5, sigma=0.2), {"clip": 0.5, "sigma": 0.2}),
        "prune": (pf.defenses.Prune(0.83), {"rate": 0.83}),
        "soteria": (pf.defenses.Soteria(0.6), {"rate": 0.6}),
        "none": (None, {}),
    }
    common = {"do": "defend", **of(name, act), "g": flat1(clean.tensors), "x": _list(x)}
    settings = [(kind, s) for kind, (_, s) in pairs.items()] + [("sign", {})]
    questions = ({**common, "kind": k, "settings": s, "noise": noise.tolist()} for k, s in settings)
    *found, sign = ask(*questions)
    for sent, (defense, _) in zip(found, pairs.values(), strict=True):
        near(sent, flat(pf.share(net, x, y, defense=defense).tensors)[0], 1e-9)
    assert sign == flat(clean.tensors)[0].sign().tolist()


# --- searches ---


def starts(count: int, size: int) -> Tensor:
    return torch.randn(count, size, generator=generator(3))


def test_lbfgs_reaches_what_the_packages_reaches():
    """16 digits, 300 evaluations each, from starts of the same law: medians within 3 dB."""
    digits, net = pf.load("mnist"), export.build("lenet-gray", 0, "sigmoid")
    x, y = digits.sample(16, seed=5)
    uploads = pf.share(net, x, y, each=1)
    common = {"do": "search", **of("lenet-gray", "sigmoid"), "how": {}, "solver": "lbfgs"}
    questions = [
        {**common, "x": z.tolist(), "sent": flat1(u.tensors), "labels": [int(c)], "steps": 300}
        for z, u, c in zip(starts(16, 784), uploads, y, strict=True)
    ]
    answers = ask(*questions)
    found = torch.tensor([a["x"] for a in answers]).view_as(x)
    package = pf.attacks.IDLG(steps=300, show=False).run(uploads)
    ours, theirs = (pf.metrics.compare(i, x)["psnr"].median() for i in (found, package.images))
    assert all(a["evaluations"] <= 300 for a in answers) and package.evaluations <= 301
    assert abs(ours - theirs) < 3 or ours > theirs, f"{ours:.1f} dB against {theirs:.1f} dB"
    assert theirs > 40


def test_signed_adam_walks_as_the_packages():
    """From one start, in doubles: the same steps until rounding flips a sign."""
    net = net_of("lenet-gray", "relu")
    x, y = some("lenet-gray", 1)
    upload = pf.share(net, x, y)
    start = torch.rand(1, *x.shape, generator=generator(4)).double()
    attack = pf.attacks.GS(steps=40, show=False)
    cost = attack.cost(upload)

    def objective(z: Tensor, rows: Tensor) -> Tensor:
        images = z.view(1, *x.shape)
        return cost(images, y[None], rows) + 1e-4 * total_variation(images)

    package = adam(objective, start.view(1, -1), range(40), 40, project=lambda z: z.clamp_(0, 1))
    how = {"distance": "cosine", "tv": 1e-4}
    question = {"do": "search", **of("lenet-gray", "relu"), "how": how, "solver": "adam"}
    (found,) = ask(
        {
            **question,
            "x": _list(start),
            "sent": flat1(upload.tensors),
            "labels": y.tolist(),
            "steps": 40,
        }
    )
    near(found["f"], package.cost[0], 1e-6)
    near(found["x"], package.z[0], 1e-6)


@pytest.mark.parametrize("kind", ["prune", "soteria"])
def test_who_knows_the_defense_gets_further(kind):
    defense, how = {
        "prune": (pf.defenses.Prune(0.9), {"nonzero": True, "tv": 0.1}),
        "soteria": (pf.defenses.Soteria(0.6), {"drop": ["head.weight"]}),
    }[kind]
    net = net_of("lenet-gray", "sigmoid")
    x, y = some("lenet-gray", 3)
    questions = []
    for i, z in enumerate(starts(3, 784)):
        upload = pf.share(net, x[i : i + 1], y[i : i + 1], defense=defense)
        common = {"do": "search", **of("lenet-gray", "sigmoid"), "solver": "lbfgs", "steps": 250}
        common |= {"x": z.tolist(), "sent": flat1(upload.tensors), "labels": [int(y[i])]}
        questions += [{**common, "how": {}}, {**common, "how": how}]
    found = torch.tensor([a["x"] for a in ask(*questions)]).double().view(3, 2, *x.shape[1:])
    plain, informed = (pf.metrics.compare(found[:, k], x)["psnr"].median() for k in (0, 1))
    assert plain < 12 and informed > 18, f"{plain:.1f} and {informed:.1f} dB"


# --- scores and random numbers ---


def test_scores_are_the_packages_in_the_best_order():
    x, _ = some("lenet-gray", 5)
    found = (x[[3, 0, 4, 1, 2]] + 0.1 * torch.randn(x.shape, generator=generator(6))).double()
    (answer,) = ask({"do": "score", "found": _list(found), "x": _list(x), "count": 5})
    assert answer["order"] == [1, 3, 4, 0, 2]
    wanted = pf.metrics.compare(found, x, match=True)["psnr"]
    near(answer["psnr"], wanted, 1e-9)


def test_noise_is_standard_normal():
    (z,) = ask({"do": "normals", "seed": 7, "count": 100_000})
    z = torch.tensor(z)
    quantiles = torch.tensor([0.01, 0.1, 0.5, 0.9, 0.99])
    wanted = torch.distributions.Normal(0, 1).icdf(quantiles)
    assert (z.quantile(quantiles) - wanted).abs().max() < 0.03
    assert abs((z[1:] * z[:-1]).mean()) < 0.01


def test_the_engine_is_small_and_has_no_dependency():
    files = sorted(ENGINE.glob("*.js"))
    lines = sum(len(f.read_text(encoding="utf-8").splitlines()) for f in files)
    assert len(files) >= 8 and lines < 900
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not [s for s in _imports(text) if not s.startswith("./")], file.name
        assert "fetch(" not in text and "XMLHttpRequest" not in text, file.name


def _imports(text: str) -> list[str]:
    return re.findall(r'(?:from|import)\s*\(?"([^"]+)"', text)
