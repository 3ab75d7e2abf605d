"""examples/flower on this machine, simulated and deployed: ``make flower-demo``.

    python scripts/flower_demo.py [--record]

A simulation of 100 nodes. Then a SuperLink and two SuperNodes as processes on loopback, with TLS
and node authentication: a run without a defense, a run with one, a run in which the second node is
killed in its round, which ends without it, and two in which both clients refuse. What the tap
prints must be what the book shows; ``--record`` stores it for the book, with a simulation of 1,000
nodes. About five minutes.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from flower_lab import ROOT, Lab

sys.path.insert(0, str(ROOT))
import privfl_lite as pf
from privfl_lite import disk

RECORD = ROOT / "privfl_lite" / "results" / "one-to-many"
PATIENCE = 90  # seconds that a round waits; a dead node is told after two missed heartbeats, 60 s
VERSIONS = ("flwr", "ray", "torch", "numpy")


def simulated(nodes: int) -> dict:
    """A run of so many nodes in Flower's simulation."""
    with tempfile.TemporaryDirectory() as name, Lab(Path(name), simulation=True) as lab:
        return lab.ended(lab.run(nodes, num_rounds=2, clients=nodes, wait=0))


def deployed(uploads: Path) -> dict[str, dict]:
    """Three runs on two nodes; ``uploads``: a folder for what the server saw."""
    here = {"PRIVFL_UPLOADS": str(uploads)}
    with tempfile.TemporaryDirectory() as name, Lab(Path(name), **here) as lab:
        lab.node(0)
        lab.node(1)
        runs = {"deployment": lab.ended(lab.run(num_rounds=2, wait=2))}
        cloaked = lab.run(num_rounds=2, defense="'modelcloak'", wait=2)
        runs["modelcloak"] = lab.ended(cloaked)
        shutil.copytree(uploads, uploads.with_name("kept"))  # the next run writes over them
        return runs | {"killed": killed(lab)}


def refused() -> dict[str, dict]:
    """Two runs on nodes that cannot remember, because no file can be in /dev/null."""
    with tempfile.TemporaryDirectory() as name, Lab(Path(name)) as lab:
        lab.node(0, PRIVFL_MEMORY="/dev/null")
        lab.node(1, PRIVFL_MEMORY="/dev/null")
        whole = lab.ended(lab.run(num_rounds=2, wait=0))
        return {"refused": whole, "stopped": lab.ended(lab.run(num_rounds=2, wait=2))}


def killed(lab: Lab) -> dict:
    """The second client again, on a node that takes its time and is killed meanwhile."""
    lab.end("node1")
    lab.node(2, PRIVFL_SECONDS="15")
    run = lab.run(num_rounds=2, defense="'modelcloak'", timeout=PATIENCE)
    log = lab.folder / "node2.log"
    lab.wait_for(lambda: "train" in log.read_text(errors="ignore").lower(), "the round")
    time.sleep(4)
    lab.end("node2", signal.SIGKILL)
    return lab.ended(run)


def told(runs: dict[str, dict]) -> dict[str, tuple]:
    """What must be the same again: all but seconds and the rounded model's digest."""
    return {
        name: (run["status"], [s for s in run["printed"] if not s.startswith("the final model")])
        for name, run in runs.items()
    }


def equal() -> list[dict]:
    """The same runs on Flower's messages, without a network, and in ``FedAvg``, side by side."""
    sys.path.insert(0, str(ROOT / "tests" / "flower"))
    from test_same_model import DEFENSES, compared

    digits = pf.load("mnist", size=14)
    rows = [{"defense": name, "clients": n} for name in DEFENSES for n in (2, 10)]
    for row in rows:
        held = digits.clients(row["clients"], "iid", 12, seed=0)
        row.update(compared(row["defense"], digits, held))
    return rows


def store(runs: dict[str, dict], uploads: Path) -> None:
    """The runs with date and versions, and the uploads of the deployment's first rounds."""
    versions = {"python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in VERSIONS}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    RECORD.mkdir(exist_ok=True)
    told = {"date": date, "versions": versions, "runs": runs, "equal": equal()}
    disk.write_record(RECORD / "recorded.json", told)
    for kept in sorted(uploads.with_name("kept").glob("*/client-*.safetensors")):
        shutil.copyfile(kept, RECORD / f"{kept.parent.name}-{kept.name}")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--record", action="store_true", help="store what was seen, for the book")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as name:
        uploads = Path(name, "seen")
        runs = {"hundred": simulated(100)}
        if args.record:
            runs["thousand"] = simulated(1000)
        runs |= deployed(uploads) | refused()
        if args.record:
            store(runs, uploads)
            return
    shown = told(
        disk.read_record(RECORD / "recorded.json", "record it again with --record")["runs"]
    )
    other = [name for name, said in told(runs).items() if said != shown[name]]
    if other:
        raise SystemExit(f"other than the book shows: {', '.join(other)}")
    print("all of it is what the book shows")


if __name__ == "__main__":
    main()
