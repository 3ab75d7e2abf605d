"""The package is typed: mypy, strictly configured, is part of `make test` and finds nothing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_make_test_checks_types():
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntest: ")[2]
    assert "$(PY) -m mypy || status=1" in recipe.partition("\n\n")[0]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["packages"] == ["privfl_lite"] and settings["check_untyped_defs"]
    assert not settings.get("exclude"), "no room is left out"


def test_few_lines_are_left_unchecked():
    """Each such line names the error that it is about."""
    found = [
        (path.name, line)
        for path in (ROOT / "privfl_lite").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "type: ignore" in line
    ]
    assert len(found) <= 6, found
    assert all(re.search(r"type: ignore\[[a-z-]+\]", line) for _, line in found), found
