"""Launch buttons: every notebook's first cell makes the package importable where it is missing.

The cell runs unchanged, in IPython, in a new virtual environment. Only git is told to take the
repository's address from here (a commit of the working tree). To need no network and no 2 GB, the
environment sees this one's installed packages, but not privfl_lite; the tests of what is declared
make up for that. ``PRIVFL_FULL=1`` uses a really empty environment, in which pip gets everything.
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
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from checkout import BOOK, NOTEBOOKS, STUDENT

import privfl_lite
from privfl_lite.commands.doctor import USES

ROOT = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
URL = CONFIG["repository"]["url"]
FULL = os.environ.get("PRIVFL_FULL", "0") not in ("", "0")
LIGHT = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # 0: pip reads it as "no isolation"
RUN = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in json.load(sys.stdin):
    shell.run_cell(cell).raise_error()
"""


def first_cell(path: Path) -> str | None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return next(("".join(c["source"]) for c in cells if c["cell_type"] == "code"), None)


FILES = (*NOTEBOOKS, *STUDENT)
CELLS = {str(p.relative_to(BOOK)): cell for p in FILES if (cell := first_cell(p))}


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
        env = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
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
        assert said.startswith("privfl_lite is installed\n"), said
        assert str(python.parents[1]) in said, f"not imported from the new environment: {said}"
        command = [python, "-m", "pip", "uninstall", "-q", "-y", "privfl_lite"]
        subprocess.run(command, check=True, capture_output=True)


def test_first_cell_does_nothing_where_the_package_is(tmp_path: Path):
    for cell in sorted(set(CELLS.values())):
        assert run(sys.executable, [cell], tmp_path) == ""


@pytest.mark.parametrize("name", CELLS)
def test_first_cell_is_the_installer(name: str):
    cell = CELLS[name]
    assert 'find_spec("privfl_lite") is None' in cell, "the first cell must install the package"
    assert f'"git+{URL}"' in cell, f"not from {URL}"
    assert "privfl_lite[book] @" in cell, "chapters need the extra book"


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def named(lines: Iterable[str]) -> set[str]:
    """The packages that requirement lines name, spelled as pip does: ``dp-accounting``."""
    lines = (line.partition("#")[0].strip() for line in lines)
    names = (re.match(r"[\w.-]+", line)[0] for line in lines if line and line[0] != "-")
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def declared(extra: str = "") -> set[str]:
    """What ``privfl_lite`` or ``privfl_lite[extra]`` asks pip for, with the extras it names."""
    if not extra:
        return named(PROJECT["dependencies"])
    found = declared() | named(EXTRAS[extra]) - {"privfl-lite"}
    for other in re.findall(r"privfl_lite\[(\w+)\]", " ".join(EXTRAS[extra])):
        found |= declared(other)
    return found


OWNERS = metadata.packages_distributions()


def foreign(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, str]]:
    """(package, extra) of every import of a package that is not ours; extra: of ``needs`` round it.

    Imports under ``if TYPE_CHECKING`` do not count: they are not run.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        for module in {name.partition(".")[0] for name in names}:
            if module not in {*sys.stdlib_module_names, "privfl_lite"}:
                yield min(named(OWNERS.get(module, [module]))), inside
        needed = re.match(r"with needs\('(\w+)'\)", ast.unparse(node))
        yield from foreign(node, needed[1] if needed else inside)


@pytest.mark.parametrize("room", [".", "attacks", "defenses", "studies", "teach"])
def test_imports_are_declared(room: str):
    """A room imports what a plain install brings; what an extra brings, inside ``needs(extra)``.

    ``teach`` is the book's: its ``__init__`` asks for matplotlib before any other module is read.
    """
    granted = declared() | ({"matplotlib"} if room == "teach" else set())
    for path in sorted((ROOT / "privfl_lite" / room).glob("*.py")):
        for package, extra in foreign(ast.parse(path.read_text(encoding="utf-8"))):
            allowed = declared(extra) if extra else granted
            assert package in allowed, f"{path.relative_to(ROOT)} imports {package} ({extra})"


def test_notebooks_import_what_book_brings():
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        lines = [line for line in code.splitlines() if not line.lstrip().startswith(("%", "!"))]
        found = {package for package, _ in foreign(ast.parse("\n".join(lines)))}
        assert found <= declared("book"), path.name


def test_the_doctor_knows_every_package():
    brought = declared("book")
    assert brought <= set(USES) <= declared("dev")
    for name, (_, extra) in USES.items():
        assert name in declared(extra), f"{name} does not come with {extra or 'a plain install'}"
        assert extra in ("", "dp") or name not in declared("dp"), name


def test_a_plain_install_is_small():
    assert declared() < declared("dp") < declared("book") < declared("dev")
    assert not declared() & named(["ipywidgets", "lpips", "opacus", "torchvision", "jupyterlab"])


def lines_of(name: str) -> list[str]:
    return (ROOT / name).read_text(encoding="utf-8").splitlines()


def test_requirements_are_what_the_project_declares():
    """One environment has it all: the short list names what pyproject.toml does, and no more."""
    assert named(lines_of("requirements.txt")) == declared("dev")


def test_the_lock_pins_everything():
    lines = [line for line in lines_of("constraints.txt") if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][\w.]*", line) for line in lines), (
        "no paths, no URLs"
    )
    assert len(lines) == len(named(lines)) > 150
    pins = dict(line.split("==") for line in lines)
    assert not [name for name in pins if re.match("nvidia-|cuda-|triton$", name)]
    assert named(lines_of("requirements.txt")) <= set(pins)
    for line in lines_of("requirements.txt"):
        name, sign, version = line.partition("#")[0].strip().partition("==")
        assert not sign or pins[name] == version, f"{line}: the lock has {pins[name]}; make lock"


def test_the_lock_is_closed_under_what_its_packages_need():
    """Nothing that an installed package of the lock needs here is missing from the lock."""
    pins = named(lines_of("constraints.txt"))
    here = {min(named([d.metadata["Name"]])): d for d in metadata.distributions()}
    for name in pins & set(here):
        for line in here[name].requires or []:
            if "extra" not in line.partition(";")[2] and (needed := min(named([line]))) in here:
                assert needed in pins, f"{name} needs {needed}: make lock"


def test_setup_uses_the_lock_and_its_hashes():
    script = " ".join(" ".join(lines_of("scripts/setup.sh")).replace("\\", "").split())
    wanted = (
        '--only-binary=:all: --report "$venv/report.json" -r requirements.txt -c constraints.txt'
    )
    steps = [wanted, "scripts/hashes.py", "--no-deps --no-build-isolation -e ."]
    assert [step for step in steps if step in script] == steps
    assert sorted(steps, key=script.index) == steps
    assert any(line.startswith("lock: ") for line in lines_of("Makefile"))


def test_the_version_stands_in_one_place():
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    assert metadata.version("privfl_lite") == privfl_lite.__version__
    assert f"version: {privfl_lite.__version__}" in lines_of("CITATION.cff")


def test_buttons_come_from_one_setting():
    buttons = CONFIG["launch_buttons"]
    assert buttons["colab_url"] and buttons["binderhub_url"]
    assert CONFIG["repository"]["path_to_book"] == ""


def test_binder_has_the_cpu_build_and_the_package():
    script = ROOT / ".binder" / "postBuild"
    steps = ["scripts/torch_cpu.sh python", "-r requirements.txt -c constraints.txt"]
    steps += ["--no-deps --no-build-isolation -e .\n", "labextension disable jupyterlab-myst\n"]
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK) and sorted(steps, key=text.index) == steps
    assert text.endswith(steps[-1])


@pytest.mark.parametrize("host", ["colab.research.google.com", "mybinder.org"])
@pytest.mark.book
def test_buttons_of_pages_open_the_student_edition(
    tmp_path_factory: pytest.TempPathFactory, host: str
):
    from checkout import toc_files
    from chromium import shared_site

    site = shared_site(tmp_path_factory)
    owner = URL.removeprefix("https://github.com/")
    for name in toc_files():
        if (ROOT / f"{name}.ipynb").is_file():
            student = f"{name.replace('book/', 'book/student/')}.ipynb"
            html = (site / f"{name}.html").read_text(encoding="utf-8")
            links = re.findall(rf'href="(https://{re.escape(host)}/[^"]+)"', html)
            assert links and all(owner in k and k.endswith(student) for k in links), (name, links)
            (download,) = re.findall(r'href="(\.\./[^"]+\.ipynb)"', html)
            file = (site / name).parent / download
            assert file.read_bytes() == (ROOT / student).read_bytes(), download


def test_make_lab_opens_the_student_edition():
    """Without jupyterlab-myst, which leaves formulas inside <details> as they are written."""
    settings = json.loads((ROOT / "scripts/lab/labconfig/page_config.json").read_text())
    assert settings["disabledExtensions"] == {"jupyterlab-myst": True}
    assert any("JUPYTER_CONFIG_PATH=$(CURDIR)/scripts/lab " in k for k in lines_of("Makefile"))
    assert "jupyter labextension disable jupyterlab-myst" in lines_of(".binder/postBuild")
    assert any(
        line.endswith("jupyterlab --notebook-dir=book/student") for line in lines_of("Makefile")
    )


def test_make_lab_full_opens_signed_copies():
    """Unsigned, JupyterLab shows no stored widget; the signatures stay in _build."""
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = make.split("\nlab-full: ")[1].split("\n\n")[0]
    steps = ["-m editions --edition full", "jupyter trust $(TRUST) _build/full/*.ipynb"]
    steps += ["JUPYTER_CONFIG_PATH=$(CURDIR)/scripts/lab", "--notebook-dir=_build/full $(TRUST)"]
    assert sorted(steps, key=recipe.index) == steps
    (trust,) = [line for line in make.split("\n") if line.startswith("TRUST")]
    assert trust.count("$(CURDIR)/_build/") == 2
    binder = lines_of(".binder/postBuild")
    assert "PYTHONPATH=scripts python -m editions --edition full" in binder
    assert "jupyter trust _build/full/*.ipynb" in binder
