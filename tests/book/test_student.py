"""The student's copy of a chapter is plain Markdown without solutions; the instructor's has them.

The counts of formulas come from a plain CommonMark parser (markdown-it-py with dollar formulas,
no MyST), which reads the student's copy as GitHub, Colab and JupyterLab do.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from chapters import INDEX, RAW, SLUGS, SOURCES, read, rendered, source, student, text, written
from checkout import NOTEBOOKS, ROOT
from editions import executed
from editions.__main__ import built
from editions.chapter import HIDDEN
from editions.myst import parse, walk
from editions.plain import Writer


@pytest.mark.parametrize("slug", SLUGS)
def test_student_copy_is_plain_markdown(slug):
    assert not (found := RAW.findall(text(student(slug)))), found[:3]
    assert (slug == "intro") or RAW.search(source(slug)), "the pattern finds nothing at all"


@pytest.mark.parametrize("slug", SLUGS)
def test_student_copy_has_every_formula(slug):
    assert len(rendered(student(slug))) == written(slug)


@pytest.mark.parametrize("slug", SLUGS)
def test_student_copy_has_every_title_and_number(slug):
    whole = text(student(slug))
    titled = [t for t in INDEX.targets.values() if t.slug == slug]
    for target in titled:
        if target.kind not in ("Chapter", "Section", "Eq."):
            assert f"**{target.name}" in whole, target.name
    titles = [b.title for b in walk(parse(source(slug))) if b.title]
    plain = Writer(INDEX, slug)
    missing = [t for t in titles if plain.text(t) not in whole]
    assert not missing, missing[:3]
    assert [t for t in titled if t.kind == "Exercise"] or slug == "intro"


@pytest.mark.parametrize("slug", SLUGS)
def test_student_copy_holds_no_solution(slug):
    cells = read(SOURCES / f"{slug}.md")
    whole = "\n".join("".join(c["source"]) for c in student(slug)["cells"])
    shown = {line.strip() for c in cells if not c.solves for line in c.source.split("\n")}
    code = {line.strip() for c in cells if c.solves for line in c.source.split("\n")} - shown
    leaked = [line for line in code if len(line) > 25 and f"{line}\n" in f"{whole}\n"]
    plain = Writer(INDEX, slug, edition="instructor")
    answers = [b for c in cells for b in walk(c.blocks) if b.name == "solution"]
    said = [line for b in answers for line in plain.blocks(b.body).split("\n") if len(line) > 25]
    assert (code or said) or slug == "intro"
    leaked += [line for line in said if line in whole]
    (told,) = built(slug, INDEX, "instructor").values()
    told = "\n".join("".join(c["source"]) for c in json.loads(told)["cells"])
    told = re.sub(r"(?m)^> ?", "", told)
    assert all(line in told for line in (*code, *said)), "the instructor's copy lacks a solution"
    assert not leaked, leaked[:3]
    assert "_solution" not in whole


@pytest.mark.parametrize("slug", SLUGS)
def test_student_copy_folds_proofs_and_hints(slug):
    whole = text(student(slug))
    blocks = list(walk(parse(source(slug))))
    for name, word in {"prf:proof": "Proof", "hint": "Hint"}.items():
        count = sum(b.name == name and not b.title for b in blocks)
        assert whole.count(f"<details><summary>{word}</summary>\n\n") == count
    assert whole.count("<details>") == whole.count("\n\n</details>")


@pytest.mark.parametrize("slug", SLUGS)
def test_student_copy_begins_with_the_page_the_license_and_the_installer(slug):
    first, second, *others = student(slug)["cells"]
    said = "".join(first["source"])
    assert f"/book/{slug}.html)" in said and "CC BY 4.0" in said and "MIT" in said
    assert second["cell_type"] == "code" and 'find_spec("privfl_lite")' in "".join(second["source"])
    hidden = [c for c in read(SOURCES / f"{slug}.md") if c.tags & HIDDEN]
    folded = [
        c for c in (second, *others) if c["metadata"].get("jupyter") == {"source_hidden": True}
    ]
    assert len(folded) == sum(not c.solves for c in hidden)
    for cell in folded:
        assert cell["metadata"]["cellView"] == "form" and cell["source"][0].startswith("# @title ")
    code = [c for c in (second, *others) if c["cell_type"] == "code"]
    assert not any(c["outputs"] or c["execution_count"] for c in code)


# --- solutions stand apart ---


def names(code: str, kind: type) -> set[str]:
    """Names that code reads (ast.Load) or binds (ast.Store) at the top level or below."""
    lines = [line for line in code.split("\n") if not line.startswith(("%", "!"))]
    tree = ast.parse("\n".join(lines))
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}
    if kind is ast.Store:
        found |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    return found - {"_"}


@pytest.mark.parametrize("slug", SLUGS)
def test_no_cell_needs_a_solution_and_none_overwrites_a_function(slug):
    """So the student's copy runs as the executed notebook does, in which stubs say "Not yet"."""
    ours, theirs, functions = set(), set(), set()
    for cell in read(SOURCES / f"{slug}.md"):
        if cell.kind == "code" and cell.solves:
            assert not names(cell.source, ast.Store) & functions
            theirs |= names(cell.source, ast.Store) - ours
        elif cell.kind == "code":
            bound = names(cell.source, ast.Store)
            assert not names(cell.source, ast.Load) & theirs - bound
            functions |= {n for n in bound if f"def {n}(" in cell.source}
            ours |= bound
            theirs -= bound


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_stubs_say_not_yet(path: Path):
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if "outputs" in c]
    for cell in cells:
        if re.search(r"^\s+(return )?\.\.\.", code := "".join(cell["source"]), re.M):
            said = "".join("".join(o.get("text", "")) for o in cell["outputs"])
            assert "check_" in code and said.startswith("Not yet"), said


@pytest.mark.notebook
@pytest.mark.parametrize("slug", ["first-answers", "measuring-leakage"])
def test_student_copy_runs_from_top_to_bottom(slug, tmp_path):
    code = [c for c in read(SOURCES / f"{slug}.md") if c.kind == "code" and not c.solves]
    notebook, _ = executed.execute(code, tmp_path)
    said = [o.get("text", "") for c in notebook["cells"] for o in c["outputs"]]
    stubs = sum("replace the dots" in c.source for c in code)
    assert sum("Not yet" in "".join(s) for s in said) >= stubs


# --- the instructor's copy ---


def test_instructor_copy_has_solutions_rubrics_and_reasons():
    ((path, whole),) = built("dcs2", INDEX, "instructor").items()
    assert path.relative_to(ROOT).as_posix() == "_build/instructor/dcs2.ipynb"
    made = json.loads(whole)
    said = text(made)
    assert not RAW.findall(said)
    think, code = (INDEX.find(f"ex-dcs2-{label}").name for label in ("alarm", "nearest"))
    assert f"**Solution to {think}.**" in said and f"**Rubric for {think}.**" in said
    assert f"**Rubric for {code}.**" not in said  # Code: the check grades it
    assert "> * divide by the squared length of g, not by its length" in said
    solutions = [c for c in made["cells"] if "solution" in c["metadata"].get("tags", [])]
    assert any("def nearest_solution(" in "".join(c["source"]) for c in solutions)
