"""kill -9 at random moments: what was begun goes on, and ends with the same bits."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from trial import (
    DEFENSES,
    STUDY,
    TRAIN,
    Outcome,
    ask,
    checkpoint,
    fault,
    fetched,
    kill,
    of,
    result,
    same,
    start,
    studied,
    trained,
    wait_for,
)

from privfl_lite import disk

DRAW = random.Random(7)


def _goes_on(words: str, file: Path, whole: Path, printed: str, folder: Path) -> tuple[bool, int]:
    """Whether a killed run had stored what it printed and ends like the whole one; rounds kept."""
    kept = len(checkpoint(file)["history"])
    stored = kept >= printed.count("\nround") + printed.startswith("round")
    code, _, _ = ask(words, folder)
    left = list(folder.glob(f".{file.name}*"))
    return stored and code == 0 and same(checkpoint(whole), checkpoint(file)) and not left, kept


@fault(f"kill -9 `train` at a random moment after the first of 12 rounds; {', '.join(DEFENSES)}")
def at_random(folder: Path) -> Outcome:
    good, rounds = 0, []
    for d, defense in enumerate(DEFENSES):
        whole, _ = trained(folder, defense)
        seconds = sum(r["seconds"] for r in checkpoint(whole)["history"][1:])
        kills = 0
        while kills < 3:
            file = folder / f"killed-{d}-{kills}.pt"
            file.unlink(missing_ok=True)
            words = f"{TRAIN} 12 --defense {defense} --checkpoint {file.name}"
            process = start(words, folder)
            wait_for(process, file.exists)
            time.sleep(DRAW.uniform(0, seconds))
            alive, printed = kill(process)
            if not alive or len(checkpoint(file)["history"]) == 12:
                continue  # it was done: no valid trial
            ended, kept = _goes_on(words, file, whole, printed, folder)
            good, kills = good + ended, kills + 1
            rounds.append(kept)
    what = "end with the same model, memory and history, to the bit, with no file left over"
    return f"{of(good, len(rounds), what)}; rounds stored: {_listed(rounds)}", "the round"


@fault("kill -9 `train` while a checkpoint is being written; the same four")
def in_writing(folder: Path) -> Outcome:
    good = parts = 0
    for d, defense in enumerate(DEFENSES):
        whole, _ = trained(folder, defense)
        file = folder / f"writing-{d}.pt"
        words = f"{TRAIN} 12 --defense {defense} --checkpoint {file.name}"
        for _ in range(5):  # a write takes some milliseconds: until one is met
            file.unlink(missing_ok=True)
            process = start(words, folder)
            wait_for(process, file.exists)
            wait_for(process, lambda f=file: any(folder.glob(f".{f.name}.*.tmp")), pause=0)
            alive, printed = kill(process)
            met = any(folder.glob(f".{file.name}.*.tmp"))
            if alive and met:
                break
        parts += met
        good += _goes_on(words, file, whole, printed, folder)[0]
    what = f"end with the same bits, with no file left over; {parts} kills left a part behind"
    return of(good, len(DEFENSES), what), "the round"


@fault("kill -9 the one of 5 × `train` on one checkpoint that works, while the others wait")
def the_one_that_works(folder: Path) -> Outcome:
    whole, out = trained(folder, "none", 60)
    file = folder / "heir.pt"
    words = f"{TRAIN} 60 --checkpoint {file.name}"
    processes = {p.pid: p for p in (start(words, folder) for _ in range(5))}
    lock = folder / f".{file.name}.lock"
    anyone = next(iter(processes.values()))
    wait_for(anyone, file.exists)
    owner = processes.pop(int(lock.read_text()))
    alive, _ = kill(owner)
    kept = len(checkpoint(file)["history"])
    answers = [(*p.communicate(timeout=1200)[:1], p.returncode) for p in processes.values()]
    good = sum(answer == (out, 0) for answer in answers)
    right = alive and kept < 60 and same(checkpoint(whole), checkpoint(file))
    end = "same bits in the end" if right else "**not a valid trial, or other bits**"
    return f"{of(good, 4, 'others print the whole run and exit with 0')}; {end}", "the round"


@fault(f"kill -9 `study run {STUDY}` at a random moment after 1, 3, 6, 9 of 12 cells")
def study(folder: Path) -> Outcome:
    good, counts = 0, []
    for cells in (1, 3, 6, 9):
        own = folder / f"study-{cells}"
        own.mkdir()
        part = result(own).with_suffix(".part.json")
        process = start(f"study run {STUDY} --quiet", own)
        wait_for(process, lambda p=part, c=cells: _cells(p) >= c, pause=0)
        time.sleep(DRAW.uniform(0, 0.005))
        alive, _ = kill(process)
        counts.append(kept := _mark(part))
        code, _, _ = ask(f"study run {STUDY} --quiet", own)
        left = [p.name for p in part.parent.iterdir()]
        found = json.loads(result(own).read_text())["cells"]
        marked = sum(cell.pop("kept", 0) for cell in found)
        good += alive and marked == kept >= cells and code == 0
        good -= not (found == studied(folder)[0] and left == [result(own).name])
    what = "go on with the cells that were stored and end with the same, nothing left over"
    return f"{of(good, 4, what)}; cells stored: {_listed(counts)}", "the cell"


def _cells(part: Path) -> int:
    return len(json.loads(part.read_text())["cells"]) if part.exists() else 0


def _mark(part: Path) -> int:
    """Mark the stored cells, so that those computed again can be told from them; their number."""
    held = disk.read_record(part, "")
    for cell in held["cells"]:
        cell["kept"] = 1
    disk.write_record(part, held)
    return len(held["cells"])


@fault("kill -9 `fetch` at a random moment of its work (mnist, lpips)")
def fetch(folder: Path) -> Outcome:
    good = kills = 0
    for name in ("mnist", "lpips") * 2:
        manifest = fetched(folder, name)
        own = folder / f"fetch-{kills}"
        own.mkdir()
        process = start(f"fetch {name}", own)
        wait_for(process, lambda c=own / "cache": _begun(c))
        time.sleep(DRAW.uniform(0, 0.5))
        alive, _ = kill(process)
        code, _, _ = ask(f"fetch {name}", own)
        cache = own / "cache"
        equal = (cache / name / "manifest.json").read_bytes() == manifest
        good += alive and code == 0 and equal and not list(cache.glob("*.part-*"))
        kills += 1
    return of(good, kills, "fetch again and end with the same manifest"), "the download"


def _begun(cache: Path) -> bool:
    return any(p.is_file() and p.name != "pin.txt" for p in cache.glob("*.part-*/work/**/*"))


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
