"""Launch buttons: every notebook's first cell makes the package importable where it is missing.

The cell runs unchanged, in IPython, in a new virtual environment. Only git is told to take the
repository's address from here (a commit of the working tree). To need no network and no 2 GB, the
environment sees this one's installed packages, but not privfl_lite; test_imports_are_declared
makes up for that. ``PRIVFL_FULL=1`` uses a really empty environment, in which pip gets everything.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from test_notebooks import NOTEBOOKS

ROOT = Path(__file__).resolve().parents[1]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
URL = CONFIG["repository"]["url"]
FULL = os.environ.get("PRIVFL_FULL", "0") not in ("", "0")
LIGHT = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # 0: pip reads it as "no isolation"
RUN = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
called = []
original = shell.system
shell.system = lambda command: (called.append(command), original(command))[1]
for cell in json.load(sys.stdin):
    shell.run_cell(cell).raise_error()
    if shell.user_ns.get("_exit_code"):
        sys.exit(f"the command failed: {called}")
print("CALLED", len(called))
"""


def first_cell(path: Path) -> str | None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return next(("".join(c["source"]) for c in cells if c["cell_type"] == "code"), None)


CELLS = {path.name: cell for path in NOTEBOOKS if (cell := first_cell(path))}


def run(python: Path | str, cells: list[str], cwd: Path, **env: str) -> str:
    """Run cells in IPython under another Python, away from the checkout; what they print."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GIT_"))}
    done = subprocess.run(
        [python, "-c", RUN],
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**clean, "IPYTHONDIR": str(cwd / "ipython"), **env},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def git(*arguments: str, cwd: Path) -> str:
    who = [
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def commit_of_the_tree(folder: Path) -> Path:
    """A repository with one commit: the files that the package is built from, as they are now."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-text", "requirements.txt"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "privfl_lite", folder / "privfl_lite", ignore=ignore)
    git("init", "-q", "-b", CONFIG["repository"]["branch"], cwd=folder)
    git("add", ".", cwd=folder)
    git("commit", "-q", "-m", "test", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A new environment without the package, and the variables that lead git to the checkout."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    base = tmp_path_factory.mktemp("launch")
    subprocess.run([sys.executable, "-m", "venv", base / "venv"], check=True, capture_output=True)
    python = base / "venv" / "bin" / "python"
    if FULL:
        command = [python, "-m", "pip", "install", "-q", "ipython"]
        subprocess.run(command, check=True, capture_output=True)
        env = {"PIP_CONSTRAINT": str(ROOT / "requirements.txt")}
    else:  # a .pth file inside that folder is not read, so an editable install stays invisible
        command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        inside = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        Path(inside, "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        command = [python, "-m", "pip", "uninstall", "-q", "-y", "setuptools"]  # an old one
        subprocess.run(command, capture_output=True)
        env = dict(LIGHT)
    (base / "repository").mkdir()
    source = commit_of_the_tree(base / "repository")
    env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{source.as_uri()}.insteadOf"}
    return python, {**env, "GIT_CONFIG_VALUE_0": URL}


@pytest.mark.book
def test_first_cell_installs_the_package_where_it_is_missing(empty, tmp_path: Path):
    python, env = empty
    missing = "import importlib.util\nassert importlib.util.find_spec('privfl_lite') is None"
    run(python, [missing], tmp_path, **env)
    works = "import privfl_lite as pf\nprint(pf.__file__, pf.load('mnist').x_test.shape)"
    for cell in sorted(set(CELLS.values())):
        said = run(python, [cell, works], tmp_path, **env)
        assert str(python.parents[1]) in said, f"not imported from the new environment: {said}"
        assert "CALLED 1" in said
        command = [python, "-m", "pip", "uninstall", "-q", "-y", "privfl_lite"]
        subprocess.run(command, check=True, capture_output=True)


def test_first_cell_does_nothing_where_the_package_is(tmp_path: Path):
    for cell in sorted(set(CELLS.values())):
        assert run(sys.executable, [cell], tmp_path).strip() == "CALLED 0"


@pytest.mark.parametrize("name", CELLS)
def test_first_cell_is_the_installer(name: str):
    cell = CELLS[name]
    assert 'find_spec("privfl_lite") is None' in cell, "the first cell must install the package"
    assert re.search(rf"%pip install -q git\+{re.escape(URL)}$", cell, re.M), f"not from {URL}"


def test_imports_are_declared():
    """What the package imports stands in pyproject.toml, so that pip brings it along."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        re.match(r"[\w.-]+", d)[0].lower().replace("_", "-") for d in project["dependencies"]
    }
    for extra in project.get("optional-dependencies", {}).values():
        declared |= {re.match(r"[\w.-]+", d)[0].lower().replace("_", "-") for d in extra}
    names = metadata.packages_distributions()
    missing = {}
    for path in (ROOT / "privfl_lite").rglob("*.py"):
        for module in imported(ast.parse(path.read_text(encoding="utf-8"))):
            owners = {n.lower().replace("_", "-") for n in names.get(module, [module])}
            if module not in sys.stdlib_module_names and not owners & (declared | {"privfl-lite"}):
                missing[module] = path.relative_to(ROOT).as_posix()
    assert not missing, f"imported, but not in pyproject's dependencies: {missing}"


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


def test_packages_of_the_project_are_all_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "privfl_lite").rglob("__init__.py")
    }
    assert folders == set(project["tool"]["setuptools"]["packages"])


def test_buttons_come_from_one_setting():
    buttons = CONFIG["launch_buttons"]
    assert buttons["colab_url"] and buttons["binderhub_url"]
    assert CONFIG["repository"]["path_to_book"] == ""


def test_binder_has_the_cpu_build_and_the_package():
    lines = (ROOT / ".binder" / "requirements.txt").read_text(encoding="utf-8").split("\n")
    assert any(line.endswith("/whl/cpu") for line in lines) and "-r ../requirements.txt" in lines
    script = ROOT / ".binder" / "postBuild"
    assert os.access(script, os.X_OK) and "--no-deps -e ." in script.read_text(encoding="utf-8")


@pytest.mark.parametrize("host", ["colab.research.google.com", "mybinder.org"])
@pytest.mark.book
def test_pages_of_notebooks_have_the_buttons(tmp_path_factory: pytest.TempPathFactory, host: str):
    from browser import shared_site
    from test_notebooks import toc_files

    site = shared_site(tmp_path_factory)
    owner = URL.removeprefix("https://github.com/")
    for name in toc_files():
        if (ROOT / f"{name}.ipynb").is_file():
            html = (site / f"{name}.html").read_text(encoding="utf-8")
            links = re.findall(rf'href="(https://{re.escape(host)}/[^"]+)"', html)
            assert any(owner in link and f"{name}.ipynb" in link for link in links), (name, links)
