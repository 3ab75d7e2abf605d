"""The wheel carries all that chapters read, works away from the checkout, and stays small.

Notebooks run in the same environment (scripts/wheel.py, `make test`), each alone in a folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "_build" / "wheel"
LIMIT_MB = 6
pytestmark = pytest.mark.notebook


@pytest.fixture(scope="module")
def python() -> Path:
    """Python of an environment with the wheel; made here unless `make test` has made it."""
    if not (found := HOME / "env" / "bin" / "python").exists():
        subprocess.run([sys.executable, ROOT / "scripts" / "wheel.py"], check=True)
    return found


def run(cwd: Path, *command: object, **env: str) -> str:
    """What a program prints that runs in this folder, without our settings for tests."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PRIVFL_RESULTS"))}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**clean, **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout + done.stderr


def test_the_wheel_is_small_and_holds_results_weights_and_ledger(python):
    (wheel,) = HOME.glob("*.whl")
    assert wheel.stat().st_size < LIMIT_MB * 1e6
    names = set(zipfile.ZipFile(wheel).namelist())
    folder = ROOT / "privfl_lite"
    kinds = ("results/*.json", "results/*.yml", "results/weights/*", "**/*.py", "teach/js/**/*.*")
    kinds += ("challenges/*.json", "results/*/*.safetensors")
    want = {f"privfl_lite/{p.relative_to(folder)}" for k in kinds for p in folder.glob(k)}
    want = {name for name in want if not name.endswith(".part.json")}
    assert len(want) > 100 and not want - names, f"not in the wheel: {sorted(want - names)}"
    assert not [n for n in names if n.startswith(("book/", "tests/", "build/"))]


def test_the_notebooks_kernel_has_the_wheel_and_not_the_checkout(python, tmp_path):
    code = "import privfl_lite, IPython; print(privfl_lite.__file__)"
    where = Path(run(tmp_path, python, "-c", code).split()[-1])
    assert where.is_relative_to(HOME / "env") and not where.is_relative_to(ROOT / "privfl_lite")
    for folder in (HOME / "notebooks").iterdir():
        left = [p.name for p in folder.iterdir() if p.suffix != ".ipynb"]
        assert not left, f"{folder.name} was to hold its notebook alone, but has {left}"


def test_results_and_weights_are_read_from_the_wheel(python, tmp_path):
    code = """
from privfl_lite.attacks.generative.generator import load_generator
from privfl_lite.models.extractor import load_extractor
from privfl_lite.studies import STUDIES
from privfl_lite.teach import ledger
print(sum(len(STUDIES[name].show()["cells"]) > 0 for name in STUDIES) == len(STUDIES))
load_generator(32), load_extractor("loda1")
"""
    assert run(tmp_path, python, "-c", code).split() == ["True"]


def test_a_study_writes_where_the_user_is_and_is_preferred_with_a_word(python, tmp_path):
    command = (python, *"-m privfl_lite.cli study run modelcloak-fixed/epsilon --quiet".split())
    before = sorted((HOME / "env").rglob("*epsilon*.json"))
    run(tmp_path, *command)
    written = [p for p in (tmp_path / "results").rglob("*") if p.is_file()]
    assert written == [tmp_path / "results" / "modelcloak-fixed" / "epsilon.json"]
    assert sorted((HOME / "env").rglob("*epsilon*.json")) == before
    code = "from privfl_lite.studies import STUDIES as studies\n"
    code += "for _ in range(2): studies['modelcloak-fixed/epsilon'].show()"
    said = run(tmp_path, python, "-c", code)
    assert said.count("in place of the one that was shipped") == 1 and "\n" not in said.strip()
    run(tmp_path, *command, "--out", "elsewhere")
    assert (tmp_path / "elsewhere" / "modelcloak-fixed/epsilon.json").is_file()


def test_doctor_and_study_list_work_away_from_the_checkout(python, tmp_path):
    said = run(tmp_path, python, "-m", "privfl_lite.cli", "doctor")
    assert "python" in said and "Traceback" not in said
    assert "loda/attack" in run(tmp_path, python, "-m", "privfl_lite.cli", "study", "list")
