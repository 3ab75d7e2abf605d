"""Install breaching, Flower or Otter into a virtual environment of their own: ``make bench-peers``.

    python -m benchmarks.peers FOLDER [breaching] [flower] [otter]

The new environment sees what this one has (PyTorch above all) and adds the peers, whose pins do not
go together with ours. ``make bench`` uses it where it is there; tests of ``privfl_lite.flower`` use
one that has Flower alone (``make flower``), and labs one that has otter-grader (``make otter``).
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from .breaching_side import INSTALL

# 1.42 asks for certificates newer than registries have; its simulation is that of 1.41
FLOWER = "pip install flwr[simulation]==1.41.0"
OTTER = "pip install otter-grader==7.0.0"  # asks for wrapt < 2, where our lock has 2.5


PEERS = {"breaching": INSTALL, "flower": FLOWER, "otter": OTTER}


def main(folder: str, *names: str) -> None:
    home, names = Path(folder), names or ("breaching", "flower")
    if not (home / "bin" / "python").exists():
        print(f"Creating {folder}")
        venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    place = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    seen = Path(place.stdout.strip()) / "seen.pth"
    seen.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    print(f"Installing {' and '.join(names)} into {folder} (a few minutes)")
    for command in (PEERS[name] for name in names):
        done = subprocess.run([python, "-m", *command.split()], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}\nThis failed: {command}")
    (home / "installed").write_text("\n".join(names) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
