"""``privfl_lite.flower``: its tests run where Flower is, in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".flower" / "bin" / "python"
# Ray's start takes a minute on a busy machine: the simulation is run by make flower-demo
LONG = {"test_simulation.py"}
FILES = sorted({p.name for p in (ROOT / "tests" / "flower").glob("test_*.py")} - LONG)
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


@pytest.mark.skipif(not PYTHON.exists(), reason="needs Flower: make flower")
@pytest.mark.parametrize("name", FILES)
def test_on_flower(name, tmp_path):
    here = Path("tests", "flower")
    command = [PYTHON, "-m", "pytest", "-q", "-c", here / "pytest.ini", here / name]
    env = os.environ | QUIET | {"PYTHONPATH": str(ROOT), "FLWR_HOME": str(tmp_path)}
    env.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 0


@pytest.mark.skipif(find_spec("flwr") is not None, reason="Flower is installed here")
def test_without_flower_one_sentence_says_what_to_install():
    ask = "import privfl_lite.errors as e\ntry:\n import privfl_lite.flower\n"
    ask += "except e.PrivflError as error:\n print(error)"
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert said.stdout == 'Flower is not installed; run: pip install "privfl_lite[flower]"\n'
