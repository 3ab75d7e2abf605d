"""Files that were cut, emptied, replaced, or had one bit flipped: noticed, or loaded unnoticed?

Each row first loads the file as it was, so that a refusal of all that follows means the damage.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from trial import (
    FLIPS,
    KINDS,
    STUDY,
    Answer,
    Outcome,
    ask,
    cuts,
    fault,
    fetched,
    flips,
    inside,
    kill,
    of,
    result,
    same,
    start,
    studied,
    told,
    wait_for,
)

import privfl_lite as pf
from privfl_lite import PrivflError, stored

FILES = "empty, binary, of another kind"


def _harm(path: Path, bad: Iterable[bytes], ask: Callable[[], Answer], says: str = "") -> Outcome:
    """How many harmed copies are refused in one sentence; those of equal contents do not count."""
    good = path.read_bytes()
    if ask()[0]:
        return "**the file as it was is refused**", "–"
    noticed = loaded = every = 0
    for data in bad:
        path.write_bytes(data)
        answer = ask()
        every += 1
        noticed += told(answer, says)
        loaded += answer[0] == 0
        path.write_bytes(good)
    count = f"**{loaded}**" if loaded else "0"
    outcome = f"{of(noticed, every, 'refused in one sentence')}, {count} loaded unnoticed"
    return outcome, "the file's truth" if loaded else "–"


def _train(folder: Path, defense: str, bad: Callable[[bytes], Iterable[bytes]]) -> Outcome:
    """Resumes in this process, from Python: 200 starts would show nothing more."""
    path, draw = folder / "hurt.pt", torch.Generator().manual_seed(0)
    net = pf.models.build("lenet5", (1, 14, 14), 10)
    clients = [(torch.rand(4, 1, 14, 14, generator=draw), torch.arange(4)) for _ in range(4)]

    def resume() -> Answer:
        made = pf.defenses.build(defense)
        run = pf.FedAvg(net, clients, 3, defense=made, checkpoint=path, show=False)
        return _call(lambda: list(run))

    path.unlink(missing_ok=True)
    resume()
    return _harm(path, bad(path.read_bytes()), resume, "is damaged; delete it")


def _call(what: Callable[[], object]) -> Answer:
    """A call, told as a command is."""
    try:
        what()
        return 0, "", ""
    except PrivflError as error:
        return 2, "", f"privfl: {error}\n"
    except Exception as error:  # what a user would see as a traceback
        return 1, "", f"raw {type(error).__name__}\n"


@fault(f"checkpoint cut (20), {FILES}")
def checkpoint_cut(folder: Path) -> Outcome:
    return _train(folder, "none", lambda good: [*cuts(good), *KINDS])


@fault("checkpoint with one bit flipped")
def checkpoint_flipped(folder: Path) -> Outcome:
    return _train(folder, "none", flips)


@fault("checkpoint that holds keys (FedKL) with one bit flipped")
def keys_flipped(folder: Path) -> Outcome:
    return _train(folder, "fedkl:seed=0", flips)


def _changed(good: bytes, count: int = FLIPS) -> list[bytes]:
    """Flips that change what the JSON says (1e-05 for 1E-05 changes nothing)."""

    def equal(bad: bytes) -> bool:
        try:
            return json.loads(bad) == json.loads(good)
        except ValueError:
            return False

    return [bad for bad in flips(good, count) if not equal(bad)]


def _shown(folder: Path, bad: Callable[[bytes], Iterable[bytes]]) -> Outcome:
    studied(folder)
    path, own = result(folder / "undisturbed"), str(folder / "undisturbed" / "results")
    inside(f"study show {STUDY}", PRIVFL_RESULTS=own)  # says once that it is the reader's own
    show = lambda: inside(f"study show {STUDY}", PRIVFL_RESULTS=own)  # noqa: E731
    return _harm(path, bad(path.read_bytes()), show, "is damaged")


@fault(f"study result cut (20), {FILES}")
def result_cut(folder: Path) -> Outcome:
    return _shown(folder, lambda good: [*cuts(good), *KINDS])


@fault("study result with one bit flipped")
def result_flipped(folder: Path) -> Outcome:
    return _shown(folder, _changed)


def _begun(folder: Path) -> Path:
    """The part file of a study that was killed."""
    own = folder / "begun"
    part = result(own).with_suffix(".part.json")
    if not own.exists():
        own.mkdir()
        process = start(f"study run {STUDY} --quiet", own)
        wait_for(process, lambda: part.exists() and part.read_text().count('"sigma"') > 3, 0)
        kill(process)
    return part


def _resumed(folder: Path, bad: Callable[[bytes], Iterable[bytes]]) -> Outcome:
    part = _begun(folder)
    good, own = part.read_bytes(), str(folder / "begun" / "results")

    def again() -> Answer:
        answer = inside(f"study run {STUDY} --quiet", PRIVFL_RESULTS=own)
        if answer[0] == 0:  # it went on and ended: as it was before
            result(folder / "begun").unlink()
            part.write_bytes(good)
        return answer

    return _harm(part, bad(good), again, "is damaged")


@fault(f"part of a study cut (20), {FILES}, with a forged cell")
def part_cut(folder: Path) -> Outcome:
    def bad(good: bytes) -> list[bytes]:
        return [*cuts(good), *KINDS, good.replace(b'"rdp": ', b'"rdp": 1', 1)]

    return _resumed(folder, bad)


@fault("part of a study with one bit flipped")
def part_flipped(folder: Path) -> Outcome:
    return _resumed(folder, _changed)


def _cached(folder: Path, name: str, bad: Callable[[bytes], Iterable[bytes]]) -> Outcome:
    fetched(folder, "lpips")
    path, env = folder / "cache" / "lpips" / name, {"PRIVFL_CACHE": str(folder / "cache")}
    again = lambda: inside("fetch lpips", PRIVFL_OFFLINE="1", **env)  # noqa: E731
    return _harm(path, bad(path.read_bytes()), again, "is damaged in the cache")


@fault(f"cached file cut (20), {FILES}, one bit flipped (50)")
def cache_file(folder: Path) -> Outcome:
    def bad(good: bytes) -> Iterable[bytes]:
        yield from (*cuts(good), *KINDS)
        yield from flips(good, 50)

    return _cached(folder, "alexnet.safetensors", bad)


@fault(f"manifest of the cache cut (20), {FILES}, with one file only, pointing outside")
def manifest_cut(folder: Path) -> Outcome:
    def bad(good: bytes) -> list[bytes]:
        held = json.loads(good)
        some = {**held, "files": dict([*held["files"].items()][:1])}
        return [*cuts(good), *KINDS, json.dumps(some).encode(), b'{"files": {"../x": "0"}}']

    return _cached(folder, "manifest.json", bad)


@fault("manifest of the cache with one bit flipped (50)")
def manifest_flipped(folder: Path) -> Outcome:
    return _cached(folder, "manifest.json", lambda good: _changed(good, 50))


@fault("file of the cache gone")
def cache_gone(folder: Path) -> Outcome:
    fetched(folder, "lpips")
    path = folder / "cache" / "lpips" / "vgg16.safetensors"
    path.rename(path.with_suffix(".away"))
    answer = ask("fetch lpips", folder, PRIVFL_OFFLINE="1")
    path.with_suffix(".away").rename(path)
    return ("one sentence" if told(answer, "is damaged in the cache") else "**raw**"), "–"


@fault("stored weights cut (20), one bit flipped")
def weights(folder: Path) -> Outcome:
    path, net = folder / "w.safetensors", pf.models.build("lenet5", (1, 14, 14), 10)
    stored.save(net, path, {"study": "s"})

    def fill() -> Answer:
        other = pf.models.build("lenet5", (1, 14, 14), 10, seed=1)
        return _call(lambda: stored.fill(other, path, "s"))

    good = path.read_bytes()
    return _harm(path, [*cuts(good), *flips(good)], fill, "make it again")


def _own(folder: Path, suffix: str, bad: Callable[[bytes], Iterable[bytes]]) -> Outcome:
    """The user's own upload or model, as `privfl attack --upload` and `--model-file` read it."""
    net, path = pf.models.build("lenet5", (1, 14, 14), 10), folder / f"own{suffix}"
    (torch.save if suffix == ".pt" else save_file)(net.state_dict(), path)
    return _harm(path, bad(path.read_bytes()), lambda: _call(lambda: stored.read_tensors(path)))


def _other(good: bytes) -> list[bytes]:
    """Flips after which PyTorch reads other tensors than before, or none (a file has padding)."""

    def read(data: bytes) -> object:
        try:
            return torch.load(io.BytesIO(data), weights_only=True)
        except Exception:  # in whatever way
            return None

    whole = read(good)
    return [bad for bad in flips(good) if not same(read(bad), whole)]


@fault(f"your own upload or model, .pt: cut (20), {FILES}")
def upload_cut(folder: Path) -> Outcome:
    return _own(folder, ".pt", lambda good: [*cuts(good), *KINDS])


@fault("your own upload or model, .pt, with one bit flipped")
def upload_flipped(folder: Path) -> Outcome:
    return _own(folder, ".pt", _other)


@fault(f"your own upload or model, .safetensors: cut (20), {FILES}")
def safetensors_cut(folder: Path) -> Outcome:
    return _own(folder, ".safetensors", lambda good: [*cuts(good), *KINDS])
