"""The leak report: what it counts, who it lets try and for how long, what it says, and its page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import privfl_lite as pf
from privfl_lite.leak import LeakReport, attackers
from privfl_lite.leak.record import SCHEMA
from privfl_lite.leak.structure import lone_rows, rank_of

ROOT = Path(__file__).resolve().parents[2]
PRIVFL = [sys.executable, "-m", "privfl_lite.cli"]
QUICK = {"evaluations": 20, "show": False}


@pytest.fixture(scope="module")
def one(digits) -> LeakReport:
    """Of one digit behind a sigmoid LeNet's gradient, with the truth."""
    x, y = digits.sample(1, seed=3)
    net = pf.models.build("lenet", digits)
    gallery = digits.x_test[:20]
    return pf.report(net, pf.share(net, x, y), data=(x, y), gallery=gallery, **QUICK)


@pytest.fixture(scope="module")
def four(digits) -> LeakReport:
    """Of four digits behind a ReLU network that begins with a dense layer."""
    x, y = digits.sample(4, seed=3)
    net = pf.models.build("mlp", digits)
    return pf.report(net, pf.share(net, x, y), data=(x, y), **QUICK)


@pytest.fixture(scope="module")
def nothing(digits) -> LeakReport:
    """Of ten digits behind three convolutions, with next to no budget: nothing is found."""
    x, y = digits.sample(10, seed=3)
    net = pf.models.build("lenet", digits)
    return pf.report(net, pf.share(net, x, y), data=(x, y), **QUICK)


def attempt(report: LeakReport, name: str):
    return next(a for a in report.attempts if a.attack == name)


# --- what is found, and what is said ---


def test_an_upload_that_leaks_is_found_and_scored_by_the_truth(one):
    hit = attempt(one, "recursive")
    assert one.verdict.startswith("Found: 1 of 1 image") and one.found[0] == hit
    assert hit.outcome == "found" and hit.psnr[0] > 60 and hit.ranks == (1,) and hit.letter == "A"
    assert hit.misfit[0] < 1e-4 and hit.cosine[0] > 0.999999
    assert one.structure["labels"]["level"] == "exact" and one.structure["labels"]["right"] == 1


def test_without_the_truth_the_upload_judges(one, digits):
    x, y = digits.sample(1, seed=3)
    net = pf.models.build("lenet", digits)
    blind = pf.report(net, pf.share(net, x, y), attacks=["recursive", "gs"], **QUICK)
    assert blind.verdict.startswith("Found: an image that reproduces the upload to")
    assert attempt(blind, "recursive").psnr == () and blind.truth is None
    assert attempt(blind, "gs").outcome == "not found"
    assert attempt(blind, "recursive").misfit == attempt(one, "recursive").misfit


def test_misfit_is_what_the_same_client_would_have_sent_apart_from_what_was_seen(digits):
    x, y = digits.sample(2, seed=1)
    net = pf.models.build("lenet", digits)
    upload, other = pf.share(net, x[:1], y[:1]), pf.share(net, x[1:], y[1:])
    found = pf.attacks.Reconstruction(x[1:], y[1:], torch.zeros(1))
    from privfl_lite.leak.scores import consistency

    misfit, cosine = consistency(upload, found)
    a, b = (torch.cat([t.flatten() for t in u.tensors.values()]) for u in (upload, other))
    assert misfit[0] == pytest.approx(float((a - b).norm() / a.norm()), rel=1e-3)
    assert cosine[0] == pytest.approx(float(a @ b / a.norm() / b.norm()), rel=1e-3)


def test_a_batch_is_unmixed_and_each_image_gets_its_own_label(four, digits):
    _, y = digits.sample(4, seed=3)
    hit = attempt(four, "spear")
    assert hit.outcome == "found" and min(hit.psnr) > 60 and hit.misfit[0] < 1e-4
    assert hit.labels == tuple(y.tolist())  # in the order of the truth, as the images are
    assert attempt(four, "recursive").outcome == "does not apply"
    assert "needs 1 image, 1 step; got 4, 1" in attempt(four, "recursive").says


def test_it_says_not_found_and_never_better(nothing, one, four):
    tried = [a.attack for a in nothing.attempts if a.ran]
    assert nothing.verdict.startswith(f"Not found by {', '.join(tried)} within")
    assert "this is no proof of safety" in nothing.verdict and not nothing.found
    for report in (nothing, one, four):
        for text in (repr(report), report.to_html(), report.to_json()):
            assert not re.search(r"\b(safe|safely|protected)\b", text, re.IGNORECASE)


def test_nobody_who_applies_is_no_good_news_either(digits):
    x, y = digits.sample(4, seed=3)
    net = pf.models.build("lenet", digits)
    made = pf.report(net, pf.share(net, x, y), attacks=["recursive", "closed_form"], **QUICK)
    assert made.verdict.startswith("Not found: none of 2 attackers applies")
    assert "no proof of safety" in made.verdict


def test_a_small_misfit_is_nothing_where_a_blind_guess_has_it_too():
    """Behind 13 untrained layers in eval mode the upload hardly depends on the image."""
    net = pf.models.build("vgg16", (3, 32, 32), 10)
    x = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    made = pf.report(net, pf.share(net, x, torch.tensor([2])), attacks=["gs"], **QUICK)
    (hit,) = made.attempts
    assert hit.misfit[0] < 0.01 and made.structure["blind_misfit"] < 0.01
    assert hit.outcome == "not found" and made.verdict.startswith("Not found by gs")


def test_several_uploads_are_counted_one_by_one(digits):
    x, y = digits.sample(3, seed=3)
    net = pf.models.build("lenet", digits)
    made = pf.report(net, pf.share(net, x, y, each=1), attacks=["recursive"], **QUICK)
    assert made.verdict.startswith("Found: 3 images that reproduce 3 of 3 uploads to")


# --- structure ---


def test_layers_are_counted_as_the_recursion_counts_them(one):
    counted = one.structure["recursion"]
    assert counted["on"] == "this upload" and "every layer's equations" in counted["says"]
    rows = {r["name"]: r for r in one.structure["layers"]}
    assert list(rows) == ["features.0", "features.2", "features.4", "head"]
    for name, step in counted["steps"].items():
        row = rows[name]
        assert row["measured"] and row["inputs"] == step["unknowns"] and row["left"] == 0
    assert rows["features.0"]["inputs"] == 14 * 14
    assert any("Sigmoid × 3" in said for said in one.structure["between"])


def test_counts_from_shapes_are_bounds_of_what_is_measured(digits):
    """Outputs · k² equations for each input channel, then one for each output."""
    x, y = digits.sample(1)
    net = pf.models.build("lenet", digits)
    upload = pf.share(net, x, y)
    from privfl_lite.leak.structure import structure

    steps = pf.attacks.Recursive().run(upload).details["steps"][0]
    rows = structure(upload, {"steps": {}, "on": "", "says": ""})["layers"]
    bounds = {r["name"]: r for r in rows}
    assert len(steps) == 3
    for step in steps:
        row = bounds[step.layer]
        assert not row["measured"] and step.by_gradient <= row["by_gradient"]
        assert step.by_gradient + step.by_output <= row["by_gradient"] + row["by_output"]


@pytest.mark.parametrize("batch", [2, 3, 5])
def test_the_rank_of_a_dense_gradient_is_the_batch(digits, batch):
    x, y = digits.sample(batch, seed=2)
    upload = pf.share(pf.models.build("mlp", digits), x, y)
    assert rank_of(upload.tensors["features.1.weight"][0]) == batch
    made = pf.report(upload.model, upload, attacks=["closed_form"], **QUICK)
    assert f"of rank {batch} (at most 64)" in made.structure["layers"][0]["says"]


def test_lone_rows_are_units_that_are_on_for_one_image(digits):
    """Those of images with two such units or more: a single one has nobody to agree with."""
    x, y = digits.sample(3, seed=2)
    net = pf.models.build("mlp", digits)
    sent = pf.share(net, x, y).tensors
    on = net.features(x) > 0  # (3, units)
    alone = on[:, on.sum(0) == 1].sum(1)
    want = int(alone[alone > 1].sum())
    assert want > 5 and lone_rows(sent["features.1.weight"], sent["features.1.bias"]) == want


def test_batch_norm_and_pooling_are_told_with_their_mode(digits):
    x, y = digits.sample(2)
    net = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(4 * 9, 10)),
    )
    for mode, says in (("eval", "an affine map"), ("train", "the batch's own")):
        upload = pf.share(net, x, y, mode=mode)
        made = pf.report(upload.model, upload, attacks=["closed_form"], **QUICK)
        between = " ".join(made.structure["between"])
        assert says in between and "1 × MaxPool2d" in between and "ReLU × 1" in between


def test_labels_without_the_last_layer_cannot_be_read(digits):
    x, y = digits.sample(1)
    upload = pf.share(pf.models.build("mlp", digits), x, y)
    kept = {n: t for n, t in upload.tensors.items() if not n.startswith("head")}
    made = pf.report(upload.model, replace(upload, tensors=kept), attacks=["gs"], **QUICK)
    assert made.structure["labels"]["level"] == "not readable"
    assert made.sent["missing"] == ["head.weight", "head.bias"]


# --- what people have ---


def test_gradients_weights_and_changes_are_told_apart(digits, refused):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(196, 16), nn.ReLU(), nn.Linear(16, 10))
    x, y = digits.sample(1)
    loss = cross_entropy(net(x), y)
    gradient = torch.autograd.grad(loss, list(net.parameters()))
    after = {n: p - 0.1 * g for (n, p), g in zip(net.named_parameters(), gradient, strict=True)}
    change = [-0.1 * g for g in gradient]
    plan = pf.Plan(eta=0.1, steps=1, batch_size=1)
    asked = {"data": (x, y), "attacks": ["closed_form"], **QUICK}
    made = [
        pf.report(net, gradient, **asked),
        pf.report(net, after, plan, **asked),
        pf.report(net, change, plan, **asked),
    ]
    taken = [m.sent["taken_for"].split()[0] for m in made]
    assert taken == ["gradients", "weights", "the"]
    assert all(m.attempts[0].psnr[0] > 60 for m in made)
    refused(lambda: pf.report(net, after, **asked), "plan=pf.Plan(eta=")
    refused(lambda: pf.report(net, gradient, plan, kind="gradient", **asked), "need no plan=")
    refused(lambda: pf.report(net, gradient, batch=2, **asked), "data= holds 1 images, but 2")
    upload = pf.Upload.from_gradients(net, gradient)
    refused(lambda: pf.report(net, upload, batch=2, **asked), "a batch and labels of its own")
    refused(lambda: pf.report(net, gradient, attacks=["magic"]), "unknown attack 'magic'")
    refused(lambda: pf.report(net, gradient, defense="cloak"), "unknown defense 'cloak'")
    refused(lambda: pf.report(net, gradient, gallery=x), "gallery= is for identification")


# --- budget and interruption ---


def test_the_seconds_are_shared_by_those_who_search(digits, monkeypatch):
    """Algebra may take all that is left; of the rest the first of two searches has half."""
    upload = pf.share(pf.models.build("lenet", digits), *digits.sample(1, seed=3))
    trials = attackers.Trials(upload, attackers.Budget(10.0), 0, None, None, False)
    clock = iter([0.0, 0.0, 2.0, 7.0])  # begun; then before each attempt
    monkeypatch.setattr(attackers.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(attackers.Trials, "attempt", lambda _, name, share: (name, share))
    shares = list(trials.run(["recursive", "idlg", "gs"]))
    assert shares == [("recursive", 10.0), ("idlg", 4.0), ("gs", 3.0)]


def test_a_clock_decides_how_many_evaluations_there_are(digits):
    x, y = digits.sample(1, seed=3)
    net = pf.models.build("lenet", digits)
    made = pf.report(net, pf.share(net, x, y), seconds=20, attacks=["gs"], show=False)
    (search,) = made.attempts
    assert search.ran and search.evaluations >= 10 and search.seconds < 30


def test_a_search_for_which_not_ten_evaluations_fit_is_not_run(digits, monkeypatch):
    x, y = digits.sample(1, seed=3)
    net = pf.models.build("lenet", digits)
    monkeypatch.setattr(attackers.Trials, "pace", lambda *_: (5.0, 5.0))
    made = pf.report(net, pf.share(net, x, y), seconds=20, attacks=["gs"], show=False)
    assert made.attempts[0].outcome == "not tried"
    assert "one evaluation takes 5 s here, so 2 fit" in made.attempts[0].says


def test_relu_gives_the_clock_to_the_search_that_is_made_for_it(digits):
    x, y = digits.sample(1)
    weights = {}
    for name in ("lenet", "mlp"):
        upload = pf.share(pf.models.build(name, digits), x, y)
        trials = attackers.Trials(upload, attackers.Budget(1.0), 0, None, None, False)
        weights[name] = [trials.weight(n) for n in ("recursive", "idlg", "gs")]
    assert weights == {"lenet": [0, 3, 3], "mlp": [0, 1, 3]}


def test_the_same_seed_and_evaluations_make_the_same_report(one, digits):
    x, y = digits.sample(1, seed=3)
    net = pf.models.build("lenet", digits)
    again = pf.report(net, pf.share(net, x, y), data=(x, y), gallery=digits.x_test[:20], **QUICK)
    for a, b in zip(one.attempts, again.attempts, strict=True):
        assert a.outcome == b.outcome and a.misfit == b.misfit and a.psnr == b.psnr
        assert a.images is None or torch.equal(a.images, b.images)
    assert one.changes == again.changes


def test_ctrl_c_keeps_what_was_found(digits, monkeypatch, capsys):
    x, y = digits.sample(1, seed=3)
    net = pf.models.build("lenet", digits)

    def stop(self, upload, seed=0):
        raise KeyboardInterrupt

    monkeypatch.setattr(pf.attacks.GS, "run", stop)
    names = ["recursive", "gs", "dlg"]
    made = pf.report(net, pf.share(net, x, y), attacks=names, **QUICK)
    assert made.interrupted and made.verdict.startswith("Found:") and "stopped" in made.verdict
    assert [a.outcome for a in made.attempts] == ["found", "not tried", "not tried"]
    assert "stopped at gs" in capsys.readouterr().err
    assert json.loads(made.to_json())["interrupted"] is True and "recursive" in made.to_html()


# --- ε, and what would change the verdict ---


def test_epsilon_is_that_of_the_account_and_the_bound_belongs_to_it(digits):
    x, y = digits.sample(1)
    net = pf.models.build("lenet", digits)
    cloak = pf.defenses.ModelCloak(clip=1.0, sigma=8.0)
    upload = pf.share(net, x, y, cloak)
    made = pf.report(net, upload, defense=cloak, attacks=["recursive"], **QUICK)
    run = pf.privacy.Training(1, tensors={n: tuple(t.shape[1:]) for n, t in upload.tensors.items()})
    want = pf.privacy.account(cloak, run)
    assert made.privacy["epsilon"]["value"] == want.value
    bound = made.privacy["bound"]["success"]
    assert 0.1 < bound < 1 and f"probability {bound:.2f} at most" in made.privacy["says"]
    none = pf.report(net, upload, defense="prune", attacks=["recursive"], **QUICK)
    assert none.privacy["epsilon"]["value"] is None and none.privacy["bound"] is None
    assert none.privacy["says"].startswith("no ε:")
    bare = pf.report(net, upload, attacks=["recursive"], **QUICK)
    assert bare.privacy["says"].startswith("no mechanism was named")


def test_the_attacker_who_knows_the_named_defense_is_asked(digits):
    x, y = digits.sample(1)
    net = pf.models.build("lenet", digits)
    prune = pf.defenses.Prune(0.5)
    made = pf.report(net, pf.share(net, x, y, prune), defense=prune, **QUICK)
    assert "unprune" in [a.attack for a in made.attempts]
    assert "unprune" not in made.settings["not_asked"] and "dlg" in made.settings["not_asked"]


def test_changes_are_this_uploads_own(one, four, nothing):
    batch, total, steps, noise = one.changes
    assert "8 images" in batch and "got 8, 1" in batch and "got 1, 5" in steps
    assert "8 clients like this one" in total and "keeps to the protocol" in total
    assert "recursive comes to" in noise and "ε = " in noise and "may do better" in noise
    assert re.search(r"spear brings back \d+ of 32 random images", four.changes[0])
    other = "The other way: with one image and one step, recursive brings back 1 of 1"
    assert nothing.changes[0].startswith(other)
    assert not any("closed_form" in said for said in nothing.changes)  # it would refuse that, too
    assert any(said.startswith("Time: ") for said in nothing.changes)


def test_the_noise_that_hides_what_was_found_does_hide_it(one, digits):
    """The multiplier in the sentence, tried by hand: under 20 dB with it, more a step below."""
    x, y = digits.sample(1, seed=3)
    upload = pf.share(pf.models.build("lenet", digits), x, y)
    sigma = float(re.search(r"N\(0, \((\S+) C\)²\)", one.changes[-1])[1])
    length = float(pf.gradients.norm(upload.tensors))
    psnr = []
    for s in (sigma, sigma / 10):
        rng = torch.Generator().manual_seed(5)
        noisy = {n: t + s * length * torch.randn(t.shape, generator=rng)
                 for n, t in upload.tensors.items()}  # fmt: skip
        found = pf.attacks.Recursive().run(replace(upload, tensors=noisy))
        psnr.append(float(pf.metrics.psnr(found.images.clamp(0, 1), x)))
    assert psnr[0] < 22 < psnr[1] + 4 and psnr[0] < psnr[1]


# --- the files ---

FIELDS = {
    *("schema", "verdict", "sent", "structure", "attempts", "privacy", "changes", "settings"),
    "interrupted",
}
OF_ATTEMPT = {
    *("attack", "outcome", "says", "letter", "settings", "seconds", "evaluations", "cost"),
    *("misfit", "cosine", "labels", "psnr", "ssim", "ranks"),
}


def test_the_json_has_these_fields_and_a_number_for_their_meaning(one, nothing):
    for report in (one, nothing):
        held = json.loads(report.to_json())
        assert set(held) == FIELDS and held["schema"] == SCHEMA == 1
        assert all(set(a) == OF_ATTEMPT for a in held["attempts"])
        assert {"layers", "between", "recursion", "labels", "blind_misfit"} == set(
            held["structure"]
        )
        assert held["settings"]["versions"]["privfl_lite"] == pf.__version__
        assert held["settings"]["command"].startswith("pf.report(model, sent")


class Page(HTMLParser):
    """Tags with their attributes, and headings, in order."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict]:
        return [attrs for name, attrs in self.tags if name == tag]


def test_the_page_loads_nothing_and_says_what_its_pictures_show(one, four, nothing):
    for report in (one, four, nothing):
        text = report.to_html()
        page = Page(text)
        assert "http" not in text.replace("http-equiv", "") and not page.all("script")
        for attrs in [a for _, a in page.tags]:
            for key in ("src", "href", "data", "action"):
                assert attrs.get(key, "#").startswith(("#", "data:"))
        images = page.all("img")
        assert images and all(a["alt"].strip() for a in images)
        assert len({a["alt"] for a in images}) == len(images)
        assert page.all("html")[0]["lang"] == "en" and len(page.all("h1")) == 1
        assert len(page.all("table")) == len(page.all("caption")) >= 3
        assert all(a["scope"] for a in page.all("th")) and len(text) < 2e6
        ids = {a["id"] for _, a in page.tags if "id" in a}
        assert {a["href"].removeprefix("#") for a in page.all("a")} <= ids


def test_what_people_name_stays_text(digits):
    x, y = digits.sample(1)
    net = pf.models.wrap(
        nn.Sequential(nn.Flatten(), nn.Linear(196, 10)), (1, 14, 14), name="<b onload=x>&net"
    )
    made = pf.report(net, pf.share(net, x, y), attacks=["closed_form"], **QUICK)
    assert "<b onload" not in made.to_html() and "&lt;b onload=x&gt;&amp;net" in made.to_html()


def test_large_pictures_are_shrunk_and_the_page_stays_small():
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(3, 4, 7, stride=8), nn.Sigmoid(), nn.Flatten()), nn.Linear(4 * 28**2, 5)
    )
    net = pf.models.wrap(net, (3, 224, 224))
    x = torch.rand(6, 3, 224, 224)
    upload = pf.share(net, x, torch.arange(6) % 5)
    made = pf.report(net, upload, data=(x, torch.arange(6) % 5), evaluations=2, show=False)
    page = Page(made.to_html())
    assert {(a["width"], a["height"]) for a in page.all("img")} == {("112", "112")}
    assert len(made.to_html()) < 2e6 and "2 more are not shown" in made.to_html()


def test_save_writes_the_page_or_says_why_not(one, tmp_path, refused):
    path = one.save(tmp_path / "leak.html")
    assert path.read_text(encoding="utf-8") == one.to_html()
    refused(lambda: one.save(tmp_path / "leak.pdf"), "ends in .html")
    refused(lambda: one.save(tmp_path / "no" / "leak.html"), "could not be written")


# --- torchvision's resnet18, and the command line ---


def test_a_network_of_others_gets_a_report_with_what_it_refuses():
    torchvision = pf.runtime.torchvision()
    torch.manual_seed(0)
    net = torchvision.models.resnet18(num_classes=10).eval()
    x = torch.rand(1, 3, 32, 32)
    g = torch.autograd.grad(cross_entropy(net(x), torch.tensor([3])), list(net.parameters()))
    made = pf.report(net, g, data=(x, torch.tensor([3])), evaluations=2, show=False)
    assert len(made.structure["layers"]) == 21 and made.structure["labels"]["level"] == "exact"
    assert "plain chain of layers" in made.structure["recursion"]["says"]
    assert "Batch norm (20 layers) in eval mode" in made.structure["between"][0]
    assert attempt(made, "gs").evaluations == 2 and made.verdict.startswith("Not found by")


@pytest.fixture
def files(tmp_path, digits) -> list[str]:
    """Weights and gradients as ``torch.save`` writes them, as options."""
    x, y = digits.sample(1, seed=3)
    net = pf.models.build("lenet", digits)
    upload = pf.share(net, x, y)
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    torch.save({n: t[0] for n, t in upload.tensors.items()}, tmp_path / "sent.pt")
    torch.save({"x": x, "y": y}, tmp_path / "truth.pt")
    words = ["--model-file", str(tmp_path / "weights.pt"), "--upload", str(tmp_path / "sent.pt")]
    return [*words, "--shape", "1,14,14"]


def run(*words: str, **options) -> subprocess.CompletedProcess:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PRIVFL_OFFLINE": "1"}
    command = [*PRIVFL, "report", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, **options)


def test_the_command_writes_a_page_and_json(files, tmp_path):
    html, out = tmp_path / "leak.html", tmp_path / "leak.json"
    more = ["--truth", str(tmp_path / "truth.pt"), "--evaluations", "5"]
    done = run(*files, *more, "--html", str(html), "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Found: 1 of 1 image") and "Clip and noise" in done.stdout
    held = json.loads(out.read_text())
    assert set(held) == FIELDS and held["settings"]["command"].startswith("privfl report --model")
    assert held["settings"]["command"] in html.read_text().replace("&#x27;", "'")
    assert str(tmp_path / "sent.pt") in held["settings"]["command"]


OWN = """
from torch import nn
def net():
    return nn.Sequential(nn.Conv2d(1, 12, 5, 2, 2), nn.Sigmoid(), nn.Flatten(), nn.Linear(588, 10))
"""


def test_the_command_takes_a_module_and_an_update_of_the_users_own(tmp_path, digits):
    (tmp_path / "mine.py").write_text(OWN)
    space: dict = {}
    exec(OWN, space)
    torch.manual_seed(1)
    net, (x, y) = space["net"](), digits.sample(1, seed=3)
    torch.save(net.state_dict(), tmp_path / "before.pt")
    plan = pf.Plan(eta=0.1, steps=3, batch_size=1)
    upload = pf.share(net, x, y, plan=plan)
    after = {n: p + upload.tensors[n][0] for n, p in net.named_parameters()}
    torch.save({n: t.detach() for n, t in after.items()}, tmp_path / "after.pt")
    words = "--model mine:net --model-file before.pt --upload after.pt --shape 1,14,14"
    words += " --eta 0.1 --steps 3 --evaluations 3 --json out.json"
    done = run(*words.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sent = json.loads((tmp_path / "out.json").read_text())["sent"]
    assert sent["steps"] == 3 and sent["letter"] == "C" and "weights after" in sent["taken_for"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--html leak.pdf", "the name must end in .html"),
        ("--html no/such/leak.html", "the folder no/such does not exist"),
        ("--steps 3", "go with --eta"),
        ("--attacks magic", "unknown attack 'magic'"),
        ("--model lenet9", "unknown model 'lenet9'"),
        ("--model nowhere:net", "no network could be made"),
        ("--model math:pi", "no network could be made"),
        ("--seconds 0", "seconds is 0"),
        ("--truth nothing.pt", "there is no file"),
        ("--batch 3 --labels 1,2", "labels"),
    ],
)
def test_bad_input_is_one_sentence(files, words, says, capsys):
    from privfl_lite.cli import main

    try:
        code = main(["report", *files, *words.split()])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2 and says in error and error.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupted_command_writes_its_files(files, tmp_path):
    html, out = tmp_path / "leak.html", tmp_path / "leak.json"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    env["PRIVFL_PROGRESS"] = "1"
    words = ["--attacks", "recursive", "gs:steps=1000000", "--evaluations", "1000000"]
    process = subprocess.Popen(
        [*PRIVFL, "report", *files, *words, "--html", str(html), "--json", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        # a shell's background jobs ignore SIGINT, and so would their children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while "GS" not in (seen := process.stderr.read(1) + process.stderr.readline(200)):
        assert seen, "the command ended by itself"
    process.send_signal(signal.SIGINT)
    shown, error = process.communicate(timeout=60)
    assert process.returncode == 0 and "stopped at gs" in error, error
    assert "Found" in shown and json.loads(out.read_text())["interrupted"] is True
    assert "stopped early" in html.read_text()


# --- the case studies ---

CASES = {
    "resnet18": ("Not found by idlg, gs", "ResNet"),
    "plain_loop": ("Found: 8 images that reproduce the upload", "Sequential"),
    "five_steps": ("Not found by", "lenet"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_study_runs_from_nothing_in_under_fifteen_lines(name, tmp_path, monkeypatch, capsys):
    """With few evaluations in place of its seconds; what algebra finds, it finds all the same."""
    code = (ROOT / "examples" / "report" / f"{name}.py").read_text(encoding="utf-8")
    lines = [n for n in code.splitlines() if n and not n.startswith(("import", "from", '"""'))]
    assert len(lines) < 15
    few, count = re.subn(r"seconds=\d+", "evaluations=2, show=False", code)
    assert count == 1
    monkeypatch.chdir(tmp_path)
    exec(compile(few, f"{name}.py", "exec"), {})
    verdict, model = CASES[name]
    assert capsys.readouterr().out.startswith(verdict)
    assert f"<h1>Leak report: {model}</h1>" in (tmp_path / f"{name}.html").read_text()
