"""Asking the explorables' own code in Node; a test that does is skipped where there is no Node."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from privfl_lite.teach.modules import JS

ASK = Path(__file__).parent / "js" / "explore.mjs"
EXPLORE = JS / "explore"
Question = tuple[str, str, list]  # module, export, arguments


def ask(*questions: Question) -> list[Any]:
    """What these exports return, or are."""
    if not (node := shutil.which("node")):
        pytest.skip("Node is not installed, which runs the explorables' own code")
    given = json.dumps([str(EXPLORE), questions])
    done = subprocess.run([node, ASK], input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return _numbers(json.loads(done.stdout))


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in value.items()}
    return float(value) if value in ("Infinity", "-Infinity", "NaN") else value


def settings(name: str, count: int = 20, seed: int = 0) -> list[dict[str, float]]:
    """Random places of an explorable's sliders, its ends included."""
    (found,) = ask((name, "explorable", []))
    controls, rng = found["controls"], random.Random(seed)

    def at(control: dict, share: float) -> float:
        if "values" in control:
            return control["values"][round(share * (len(control["values"]) - 1))]
        low, high = control["min"], control["max"]
        log = control.get("scale") == "log"
        value = low * (high / low) ** share if log else low + share * (high - low)
        return round(value) if control.get("whole") else value

    shares = [0.0, 1.0, *(rng.random() for _ in range(count))]
    places = [[s] * len(controls) for s in shares[:2]]
    places += [[rng.random() for _ in controls] for _ in range(count)]
    return [{c["key"]: at(c, s) for c, s in zip(controls, p, strict=True)} for p in places]


def computed(name: str, places: list[dict[str, float]]) -> list[dict[str, Any]]:
    """``compute`` at each of these settings."""
    return ask(*((name, "compute", [place]) for place in places))


def near(ours: Any, theirs: Any, tolerance: float = 1e-6) -> bool:
    """Equal to six digits, and equally infinite."""
    if isinstance(ours, list | tuple):
        pairs = zip(ours, theirs, strict=True)
        return all(near(a, b, tolerance) for a, b in pairs)
    return math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance * 1e-3)
