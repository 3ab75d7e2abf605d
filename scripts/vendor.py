"""Fetch the scripts that the built book needs in a browser, so that it can be read offline.

    python scripts/vendor.py

puts the widget manager, require.js and MathJax into book/_vendor (git ignores it), taken with
`npm pack` and compared with the hashes below. With that folder in place the book makes no request
to another host (book/_ext/offline.py); without it the usual CDN serves the same scripts. So where
it cannot be done (no npm, no network, PRIVFL_OFFLINE=1) this says so in one line and exits with 0.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

BOOK = Path(__file__).resolve().parents[1] / "book"
TARGET = BOOK / "_vendor"
SECONDS = 120  # for npm, all three packages

MANAGER = "@jupyter-widgets/html-manager@1.0.15"
REQUIRE = "requirejs@2.3.8"
MATHJAX = "mathjax@3.2.2"
PINS = {  # package: sha256 of npm's tarball
    MANAGER: "2b9d65cb7913e1c7d671757a10008b32c9c2448d4429513371e55c07d6107638",
    REQUIRE: "777158e89275e16bd51aec3ef714fbcb5dc45789e7078659933bc814916d7dec",
    MATHJAX: "1b9c0a1c44df864e915690558e72adb9cc5203360daefd385084ced3b6c64c09",
}
# Which files of a package go where under vendor/; a trailing slash means everything below.
# The manager asks for its icon fonts beside its own module name.
WANTED = {
    MANAGER: [
        ("dist/embed-amd.js", "embed-amd.js"),
        ("dist/*.woff2", "@jupyter-widgets/"),
        ("dist/*.woff2", "@jupyter-widgets/html-manager/dist/"),
    ],
    REQUIRE: [("require.js", "require.js")],
    MATHJAX: [
        ("LICENSE", "mathjax/LICENSE"),
        ("es5/tex-mml-chtml.js", "mathjax/tex-mml-chtml.js"),
        ("es5/a11y/", "mathjax/a11y/"),
        ("es5/input/tex/", "mathjax/input/tex/"),
        ("es5/output/chtml/fonts/", "mathjax/output/chtml/fonts/"),
        ("es5/sre/mathmaps/base.json", "mathjax/sre/mathmaps/base.json"),
        ("es5/sre/mathmaps/en.json", "mathjax/sre/mathmaps/en.json"),
    ],
}
STAMP = "".join(f"{name} {digest} {WANTED[name]}\n" for name, digest in PINS.items())


class Impossible(Exception):
    """Why there is nothing to vendor from here; the book then uses the CDN."""


def is_done(target: Path = TARGET) -> bool:
    """True if the folder holds exactly what PINS names (it appears in one step, when complete)."""
    stamp = target / "vendor" / "pins.txt"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == STAMP


def pack(folder: Path) -> dict[str, Path]:
    """The packages' tarballs as npm delivers them, in PINS' order."""
    if os.environ.get("PRIVFL_OFFLINE", "0") not in ("", "0"):
        raise Impossible("PRIVFL_OFFLINE is set")
    if not (npm := shutil.which("npm")):
        raise Impossible("npm is not installed")
    found = {}
    for name in PINS:
        inside = Path(tempfile.mkdtemp(dir=folder))
        command = [npm, "pack", "--silent", "--fetch-retries=1", "--fetch-timeout=30000", name]
        try:
            subprocess.run(command, cwd=inside, check=True, capture_output=True, timeout=SECONDS)
            (found[name],) = inside.glob("*.tgz")
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            raise Impossible(f"npm could not deliver {name}") from error
    return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def verify(name: str, tarball: Path) -> None:
    digest = sha256(tarball)
    if digest != PINS[name]:
        raise Impossible(f"{name} has the wrong hash ({digest[:12]}…) and was thrown away")


def destinations(path: str, wanted: list[tuple[str, str]]) -> list[str]:
    """Where a file of a package goes: nowhere if the book does not need it."""
    found = []
    for pattern, goal in wanted:
        if pattern.endswith("/"):
            found += [goal + path.removeprefix(pattern)] if path.startswith(pattern) else []
        elif fnmatch.fnmatchcase(path, pattern):
            found.append(goal + PurePosixPath(path).name if goal.endswith("/") else goal)
    return [goal for goal in found if ".." not in PurePosixPath(goal).parts]


def unpack(tarball: Path, wanted: list[tuple[str, str]], folder: Path) -> None:
    """Copy the wanted files; every pattern must have met at least one file."""
    with tarfile.open(tarball) as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            for goal in destinations(member.name.partition("/")[2], wanted):
                path = folder / goal
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())
    if missing := [goal for _, goal in wanted if not (folder / goal).exists()]:
        raise Impossible(f"{tarball.name} holds no {missing[0]}")


def vendor(target: Path = TARGET) -> None:
    """Fill the target in one step, or raise Impossible and leave it as it is."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="_vendor.", suffix=".tmp") as made:
        fresh = Path(made) / "fresh"
        for name, tarball in pack(Path(made)).items():
            verify(name, tarball)
            unpack(tarball, WANTED[name], fresh / "vendor")
        (fresh / "vendor" / "pins.txt").write_text(STAMP, encoding="utf-8")
        if target.exists():
            target.rename(Path(made) / "old")
        fresh.rename(target)


def main() -> int:
    if is_done():
        return 0
    try:
        vendor(TARGET)
    except (Impossible, OSError) as reason:
        if is_done():  # by another `make` at the same time
            return 0
        stays = "the one there stays" if TARGET.exists() else "the pages will use a CDN"
        print(f"No scripts for offline reading: {reason}; {stays}.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
