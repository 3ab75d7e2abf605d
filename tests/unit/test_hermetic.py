"""Tests have a cache and a folder of results of their own, and never read another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hermetic import forbidden

from privfl_lite import assets, stored
from privfl_lite.studies import STUDIES

ROOT = Path(__file__).resolve().parents[2]
REAL = os.environ.get("PRIVFL_TEST_DATA")


@pytest.mark.skipif(bool(REAL), reason="make test-data means to use the machine's cache")
def test_the_cache_is_a_new_folder_of_these_tests():
    for folder in (assets.cache(), stored.own(), Path(os.environ["TORCH_HOME"])):
        assert "privfl-tests-" in str(folder)
    assert not {"cifar10", "mnist", "lpips"} & {p.name for p in assets.cache().glob("*")}


@pytest.mark.skipif(bool(REAL), reason="make test-data means to use the machine's cache")
def test_a_file_of_the_machines_cache_cannot_be_opened():
    with pytest.raises(PermissionError, match="a test reads the cache of this machine"):
        (forbidden() / "mnist" / "manifest.json").open()


def test_whatever_the_machine_has_tests_do_not_see_it(tmp_path):
    """The two tests above, on a machine whose caches are full (of nonsense)."""
    for folder in (tmp_path / ".cache" / "privfl_lite", tmp_path / "cache", tmp_path / "results"):
        (folder / "mnist").mkdir(parents=True)
        (folder / "mnist" / "manifest.json").write_text("{}")
    mine = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PRIVFL", "XDG"))}
    mine |= {"HOME": str(tmp_path), "PRIVFL_CACHE": str(tmp_path / "cache")}
    mine |= {"PRIVFL_RESULTS": str(tmp_path / "results"), "TORCH_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", __file__, "-k", "new_folder or opened"]
    done = subprocess.run(command, cwd=ROOT, env=mine, capture_output=True, text=True)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", list(STUDIES))
def test_a_study_knows_its_settings_and_cells_without_data(name, monkeypatch):
    def no(*args: object) -> None:
        raise AssertionError("data was loaded")

    monkeypatch.setattr("privfl_lite.data._load", no)
    for profile in ("cpu", "gpu"):
        settings = STUDIES[name].settings(profile)
        assert STUDIES[name].cells(settings)
        assert not {"source", "sources"} & settings.keys()
