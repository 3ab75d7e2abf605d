"""Faults on purpose, ε then and now, audits, bad inputs: tried for real, written as one document.

    python scripts/faults > /tmp/faults.md && mv /tmp/faults.md benchmarks/faults.md

On Linux, as root for the mounts, with a network; 15 minutes. What cannot be tried says why.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import audits
import epsilon_cases
import torch
from trial import FAULTS, FLIPS, STUDY, TRAIN, NotRun

import privfl_lite

for module in ("kills", "races", "damage", "disks"):  # in this order their rows go into FAULTS
    importlib.import_module(module)

HEADS = {
    "faults": "| fault | outcome | lost |",
    "epsilon": "| | setting | before | held | now | PLD | test |",
    "audits": "| claim | settings | claimed ε | audit: ε at least | p of the claim | verdict |",
}

ABOUT = f"""Training: `privfl {TRAIN} …`; study: `{STUDY}`. Where one
bit is flipped, this is done {FLIPS} times, evenly over the file, unless another number is given;
flips that change nothing of what the file says do not count. An upload in the format safetensors
carries no checksum: a flipped bit in it is another number, which nothing can tell. `torch.save`
writes checksums, and they are read."""


def faults() -> Iterator[tuple[str, str, str]]:
    """The rows, each in the same folder, which is gone in the end."""
    with tempfile.TemporaryDirectory() as name:
        for what, run in FAULTS.items():
            began = time.perf_counter()
            try:
                outcome, lost = run(Path(name))
            except NotRun as why:
                outcome, lost = f"not run: {why}", "–"
            except Exception as error:  # go on: the other rows are worth having
                outcome, lost = f"**the trial itself failed: {error!r:.200}**", "–"
            print(f"{time.perf_counter() - began:5.0f} s  {what}", file=sys.stderr, flush=True)
            yield what, outcome, lost


def table(which: str, rows: Iterable[tuple[str, ...]]) -> None:
    head = HEADS[which]
    print(f"\n{head}\n{'|---' * (head.count('|') - 1)}|")
    for row in rows:
        print("|", " | ".join(row), "|", flush=True)


def about() -> str:
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
    commit = run(["git", "rev-parse", "--short=10", "HEAD"]).stdout.strip()
    changed = run(["git", "status", "--porcelain", "privfl_lite", "scripts"]).stdout.strip()
    parts = [
        f"Run of {datetime.datetime.now(datetime.UTC).date()}",
        f"commit `{commit}`{' with uncommitted changes' if changed else ''}",
        f"privfl_lite {privfl_lite.__version__}",
        f"Python {platform.python_version()}, torch {torch.__version__}",
        f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores",
    ]
    return f"{', '.join(parts)}; one thread a process."


def main() -> None:
    print("# Faults on purpose\n\nWritten by `python scripts/faults`, never by hand.\n")
    print(about())
    print(f"\n{ABOUT}")
    table("faults", faults())
    print("\n## E1 to E9: an ε that did not hold, then and now\n")
    print(epsilon_cases.ABOUT)
    table("epsilon", epsilon_cases.rows())
    print("\n## Audits\n")
    print(audits.ABOUT)
    table("audits", audits.rows())
    print("\n## Bad inputs\n")
    print(f"{about()}\n\n{audits.bad_inputs()}")


if __name__ == "__main__":
    main()
