"""What all faults share: the list of them, processes of the command line, and comparisons."""

from __future__ import annotations

import functools
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from privfl_lite import cli

TRAIN = "train --model lenet5 --clients 4 --size 14 --quiet --rounds"
STUDY = "modelcloak-fixed/epsilon"
DEFENSES = ("none", "modelcloak:clip=1,sigma=0.01", "prune:feedback=true", "fedkl:seed=0")
KINDS = (b"", b"{", b"\xff\xfe\x00", b"[]", b"null", b"7", b'"text"', b"{}", b'{"cells": 3}')
FLIPS = 200  # bits flipped in a file, one at a time

Outcome = tuple[str, str]  # what happened, what is lost
FAULTS: dict[str, Callable[[Path], Outcome]] = {}  # the rows of the table, in their order


class NotRun(Exception):
    """A fault that cannot be tried here, and why."""


def fault(what: str) -> Callable:
    """Puts a function (folder) -> (outcome, lost) into the table under this name."""

    def add(run: Callable[[Path], Outcome]) -> Callable[[Path], Outcome]:
        FAULTS[what] = run
        return run

    return add


def of(good: int, every: int, what: str) -> str:
    """So many of all; bold where one is missing."""
    return f"{good} of {every} {what}" if good == every else f"**{good} of {every}** {what}"


def start(words: str, folder: Path, **env: str) -> subprocess.Popen:
    """One command of the package, in this folder, with a cache and results of its own."""
    own = {"PRIVFL_CACHE": str(folder / "cache"), "PRIVFL_RESULTS": str(folder / "results")}
    own |= {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **env}
    command = [sys.executable, "-W", "ignore", "-m", "privfl_lite.cli", *words.split()]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, **own}, stdout=pipe, stderr=pipe, text=True
    )


Answer = tuple[int, str, str]  # exit code, output, errors


def ask(words: str, folder: Path, **env: str) -> Answer:
    """A command that is left to end."""
    process = start(words, folder, **env)
    out, errors = process.communicate(timeout=1200)
    return process.returncode, out, errors


def inside(words: str, **env: str) -> Answer:
    """A command in this process: 200 starts of Python would show nothing more."""
    out, errors, before = io.StringIO(), io.StringIO(), dict(os.environ)
    os.environ |= env
    try:
        with redirect_stderr(errors), redirect_stdout(out):
            code = cli.main(words.split())
    except Exception as error:  # what a user would see as a traceback
        code, errors = 1, io.StringIO(f"raw {type(error).__name__}\n")
    finally:
        os.environ.clear()
        os.environ |= before
    return code, out.getvalue(), errors.getvalue()


def told(answer: Answer, says: str = "") -> bool:
    """Whether a refusal is exit 2 and one sentence."""
    code, _, errors = answer
    one = errors.count("\n") == 1 and errors.startswith("privfl: ")
    return code == 2 and one and says in errors


def kill(process: subprocess.Popen) -> tuple[bool, str]:
    """kill -9, now; whether it was still alive, and what it had printed."""
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    return alive, process.communicate()[0]


def wait_for(process: subprocess.Popen, ready: Callable[[], bool], pause: float = 0.002) -> bool:
    """Until it is ready; False if the process ended before that."""
    while not ready():
        if process.poll() is not None:
            return False
        time.sleep(pause)
    return True


def flips(data: bytes, count: int = FLIPS) -> Iterator[bytes]:
    """So many copies with one bit flipped, evenly over the file."""
    draw = random.Random(0)
    for i in range(count):
        bad = bytearray(data)
        bad[(i * len(data) + draw.randrange(len(data))) // count] ^= 1 << draw.randrange(8)
        yield bytes(bad)


def cuts(data: bytes, count: int = 20) -> list[bytes]:
    return [data[: len(data) * i // count] for i in range(count)]


def same(a: object, b: object) -> bool:
    """Equal to the bit, seconds apart."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a if k != "seconds")
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def checkpoint(path: Path) -> dict:
    """What is in a checkpoint, read without the package."""
    return torch.load(io.BytesIO(path.read_bytes().partition(b"\n")[2]), weights_only=True)


@functools.cache
def trained(folder: Path, defense: str, rounds: int = 12) -> tuple[Path, str]:
    """The checkpoint of a run that nothing disturbs, and what the run printed."""
    file = folder / f"whole-{len(list(folder.glob('whole-*.pt')))}.pt"
    code, out, errors = ask(f"{TRAIN} {rounds} --defense {defense} --checkpoint {file}", folder)
    assert code == 0, errors
    return file, out


def result(folder: Path) -> Path:
    return folder / "results" / f"{STUDY}.json"


@functools.cache
def studied(folder: Path) -> tuple[list[dict], str]:
    """The cells of a study that nothing disturbs, and what it printed."""
    (folder / "undisturbed").mkdir()
    code, out, errors = ask(f"study run {STUDY} --quiet", folder / "undisturbed")
    assert code == 0, errors
    return json.loads(result(folder / "undisturbed").read_text())["cells"], out


@functools.cache
def fetched(folder: Path, name: str) -> bytes:
    """The manifest of an asset that was fetched without disturbance."""
    code, _, errors = ask(f"fetch {name}", folder)
    if code:
        raise NotRun(f"no network: {errors.strip()[:60]}")
    return (folder / "cache" / name / "manifest.json").read_bytes()
