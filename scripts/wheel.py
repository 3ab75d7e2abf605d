"""Usage: wheel.py. What a reader without the checkout has: the wheel, and notebooks alone.

In ``_build/wheel`` it makes the wheel, an environment ``env`` in which that wheel is installed (it
sees the packages of this Python, but not the checkout: an editable install reaches no further than
its own environment), a Jupyter kernel ``wheel`` for it, and for each notebook a folder that holds
nothing else. ``make test`` runs the notebooks there, with that kernel.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "_build" / "wheel"
PYTHON = HOME / "env" / "bin" / "python"


def run(*command: object) -> None:
    """Run a program quietly; what it said is shown if it fails."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def build() -> Path:
    """The wheel of the checkout as it is now."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools would ship what was deleted
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", ROOT, "--no-deps", "--no-build-isolation", "-w", HOME)
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    (wheel,) = HOME.glob("*.whl")
    return wheel


def install(wheel: Path) -> None:
    """An environment that has the wheel, and all else from this one."""
    run(sys.executable, "-m", "venv", "--without-pip", HOME / "env")
    (site,) = (HOME / "env" / "lib").glob("python*/site-packages")
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", PYTHON]
    run(*pip, "install", "--no-deps", "--no-index", "--ignore-installed", wheel)


def kernel() -> None:
    """The Jupyter kernel of that environment; Jupyter finds it with JUPYTER_PATH=_build/wheel."""
    folder = HOME / "kernels" / "wheel"
    folder.mkdir(parents=True)
    argv = [str(PYTHON), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "installed wheel", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")


def copy_notebooks() -> None:
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        folder = HOME / "notebooks" / path.stem
        folder.mkdir(parents=True)
        shutil.copy(path, folder)


if __name__ == "__main__":
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    install(build())
    kernel()
    copy_notebooks()
