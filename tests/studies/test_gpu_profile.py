"""The profile ``gpu`` works: of every study, cells are computed at toy size on the CPU.

The settings are the profile's own, with fewer images, steps and rounds (``toy``); which networks,
data sets, splits and branches it takes is left as it is. Data sets that come with no package are
stand-ins of the same shapes. A cell of each kind is computed, by ``WORDS`` or ``BY``.

On the way each study shows which solvers it uses: where stored cells don't say by which they were
found, none may be L-BFGS, which is another one since those cells were stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from stand_ins import COUNTS, in_place

from privfl_lite import stored
from privfl_lite.attacks.solvers import SOLVER, solvers
from privfl_lite.models import extractor
from privfl_lite.studies import STUDIES

FEW = {  # settings that many studies have -> what they are at most
    "images": 1, "steps": 2, "rounds": 2, "epochs": 1, "restarts": 1, "starts": 1, "seeds": [0],
    "clients": 2, "per_client": 4, "batch": 2, "batch_size": 2, "test": 8, "budget": 20,
    "candidates": 6, "gs": 2, "lbfgs": 2, "craft": 2, "joint": 2,
}  # fmt: skip
RED: dict = {
    "pooled_images": 1, "budget": 2, "budget_pooled": 2, "budget_noise": 2, "proposals": 100,
    "batches": [1, 2], "gallery": 5,
}  # fmt: skip
TOY: dict[str, dict] = {  # study -> what else is made small, by the names of its settings
    "all-against-all/table": {
        "images": 4, "gallery": 12, "steps_gs": 2, "obscure": 2, "blend_rounds": 2,
        "mask_images": 1, "repeats": 1,
    },
    "changing-the-model/precode": {"evaluations": 6},
    "cutting-gradients/attack": {"ranks": 1},
    "dcs2/attack": {
        "batches": 1, "joint_main": 2, "some_images": 1, "tried_images": 1, "tried_steps": 2,
        "fresh": [],
    },
    "dcs2/photos": {
        "conv_craft": 2, "conv_gs": 2, "imprint_craft": 2, "lbfgs_gray": 2, "pair_images": 1,
    },
    "dcs2/training": {"clients": 6, "craft_all": 2, "mask_images": 1, "seeds": [0, 1]},
    "entanglement/attack": {"update_images": 1, "update_steps": 2, "fresh": []},
    "entanglement/training": {"candidates": 40, "every": 1, "per_client": 40},
    "fedkl/attack": {
        "all_blocks": 1, "informed": 2, "more_starts": 1, "nets": [0], "photographs": 1,
        "trained_searches": 1,
    },
    "fedkl/training": {"draws": 1},
    "first-answers/baselines": {"gs_steps": 2, "lbfgs_steps": 2},
    "generative-priors/attack": {"steps": 14, "steps undefended": 2},
    "generative-priors/generator": {"steps": 14},
    "generative-priors/learned": {"public": 20, "gallery": 5, "learning_steps": 2},
    "hiding-the-input/attack": {"images": 6, "ats": {"gs_steps": 2, "images": 1}},
    "loda/attack": {
        "images": 2, "public": 2, "invert_steps": 2,
        "decoder": {"loda1": [[4, 2]], "loda2": [[4, 2]], "loda3": [[4, 2]]},
        "adaptive": {"rate": [1e-2], "c": [1], "steps": [2]}, "tv": [1.0], "kkt_weights": [0.1],
        "encodings": [1, 2], "panel": {"c": [10], "steps": [2]},
    },
    "loda/extractor": {"batch": 16, "pairs": 1},
    "loda/training": {"train": 4},
    "malicious-server/bins": {"batches": 2, "attacked": 1, "wire_images": 2},
    "malicious-server/fishing": {
        "trials": 1, "searched": 1, "batches": [4, 6], "of": 5, "bins": 8,
    },
    "matching-gradients/failures": {"evaluations": 2, "images": 4},
    "matching-gradients/first-look": {},
    "matching-gradients/table": {"images_slow": 1, "steps_large_nets": 2},
    "measuring-leakage/lpips": {},
    "membership/attack": {
        "central": 8, "central_steps": 2, "every": 1, "references": 4, "large_budget": 30,
    },
    "million-clients/measured": {
        "clients": {"lenet": [3], "mlp": [3]}, "kept": [3], "numbers": [9],
        **{name: [3] for name in ("wide", "masks", "shares", "unmask")},
    },
    "modelcloak-dynamic/training": {
        "per_round": 2, "fade_rounds": [0, 1], "fade_images": 2, "fade_steps": 2,
    },
    "modelcloak-fixed/attack": {"near_steps": 2, "long": 1},
    "modelcloak-fixed/epsilon": {},
    "modelcloak-fixed/training": {"per_round": 2},
    "proof-bound-audit/axis": {
        "rounds": [1, 2], "canaries": 4, "sigmas": [1.0], "few": 2, "images_rounds": 1,
    },
    "proof-bound-audit/mechanisms": {},
    "proof-bound-audit/second": {"sigmas": [1.0], "draws": 1000, "rates": [0.5]},
    "reach/map": {
        "images": 2, "images_search": 2, "images_dear": 2, "images_deep": 2,
        "budget": 2, "budget_dear": 2,
        "center": {"data": "mnist", "batch": 1, "steps": 1, "order": "whole", "age": 0},
        "batches": [1, 2, 4, 8], "steps": [1, 2, 4], "ages": [0, 1, 2, 3], "proposals": 1,
        "fedavg": {"clients": 2, "per_client": 8, "batch_size": 4, "eta": 0.1}, "gallery": 5,
    },
    "reach/spear": {"proposals": 1000, "noisy_proposals": 1000, "batches": [2]},
    "red-team/age": {**RED, "ages": [0, 1], "craft_in_training": 1},
    "red-team/axes": RED,
    "red-team/repairs": {
        "craft": {"steps": 2}, "cost_craft": {"steps": 2}, "search": 2, "cost_seeds": [0],
        "loda": {"steps": 2, "invert": 2, "rounds": 2}, "tol": [1e-2],
        "cost": {"clients": 2, "per_client": 4, "rounds": 1, "eta": 0.06, "batch": 2},
    },
    "through-the-layers/trained": {},
    "what-epsilon-buys/attack": {},
    "your-own-run/causes": {"networks": [0]},
    "your-own-run/photograph": {"evaluations": [2]},
}  # fmt: skip
WORDS = ("part", "cell", "data", "net", "attacker", "attack")  # what tells kinds of cells apart
BY = {  # study -> other words
    "first-answers/baselines": ("part",),
    "generative-priors/learned": ("upload", "attack"),
    "loda/training": ("part", "scheme", "model"),
    "matching-gradients/failures": ("cause",),
    "matching-gradients/table": ("model", "attack"),
    "measuring-leakage/lpips": ("kind", "data"),
    "membership/attack": ("data", "how"),
    "modelcloak-fixed/attack": ("part", "data", "reading", "start", "attack"),
    "your-own-run/causes": ("cause",),
}
LEFT_OUT = {  # study -> cells that are slow whatever the settings, or need more images
    "all-against-all/table": lambda cell: cell.get("data") in ("photos", "cifar10"),  # as reach/map
    "dcs2/attack": lambda cell: cell["part"] == "scale",  # as the part "separate"
    "fedkl/attack": lambda cell: cell.get("setting", "").startswith("batch"),  # of 2 and 4
    "loda/attack": lambda cell: cell["part"] in ("time", "panel"),  # of 200 images; of two classes
    "reach/map": lambda cell: (
        cell["attack"] == "recursive"  # minutes of linear algebra each
        and cell["data"] in ("photos", "cifar10")
    ),
    "red-team/axes": lambda cell: (  # the same at 32 pixels in color
        cell["data"] in ("photos 32", "cifar10") and not cell["attack"].startswith("search")
    ),
}


@pytest.fixture(scope="module", autouse=True)
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stand-ins for all data sets, an untrained network for LODA's large extractor, and a folder
    for what is made: a toy generator must not stay among the results that later tests find."""
    folder, patch = tmp_path_factory.mktemp("stand-ins"), pytest.MonkeyPatch.context()
    with patch as own, in_place(folder, (*COUNTS, "lpips")):
        own.setenv("PRIVFL_RESULTS", str(folder / "results"))
        stored.save(extractor.blank("gpu"), extractor.stored_at("gpu"), {"study": "a stand-in"})
        yield


def toy(settings: dict, small: dict) -> dict:
    """The settings with every number of images, steps, rounds … made small, at any depth."""
    return {
        key: _at_most(value, small[key])
        if key in small
        else toy(value, small)
        if isinstance(value, dict)
        else value
        for key, value in settings.items()
    }


def _at_most(value: Any, few: Any) -> Any:
    """``few`` in place of a larger number or of a list; a number also for each of a dictionary."""
    if isinstance(value, dict):
        limits = few if isinstance(few, dict) else dict.fromkeys(value, few)
        return {k: _at_most(v, limits[k]) if k in limits else v for k, v in value.items()}
    if isinstance(few, list) or value is None:
        return few
    return min(value, few) if isinstance(value, int | float) else value


def kinds(name: str, cells: list[dict]) -> list[dict]:
    """The first cell of each kind: by what is done, not by the numbers it is done with."""
    first: dict[tuple, dict] = {}
    for cell in cells:
        if not (name in LEFT_OUT and LEFT_OUT[name](cell)):
            first.setdefault(tuple(cell.get(word) for word in BY.get(name, WORDS)), cell)
    return list(first.values())


def test_every_study_is_in_the_list():
    assert list(TOY) == list(STUDIES)


@pytest.mark.parametrize("name", TOY)
def test_the_gpu_profile_computes_a_cell_of_each_kind(name):
    study = STUDIES[name]
    own = study.settings("gpu")
    settings = toy(own, FEW | TOY[name])
    assert settings.keys() == own.keys()
    told = all("solvers" in cell for cell in study.show()["cells"])
    for cell in kinds(name, study.cells(settings)):
        with solvers() as used:
            row = study.compute(settings, cell)
        assert row and not cell.keys() & row.keys(), cell
        assert told or SOLVER not in used, cell
