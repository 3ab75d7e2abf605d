"""Studies resume, record how they were made, and what is stored is what they give now."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from privfl_lite import PrivflError, load, models, share
from privfl_lite.attacks import IDLG, Reconstruction
from privfl_lite.attacks.solvers import solvers
from privfl_lite.metrics.judge import judge
from privfl_lite.pictures import pack, unpack
from privfl_lite.stored import SHIPPED
from privfl_lite.studies import STUDIES, Study
from privfl_lite.studies.clock import evaluation


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch) -> Path:
    """A folder of results of one's own."""
    monkeypatch.setenv("PRIVFL_RESULTS", str(tmp_path))
    return tmp_path


def counting(calls: list[int], stop_at: int | None = None) -> Study:
    def compute(settings: dict, cell: dict) -> dict:
        if cell["n"] == stop_at:
            raise KeyboardInterrupt
        calls.append(cell["n"])
        return {"square": cell["n"] ** 2}

    return Study(
        name="squares",
        about="squares of whole numbers",
        settings=lambda profile: {"count": 4 if profile == "cpu" else 6},
        cells=lambda settings: [{"n": n} for n in range(settings["count"])],
        compute=compute,
    )


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path):
    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        counting(calls, stop_at=2).run()
    result = counting(calls).run()
    assert calls == [0, 1, 2, 3]
    assert [c["square"] for c in result["cells"]] == [0, 1, 4, 9]
    assert [p.name for p in tmp_path.iterdir()] == ["squares.json"]
    assert counting([]).show() == result


def test_other_settings_start_again(tmp_path):
    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        counting(calls, stop_at=2).run()
    assert len(counting(calls).run("gpu")["cells"]) == 6
    assert calls == [0, 1, 0, 1, 2, 3, 4, 5]


def test_bad_requests_get_one_sentence(tmp_path):
    with pytest.raises(PrivflError, match="choose one of: cpu, gpu"):
        counting([]).run("tpu")
    with pytest.raises(PrivflError, match="no stored result; run: privfl study run squares"):
        counting([]).show()
    clash = replace(counting([]), compute=lambda settings, cell: {"n": -1})
    with pytest.raises(PrivflError, match=r"a result has the name of one of \['n'\]"):
        clash.run()
    (tmp_path / "squares.json").write_text("{")
    with pytest.raises(PrivflError, match="damaged"):
        counting([]).show()


@pytest.mark.parametrize("name", STUDIES)
def test_every_stored_result_says_how_it_was_made(name):
    result = STUDIES[name].show()
    assert result["settings"] == json.loads(json.dumps(STUDIES[name].settings("cpu")))
    assert result["command"] == f"privfl study run {name} --profile cpu"
    assert {"torch", "numpy", "python"} <= set(result["versions"]) and result["seconds"] > 0
    keys = [set(cell) for cell in STUDIES[name].cells(result["settings"])]
    assert len(keys) == len(result["cells"])


RECORDED = "one-to-many/recorded"  # by scripts/flower_demo.py; its test is in tests/flower


def test_no_result_is_without_a_study():
    assert {
        p.relative_to(SHIPPED).with_suffix("").as_posix() for p in SHIPPED.glob("*/*.json")
    } == {*STUDIES, RECORDED}


def test_stored_epsilons_come_out_again():
    study = STUDIES["modelcloak-fixed/epsilon"]
    stored = study.show()
    for cell in stored["cells"][::5]:
        again = study.compute(stored["settings"], {k: cell[k] for k in ("sigma", "rounds")})
        assert {k: cell[k] for k in again} == pytest.approx(again, abs=2e-3)


def test_a_stored_cell_of_the_first_look_comes_out_again():
    """Three of the 32 images of one cell: L-BFGS ends far over 40 dB on any machine."""
    study = STUDIES["matching-gradients/first-look"]
    stored = study.show()
    settings = {**stored["settings"], "images": 3}
    again = study.compute(settings, {"attack": "idlg", "seed": 1})
    (cell,) = (c for c in stored["cells"] if c["attack"] == "idlg" and c["seed"] == 1)
    assert min(again["psnr"]) > 40 and min(cell["psnr"][:3]) > 40 and again["labels_right"] == 3


def test_judge_matches_images_within_each_upload():
    digits = load("mnist")
    x, y = digits.sample(4)
    swapped = [1, 0, 3, 2]
    found = Reconstruction(x[swapped], y[swapped], torch.zeros(2))
    images, scores = judge(found, x, y, batch=2)
    assert torch.equal(images, x) and scores["mean"]["mse"] == 0
    assert all(row["label_true"] == row["label_found"] for row in scores["per_image"])
    wrong = replace(found, images=x[[2, 3, 0, 1]])  # images of the other upload do not count
    assert judge(wrong, x, y, batch=2)[1]["mean"]["mse"] > 0.01


def test_pictures_survive_their_packing():
    image = torch.rand(1, 28, 24, generator=torch.Generator().manual_seed(0))
    assert (unpack(pack(image)) - image).abs().max() <= 1 / 30 + 1e-6


def test_pictures_stored_in_hexadecimal_are_read_as_well():
    grays = torch.arange(16).view(1, 4, 4) / 15
    assert torch.equal(unpack("0123456789abcdef"), grays)
    assert torch.equal(unpack(pack(grays)), grays)


def test_the_clock_of_studies_times_evaluations_and_searches_nothing() -> None:
    data = load("mnist")
    x, y = data.sample(2, split="test", seed=0)
    upload = share(models.build("lenet", data), x, y, each=1, knows=("labels",))
    with solvers() as used:
        few, many = (evaluation(IDLG(), upload, times) for times in (5, 40))
    assert used == set()
    assert 0 < many < 5 * few and few < 5 * many  # per evaluation, however many are timed
