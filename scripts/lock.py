"""Resolve requirements.txt anew: versions go to constraints.txt, SHA-256 of files to hashes.txt.

``make lock`` runs it. pip only plans the installation here, and installs nothing. It plans for the
first release of the oldest Python that we support: a newer one may choose versions which that one
cannot install (Debian 12 has 3.11.2, and some packages ask for 3.11.5). Hashes are asked for every
Python and machine below, from the Python Package Index alone, whatever mirror is set up here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from hashes import file_and_hash

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# Exact versions of everything that `make` installs. Made by `make lock` from requirements.txt;
# do not edit. Libraries for NVIDIA GPUs are left out: the build of PyTorch brings its own.
"""
GPU = re.compile(r"nvidia-|cuda-|triton$")
HASHES = """\
# SHA-256 of the wheels of constraints.txt on the Python Package Index: what pip takes with Python
# {pythons}, on
# {machines}.
# Made by `make lock`; do not edit.
# scripts/hashes.py compares what was downloaded. Not known, so not compared: other machines, GPU
# libraries, and PyTorch's CPU builds, which come from an index of their own.
"""
OLD = (28, 27, 17, 12, 5)  # versions 2.x of glibc
NEW = (*range(40, 16, -1), 12, 5)
NAMES = {17: "2014", 12: "2010", 5: "1"}  # older names of the same


def linux(processor: str, glibc: tuple[int, ...]) -> list[str]:
    names = [f"_2_{n}" for n in glibc] + [NAMES[n] for n in glibc if n in NAMES]
    return [f"manylinux{name}_{processor}" for name in names]


MACHINES = {  # name: the platforms that pip may take there, best first
    "Linux x86-64": linux("x86_64", OLD),
    "Linux x86-64 with a newer glibc": linux("x86_64", NEW),
    "Linux ARM": linux("aarch64", OLD),
    "Linux ARM with a newer glibc": linux("aarch64", NEW),
    "macOS ARM": [
        *(f"macosx_{n}_0_arm64" for n in (14, 13, 12, 11)),
        *(f"macosx_{n}_universal2" for n in ("11_0", "10_15", "10_13", "10_12", "10_9")),
    ],
}


def ask_pip(options: str, **env: str) -> list[dict]:
    """What pip would install into an empty folder, from wheels."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        usual = "install -q --dry-run --ignore-installed --no-input --only-binary=:all:"
        command = [sys.executable, "-m", "pip", *usual.split(), *options.split()]
        command += ["--target", folder, "--report", str(report)]
        subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **env})
        return json.loads(report.read_text(encoding="utf-8"))["install"]


def plan(oldest: str) -> list[dict]:
    """What pip would install into an empty environment of Python ``oldest``.0."""
    return ask_pip(f"--python-version {oldest}.0 -r requirements.txt")


def pins(installs: list[dict]) -> list[str]:
    """Lines ``name==version``, sorted; of a version such as 2.13.0+cpu only 2.13.0."""
    found = {re.sub(r"[-_.]+", "-", i["metadata"]["name"]).lower(): i for i in installs}
    return [
        f"{name}=={found[name]['metadata']['version'].partition('+')[0]}"
        for name in sorted(found)
        if not GPU.match(name)
    ]


def hashes(pythons: list[str]) -> dict[str, str]:
    """File -> SHA-256 of the wheels of constraints.txt, for all Pythons and machines."""
    found: dict[str, str] = {}
    for platforms in MACHINES.values():
        for python in pythons:
            options = f"--no-deps --python-version {python} --implementation cp -r constraints.txt"
            options += "".join(f" --platform {name}" for name in platforms)
            alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_INDEX_URL": ""}
            alone["PIP_EXTRA_INDEX_URL"] = ""
            found |= dict(map(file_and_hash, ask_pip(options, **alone)))
    return found


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    if ".".join(map(str, sys.version_info[:2])) != oldest:
        print(f"make lock needs Python {oldest}, the oldest that we support", file=sys.stderr)
        return 1
    lines = pins(plan(oldest))
    (ROOT / "constraints.txt").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"constraints.txt: {len(lines)} packages")
    write_hashes([c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c])
    return 0


def write_hashes(pythons: list[str]) -> None:
    found = hashes(pythons)
    head = HASHES.format(pythons=", ".join(pythons), machines=", ".join(MACHINES))
    lines = [f"{digest}  {file}" for file, digest in sorted(found.items())]
    (ROOT / "hashes.txt").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"hashes.txt: {len(lines)} files")


if __name__ == "__main__":
    sys.exit(main())
