"""Labs: what stub, solution and wrong answers get, and that no class's numbers are another's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import nbformat
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from labs import source  # noqa: E402
from privfl_lite.teach import check  # noqa: E402
from privfl_lite.teach.labs import kit  # noqa: E402

PYTHON = ROOT / ".otter" / "bin" / "python"
SLUGS = source.slugs()
Variant = tuple[
    list[list[str]], dict[str, float]
]  # what is swapped, and the points of its questions
LIBRARY = """\
    import privfl_lite as pf
    units, pixels = g_weight.shape
    net = lab.network(torch.Generator(), pixels, units)
    net = torch.nn.Sequential(torch.nn.Flatten(), *net)
    head = torch.randn(10, units), torch.randn(10)
    net = pf.models.wrap(net, shape=(1, 1, pixels), head="3")
    upload = pf.Upload.from_gradients(net, [g_weight, g_bias, *head], batch=4)
    return pf.attacks.ClosedForm().run(upload).images.flatten(1)
"""
ESTIMATE = """\
    from privfl_lite.attacks.analytic.closed_form import row_quotients
    quotients = row_quotients(g_weight[None], g_bias[None])[0]
"""
TOGETHER = "size = t.abs().mean().expand(len(t))\n            out[name] = t.sign() * size"
MEAN = """\
    mean = rows.mean(0)
    total = len(rows) * mean * (C / mean.norm()).clamp(max=1)
"""
ACCOUNTANT = """\
    from privfl_lite.privacy import gaussian
    return gaussian.analytic_gaussian_epsilon(1 / mu, delta_dp)
    low, high = 0.0, 1.0
"""
COSINES = """\
    from torch.nn.functional import cosine_similarity as cosine

    return 1 - sum(cosine(u.flatten(), v.flatten(), 0) for u, v in zip(a, b)) / len(a)
"""
SEARCH = """\
    import privfl_lite as pf

    model = pf.models.wrap(net, shape=(1, 14, 14), head="3")
    upload = pf.Upload.from_gradients(model, sent, labels=y)
    return pf.attacks.IDLG(steps=20).run(upload).images
"""
READOUT = """\
    import privfl_lite as pf

    return pf.attacks.analytic.closed_form.row_quotients(g_weight[None], g_bias[None])[0]
"""
WRONG: dict[str, dict[str, Variant]] = {
    "read-off": {
        "the first row that is on": (
            [["g_bias.abs().argmax()", "g_bias.nonzero()[0, 0]"]],
            {"q2": 2},
        ),
        "cut off in place of rounded": ([[".round().long()", ".long()"]], {"q4": 2, "q5": 0}),
        "mixtures in [0, 1] count": (
            [["agree.sum() > 1 and new", "new and row.min() >= 0 and row.max() <= 1"]],
            {"q7": 0, "q8": 0},
        ),
        "one lone unit is enough": (
            [["1 - none - one", "1 - none"], ["(alone.sum(1) > 1)", "(alone.sum(1) > 0)"]],
            {"q9": 0, "q10": 0},
        ),
        "the library in place of an answer": (
            [["    live = g_bias != 0\n", LIBRARY]],
            {"q7": 0, "q8": 0},
        ),
    },
    "break-a-defense": {
        "exact comparison": (
            [["spread > 1e-4 * quotients.abs().amax(0)", "spread > 0"]],
            {"q2": 0, "q3": 0, "q5": 0, "q6": 0},
        ),
        "a without the sigmoid undone": (
            [["(a / (1 - a)).log()", "a"]],
            {"q4": 0, "q5": 0, "q6": 0},
        ),
        "the plain attack": (
            [["    return x\n", "    return lab.plain(sent)\n"]],
            {"q5": 0, "q6": 0},
        ),
        "counted from zero, and one equation too many": (
            [["return 1 + int(", "return int("], ["> units", ">= units"]],
            {"q7": 0, "q8": 0},
        ),
        "the library in place of an answer": (
            [["    quotients = g_weight / g_bias[:, None]\n", ESTIMATE]],
            {"q2": 0, "q5": 0},
        ),
    },
    "red-team": {
        "one size for all clients": (
            [
                [
                    "size = t.abs().flatten(1).mean(1)\n            out[name] = t.sign() * size",
                    TOGETHER,
                ]
            ],
            {"q1": 2},
        ),
        "every unit must be on": (
            [["return (layer != 0).any(0)", "return (layer != 0).all(0)"]],
            {"q3": 2, "q5": 0},
        ),
        "only common pixels count": (
            [["((pool != 0) != mask).sum(1).argmin()", "((pool != 0) & mask).sum(1).argmax()"]],
            {"q4": 0},
        ),
        "coins of the first client for all": (
            [["enumerate(ctx.rngs)", "enumerate(ctx.rngs[:1] * len(t))"]],
            {"q7": 2},
        ),
        "a majority in place of constancy": (
            [["(rounds == rounds[0]).all(0).any(0)", "(rounds.double().mean(0) > 0).any(0)"]],
            {"q8": 0, "q9": 0},
        ),
    },
    "dp-sgd": {
        "the mean is clipped": (
            [["    total = (rows * (C / length).clamp(max=1)).sum(0)\n", MEAN]],
            {"q2": 0, "q3": 0},
        ),
        "a length of zero": (
            [
                [".clamp(min=1e-12)", ""],
                ["rows * (C / length).clamp(max=1)", "rows / length * length.clamp(max=C)"],
            ],
            {"q2": 2, "q3": 0},
        ),
        "ε of each round is added": (
            [["math.sqrt(rounds) / sigma, NormalDist", "1 / sigma, NormalDist"]],
            {"q4": 0, "q5": 0, "q10": 0},
        ),
        "observed rates": (
            [
                ["lab.interval(hits, tries)[0]", "hits / tries"],
                ["lab.interval(alarms, tries)[1]", "alarms / tries"],
            ],
            {"q7": 0},
        ),
        "a plan that spends too much": ([["noise_for(3, 30, 1e-5)", "2.0"]], {"q10": 0}),
        "a plan that does not learn": ([['"rate": 8.0', '"rate": 0.01']], {"q10": 3}),
        "the library in place of an answer": (
            [["    low, high = 0.0, 1.0\n", ACCOUNTANT]],
            {"q4": 0, "q5": 0},
        ),
    },
    "matching": {
        "a cosine for each tensor": (
            [["    inner = sum(", COSINES + "    inner = sum("]],
            {"q2": 2},
        ),
        "the cost that was handed over is not used": (
            [["value = cost(", "value = lab.distance("]],
            {"q3": 7, "q7": 0},
        ),
        "a start that diverged": ([['.nan_to_num(float("inf"))', ""]], {"q5": 1}),
        "all entries count": ([["(u - v)[v != 0]", "(u - v)"]], {"q6": 2, "q7": 0}),
        "the library in place of an answer": (
            [["    x = torch.full(", SEARCH + "    x = torch.full("]],
            {"q3": 0, "q4": 0, "q7": 0},
        ),
    },
    "malicious-server": {
        "equal steps": (
            [["Normal(mean, std).icdf(shares)", "Normal(mean, std).icdf(shares[:1]) + shares"]],
            {"q2": 0},
        ),
        "dust counts": ([["> 1e-5 * signals.abs().max()", "> 0"]], {"q3": 2}),
        "bins are taken for equal": (
            [
                [
                    "return (B * p * (1 - p) ** (B - 1)).sum().item()",
                    "return B * (1 - 1 / len(p)) ** (B - 1)",
                ]
            ],
            {"q5": 1},
        ),
        "equal columns in place of parallel ones": (
            [
                [
                    "    columns = second / second.norm(dim=0).clamp(min=1e-12)\n",
                    "    return bool((second - second[:, :1]).abs().max() < 1e-6)\n",
                ]
            ],
            {"q8": 2},
        ),
        "rows in place of columns": (
            [
                [
                    "columns = second / second.norm(dim=0)",
                    "second = first.T\n    columns = second / second.norm(dim=0)",
                ]
            ],
            {"q8": 4},
        ),
        "the library in place of an answer": (
            [["    below_w = ", READOUT + "    below_w = "]],
            {"q3": 0, "q4": 0},
        ),
    },
}


@cache
def tried(slug: str, folder: str) -> dict[str, dict[str, float]]:
    """Points by question, of the stub, of the solution, and of all variants in ``WRONG``."""
    swaps = {name: change for name, (change, _) in WRONG[slug].items()}
    path = os.pathsep.join([str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests")])
    done = subprocess.run(
        [PYTHON, ROOT / "tests" / "lab_trial.py", slug, folder],
        input=json.dumps(swaps),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "MPLBACKEND": "agg"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("labs"))


needs_otter = pytest.mark.skipif(not PYTHON.exists(), reason="needs otter-grader: make otter")


@needs_otter
@pytest.mark.parametrize("slug", SLUGS)
def test_stub_gets_nothing_solution_all_and_wrong_answers_what_the_rubric_says(slug, folder):
    found = tried(slug, folder)
    full = {q.name: q.points for q in source.questions(slug) if not q.written}
    assert found["solution"] == full
    assert found["stub"] == dict.fromkeys(full, 0)
    for name, (_, expected) in WRONG[slug].items():
        assert found[name] == full | expected, name


@needs_otter
@pytest.mark.parametrize("slug", SLUGS)
def test_files_of_two_classes_differ_and_hold_no_secret(slug, folder):
    tried(slug, folder)
    texts = {
        secret: Path(folder, secret, slug, f"{slug}.ipynb").read_text(encoding="utf-8")
        for secret in ("blue", "green")
    }
    for secret, text in texts.items():
        assert secret not in text and kit.lab_key(secret, slug) not in text and "KEY)" not in text
        solution = Path(folder, secret, slug, f"{slug}-solution.ipynb").read_text(encoding="utf-8")
        assert kit.lab_key(secret, slug) not in solution
        assert "# SOLUTION" not in text and "Rubric" not in text
        assert nbformat.reads(solution, as_version=4).metadata["otter"]["assignment_name"] == slug
    if source.module(slug).handout("any"):
        assert texts["blue"] != texts["green"]


@pytest.mark.parametrize("slug", SLUGS)
def test_data_of_two_classes_differ(slug):
    module = source.module(slug)
    one, same, other = (module.handout(kit.lab_key(s, slug)) for s in ("blue", "blue", "green"))
    for name, value in one.items():
        assert torch.equal(value, same[name])
        assert not torch.equal(value, other[name]), name


@pytest.mark.parametrize("slug", SLUGS)
def test_a_source_keeps_the_format(slug):
    nb = source.read(slug)
    text = "\n".join(cell.source for cell in nb.cells)
    asked = source.questions(slug)
    assert 40 <= sum(q.points for q in asked) <= 100
    assert [q.name for q in asked] == [f"q{i}" for i in range(1, len(asked) + 1)]
    assert f"**Points** {sum(q.points for q in asked):g}: " in text
    graded = sum(q.points for q in asked if not q.written)
    assert f": {graded:g} by tests, " in text
    for q in asked:
        said = re.search(rf"\*\*Question {q.name[1:]} \(([^)]*)\)", text)
        assert said and f"{q.points:g} point" in said[1] and ("written" in said[1]) is q.written
    assert text.count("**Rubric.**") == sum(q.written for q in asked)
    minutes = [int(m) for m in re.findall(r"## Part \w\. .*\((\d+) min\)", text)]
    assert len(minutes) >= 3 and 120 <= sum(minutes) <= 180
    for cell in nb.cells:
        if cell.cell_type == "code":
            assert all(len(line) <= 79 for line in cell.source.splitlines()), cell.source
    links = re.findall(r"https://privfl-lite\.github\.io/privfl_lite/book/([\w-]+)\.html", text)
    assert links and all((ROOT / "book" / "src" / f"{name}.md").is_file() for name in links)


@pytest.mark.parametrize("slug", SLUGS)
def test_points_of_a_rubric_add_up(slug):
    cells = [c.source for c in source.read(slug).cells if "**Rubric.**" in c.source]
    for q, text in zip((q for q in source.questions(slug) if q.written), cells, strict=True):
        rubric = text.partition("**Rubric.**")[2]
        parts = [int(n) for n in re.findall(r"(?:^|\W)(\d+)(?: points?)?:\s", rubric)]
        assert sum(parts) == q.points, (q.name, parts)


def test_the_first_cell_is_that_of_the_chapters():
    source_cell = source.launch().source
    chapter = nbformat.read(ROOT / "book" / "student" / "first-answers.ipynb", as_version=4)
    assert source_cell == next(c.source for c in chapter.cells if c.cell_type == "code")


def test_tensors_go_into_a_cell_and_come_back():
    tensors = {"a": torch.randn(3, 5).T, "b": torch.arange(4)}
    text = kit.pack(tensors)
    assert max(map(len, text.splitlines())) < 79 and '"' not in text and "\\" not in text
    back = kit.unpack(text)
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)


def test_a_call_into_a_room_that_is_withheld_is_noticed():
    import privfl_lite as pf

    def honest(v):
        return pf.metrics.mse(v, v)

    def imports_it(v):
        from privfl_lite.attacks import ClosedForm

        return ClosedForm

    def hides_it(v):
        try:
            return pf.attacks.labels._rounded(v, v)
        except Exception:
            return v

    @check.exercise("Good.")
    def asks(answer):
        kit.own(answer, "attacks")(torch.ones(1, 1, 2, 2))

    before = sys.getprofile()
    assert check.fault(asks, honest) is None and check.fault(asks, imports_it) is None
    assert "calls privfl_lite.attacks; this question asks" in check.fault(asks, hides_it)
    assert "it should be a function" in check.fault(asks, 3)
    assert "your code raised ZeroDivisionError" in check.fault(asks, lambda v: 1 / 0)
    assert sys.getprofile() is before
    with pytest.raises(AssertionError, match="asks for your own lines"):
        kit.demand(asks, hides_it)


@pytest.mark.parametrize("slug", SLUGS)
def test_every_check_of_a_lab_is_used_in_it(slug):
    module = import_module(f"privfl_lite.teach.labs.{slug.replace('-', '_')}")
    text = "\n".join(cell.source for cell in source.read(slug).cells)
    checks = {name for name in vars(module) if name.startswith("check_")}
    assert checks == set(re.findall(r"\blab\.(check_\w+)", text))
