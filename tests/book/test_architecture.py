"""The page on the architecture: its table is the order of imports, its code runs, its figure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import PACKAGE, imports

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "architecture.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## The rooms, in the order of imports")[2].partition("\n## ")[0]
ROOMS = [
    name
    for row in re.findall(r"^\| (`.+?`) \|", TABLE, re.MULTILINE)
    for name in re.findall(r"`(\w+)`", row)
]
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_room_stands_in_the_table_once():
    there = {p.stem for p in PACKAGE.glob("*.py")} | {p.parent.name for p in PACKAGE.glob("*/*.py")}
    assert sorted(ROOMS) == sorted(there - {"__init__", PACKAGE.name})


def test_rooms_import_only_from_rooms_above():
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        used = {m.split(".")[0] for m in imports(path)} & set(ROOMS) - {room}
        below = used - set(ROOMS[: ROOMS.index(room)])
        assert not below, f"{path.relative_to(PACKAGE)} imports {below}, which stand below it"


@pytest.mark.parametrize("code", CODE, ids=range(len(CODE)))
def test_its_code_runs(code):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PRIVFL_OFFLINE": "1", "PRIVFL_PROGRESS": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
    assert max(map(len, code.splitlines())) < 80


def test_the_drawing_is_what_the_script_draws(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import draw_house

    stored = (ROOT / "book" / "_assets" / "house.svg").read_text(encoding="utf-8")
    assert draw_house.house() == stored, "run: python scripts/draw_house.py"
    shown = {name for name, _ in (*draw_house.CLIENTS, *draw_house.SERVERS.values())}
    assert shown <= set(ROOMS)
