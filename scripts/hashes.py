"""Usage: hashes.py REPORT. Compare what pip downloaded, by its report, with hashes.txt.

A file that hashes.txt names and that has another SHA-256 is an error, and exit code 1. Files that
it does not name are told: another machine, a GPU library, a build from PyTorch's own index.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]


def file_and_hash(install: dict) -> tuple[str, str]:
    """Name and SHA-256 of the file of one entry in pip's report (``""``: a folder has none)."""
    info = install["download_info"]
    archive = info.get("archive_info", {})
    digest = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix(
        "sha256="
    )
    return unquote(info["url"].partition("#")[0].rpartition("/")[2]), digest


def known(text: str) -> dict[str, str]:
    """File -> SHA-256, out of lines ``sha256  file``."""
    lines = (line.split() for line in text.splitlines() if line and line[0] != "#")
    return {file: digest for digest, file in lines}


def compare(installs: list[dict], expected: dict[str, str]) -> tuple[list[str], list[str]]:
    """Files whose hash is another one, and files whose hash is not known."""
    files = dict(map(file_and_hash, installs))
    wrong = [file for file, digest in files.items() if expected.get(file, digest) != digest]
    return wrong, [file for file, digest in files.items() if digest and file not in expected]


def main(report: str) -> int:
    installs = json.loads(Path(report).read_text(encoding="utf-8"))["install"]
    expected = known((ROOT / "hashes.txt").read_text(encoding="utf-8"))
    wrong, unknown = compare(installs, expected)
    for file in wrong:
        print(f"{file} does not have the SHA-256 that hashes.txt names", file=sys.stderr)
    if wrong:
        return 1
    print(f"{len(installs) - len(unknown)} files have the SHA-256 of hashes.txt")
    if unknown:
        print(f"not known there: {', '.join(unknown)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
