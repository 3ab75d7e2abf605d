"""One command, one run: every row and every curve, stored in benchmarks/results.json.

    python -m benchmarks.run            all of it, about 10 minutes on two quiet cores
    python -m benchmarks.run --quick    a minute of it, to see that it works
    python -m benchmarks.run --rows flower-lenet       this row anew, among those that are stored

What is finished is kept in a part file. A run that was interrupted goes on from there if code and
machine are the same; else it starts anew, so that the stored file is one run of one commit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch

import privfl_lite as pf

from . import growth, report
from .effort import FULL, QUICK, Effort
from .measure import Record
from .rows import ROWS, measured

ROOT = Path(__file__).parents[1]
VERSIONS = ("torch", "numpy", "breaching", "flwr", "ray")
PEERS = {"breaching": "breaching", "flwr": "Flower"}


def code() -> str:
    """Digest of all that is measured and that measures."""
    sha = hashlib.sha256()
    for folder in ("privfl_lite", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            sha.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return sha.hexdigest()[:16]


def git(*words: str) -> str:
    """What git says here, "" where it has nothing to say."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def cpu() -> str:
    """The processor's own name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def version(package: str) -> str | None:
    """The version that is installed, None without."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def load() -> list[float]:
    """Load of the machine over 1, 5 and 15 minutes."""
    return [round(v, 2) for v in os.getloadavg()]


def about(effort: Effort) -> Record:
    """What a run is of: equal for all that may be stored together."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in VERSIONS}
    return {
        "effort": effort.name,
        "commit": git("rev-parse", "HEAD"),
        "uncommitted": bool(git("status", "--porcelain", "--", "privfl_lite", "benchmarks/*.py")),
        "code": code(),
        "machine": {"cpu": cpu(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": versions,
        "threads": 1,
    }


def write(path: Path, run: Record) -> None:
    """Beside its place first, then there in one step."""
    part = path.with_name(f"{path.name}.tmp")
    part.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(part, path)


def begun(part: Path, head: Record) -> Record:
    """The run of the part file if it is of the same code and machine, else a new one."""
    if part.exists():
        try:
            old = json.loads(part.read_text(encoding="utf-8"))
        except ValueError:
            old = {}
        if all(old.get(key) == value for key, value in head.items()):
            print(f"going on with the run of {old['date']}: {len(old['rows'])} rows are there")
            return old
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {**head, "date": now, "load_before": load(), "seconds": 0.0, "rows": {}, "growth": {}}


def jobs(effort: Effort) -> Iterator[tuple[str, str, Callable[[], Record]]]:
    """Section, name and work of all that a run holds."""
    for name, row in ROWS.items():
        if row.against != "Flower" or effort.flower[0]:
            yield "rows", name, lambda name=name: measured(name, effort)
    for name in growth.CURVES:
        yield "growth", name, lambda name=name: growth.measured(name, effort)


def play(effort: Effort, out: Path) -> Record:
    """Do what is not done yet, storing each piece as it is finished; then the whole."""
    part = out.with_suffix(".part.json")
    run = begun(part, about(effort))
    todo = [job for job in jobs(effort) if job[1] not in run[job[0]]]
    for i, (section, name, work) in enumerate(todo, 1):
        print(f"[{i}/{len(todo)}] {name} …", end=" ", flush=True)
        began, before = time.perf_counter(), load()[0]
        record = work()
        took = time.perf_counter() - began
        print(f"{report.line(name, record) if section == 'rows' else ''}({took:.0f} s)", flush=True)
        run[section][name] = record | ({"load": before} if section == "rows" else {})
        run["seconds"] = round(run["seconds"] + took, 1)
        write(part, run)
    run["load_after"] = load()
    write(out, run)
    part.unlink(missing_ok=True)
    return run


def renew(names: list[str], effort: Effort, out: Path) -> Record:
    """These rows anew, among the others of the stored run; each says of which run it is itself."""
    run = json.loads(out.read_text(encoding="utf-8"))
    own = ("commit", "uncommitted", "versions")
    date, head = datetime.now(UTC).isoformat(timespec="seconds"), about(effort)
    head = {"date": date, "load_before": load()} | {key: head[key] for key in own}
    for name in names:
        before = load()[0]
        print(f"{name} …", end=" ", flush=True)
        run["rows"][name] = measured(name, effort) | {"load": before, "run": head}
        print(report.line(name, run["rows"][name]), flush=True)
        write(out, run)
    return run


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute of it; needs --out")
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="the file to write")
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="ROW", help="only these, anew")
    args = parser.parse_args(words)
    if args.quick and args.out == report.RESULTS:
        parser.error("--quick proves nothing about speed: name another file with --out")
    os.environ |= {"PRIVFL_DEVICE": "cpu", "OMP_NUM_THREADS": "1", "PRIVFL_PROGRESS": "0"}
    torch.set_num_threads(1)
    for package, name in PEERS.items():
        if version(package) is None:
            print(f"{name} is not installed, so its side is left out; to have it: make bench-peers")
    effort = QUICK if args.quick else FULL
    run = renew(args.rows, effort, args.out) if args.rows else play(effort, args.out)
    if args.out == report.RESULTS:
        report.write_all(run)
    else:
        print(report.table(run))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except pf.PrivflError as error:
        sys.exit(str(error))
