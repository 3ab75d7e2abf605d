"""What the README promises: its picture is there, its code runs, its commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from privfl_lite.cli import parser

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_ten_lines_run():
    (code,) = blocks("python")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PRIVFL_OFFLINE": "1", "PRIVFL_PROGRESS": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "psnr" in done.stdout and re.search(r"^3 0\.\d+$", done.stdout, re.MULTILINE)


def test_every_command_is_one():
    lines = "".join(blocks("bash")).splitlines() + re.findall(r"`(privfl [^`]+)`", README)
    commands = [line.partition("#")[0].split() for line in lines]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands:
        if words[0] == "make":
            assert words[1] in targets
        elif words != ["privfl", "--help"]:
            parser().parse_args(words[1:])


def test_the_picture_and_the_files_it_names_are_there():
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        assert path.startswith("http") or (ROOT / path).is_file(), path
