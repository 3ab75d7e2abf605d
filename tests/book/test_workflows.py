"""What GitHub runs, as far as it can be checked here: YAML, permissions, commands, Pythons."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from privfl_lite.cli import parser

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
WORKFLOWS = {
    path.name: yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # "on" stays a word
    for path in sorted(FOLDER.glob("*.yml"))
}
JOBS = {(file, name): job for file, w in WORKFLOWS.items() for name, job in w["jobs"].items()}


def steps(key: str) -> list[tuple[str, dict]]:
    """(file/job, step) of all steps that have this key."""
    return [(f"{f}/{j}", s) for (f, j), job in JOBS.items() for s in job["steps"] if key in s]


def runs_of(*jobs: dict) -> list[str]:
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_a_pull_request_is_tested_on_all_pythons_and_then_main_is_published():
    assert set(WORKFLOWS) == {"tests.yml", "weekly.yml"}
    tests = WORKFLOWS["tests.yml"]
    assert "pull_request" in tests["on"] and tests["on"]["push"]["branches"] == ["main"]
    fast, full, pages = (tests["jobs"][name] for name in ("fast", "full", "pages"))
    assert fast["strategy"]["matrix"]["python"] == PYTHONS
    setup = next(s for s in fast["steps"] if s.get("uses", "").startswith("actions/setup-python"))
    assert setup["with"]["python-version"] == "${{ matrix.python }}"
    assert runs_of(fast) == ["make test-fast"] and runs_of(full) == ["make test", "make pdf"]
    assert not any("if" in job for job in (fast, full)), "they run on every pull request"
    assert set(pages["needs"]) == {"fast", "full"} and "refs/heads/main" in pages["if"]


def test_the_weekly_run_has_the_data():
    weekly = WORKFLOWS["weekly.yml"]
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", weekly["on"]["schedule"][0]["cron"])
    assert runs_of(*weekly["jobs"].values()) == ["make test-data"]


@pytest.mark.parametrize("file", WORKFLOWS)
def test_permissions_are_as_small_as_possible(file: str):
    assert WORKFLOWS[file]["permissions"] == {"contents": "read"}
    for name, job in WORKFLOWS[file]["jobs"].items():
        extra = {"pages": "write", "id-token": "write"} if name == "pages" else None
        assert job.get("permissions") == extra, name
        assert not (extra and runs_of(job)), "a job that may write runs no code of ours"
    text = (FOLDER / file).read_text(encoding="utf-8")
    assert "secrets." not in text and "pull_request_target" not in text


def test_actions_are_githubs_own_and_pinned():
    for where, step in steps("uses"):
        assert re.fullmatch(r"actions/[a-z-]+@(v\d+|[0-9a-f]{40})", step["uses"]), where
        if step["uses"].startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] == "false", where
        for key in ("path", "cache-dependency-path"):
            named = step.get("with", {}).get(key, "constraints.txt")
            assert named.startswith("_build/") or (ROOT / named).is_file(), where


def test_every_job_ends_and_starts_on_the_same_machine():
    for where, job in JOBS.items():
        assert job["runs-on"] == "ubuntu-latest" and 0 < int(job["timeout-minutes"]) <= 180, where


def test_every_command_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for where, step in steps("run"):
        for line in step["run"].splitlines():
            program, *words = line.split()
            assert program in ("make", "privfl"), f"{where}: {line}"
            if program == "make":
                assert words and set(words) <= targets, f"{where}: {line}"
            else:
                parser().parse_args(words)


def test_fetches_of_the_makefile_are_commands():
    """``make test-data`` calls ``privfl fetch`` in a loop over assets."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntest-data:")[2]
    assets = re.search(r"for asset in ([a-z0-9 ]+); do \S+/privfl fetch \$\$asset", recipe)
    for asset in assets[1].split():
        parser().parse_args(["fetch", asset])


def test_pythons_agree_everywhere():
    oldest = PYTHONS[0]
    assert [*PYTHONS] == [f"3.{minor}" for minor in range(11, 11 + len(PYTHONS))]
    assert PROJECT["requires-python"] == f">={oldest}"
    setup = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    assert f"sys.version_info < ({oldest.replace('.', ', ')})" in setup
    for version in PYTHONS:
        assert f"python{version}" in setup, f"setup.sh does not look for python{version}"
    runtime = (ROOT / ".binder" / "runtime.txt").read_text(encoding="utf-8")
    assert runtime.strip().removeprefix("python-") in PYTHONS
    for where, step in steps("uses"):
        version = step.get("with", {}).get("python-version", oldest)
        assert version in (*PYTHONS, "${{ matrix.python }}"), where
