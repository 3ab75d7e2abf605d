"""20 processes at once on one checkpoint, one study, one cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from trial import (
    STUDY,
    TRAIN,
    Outcome,
    checkpoint,
    fault,
    fetched,
    of,
    result,
    same,
    start,
    studied,
    trained,
)

from privfl_lite import assets

MANY = 20


def _race(words: str, folder: Path, right: Callable[[str], bool], done: Callable[[], bool]):
    """All start, none is disturbed; ``right``: what one printed; ``done``: what is in the end."""
    processes = [start(words, folder) for _ in range(MANY)]
    ended = [(*p.communicate(timeout=1800), p.returncode) for p in processes]
    good = sum(code == 0 and right(out) for out, _, code in ended)
    waited = sum("another process works on" in errors for _, errors, _ in ended)
    left = [p.name for p in folder.rglob(".*") if p.is_file()]
    outcome = f"{of(good, MANY, 'exit with 0 and print the right result')}; "
    outcome += f"{waited} met another at work, and said that they wait; " if waited else ""
    outcome += "right in the end" if done() and not left else f"**wrong in the end** {left}"
    return outcome, "–" if good == MANY else "those processes"


@fault(f"{MANY} × `train` of 60 rounds on one checkpoint at once")
def train(folder: Path) -> Outcome:
    whole, printed = trained(folder, "none", 60)
    own = folder / "race"
    own.mkdir()
    words = f"{TRAIN} 60 --checkpoint race.pt"

    def done() -> bool:
        return same(checkpoint(whole), checkpoint(own / "race.pt"))

    return _race(words, own, printed.__eq__, done)


@fault(f"{MANY} × `study run {STUDY}` at once")
def study(folder: Path) -> Outcome:
    (cells, printed), own = studied(folder), folder / "race-study"
    own.mkdir()

    def done() -> bool:
        alone = [p.name for p in result(own).parent.iterdir()] == [result(own).name]
        return alone and json.loads(result(own).read_text())["cells"] == cells

    return _race(f"study run {STUDY} --quiet", own, printed.__eq__, done)


@fault(f"{MANY} × `fetch lpips` at once")
def fetch(folder: Path) -> Outcome:
    manifest, own = fetched(folder, "lpips"), folder / "race-fetch"
    own.mkdir()

    def done() -> bool:
        home = own / "cache" / "lpips"
        listed = json.loads((home / "manifest.json").read_text())["files"]
        equal = (home / "manifest.json").read_bytes() == manifest
        return equal and all(assets.sha256(home / f) == d for f, d in listed.items())

    return _race("fetch lpips", own, lambda out: True, done)
