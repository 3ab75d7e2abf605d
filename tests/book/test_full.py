"""The full edition, for JupyterLab: plain Markdown, stored outputs, folded solutions and plumbing.

tests/browser/test_full.py opens three chapters of it in a real JupyterLab.
"""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
from chapters import INDEX, RAW, SLUGS, SOURCES, read, rendered, text, written
from checkout import BOOK
from editions import full
from editions.__main__ import built, digest, dump, load, spare, write
from editions.chapter import HIDDEN
from editions.executed import VIEW, WIDGETS
from editions.myst import EditionError, walk
from editions.plain import call


@cache
def made(slug: str) -> str:
    (whole,) = built(slug, INDEX, "full").values()
    return whole


def copy(slug: str) -> dict:
    return json.loads(made(slug))


def code(notebook: dict) -> list[dict]:
    return [c for c in notebook["cells"] if c["cell_type"] == "code"]


def is_moving(cell: dict) -> bool:
    return cell["metadata"].get("tags") == ["moving"]


def models(notebook: dict) -> dict:
    return notebook["metadata"].get("widgets", {WIDGETS: {"state": {}}})[WIDGETS]["state"]


@pytest.mark.parametrize("slug", SLUGS)
def test_nothing_is_raw_and_every_reference_is_a_link(slug):
    notebook = copy(slug)
    said = text(notebook)
    shown = [o.get("data", {}) for c in code(notebook) for o in c["outputs"]]
    computed = ["".join(d.get(k, "")) for d in shown for k in ("text/markdown", "text/html")]
    assert not (found := RAW.findall("\n\n".join([said, *computed]))), found[:3]
    whole = (SOURCES / f"{slug}.md").read_text(encoding="utf-8")
    cited = {
        k.strip() for keys in re.findall(r"\{cite(?::\w)?\}`(.+?)`", whole) for k in keys.split(",")
    }
    for key in cited:
        assert f"/bibliography.html#{INDEX.works[key].anchor})" in said, key
    assert len(rendered(notebook)) == written(slug, answers=True)


def anonymous(outputs: list[dict]) -> str:
    """Outputs without the ids of widgets."""
    return re.sub(r'"model_id": "\w+"', "", json.dumps(outputs))


@pytest.mark.parametrize("slug", SLUGS)
def test_outputs_are_those_of_the_page_and_what_the_page_hides_is_folded(slug):
    cells = [c for c in read(SOURCES / f"{slug}.md") if c.kind == "code"]
    ran = [c["outputs"] for c in code(load(BOOK / f"{slug}.ipynb"))]
    copies = [c for c in code(copy(slug)) if not is_moving(c)]
    for source, stored, cell in zip(cells, ran, copies, strict=True):
        folded = cell["metadata"].get("jupyter", {})
        assert folded.get("source_hidden", False) == bool(source.tags & HIDDEN or source.solves)
        shut = bool(stored) and bool(source.tags & full.SHUT)
        assert folded.get("outputs_hidden", False) == shut
        assert "".join(cell["source"]).endswith(source.source)
        # the style that hides broken chains follows widgets, and nothing else is added
        extra = cell["outputs"][len(stored) :]
        assert anonymous(cell["outputs"][: len(stored)]) == anonymous(stored)
        assert bool(extra) == any(VIEW in o.get("data", {}) for o in stored)
        assert all("jupyter-widgets-disconnected" in json.dumps(o) for o in extra)


@pytest.mark.parametrize("slug", SLUGS)
def test_solutions_are_there_and_folded(slug):
    cells, said = read(SOURCES / f"{slug}.md"), text(copy(slug))
    blocks = [b for c in cells for b in walk(c.blocks)]
    for block in blocks:
        name = INDEX.find(block.title).name if block.name == "solution" else ""
        assert f"<details><summary>Solution to {name}</summary>\n\n" in said or not name
    gated = {INDEX.find(c.solves).name for c in cells if c.kind == "code" and c.solves}
    heads = {"".join(c["source"]).split("\n")[0] for c in code(copy(slug))}
    assert {f"# @title Solution to {name}" for name in gated} <= heads
    assert (gated or "Solution to" in said) or slug == "intro"
    assert "Rubric" not in said


@pytest.mark.parametrize("slug", SLUGS)
def test_what_moves_on_the_page_moves_here(slug):
    notebook = copy(slug)
    blocks = [b for c in read(SOURCES / f"{slug}.md") for b in walk(c.blocks)]
    calls = [call(b) for b in blocks if b.name in ("explorable", "laboratory")]
    moving = [c for c in code(notebook) if is_moving(c)]
    assert ["".join(c["source"]) for c in moving] == calls
    for cell in moving:
        model = models(notebook)[cell["outputs"][0]["data"][VIEW]["model_id"]]
        assert model["model_module"] == "anywidget" and "export default" in model["state"]["_esm"]
        assert model["state"]["layout"].removeprefix("IPY_MODEL_") in models(notebook)
    views = [o["data"] for c in code(notebook) for o in c["outputs"] if VIEW in o.get("data", {})]
    assert all(data[VIEW]["model_id"] in models(notebook) for data in views)


def test_settings_of_a_page_are_settings_of_its_cell():
    cells = code(copy("modelcloak-fixed"))
    (cell,) = [c for c in cells if is_moving(c) and "explore" in "".join(c["source"])]
    assert cell["source"] == ['pf.teach.explore("clip-and-noise", clip=2, sigma=5)']
    model = models(copy("modelcloak-fixed"))[cell["outputs"][0]["data"][VIEW]["model_id"]]
    assert model["state"]["settings"] == {"clip": 2, "sigma": 5}


def test_it_is_the_same_when_it_is_made_again():
    (again,) = built("dcs2", INDEX, "full").values()
    assert again == made("dcs2")


def test_a_notebook_that_is_out_of_date_is_refused():
    ran = load(BOOK / "dcs2.ipynb")
    code(ran)[3]["source"] = ["1 + 1"]
    with pytest.raises(EditionError, match="make chapters CHAPTER=dcs2"):
        full.make("dcs2", read(SOURCES / "dcs2.md"), INDEX, ran)


def test_a_copy_in_which_somebody_worked_is_kept(tmp_path, capsys, monkeypatch):
    """Run again, it may be replaced; with a changed cell it may not."""
    monkeypatch.setattr("editions.__main__.ROOT", tmp_path)
    path, whole = tmp_path / "dcs2.ipynb", made("dcs2")
    assert spare({path: whole}) == {path: whole}
    write({path: whole})
    notebook = load(path)
    notebook["cells"][3]["outputs"] = []
    path.write_text(dump({**notebook, "cells": joined(notebook)}), encoding="utf-8")
    assert digest(load(path)) == digest(copy("dcs2"))
    assert spare({path: whole}) == {path: whole} and not capsys.readouterr().out
    notebook["cells"][3]["source"] = ["mine = 1"]
    path.write_text(dump({**notebook, "cells": joined(notebook)}), encoding="utf-8")
    assert spare({path: whole}) == {}
    assert "kept, because its cells were changed" in capsys.readouterr().out


def joined(notebook: dict) -> list[dict]:
    return [{**c, "source": "".join(c["source"])} for c in notebook["cells"]]
