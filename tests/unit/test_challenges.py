"""Challenges: each that can be solved is solved here, and nothing else passes for a solution."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from checkout import BOOK
from PIL import Image
from safetensors.torch import load_file, save_file
from solving import SOLUTIONS

import privfl_lite as pf
from privfl_lite import disk
from privfl_lite.challenges import (
    CHALLENGES,
    Board,
    Private,
    Set,
    flags,
    merged,
    sets,
    sketch,
    text,
)
from privfl_lite.challenges.digits import drawn
from privfl_lite.cli import main
from privfl_lite.teach import classroom

PICTURES = [name for name, c in CHALLENGES.items() if c.answer == "images"]
SECRET = "a secret of this test alone"


def private(name: str, secret: str = classroom.PUBLIC) -> Private:
    return CHALLENGES[name].private(sets.seeds(secret, CHALLENGES[name]))


def truth(name: str, secret: str = classroom.PUBLIC) -> torch.Tensor:
    return sets.truth(CHALLENGES[name], private(name, secret))


def right(name: str, answer: torch.Tensor) -> bool:
    return pf.challenges.open_set().key(CHALLENGES[name], answer) is not None


def noisy(x: torch.Tensor, psnr: float, seed: int = 0) -> torch.Tensor:
    """With white noise, so strong that the mean squared error is that of ``psnr`` dB."""
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    return x + noise * 10 ** (-psnr / 20) / noise.square().mean().sqrt()


@pytest.fixture(scope="module")
def classes(tmp_path_factory) -> Set:
    """A set that a class made."""
    return pf.challenges.make(SECRET, str(tmp_path_factory.mktemp("class") / "set"), show=False)


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Path:
    """A player's folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(classroom.VARIABLE, raising=False)
    return tmp_path


# What the twelve are


def test_twelve_from_easy_to_open():
    points = [c.points for c in CHALLENGES.values()]
    assert len(points) == 12 and points == sorted(points)
    assert [c.open for c in CHALLENGES.values()] == [False] * 10 + [True] * 2
    assert set(SOLUTIONS) == {name for name, c in CHALLENGES.items() if not c.open}


@pytest.mark.parametrize("name", CHALLENGES)
def test_a_challenge_is_told_in_full(name):
    c = CHALLENGES[name]
    assert c.name == name and c.story.count(". ") == 1 and c.story.endswith(".")
    assert sum(hint.cost for hint in c.hints) < c.points and all(h.cost > 0 for h in c.hints)
    assert (BOOK / "src" / f"{c.chapter}.md").is_file()
    assert c.count >= 4, "one image alone could be guessed"


def test_the_page_has_their_table():
    page = (BOOK / "challenges.md").read_text(encoding="utf-8")
    assert text.table(CHALLENGES.values()) in page


# Solved, with what is handed out and nothing else


@pytest.mark.parametrize("name", SOLUTIONS)
def test_its_solution_takes_the_flag(name, tmp_path):
    sets.write(CHALLENGES[name], classroom.PUBLIC, "public", tmp_path / name)
    given = pf.challenges.load(str(tmp_path / name))
    assert right(name, SOLUTIONS[name](given))


@pytest.mark.parametrize("name", ["first-word", "one-division", "in-a-crowd", "line-up", "a-gift"])
def test_solutions_take_the_flags_of_a_class(name, classes):
    given = pf.challenges.load(str(classes.folder / name))
    assert classes.key(CHALLENGES[name], SOLUTIONS[name](given)) is not None


def test_open_problems_have_true_flags_that_the_book_does_not_take(classes):
    for name in ("the-wall", "two-by-two"):
        assert right(name, truth(name))
    wall = pf.challenges.load(str(classes.folder / "the-wall"))
    found = pf.attacks.IDLG(steps=40).run(wall.upload).images
    assert classes.key(CHALLENGES["the-wall"], found) is None
    pairs = pf.challenges.load(str(classes.folder / "two-by-two"))
    with pytest.raises(pf.PrivflError, match="Pair needs 1 image"):
        pf.attacks.Pair().run(pairs.upload)


# What passes for an answer, and what does not


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_may_be_noisy_but_must_be_the_picture(name):
    x = truth(name)
    assert right(name, x) and right(name, noisy(x, 28))
    assert not right(name, noisy(x, 6))
    other = x.clone()
    other[-1] = drawn(1, 12345)[0]
    assert not right(name, other) and not right(name, 1 - x)


@pytest.mark.parametrize("name", PICTURES)
def test_order_counts_between_uploads_and_not_within_one(name):
    c, x = CHALLENGES[name], truth(name)
    within = x.view(c.uploads, c.batch, *x.shape[1:]).flip(1).flatten(0, 1)
    assert right(name, within)
    if c.uploads > 1:
        between = x.view(c.uploads, c.batch, *x.shape[1:]).roll(1, 0).flatten(0, 1)
        assert not right(name, between)


def test_one_wrong_label_is_wrong_and_order_within_a_batch_is_free():
    y = truth("head-count")
    assert right("head-count", y) and right("head-count", y.view(8, 8).flip(1).flatten())
    assert not right("head-count", y.view(8, 8).flip(0).flatten())
    for name in ("first-word", "head-count"):
        y = truth(name).clone()
        y[0] = (y[0] + 1) % 10
        assert not right(name, y)
    places = truth("line-up")
    assert right("line-up", places) and not right("line-up", places.flip(0))


@pytest.mark.parametrize("name", PICTURES)
def test_a_flag_of_pictures_cannot_be_enumerated(name):
    """Daugman's count of independent answers, over 1,500 pairs of digits, times the images."""
    c, held = CHALLENGES[name], pf.challenges.open_set()
    entry = held.entries[name]
    rows = sketch.sketches(drawn(3000, 1)[0], entry["salt"], entry["questions"])
    bits = torch.tensor([[int(b) for b in row] for row in rows])
    apart = (bits[:1500] != bits[1500:]).double().mean(1)
    independent = apart.mean() * (1 - apart.mean()) / apart.var()
    assert independent * c.count > 48
    assert bits.double().mean(0).min() > 0.3 and bits.double().mean(0).max() < 0.7


def test_a_guess_costs_memory_and_a_salt():
    assert 128 * flags.COST * flags.BLOCK >= 2**24
    salts = [e["salt"] for e in pf.challenges.open_set().entries.values()]
    assert len(set(salts)) == 12 and flags.key("a", salts[0]) != flags.key("a", salts[1])


def test_no_private_image_is_in_the_public_set():
    """Else which of 5,000 known images are behind a gradient would be a system of equations."""
    digits = pf.load("mnist")
    known = torch.cat([digits.x_train, digits.x_test]).flatten(1)
    assert torch.cdist(truth("the-wall").flatten(1), known).min() > 1


# Sets


def test_the_stored_digests_are_those_of_the_public_secret():
    held = pf.challenges.open_set()
    again = sets.manifest(classroom.PUBLIC)
    assert held.name == again["set"] == "public"
    assert held.entries == again["challenges"], "run: python scripts/challenges.py"


def test_a_class_has_flags_of_its_own_and_no_truth_in_its_folder(classes):
    public = pf.challenges.open_set()
    assert classes.name != public.name
    assert all(classes.entries[n]["digest"] != public.entries[n]["digest"] for n in CHALLENGES)
    for name, c in CHALLENGES.items():
        assert set(classes.entries[name]) <= {"salt", "digest", "questions"}
        x = truth(name, SECRET) if c.answer == "images" else private(name, SECRET).images
        files = {p.name for p in (classes.folder / name).iterdir()}
        pool = {"candidates.safetensors"} if c.answer == "places" else set()
        want = {"upload.safetensors", "weights.safetensors", "challenge.json", "README.md"}
        assert files == want | pool
        for file in files - pool:
            held = (classes.folder / name / file).read_bytes()
            assert x[0].numpy().tobytes() not in held and SECRET.encode() not in held
    assert sets.manifest(SECRET)["challenges"] == classes.entries  # made again from the secret


def test_only_the_set_s_own_secret_tells_its_keys(classes):
    first = CHALLENGES["first-word"]
    key = classes.key(first, truth("first-word", SECRET))
    assert classes.true_key(first, SECRET) == key
    with pytest.raises(pf.PrivflError, match="not the secret"):
        classes.true_key(first, SECRET + ".")


def test_files_are_read_by_the_command_line(classes, capsys):
    home = classes.folder / "first-word"
    words = f"attack idlg:steps=1 --upload {home}/upload.safetensors --model lenet --model-file "
    words += f"{home}/weights.safetensors --shape 1,28,28 --quiet --threads 1"
    assert main(words.split()) == 0
    labels = capsys.readouterr().out.partition("labels  ")[2].partition("\n")[0]
    assert [int(y) for y in labels.split(",")] == truth("first-word", SECRET).tolist()


# The command line


def privfl(words: str, *more: str) -> int:
    return main(["challenge", *words.split(), "--quiet", *more])


def test_a_challenge_solved_from_the_command_line(desk, capsys):
    assert privfl("get one-division") == 0 and "50 points" in capsys.readouterr().out
    given = pf.challenges.load("one-division")
    torch.save(SOLUTIONS["one-division"](given), "found.pt")
    assert privfl("hint one-division --player Ann") == 0
    assert privfl("submit one-division --images found.pt --json out.json") == 0
    told = json.loads((desk / "out.json").read_text())
    assert told["right"] and told["points"] == told["score"] == 50 - 5 and told["tries"] == 1
    assert privfl("hint one-division") == 0 and "costs nothing" in capsys.readouterr().out
    assert privfl("submit one-division --images found.pt") == 0
    assert Board.read(desk / "privfl-board.json").score == 45  # a hint afterwards is free
    assert privfl("list") == 0
    said = capsys.readouterr().out
    assert said.count("open problem") == 2 and "Ann: 45 points" in said


def test_answers_come_in_four_kinds_of_file(desk, capsys):
    x = truth("one-division")
    torch.save({"images": x}, "a.pt")
    np.save("a.npy", x[:, 0].numpy())
    save_file({"images": x.flatten(1)}, "a.safetensors")
    grid = torch.cat([torch.cat(list(x[i : i + 2, 0]), 1) for i in (0, 2)])
    Image.fromarray((255 * grid).byte().numpy()).save("a.png")
    for file in ("a.pt", "a.npy", "a.safetensors", "a.png"):
        assert privfl(f"submit one-division --player Ann --images {file}") == 0
        assert "the flag" in capsys.readouterr().out, file


def test_a_line_up_takes_numbers_or_pictures(desk, capsys):
    places = ",".join(map(str, truth("line-up").tolist()))
    assert privfl(f"submit line-up --player Ann --places {places}") == 0
    torch.save(noisy(private("line-up").images, 15), "seen.pt")
    assert privfl("submit line-up --images seen.pt") == 0
    assert capsys.readouterr().out.count("the flag of line-up: 200 points") == 2


def test_a_class_plays_with_its_own_set(desk, classes, capsys):
    assert privfl(f"get line-up --set {classes.folder} --out mine") == 0
    mine = load_file(desk / "mine" / "candidates.safetensors")
    assert torch.equal(mine["images"], private("line-up", SECRET).pool)
    labels = ",".join(map(str, truth("first-word", SECRET).tolist()))
    assert privfl(f"submit first-word --set {classes.folder} --player Bo --labels {labels}") == 0
    assert "the flag" in capsys.readouterr().out
    assert privfl("submit first-word --labels " + labels) == 2  # this board is of the class's set
    assert "is of the set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("submit first-word --labels 1,2,3", "asks for 24 labels; got 3"),
        ("submit first-word --labels " + ",".join(["77"] * 24), "labels lie in 0…9"),
        ("submit first-word --images x.pt", "asks for labels"),
        ("submit one-division --labels 1,2,3,4", "asks for images"),
        ("submit one-division", "give one answer"),
        ("submit one-division --images none.pt", "there is no file"),
        ("submit one-division --images blank.pt", "image 0 of blank.pt is blank"),
        ("submit one-division --images nan.pt", "NaN"),
        ("submit one-division --images few.pt", "must hold 4 images"),
        ("submit one-division --images text.pt", "text.pt"),
        ("submit one-division --images text.npy", "no array of numbers"),
        ("submit one-division --images text.png", "no picture"),
        ("submit one-division --images odd.png", "a grid of 28 × 28 tiles"),
        ("submit one-division --images gray.pt --player Eve", "is the board of Ann"),
        ("submit nothing --labels 1", "unknown challenge"),
        ("submit one-division --images gray.pt --csv t.csv", "--csv goes with"),
        ("get", "name one challenge"),
        ("get first-word --set nowhere", "holds no set"),
        ("make --out here", "a class needs a secret"),
        ("make --secret-file short.txt --out here", "16 letters or more"),
        ("make --secret-file public.txt --out here", "public set"),
        ("make --secret-file none.txt --out here", "cannot be read"),
        ("merge", "name the players' files"),
        ("merge text.pt", "damaged"),
    ],
)
def test_bad_input_gets_one_sentence(words, says, desk, capsys):
    Board("Ann", "public").write(desk / "privfl-board.json")
    torch.save(torch.full((4, 1, 28, 28), 0.5), "blank.pt")
    torch.save(torch.rand(4, 1, 28, 28), "gray.pt")
    torch.save(torch.full((4, 1, 28, 28), torch.nan), "nan.pt")
    torch.save(torch.rand(3, 1, 28, 28), "few.pt")
    for name in ("text.pt", "text.npy", "text.png"):
        Path(name).write_text("nothing of the kind")
    Image.new("L", (30, 30)).save("odd.png")
    Path("short.txt").write_text("hunter2")
    Path("public.txt").write_text(classroom.PUBLIC)
    before = (desk / "privfl-board.json").read_bytes()
    assert privfl(words) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("privfl: ") and says in told and "\n" not in told
    assert (desk / "privfl-board.json").read_bytes() == before


def test_a_wrong_answer_is_counted_and_free(desk, capsys):
    for _ in range(2):
        assert privfl("submit first-word --player Ann --labels " + ",".join("1" * 24)) == 0
    assert "not the flag" in capsys.readouterr().out
    board = Board.read(desk / "privfl-board.json")
    assert board.tries == {"first-word": 2} and board.score == 0 and not board.proofs


# Boards


def solved(player: str, *names: str, secret: str = SECRET, set: str = "x", hints: int = 0) -> Board:
    board = Board(player, set)
    for name in names:
        for _ in range(hints):
            board.hint(CHALLENGES[name])
        entry = sets.entry(CHALLENGES[name], secret)
        held = Set("x", {name: entry})
        key = held.key(CHALLENGES[name], truth(name, secret))
        board.solve(CHALLENGES[name], flags.signed(key, player))
    return board


def test_hints_cost_what_they_say_once():
    c = CHALLENGES["in-a-crowd"]
    board = solved("Ann", c.name, hints=2)
    assert board.score == c.points - c.hints[0].cost - c.hints[1].cost
    for _ in range(5):
        assert board.hint(c) == c.hints[2]
    assert board.score == c.points - c.hints[0].cost - c.hints[1].cost


def test_a_damaged_or_foreign_board_is_noticed(tmp_path, refused):
    path = tmp_path / "b.json"
    solved("Ann", "first-word").write(path)
    assert Board.read(path).score == 50
    path.write_text(path.read_text().replace("Ann", "Eve"))
    refused(lambda: Board.read(path), "does not match its own SHA-256")
    pf_record = {
        "player": "\x1b[2J",
        "set": "x",
        "hints": {},
        "tries": {},
        "proofs": {},
        "paid": {},
    }

    for broken in (pf_record, {"player": "Ann"}, {**pf_record, "player": "A", "hints": {"?": 1}}):
        disk.write_record(path, broken)
        refused(lambda: Board.read(path), "is no leaderboard")
    refused(lambda: Board.at(tmp_path / "new.json", None, "x"), "say who you are")


def test_a_merged_table_believes_proofs_and_no_claims(classes, desk, capsys):
    ann = solved("Ann", "first-word", "one-division", set=classes.name, hints=1)
    bo = solved("=Bo()", "first-word", set=classes.name)
    thief = Board("Eve", classes.name, proofs=dict(ann.proofs))  # copied from Ann's file
    for name, board in (("a", ann), ("b", bo), ("e", thief)):
        board.write(desk / f"{name}.json")
    Path("secret.txt").write_text(SECRET + "\n")
    words = f"merge a.json b.json e.json --set {classes.folder} --csv t.csv --json t.json"
    assert privfl(f"{words} --secret-file secret.txt") == 0
    table = {row["player"]: row for row in json.loads(Path("t.json").read_text())["players"]}
    assert table["Ann"]["points"] == 90 and table["Ann"]["hints"] == 2
    assert table["=Bo()"]["points"] == 50 and table["Eve"]["points"] == 0
    assert table["Eve"]["refused"] == "first-word one-division"
    rows = Path("t.csv").read_text().splitlines()
    assert rows[1].startswith("Ann,90,2,") and rows[2].startswith("'=Bo()") and len(rows) == 4
    assert privfl(words) == 0
    assert "proofs not checked" in capsys.readouterr().out  # without the secret it says so


def test_boards_of_two_sets_or_twice_of_one_player(refused):
    a, b = solved("Ann", "first-word"), solved("Ann", "first-word", "one-division", hints=1)
    (row,) = merged([a, b])
    assert row["points"] == 45 + 45 and row["solved"] == 2  # the lower one of each
    refused(lambda: merged([a, Board("Bo", "y")]), "several sets")
