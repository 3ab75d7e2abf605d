"""Pictures and files of the user's own: folders as data sets, uploads from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import privfl_lite as pf
from privfl_lite.cli import main
from privfl_lite.stored import read_tensors


def draw(path: Path, seed: int, mode: str = "RGB", size: tuple[int, int] = (20, 16)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


@pytest.fixture
def pets(tmp_path) -> Path:
    """Six cats and four dogs, of different sizes, color."""
    for i in range(6):
        draw(tmp_path / "pets" / "cat" / f"{i}.png", i)
    for i in range(4):
        draw(tmp_path / "pets" / "dog" / f"{i}.JPG", i, size=(16, 24))
    (tmp_path / "pets" / "notes").mkdir()
    (tmp_path / "pets" / "notes" / "read.txt").write_text("no picture")
    return tmp_path / "pets"


def test_a_folder_of_pictures_is_a_data_set(pets):
    with pf.data.sources() as seen:
        found = pf.load(f"folder:{pets}", size=16)
    assert found.classes == ("cat", "dog") and found.shape == (3, 16, 16)
    assert (len(found.y_train), len(found.y_test)) == (8, 2)
    assert sorted(torch.cat([found.y_train, found.y_test]).tolist()) == [0] * 6 + [1] * 4
    assert sorted(found.y_test.tolist()) == [0, 1]
    assert found.x_train.min() >= 0 and found.x_train.max() <= 1
    assert found.source == "10 pictures in 2 classes, from a folder of your own"
    assert seen == {"folder": found.source} and str(pets.parent) not in repr(found.source)
    again = pf.load(f"folder:{pets}", size=16)
    assert torch.equal(again.x_train, found.x_train)
    draw(pets / "dog" / "new.png", 9)
    assert len(pf.load(f"folder:{pets}", size=16).y_train) == 9  # read anew
    upload = pf.share(pf.models.build("lenet", found), *found.sample(1))
    assert upload.model.num_classes == 2


def test_size_takes_the_middle_square_and_equal_pictures_need_none(tmp_path):
    for i in range(3):
        draw(tmp_path / f"{i}.png", i, "L", (20, 16))
    found = pf.load(f"folder:{tmp_path}")
    assert found.shape == (1, 16, 20) and found.classes == ("picture",)
    cut = pf.load(f"folder:{tmp_path}", size=16)
    torch.testing.assert_close(cut.x_train, found.x_train[..., 2:18])
    first = np.asarray(Image.open(tmp_path / "0.png"))
    every = torch.cat([found.x_train, found.x_test])
    assert any(np.array_equal((x[0] * 255).round().numpy(), first) for x in every)


def test_a_picture_that_lies_on_its_side_is_set_upright(tmp_path):
    picture = Image.fromarray(np.zeros((16, 24, 3), np.uint8))
    exif = picture.getexif()
    exif[0x0112] = 6  # turned by 90°
    picture.save(tmp_path / "a.jpg", exif=exif)
    found = pf.load(f"folder:{tmp_path}")
    assert found.shape == (3, 24, 16) and len(found.y_train) == 1 and not len(found.y_test)


def loose(pets: Path) -> str:
    draw(pets / "loose.png", 0)
    return str(pets)


def deep(pets: Path) -> str:
    numbers = np.zeros((8, 8), np.uint16)
    Image.fromarray(numbers).save(pets / "cat" / "deep.png")
    return str(pets)


def damaged(pets: Path) -> str:
    (pets / "cat" / "0.png").write_bytes(b"not a picture")
    return str(pets)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (lambda pets: pets / "birds", "there is no folder"),
        (lambda pets: pets / "notes", "the folder 'notes' holds no pictures"),
        (loose, "holds pictures beside folders of pictures"),
        (damaged, "0.png is no picture that can be read"),
        (deep, "deep.png has more than 8 bits a pixel"),
        (lambda pets: pets, "different sizes, as 16 x 24 and 20 x 16: give size="),
    ],
)
def test_folders_that_will_not_do_get_one_sentence(refused, pets, path, says):
    refused(lambda: pf.load(f"folder:{path(pets)}"), says)


def test_one_class_is_refused_where_a_network_is_built_for_it(refused, tmp_path):
    draw(tmp_path / "a.png", 0)
    refused(lambda: pf.models.build("lenet", pf.load(f"folder:{tmp_path}")), "a folder for each")


def test_the_command_line_attacks_own_pictures(pets, tmp_path, capsys):
    out = tmp_path / "out.json"
    words = "attack idlg --size 16 --images 2 --steps 120 --quiet".split()
    assert main([*words, "--dataset", f"folder:{pets}", "--json", str(out)]) == 0
    assert "10 pictures in 2 classes" in capsys.readouterr().out
    assert len(json.loads(out.read_text())["per_image"]) == 2
    assert main("attack idlg --dataset folder:nowhere".split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "there is no folder 'nowhere'" in said


# --- uploads from files ---


@pytest.fixture
def sent(tmp_path, digits):
    """A client's gradients of two digits, and the weights, as files of both kinds."""
    model = pf.models.build("lenet", digits, seed=7)
    x, y = digits.sample(2, seed=4)
    upload = pf.share(model, x, y, each=1)
    state = model.state_dict()
    torch.save(state, tmp_path / "weights.pt")
    save_file(state, tmp_path / "weights.safetensors")
    torch.save(upload.tensors, tmp_path / "both.pt")
    torch.save([t[0] for t in upload.tensors.values()], tmp_path / "first.pt")
    save_file({n: t[0].clone() for n, t in upload.tensors.items()}, tmp_path / "first.safetensors")
    return tmp_path, x, y


def test_an_upload_from_files_is_attacked_in_a_shell(sent):
    folder, _, y = sent
    files = {"upload": "both.pt", "model-file": "weights.pt", "json": "out.json", "png": "out.png"}
    named = [word for n, f in files.items() for word in (f"--{n}", str(folder / f))]
    words = [sys.executable, "-m", "privfl_lite.cli", "attack", "recursive", "--model", "lenet"]
    done = subprocess.run([*words, "--shape", "1,14,14", *named], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"labels  {y[0]}, {y[1]}" in done.stdout and "no scores" in done.stdout
    result = json.loads((folder / "out.json").read_text())
    assert result["labels_found"] == y.tolist() and max(result["cost"]) < 1e-6
    assert result["settings"]["shape"] == [1, 14, 14] and "per_image" not in result
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_both_kinds_of_files_and_known_labels(sent, capsys, kind):
    folder, _, y = sent
    words = f"attack idlg --steps 100 --quiet --shape 1,14,14 --labels {y[0]}".split()
    files = ["--upload", f"{folder}/first.{kind}", "--model-file", f"{folder}/weights.{kind}"]
    assert main([*words, *files, "--json", f"{folder}/out.json"]) == 0
    result = json.loads((folder / "out.json").read_text())
    assert result["letter"].endswith("+ labels") and result["cost"][0] < 1e-3
    assert f"labels  {y[0]}\n" in capsys.readouterr().out


BASE = "attack idlg --upload {0}/first.pt --model-file {0}/weights.pt --shape 1,14,14"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("attack idlg --upload {0}/first.pt", "--upload needs --model-file FILE"),
        ("attack idlg --shape 1,14,14", "belong to --upload FILE"),
        (BASE + " --shape 1x14", "is not whole numbers joined by commas"),
        (BASE + " --shape 1,28,28", "'head.weight' has shape"),
        (BASE + " --model lenet5", "no tensor 'features.2.weight'; it has"),
        (BASE + " --upload {0}/gone.pt", "there is no file"),
        (BASE + " --upload {0}/code.pt", "holds more than tensors, which could run code"),
        (BASE + " --upload {0}/bad.pt", "bad.pt is"),
        (BASE + " --upload {0}/bad.safetensors", "no file of torch.save or safetensors"),
        (BASE + " --upload {0}/text.pt", "must hold a dict of tensors by name"),
        (BASE + " --knows noise", "--knows is for clients that are simulated"),
        (BASE + " --labels 12", "labels must lie in 0…9"),
        (BASE + " --batch 2 --labels 1", "labels must be (1, 2)"),
    ],
)
def test_files_that_will_not_do_get_one_sentence(sent, capsys, words, says):
    folder = sent[0]
    torch.save(torch.nn.Linear(2, 2), folder / "code.pt")
    torch.save({"a": "text"}, folder / "text.pt")
    for name in ("bad.pt", "bad.safetensors"):
        (folder / name).write_bytes(b"nothing of the kind")
    try:
        code = main(words.format(folder).split())
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr().err.strip()
    assert code == 2 and says in said and "\n" not in said


def test_a_file_never_runs_code(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save({"a": Trap()}, tmp_path / "trap.pt")
    with pytest.raises(pf.PrivflError, match="could run code"):
        read_tensors(tmp_path / "trap.pt")
    assert not (tmp_path / "sprung").exists()


def test_every_flipped_bit_of_a_saved_tensor_is_noticed(tmp_path, refused):
    """``torch.save`` writes checksums, at which ``torch.load`` does not look."""
    path, value = tmp_path / "upload.pt", torch.linspace(-1, 1, 7)
    torch.save({"a": value}, path)
    good = path.read_bytes()
    first = good.index(value.numpy().tobytes())
    for bit in range(8 * first, 8 * (first + 28), 5):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        assert not torch.equal(torch.load(path, weights_only=True)["a"], value)
        refused(lambda: read_tensors(path), "upload.pt is damaged: it does not match its own")
    path.write_bytes(good)
    assert torch.equal(read_tensors(path)["a"], value)
    torch.save([value], path, _use_new_zipfile_serialization=False)  # an old form, without any
    assert torch.equal(read_tensors(path)[0], value)


def test_every_flipped_bit_of_an_upload_is_refused_or_changes_nothing(tmp_path):
    path, value = tmp_path / "upload.pt", torch.linspace(-1, 1, 7)
    torch.save({"a": value}, path)
    good = path.read_bytes()
    for bit in range(0, 8 * len(good), 7):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        try:
            found = read_tensors(path)
        except pf.PrivflError:
            continue
        assert list(found) == ["a"] and torch.equal(found["a"], value)


def test_files_of_every_kind_get_one_sentence(tmp_path):
    kinds = [b"", b"\0" * 64, b"root:x:0:0:root\n", b"PK\3\4", b"\x80\2.", b"{}", b"\xff" * 9, b"."]
    for suffix in (".pt", ".safetensors", ".txt"):
        path = tmp_path / f"own{suffix}"
        for kind in (*kinds, *(bytes([i]) + b"0:a\n." for i in range(256))):
            path.write_bytes(kind)
            with pytest.raises(pf.PrivflError, match=r"^own\.") as error:
                read_tensors(path)
            assert "\n" not in str(error.value)
