"""What CONTRIBUTING and the templates promise: files, names and commands exist."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import privfl_lite as pf
from privfl_lite import contract
from privfl_lite.cli import parser
from privfl_lite.studies import STUDIES

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROSE = re.sub(r"(?ms)^```.*?^```$", "", TEXT)
INLINE = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", PROSE)]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_files_that_it_names_exist():
    paths = [
        c for c in INLINE if re.fullmatch(r"[\w.-]+(/[\w.-]+)*\.(py|md|yml|ipynb|bib|toml)", c)
    ]
    paths += [c for c in INLINE if re.fullmatch(r"(privfl_lite|book|tests)(/[\w-]+)*/", c)]
    assert len(paths) > 20
    assert not [p for p in paths if not (ROOT / p).exists()]


def test_commands_that_it_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    block = "".join(re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)).splitlines()
    lines = [line.partition("#")[0].strip() for line in (*block, *INLINE)]
    commands = [line.split() for line in lines if re.match(r"(make|privfl) [a-z]", line)]
    assert len(commands) > 8
    for program, *words in commands:
        if program == "make":
            assert words[0] in targets, words
        else:
            parser().parse_args(words)


def test_the_lists_have_ten_steps_each():
    for title in ("A defense", "An attack", "A study", "A chapter"):
        part = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^(\d+)\. ", part, re.MULTILINE) == [str(i) for i in range(1, 11)], title


def test_examples_are_as_it_says():
    for path in (
        "privfl_lite/defenses/dp_gaussian.py",
        "privfl_lite/studies/matching_gradients/first_look.py",
    ):
        assert f"`{path}`, one short file" in TEXT
        assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) < 60
    assert "matching-gradients/first-look" in STUDIES
    assert pf.attacks.Unprune.answers == ("prune",)
    for name in ("data", "model", "leaves", "begin", "gradient", "update", "average", "facts"):
        assert inspect.isfunction(getattr(pf.defenses.Defense, name)), name
    assert contract.check_attack and contract.check_defense


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_issue_templates_are_forms(path: Path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name == "config.yml":
        return
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] in ("textarea", "input", "dropdown", "checkboxes")
        assert field["attributes"]["label"]


def test_hooks_run_the_tools_of_the_environment():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {hook["id"] for hook in hooks} == {"ruff", "ruff-format"}
    assert all(hook["entry"].startswith(".venv/bin/python -m ruff ") for hook in hooks)


def test_the_changelog_has_this_version_and_types_are_shipped():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert changes.index("## [Unreleased]") < changes.index(f"## [{pf.__version__}]")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["privfl_lite"]
    assert (ROOT / "privfl_lite" / "py.typed").is_file()
