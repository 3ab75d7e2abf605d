"""The profile ``gpu`` works: of the studies in ``TOY``, cells are computed at toy size on the CPU.

The settings are the profile's own, with fewer images, steps and rounds (``toy``); which networks,
data sets, splits and branches it takes is left as it is. Other studies are not run here yet.
"""

from __future__ import annotations

from typing import Any

import pytest

from privfl_lite.studies import STUDIES

FEW = {"images": 2, "steps": 2, "rounds": 2, "epochs": 1, "restarts": 1, "starts": 1}
KIND = ("part", "data", "net", "attacker", "attack")
TOY: dict[str, dict] = {  # what is made small, by the names of its settings
    "changing-the-model/precode": {"evaluations": 6, "per_client": 4, "seeds": [0]},
    "cutting-gradients/attack": {"ranks": 1},
    "first-answers/baselines": {
        "images": 4, "gs_steps": 2, "lbfgs_steps": 2, "seeds": [0],
        "per_client": {"mnist": 8, "cifar10": 8},
    },
    "matching-gradients/first-look": {},
    "modelcloak-fixed/epsilon": {"rounds": [100, 60]},
    "reach/map": {
        "images": 2, "images_search": 2, "images_dear": 2, "budget": 2, "budget_dear": 2,
        "center": {"data": "mnist", "batch": 1, "steps": 1, "order": "whole", "age": 0},
        "batches": [1, 2, 4, 8], "steps": [1, 2, 4], "ages": [0, 1, 2, 3], "proposals": 1,
        "fedavg": {"clients": 2, "per_client": 8, "batch_size": 4, "eta": 0.1}, "gallery": 5,
        "seeds": [0],
    },
    "what-epsilon-buys/attack": {"rounds": [1, 8, 64]},
}  # fmt: skip


def toy(settings: Any, more: dict) -> Any:
    """The settings with every number of images, steps, rounds … made small, at any depth."""
    if not isinstance(settings, dict):
        return settings
    small = {**FEW, **more}
    return {
        key: _small(value, small[key]) if key in small else toy(value, {})
        for key, value in settings.items()
    }


def _small(value: Any, few: Any) -> Any:
    """``few`` in place of a number, or of every number of a dictionary."""
    same = isinstance(value, dict) and not isinstance(few, dict)
    return {key: _small(part, few) for key, part in value.items()} if same else few


def kinds(cells: list[dict]) -> list[dict]:
    """The first cell of each kind: by what is done, not by the numbers it is done with."""
    first: dict[tuple, dict] = {}
    for cell in cells:
        first.setdefault(tuple(cell.get(word) for word in KIND), cell)
    return list(first.values())


@pytest.mark.parametrize("name", TOY)
def test_the_gpu_profile_computes_a_cell_of_each_kind(name, stand_ins):
    study = STUDIES[name]
    own = study.settings("gpu")
    settings = toy(own, TOY[name])
    assert settings.keys() == own.keys()
    for cell in kinds(study.cells(settings)):
        row = study.compute(settings, cell)
        assert row and not cell.keys() & row.keys(), cell
