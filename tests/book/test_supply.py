"""What `make` installs: from where, compared with which hashes, and not without asking."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from hashes import compare, file_and_hash, known, main  # noqa: E402

HASHES = known((ROOT / "hashes.txt").read_text(encoding="utf-8"))


def entry(url: str, digest: str = "", **archive) -> dict:
    """One entry of pip's report; newer ones have ``hashes``, older ones only ``hash``."""
    info = {"hash": f"sha256={digest}"} if digest else None
    return {
        "download_info": {"url": url, **({"archive_info": {**info, **archive}} if info else {})}
    }


def test_hashes_are_of_the_versions_in_the_lock():
    lock = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lock if not line.startswith("#"))
    files = {}
    for file, digest in HASHES.items():
        assert re.fullmatch("[0-9a-f]{64}", digest) and file.endswith(".whl")
        name, version = file.split("-")[:2]
        name = re.sub(r"[-_.]+", "-", name).lower()
        assert pins[name] == version, f"{file}: the lock has {pins[name]}; make lock"
        files.setdefault(name, set()).add(file)
    assert set(files) == set(pins), "every package has at least one known file"
    for python in ("cp311", "cp312", "cp313", "cp314"):
        assert any(f"-{python}-manylinux_2_28_x86_64" in file for file in files["torch"])


def test_a_file_with_another_hash_is_refused(tmp_path, capsys):
    file, digest = next(iter(HASHES.items()))
    local = {"download_info": {"url": "file:///here", "dir_info": {"editable": True}}}
    good = entry(f"https://index/{file}#sha256={digest}", digest)
    new = entry(f"https://index/{file}", "0" * 64, hashes={"sha256": "0" * 64})
    build = entry("https://index/torch-2.13.0%2Bcpu-cp311-cp311-linux.whl", "1" * 64)
    assert file_and_hash(build) == ("torch-2.13.0+cpu-cp311-cp311-linux.whl", "1" * 64)
    assert compare([good, local], HASHES) == ([], [])
    assert compare([good, new], HASHES) == ([file], [])
    assert compare([build, local], HASHES) == ([], ["torch-2.13.0+cpu-cp311-cp311-linux.whl"])
    for installs, code in (([good, build], 0), ([build, new], 1)):
        (tmp_path / "report.json").write_text(json.dumps({"install": installs}))
        assert main(str(tmp_path / "report.json")) == code
    told = capsys.readouterr()
    assert "1 files have the SHA-256" in told.out and "not known there: torch" in told.out
    assert told.err == f"{file} does not have the SHA-256 that hashes.txt names\n"


def tracked() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git working tree")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_second_index_may_serve_any_name():
    """An index beside the usual one could serve every package; ours is asked for two, by name."""
    banned = re.compile("extra.index.url", re.IGNORECASE)
    allowed = {"scripts/lock.py", Path(__file__).relative_to(ROOT).as_posix()}  # which empties it
    for path in tracked():
        if path.suffix in (".sh", ".yml", ".txt", ".md", ".py", ".toml", "", ".ipynb"):
            text = path.read_text(encoding="utf-8", errors="replace")
            name = path.relative_to(ROOT).as_posix()
            assert name in allowed or not banned.search(text), name
    script = (ROOT / "scripts" / "torch_cpu.sh").read_text(encoding="utf-8")
    assert "--no-deps" in script and "--index-url https://" in script
    assert "grep -E '^(torch|torchvision)==' requirements.txt" in script


def test_code_downloads_by_https_only():
    for path in tracked():
        if path.suffix in (".py", ".sh") and path.parts[len(ROOT.parts)] in (
            "privfl_lite",
            "scripts",
        ):
            for url in re.findall(r"http://[^\s\"'<>)]+", path.read_text(encoding="utf-8")):
                assert "www.w3.org" in url, f"{path.relative_to(ROOT)}: {url}"  # a namespace


FAKE = """#!/bin/sh
echo "$@" >>"$LOG"
case "$*" in *--report*) printf '{"install": []}' >"${0%/bin/*}/report.json" ;; esac
"""


@pytest.fixture
def fake(tmp_path) -> Path:
    """A folder that looks like a virtual environment and only writes down what it is told."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    for name in ("python", "pip"):
        (tmp_path / "venv" / "bin" / name).write_text(FAKE)
        (tmp_path / "venv" / "bin" / name).chmod(0o755)
    return tmp_path


def set_up(folder: Path, answer: str | None = None, **env: str) -> tuple[int, str, list[str]]:
    """Run setup.sh, at a terminal if there is an answer: exit code, what is said, calls of pip."""
    command, log = ["sh", "scripts/setup.sh", str(folder / "venv")], folder / "log"
    env = {**os.environ, "PRIVFL_TORCH": "", "LOG": str(log), **env}
    if answer is None:
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        code, said = done.returncode, done.stdout + done.stderr
    else:
        ours, theirs = os.openpty()
        os.write(ours, answer.encode())
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdin=theirs, capture_output=True, text=True, timeout=60
        )
        os.close(ours)
        os.close(theirs)
        code, said = done.returncode, done.stdout + done.stderr
    lines = log.read_text().splitlines() if log.exists() else []
    return code, said, [line for line in lines if "install" in line]


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
@pytest.mark.parametrize("answer", ["y\n", "Yes\n", None])
def test_yes_and_nobody_there_go_on(fake, answer):
    code, said, told = set_up(fake, answer)
    assert code == 0 and "About to install into the folder" in said and "3 GB" in said
    assert ("Go on? [y/N]" in said) is (answer is not None)
    assert len(told) == 2 and "-r requirements.txt -c constraints.txt" in told[0]
    assert told[1].endswith("--no-deps --no-build-isolation -e .")


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04", "what?\n"])
def test_everything_else_installs_nothing(fake, answer):
    code, said, told = set_up(fake, answer)
    assert code == 1 and "Nothing was installed." in said and not told


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_the_cpu_builds_come_first_and_alone(fake):
    code, said, told = set_up(fake, PRIVFL_TORCH="cpu")
    assert code == 0 and "0.45 GB" in said and "3 GB" not in said and len(told) == 3
    assert re.search(r"--no-deps .*/whl/cpu torch==[\d.]+ torchvision==[\d.]+$", told[0])
    code, said, _ = set_up(fake, PRIVFL_TORCH="gpu")
    assert code == 1 and "PRIVFL_TORCH is 'gpu'; it may be cpu, or not set" in said


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_a_wrong_hash_removes_the_environment(fake):
    python = fake / "venv" / "bin" / "python"
    python.write_text(FAKE + 'case "$*" in *hashes.py*) exit 1 ;; esac\n')
    code, said, told = set_up(fake)
    assert code == 1 and "was removed" in said and len(told) == 1
    assert not (fake / "venv").exists()
