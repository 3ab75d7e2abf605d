"""The studies of LODA: who is private, what is cached, how settings are chosen, who trains on what.

Numbers of a stored result are tested once there is one.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from privfl_lite import load, metrics
from privfl_lite.defenses import LODA, loda
from privfl_lite.pictures import unpack
from privfl_lite.stored import SHIPPED
from privfl_lite.studies.loda import attack as study
from privfl_lite.studies.loda import attackers as loda_attackers
from privfl_lite.studies.loda import encodings as common
from privfl_lite.studies.loda import gradient as loda_gradient
from privfl_lite.studies.loda import training as training

pytestmark = pytest.mark.usefixtures("stand_ins")


@pytest.fixture
def small(tmp_path, monkeypatch) -> dict:
    """Four images, three steps, and a cache of encodings of its own.

    Images and LPIPS are loaded before, from the other cache.
    """
    load("cifar10")
    common.scores(torch.zeros(1, 3, 32, 32), torch.ones(1, 3, 32, 32))
    settings = study.STUDY.settings("cpu") | {"images": 4, "steps": 3, "candidates": 30}
    monkeypatch.setattr(common.assets, "cache", lambda: tmp_path)
    return settings


def rows(images: torch.Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


def test_nothing_private_is_public(small):
    public = rows(load("cifar10").x_train[25_000:])
    x, y = study.private_images(small | {"images": 32})
    own, labels = training.private_set(training.STUDY.settings("cpu"))
    assert not rows(x) & public and not rows(own) & public and not rows(own) & rows(x)
    assert len(rows(own)) == len(labels) == 500 and set(y.tolist()) == set(range(10))
    assert rows(study.public_sample(small, 20)) <= public
    assert rows(study.public_sample(small, 5)) <= rows(study.public_sample(small, 20))


def test_encodings_are_made_once_in_the_papers_units(small, monkeypatch):
    x, _ = study.private_images(small)
    monkeypatch.setattr(common, "AT_ONCE", 3)
    first = study.encoded(small, x, "loda1", 20)
    own = LODA("cpu", "loda1", 150.0, 3, start="cifar10")  # 20 × 7.5
    assert (first - own.obscure(x).images).abs().max() <= 0.5 / 255 + 1e-4
    monkeypatch.setattr(loda, "obscure", None)  # would fail if it were called again
    assert torch.equal(study.encoded(small, x, "loda1", 20), first)
    with pytest.raises(TypeError):
        study.encoded(small, x, "loda1", 20, seed=1)


def test_scores_have_intervals_and_extremes():
    x = load("photos").x_test[:6]
    found = (x + 0.1).clamp(0, 1)
    out = study.scores(found, x)
    want = [-10 * math.log10(((a - b) ** 2).mean()) for a, b in zip(found, x, strict=True)]
    np.testing.assert_allclose(out["psnr"]["each"], want, atol=0.01)
    assert out["psnr"]["max"] == pytest.approx(max(want), abs=0.01)
    low, high = out["psnr"]["interval"]
    assert out["psnr"]["min"] <= low < out["psnr"]["mean"] < high <= out["psnr"]["max"]
    assert 0 < out["lpips"]["min"] <= out["lpips"]["mean"] and out["images"] == 6


def test_settings_are_chosen_by_lpips_where_psnr_prefers_gray():
    x = load("photos").x_test[:4]
    found = {"gray": x.mean((1, 2, 3), keepdim=True).expand_as(x), "dark": 0.3 * x}
    best, table = common.choose_by_lpips(x, found)
    assert best == "dark" and table["gray"]["psnr"] > table["dark"]["psnr"] + 1


def test_a_strip_holds_one_image_of_each_class(small):
    few = small | {"images": 32}
    x, y = study.private_images(few)
    row = torch.cat([unpack(text) for text in study.strip(few, x)])
    assert row.shape == (3, 32, 320)
    want = x[y.tolist().index(7)]
    assert (row[:, :, 7 * 32 : 8 * 32] - want).abs().max() <= 0.5 / 15 + 1e-6


def test_identification_by_features_is_certain_when_features_are_kept(small, monkeypatch):
    monkeypatch.setattr(common, "encoded", lambda s, x, *rest: x)
    by = study._identify(small, {"layers": "loda1"})["by"]
    assert by["features"]["first"] == by["nearest pixels"]["first"] == 4
    assert by["features"]["rank"] == 1 and by["farthest pixels"]["rank"] == 30
    assert by["features"]["interval"] == [round(v, 4) for v in metrics.wilson(4, 4)]


def test_an_encoding_without_a_step_is_another_image(small, monkeypatch):
    """Then the features are as far as another image's; x′ = x is at distance 0, and Eq. 5 holds."""
    monkeypatch.setattr(study, "strip", lambda *rest: [])
    cell = {"part": "encoding", "layers": "loda1", "c": 20.0}
    other = study.public_sample(small, 4)
    monkeypatch.setattr(study, "encoded", lambda s, x, *rest: other)
    assert study._encoding(small, cell)["features"] == 1
    monkeypatch.setattr(study, "encoded", lambda s, x, *rest: x + 1e-4)
    out = study._encoding(small, cell)
    assert out["features"] < 1e-4 and out["found"]["x′"]["psnr"]["min"] > 70


def test_the_panel_shows_two_images_and_their_attackers(small):
    settings = small | {"images": 32, "invert_steps": 2}
    settings |= {"gs": small["gs"] | {"steps": 2}, "adaptive": small["adaptive"] | {"steps": [1]}}
    out = study._panel(settings, {"layers": "loda1", "c": 20, "steps": 2})
    assert set(out["picture"]) == set(out["scores"]) == {"x′", "GS", "adaptive", "inversion"}
    shown = torch.cat([unpack(text) for text in out["picture"]["x′"]])
    x, y = study.private_images(settings)
    rows = [y.tolist().index(label) for label in study.PANEL]
    want = torch.cat(list(study.encoded(settings | {"steps": 2}, x[rows], "loda1", 20)), 2)
    assert shown.shape == (3, 32, 64) and (shown - want).abs().max() <= 0.5 / 15 + 1e-6


def test_a_gradient_gives_the_encoding_not_the_image(small, monkeypatch, stand_ins):
    """The recursion reads x′ exactly; GS finds the image where there is no defense."""
    monkeypatch.setattr(common, "encoded", lambda s, x, *rest: 1 - x)
    monkeypatch.setattr(loda_gradient, "strip", lambda *rest: [])
    settings = small | {"images": 2, "gs": small["gs"] | {"steps": 60}}
    plain, hidden = (study.gradient(settings, {"defense": d})["found"] for d in ("none", "loda1"))
    assert hidden["recursion, seen"]["psnr"]["min"] > 60
    least = hidden["GS"]["psnr"]["mean"] + (2 if stand_ins else 1)  # dB; real images or others
    assert hidden["GS, seen"]["psnr"]["mean"] > least and plain["GS"]["psnr"]["mean"] > least


def test_the_decoder_learns_from_public_pairs_alone(small, monkeypatch):
    """Where encodings are negatives, a short training finds that out, and four help no more."""
    asked = []

    def negative(settings, x, *rest):
        asked.append(rows(x))
        return 1 - x

    monkeypatch.setattr(common, "encoded", negative)
    monkeypatch.setattr(
        loda_attackers, "matched", lambda settings, layers: torch.zeros(4, 3, 32, 32)
    )
    monkeypatch.setattr(loda_attackers, "strip", lambda *rest: [])
    seen = []
    train = loda_attackers.train_decoder
    monkeypatch.setattr(
        loda_attackers,
        "train_decoder",
        lambda g, x, e, **kw: seen.append((x, e)) or train(g, x, e, **kw),
    )
    cell = {"layers": "loda1", "pairs": 64, "steps": 40}
    found = loda_attackers.by_decoder(small, cell)["found"]
    (x, e) = seen[0]
    assert torch.equal(e, 1 - x) and rows(x) == rows(study.public_sample(small, 64)) == asked[0]
    assert found["1"]["psnr"]["mean"] > 15 > found["from a gradient"]["psnr"]["mean"]
    assert found["4"]["psnr"]["each"] == found["1"]["psnr"]["each"]


def test_every_cell_has_a_part_and_none_comes_twice():
    for one in (study.STUDY, training.STUDY):
        cells = [tuple(c.items()) for c in one.cells(one.settings("cpu"))]
        assert len(set(cells)) == len(cells)
    assert {c["part"] for c in study.STUDY.cells(study.STUDY.settings("cpu"))} == set(study.PARTS)


# Training


def test_arms_differ_in_images_only(monkeypatch):
    settings = training.STUDY.settings("cpu")
    asked = []

    def negative(s, x, layers, c):
        asked.append((layers, c))
        return 1 - x

    monkeypatch.setattr(training, "encoded", negative)
    for scheme, clients in (("central", 1), ("federated", 10)):
        cell = {"part": "train", "scheme": scheme}
        names = ("none", "LODA₁", "LODA₂", "loda1, c = 3", "Mixup 6")
        plain, *obscured, mixed = (
            training.federation(settings, cell | {"arm": a}, 1) for a in names
        )
        assert len(plain.clients) == clients and sum(len(y) for _, y in plain.clients) == 500
        for run in obscured:
            for (x, y), (e, z) in zip(plain.clients, run.clients, strict=True):
                assert torch.equal(e, 1 - x) and torch.equal(y, z)
        assert torch.equal(mixed.clients[0][0], plain.clients[0][0]) and mixed.defense.k == 6
        first = [next(run.model.parameters()) for run in (plain, mixed)]
        assert torch.equal(*first)
    assert asked == 2 * [("loda1", 20), ("loda2", 30), ("loda1", 3)]


def test_a_network_may_be_public_and_tests_may_be_on_negatives(monkeypatch, stand_ins):
    settings = training.STUDY.settings("cpu") | {"train": 40, "test": 100, "seeds": [0]}
    settings |= {"tuned": {"eta": [0.01], "epochs": 1}, "epochs": {"central": 100, "federated": 1}}
    out = training.STUDY.compute(settings, {"part": "tuned", "eta": 0.01, "arm": "none"})
    if stand_ins:  # the public network knows the classes of CIFAR-10, not those of a stand-in
        assert out["before"] > 0.6 and out["accuracy"][0] > 0.5
    assert 0 <= out["before"] <= 1 and len(out["accuracy"]) == 1
    monkeypatch.setattr(training, "encoded", lambda s, x, *rest: 1 - x)
    cells = [{"part": p, "model": "lenet", "arm": "LODA₁"} for p in ("negative", "size")]
    negative, plain = (training.STUDY.compute(settings, c)["accuracy"][0] for c in cells)
    assert negative > plain + 0.05  # trained on negatives only
    run = training.federation(settings, cells[1] | {"train": 60}, 0)
    assert sum(len(y) for _, y in run.clients) == 60


def test_cloak_has_no_batch_norm_unless_the_part_adds_it():
    settings = training.STUDY.settings("cpu") | {"train": 20}
    count = {}
    for part in ("architecture", "batch norm"):
        run = training.federation(settings, {"part": part, "model": "cloak", "arm": "none"}, 0)
        kinds = [type(m).__name__ for m in run.model.features]
        count[part] = kinds.count("BatchNorm2d")
        assert kinds.count("Conv2d") == 2 and len(kinds) == 7 + count[part]
    assert count == {"architecture": 0, "batch norm": 2}


def test_a_cell_trains_and_has_intervals():
    settings = training.STUDY.settings("cpu") | {"train": 40, "test": 100, "seeds": [0, 1]}
    settings |= {"epochs": {"central": 100, "federated": 1}}
    out = training.STUDY.compute(settings, {"part": "train", "scheme": "central", "arm": "none"})
    low, high = out["interval"]
    assert low < np.mean(out["accuracy"]) < high and len(out["accuracy"]) == 2
    assert min(out["accuracy_private"]) > 0.4  # forty images are learned by heart in part
    assert out["spread"]["mean"] == pytest.approx(np.mean(out["accuracy"]), abs=1e-4)


# What is stored


def test_inversion_beats_the_paper_and_blind_guesses():
    cells = study.STUDY.show()["cells"]
    by = {(c["part"], c.get("layers"), c.get("c")): c for c in cells}
    blind, x_prime = by["blind", None, None]["found"], by["encoding", "loda1", 20.0]["found"]["x′"]
    found = by["inversion", "loda1", None]["found"]
    gray, other = blind["gray"], blind["another image"]
    assert found["4"]["lpips"]["interval"][1] < other["lpips"]["interval"][0]
    assert found["1"]["ssim"]["interval"][0] > max(gray["ssim"]["mean"], x_prime["ssim"]["mean"])
    assert found["4"]["lpips"]["mean"] < found["2"]["lpips"]["mean"] < found["1"]["lpips"]["mean"]
    assert (SHIPPED / "loda/attack.json").stat().st_size < 800_000


def test_the_panel_and_the_box_use_what_was_chosen_on_public_images():
    settings, cells = study.STUDY.settings("cpu"), study.STUDY.show()["cells"]
    inverted, solved = (
        next(c for c in cells if c["part"] == p and c["layers"] == "loda1")["choice"]
        for p in ("inversion", "adaptive")
    )
    assert settings["panel"]["tv"] == inverted["tv"]
    chosen = {
        "rate": settings["panel"]["rate"],
        "c": 0,
        "steps": max(settings["adaptive"]["steps"]),
    }
    assert chosen.items() <= solved.items()


def test_a_decoder_reads_what_the_scores_of_an_encoding_call_hidden():
    """LODA₁ and LODA₂: far better than any blind guess and than the paper's attack; more pairs and
    more encodings help. LODA₃'s pictures are kept better, but all three give the image's name."""
    cells = study.STUDY.show()["cells"]
    made = {(c["layers"], c["pairs"]): c["found"] for c in cells if c["part"] == "decoder"}
    tuned = next(c for c in cells if c["part"] == "adaptive")["found"]["tuned"]
    blind = next(c for c in cells if c["part"] == "blind")["found"]
    for found in (made["loda1", 256], made["loda1", 1024], made["loda2", 256]):
        for score in ("ssim", "psnr"):
            best = max(b[score]["mean"] for b in (tuned, *blind.values()))
            assert found["1"][score]["interval"][0] > best + (3 if score == "psnr" else 0.2)
        assert found["1"]["lpips"]["interval"][1] < 0.5 < tuned["lpips"]["interval"][0]
    short, long = made["loda1", 256], made["loda1", 1024]
    assert long["1"]["lpips"]["mean"] < short["1"]["lpips"]["mean"]
    assert long["4"]["lpips"]["interval"][1] < long["1"]["lpips"]["mean"]
    assert made["loda3", 256]["1"]["lpips"]["interval"][0] > short["1"]["lpips"]["interval"][1]
    by = {c["layers"]: c["by"]["features"]["first"] for c in cells if c["part"] == "identify"}
    assert min(by.values()) >= 27 and by["loda2"] == by["loda3"] == 32


def test_accuracy_falls_with_c_and_pixel_readers_learn_the_negative():
    """Table 5's direction; below chance on images, above it on their negatives; more images help.

    Who tunes the public network on encodings learns the private images, which it never sees.
    """
    cells = training.STUDY.show()["cells"]

    def mean(**want) -> float:
        (cell,) = [c for c in cells if want.items() <= c.items()]
        return np.mean(cell["accuracy"])

    arms = ("loda1, c = 3", "loda1, c = 10", "LODA₁")
    falling = [mean(part="train", scheme="central", arm=a) for a in ("none", *arms)]
    assert falling == sorted(falling, reverse=True) and falling[1] > 0.2 > 0.1 > falling[-1]
    for net in ("lenet", "mlp"):
        negative = [mean(part="negative", model=net, arm=a) for a in ("none", "LODA₁")]
        assert negative[0] < 0.1 < 0.12 < negative[1]
    for net in ("cloak", "resnet18"):
        few = {"part": "architecture", "model": net, "arm": "LODA₁"}
        assert mean(part="size", model=net, arm="LODA₁") > mean(**few) + 0.09
    before = next(c for c in cells if c["part"] == "extractor" and c["arm"] == "none")
    for arm in ("LODA₁", "LODA₂"):
        (tuned,) = [
            c for c in cells if c["part"] == "tuned" and c["arm"] == arm and c["eta"] > 0.005
        ]
        assert np.mean(tuned["accuracy_private"]) > before["right"] / before["of"] + 0.09
        assert np.mean(tuned["accuracy"]) < tuned["before"]  # while others are forgotten


def test_batch_norm_does_not_explain_what_cloak_learns():
    """With it and without it, LODA₁ leaves the net above chance, and the intervals overlap."""
    cells = training.STUDY.show()["cells"]
    for arm, chance in (("none", 0.3), ("LODA₁", 0.1)):
        both = [
            c["spread"]["interval"]
            for c in cells
            if c["part"] in ("architecture", "batch norm")
            and (c["model"], c["arm"]) == ("cloak", arm)
        ]
        assert len(both) == 2 and min(low for low, _ in both) > chance
        assert max(low for low, _ in both) < min(high for _, high in both)
