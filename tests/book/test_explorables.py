"""Around the moving pictures: their data, the bundler, the directive, notebooks, colors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkout import ROOT
from editions.myst import parse
from editions.numbers import Index
from editions.plain import Writer
from explore import EXPLORE, ask

import privfl_lite as pf
from privfl_lite.errors import PrivflError
from privfl_lite.privacy import epsilon
from privfl_lite.teach import bridge, explorables, modules
from privfl_lite.teach.explorables import catalog, explore

for folder in ("scripts", "book/_ext"):
    sys.path.append(str(ROOT / folder))
import explore_data  # noqa: E402
import explore_reach  # noqa: E402
from accessible import contrast_faults  # noqa: E402

# --- data ---


@pytest.mark.parametrize("name", ["digits", "signals", "face", "plan"])
def test_stored_pictures_are_what_the_script_writes(name):
    made = explore_data.module(explore_data.MAKERS[name]())
    assert (EXPLORE / "data" / f"{name}.js").read_text(encoding="utf-8") == made


def stored(name: str) -> dict:
    text = (EXPLORE / "data" / f"{name}.js").read_text(encoding="utf-8")
    return {k: json.loads(v) for k, v in re.findall(r'^  "(\w+)": (.*),$', text, re.MULTILINE)}


def test_the_stored_map_is_the_study_s():
    """``python scripts/explore_data.py reach`` has been run since the study was."""
    places = [(place["net"], place["data"]) for place in stored("reach")["places"]]
    assert places == explore_reach.places() and len(places) >= 10
    for place in stored("reach")["places"]:
        assert place["cells"] == explore_reach.measured(place["net"], place["data"])


def test_what_the_map_counts_with_is_a_network_s():
    ready = 0
    for place in stored("reach")["places"]:
        try:
            pf.load(place["data"])
        except PrivflError:  # its pictures come with no package: make test-data
            continue
        counted = {k: v for k, v in place.items() if k not in ("net", "data", "cells")}
        assert counted == explore_reach.counted(place["net"], place["data"])
        ready += 1
    assert ready >= 10


def test_the_map_takes_new_cells_as_they_come(monkeypatch):
    """New data at the end, an age and a batch of its own; where all refuse, no number."""
    whole = explore_reach.reach_cells.result()
    cell = next(c for c in whole["cells"] if c["net"] == "LeNet sigmoid")
    new = [{**cell, "data": "svhn", "batch": 64, "age": 7}]
    refused = {k: v for k, v in cell.items() if k != "networks"} | {"refused": "It ends here."}
    new.append({**refused, "data": "svhn", "batch": 2})
    more = {**whole, "cells": [*whole["cells"], *new]}
    before = explore_reach.places()
    monkeypatch.setattr(explore_reach.reach_cells, "result", lambda: more)
    assert explore_reach.places() == [*before, ("LeNet sigmoid", "svhn")]
    rows = explore_reach.measured("LeNet sigmoid", "svhn")
    assert rows[0] == [2, 1, 0, None]
    assert rows[1][:4] == [64, 1, 7, rows[1][3]] and rows[1][3]


@pytest.fixture(scope="module")
def table() -> dict:
    return stored("epsilon")


def logs(table: dict) -> np.ndarray:
    coded = np.frombuffer(explore_data.base64.b64decode(table["logs"]), dtype="<u2")
    shape = [axis[2] for axis in table["axes"]]
    return (table["low"] + coded / 65535 * (table["high"] - table["low"])).reshape(shape)


def test_the_table_holds_the_accountant_s_values(table):
    stored, rng = logs(table), np.random.default_rng(0)
    axes = [explore_data.grid(*axis) for axis in table["axes"]]
    for _ in range(30):
        at = tuple(int(rng.integers(n)) for n in stored.shape)
        sigma, rate, rounds = (axis[i] for axis, i in zip(axes, at, strict=True))
        true = explore_data.between(sigma, min(1.0, rate), round(rounds))
        assert abs(stored[at] - np.log(true)) < 2e-4, at  # 16 bits


def test_the_stated_error_of_interpolation_is_the_measured_one(table):
    """On a part of the random settings that it was measured on; the page computes the same."""
    tried = explore_data.settings(table["tried"], explore_data.SEED)
    ours = [explore_data.shown(logs(table), s) for s in tried]
    some = sorted(range(len(tried)), key=lambda i: tried[i])[::40]
    off = [abs(ours[i] / epsilon(*tried[i], table["delta"]) - 1) for i in some]
    assert max(off) <= table["worst"] + 1e-4
    assert np.quantile(off, 0.8) <= table["usual"] <= table["worst"] < 0.02
    page = ask(*(("epsilon-rounds", "sampled", [*tried[i]]) for i in some))
    assert np.allclose(page, [ours[i] for i in some], rtol=1e-9)


# --- one text out of many ---


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return folder / "entry.js"


def run(text: str, folder: Path) -> str:
    if not (node := shutil.which("node")):
        pytest.skip("Node is not installed, which runs the bundle")
    (folder / "made.mjs").write_text(text, encoding="utf-8")
    done = subprocess.run([node, folder / "made.mjs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_bundle_runs_as_its_modules_do(tmp_path):
    entry = write(
        tmp_path,
        one="// import nothing\nlet hidden = 20;\nexport const a = 1;\nexport function f() {\n"
        "  return hidden;\n}\nconst g = () => 300;\nexport { g, a as again };\n",
        two='import {\n  a,\n  f as other,\n} from "./one.js";\nimport * as all from "./one.js";\n'
        "export class Sum {\n  total = a + other() + all.g() + all.again;\n}\n",
    )
    source = 'import { Sum } from "./two.js";\nimport { a } from "./one.js";\n'
    made = modules.bundle(source + "console.log(new Sum().total, a);", entry)
    assert "import" not in made and "export" not in made
    assert run(made, tmp_path) == "322 1"
    ready = modules.bundle('import { a } from "./one.js";\nexport default { a };', entry)
    assert ready.endswith("export default $entry.default;\n")


def test_files_beside_a_module_come_along(tmp_path):
    worker = 'import { a } from "./one.js";\npostMessage(a);\n'
    entry = write(tmp_path, one="export const a = 41;\n", worker=worker)
    (tmp_path / "bytes.bin").write_bytes(bytes([7, 8]))
    source = (
        'const there = new URL("./bytes.bin", import.meta.url);\n'
        "fetch(there).then(async (r) => console.log((await r.arrayBuffer()).byteLength));\n"
        'const code = new URL("./worker.js", import.meta.url);\n'
        "console.log(code.protocol);"
    )
    made = modules.bundle(source, entry)
    assert "const a = 41" in made and "import" not in made.replace("import.meta", "import")[:50]
    assert run(made, tmp_path).split() == ["blob:", "2"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('import { a } from "./none.js";', "no module none.js"),
        ('import x from "./one.js";', "cannot hold 'import x from"),
        ("export let a = 1;", "cannot hold 'export let a"),
        ('const x = await import("./one.js");', "cannot hold 'import("),
        ('import { a } from "./loop.js";', "imports itself"),
        ('import { a } from "left-pad";', "cannot hold 'import { a }"),
    ],
)
def test_what_a_bundle_cannot_hold_is_said(tmp_path, refused, text, says):
    entry = write(tmp_path, one="export const a = 1;\n")
    write(tmp_path, loop='import { b } from "./back.js";\nexport const a = 1;\n')
    write(tmp_path, back='import { a } from "./loop.js";\nexport const b = 1;\n')
    refused(lambda: modules.bundle(text, entry), says)


@pytest.mark.parametrize("name", [*catalog()])
def test_every_bundle_is_small_and_whole(name):
    page, notebook = explorables.page_script(name), explorables.notebook_module(name)
    for text in (page, notebook):
        assert len(text) < 80_000 and not re.search(r"^(import|export \{)", text, re.MULTILINE)
    assert notebook.count("export default") == 1 and "export" not in page
    assert not re.search(r"https?://(?!www\.w3\.org)", page), "a picture asks no host"


# --- the directive ---


def test_settings_of_the_directive_are_read_or_refused(refused):
    from explorable import read_settings

    assert read_settings("mu=1, delta = 1e-5,") == {"mu": 1.0, "delta": 1e-5}
    assert read_settings("") == {}
    refused(lambda: read_settings("mu"), "key=number")
    refused(lambda: read_settings("mu=__import__('os')"), "key=number")


def test_a_student_s_copy_has_the_caption_and_a_link():
    text = "```{explorable} two-gaussians\n:set: mu=2\nA caption with $\\mu$.\n```"
    writer = Writer(Index("https://site"), "noise-and-epsilon")
    line = writer.blocks(parse(text))
    assert "\n" not in line and "{" not in line.replace("{\\", "")
    assert "A caption with $\\mu$." in line and 'pf.teach.explore("two-gaussians", mu=2)' in line
    assert "(https://site/book/noise-and-epsilon.html#explorable-two-gaussians)" in line


# --- notebooks ---


def test_a_notebook_s_picture_starts_where_it_is_told(refused):
    made = explore("drift", steps=3)
    assert made.settings == {"steps": 3} and made.title == "Local steps and drift"
    assert "export default" in str(made._esm)
    refused(lambda: explore("spin"), "unknown explorable 'spin'")
    refused(lambda: explore("drift", speed=1), "unknown setting of drift 'speed'")
    refused(lambda: explore("drift", steps="three"), "steps is 'three'; it must be a number")


def test_the_laboratory_s_picture_is_a_tensor(refused, monkeypatch):
    monkeypatch.setattr(bridge, "bundle", lambda text: "export default { render() {} };")
    shown = bridge.Laboratory({})
    refused(lambda: shown.image, "there is no picture yet")
    pixels = np.arange(12, dtype=np.float32) / 11
    shown.picture = {"shape": [3, 2, 2], "data": memoryview(pixels.tobytes()), "label": 7}
    assert shown.image.shape == (3, 2, 2) and shown.image.flatten().tolist() == pixels.tolist()
    assert shown.label.tolist() == [7]


def test_the_laboratory_says_where_it_is_missing(refused, monkeypatch, tmp_path):
    monkeypatch.setattr(bridge, "JS", tmp_path)
    refused(bridge.lab, "does not hold the laboratory")


# --- colors ---


def test_colors_can_be_read_in_both_themes():
    (css,) = ask(("kit/style", "CSS", []))
    themes = re.findall(r"\{\s*(--pfx-paper[^}]*)\}", css)
    assert len(themes) == 2
    for theme in themes:
        known = dict(re.findall(r"(--pfx-[\w]+): (#\w{6})", theme))
        inks = ("ink", "muted", "attack", "defense", "good", "accent", "warm")
        rules = "".join(
            f".{i} {{ color: var(--pfx-{i}); background: var(--pfx-paper); }}" for i in inks
        )
        values = "; ".join(f"{k}: {v}" for k, v in known.items())
        assert len(known) >= 12 and not contrast_faults(f"html {{ {values} }} {rules}")
    assert contrast_faults(
        "html { --a: #999999; --b: #ffffff } p { color: var(--a); background: var(--b) }"
    )
