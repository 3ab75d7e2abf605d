"""Resolve requirements.txt anew and write the version of every package to constraints.txt.

``make lock`` runs it. pip only plans the installation here, and installs nothing. It plans for the
first release of the oldest Python that we support: a newer one may choose versions which that one
cannot install (Debian 12 has 3.11.2, and some packages ask for 3.11.5).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# Exact versions of everything that `make` installs. Made by `make lock` from requirements.txt;
# do not edit. Libraries for NVIDIA GPUs are left out: the build of PyTorch brings its own.
"""
GPU = re.compile(r"nvidia-|cuda-|triton$")


def plan(oldest: str) -> list[dict]:
    """What pip would install into an empty environment of Python ``oldest``.0, from wheels."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = "install -q --dry-run --ignore-installed --no-input --only-binary=:all:"
        options += f" --python-version {oldest}.0 --target {folder} -r requirements.txt --report"
        command = [sys.executable, "-m", "pip", *options.split(), str(report)]
        subprocess.run(command, cwd=ROOT, check=True)
        return json.loads(report.read_text(encoding="utf-8"))["install"]


def pins(installs: list[dict]) -> list[str]:
    """Lines ``name==version``, sorted; of a version such as 2.13.0+cpu only 2.13.0."""
    found = {re.sub(r"[-_.]+", "-", i["metadata"]["name"]).lower(): i for i in installs}
    return [
        f"{name}=={found[name]['metadata']['version'].partition('+')[0]}"
        for name in sorted(found)
        if not GPU.match(name)
    ]


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    if ".".join(map(str, sys.version_info[:2])) != oldest:
        print(f"make lock needs Python {oldest}, the oldest that we support", file=sys.stderr)
        return 1
    lines = pins(plan(oldest))
    (ROOT / "constraints.txt").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"constraints.txt: {len(lines)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
