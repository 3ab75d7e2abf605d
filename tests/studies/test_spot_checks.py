"""Stored results are what today's code gives: of every study, a cheap cell is computed again.

Machines round differently, and a search that runs for hundreds of steps turns that into the second
or third digit; so numbers are compared up to a tolerance by their kind (``TOLERANCES``), a PSNR
beyond 40 dB only as that, and clocks not at all. Like is compared with like: a stored cell says by
which solvers it was found, and they must be the same again. Where a cell is made cheaper by taking
fewer images or seeds, lists are compared as far as they go, and what sums them up is left out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

import privfl_lite as pf
from privfl_lite.attacks.solvers import solvers
from privfl_lite.pictures import unpack
from privfl_lite.studies import STUDIES

CLOCKS = re.compile("seconds|overhead|time|ratio_ms")
SUMS = re.compile(
    "^images$|mean|std|spread|interval|median|min$|max$|right|success|hits|rate|failed|least"
)
TOLERANCES = {  # key: how far apart, absolutely and relatively
    "psnr": (1.5, 0.03),
    "ssim": (0.05, 0.02),
    "lpips": (0.02, 0.02),
    "accuracy": (0.01, 0.0),
    **dict.fromkeys(("tpr", "low", "high"), (0.03, 0.0)),  # of a ROC curve
}
EXACT = 40.0  # dB; beyond, rounding decides


@dataclass(frozen=True)
class Spot:
    """A cell by its keys; settings that make it cheaper; assets it needs; where to look."""

    cell: dict
    few: dict = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # paths that begin so, where much else is too soft to compare


SPOTS = {
    "all-against-all/table": Spot(
        {"part": "attack", "data": "mnist", "row": "none", "attacker": "informed"}
    ),
    "matching-gradients/table": Spot({"data": "mnist", "model": "lenet", "attack": "recursive"}),
    "first-answers/baselines": Spot(
        {"data": "mnist", "defense": "Prune 0.99", "part": "train"}, {"seeds": [0]}
    ),
    "cutting-gradients/attack": Spot(
        {"part": "newton", "side": 14, "rate": 0.95, "attacker": "mask"}
    ),
    "dcs2/attack": Spot({"defense": "none", "attack": "iDLG"}, {"images": 4}),
    "dcs2/photos": Spot({"part": "imprint", "data": "photos", "defense": "DP-Gaussian 0.5"}),
    "dcs2/training": Spot(
        {"data": "mnist", "split": "iid", "defended": "one", "defense": "Prune", "how": "real"},
        {"seeds": [0, 1]},
    ),
    "entanglement/attack": Spot({"part": "wire", "format": "float16", "variant": "β 0.9"}),
    "entanglement/training": Spot({"part": "figure 1"}, only=("maps/trained/silhouette",)),
    "loda/extractor": Spot({"cell": "scale", "images": "photos"}),
    "matching-gradients/failures": Spot(
        {"cause": "batch size", "level": 1}, only=("psnr", "pictures")
    ),
    "fedkl/attack": Spot({"part": "table", "net": "open", "attack": "GGL", "knows": "all"}),
    "fedkl/training": Spot({"part": "share"}),
    "matching-gradients/first-look": Spot({"attack": "idlg", "seed": 1}, {"images": 3}),
    "generative-priors/attack": Spot({"attack": "ggl-adam", "sigma": 0, "prune": 0}),
    "generative-priors/generator": Spot({"cell": "ggl-adam"}, {"images": 2}),
    "generative-priors/learned": Spot({"upload": "signs", "attack": "learned"}, {"seeds": [0]}),
    "hiding-the-input/attack": Spot({"part": "digits", "k": 2, "rounds": 1, "seed": 0}),
    "malicious-server/bins": Spot({"data": "mnist", "edges": "measured", "batch": 64, "bins": 128}),
    "malicious-server/fishing": Spot(
        {"part": "caught", "net": "mlp", "batch": 16, "bait": "feature"}
    ),
    "loda/attack": Spot({"part": "identify", "layers": "loda1"}, needs=("cifar10",)),
    "loda/training": Spot({"part": "extractor", "arm": "none"}, needs=("cifar10",)),
    "measuring-leakage/lpips": Spot(
        {"kind": "distortion", "data": "mnist", "name": "shift"}, needs=("lpips",)
    ),
    "membership/attack": Spot({"data": "mnist", "how": "central", "round": 0, "target": "global"}),
    "million-clients/measured": Spot({"part": "run", "net": "mlp", "clients": 10}),
    "modelcloak-fixed/attack": Spot(
        {"data": "mnist", "reading": "text", "start": "private image", "sigma": 6, "clip": 4}
    ),
    "modelcloak-dynamic/training": Spot(
        {"part": "fade", "round": 0, "whose": "trained on"},
        only=("norms", "no noise", "noise that follows"),
    ),
    "modelcloak-fixed/epsilon": Spot({"sigma": 6, "rounds": 100}),
    "modelcloak-fixed/training": Spot({"data": "faces", "where": "no noise", "seed": 0}),
    "what-epsilon-buys/attack": Spot(
        {"net": "mlp", "attack": "likelihood", "sigma": 0.001, "clip": 0.25, "rounds": 1}
    ),
    "changing-the-model/precode": Spot({"part": "attack", "draw": "none", "attack": "L-BFGS"}),
    "proof-bound-audit/axis": Spot({"part": "attack", "sigma": 1.0, "rounds": 1}, {"seeds": [0]}),
    "proof-bound-audit/mechanisms": Spot({"case": "ModelCloak"}, {"seeds": [0]}),
    "proof-bound-audit/second": Spot({"sigma": 1.0, "rounds": 8, "rate": 0.1}),
    "reach/map": Spot(
        {"net": "MLP ReLU", "data": "mnist", "batch": 8, "steps": 4, "attack": "components"},
        {"seeds": [0]},
    ),
    "reach/spear": Spot({"data": "mnist", "batch": 4, "bits": 64, "sigma": 0.0}, {"seeds": [0, 1]}),
    "red-team/age": Spot(
        {"defense": "none", "attack": "recursion", "age": 0}, {"seeds": [0]}, only=("networks",)
    ),
    "red-team/axes": Spot(
        {"defense": "Entanglement", "net": "MLP ReLU", "batch": 4, "attack": "SPEAR"},
        {"seeds": [0]},
        only=("networks",),
    ),
    "red-team/repairs": Spot(
        {"part": "attack", "family": "fedkl", "defense": "plain"},
        {"seeds": [0]},
        only=("networks",),
    ),
    "your-own-run/causes": Spot(
        {"cause": "update taken for a gradient"},
        {"networks": [0]},
        only=("psnr",),
    ),
    "your-own-run/photograph": Spot({"image": 1, "evaluations": 5}),
    "through-the-layers/trained": Spot({"act": "sigmoid", "recipe": "untrained", "seed": 0}),
}

IN_COLOR = {  # a second cell of studies whose first one needs no download
    "all-against-all/table": Spot(
        {"part": "attack", "data": "cifar10", "row": "none", "attacker": "informed"},
        {"seeds": [0]},
        needs=("cifar10",),
        only=("networks", "letter"),
    ),
    "reach/map": Spot(
        {"net": "MLP ReLU", "data": "cifar10", "batch": 4, "attack": "components"},
        {"seeds": [0]},
        needs=("cifar10",),
    ),
}


def differences(stored: Any, again: Any, path: str = "", few: bool = False) -> list[str]:
    """Where two results differ by more than machines do: one line each."""
    key, stored, again = path.rsplit("/", 1)[-1], _numbers(stored), _numbers(again)
    if CLOCKS.search(key) or (few and SUMS.search(key)):
        return []
    if key.startswith("lpips") and again is None:  # where its weights are not at hand
        return []
    if isinstance(stored, dict) and isinstance(again, dict):
        missing = [f"{path}/{k}: only one has it" for k in stored.keys() ^ again.keys()]
        both = [k for k in stored if k in again]
        return missing + [
            d for k in both for d in differences(stored[k], again[k], f"{path}/{k}", few)
        ]
    if isinstance(stored, list) and isinstance(again, list):
        if len(stored) != len(again) and not few:
            return [f"{path}: {len(stored)} entries, now {len(again)}"]
        pairs = zip(stored, again, strict=False)
        return [d for a, b in pairs for d in differences(a, b, path, few)]
    return (
        [] if _close(key, stored, again) else [f"{path}: {stored!r:.60} stored, {again!r:.60} now"]
    )


def _numbers(value: Any) -> Any:
    """A curve is stored as one text of many numbers."""
    curve = isinstance(value, str) and re.fullmatch(r"[\d.]+( [\d.]+)+", value)
    return [float(word) for word in value.split()] if curve else value


def _close(key: str, stored: Any, again: Any) -> bool:
    if isinstance(stored, str) and isinstance(again, str):
        if len(stored) > 150:  # a picture, stored as text in one of two ways
            return (unpack(stored) - unpack(again)).abs().mean().item() < 0.03
        return stored == again
    numbers = isinstance(stored, int | float) and isinstance(again, int | float)
    if not numbers or isinstance(stored, bool):
        return stored == again
    kind = next((k for k in TOLERANCES if k in key), None)
    if kind == "psnr" and min(stored, again) >= EXACT:
        return True
    wide, share = TOLERANCES.get(kind, (1e-3, 0.03))
    return abs(stored - again) <= wide + share * max(abs(stored), abs(again))


def compute_again(name: str, spot: Spot) -> tuple[dict, dict]:
    """(the stored cell, the same from today's code), without the keys that name it."""
    study = STUDIES[name]
    settings, stored = study.settings("cpu"), study.show()["cells"]
    (cell,) = [c for c in study.cells(settings) if spot.cell.items() <= c.items()]
    (row,) = [r for r in stored if cell.items() <= r.items()]
    with solvers() as used:
        again = json.loads(json.dumps(study.compute(settings | spot.few, cell)))
    again["solvers"] = sorted(used) if "solvers" in row else None
    return {"solvers": None} | {k: v for k, v in row.items() if k not in cell}, again


@pytest.mark.parametrize("name", list(STUDIES))
def test_a_stored_cell_comes_out_again(name, asset):
    compare(name, SPOTS[name], asset)


@pytest.mark.parametrize("name", IN_COLOR)
def test_a_stored_cell_in_color_comes_out_again(name, asset):
    compare(name, IN_COLOR[name], asset)


def compare(name, spot, asset):
    asset(*spot.needs)
    found = differences(*compute_again(name, spot), few=bool(spot.few))
    if spot.only:
        found = [d for d in found if d.startswith(tuple(f"/{path}" for path in spot.only))]
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("name", ["changing-the-model/precode", "reach/map"])
def test_refusals_are_the_sentences_of_today(name):
    """Untrained networks that the recursion refuses: counts, so nothing is computed."""
    study, found = STUDIES[name], 0
    settings = study.settings("cpu") | ({"seeds": [0]} if name == "reach/map" else {})
    status = pf.assets.status()
    for cell in study.cells(settings):
        if cell.get("data") == "cifar10" and status["cifar10"] != "ready":
            continue  # comes with no package
        (row,) = [r for r in study.show()["cells"] if cell.items() <= r.items()]
        if "refused" in row and cell.get("age", 0) == 0:
            assert study.compute(settings, cell)["refused"] == row["refused"]
            found += 1
    assert found >= 2


# --- the comparison itself can fail ---


@pytest.mark.parametrize(
    ("stored", "again", "same"),
    [
        ({"psnr": [60.0, 20.0]}, {"psnr": [90.0, 20.4]}, True),
        ({"psnr": [60.0, 20.0]}, {"psnr": [30.0, 20.0]}, False),
        ({"labels_right": 3}, {"labels_right": 4}, False),
        ({"seconds": 3, "n": 1}, {"seconds": 9, "n": 1}, True),
        ({"n": 1}, {"n": 1, "more": 2}, False),
        ({"n": [1, 2]}, {"n": [1]}, False),
        ({"said": "yes"}, {"said": "no"}, False),
        ({"exact": True}, {"exact": False}, False),
    ],
)
def test_the_comparison_sees_differences(stored, again, same):
    assert (not differences(stored, again)) is same


def test_fewer_images_are_compared_as_far_as_they_go():
    assert not differences({"ssim": [0.5, 0.9], "mean": 1}, {"ssim": [0.5], "mean": 2}, few=True)
    assert differences({"ssim": [0.5, 0.9]}, {"ssim": [0.9]}, few=True)
