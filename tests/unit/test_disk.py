"""Files are whole or not there: full and read-only disks, damage, kills and races."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from privfl_lite import PrivflError, disk, stored
from privfl_lite.cli import main
from privfl_lite.studies import Study

CONTENT = {
    "study": "s",
    "settings": {"n": 2, "eta": 0.05},
    "cells": [{"n": 0, "ü": 1e-05}],
    "x": None,
}


@pytest.fixture
def full(monkeypatch):
    """full(): from now on every disk is full."""

    def fail(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(os, "fsync", fail)


def test_what_cannot_be_written_is_said_before_the_work(tmp_path, refused, full):
    (tmp_path / "file").touch()
    bad = {
        "no/such/out.json": "does not exist",
        ".": "is a folder",
        "file/out.json": "file does not exist",
        "x" * 300: "File name too long",
    }
    for name, says in bad.items():
        refused(lambda name=name: disk.check_writable(tmp_path / name), says)
    says = "cannot be written (Not a directory)"
    refused(lambda: disk.check_writable(tmp_path / "file" / "a" / "b", make_folder=True), says)
    disk.check_writable(tmp_path / "new" / "out.json", make_folder=True)
    disk.check_writable(Path(os.devnull))
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "new"]
    full()
    refused(lambda: disk.check_writable(tmp_path / "out"), "out cannot be written (No space left")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_and_file(tmp_path, refused):
    (tmp_path / "file").touch(mode=0o444)
    refused(lambda: disk.check_writable(tmp_path / "file"), "it is read-only")
    tmp_path.chmod(0o555)
    refused(lambda: disk.check_writable(tmp_path / "out"), "Permission denied")
    tmp_path.chmod(0o755)


def test_a_disk_that_fills_up_leaves_the_old_file_and_prints_the_new(
    tmp_path, refused, full, capsys
):
    path = tmp_path / "out.json"
    disk.write(path, b"old")
    full()
    says = "out.json could not be written (No space left on device); what it would hold is printed"
    refused(lambda: disk.write(path, b"new", lost="new result"), says)
    assert capsys.readouterr().out == "new result\n"
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["out.json"]


def test_links_devices_and_private_files(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "there")
    disk.write(tmp_path / "link", b"1", private=True)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there").read_bytes() == b"1"
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o600
    disk.write(Path(os.devnull), b"1")


def test_every_flipped_bit_of_a_record_is_noticed(tmp_path):
    path = tmp_path / "r.json"
    disk.write_record(path, CONTENT)
    assert disk.read_record(path, "") == CONTENT
    good, refusals = path.read_bytes(), 0
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        try:
            assert disk.read_record(path, "make it again") == CONTENT, "loaded unnoticed"
        except PrivflError as error:
            assert str(error).startswith("r.json is damaged") and "make it again" in str(error)
            refusals += 1
    assert refusals >= 8 * len(good) - 8  # 1e-05 and 1E-05 are the same number


KINDS = ["", "{", "[]", "null", "7", '"text"', "{}", '{"cells": 3}', '{"sha256": 5}', "[" * 100000]


@pytest.mark.parametrize("text", [*KINDS, b"\xff\xfe\x00", b"\x00"], ids=range(len(KINDS) + 2))
def test_malformed_results_and_parts_get_one_sentence(text, tmp_path, monkeypatch, refused):
    monkeypatch.setenv("PRIVFL_RESULTS", str(tmp_path))
    study = squares()
    for name, call in (("squares.json", study.show), ("squares.part.json", study.run)):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        refused(call, f"{name} is damaged")
        path.unlink()


def squares(**changes) -> Study:
    plain = {
        "name": "squares",
        "about": "squares",
        "settings": lambda profile: {"count": 3, "pair": (1, 2)},
        "cells": lambda settings: [{"n": n} for n in range(settings["count"])],
        "compute": lambda settings, cell: {"square": cell["n"] ** 2},
    }
    return Study(**{**plain, **changes})


def interrupted(settings: dict, cell: dict) -> dict:
    if cell["n"] == 2:
        raise KeyboardInterrupt
    return {"square": cell["n"] ** 2}


def test_a_part_is_bound_to_its_settings_versions_and_form(tmp_path, monkeypatch, refused):
    monkeypatch.setenv("PRIVFL_RESULTS", str(tmp_path))
    part = tmp_path / "squares.part.json"
    with pytest.raises(KeyboardInterrupt):
        squares(compute=interrupted).run()
    held = disk.read_record(part, "")
    assert [c["square"] for c in held["cells"]] == [0, 1] and held["versions"]["torch"]
    text = part.read_text()
    part.write_text(text.replace('"square": 1', '"square": 7'))
    refused(squares().run, "squares.part.json is damaged: it does not match its own SHA-256")
    disk.write_record(part, {**held, "versions": {**held["versions"], "torch": "1.0"}})
    refused(squares().run, "was begun with torch 1.0, and now it is")
    disk.write_record(part, {"settings": {}})
    refused(squares().run, "squares.part.json is damaged; delete it")
    part.write_text(text)
    assert [c["square"] for c in squares().run()["cells"]] == [0, 1, 4]
    (tmp_path / "other.json").write_text((tmp_path / "squares.json").read_text())
    refused(squares(name="other").show, "holds 'squares', not 'other'")


def test_a_study_on_a_disk_that_fills_up_prints_the_cell(
    tmp_path, monkeypatch, refused, full, capsys
):
    monkeypatch.setenv("PRIVFL_RESULTS", str(tmp_path))

    def compute(settings: dict, cell: dict) -> dict:
        if cell["n"] == 1:
            full()
        return {"square": cell["n"] ** 2}

    refused(squares(compute=compute).run, "squares.part.json could not be written (No space left")
    assert json.loads(capsys.readouterr().out) == {"n": 1, "square": 1, "solvers": []}
    assert os.listdir(tmp_path) == ["squares.part.json"]
    assert [c["n"] for c in disk.read_record(tmp_path / "squares.part.json", "")["cells"]] == [0]
    refused(squares().run, "squares.json cannot be written (No space left on device)")


SLOW = """
import os, sys, time
from privfl_lite.studies import Study
seconds, count = float(sys.argv[1]), int(sys.argv[2])
def compute(settings, cell):
    with open("calls", "a") as file:
        file.write("x")
    time.sleep(seconds)
    return {"square": cell["n"] ** 2}
cells = lambda settings: [{"n": n} for n in range(6)]
study = Study("squares", "squares", lambda profile: {"count": 6}, cells, compute)
children = [] if count > 1 else [0]
while len(children) < count and 0 not in children:
    children.append(os.fork())
if 0 in children:
    print([cell["square"] for cell in study.run(show=False)["cells"]], flush=True)
    os._exit(0)
sys.exit(max(os.waitpid(child, 0)[1] for child in children))
"""


def start(folder: Path, seconds: float, count: int = 1) -> subprocess.Popen:
    """So many processes at once on one study of six cells, each of which takes so long."""
    env = {**os.environ, "PRIVFL_RESULTS": str(folder / "results")}
    command = [sys.executable, "-W", "ignore", "-c", SLOW, str(seconds), str(count)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.skipif(os.name == "nt", reason="forks")
def test_of_several_processes_one_works_and_the_others_take_its_result(tmp_path):
    process = start(tmp_path, 0.3, count=8)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert sorted(out.replace("\n", "")) == sorted("[0, 1, 4, 9, 16, 25]" * 8)  # lines may mix
    assert out.count("[0, 1, 4, 9, 16, 25]") == 8
    assert err.count("another process works on squares") == err.count("; waiting until") == 7
    assert (tmp_path / "calls").read_text() == "x" * 6
    assert os.listdir(tmp_path / "results") == ["squares.json"]


@pytest.mark.skipif(os.name == "nt", reason="sends SIGKILL")
def test_a_killed_study_leaves_no_lock_and_nothing_half_written(tmp_path):
    part = tmp_path / "results" / "squares.part.json"
    process = start(tmp_path, 0.2)
    while not part.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (part.parent / ".squares.json.1-deadbeef.tmp").touch()  # as if killed while it wrote
    out, err = start(tmp_path, 0).communicate(timeout=120)
    assert out == "[0, 1, 4, 9, 16, 25]\n" and not err
    assert len((tmp_path / "calls").read_text()) in (6, 7)  # the cell in progress, once more
    assert os.listdir(part.parent) == ["squares.json"]


def test_flipped_bits_of_weights_are_noticed(tmp_path):
    net, again = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    path = tmp_path / "w.safetensors"
    stored.save(net, path, {"public": "digits"})
    about, state = stored.fill(again, path, "s"), dict(again.state_dict())
    state = {name: t.clone() for name, t in state.items()}
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        try:
            found = stored.fill(again, path, "s")
        except PrivflError as error:
            assert "make it again with: privfl study run s" in str(error)
            continue
        assert found == about, "a description was changed unnoticed"
        assert all(torch.equal(t, state[n]) for n, t in again.state_dict().items())
    assert os.listdir(tmp_path) == ["w.safetensors"]


@pytest.mark.parametrize("words", ["epsilon --json", "study show modelcloak-fixed/epsilon --json"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_result_that_cannot_be_written_is_printed(words, capsys):
    assert main([*words.split(), "/dev/full"]) == 2
    told = capsys.readouterr()
    assert '"settings": {' in told.out and told.err.count("\n") == 1
    assert "--json /dev/full could not be written (No space left on device)" in told.err


def test_one_file_that_fails_keeps_none_of_the_others_back(tmp_path, capsys, monkeypatch):
    right = disk.write

    def no_pictures(path: Path, data: bytes, lost: str = "") -> None:
        if path.suffix == ".png":
            raise PrivflError(f"{path} could not be written")
        right(path, data, lost)

    monkeypatch.setattr(disk, "write", no_pictures)
    words = "attack recursive --model lenet --images 1 --quiet".split()
    files = {f"--{kind}": str(tmp_path / f"out.{kind}") for kind in ("png", "json")}
    assert main([*words, *(w for pair in files.items() for w in pair)]) == 2
    told = capsys.readouterr()
    assert "PSNR" in told.out and "out.png could not be written" in told.err
    assert json.loads((tmp_path / "out.json").read_text())["per_image"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--json .", "--json . is a folder"),
        ("--json no/out.json", "--json no/out.json: the folder no does not exist"),
        (f"--json {'x' * 300}", "File name too long"),
        ("--png a.svg", "--png a.svg: the name must end in .png"),
        ("--png no/a.png", "the folder no does not exist"),
    ],
)
def test_outputs_are_tried_before_the_work(words, says, capsys, monkeypatch):
    monkeypatch.setattr("privfl_lite.data.load", lambda *a: pytest.fail("the work began"))
    assert main(["attack", "gs", *words.split()]) == 2
    told = capsys.readouterr()
    assert says in told.err and not told.out
    assert main(["attack", "gs", "--json", ""]) == 2
    assert "--json needs the name of a file" in capsys.readouterr().err


def test_what_others_write_beside_a_locked_file_stays(tmp_path):
    """Only what was left half-written of the file itself, or of its part, is removed."""
    mine = [".run[1].pt.77-0a1b2c3d.tmp", ".run[1].part.pt.78-0a1b2c3d.tmp"]
    others = [".run[1].json.79-0a1b2c3d.tmp", ".run[1].pt.json.80-0a1b2c3d.tmp", ".run1.pt.tmp"]
    for name in (*mine, *others):
        (tmp_path / name).touch()
    with disk.alone(tmp_path / "run[1].pt", "it"):
        assert sorted(p.name for p in tmp_path.glob("*.tmp")) == sorted(others)
